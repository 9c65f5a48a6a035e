package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The routes of YuniKorn are read as all other state: strict by default, and charged to the budget.
func TestTheStateUnderWSIsChargedAndStrict(t *testing.T) {
	const nodes = "/ws/v1/partition/default/nodes"
	f := newFake()
	f.put(putNode(plimsoll.Node{
		ID: "n1", Incarnation: 1, Mode: plimsoll.NodeActive,
		Attributes: map[string]string{"rack": strings.Repeat("r", 1000)},
	}))
	s := serve(t, Config{MaxAnswerBytes: 3000}, f)
	if status, body := s.do(t, http.MethodGet, nodes, "", nil); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	if used := s.gateway.budgets.users.used.Load(); used != 0 {
		t.Errorf("%d bytes are charged behind the answer", used)
	}
	free := s.gateway.budgets.users.most
	s.gateway.budgets.users.used.Store(free - 1000)
	if status, body := s.do(t, http.MethodGet, nodes, "", nil); status != http.StatusTooManyRequests {
		t.Errorf("without room: %d %s", status, body)
	}
	s.gateway.budgets.users.used.Store(0)

	f.set(func(f *fake) { f.down = errNoLeader })
	if status, body := s.do(t, http.MethodGet, nodes, "", nil); status != http.StatusServiceUnavailable {
		t.Errorf("without a leader: %d %s", status, body)
	}
	if status, body := s.do(t, http.MethodGet, nodes+"?consistency=eventual", "", nil); status != http.StatusOK {
		t.Errorf("of the copy: %d %s", status, body)
	}
	f.set(func(f *fake) { f.down = nil })

	var more []wire.Mutation
	for _, id := range []string{"n2", "n3", "n4"} {
		more = append(more, putNode(plimsoll.Node{
			ID: id, Incarnation: 1, Attributes: map[string]string{"rack": strings.Repeat("r", 1000)},
		}))
	}
	f.put(more...)
	status, body := s.do(t, http.MethodGet, nodes, "", nil)
	if status != http.StatusRequestEntityTooLarge || !strings.Contains(body, "/node/{node}") {
		t.Errorf("beyond the bound: %d %s", status, body)
	}
}

// The whole state is outside of /ws/v1, from where a program is led to it. It is charged as the
// routes are.
func TestTheWholeStateIsServed(t *testing.T) {
	f := newFake()
	f.put(putNode(plimsoll.Node{ID: "n1", Incarnation: 1, Mode: plimsoll.NodeActive}),
		wire.Mutation{
			Kind: wire.KindQueueStatus, Key: plimsoll.RootQueue,
			Value: wire.AppendQueueStatus(nil, &plimsoll.QueueStatus{Path: plimsoll.RootQueue}),
		})
	s := serve(t, Config{MaxAnswerBytes: 1 << 20}, f)
	status, body := s.do(t, http.MethodGet, "/ws/v1/fullstatedump", "", nil)
	if status != http.StatusOK || !strings.Contains(body, `"nodeID":"n1"`) {
		t.Errorf("%d %s", status, body)
	}
	g, w := newGateway(t, Config{MaxAnswerBytes: 1 << 20}, f), httptest.NewRecorder() // it ends with its request
	g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, rest.DumpPath, nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"nodeID":"n1"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if used := g.budgets.users.used.Load(); used != 0 {
		t.Errorf("%d bytes are charged behind the answer", used)
	}
	f.put(putNode(plimsoll.Node{
		ID: "n2", Incarnation: 1, Attributes: map[string]string{"rack": strings.Repeat("r", 1<<20)},
	}))
	if status, body := s.do(t, http.MethodGet, rest.DumpPath, "", nil); status != http.StatusRequestEntityTooLarge {
		t.Errorf("beyond the bound: %d %s", status, body)
	}
}
