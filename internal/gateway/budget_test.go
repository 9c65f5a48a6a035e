package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// underWay begins a request, of which so many bytes come, and returns when they have been read.
// finish ends it.
func underWay(t *testing.T, g *Gateway, caller transport.Caller, n int) (finish func() int) {
	t.Helper()
	body, send := io.Pipe()
	r := httptest.NewRequest(http.MethodPost, submitJob, body)
	r.ContentLength = int64(n + 1)
	r.Header.Set("Content-Type", "application/json")
	w, ended := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(ended)
		g.Handler().ServeHTTP(w, r.WithContext(transport.WithCaller(r.Context(), caller)))
	}()
	if _, err := send.Write(bytes.Repeat([]byte(" "), n)); err != nil {
		t.Fatal(err)
	}
	return sync.OnceValue(func() int {
		_ = send.CloseWithError(io.ErrUnexpectedEOF) // the rest never comes
		<-ended
		return w.Code
	})
}

// heartbeat calls a gateway as somebody, and returns the status and the headers.
func heartbeat(g *Gateway, caller transport.Caller) (int, http.Header, string) {
	r := httptest.NewRequest(
		http.MethodPost, plimsollv1connect.AgentServiceHeartbeatProcedure, strings.NewReader(`{"node":"n1"}`),
	)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, r.WithContext(transport.WithCaller(r.Context(), caller)))
	return w.Code, w.Header(), w.Body.String()
}

func TestTheBudgetOfBytesRefusesWith429AndRecovers(t *testing.T) {
	g := newGateway(t, Config{MaxUserBytes: 1 << 20, MaxAgentBytes: 1 << 20}, cluster())
	var all []func() int
	for _, n := range []int{800_000, 62_100, 62_100, 62_100, 62_100} {
		all = append(all, underWay(t, g, transport.CallerUser, n))
	}
	finish := func() {
		for _, end := range all {
			end()
		}
	}
	defer finish()
	status, header, body := heartbeat(g, transport.CallerUser)
	if status != http.StatusTooManyRequests || header.Get("Retry-After") != "1" || !strings.Contains(
		body, "requests of users",
	) {
		t.Errorf("with the budget used up: %d %q %q", status, header.Get("Retry-After"), body)
	}
	if status, _, body := heartbeat(g, transport.CallerAgent); status != http.StatusOK {
		t.Errorf("an agent: %d %q", status, body)
	}
	if got := counted(t, g.metrics.refusals.WithLabelValues(boundUserBytes)); got != 1 {
		t.Errorf("%v refusals were counted", got)
	}
	finish()
	if status, _, body := heartbeat(g, transport.CallerUser); status != http.StatusOK {
		t.Errorf("after the end of the others: %d %q", status, body)
	}
	if users, agents := g.budgets.users.used.Load(), g.budgets.agents.used.Load(); users != 0 || agents != 0 {
		t.Errorf("%d and %d bytes were not given back", users, agents)
	}
}

// Large requests that use up what they may leave room for small ones.
func TestLargeRequestsLeaveRoomForSmallOnes(t *testing.T) {
	g := newGateway(t, Config{MaxUserBytes: 1 << 20}, cluster())
	defer underWay(t, g, transport.CallerUser, 900_000)()
	said, _, _ := attack{"", submitJob, "application/json", "", "", bytes.Repeat([]byte(" "), 200_000)}.send(g)
	if !strings.HasPrefix(said, "429") {
		t.Errorf("another large one: %q", said)
	}
	if status, _, body := heartbeat(g, transport.CallerUser); status != http.StatusOK {
		t.Errorf("a small one: %d %q", status, body)
	}
}

// The bytes of a body count as they come: a body that declares its length and sends nothing takes
// no room of others.
func TestABodyCountsAsItComes(t *testing.T) {
	g := newGateway(t, Config{MaxUserBytes: 1 << 20}, cluster())
	for range 100 {
		defer underWay(t, g, transport.CallerUser, 1)()
	}
	if status, _, body := heartbeat(g, transport.CallerUser); status != http.StatusOK {
		t.Errorf("with 100 requests that send nothing: %d %q", status, body)
	}
}

// One that grows past the budget ends there, although it began when there was room.
func TestABodyThatGrowsPastTheBudgetIsRefused(t *testing.T) {
	g := newGateway(t, Config{MaxUserBytes: 1 << 20}, cluster())
	body := strings.NewReader(`{"spec":{"id":"` + strings.Repeat("x", 2<<20) + `"}}`)
	r := httptest.NewRequest(http.MethodPost, submitJob, io.MultiReader(body)) // of a length that is not declared
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
		t.Errorf("answered %d %q", w.Code, w.Body)
	}
	small := zipped(t, []byte(`{"spec":{"id":"`+strings.Repeat("x", 2<<20)+`"}}`))
	said, header, _ := attack{"", submitJob, "application/json", "Content-Encoding", "gzip", small}.send(g)
	if !strings.HasPrefix(said, "429") || header.Get("Retry-After") != "1" {
		t.Errorf("what inflates past it: %.200q", said)
	}
	if used := g.budgets.users.used.Load(); used != 0 {
		t.Errorf("%d bytes were not given back", used)
	}
}

// large is a cluster of so many jobs, of one task each, whose records take some 1,000 bytes.
func large(n int) *fake {
	f := newFake()
	long := strings.Repeat("x", 1000)
	for i := range n {
		id := fmt.Sprintf("job-%05d", i)
		f.put(putStatus(plimsoll.JobStatus{ID: id, Owner: "alice", Queue: "root.batch", Reason: long}),
			putTask(plimsoll.Task{Job: id, Group: "g", Message: long}))
		f.emit(plimsoll.Event{Object: id, Message: long})
	}
	return f
}

// A page ends when its records are many bytes, and the pages together are the whole list.
func TestAPageOfAListIsBoundedByBytes(t *testing.T) {
	const n = 9000
	s := directly(newGateway(t, Config{}, large(n)))
	after, jobs, pages := "", 0, 0
	for {
		page := must(t, s.jobs.ListJobs, &pb.ListJobsRequest{After: after})
		jobs, pages = jobs+len(page.GetJobs()), pages+1
		if after = page.GetNext(); after == "" {
			break
		}
	}
	if jobs != n || pages != 3 {
		t.Errorf("%d jobs in %d pages", jobs, pages)
	}
	tasks := 0
	for {
		page := must(t, s.jobs.ListTasks, &pb.ListTasksRequest{After: after})
		tasks += len(page.GetTasks())
		if after = page.GetNext(); after == "" {
			break
		}
	}
	if tasks != n {
		t.Errorf("%d tasks", tasks)
	}
	events, start := 0, uint64(0)
	for {
		page := must(t, s.events.ListEvents, &pb.ListEventsRequest{Start: &start})
		events += len(page.GetIds())
		if start = page.GetNext(); start > page.GetHighestId() {
			break
		}
	}
	if events != n {
		t.Errorf("%d events", events)
	}
}

// Answers take room of the same budget, over each interface, and give it back.
func TestLargeAnswersTakeRoomOfTheBudget(t *testing.T) {
	s := directly(newGateway(t, Config{MaxUserBytes: 1 << 20}, large(1000)))
	for name, err := range map[string]error{
		"jobs":   second(call(s.jobs.ListJobs, &pb.ListJobsRequest{})),
		"tasks":  second(call(s.jobs.ListTasks, &pb.ListTasksRequest{})),
		"events": second(call(s.events.ListEvents, &pb.ListEventsRequest{})),
	} {
		if plimsoll.CodeOf(err) != plimsoll.CodeExhausted || !strings.Contains(err.Error(), "requests of users") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, w := httptest.NewRequestWithContext(
		context.Background(), http.MethodGet, "/ws/v1/events/batch", nil,
	), httptest.NewRecorder()
	s.gateway.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
		t.Errorf("a batch of events: %d %q", w.Code, w.Body)
	}
	if page := must(t, s.jobs.ListJobs, &pb.ListJobsRequest{Limit: 10}); len(page.GetJobs()) != 10 {
		t.Errorf("then a small page has %d jobs", len(page.GetJobs()))
	}
	if used := s.gateway.budgets.users.used.Load(); used != 0 {
		t.Errorf("%d bytes were not given back", used)
	}
}

// The budgets follow from the memory of the machine, within bounds.
func TestDefaultBudgets(t *testing.T) {
	users := defaultBudget()
	cfg := Config{}.withDefaults()
	if users < 96<<20 || users > 1<<30 || cfg.MaxUserBytes != users || cfg.MaxAgentBytes < 64<<20 {
		t.Errorf("users have %d bytes, and by default %d; agents %d", users, cfg.MaxUserBytes, cfg.MaxAgentBytes)
	}
}
