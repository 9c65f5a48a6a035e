package gateway

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// reading is a request for a read.
type reading interface{ GetConsistency() *pb.Consistency }

// view is the state from which a read is answered.
type view struct {
	*replica.Snapshot
	age time.Duration // 0: the state holds everything that was committed when the read came
}

// view returns the state for a request, with the consistency that the request asks for.
func (g *Gateway) view(ctx context.Context, req reading) (view, error) {
	return g.viewAt(ctx, wire.ConsistencyFromProto(req.GetConsistency()))
}

func (g *Gateway) viewAt(ctx context.Context, c plimsoll.Consistency) (v view, err error) {
	if err := c.Validate(); err != nil {
		return view{}, err
	}
	least := g.shown.least()
	switch c.Level {
	case plimsoll.FreshnessEventual:
		if v.Snapshot, v.age, err = g.replica.Recent(); err != nil { // the copy was never confirmed
			began := time.Now()
			v.Snapshot, err = g.read(ctx)
			v.age = time.Since(began)
		}
	case plimsoll.FreshnessAtLeast:
		v, err = g.viewFrom(ctx, plimsoll.Version{Epoch: c.Epoch, Revision: c.Revision})
	default:
		c.Level = plimsoll.FreshnessStrict
		v.Snapshot, err = g.read(ctx)
	}
	if err == nil && c.Level != plimsoll.FreshnessStrict { // read has checked a strict one
		err = g.show(v.Snapshot, least)
	}
	if err != nil {
		return view{}, err
	}
	g.metrics.reads.WithLabelValues(c.Level.String()).Inc()
	if c.Level != plimsoll.FreshnessStrict {
		g.metrics.ages.Observe(v.age.Seconds())
	}
	return v, nil
}

// viewFrom returns a state that holds a version. A version that the copy does not reach within
// Config.BarrierTimeout may belong to another cluster, or to a leader that this gateway cannot
// reach yet: the caller is told the copy's version and may try again.
func (g *Gateway) viewFrom(ctx context.Context, version plimsoll.Version) (v view, err error) {
	bounded, cancel := context.WithTimeout(ctx, g.cfg.BarrierTimeout)
	defer cancel()
	if v.Snapshot, v.age, err = g.replica.AtLeast(bounded, version); err == nil {
		return v, nil
	}
	if ended := callerGone(ctx); ended != nil {
		return view{}, ended
	}
	latest := g.replica.Latest()
	switch {
	case latest == nil:
		return view{}, plimsoll.Errorf(plimsoll.CodeUnavailable, "this gateway has no copy yet; try again")
	case latest.Epoch() < version.Epoch:
		return view{}, plimsoll.Errorf(plimsoll.CodeUnavailable,
			"this gateway's copy is of epoch %d and has not seen epoch %d within %s; try again, here or at another gateway",
			latest.Epoch(), version.Epoch, g.cfg.BarrierTimeout)
	}
	return view{}, plimsoll.Errorf(plimsoll.CodeUnavailable,
		"this gateway's copy is at revision %d of epoch %d and has not reached %d within %s; try again, here or at another gateway",
		latest.Revision(), latest.Epoch(), version.Revision, g.cfg.BarrierTimeout)
}
