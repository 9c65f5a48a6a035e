package gateway

import (
	"testing"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// A command that was not sent yet when leadership moves goes to the next leader. So a step-down
// always names the leader that is meant: the one that the caller named, or the one that led then.
func TestAStepDownNamesItsLeader(t *testing.T) {
	for _, c := range []struct {
		name        string
		asked, want uint64
	}{{"the caller names it", 5, 5}, {"the caller names none", 0, 7}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake()
			f.answer = func(cmd *pb.Command) *pb.Reply {
				if cmd.GetGetLeader() != nil {
					return &pb.Reply{GetLeader: &pb.GetLeaderResponse{Epoch: 7}}
				}
				return &pb.Reply{}
			}
			must(t, leaderService{newGateway(t, Config{}, f)}.StepDown, &pb.StepDownRequest{Epoch: c.asked})
			sent := f.sent()
			if got := sent[len(sent)-1].GetStepDown().GetEpoch(); got != c.want {
				t.Errorf("the leader of epoch %d was asked to step down, want %d", got, c.want)
			}
		})
	}
}
