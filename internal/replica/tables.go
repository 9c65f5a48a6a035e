package replica

import (
	"github.com/tidwall/btree"

	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// record is one encoded object. Its bytes are never changed.
type record struct {
	value []byte
	node  string // of a task: the node that it is bound to
}

// taskOnNode is an entry of the index of tasks by node. It does not hold the record, so it changes
// only with the binding.
type taskOnNode struct {
	node, key string
}

func taskOnNodeLess(a, b taskOnNode) bool {
	if a.node != b.node {
		return a.node < b.node
	}
	return a.key < b.key
}

// Tables are ordered tables of encoded records, one for each kind, with an index of tasks by node
// and the ring of recent events. They have a single writer; readers use snapshots.
type Tables struct {
	epoch    uint64
	revision uint64
	time     int64
	instance string

	kinds  [wire.NumKinds]*btree.Map[string, record]
	byNode *btree.BTreeG[taskOnNode]
	events *ring.Ring
	bytes  int64

	// Invariant: frozen[k], if not nil, is a copy of kinds[k] as it is now; the same for
	// frozenByNode.
	frozen       [wire.NumKinds]*btree.Map[string, record]
	frozenByNode *btree.BTreeG[taskOnNode]
}

// NewTables makes empty tables that keep the last eventCapacity events. 0 stands for
// ring.DefaultCapacity.
func NewTables(eventCapacity int) *Tables {
	if eventCapacity <= 0 {
		eventCapacity = ring.DefaultCapacity
	}
	t := &Tables{
		byNode: btree.NewBTreeGOptions(taskOnNodeLess, btree.Options{NoLocks: true}),
		events: ring.New(eventCapacity),
	}
	for kind := range t.kinds {
		t.kinds[kind] = btree.NewMap[string, record](0)
	}
	return t
}

// Apply applies the mutations of a batch, appends its events and adopts its epoch, revision and
// time. It keeps the batch's bytes, which must never change afterwards. Several batches of the same
// revision may be applied while a store is loaded.
func (t *Tables) Apply(b *wire.Batch) {
	t.apply(b, nil)
}

// change identifies a changed record as Follower.Watch does. For a task, key is the node to which
// it is or was bound. For a policy it is empty. For every other kind it is the record's key.
type change struct {
	kind wire.Kind
	key  string
}

// apply is Apply. It also appends the changes of the batch to changes, and returns them. A task
// that neither is nor was bound adds none.
func (t *Tables) apply(b *wire.Batch, changes []change) []change {
	for i := range b.Mutations {
		m := &b.Mutations[i]
		was := t.put(m)
		switch m.Kind {
		case wire.KindTask:
		case wire.KindPolicy:
			changes = append(changes, change{kind: wire.KindPolicy})
			continue
		default:
			changes = append(changes, change{m.Kind, m.Key})
			continue
		}
		if was != "" {
			changes = append(changes, change{wire.KindTask, was})
		}
		if m.Node != "" && m.Node != was {
			changes = append(changes, change{wire.KindTask, m.Node})
		}
	}
	if b.Events.Count > 0 {
		t.events.Append(b.Events.FirstID, b.Events.Count, b.Events.Data)
	}
	t.epoch, t.revision, t.time = b.Epoch, b.Revision, b.Time
	return changes
}

// put applies one mutation and returns the node to which the record was bound before.
func (t *Tables) put(m *wire.Mutation) (was string) {
	t.frozen[m.Kind] = nil
	var old record
	var replaced bool
	node := m.Node
	if m.Value == nil {
		old, replaced = t.kinds[m.Kind].Delete(m.Key)
		node = ""
	} else {
		old, replaced = t.kinds[m.Kind].Set(m.Key, record{value: m.Value, node: node})
		t.bytes += int64(len(m.Key) + len(m.Value))
	}
	if replaced {
		t.bytes -= int64(len(m.Key) + len(old.value))
	}
	if m.Kind == wire.KindTask {
		t.reindex(m.Key, old.node, node)
	}
	return old.node
}

func (t *Tables) reindex(key, was, node string) {
	if was == node {
		return
	}
	t.frozenByNode = nil
	if was != "" {
		t.byNode.Delete(taskOnNode{was, key})
	}
	if node != "" {
		t.byNode.Set(taskOnNode{node, key})
	}
}

// Snapshot returns an immutable view of the current tables. It costs O(1); the writer copies the
// few tree nodes that it changes afterwards.
func (t *Tables) Snapshot() *Snapshot {
	for kind := range t.kinds {
		if t.frozen[kind] == nil {
			t.frozen[kind] = t.kinds[kind].Copy()
		}
	}
	if t.frozenByNode == nil {
		t.frozenByNode = t.byNode.Copy()
	}
	return &Snapshot{
		epoch: t.epoch, revision: t.revision, time: t.time, instance: t.instance,
		kinds: t.frozen, byNode: t.frozenByNode, events: t.events.View(), bytes: t.bytes,
	}
}
