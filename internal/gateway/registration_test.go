package gateway

import (
	"bytes"
	"context"
	"testing"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/nodekey"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func newKey(t testing.TB, seed byte) *nodekey.Key {
	t.Helper()
	key, err := nodekey.New(bytes.Repeat([]byte{seed}, nodekey.SeedSize))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func keyed(key *nodekey.Key) plimsoll.Node {
	return plimsoll.Node{
		ID: "n1", Incarnation: 3, Mode: plimsoll.NodeActive, Ready: true, Key: key.Public(),
		Session: nodekey.Hash(key.Session()),
	}
}

// registering is a leader that takes every node in.
func registering() *fake {
	f := newFake()
	f.answer = func(cmd *pb.Command) *pb.Reply {
		if m := cmd.GetRegisterNode(); m != nil {
			node := wire.NodeFromProto(m.GetNode())
			node.Ready = true
			f.put(putNode(node))
			return &pb.Reply{Registration: 1}
		}
		return &pb.Reply{}
	}
	return f
}

func wantRefusal(t *testing.T, f *fake, err error, code plimsoll.Code) {
	t.Helper()
	if plimsoll.CodeOf(err) != code {
		t.Errorf("error %v, want code %s", err, code)
	}
	if sent := f.sent(); len(sent) > 0 {
		t.Errorf("the leader was asked %v", sent)
	}
}

func TestARegistrationHasToBeSignedWithTheKey(t *testing.T) {
	f := registering()
	s := directly(newGateway(t, Config{}, f))
	key := newKey(t, 1)
	node := keyed(key)
	for name, signature := range map[string][]byte{
		"none": nil, "of another key": newKey(t, 2).SignRegistration(&node),
		"an answer": key.Answer("n1", nodekey.Random(nodekey.NonceSize)),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := call(
				s.agents.RegisterNode, &pb.RegisterNodeRequest{Node: wire.NodeToProto(&node), Signature: signature},
			)
			wantRefusal(t, f, err, plimsoll.CodeDenied)
		})
	}
	must(
		t, s.agents.RegisterNode,
		&pb.RegisterNodeRequest{Node: wire.NodeToProto(&node), Signature: key.SignRegistration(&node)},
	)
}

// The agents' token does not let anybody speak for a node that is not his.
func TestForgedReportsAreRefused(t *testing.T) {
	f := registering()
	key := newKey(t, 1)
	node := keyed(key)
	s := serve(t, Config{}, f)
	must(
		t, s.agents.RegisterNode,
		&pb.RegisterNodeRequest{Node: wire.NodeToProto(&node), Signature: key.SignRegistration(&node)},
	)
	f.sent()
	for name, session := range map[string]string{
		"without a session": "", "with another": newKey(t, 2).Session(), "with its hash": node.Session,
		"with the public key": node.Key,
	} {
		t.Run(name, func(t *testing.T) {
			for _, incarnation := range []uint64{2, 3, 4, 1<<64 - 1} {
				for _, err := range speak(s, session, incarnation) {
					wantRefusal(t, f, err, plimsoll.CodeDenied)
				}
			}
		})
	}
	for _, err := range speak(s, key.Session(), 3) {
		if err != nil {
			t.Errorf("the agent itself: %v", err)
		}
	}
}

// Nobody says that a node is empty who has not its session, also where the copy does not show yet
// that the node has registered.
func TestAForgedLeaveIsRefusedWhereTheCopyIsBehind(t *testing.T) {
	f := registering()
	s := serve(t, Config{}, f)
	before, key := f.Latest(), newKey(t, 1)
	f.put(putNode(keyed(key)))
	f.set(func(f *fake) { f.behind = before })
	leave := func(session string) error {
		m := &pb.LeaveNodeRequest{Node: "n1", Incarnation: 3, Empty: true}
		_, err := s.agents.LeaveNode(t.Context(), with(session, m))
		return wire.FromConnectError(err)
	}
	wantRefusal(t, f, leave(newKey(t, 2).Session()), plimsoll.CodeDenied)
	if err := leave(key.Session()); err != nil {
		t.Errorf("the agent itself: %v", err)
	}
}

// speak makes every call of an agent.
func speak(s *served, session string, incarnation uint64) []error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch, err := s.agents.WatchAssignments(
		ctx, with(session, &pb.WatchAssignmentsRequest{Node: "n1", Incarnation: incarnation}),
	)
	if err == nil && !watch.Receive() {
		err = watch.Err()
	}
	_, beat := s.agents.Heartbeat(ctx, with(session, &pb.HeartbeatRequest{Node: "n1", Incarnation: incarnation}))
	_, tasks := s.agents.ReportTasks(
		ctx, with(session, &pb.ReportTasksRequest{Node: "n1", Incarnation: incarnation, Sequence: 1}),
	)
	_, node := s.agents.ReportNode(ctx, with(session, &pb.ReportNodeRequest{
		Node: "n1", Incarnation: incarnation, Sequence: 1, Report: &pb.NodeReport{},
	}))
	_, left := s.agents.LeaveNode(ctx, with(session, &pb.LeaveNodeRequest{Node: "n1", Incarnation: incarnation}))
	return []error{
		wire.FromConnectError(err), wire.FromConnectError(beat), wire.FromConnectError(tasks),
		wire.FromConnectError(node), wire.FromConnectError(left),
	}
}

func with[Q any](session string, m *Q) *connect.Request[Q] {
	req := connect.NewRequest(m)
	if session != "" {
		req.Header().Set(nodekey.Header, session)
	}
	return req
}

// A watch ends when the node goes to another agent, so that the one before hears of no more
// attempts.
func TestAWatchEndsWhenTheNodeGoesToAnotherKey(t *testing.T) {
	f := registering()
	key := newKey(t, 1)
	f.put(putNode(keyed(key)))
	s := serve(t, Config{}, f)
	stream, err := s.agents.WatchAssignments(
		t.Context(), with(key.Session(), &pb.WatchAssignmentsRequest{Node: "n1", Incarnation: 3}),
	)
	if err != nil {
		t.Fatal(err)
	}
	receive(t, stream)
	other := keyed(newKey(t, 2))
	other.Incarnation = 2
	f.put(putNode(other), running("n1"))
	if err := ending(t, stream); plimsoll.CodeOf(err) != plimsoll.CodeDenied {
		t.Errorf("it ended with %v", err)
	}
}

func TestTheGatewaySaysWhereAnAgentCallsFrom(t *testing.T) {
	f := registering()
	s := serve(t, Config{}, f)
	must(
		t, s.agents.RegisterNode,
		&pb.RegisterNodeRequest{Node: &pb.Node{Id: "n1", Incarnation: 1, Peer: "169.254.169.254"}},
	)
	if peer := f.sent()[0].GetRegisterNode().GetNode().GetPeer(); peer != "127.0.0.1" {
		t.Errorf("the node calls from %q", peer)
	}
}

func TestAbsurdSequencesAreRefused(t *testing.T) {
	f := registering()
	s := directly(newGateway(t, Config{}, f))
	_, err := call(s.agents.ReportTasks, &pb.ReportTasksRequest{Node: "n1", Incarnation: 1, Sequence: 1<<64 - 1})
	wantRefusal(t, f, err, plimsoll.CodeInvalid)
	_, err = call(
		s.agents.ReportNode,
		&pb.ReportNodeRequest{Node: "n1", Incarnation: 1, Sequence: plimsoll.MaxSequence + 1, Report: &pb.NodeReport{}},
	)
	wantRefusal(t, f, err, plimsoll.CodeInvalid)
}

// A heartbeat costs this; thousands come each second.
func BenchmarkHeartbeat(b *testing.B) {
	f := newFake()
	key := newKey(b, 1)
	f.put(putNode(keyed(key)))
	s := agentService{newGateway(b, Config{}, f)}
	connection, err := s.g.nodes.reserve("n1")
	if err != nil {
		b.Fatal(err)
	}
	s.g.nodes.register("n1", connection, 3, 1, s.g.cfg.Clock())
	req := with(key.Session(), &pb.HeartbeatRequest{Node: "n1", Incarnation: 3})
	b.ReportAllocs()
	for b.Loop() {
		if resp, err := s.Heartbeat(b.Context(), req); err != nil || !resp.Msg.GetRegistered() {
			b.Fatal(err)
		}
	}
}
