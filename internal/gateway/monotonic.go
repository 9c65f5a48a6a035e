package gateway

import (
	"sync/atomic"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
)

// shown is the newest version that a read of this gateway has shown. A read that begins later must
// not show less. Replication and the proofs of leadership see to that; this is the check in
// production, and costs a load of one word for each read.
type shown struct {
	newest atomic.Pointer[plimsoll.Version]
}

// least returns the version that a read which begins now must hold.
func (s *shown) least() plimsoll.Version {
	if v := s.newest.Load(); v != nil {
		return *v
	}
	return plimsoll.Version{}
}

// raise notes that a read shows a version.
func (s *shown) raise(v plimsoll.Version) {
	for {
		was := s.newest.Load()
		if was != nil && was.Holds(v) || s.newest.CompareAndSwap(was, &v) {
			return
		}
	}
}

// show notes that a read shows a snapshot. If the snapshot does not hold least, the version that
// reads had shown when this one began, the read is counted and refused.
func (g *Gateway) show(snapshot *replica.Snapshot, least plimsoll.Version) error {
	v := snapshot.Version()
	if v.Holds(least) {
		g.shown.raise(v)
		return nil
	}
	g.metrics.wentBack.Inc()
	return plimsoll.Errorf(plimsoll.CodeUnavailable,
		"this gateway's copy is at %s, and an earlier read has shown %s; try again, and report it if it stays so",
		v, least)
}
