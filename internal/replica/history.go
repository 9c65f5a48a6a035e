package replica

import (
	"bytes"
	"slices"
	"sort"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// DefaultHistoryBytes is the default of FollowerConfig.HistoryBytes.
const DefaultHistoryBytes = 32 << 20

// changeOverhead is the approximate cost of a change beside the bytes of its records: the Change
// itself, its place in the log, and the value of Change.Shared.
const changeOverhead = 512

// Object is an object at one instant. Its bytes are never changed.
type Object struct {
	// Value is the record of the object: of a job its status. Nil: there is no such object.
	Value []byte
	// Extra is the second record of the object: of a job its specification, of a node its status.
	// Nil: there is none.
	Extra []byte
	// Node is the node to which a task is bound; empty for every other kind.
	Node string
}

// same reports whether two states of an object cannot be told apart.
func (o *Object) same(other *Object) bool {
	return (o.Value == nil) == (other.Value == nil) && bytes.Equal(o.Value, other.Value) &&
		bytes.Equal(o.Extra, other.Extra) && o.Node == other.Node
}

// Change is the change of one object by one batch. However often a batch writes the records of an
// object, it makes at most one Change of it.
type Change struct {
	// Kind is the kind of the object's first record: KindJobStatus, KindTask, KindNode,
	// KindQueueStatus or KindPolicy.
	Kind     wire.Kind
	Key      string
	Epoch    uint64 // of the batch, and so is Revision
	Revision uint64
	// Old and New are the object before and behind the batch. Invariant: they differ, and at least
	// one of them exists.
	Old, New Object

	once   sync.Once
	shared any
}

// Shared returns the value that the first caller's function has made of the change. All readers of
// the change share it. It should take less than 256 bytes beside the records' own.
func (c *Change) Shared(derive func(*Change) any) any {
	c.once.Do(func() { c.shared = derive(c) })
	return c.shared
}

func (c *Change) version() plimsoll.Version {
	return plimsoll.Version{Epoch: c.Epoch, Revision: c.Revision}
}

// size is the memory that the log holds for a change. New counts with the next change of the same
// object: until then the tables hold it too.
func (c *Change) size() int {
	size := changeOverhead + len(c.Key) + len(c.Old.Value)
	if len(c.Old.Extra) > 0 && (len(c.New.Extra) == 0 || &c.Old.Extra[0] != &c.New.Extra[0]) {
		size += len(c.Old.Extra)
	}
	return size
}

// objectKind returns the kind of an object that has records of a kind, and the kind of the object's
// second record, if it has one. The zero kind stands for none.
func objectKind(kind wire.Kind) (object, extra wire.Kind) {
	switch kind {
	case wire.KindJobSpec, wire.KindJobStatus:
		return wire.KindJobStatus, wire.KindJobSpec
	case wire.KindNode, wire.KindNodeStatus:
		return wire.KindNode, wire.KindNodeStatus
	case wire.KindTask, wire.KindQueueStatus, wire.KindPolicy:
		return kind, 0
	}
	return 0, 0
}

// HistoryKinds returns the kinds of objects of which a History keeps changes.
func HistoryKinds() (kinds []wire.Kind) {
	for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
		if object, _ := objectKind(kind); object == kind {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// History is a bounded log of the changes of objects, in the order of revisions. It has a log for
// each kind of object, so that many changes of one kind do not push out those of another: when the
// bytes of all logs exceed the bound, the longest log loses its oldest changes. A History has a
// single writer; readers use views.
type History struct {
	limit int // bound on bytes
	bytes int

	epoch      uint64
	revision   uint64 // of the last batch
	generation uint64
	logs       [wire.NumKinds]changeLog
	jumps      []jump // in their order; never changed in place
	// solid is the last version whose state the copy certainly had: another gateway has the same
	// changes behind it, one by one.
	solid plimsoll.Version

	// seen holds the changes of the batch under way by object; it is empty between batches.
	seen map[change]*Change
}

// jump is a step by which a copy was led on from one leader to the next. Between both versions the
// changes are not known one by one: points there are not valid at this gateway.
type jump struct{ from, to plimsoll.Version }

// maxJumps bounds the jumps that a history knows. Points in front of an older one are not valid.
const maxJumps = 16

// changeLog is the log of one kind. A position counts changes: change n lies between the positions
// n and n+1.
type changeLog struct {
	base    plimsoll.Version // every change behind it is in the log
	first   uint64           // position of the oldest change
	entries []*Change
	bytes   int
	// spare is the bytes of dropped changes that the array behind entries still holds. Invariant:
	// at most half of History.limit, or one batch.
	spare int
}

// NewHistory makes an empty History. limit bounds its bytes; 0 stands for DefaultHistoryBytes.
func NewHistory(limit int) *History {
	return &History{limit: orDefault(limit, DefaultHistoryBytes), seen: map[change]*Change{}}
}

// Reset begins a new history behind a snapshot of an epoch and revision. No earlier position is
// valid any more.
func (h *History) Reset(epoch, revision uint64) {
	h.epoch, h.revision, h.bytes = epoch, revision, 0
	h.generation++
	h.jumps, h.solid = nil, plimsoll.Version{Epoch: epoch, Revision: revision}
	for kind := range h.logs {
		h.logs[kind] = changeLog{base: h.solid, first: h.logs[kind].end() + 1}
	}
}

// Apply applies a batch to tables, as Tables.Apply does, and appends its changes to the log. After
// an error both are as before.
func (h *History) Apply(t *Tables, b *wire.Batch) error {
	_, err := h.apply(t, b, nil)
	return err
}

// apply is Apply, and returns the changes of Tables.apply.
func (h *History) apply(t *Tables, b *wire.Batch, changes []change) ([]change, error) {
	made := h.before(t, b)
	changes, err := t.apply(b, changes)
	if err != nil {
		return nil, err
	}
	for _, c := range made {
		c.New = t.object(c.Kind, c.Key)
		if c.Old.same(&c.New) || c.Old.Value == nil && c.New.Value == nil {
			continue
		}
		h.add(c)
	}
	h.epoch, h.revision = b.Epoch, b.Revision
	h.solid = plimsoll.Version{Epoch: b.Epoch, Revision: b.Revision}
	h.shrink()
	return changes, nil
}

// leadOn is Apply for a batch that leads the copy on from one leader to the next. A batch that has
// only events may stand for one whose records come later.
func (h *History) leadOn(t *Tables, b *wire.Batch) error {
	solid, epoch := h.solid, h.epoch
	if err := h.Apply(t, b); err != nil {
		return err
	}
	if b.Epoch > epoch {
		if len(h.jumps) == maxJumps {
			h.jumps = h.jumps[1:]
		}
		h.jumps = append(slices.Clip(h.jumps), jump{from: solid, to: h.solid})
		return nil
	}
	if len(b.Mutations) == 0 {
		h.solid = solid
	}
	return nil
}

// before returns a change for each object of which a batch has a record, with its state before the
// batch. Each is allocated alone: the logs drop the changes of a batch one by one.
func (h *History) before(t *Tables, b *wire.Batch) []*Change {
	made := make([]*Change, 0, len(b.Mutations))
	for i := range b.Mutations {
		kind, _ := objectKind(b.Mutations[i].Kind)
		if kind == 0 {
			continue
		}
		at := change{kind, b.Mutations[i].Key}
		if h.seen[at] != nil {
			continue
		}
		c := &Change{Kind: kind, Key: at.key, Epoch: b.Epoch, Revision: b.Revision, Old: t.object(kind, at.key)}
		made, h.seen[at] = append(made, c), c
	}
	if len(h.seen) > 1024 {
		h.seen = map[change]*Change{} // a map never shrinks, and clearing a large one is slow
	} else {
		clear(h.seen)
	}
	return made
}

// object returns the present state of an object.
func (t *Tables) object(kind wire.Kind, key string) Object {
	r, _ := t.kinds[kind].Snapshot().Get(key)
	o := Object{Value: r.value, Node: r.node.String()}
	if _, extra := objectKind(kind); extra != 0 {
		r, _ = t.kinds[extra].Snapshot().Get(key)
		o.Extra = r.value
	}
	return o
}

// add appends a change. A view that was published before never reaches the new entry.
func (h *History) add(c *Change) {
	log := &h.logs[c.Kind]
	log.entries = append(log.entries, c)
	log.bytes += c.size()
	h.bytes += c.size()
}

// shrink drops the oldest changes beyond the limit.
func (h *History) shrink() {
	for h.bytes > h.limit {
		longest := &h.logs[0]
		for kind := range h.logs {
			if h.logs[kind].bytes > longest.bytes {
				longest = &h.logs[kind]
			}
		}
		h.drop(longest)
	}
	for kind := range h.logs {
		if log := &h.logs[kind]; log.spare > h.limit/2 {
			log.entries = append(make([]*Change, 0, 2*len(log.entries)), log.entries...)
			log.spare = 0
		}
	}
}

func (h *History) drop(log *changeLog) {
	oldest := log.entries[0]
	log.entries = log.entries[1:]
	log.first++
	log.base = oldest.version()
	log.bytes -= oldest.size()
	h.bytes -= oldest.size()
	log.spare += oldest.size()
}

func (l *changeLog) end() uint64 { return l.first + uint64(len(l.entries)) }

// View returns an immutable view of the log.
func (h *History) View() *Changes {
	v := &Changes{epoch: h.epoch, revision: h.revision, generation: h.generation, bytes: h.bytes, jumps: h.jumps}
	for kind := range h.logs {
		log := &h.logs[kind]
		n := len(log.entries)
		v.logs[kind] = changeView{base: log.base, first: log.first, entries: log.entries[:n:n]}
	}
	return v
}

// Changes is an immutable view of a History at one revision. A reader that keeps a view keeps all
// changes in it, so it keeps a position instead, and takes the newest view each time.
type Changes struct {
	epoch, revision, generation uint64
	bytes                       int
	jumps                       []jump
	logs                        [wire.NumKinds]changeView
}

type changeView struct {
	base    plimsoll.Version
	first   uint64
	entries []*Change
}

// Epoch is the epoch of the last batch in the view.
func (c *Changes) Epoch() uint64 { return c.epoch }

// Revision is the revision of the last batch in the view.
func (c *Changes) Revision() uint64 { return c.revision }

// Generation counts the snapshots that the history has begun with. Positions of two generations
// cannot be compared.
func (c *Changes) Generation() uint64 { return c.generation }

// Bytes is the memory that the changes take.
func (c *Changes) Bytes() int { return c.bytes }

// Len returns the number of changes of a kind of object.
func (c *Changes) Len(kind wire.Kind) int { return len(c.logs[kind].entries) }

// End returns the position behind the newest change of a kind of object.
func (c *Changes) End(kind wire.Kind) uint64 {
	return c.logs[kind].first + uint64(len(c.logs[kind].entries))
}

// Base is the oldest revision from which a watch of a kind of object can resume.
func (c *Changes) Base(kind wire.Kind) uint64 { return c.logs[kind].base.Revision }

// First returns the position of the oldest change of a kind of object.
func (c *Changes) First(kind wire.Kind) uint64 { return c.logs[kind].first }

// At returns the change at a position. ok is false if the log no longer has it, and at the end.
func (c *Changes) At(kind wire.Kind, position uint64) (change *Change, ok bool) {
	log := &c.logs[kind]
	if position < log.first || position >= c.End(kind) {
		return nil, false
	}
	return log.entries[position-log.first], true
}

// From returns the changes behind a position. ok is false if the log no longer has them all, and
// for a position behind the end. The caller does not change the slice.
func (c *Changes) From(kind wire.Kind, position uint64) (changes []*Change, ok bool) {
	log := &c.logs[kind]
	if position < log.first || position > c.End(kind) {
		return nil, false
	}
	return log.entries[position-log.first:], true
}

// Point is a place in the sequence of changes that is valid at each gateway.
type Point struct {
	Epoch    uint64
	Revision uint64 // every change up to this revision lies before the point
	Part     uint32 // number of changes of the next revision that lie before it too
}

// PointAt returns the point of a position that From accepts.
func (c *Changes) PointAt(kind wire.Kind, position uint64) Point {
	log := &c.logs[kind]
	i := int(position - log.first)
	if i == len(log.entries) {
		return Point{Epoch: c.epoch, Revision: c.revision}
	}
	next, part := log.entries[i].version(), uint32(0)
	for i > 0 && log.entries[i-1].version() == next {
		i--
		part++
	}
	for _, j := range c.jumps {
		if j.to == next && part == 0 {
			return Point{Epoch: j.from.Epoch, Revision: j.from.Revision}
		}
	}
	return Point{Epoch: next.Epoch, Revision: next.Revision - 1, Part: part}
}

// After is the inverse of PointAt. It fails with CodeStale if the log no longer has every change
// behind the point, or does not know them one by one: the point is within a jump.
func (c *Changes) After(kind wire.Kind, p Point) (position uint64, err error) {
	log := &c.logs[kind]
	at := plimsoll.Version{Epoch: p.Epoch, Revision: p.Revision}
	switch {
	case p.Epoch != c.epoch && (p.Epoch > c.epoch || at.Before(log.base) || c.within(p)):
		return 0, plimsoll.Errorf(plimsoll.CodeStale,
			"the point is of epoch %d, and the leader now is of epoch %d; begin again with a snapshot", p.Epoch, c.epoch)
	case p.Epoch == c.epoch && p.Revision > c.revision:
		return 0, plimsoll.Errorf(plimsoll.CodeStale,
			"the point is at revision %d, and the last one is %d; begin again with a snapshot", p.Revision, c.revision)
	case at.Before(log.base) || c.within(p):
		return 0, plimsoll.Errorf(plimsoll.CodeStale,
			"the point is at revision %d, and this gateway has only the changes behind %d; begin again with a snapshot",
			p.Revision, log.base.Revision)
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

// within reports whether a point is of another epoch than the view, or within a jump. The changes
// behind such a point are not known one by one.
func (c *Changes) within(p Point) bool {
	at := plimsoll.Version{Epoch: p.Epoch, Revision: p.Revision}
	known := p.Epoch == c.epoch
	for _, j := range c.jumps {
		known = known || j.from.Epoch == p.Epoch
		if at.Before(j.to) && (j.from.Before(at) || j.from == at && p.Part > 0) {
			return true
		}
	}
	return !known
}
