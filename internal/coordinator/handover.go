package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// handoverTimeout bounds the time for which a leader that steps down waits for its gateways. A
// command that is not answered then gets CodeOutcomeUnknown from its gateway.
const handoverTimeout = 3 * time.Second

// errSteppedDown says that a term ended because it was asked to.
var errSteppedDown = errors.New("the leader was asked to step down")

// getLeader tells the term, and the coordinators that stand by.
func (t *term) getLeader(_ *pb.Command, answer requestAnswer) {
	m := &pb.GetLeaderResponse{
		Epoch: t.epoch, Address: t.address, Since: t.began, Revision: t.source.Snapshot().Revision(),
	}
	for _, s := range t.source.Standbys() { // at most replica.DefaultMaxGateways
		m.Standbys = append(m.Standbys, &pb.Standby{
			Address: s.Address, Revision: s.Revision, BehindBytes: uint64(s.BehindBytes),
		})
	}
	answer(&pb.Reply{GetLeader: m}, nil)
}

// stepDown lets the term hand leadership over. The answer comes first. If the leader that is meant
// was an earlier one, it leads no more: the command was repeated, or came too late to be needed.
func (t *term) stepDown(cmd *pb.Command, answer requestAnswer) {
	epoch := cmd.GetStepDown().GetEpoch()
	if epoch > t.epoch {
		answer(nil, plimsoll.Errorf(
			plimsoll.CodeStale, "the leader is of epoch %d, and %d has not begun; look at plimsoll leader again", t.epoch, epoch,
		))
		return
	}
	answer(&pb.Reply{}, nil)
	if epoch != 0 && epoch < t.epoch {
		return
	}
	select {
	case t.leaving <- struct{}{}:
	default: // it was asked already
	}
}

// handOver waits until the term is asked to hand leadership over, and prepares that: the gateways
// send nothing more, and all that they sent before is answered. It returns false if ctx ends first.
func (t *term) handOver(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-t.leaving:
	}
	ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	t.source.Drain(ctx, t.requests.answerAll)
	return true
}

// answerAll answers all polls that wait.
func (s *requestStore) answerAll() { s.answerPolls(time.Now().Add(pollWait)) }
