package rest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// objectStates makes the field state of events, which unicorn-history-server reads: the event's
// object as the routes show it, as a text of JSON. It is the object when the event is rendered,
// which is at the event's revision or a later one. It has no list but the one task that the event
// is about, and at most stateBytes. An event of an object that has left gets the state of the event
// before, for as long as that is kept. After that it gets the object's names alone; for a job it
// gets no state, because its id is not known any more.
//
// Its cost is that of the object, and for a queue that of the queues above it. The capacity of all
// nodes, and the configuration of the queues, are read again when one of them was changed.
type objectStates struct {
	wanted bool
	fault  func(err error) // called for a record that cannot be read, once for each error
	told   string          // the last error of fault
	from   *reading        // of the present pass; nil: there are no records
	limits struct {
		queueLimits
		nodes, config replica.Table // of which they are
	}
	left  map[string][]byte // what the last event had, by keyOf
	bytes int               // in left
}

// stateBytes bounds the state of one event. A larger object, such as a node with many attributes,
// is told by its names alone.
const stateBytes = 8 << 10

// leftBytes bounds the states of objects that may have left. When they are more, all are dropped.
const leftBytes = 8 << 20

// begin begins a pass over the events of a snapshot; nil ends one.
func (o *objectStates) begin(records *replica.Snapshot) {
	o.from = nil
	if o.wanted && records != nil {
		o.from = &reading{
			ctx: context.Background(), state: &State{}, records: records, most: math.MaxInt,
			groups: map[string]*jobFacts{},
		}
	}
}

// forget drops what is kept of other events.
func (o *objectStates) forget() { o.left, o.bytes = nil, 0 }

// of returns the state of an event's object; nil if there is none. That of an object whose records
// cannot be read has its names alone.
func (o *objectStates) of(ev *plimsoll.Event) []byte {
	state, err := o.read(ev)
	if err == nil {
		return state
	}
	if text := err.Error(); text != o.told {
		o.told = text
		o.fault(fmt.Errorf("the state of an event's object: %w", err))
	}
	if state, err = encodeNames(ev); err != nil {
		return nil // names are texts: they have a JSON form
	}
	return state
}

func (o *objectStates) read(ev *plimsoll.Event) ([]byte, error) {
	if o.from == nil {
		return nil, nil
	}
	var object any
	var err error
	switch ev.Type {
	case plimsoll.EventApp:
		object, err = o.application(ev)
	case plimsoll.EventNode:
		object, err = o.node(ev)
	case plimsoll.EventQueue:
		object, err = o.queue(ev)
	default:
		return nil, nil
	}
	key := string(rune(ev.Type)) + ev.Object
	if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
		if state, has := o.left[key]; has {
			return state, nil
		}
		return encodeNames(ev)
	}
	if err != nil {
		return nil, err
	}
	state, err := encode(object)
	if err != nil {
		return nil, err
	}
	if len(state) > stateBytes {
		return encodeNames(ev)
	}
	o.keep(key, state)
	return state, nil
}

// keep keeps a state for when its object has left.
func (o *objectStates) keep(key string, state []byte) {
	const row = 64 // bytes of an entry beside its texts
	if was, has := o.left[key]; has {
		o.bytes -= row + len(key) + len(was)
	}
	if o.bytes += row + len(key) + len(state); o.bytes > leftBytes || o.left == nil {
		o.left, o.bytes = map[string][]byte{}, row+len(key)+len(state)
	}
	o.left[key] = state
}

func encodeNames(ev *plimsoll.Event) ([]byte, error) {
	names := namesOf(ev)
	if names == nil {
		return nil, nil
	}
	return encode(names)
}

// namesOf returns what an event says of an object that has left; nil if that is not enough.
func namesOf(ev *plimsoll.Event) any {
	switch ev.Type {
	case plimsoll.EventNode:
		return nodeInfo{NodeID: ev.Object, Partition: partition, ID: ev.Object, PartitionID: partition}
	case plimsoll.EventQueue:
		return queueInfo{
			QueueName: ev.Object, Status: stateDraining, Partition: partition, IsManaged: true,
			Parent: parentOf(ev.Object), ID: ev.Object, PartitionID: partition, ParentID: parentOf(ev.Object),
		}
	}
	return nil
}

// errLeft says that an object is not there any more.
var errLeft = plimsoll.Errorf(plimsoll.CodeNotFound, "the object has left")

// sameTurn is more than the times of jobs that are submitted in one turn are apart.
const sameTurn = time.Millisecond

func (o *objectStates) application(ev *plimsoll.Event) (any, error) {
	data, has := o.from.records.Get(wire.KindJobStatus, ev.Object)
	if !has {
		return nil, errLeft
	}
	status, err := wire.DecodeJobStatus(data)
	if err != nil {
		return nil, undecodable(ev.Object, err)
	}
	if status.Submitted > ev.Time+int64(sameTurn) {
		return nil, errLeft // a later job has the id
	}
	of, err := o.from.facts(ev.Object)
	if err != nil {
		return nil, err
	}
	info := withoutTasks(ev.Object, &status, of)
	task, has, err := o.task(ev.Reference)
	switch {
	case err != nil || !has:
	case task.State.OnNode():
		info.Allocations, err = o.from.piece(nil, allocationOf(&task, of), 0)
	case task.State == plimsoll.TaskPending:
		info.Requests, err = o.from.piece(nil, askOf(&task, of, &status), 0)
	}
	return info, err
}

func (o *objectStates) node(ev *plimsoll.Event) (any, error) {
	info, err := o.from.emptyNode(ev.Object)
	if err != nil {
		return nil, err
	}
	task, has, err := o.task(ev.Reference)
	if err != nil || !has || !task.State.OnNode() || task.Node != ev.Object {
		return info, err
	}
	of, err := o.from.facts(task.Job)
	if err != nil {
		return nil, err
	}
	info.Allocations, err = o.from.piece(nil, allocationOf(&task, of), 0)
	return info, err
}

// task returns the task that an event names, if it names one that is there.
func (o *objectStates) task(id string) (task plimsoll.Task, has bool, err error) {
	job, group, index, ok := wire.SplitTaskID(id)
	if !ok {
		return task, false, nil
	}
	key := wire.TaskKey(job, group, index)
	data, has := o.from.records.Get(wire.KindTask, key)
	if !has {
		return task, false, nil
	}
	task, err = o.from.task(key, data)
	return task, err == nil, err
}

func (o *objectStates) queue(ev *plimsoll.Event) (any, error) {
	if err := o.readLimits(); err != nil {
		return nil, err
	}
	q, err := o.from.queueAlone(ev.Object, &o.limits.queueLimits)
	if err != nil {
		return nil, err
	}
	if q == nil {
		return nil, errLeft
	}
	return o.from.info(q, false)
}

// readLimits reads the limits of queues, unless those that it has are of the present records.
func (o *objectStates) readLimits() error {
	nodes, config := o.from.records.Table(wire.KindNode), o.from.records.Table(wire.KindQueueConfig)
	if o.limits.capacity == nil || o.limits.nodes != nodes {
		capacity, err := o.from.capacity()
		if err != nil {
			return err
		}
		o.limits.capacity, o.limits.nodes = capacity, nodes
	}
	if o.limits.stated == nil || o.limits.config != config {
		stated, err := o.from.statedQueues()
		if err != nil {
			return err
		}
		o.limits.stated, o.limits.config = stated, config
	}
	return nil
}
