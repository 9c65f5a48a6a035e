package client

import (
	"context"
	"time"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// Leader is the coordinator that leads, with those that stand by.
type Leader struct {
	Epoch    uint64 // higher than that of every leader before
	Address  string // for gateways
	Since    time.Time
	Revision uint64    // of the newest change
	Standbys []Standby // those that follow the leader, by address
}

// Standby is a coordinator that stands by.
type Standby struct {
	Address     string // for gateways
	Revision    uint64 // of the newest change that it was sent; 0: it is being sent a snapshot
	BehindBytes uint64 // bytes of the changes that it was not sent yet
}

// Leader returns the coordinator that leads, with those that stand by.
func (c *Client) Leader(ctx context.Context) (Leader, error) {
	res, err := call(ctx, c, c.leaders.GetLeader, &pb.GetLeaderRequest{})
	if err != nil {
		return Leader{}, err
	}
	l := Leader{
		Epoch: res.GetEpoch(), Address: res.GetAddress(), Since: time.Unix(0, res.GetSince()),
		Revision: res.GetRevision(),
	}
	for _, s := range res.GetStandbys() {
		l.Standbys = append(l.Standbys, Standby{s.GetAddress(), s.GetRevision(), s.GetBehindBytes()})
	}
	return l, nil
}

// StepDown asks the leader of an epoch to hand leadership over, or the one that leads now if epoch
// is 0. It returns before that is done. If a later leader has begun already, nothing is left to do,
// and the error is nil too. An epoch that has not begun is refused with CodeStale.
func (c *Client) StepDown(ctx context.Context, epoch uint64) error {
	if epoch == 0 { // the call may be repeated, and must then mean the same leader
		now, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		epoch = now.Epoch
	}
	_, err := call(ctx, c, c.leaders.StepDown, &pb.StepDownRequest{Epoch: epoch})
	return err
}
