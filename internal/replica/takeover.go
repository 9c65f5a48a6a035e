package replica

import (
	"math"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// maxTakeovers bounds the takeovers that a history knows. It drops the changes before an older one.
const maxTakeovers = 16

// noResume is the part of a point at which no watch resumes: among the changes of a takeover, of
// which each gateway has its own, or of a batch whose first changes are no longer kept.
const noResume = math.MaxUint32

// takeover is a place in a history at which the copy of one leader gives way to the snapshot of a
// later leader. The changes between both versions are known as one difference only, and count as
// those of the version behind. So a watch goes on without a snapshot, and a point between the
// versions is refused.
type takeover struct{ from, to plimsoll.Version }

// Follow makes a snapshot the next state of the history. The history goes on if was is a state of
// an earlier leader that is not ahead; otherwise it begins anew. A kind of object whose difference
// is larger than the history begins anew alone. Follow costs a look at each record of both, but for
// the kinds that they share. It costs nothing if the history is too small for any change.
func (h *History) Follow(was, is *Snapshot) {
	if was == nil || was.Version() != h.version || is.epoch <= was.epoch || is.revision < was.revision ||
		h.limit < changeOverhead {
		h.Reset(is.epoch, is.revision)
		return
	}
	h.version = is.Version()
	for _, kind := range HistoryKinds() {
		made, fit := differences(was, is, kind, h.limit)
		for _, c := range made {
			h.add(c)
		}
		if log := &h.logs[kind]; !fit {
			h.bytes -= log.bytes
			*log = changeLog{base: h.version, first: log.end() + 1}
		}
	}
	h.takeovers = append(slices.Clip(h.takeovers), takeover{was.Version(), is.Version()})
	if len(h.takeovers) > maxTakeovers {
		h.forget(h.takeovers[0].to)
		h.takeovers = h.takeovers[1:]
	}
	h.shrink()
}

// forget drops the changes up to a version.
func (h *History) forget(upTo plimsoll.Version) {
	for kind := range h.logs {
		log := &h.logs[kind]
		for len(log.entries) > 0 && !upTo.Before(log.entries[0].version()) {
			h.drop(log)
		}
		if log.base.Before(upTo) {
			log.base = upTo
		}
	}
}

// differences returns a change for each object of a kind that differs in two snapshots, by key.
// There is none, and fit is false, if the changes take more than limit bytes.
func differences(was, is *Snapshot, kind wire.Kind, limit int) (made []*Change, fit bool) {
	if was.sameObjects(is, kind) {
		return nil, true
	}
	olds, news := was.kinds[kind].Cursor(), is.kinds[kind].Cursor()
	hasOld, hasNew := olds.Next(), news.Next()
	for hasOld || hasNew {
		inOld := hasOld && (!hasNew || olds.Key() <= news.Key())
		inNew := hasNew && (!hasOld || news.Key() <= olds.Key())
		var key string
		var before, behind Object
		if inOld {
			key, before = olds.Key(), was.object(kind, olds.Key(), olds.Object())
			hasOld = olds.Next()
		}
		if inNew {
			key, behind = news.Key(), is.object(kind, news.Key(), news.Object())
			hasNew = news.Next()
		}
		if before.same(&behind) {
			continue
		}
		c := &Change{
			Kind: kind, Key: key, Epoch: is.epoch, Revision: is.revision, Takeover: true, Old: before, New: behind,
		}
		made = append(made, c)
		if limit -= c.size(); limit < 0 {
			return nil, false
		}
	}
	return made, true
}

// sameObjects reports whether two snapshots share all objects of a kind. False does not mean that
// they differ.
func (s *Snapshot) sameObjects(other *Snapshot, kind wire.Kind) bool {
	_, extra := objectKind(kind)
	return s.kinds[kind].Same(other.kinds[kind]) && (extra == 0 || s.kinds[extra].Same(other.kinds[extra]))
}

// object returns the object of a first record.
func (s *Snapshot) object(kind wire.Kind, key string, r record) Object {
	var second record
	if _, extra := objectKind(kind); extra != 0 {
		second, _ = s.kinds[extra].Get(key)
	}
	return objectOf(r, second)
}

// pointInTakeover returns the point in front of a change of the takeover to a version, behind part
// others of it.
func (c *Changes) pointInTakeover(to plimsoll.Version, part uint32) Point {
	at := to
	for _, t := range c.takeovers {
		if t.to == to {
			at = t.from
		}
	}
	if part > 0 {
		part = noResume
	}
	return Point{Epoch: at.Epoch, Revision: at.Revision, Part: part}
}

// inTakeover reports whether a point lies between the two versions of a takeover, or is one at
// which no watch resumes.
func (c *Changes) inTakeover(p Point) bool {
	at := p.version()
	return p.Part == noResume || slices.ContainsFunc(c.takeovers, func(t takeover) bool {
		return at.Before(t.to) && (t.from.Before(at) || t.from == at && p.Part > 0)
	})
}

// lastTakeover returns the version behind the last takeover; zero: there is none.
func (c *Changes) lastTakeover() (to plimsoll.Version) {
	if n := len(c.takeovers); n > 0 {
		to = c.takeovers[n-1].to
	}
	return to
}
