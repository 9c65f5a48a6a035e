package replica

import (
	"fmt"
	"unique"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// record is one encoded object. Its bytes are never changed.
type record struct {
	value []byte
	node  nodeName // of a task: the node that it is bound to
}

// nodeName is the id of a node, which all tasks on the node share; zero: none.
type nodeName struct{ id unique.Handle[string] }

func nodeNamed(id string) nodeName {
	if id == "" {
		return nodeName{}
	}
	return nodeName{unique.Make(id)}
}

func (n nodeName) String() string {
	if n == (nodeName{}) {
		return ""
	}
	return n.id.Value()
}

// Tables are ordered tables of encoded records, one for each kind, with the indexes of criteria.go
// and the ring of recent events. They have a single writer; readers use snapshots.
type Tables struct {
	epoch    uint64
	revision uint64
	time     int64
	leader   string
	instance string

	kinds  [wire.NumKinds]*informer.Indexer[record]
	events *ring.Ring
	// historians hold events of the ring back.
	historians Historians
	bytes      int64
	written    int64 // Snapshot.WrittenSince is a difference of it
	lacking    int   // Snapshot.JobsLacking
	origin     *origin

	// loading holds the records of tables that are not complete yet; nil: they are.
	loading *[wire.NumKinds]*informer.Rebuild[record]

	// edits has the changes of one batch, by kind. Its arrays are used again.
	// Invariant: they are empty between batches.
	edits [wire.NumKinds]informer.Edit[record]
}

// NewTables makes empty tables. Their ring has the bounds of plimsoll.DefaultEventSettings until a
// record of wire.KindEventSettings comes.
func NewTables() *Tables {
	usual := plimsoll.DefaultEventSettings()
	t := &Tables{events: ring.Bounded(ringBounds(&usual)), historians: Historians{}, origin: new(origin)}
	for kind := range t.kinds {
		indexer, err := informer.NewIndexer(informer.IndexerConfig[record]{Indexes: criteria[kind]})
		if err != nil {
			panic(fmt.Sprintf("replica: the table of criteria is wrong: %v", err))
		}
		t.kinds[kind] = indexer
		t.edits[kind].Indexer = indexer
	}
	return t
}

// ringBounds returns the bounds of the ring. Without tracking the ring stays as it is, but for the
// age of its events.
func ringBounds(s *plimsoll.EventSettings) ring.Bounds {
	return ring.Bounds{
		Events: uint64(s.RingBufferCapacity), Bytes: uint64(max(s.RingBufferBytes, 0)), Age: int64(s.RingBufferAge),
		Held: uint64(max(s.RingBufferHeldBytes, 0)),
	}
}

// BoundEvents sets the bounds of the ring for events that are loaded before the record with the
// settings is applied.
func (t *Tables) BoundEvents(s *plimsoll.EventSettings) { t.events.SetBounds(ringBounds(s)) }

// HoldEvents holds the events from an id on back while events are loaded, before the records of the
// historians are applied.
func (t *Tables) HoldEvents(from uint64) { t.events.Hold(from) }

// eventRecords are the records of a batch that say how events are kept.
type eventRecords struct {
	settings   *plimsoll.EventSettings // nil: not in the batch
	ids        *wire.EventIDs          // the beginning of their ids; nil: not in the batch
	historians []historianRecord
}

// readEventRecords reads the settings of the events, the beginning of their ids, and the historians
// that want them from a batch.
func readEventRecords(mutations []wire.Mutation) (r eventRecords, err error) {
	for i := range mutations {
		switch m := &mutations[i]; {
		case m.Value == nil:
		case m.Kind == wire.KindEventSettings:
			s, err := wire.DecodeEventSettings(m.Value)
			if err != nil {
				return r, fmt.Errorf("read the settings of the events: %w", err)
			}
			r.settings = &s
		case m.Kind == wire.KindEventIDs:
			read, err := wire.DecodeEventIDs(m.Value)
			if err != nil {
				return r, fmt.Errorf("read what the ids of events count: %w", err)
			}
			r.ids = &read
		}
	}
	r.historians, err = historianRecords(mutations)
	return r, err
}

// followEventRecords sets the bounds and the held id of the ring, and begins its ids anew under
// another InstanceUUID.
func (t *Tables) followEventRecords(r eventRecords) {
	if r.settings != nil {
		t.events.SetBounds(ringBounds(r.settings))
	}
	if r.ids != nil {
		next := t.events.View().Next()
		if anew := t.instance != "" && t.instance != r.ids.Instance; anew || next < r.ids.First {
			t.events.Restart(max(next, r.ids.First))
		}
		t.instance = r.ids.Instance
	}
	if r.ids != nil || len(r.historians) > 0 {
		t.historians.apply(r.historians)
		t.events.Hold(t.historians.LackedFrom(t.instance))
	}
}

// Apply applies the mutations of a batch, appends its events and adopts its epoch, revision and
// time. It keeps the batch's bytes, which must never change afterwards. Several batches of the same
// revision may be applied while a store is loaded. After an error the tables are as before.
func (t *Tables) Apply(b *wire.Batch) error {
	_, err := t.apply(b, nil)
	return err
}

// change identifies a changed record as Follower.Watch does. For a policy and for events key is
// empty; for every other kind it is the record's key.
type change struct {
	kind wire.Kind
	key  string
}

// apply is Apply. It also appends the changes of the batch to changes, and returns them. Tasks add
// none: who follows tasks reads their changes.
func (t *Tables) apply(b *wire.Batch, changes []change) ([]change, error) {
	changed := func(m *wire.Mutation, was informer.Previous[record]) {
		t.count(m, was)
		switch m.Kind {
		case wire.KindTask:
		case wire.KindPolicy:
			changes = append(changes, change{kind: wire.KindPolicy})
		default:
			changes = append(changes, change{m.Kind, m.Key})
		}
	}
	records, err := readEventRecords(b.Mutations)
	if err != nil {
		return nil, fmt.Errorf("apply batch %d of epoch %d: %w", b.Revision, b.Epoch, err)
	}
	if err := t.edit(b.Mutations, changed); err != nil {
		return nil, fmt.Errorf("apply batch %d of epoch %d: %w", b.Revision, b.Epoch, err)
	}
	t.followEventRecords(records)
	if b.Events.Count > 0 {
		t.events.Append(b.Events.FirstID, b.Events.Count, b.Events.Data)
	}
	t.events.Expire(b.Time)
	t.epoch, t.revision, t.time = b.Epoch, b.Revision, b.Time
	return changes, nil
}

// edit applies mutations to complete tables, all or none.
func (t *Tables) edit(mutations []wire.Mutation, changed func(*wire.Mutation, informer.Previous[record])) error {
	var stack [wire.NumKinds]*informer.Edit[record]
	edits := stack[:0]
	for i := range mutations {
		m := &mutations[i]
		e := &t.edits[m.Kind]
		if len(e.Changes) == 0 {
			edits = append(edits, e)
		}
		change := informer.Change[record]{Key: m.Key, Deleted: m.Value == nil}
		if !change.Deleted {
			change.Object = record{value: m.Value, node: nodeNamed(m.Node)}
		}
		e.Changes = append(e.Changes, change)
	}
	err := informer.ApplyAll(informer.Version{}, edits)
	if err == nil {
		var next [wire.NumKinds]int
		for i := range mutations {
			kind := mutations[i].Kind
			changed(&mutations[i], t.edits[kind].Previous[next[kind]])
			next[kind]++
		}
	}
	for _, e := range edits {
		e.Changes, e.Previous = reused(e.Changes), reused(e.Previous)
	}
	return err
}

// reused returns a slice that is used for the next batch, without what it refers to. That of a
// large batch is not kept.
func reused[E any](s []E) []E {
	if cap(s) > 4096 {
		return nil
	}
	clear(s)
	return s[:0]
}

// writtenOverhead is the approximate cost of a change to a reader of an earlier snapshot beside the
// former record: its share of the tree nodes that are copied.
const writtenOverhead = 256

// count keeps the sums over all records. was is the record that a mutation replaced.
func (t *Tables) count(m *wire.Mutation, was informer.Previous[record]) {
	if m.Kind == wire.KindJobStatus {
		t.lacking += lacks(m.Value) - lacks(was.Object.value)
	}
	t.written += writtenOverhead + int64(len(was.Object.value))
	if m.Value != nil {
		t.bytes += int64(len(m.Key) + len(m.Value))
	}
	if was.Known {
		t.bytes -= int64(len(m.Key) + len(was.Object.value))
	}
}

// lacks returns 1 for the status of a job that Snapshot.JobsLacking counts, otherwise 0.
func lacks(status []byte) int {
	if wire.NoResourceIn(status) {
		return 1
	}
	return 0
}

// begin makes the tables take records by put until they are complete. They show nothing before.
func (t *Tables) begin() {
	t.loading = &[wire.NumKinds]*informer.Rebuild[record]{}
	for kind := range t.kinds {
		t.loading[kind] = t.kinds[kind].Rebuild()
	}
}

// put puts a record. It costs least in the order of the keys.
func (t *Tables) put(m *wire.Mutation) error {
	was, err := t.loading[m.Kind].Put(m.Key, record{value: m.Value, node: nodeNamed(m.Node)})
	if err != nil {
		t.loading = nil
		return err
	}
	t.count(m, was)
	return nil
}

// complete shows what was loaded.
func (t *Tables) complete() error {
	loaded := t.loading
	t.loading = nil
	for _, l := range loaded {
		if err := l.Swap(informer.Version{}); err != nil {
			return err
		}
	}
	return nil
}

// Snapshot returns an immutable view of the current tables. It costs O(1); the writer copies the
// few tree nodes that it changes afterwards.
func (t *Tables) Snapshot() *Snapshot {
	s := &Snapshot{
		epoch: t.epoch, revision: t.revision, time: t.time, leader: t.leader, instance: t.instance,
		events: t.events.View(), bytes: t.bytes, written: t.written, origin: t.origin,
		lacking: t.lacking,
	}
	for kind := range t.kinds {
		s.kinds[kind] = t.kinds[kind].Snapshot()
	}
	return s
}
