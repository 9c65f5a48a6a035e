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

// snapshotReader cuts an immutable snapshot into messages: records by kind and key, then events,
// then the end.
type snapshotReader struct {
	snapshot *Snapshot
	kind     int
	records  informer.Cursor[record]
	more     bool // the iterator stands at an unsent record
	events   []ring.Chunk
	listed   bool // events has been filled
	done     bool // the end of the snapshot was returned
}

func newSnapshotReader(s *Snapshot) *snapshotReader {
	r := &snapshotReader{snapshot: s, kind: -1}
	r.advance()
	return r
}

// advance moves to the next record, across tables.
func (r *snapshotReader) advance() {
	if r.kind >= 0 && r.records.Next() {
		r.more = true
		return
	}
	for r.kind++; r.kind < wire.NumKinds; r.kind++ {
		r.records = r.snapshot.kinds[r.kind].Cursor()
		if r.records.Next() {
			r.more = true
			return
		}
	}
	r.more = false
}

// next returns the next message. It must not be called once done is set.
func (r *snapshotReader) next() *pb.ReplicateResponse {
	part := &pb.ReplicateSnapshot{}
	size := 0
	for r.more {
		key, rec := r.records.Key(), r.records.Object()
		node := rec.node.String()
		n := len(key) + len(rec.value) + len(node) + recordOverhead
		if size > 0 && size+n > partBytes {
			return partMessage(part)
		}
		size += n
		part.Records = append(
			part.Records, &pb.Mutation{Kind: pb.Kind(r.kind), Key: key, Value: rec.value, Node: node},
		)
		r.advance()
	}
	if !r.listed {
		r.listed = true
		r.events = slices.Collect(r.snapshot.events.Chunks())
	}
	for len(r.events) > 0 {
		chunk := r.events[0]
		n := len(chunk.Data) + recordOverhead
		if size > 0 && size+n > partBytes {
			return partMessage(part)
		}
		size += n
		part.Events = append(part.Events, &pb.EventChunk{FirstId: chunk.FirstID, Count: chunk.Count, Data: chunk.Data})
		r.events = r.events[1:]
	}
	if size > 0 {
		return partMessage(part)
	}
	r.done = true
	return &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_SnapshotEnd{SnapshotEnd: &pb.ReplicateSnapshotEnd{
		Revision: r.snapshot.revision, Time: r.snapshot.time,
	}}}
}

func partMessage(part *pb.ReplicateSnapshot) *pb.ReplicateResponse {
	return &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_Snapshot{Snapshot: part}}
}
