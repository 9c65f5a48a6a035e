package replica

import (
	"bytes"
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
	Epoch    uint64 // of the batch
	Revision uint64 // of the batch
	// Takeover says that no batch has made the change. It is a part of the difference between the
	// copy of one leader and the snapshot of the next. Epoch and Revision are the snapshot's.
	Takeover bool
	// Old and New are the object before the change and behind it. Invariant: they differ, and at
	// least one of them exists.
	Old, New Object

	once   sync.Once
	shared any
}

func (c *Change) version() plimsoll.Version {
	return plimsoll.Version{Epoch: c.Epoch, Revision: c.Revision}
}

// Shared returns the value that the first caller's function has made of the change. All readers of
// the change share it. It should take less than 256 bytes beside the records' own.
func (c *Change) Shared(derive func(*Change) any) any {
	c.once.Do(func() { c.shared = derive(c) })
	return c.shared
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
//
// A history goes on when another leader takes over (takeover.go).
type History struct {
	limit int // bound on bytes
	bytes int

	version    plimsoll.Version // of the last batch
	generation uint64
	takeovers  []takeover // in order, at most maxTakeovers; views share the array
	logs       [wire.NumKinds]changeLog

	// seen holds the changes of the batch under way by object; it is empty between batches.
	seen map[change]*Change
}

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
	h.version, h.bytes = plimsoll.Version{Epoch: epoch, Revision: revision}, 0
	h.generation++
	h.takeovers = nil
	for kind := range h.logs {
		h.logs[kind] = changeLog{base: h.version, first: h.logs[kind].end() + 1}
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
	h.version = plimsoll.Version{Epoch: b.Epoch, Revision: b.Revision}
	h.shrink()
	return changes, nil
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
		c := &Change{
			Kind: kind, Key: at.key, Epoch: b.Epoch, Revision: b.Revision, Old: t.object(kind, at.key),
		}
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
	var second record
	if _, extra := objectKind(kind); extra != 0 {
		second, _ = t.kinds[extra].Snapshot().Get(key)
	}
	return objectOf(r, second)
}

// objectOf makes an object of its two records; the zero record stands for none.
func objectOf(first, second record) Object {
	return Object{Value: first.value, Extra: second.value, Node: first.node.String()}
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
	v := &Changes{version: h.version, generation: h.generation, bytes: h.bytes, takeovers: h.takeovers}
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
	version    plimsoll.Version
	generation uint64
	bytes      int
	takeovers  []takeover
	logs       [wire.NumKinds]changeView
}

type changeView struct {
	base    plimsoll.Version
	first   uint64
	entries []*Change
}

// Epoch is the epoch of the last batch in the view.
func (c *Changes) Epoch() uint64 { return c.version.Epoch }

// Revision is the revision of the last batch in the view.
func (c *Changes) Revision() uint64 { return c.version.Revision }

// Generation counts the snapshots with which the history has begun anew. Positions of two
// generations cannot be compared.
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
