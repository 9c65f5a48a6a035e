package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ListAttempts answers with the attempts that the test has set for a task, and those of its record,
// in parts of 5.
func (g *fakeGateway) ListAttempts(
	_ context.Context, req *connect.Request[pb.ListAttemptsRequest],
) (*connect.Response[pb.ListAttemptsResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.mu.tasks {
		t := &g.mu.tasks[i]
		if t.ID != req.Msg.GetTask() {
			continue
		}
		res := &pb.ListAttemptsResponse{}
		for _, a := range append(g.mu.attempts[t.ID], t.AllAttempts()...) {
			switch n := len(res.Attempts); {
			case a.Number <= req.Msg.GetAfter():
			case n == 5:
				res.Next = res.Attempts[n-1].GetNumber()
				return connect.NewResponse(res), nil
			default:
				res.Attempts = append(res.Attempts, wire.AttemptToProto(&a))
			}
		}
		return connect.NewResponse(res), nil
	}
	return nil, noSuch("task", req.Msg.GetTask())
}

// Attempts that are no longer in the record of a task come from the archive. Those that nobody
// keeps are counted, also between others.
func TestAttemptsThatAreNotKeptAreCounted(t *testing.T) {
	attempts := func(first, last int32) (list []plimsoll.Attempt) {
		for n := first; n <= last; n++ {
			list = append(list, plimsoll.Attempt{
				Number: n, Node: "n1", Result: plimsoll.ResultFailed, ExitCode: 3, Bound: testNow.UnixNano(),
				Started: testNow.UnixNano(), Finished: testNow.Add(time.Second).UnixNano(),
			})
		}
		return list
	}
	for _, c := range []struct {
		archived, held []plimsoll.Attempt
		told           string
	}{
		{attempts(1, 16), attempts(17, 39), ""},
		{nil, attempts(25, 39), "flaky.map.1: 24 earlier attempts are not kept\n"},
		{nil, attempts(2, 39), "flaky.map.1: 1 earlier attempt is not kept\n"},
		{
			append(attempts(1, 8), attempts(17, 24)...), attempts(25, 39),
			"flaky.map.1: 8 earlier attempts are not kept\n",
		},
	} {
		address, g := serve(t)
		g.mu.tasks[1].Attempt, g.mu.tasks[1].Attempts = 40, c.held
		g.mu.attempts = map[string][]plimsoll.Attempt{"flaky.map.1": c.archived}
		rows := 1 + len(c.archived) + len(c.held)
		for _, args := range []string{"task attempts flaky.map.1", "job get flaky --attempts"} {
			stdout, stderr, code := command(t, address, strings.Fields(args)...)
			_, table, _ := strings.Cut(stdout, "TASK  ")
			got, told := strings.Count(table, "flaky.map.1  "), strings.Contains(stdout, "not kept")
			if code != 0 || got != rows || told != (c.told != "") || !strings.HasSuffix(stdout, c.told) {
				t.Errorf("%s: exit code %d, %d rows, want %d and %q; %s", args, code, got, rows, c.told, stdout+stderr)
			}
		}
	}
}
