package gateway

import (
	"bytes"
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// criteria are the criteria of a list or a watch. Zero values do not restrict. Those that a kind of
// object does not have are zero.
type criteria struct {
	job, node    string  // of tasks
	queue, owner string  // of jobs
	states       []int32 // of jobs or tasks
	specs        bool    // send jobs with their specifications
}

// taskCriteria returns the criteria of a list or a watch of tasks.
func taskCriteria(m interface {
	GetJob() string
	GetNode() string
	GetStates() []pb.TaskState
},
) criteria {
	return criteria{job: m.GetJob(), node: m.GetNode(), states: numbers(m.GetStates())}
}

// jobCriteria returns the criteria of a list or a watch of jobs.
func jobCriteria(m interface {
	GetQueue() string
	GetOwner() string
	GetStates() []pb.JobState
},
) criteria {
	return criteria{queue: m.GetQueue(), owner: m.GetOwner(), states: numbers(m.GetStates())}
}

// part returns a part of the objects of a kind that holds all those which meet the criteria. It is
// the smallest that a reader of changes can have.
func (c *criteria) part(kind wire.Kind) replica.Part {
	for _, p := range [...]replica.Part{
		{Kind: wire.KindTask, By: replica.ByJob, Value: c.job},
		{Kind: wire.KindTask, By: replica.ByNode, Value: c.node},
		{Kind: wire.KindJobStatus, By: replica.ByOwner, Value: c.owner},
		{Kind: wire.KindJobStatus, By: replica.ByQueue, Value: c.queue},
	} {
		if p.Kind == kind && p.Value != "" {
			return p
		}
	}
	return replica.Part{Kind: kind}
}

// facts are the properties of an object that criteria look at. Its slices may be parts of the
// record.
type facts struct {
	exists       bool
	key          string // of the record
	node         []byte // on which a task is now; empty: none
	queue, owner []byte
	state        int32
}

// taskFacts returns the facts of a task. Its record keeps the node after the end too.
func taskFacts(key string, node []byte, state int32) facts {
	f := facts{exists: true, key: key, state: state}
	if plimsoll.TaskState(state).OnNode() {
		f.node = node
	}
	return f
}

// met reports whether an object meets the criteria.
func (c *criteria) met(f *facts) bool {
	return (c.job == "" || wire.IsTaskKeyOf(f.key, c.job)) && (c.node == "" || string(f.node) == c.node) &&
		(c.owner == "" || string(f.owner) == c.owner) && isOrBelow(f.queue, c.queue) &&
		(len(c.states) == 0 || slices.Contains(c.states, f.state))
}

// objects yields the smallest range of objects of a kind that holds all that meet the criteria.
func (c *criteria) objects(s *replica.Snapshot, kind wire.Kind) iter.Seq2[string, replica.Object] {
	records := s.Scan(kind, "", "")
	if kind == wire.KindTask {
		records = tasksOf(s, &pb.ListTasksRequest{Job: c.job, Node: c.node}, "")
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
	if err != nil || !c.met(&f) {
		return false, err
	}
	*o, err = completed(s, kind, key, *o)
	return true, err
}

// factsOf decodes a record for criteria.
func factsOf(kind wire.Kind, key string, value []byte) (facts, error) {
	f := facts{exists: true, key: key}
	switch kind {
	case wire.KindTask:
		task := &pb.Task{}
		if err := decode(kind, key, value, task); err != nil {
			return f, err
		}
		f = taskFacts(key, []byte(task.GetNode()), int32(task.GetState()))
	case wire.KindJobStatus:
		status := &pb.JobStatus{}
		if err := decode(kind, key, value, status); err != nil {
			return f, err
		}
		f.queue, f.owner, f.state = []byte(status.GetQueue()), []byte(status.GetOwner()), int32(status.GetState())
	}
	return f, nil
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
	}
	if c.New.Value == nil || f.err != nil {
		return f
	}
	f.new, f.err = factsOf(c.Kind, c.Key, c.New.Value)
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
