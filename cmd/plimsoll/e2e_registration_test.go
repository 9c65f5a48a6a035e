package main

import (
	"context"
	"math"
	"net"
	"os"
	"testing"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/nodekey"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// TestForgedRegistrationsTakeNothingFromAnAgent lets a forger register and report, over the agents'
// port, for a node that has an agent. The agent's task goes on in its first attempt, and the agent
// does not end.
func TestForgedRegistrationsTakeNothingFromAnAgent(t *testing.T) {
	t.Parallel()
	r := &roles{site: newSite(t)}
	r.startCoordinator()
	r.startGateway()
	r.startAgent()
	r.nodeReady("n1")
	r.gate("held.main.0")
	r.submit("held", 1, gatedTask(r.dir), "")
	pid := r.pid("held.main.0")
	r.running("held", 1)

	docker, err := net.Listen("unix", r.path("docker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer docker.Close() //nolint:errcheck // nobody has called it
	for _, test := range []struct {
		name string
		node plimsoll.Node
		code plimsoll.Code
	}{
		{"from the future", plimsoll.Node{ID: "n1", Incarnation: math.MaxUint64}, plimsoll.CodeInvalid},
		{"without the key", plimsoll.Node{ID: "n1", Incarnation: 1 << 40}, plimsoll.CodeConflict},
		{
			"docker.sock",
			plimsoll.Node{ID: "n2", Incarnation: 1, Address: "unix:" + r.path("docker.sock")},
			plimsoll.CodeDenied,
		},
		{
			"another machine",
			plimsoll.Node{ID: "n2", Incarnation: 1, Address: "169.254.169.254:80"},
			plimsoll.CodeDenied,
		},
		{
			"absurd",
			plimsoll.Node{ID: "n2", Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 1 << 50}},
			plimsoll.CodeInvalid,
		},
	} {
		for _, seed := range [][]byte{nil, make([]byte, nodekey.SeedSize)} {
			if err := forge(t, r.address, test.node, seed); plimsoll.CodeOf(err) != test.code {
				t.Errorf("%s: %v, want code %s", test.name, err, test.code)
			}
		}
	}
	for _, err := range forgeReports(t, r.address) {
		if plimsoll.CodeOf(err) != plimsoll.CodeDenied {
			t.Errorf("a call for a node that is not the caller's: %v", err)
		}
	}

	// A second machine with the same id gets an error, and does not end either.
	second := start(t, "agent", "--data", r.path("second"), "--gateways", r.address, "--node", "n1")
	second.says("belongs to an agent with another key")
	if info, err := os.Stat(r.path("second/node.key")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the key of an agent: %v, %v", info, err)
	}

	r.alive("held.main.0", pid)
	r.open("held.main.0", 0)
	_, tasks := r.ended("held")
	if tasks[0].Attempt != 1 {
		t.Errorf("%+v", tasks[0])
	}
	// over the agent's socket
	if stdout, stderr, code := r.cli("job", "logs", "held.main.0"); code != 0 || stdout != "over\n" {
		t.Errorf("exit code %d, %q, %s", code, stdout, stderr)
	}
	for _, agent := range []*daemon{r.agent, second} {
		select {
		case <-agent.ended:
			t.Error("an agent has ended")
		default:
		}
	}
}

// agentCalls speaks to a gateway as an agent does.
func agentCalls(t *testing.T, address string) plimsollv1connect.AgentServiceClient {
	t.Helper()
	client, url, err := transport.Client(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return plimsollv1connect.NewAgentServiceClient(client, url)
}

// forge registers a node, with a key that is made from the seed if there is one.
func forge(t *testing.T, address string, node plimsoll.Node, seed []byte) error {
	t.Helper()
	req := &pb.RegisterNodeRequest{}
	if seed != nil {
		key, err := nodekey.New(seed)
		if err != nil {
			t.Fatal(err)
		}
		node.Key, node.Session = key.Public(), nodekey.Hash(key.Session())
		req.Signature = key.SignRegistration(&node)
	}
	req.Node = wire.NodeToProto(&node)
	_, err := agentCalls(t, address).RegisterNode(context.Background(), connect.NewRequest(req))
	return wire.FromConnectError(err)
}

// forgeReports sends reports for n1.
func forgeReports(t *testing.T, address string) (errs []error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	agents := agentCalls(t, address)
	_, err := agents.Heartbeat(ctx, connect.NewRequest(&pb.HeartbeatRequest{Node: "n1", Incarnation: math.MaxUint64}))
	errs = append(errs, wire.FromConnectError(err))
	report := &pb.TaskReport{
		Task: "held.main.0", Attempt: 1, State: pb.TaskState_TASK_STATE_FINISHED,
		Result: pb.TaskResult_TASK_RESULT_FAILED,
	}
	_, err = agents.ReportTasks(ctx, connect.NewRequest(&pb.ReportTasksRequest{
		Node: "n1", Incarnation: 1 << 40, Sequence: 1, Reports: []*pb.TaskReport{report},
	}))
	errs = append(errs, wire.FromConnectError(err))
	_, err = agents.ReportNode(ctx, connect.NewRequest(&pb.ReportNodeRequest{
		Node: "n1", Incarnation: 1 << 40, Sequence: plimsoll.MaxSequence,
		Report: &pb.NodeReport{SchedulingDisabled: true},
	}))
	errs = append(errs, wire.FromConnectError(err))
	watch, err := agents.WatchAssignments(
		ctx, connect.NewRequest(&pb.WatchAssignmentsRequest{Node: "n1", Incarnation: 1 << 40}),
	)
	if err == nil && !watch.Receive() {
		err = watch.Err()
	}
	return append(errs, wire.FromConnectError(err))
}
