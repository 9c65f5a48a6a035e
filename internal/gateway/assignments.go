package gateway

import (
	"bytes"
	"context"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Bounds on one message of WatchAssignments.
const (
	maxAssignments     = 256
	maxAssignmentBytes = 1 << 20
)

// WatchAssignments sends the tasks that a node has to run, then a marker, then each change. It ends
// with CodeStale when the node is registered with a newer incarnation, and with CodeNotFound when
// the node is removed.
func (s agentService) WatchAssignments(
	ctx context.Context, req *connect.Request[pb.WatchAssignmentsRequest],
	stream *connect.ServerStream[pb.WatchAssignmentsResponse],
) error {
	node, incarnation := req.Msg.GetNode(), req.Msg.GetIncarnation()
	if err := plimsoll.ValidateID("node", node); err != nil {
		return err
	}
	tasks := s.g.replica.ReadChanges(replica.Part{Kind: wire.KindTask, By: replica.ByNode, Value: node}, false)
	defer tasks.Close()
	record, cancelRecord := s.g.replica.Watch(wire.KindNode, node)
	defer cancelRecord()
	policies, cancelPolicies := s.g.replica.Watch(wire.KindPolicy, "")
	defer cancelPolicies()
	defer s.g.metrics.watching("WatchAssignments")()
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return err
	}
	a := assignments{
		node:  node,
		tasks: tasks, history: s.g.replica.Changes,
		send:  stream.Send,
		specs: &s.g.specs,
		skip:  func(err error) { s.g.cfg.Events.Fault("WatchAssignments", err) },
	}
	var view *replica.Changes
	var changed wire.Kind // the zero kind stands for all
	for first := true; ; first = false {
		if err := checkAgent(snapshot, req.Header(), node, incarnation); err != nil {
			return err
		}
		if err := a.update(snapshot, view, changed, first); err != nil {
			return err
		}
		// No snapshot is used behind the wait, so none is kept: it would keep all that changes.
		select {
		case <-ctx.Done():
			return callerGone(ctx)
		case <-tasks.Changed():
			changed = wire.KindTask
		case <-record:
			changed = wire.KindNode
		case <-policies:
			changed = wire.KindPolicy
		}
		// The snapshot is taken behind the view, and shows the changes that the view yields.
		view = tasks.View()
		snapshot = s.g.replica.Latest()
	}
}

// checkAgent reports whether an agent may act for a node.
func checkAgent(snapshot *replica.Snapshot, header http.Header, id string, incarnation uint64) error {
	node, err := loadNode(snapshot, id)
	if err != nil {
		return err
	}
	if err := checkSession(header, node); err != nil {
		return err
	}
	switch {
	case incarnation < node.GetIncarnation():
		return staleIncarnation(id, node.GetIncarnation(), incarnation)
	case incarnation > node.GetIncarnation():
		return plimsoll.Errorf(
			plimsoll.CodeNotFound, "node %q is not registered with incarnation %d; register it first", id, incarnation,
		)
	}
	return nil
}

// assignments is the sent state of one stream. It sends the changes of the node's tasks and
// policies, as the gateway's history has them; when the history has a gap, it sends the difference
// between the sent state and a snapshot.
type assignments struct {
	node  string
	send  func(*pb.WatchAssignmentsResponse) error
	skip  func(error) // called for a task that cannot be sent
	specs *specCache

	round uint64
	seen  map[string]*seenTask // by record key

	tasks   *replica.ChangeReader
	history func() *replica.Changes
	// generation is that of the history to which the positions of tasks and policy belong; policy
	// is the position up to which changes of policies were looked at.
	generation uint64
	policy     uint64
	// gap says that the next update compares all records: a task could not be sent, or positions
	// are not valid.
	gap bool

	policies policyWatch

	message *pb.WatchAssignmentsResponse // not sent yet
	size    int                          // bytes in it, about
}

// seenTask is a task record of the node as the stream has seen it last. Records are immutable, so
// comparing a record that has not changed costs nothing.
type seenTask struct {
	data     []byte
	assigned bool   // the task was sent and holds resources of the node
	round    uint64 // the last round in which the record existed
	id       string
}

// update sends the changes of a kind up to a snapshot, which was taken behind the view. The zero
// kind stands for all. It looks at the changed records alone, unless the history has a gap; then it
// compares all records of the node.
func (a *assignments) update(snapshot *replica.Snapshot, view *replica.Changes, kind wire.Kind, first bool) error {
	if kind == 0 || a.gap || view.Generation() != a.generation {
		return a.updateAll(snapshot, first)
	}
	a.message, a.size = &pb.WatchAssignmentsResponse{}, 0
	whole, err := true, error(nil)
	switch kind {
	case wire.KindNode:
		if record, _ := snapshot.Get(wire.KindNode, a.node); bytes.Equal(record, a.policies.node) {
			return nil
		}
		err = a.sendPolicies(snapshot)
	case wire.KindPolicy:
		var changes []*replica.Change
		changes, whole = view.From(kind, a.policy)
		for _, c := range changes {
			if !snapshot.Holds(c) {
				break // the view is newer than the snapshot
			}
			a.policy++
			if err = a.follow(snapshot, c); err != nil {
				break
			}
		}
	default:
		whole, err = a.tasks.Each(view, func(c *replica.Change) (bool, error) { return true, a.follow(snapshot, c) })
	}
	switch {
	case err != nil:
		return err
	case !whole:
		return a.updateAll(snapshot, first)
	}
	return a.flushEntries()
}

// updateAll compares all records of the node with the sent state.
func (a *assignments) updateAll(snapshot *replica.Snapshot, first bool) error {
	if err := a.sendChanges(snapshot, first); err != nil {
		return err
	}
	view := a.history() // behind the snapshot: at its revision or a later one
	at := replica.Point{Epoch: snapshot.Epoch(), Revision: snapshot.Revision()}
	position, err := view.After(wire.KindTask, at)
	if err == nil {
		a.tasks.Begin(position)
		a.policy, err = view.After(wire.KindPolicy, at)
	}
	a.generation, a.gap = view.Generation(), a.gap || err != nil
	return nil
}

// follow looks at an object that has changed. It takes the object's record from the snapshot, so
// that of several changes the last alone is sent: a message has no order of its entries.
func (a *assignments) follow(snapshot *replica.Snapshot, c *replica.Change) error {
	data, exists := snapshot.Get(c.Kind, c.Key)
	switch {
	case c.Kind == wire.KindPolicy:
		return a.followPolicy(snapshot, c.Key, data)
	case exists && snapshot.NodeOf(c.Key) == a.node:
		return a.look(snapshot, c.Key, data)
	}
	seen := a.seen[c.Key]
	if seen == nil {
		return nil
	}
	delete(a.seen, c.Key)
	return a.remove(seen)
}

// flushEntries sends the message unless it is empty.
func (a *assignments) flushEntries() error {
	if entries(a.message) == 0 {
		return nil
	}
	return a.flush()
}

// sendChanges sends the difference between the sent state and a snapshot, and behind it the marker
// if mark is set.
func (a *assignments) sendChanges(snapshot *replica.Snapshot, mark bool) error {
	a.round++
	a.gap = false
	if a.seen == nil {
		a.seen = map[string]*seenTask{}
	}
	a.message = &pb.WatchAssignmentsResponse{}
	a.size = 0
	for key, data := range snapshot.NodeTasks(a.node) {
		if err := a.look(snapshot, key, data); err != nil {
			return err
		}
	}
	for key, seen := range a.seen {
		if seen.round == a.round {
			continue
		}
		delete(a.seen, key)
		if err := a.remove(seen); err != nil {
			return err
		}
	}
	if err := a.sendPolicies(snapshot); err != nil {
		return err
	}
	a.message.SnapshotEnd = mark
	if !mark && entries(a.message) == 0 {
		return nil
	}
	return a.flush()
}

// look compares one record of the node with the sent state, and queues the difference.
func (a *assignments) look(snapshot *replica.Snapshot, key string, data []byte) error {
	seen := a.seen[key]
	if seen == nil {
		seen = &seenTask{}
		a.seen[key] = seen
	}
	seen.round = a.round
	if seen.data != nil && bytes.Equal(seen.data, data) {
		return nil
	}
	task := &pb.Task{}
	if err := decode(wire.KindTask, key, data, task); err != nil {
		a.skip(err)
		return nil
	}
	if !plimsoll.TaskState(task.GetState()).OnNode() || task.GetNode() != a.node {
		seen.data = data
		return a.remove(seen)
	}
	assignment, err := a.assign(snapshot, task)
	if err != nil {
		a.skip(err)
		a.gap = true // the next signal of the node or of a policy tries the task again
		return nil
	}
	*seen = seenTask{data: data, assigned: true, round: a.round, id: taskID(task)}
	a.message.Changed = append(a.message.Changed, assignment)
	return a.added(proto.Size(assignment))
}

// assign makes the assignment of a task: the task, with its job's specification of how to run it.
func (a *assignments) assign(snapshot *replica.Snapshot, task *pb.Task) (*pb.Assignment, error) {
	spec, err := a.specOf(snapshot, task.GetJob())
	if err != nil {
		return nil, err
	}
	uid, err := uidIn(snapshot, task.GetJob())
	if err != nil {
		return nil, err
	}
	task.Attempts = nil // the node keeps its own
	for _, group := range spec.GetGroups() {
		if group.GetName() == task.GetGroup() {
			return &pb.Assignment{
				Task: task, Owner: spec.GetOwner(), Spec: forTask(group, task.GetIndex()), Labels: spec.GetLabels(),
				Queue: spec.GetQueue(), Uid: uid.Text(),
			}, nil
		}
	}
	return nil, plimsoll.Errorf(
		plimsoll.CodeInternal, "task %s is on node %s, and its job has no such group", taskID(task), a.node,
	)
}

// forTask returns the specification of a group for one of its tasks. All groups but those with
// indexes have one specification for all tasks.
func forTask(group *pb.GroupSpec, index int32) *pb.GroupSpec {
	pieces := group.GetIndexes()
	if index < 0 || int(index) >= len(pieces) {
		return group
	}
	own := &pb.GroupSpec{}
	from, to := group.ProtoReflect(), own.ProtoReflect()
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(f, v) // both share what is behind it, which nobody changes
		return true
	})
	to.SetUnknown(from.GetUnknown())
	own.Indexes = pieces[index : index+1]
	return own
}

// specOf returns a job's specification.
func (a *assignments) specOf(snapshot *replica.Snapshot, job string) (*pb.JobSpec, error) {
	data, ok := snapshot.Get(wire.KindJobSpec, job)
	if !ok {
		return nil, plimsoll.Errorf(
			plimsoll.CodeInternal, "a task of job %s is on node %s, and there is no such job", job, a.node,
		)
	}
	return a.specs.get(job, data)
}

// remove queues the removal of a task, if it was assigned.
func (a *assignments) remove(seen *seenTask) error {
	if !seen.assigned {
		return nil
	}
	seen.assigned = false
	a.message.Removed = append(a.message.Removed, seen.id)
	return a.added(len(seen.id) + 4)
}

// added counts the bytes just put into the message, and sends the message when it is full.
func (a *assignments) added(size int) error {
	a.size += size
	if entries(a.message) < maxAssignments && a.size < maxAssignmentBytes {
		return nil
	}
	return a.flush()
}

func (a *assignments) flush() error {
	err := a.send(a.message)
	a.message, a.size = &pb.WatchAssignmentsResponse{}, 0
	return err
}
