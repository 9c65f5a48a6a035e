package replica

import (
	"sort"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Point is a place in the sequence of changes that is valid at each gateway.
type Point struct {
	Epoch    uint64
	Revision uint64 // every change up to this revision lies before the point
	// Part is the number of changes of the next revision that lie before the point, or noResume.
	Part uint32
}

func (p Point) version() plimsoll.Version {
	return plimsoll.Version{Epoch: p.Epoch, Revision: p.Revision}
}

// PointAt returns the point of a position that From accepts.
func (c *Changes) PointAt(kind wire.Kind, position uint64) Point {
	log := &c.logs[kind]
	i := int(position - log.first)
	if i == len(log.entries) {
		return Point{Epoch: c.version.Epoch, Revision: c.version.Revision}
	}
	next, part := log.entries[i], uint32(0)
	for i > 0 && log.entries[i-1].version() == next.version() {
		i--
		part++
	}
	switch {
	case next.Takeover:
		return c.pointInTakeover(next.version(), part)
	case log.base == next.version(): // nobody knows how many of its changes were dropped
		part = noResume
	}
	return Point{Epoch: next.Epoch, Revision: next.Revision - 1, Part: part}
}

// After is the inverse of PointAt. It fails with CodeStale if the log no longer has every change
// behind the point, or does not know them one by one.
func (c *Changes) After(kind wire.Kind, p Point) (position uint64, err error) {
	log, at := &c.logs[kind], p.version()
	switch {
	case p.Epoch != c.version.Epoch && (p.Epoch > c.version.Epoch || at.Before(log.base) || c.inTakeover(p)):
		return 0, plimsoll.Errorf(plimsoll.CodeStale,
			"the point is of epoch %d, and the leader now is of epoch %d; begin again with a snapshot",
			p.Epoch, c.version.Epoch)
	case c.version.Before(at):
		return 0, plimsoll.Errorf(plimsoll.CodeStale,
			"the point is at revision %d, and the last one is %d; begin again with a snapshot",
			p.Revision, c.version.Revision)
	case at.Before(log.base) || c.inTakeover(p):
		return 0, plimsoll.Errorf(plimsoll.CodeStale,
			"the point is at revision %d, and this gateway has only the changes behind %d; begin again with a snapshot",
			p.Revision, max(log.base.Revision, c.lastTakeover().Revision))
	}
	i := sort.Search(len(log.entries), func(i int) bool { return at.Before(log.entries[i].version()) })
	next := plimsoll.Version{Epoch: p.Epoch, Revision: p.Revision + 1}
	for range p.Part {
		if i == len(log.entries) || log.entries[i].version() != next {
			return 0, plimsoll.Invalid(
				"from.part", "is %d, and revision %d has changed fewer objects", p.Part, p.Revision+1)
		}
		i++
	}
	return log.first + uint64(i), nil
}
