package gateway

import (
	"bytes"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// objects yields the smallest range of objects of a kind that holds all that meet the criteria.
func (c *criteria) objects(s *replica.Snapshot, kind wire.Kind) iter.Seq2[string, replica.Object] {
	records := s.Scan(kind, "", "")
	if kind == wire.KindTask {
		records = s.Tasks(c.tasks(), "")
	}
	if kind == wire.KindJobStatus {
		records = s.Jobs(c.jobs(), "")
	}
	return func(yield func(string, replica.Object) bool) {
		for key, value := range records {
			object := replica.Object{Value: value}
			switch {
			case kind == wire.KindNode:
				object.Extra, _ = s.Get(wire.KindNodeStatus, key)
			case kind == wire.KindJobStatus && c.specs:
				object.Extra, _ = s.Get(wire.KindJobSpec, key)
			}
			if !yield(key, object) {
				return
			}
		}
	}
}

// meets reports whether an object of a snapshot meets the criteria. It completes a job that does.
func (c *criteria) meets(s *replica.Snapshot, kind wire.Kind, key string, o *replica.Object) (bool, error) {
	f, err := factsOf(kind, key, o.Value)
	if len(c.labels) > 0 {
		f.spec, _ = s.Get(wire.KindJobSpec, key)
	}
	if err != nil || !c.met(&f) {
		return false, err
	}
	*o, err = completed(s, kind, key, *o)
	return true, err
}

// completed returns an object as it is sent: the record of a job is completed as addKnown does, if
// a group of it waits for a resource that no node has. The result belongs to one message; the
// history keeps the record as it was stored.
func completed(s *replica.Snapshot, kind wire.Kind, key string, o replica.Object) (replica.Object, error) {
	if kind != wire.KindJobStatus || !wire.NoResourceIn(o.Value) {
		return o, nil
	}
	status := &pb.JobStatus{}
	if err := decode(kind, key, o.Value, status); err != nil {
		return o, err
	}
	if err := addKnown(s, status); err != nil {
		return o, err
	}
	value, err := proto.Marshal(status)
	if err != nil {
		return o, err //nolint:wrapcheck // it was decoded a moment ago
	}
	o.Value = value
	return o, nil
}

// frame is the part of one change that all watches share: it is decoded once for all of them.
type frame struct {
	old, new facts
	specOnly bool // only the specification of a job has changed
	err      error
}

// frame makes the frame of a change. Its result is a *frame.
func (g *Gateway) frame(c *replica.Change) any {
	g.metrics.watchEncoded.Inc()
	f := &frame{}
	f.specOnly = c.Kind == wire.KindJobStatus && c.New.Value != nil && c.Old.Value != nil &&
		bytes.Equal(c.New.Value, c.Old.Value)
	if c.Old.Value != nil {
		f.old, f.err = factsOf(c.Kind, c.Key, c.Old.Value)
		f.old.spec = c.Old.Extra
	}
	if c.New.Value == nil || f.err != nil {
		return f
	}
	f.new, f.err = factsOf(c.Kind, c.Key, c.New.Value)
	f.new.spec = c.New.Extra
	return f
}

// encodedObject is an object as the message that a watch sends of it: a Task, a QueueStatus, a
// NodeInfo of both records of a node, or a Job of one or both records of a job.
type encodedObject struct {
	kind   wire.Kind
	object *replica.Object
	specs  bool
}

// records returns the records of the object as fields 1 and 2 of its message. A nil field is left
// out. whole is set if the first record is the message itself.
func (e *encodedObject) records() (fields [2][]byte, whole bool) {
	switch e.kind {
	case wire.KindNode:
		return [2][]byte{e.object.Value, e.object.Extra}, false
	case wire.KindJobStatus:
		fields[1] = e.object.Value
		if e.specs {
			fields[0] = e.object.Extra
		}
		return fields, false
	}
	fields[0] = e.object.Value
	return fields, true
}

func (e *encodedObject) size() (size int) {
	fields, whole := e.records()
	if whole {
		return len(fields[0])
	}
	for i, data := range fields {
		if data != nil {
			size += protowire.SizeTag(protowire.Number(i+1)) + protowire.SizeBytes(len(data))
		}
	}
	return size
}

func (e *encodedObject) append(dst []byte) []byte {
	fields, whole := e.records()
	if whole {
		return append(dst, fields[0]...)
	}
	for i, data := range fields {
		if data != nil {
			dst = protowire.AppendTag(dst, protowire.Number(i+1), protowire.BytesType)
			dst = protowire.AppendBytes(dst, data)
		}
	}
	return dst
}
