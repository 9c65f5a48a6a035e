package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

func TestReadyMeansThatALeaderIsFollowed(t *testing.T) {
	f := cluster()
	g := newGateway(t, Config{}, f)
	if w := ask(g.Handler(), http.MethodGet, "/readyz"); w.Code != http.StatusOK || w.Body.String() != "ready\n" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	f.down = errNoLeader
	if w := ask(
		g.Handler(), http.MethodGet, "/readyz",
	); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "follows no leader") {
		t.Errorf("without a leader: %d %s", w.Code, w.Body)
	}
}

// Each path is for the holders of one token: there is none that both may call, and none that nobody
// may.
func TestUsersAndAgentsHavePathsOfTheirOwn(t *testing.T) {
	grants := Grants(token.New(token.User), token.New(token.Agent))
	for path, want := range map[string]transport.Caller{
		"/": transport.CallerUser, "/ws/v1/events/batch": transport.CallerUser,
		"/plimsoll.v1.JobService/SubmitJob":             transport.CallerUser,
		"/plimsoll.v1.NodeService/RemoveNode":           transport.CallerUser,
		"/plimsoll.v1.AgentServiceX/Y":                  transport.CallerUser,
		"//plimsoll.v1.AgentService/Heartbeat":          transport.CallerUser, // it is not there
		"/plimsoll.v1.AgentService/Heartbeat":           transport.CallerAgent,
		"/plimsoll.v1.AgentService/WatchAssignments":    transport.CallerAgent,
		"/plimsoll.v1.AgentService/no-such-call-either": transport.CallerAgent,
	} {
		var may []transport.Caller
		for _, g := range grants {
			if g.Paths(path) {
				may = append(may, g.Caller)
			}
		}
		if len(may) != 1 || may[0] != want {
			t.Errorf("%s: %v may call it, want %v", path, may, want)
		}
	}
}
