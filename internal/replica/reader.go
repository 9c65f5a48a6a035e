package replica

import (
	"slices"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	// partBytes bounds a part of a snapshot. A larger record is a part of its own.
	partBytes = 256 << 10
	// recordOverhead bounds the bytes that the encoding adds to a record's key, value and node.
	recordOverhead = 24
)

// snapshotReader cuts what a filter leaves of an immutable snapshot into parts: records by kind and
// key, then events.
type snapshotReader struct {
	snapshot *Snapshot
	filter   *filter
	kind     wire.Kind
	records  informer.Cursor[record]
	more     bool // the iterator stands at an unread record
	events   []ring.Chunk
	listed   bool // events has been filled
	read     int  // chunks of events that were read
}

// mark is a place between two parts.
type mark struct {
	kind   wire.Kind // of the next record; wire.NumKinds behind the last
	key    string    // of the next record
	events int       // chunks of events that were read
}

func newSnapshotReader(s *Snapshot, f *filter) *snapshotReader {
	r := &snapshotReader{snapshot: s, filter: f}
	r.advance()
	return r
}

// readFrom returns a reader that goes on at a mark of another one of the same snapshot and filter.
func readFrom(s *Snapshot, f *filter, at mark) *snapshotReader {
	r := &snapshotReader{snapshot: s, filter: f, kind: at.kind}
	if at.kind < wire.NumKinds {
		r.records = r.table(at.kind).Cursor()
		r.more = r.records.Seek(at.key)
		return r
	}
	r.list()
	r.events, r.read = r.events[at.events:], at.events
	return r
}

// mark returns the reader's place, which is between two parts.
func (r *snapshotReader) mark() mark {
	if r.more {
		return mark{kind: r.kind, key: r.records.Key()}
	}
	return mark{kind: wire.NumKinds, events: r.read}
}

// advance moves to the next record, across tables.
func (r *snapshotReader) advance() {
	if r.more && r.records.Next() {
		return
	}
	for r.kind++; r.kind < wire.NumKinds; r.kind++ {
		if !r.filter.has(r.kind) {
			continue
		}
		r.records = r.table(r.kind).Cursor()
		if r.records.Next() {
			r.more = true
			return
		}
	}
	r.more = false
}

// table returns the records of a kind that the filter leaves.
func (r *snapshotReader) table(kind wire.Kind) *informer.Snapshot[record] {
	node := r.filter.ofNode()
	if kind != wire.KindTask || node == "" {
		return r.snapshot.kinds[kind]
	}
	name := nodeNamed(node)
	return informer.SnapshotOf(func(yield func(string, record) bool) {
		for key, value := range r.snapshot.NodeTasks(node) {
			if !yield(key, record{value: value, node: name}) {
				return
			}
		}
	})
}

// list fills events.
func (r *snapshotReader) list() {
	if r.listed {
		return
	}
	r.listed = true
	if r.filter.hasEvents() {
		r.events = slices.Collect(r.snapshot.events.Chunks())
	}
}

// next returns the next part; nil if there is none.
func (r *snapshotReader) next() *pb.ReplicateSnapshot {
	part := &pb.ReplicateSnapshot{}
	size := 0
	for r.more {
		key, rec := r.records.Key(), r.records.Object()
		node := rec.node.String()
		n := len(key) + len(rec.value) + len(node) + recordOverhead
		if size > 0 && size+n > partBytes {
			return part
		}
		size += n
		part.Records = append(
			part.Records, &pb.Mutation{Kind: pb.Kind(r.kind), Key: key, Value: rec.value, Node: node},
		)
		r.advance()
	}
	r.list()
	for len(r.events) > 0 {
		chunk := r.events[0]
		n := len(chunk.Data) + recordOverhead
		if size > 0 && size+n > partBytes {
			return part
		}
		size += n
		part.Events = append(part.Events, &pb.EventChunk{FirstId: chunk.FirstID, Count: chunk.Count, Data: chunk.Data})
		r.events = r.events[1:]
		r.read++
	}
	if size == 0 {
		return nil
	}
	return part
}
