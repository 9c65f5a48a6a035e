package gateway

import (
	"context"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A command that was sent and has no reply is not one without effect; a question never has an
// effect.
func TestALostReplyIsAnOutcomeThatIsNotKnown(t *testing.T) {
	f := cluster()
	f.down = plimsoll.Errorf(plimsoll.CodeOutcomeUnknown, "the connection to the leader broke")
	s := directly(newGateway(t, Config{}, f))
	if _, err := call(
		s.jobs.KillJob, &pb.KillJobRequest{Id: "a"},
	); plimsoll.CodeOf(err) != plimsoll.CodeOutcomeUnknown {
		t.Errorf("a kill: %v", err)
	}
	_, err := call(s.jobs.ExplainTask, &pb.ExplainTaskRequest{Id: "a.map.0"})
	if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a question: %v", err)
	}
}

// A change that was made and whose effect cannot be read is not one without effect.
func TestAChangeThatCannotBeReadIsNotWithoutEffect(t *testing.T) {
	f := &unread{cluster()}
	f.answer = func(*pb.Command) *pb.Reply { return &pb.Reply{Revision: 1000} }
	s := directly(newGateway(t, Config{}, f))
	if _, err := call(
		s.jobs.KillJob, &pb.KillJobRequest{Id: "a"},
	); plimsoll.CodeOf(err) != plimsoll.CodeOutcomeUnknown {
		t.Errorf("got %v", err)
	}
}

// A change that is answered as the first time, long after its object is gone, was made.
func TestARepeatedChangeOfWhatIsGoneWasMade(t *testing.T) {
	f := newFake()
	f.answer = func(*pb.Command) *pb.Reply { return &pb.Reply{} }
	s := directly(newGateway(t, Config{}, f))
	killed := must(t, s.jobs.KillJob, &pb.KillJobRequest{Id: "gone"}).GetStatus()
	if killed.GetState() != pb.JobState_JOB_STATE_EXPIRED {
		t.Errorf("killed is %v", killed)
	}
	spec := specNamed("gone")
	submitted := must(t, s.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)}).GetJob()
	if submitted.GetStatus().GetState() != pb.JobState_JOB_STATE_EXPIRED || submitted.GetSpec().GetId() != "gone" {
		t.Errorf("submitted is %v", submitted)
	}
	node := must(t, s.nodes.SetNodeMode, &pb.SetNodeModeRequest{Id: "gone", Mode: 2}).GetNode()
	if node.GetId() != "gone" || node.GetMode() != 2 {
		t.Errorf("the node is %v", node)
	}
}

// A call that the gateway ends, because it is stopped, does not read as if its caller had given
// it up.
func TestACallThatIsEndedHereIsNotCanceled(t *testing.T) {
	f := cluster()
	f.hang = true
	s := directly(newGateway(t, Config{}, f))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	told := func(err error) plimsoll.Code {
		return plimsoll.CodeOf(wire.FromConnectError((guard{s.gateway}).outcome(ended, "a call", nil, err)))
	}
	_, err := s.gateway.read(ended)
	if code := told(err); code != plimsoll.CodeUnavailable {
		t.Errorf("a read: %s", code)
	}
	_, err = s.gateway.do(ended, &pb.Command{Kind: &pb.Command_KillJob{KillJob: &pb.KillJobRequest{Id: "a"}}})
	if code := told(err); code != plimsoll.CodeOutcomeUnknown {
		t.Errorf("a kill: %s", code)
	}
}

// unread is a replica whose barriers fail.
type unread struct{ *fake }

func (unread) Barrier(context.Context) (*replica.Snapshot, error) { return nil, errNoLeader }
