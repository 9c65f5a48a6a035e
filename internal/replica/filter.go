package replica

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Filter is the part of the state that a follower asks for. Its copy holds nothing else, and a
// barrier proves nothing about the rest.
type Filter struct {
	Kinds  []wire.Kind // kinds of record; at least one
	Node   string      // of the tasks, only those that are bound to this node; empty: all
	Events bool        // the recent events too
}

func (f *Filter) toProto() *pb.ReplicateFilter {
	if f == nil {
		return nil
	}
	m := &pb.ReplicateFilter{Node: f.Node, Events: f.Events}
	for _, kind := range f.Kinds {
		m.Kinds = append(m.Kinds, pb.Kind(kind))
	}
	return m
}

// filter is a Filter to look records up in. A nil filter lets everything through.
type filter struct {
	kinds  [wire.NumKinds]bool
	node   string
	events bool
}

// ofEvents are the kinds of record that say how events are kept, for whom, and by which ids.
var ofEvents = [...]wire.Kind{wire.KindEventSettings, wire.KindEventIDs, wire.KindHistorian}

// readFilter returns the filter of a message; nil for none.
func readFilter(m *pb.ReplicateFilter) (*filter, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // no filter
	}
	f := &filter{node: m.GetNode(), events: m.GetEvents()}
	for _, kind := range m.GetKinds() {
		if kind <= 0 || kind >= wire.NumKinds {
			return nil, plimsoll.Invalid(
				"filter.kinds", "%d is no kind of record; give kinds from 1 to %d", kind, wire.NumKinds-1,
			)
		}
		f.kinds[kind] = true
	}
	if f.events {
		for _, kind := range ofEvents {
			f.kinds[kind] = true
		}
	}
	switch {
	case len(m.GetKinds()) == 0:
		return nil, plimsoll.Invalid("filter.kinds", "is empty; name the kinds of record, or give no filter for all")
	case f.node != "" && !f.kinds[wire.KindTask]:
		return nil, plimsoll.Invalid("filter.node", "is set without the kind of tasks; add it to filter.kinds")
	}
	return f, nil
}

// known returns the filter for a follower of a version of the protocol: an older follower ends its
// stream at a kind of record that it does not know.
func (f *filter) known(version uint32) *filter {
	if version >= eventsProtocol {
		return f
	}
	out := &filter{events: true}
	if f != nil {
		*out = *f
	} else {
		for kind := range out.kinds {
			out.kinds[kind] = kind > 0
		}
	}
	for _, kind := range ofEvents {
		out.kinds[kind] = false
	}
	out.kinds[wire.KindCounts] = false
	if version < archiveProtocol {
		out.kinds[wire.KindArchive] = false
	}
	return out
}

func (f *filter) has(kind wire.Kind) bool { return f == nil || f.kinds[kind] }

func (f *filter) hasEvents() bool { return f == nil || f.events }

// ofNode returns the only node whose tasks are let through; empty for all nodes.
func (f *filter) ofNode() string {
	if f == nil {
		return ""
	}
	return f.node
}

// covers reports whether everything that other lets through passes f too.
func (f *filter) covers(other *filter) bool {
	if f == nil || other == nil {
		return f == nil
	}
	for kind, asked := range other.kinds {
		if asked && !f.kinds[kind] {
			return false
		}
	}
	if f.node != "" && other.kinds[wire.KindTask] && other.node != f.node {
		return false
	}
	return f.events || !other.events
}

// narrowing cuts the batches of one stream down to its filter. It belongs to the stream's sender. A
// batch that holds nothing for the stream is left out; an empty one stands for all that were left
// out, in front of the next acknowledgement or reply.
type narrowing struct {
	filter *filter
	held   map[string]struct{} // with a node: keys of the tasks that the stream's copy holds
	recent *decoded
	// skipped has the epoch, revision and time of the newest batch that was left out; nil: none
	// since the last batch that was sent.
	skipped *wire.Batch
}

// newNarrowing returns the narrowing of a stream; nil without a filter. snapshot is the one that
// the stream begins with; nil if its copy is resumed, which a filter by node does not allow.
func newNarrowing(f *filter, snapshot *Snapshot, recent *decoded) *narrowing {
	if f == nil {
		return nil
	}
	n := &narrowing{filter: f, recent: recent}
	if f.node != "" {
		n.held = map[string]struct{}{}
		for key := range snapshot.NodeTasks(f.node) {
			n.held[key] = struct{}{}
		}
	}
	return n
}

// batch returns what is left of an encoded batch; nil if nothing is.
func (n *narrowing) batch(data []byte) ([]byte, error) {
	whole, err := n.recent.batch(data)
	if err != nil {
		return nil, err
	}
	left := wire.Batch{Epoch: whole.Epoch, Revision: whole.Revision, Time: whole.Time}
	for i := range whole.Mutations {
		if m, ok := n.mutation(&whole.Mutations[i]); ok {
			left.Mutations = append(left.Mutations, m)
		}
	}
	if n.filter.events {
		left.Events = whole.Events
	}
	if len(left.Mutations) == 0 && left.Events.Count == 0 {
		n.skipped = &left
		return nil, nil
	}
	n.skipped = nil
	return wire.AppendBatch(make([]byte, 0, batchSize(&left)), &left), nil
}

// mutation returns what a mutation is for the stream. A task that leaves the node is deleted.
func (n *narrowing) mutation(m *wire.Mutation) (_ wire.Mutation, ok bool) {
	if !n.filter.kinds[m.Kind] {
		return wire.Mutation{}, false
	}
	if m.Kind != wire.KindTask || n.filter.node == "" {
		return *m, true
	}
	if m.Value != nil && m.Node == n.filter.node {
		n.held[m.Key] = struct{}{}
		return *m, true
	}
	if _, held := n.held[m.Key]; !held {
		return wire.Mutation{}, false
	}
	delete(n.held, m.Key)
	return wire.Mutation{Kind: m.Kind, Key: m.Key}, true
}

// flush returns the empty batch that stands for those that were left out; nil if there is none.
func (n *narrowing) flush() *pb.ReplicateResponse {
	if n == nil || n.skipped == nil {
		return nil
	}
	data := wire.AppendBatch(nil, n.skipped)
	n.skipped = nil
	return batchMessage(data)
}
