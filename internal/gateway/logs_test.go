package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// agentLogs is an agent's LogService. It reports its requests, and follows until released.
type agentLogs struct {
	asked   chan *pb.ReadTaskLogRequest
	release chan struct{}
}

func (a *agentLogs) ReadTaskLog(
	ctx context.Context, req *connect.Request[pb.ReadTaskLogRequest],
	stream *connect.ServerStream[pb.ReadTaskLogResponse],
) error {
	a.asked <- req.Msg
	if req.Msg.GetAttempt() > 5 {
		return wire.ConnectError(
			plimsoll.Errorf(plimsoll.CodeNotFound, "there is no log of attempt %d", req.Msg.GetAttempt()),
		)
	}
	for _, text := range []string{"one\n", "two\n"} {
		if err := stream.Send(
			&pb.ReadTaskLogResponse{Stream: "stdout", Data: []byte(text), After: 5, Time: 6, Next: 7},
		); err != nil {
			return err
		}
	}
	if req.Msg.GetFollow() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.release:
		}
		return stream.Send(&pb.ReadTaskLogResponse{Stream: "stderr", Data: []byte("end\n")})
	}
	return nil
}

// ReadTaskOutputs answers with one file that holds the outputs and the uid of the request.
func (a *agentLogs) ReadTaskOutputs(
	_ context.Context, req *connect.Request[pb.ReadTaskOutputsRequest],
	stream *connect.ServerStream[pb.ReadTaskOutputsResponse],
) error {
	text := strings.Join(append(req.Msg.GetOutputs(), req.Msg.GetUid()), " ")
	for _, m := range []*pb.ReadTaskOutputsResponse{
		{Part: &pb.ReadTaskOutputsResponse_Summary{Summary: &pb.OutputSummary{Files: 1, Bytes: int64(len(text))}}},
		{Part: &pb.ReadTaskOutputsResponse_File{File: &pb.OutputFile{Path: "f", Size: int64(len(text))}}},
		{Part: &pb.ReadTaskOutputsResponse_Data{Data: []byte(text)}},
	} {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// startAgent serves an agent's logs on a unix socket until the test ends.
func startAgent(t *testing.T) (agent *agentLogs, address string) {
	t.Helper()
	agent = &agentLogs{asked: make(chan *pb.ReadTaskLogRequest, 10), release: make(chan struct{})}
	address = "unix:" + filepath.Join(t.TempDir(), "agent.sock")
	nameAgent(t, address, "n1")
	l, err := transport.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewLogServiceHandler(agent))
	t.Cleanup(serveUntil(t, l, mux, transport.ServeConfig{}))
	return agent, address
}

func running(node string) wire.Mutation {
	return putTask(plimsoll.Task{Job: "a", Group: "map", Index: 0, Attempt: 2, State: plimsoll.TaskRunning, Node: node})
}

func TestLogsAreRelayedFromTheTasksNode(t *testing.T) {
	agent, address := startAgent(t)
	f := cluster()
	f.put(putNode(plimsoll.Node{ID: "n1", Address: address, Incarnation: 1}), running("n1"))
	s := serve(t, Config{}, f)
	stream := open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{
		Task: "a.map.0", Stream: "stdout", TailBytes: 9, TailLines: 7, SinceNanos: 11, Timestamps: true,
		StdoutFrom: 12, StderrFrom: 13,
	})
	text := ""
	for stream.Receive() {
		m := stream.Msg()
		text += fmt.Sprintf("%s/%d:%d-%d:%d:%s", m.GetStream(), m.GetAttempt(), m.GetAfter(), m.GetTime(), m.GetNext(),
			m.GetData())
	}
	if err := stream.Err(); err != nil || text != "stdout/2:5-6:7:one\nstdout/2:5-6:7:two\n" {
		t.Errorf("got %q, %v", text, err)
	}
	asked := <-agent.asked
	if asked.GetTask() != "a.map.0" || asked.GetAttempt() != 2 || asked.GetStream() != "stdout" || asked.GetFollow() ||
		asked.GetTailBytes() != 9 || asked.GetTailLines() != 7 || asked.GetSinceNanos() != 11 ||
		!asked.GetTimestamps() || asked.GetStdoutFrom() != 12 || asked.GetStderrFrom() != 13 {
		t.Errorf("the agent was asked %v", asked)
	}
	older := open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.0", Attempt: 1})
	receive(t, older)
	if asked := <-agent.asked; asked.GetAttempt() != 1 {
		t.Errorf("for an older attempt the agent was asked %v", asked)
	}
}

// A task that was tried again elsewhere has its logs on several nodes.
func TestLogsOfAnEarlierAttemptAreThoseOfItsNode(t *testing.T) {
	first, address1 := startAgent(t)
	nameAgent(t, address1, "n1")
	second, address2 := startAgent(t)
	nameAgent(t, address2, "n2")
	f := cluster()
	f.put(
		putNode(plimsoll.Node{ID: "n1", Address: address1, Incarnation: 1}),
		putNode(plimsoll.Node{ID: "n2", Address: address2, Incarnation: 1}),
		putTask(plimsoll.Task{
			Job: "a", Group: "map", Index: 0, Attempt: 5, State: plimsoll.TaskRunning, Node: "n2",
			Earlier: []plimsoll.NodeAttempts{{Node: "gone", First: 2, Last: 2}, {Node: "n1", First: 3, Last: 4}},
		}),
	)
	s := serve(t, Config{}, f)
	for attempt, agent := range map[int32]*agentLogs{3: first, 4: first, 5: second, 0: second} {
		receive(t, open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.0", Attempt: attempt}))
		want := attempt
		if want == 0 {
			want = 5
		}
		select {
		case asked := <-agent.asked:
			if asked.GetAttempt() != want {
				t.Errorf("for attempt %d the agent was asked %v", attempt, asked)
			}
		default:
			t.Errorf("for attempt %d another agent was asked", attempt)
		}
	}
	for attempt, says := range map[int32]string{
		1: "the node of attempt 1 of task a.map.0 is no longer remembered",
		2: `node: "gone", where attempt 2 of task a.map.0 ran, has been removed, and what it kept of it`,
	} {
		err := ending(t, open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.0", Attempt: attempt}))
		if plimsoll.CodeOf(err) != plimsoll.CodeNotFound || !strings.Contains(err.Error(), says) {
			t.Errorf("attempt %d: %v", attempt, err)
		}
	}
}

func TestFollowedLogsWaitForTheAttemptAndGoOnToItsEnd(t *testing.T) {
	agent, address := startAgent(t)
	f := cluster()
	f.put(putNode(plimsoll.Node{ID: "n1", Address: address, Incarnation: 1}),
		putTask(plimsoll.Task{Job: "a", Group: "map", Index: 1, State: plimsoll.TaskPending}))
	s := serve(t, Config{}, f)
	f.answer = func(*pb.Command) *pb.Reply { return &pb.Reply{} }
	text := make(chan string, 10)
	stream := open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.1", Follow: true, TailLines: 1})
	go func() {
		defer close(text)
		for stream.Receive() {
			text <- string(stream.Msg().GetData())
		}
	}()
	for state := plimsoll.TaskBound; state <= plimsoll.TaskRunning; state++ {
		f.put(putTask(plimsoll.Task{Job: "a", Group: "map", Index: 1, Attempt: 1, State: state, Node: "n1"}),
			putStatus(plimsoll.JobStatus{ID: "a", Revision: uint64(state) + 10}))
	}
	for _, want := range []string{"one\n", "two\n"} {
		if got := <-text; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	asked := <-agent.asked
	if !asked.GetFollow() || asked.GetAttempt() != 1 || asked.GetTailLines() != 0 { // all is new
		t.Errorf("the agent was asked %v", asked)
	}
	close(agent.release)
	if got := <-text; got != "end\n" {
		t.Errorf("at the end: %q", got)
	}
	if _, more := <-text; more || stream.Err() != nil {
		t.Errorf("it goes on, or ended with %v", stream.Err())
	}
}

func TestLogsThatCannotBeReadSayWhy(t *testing.T) {
	_, address := startAgent(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil { // nobody answers there now
		t.Fatal(err)
	}
	f := cluster()
	task := func(index, attempt int32, state plimsoll.TaskState, node string) wire.Mutation {
		return putTask(plimsoll.Task{Job: "a", Group: "map", Index: index, Attempt: attempt, State: state, Node: node})
	}
	f.put(
		putNode(plimsoll.Node{ID: "n1", Address: address}), putNode(plimsoll.Node{ID: "silent"}),
		putNode(plimsoll.Node{ID: "off", Address: l.Addr().String(), Peer: "127.0.0.1"}),
		putNode(plimsoll.Node{ID: "odd", Address: "nowhere"}),
		task(0, 2, plimsoll.TaskRunning, "n1"), task(1, 0, plimsoll.TaskPending, ""),
		task(2, 1, plimsoll.TaskBound, "n1"),
		task(3, 1, plimsoll.TaskFinished, "removed"), task(4, 1, plimsoll.TaskRunning, "silent"),
		task(5, 1, plimsoll.TaskRunning, "off"),
		task(6, 0, plimsoll.TaskFinished, ""), task(7, 6, plimsoll.TaskFinished, "n1"),
		task(8, 1, plimsoll.TaskRunning, "odd"),
	)
	s := serve(t, Config{}, f)
	tests := []struct {
		name string
		req  *pb.ReadLogsRequest
		code plimsoll.Code
		says string
	}{
		{"no task", &pb.ReadLogsRequest{Task: "a"}, plimsoll.CodeInvalid, "job, group and index"},
		{
			"a negative attempt", &pb.ReadLogsRequest{Task: "a.map.0", Attempt: -1}, plimsoll.CodeInvalid,
			"counted from 1",
		},
		{
			"a stream that is none", &pb.ReadLogsRequest{Task: "a.map.0", Stream: "stdin"}, plimsoll.CodeInvalid,
			"stdout or stderr",
		},
		{"a negative tail", &pb.ReadLogsRequest{Task: "a.map.0", TailBytes: -1}, plimsoll.CodeInvalid, "tailBytes"},
		{
			"a negative tail of lines", &pb.ReadLogsRequest{Task: "a.map.0", TailLines: -1}, plimsoll.CodeInvalid,
			"tailLines",
		},
		{"a negative place", &pb.ReadLogsRequest{Task: "a.map.0", StderrFrom: -1}, plimsoll.CodeInvalid, "stderrFrom"},
		{"a negative time", &pb.ReadLogsRequest{Task: "a.map.0", SinceNanos: -1}, plimsoll.CodeInvalid, "sinceNanos"},
		{"an unknown task", &pb.ReadLogsRequest{Task: "a.map.99"}, plimsoll.CodeNotFound, "there is no task"},
		{"a task that waits", &pb.ReadLogsRequest{Task: "a.map.1"}, plimsoll.CodeConflict, "has not been started yet"},
		{
			"a task that is only bound", &pb.ReadLogsRequest{Task: "a.map.2"}, plimsoll.CodeConflict,
			"has not been started yet",
		},
		{
			"an attempt to come", &pb.ReadLogsRequest{Task: "a.map.0", Attempt: 3}, plimsoll.CodeConflict,
			"has not been started yet",
		},
		{
			"an attempt that will never be", &pb.ReadLogsRequest{Task: "a.map.3", Attempt: 2, Follow: true},
			plimsoll.CodeNotFound, "no attempt 2",
		},
		{
			"a task that never started", &pb.ReadLogsRequest{Task: "a.map.6", Follow: true}, plimsoll.CodeNotFound,
			"without being started",
		},
		{"a node that was removed", &pb.ReadLogsRequest{Task: "a.map.3"}, plimsoll.CodeNotFound, `node: "removed"`},
		{"a node without an address", &pb.ReadLogsRequest{Task: "a.map.4"}, plimsoll.CodeConflict, "gave no address"},
		{"an address that is none", &pb.ReadLogsRequest{Task: "a.map.8"}, plimsoll.CodeConflict, `"nowhere"`},
		{
			"an agent that is off", &pb.ReadLogsRequest{Task: "a.map.5"}, plimsoll.CodeUnavailable,
			"the agent of node off at " + l.Addr().String(),
		},
		{
			"a log that the agent has not", &pb.ReadLogsRequest{Task: "a.map.7"}, plimsoll.CodeNotFound,
			"no log of attempt 6",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := ending(t, open(t, s.jobs.ReadLogs, test.req))
			if plimsoll.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %s: %v; want %s and %q", plimsoll.CodeOf(err), err, test.code, test.says)
			}
		})
	}
}

func TestConnectionsToAgentsAreBounded(t *testing.T) {
	agent, address := startAgent(t)
	_ = agent // nobody asks it anything
	c := newAgentClients(2, newAgentAddresses(nil), token.Finder{})
	defer c.close()
	for _, id := range []string{"n1", "n2", "n1", "n3"} {
		nameAgent(t, address, id)
		if _, err := c.get(t.Context(), &pb.Node{Id: id, Address: address}); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.mu.byNode) != 2 || c.mu.byNode["n2"] != nil {
		t.Errorf("kept are %v; the one not used for the longest time should have gone", c.mu.byNode)
	}
}

// nameAgent makes the directory of an agent's socket that of a node.
func nameAgent(t testing.TB, address, node string) {
	t.Helper()
	dir := filepath.Dir(strings.TrimPrefix(address, "unix:"))
	if err := os.WriteFile(
		filepath.Join(dir, "node.json"), []byte(`{"node":"`+node+`","incarnation":1}`), 0o600,
	); err != nil {
		t.Fatal(err)
	}
}
