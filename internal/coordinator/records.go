package coordinator

import (
	"iter"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// records implements state.Records over the published records of a revision. This process has
// encoded them; a record that cannot be decoded all the same counts as missing.
type records struct{ snapshot *replica.Snapshot }

// Job implements state.Records.
func (r records) Job(id string) *plimsoll.JobSpec {
	data, ok := r.snapshot.Get(wire.KindJobStatus, id)
	if !ok {
		return nil
	}
	if status, err := wire.DecodeJobStatus(data); err != nil || status.State == plimsoll.JobExpired {
		return nil
	}
	if data, ok = r.snapshot.Get(wire.KindJobSpec, id); !ok {
		return nil
	}
	spec, err := wire.DecodeJobSpec(data)
	if err != nil {
		return nil
	}
	return &spec
}

// Task implements state.Records.
func (r records) Task(job, group string, index int32) (plimsoll.Task, bool) {
	data, ok := r.snapshot.Get(wire.KindTask, wire.TaskKey(job, group, index))
	if !ok {
		return plimsoll.Task{}, false
	}
	t, err := wire.DecodeTask(data)
	return t, err == nil
}

// JobStatus implements state.Records.
func (r records) JobStatus(id string) (plimsoll.JobStatus, bool) {
	data, ok := r.snapshot.Get(wire.KindJobStatus, id)
	if !ok {
		return plimsoll.JobStatus{}, false
	}
	status, err := wire.DecodeJobStatus(data)
	return status, err == nil && status.State != plimsoll.JobExpired
}

// JobStatuses implements state.Records.
func (r records) JobStatuses(queue string) iter.Seq[plimsoll.JobStatus] {
	return func(yield func(plimsoll.JobStatus) bool) {
		for _, data := range r.snapshot.Jobs(replica.JobCriteria{Queue: queue}, "") {
			status, err := wire.DecodeJobStatus(data)
			if err != nil || status.State.Ended() ||
				status.Queue != queue && !strings.HasPrefix(status.Queue, queue+".") {
				continue
			}
			if !yield(status) {
				return
			}
		}
	}
}

// Nodes implements state.Records.
func (r records) Nodes() iter.Seq[plimsoll.Node] {
	return func(yield func(plimsoll.Node) bool) {
		for _, data := range r.snapshot.Scan(wire.KindNode, "", "") {
			if n, err := wire.DecodeNode(data); err == nil && !yield(n) {
				return
			}
		}
	}
}

// NodeTasks implements state.Records.
func (r records) NodeTasks(node string) iter.Seq[plimsoll.Task] {
	return func(yield func(plimsoll.Task) bool) {
		for _, data := range r.snapshot.NodeTasks(node) {
			if t, err := wire.DecodeTask(data); err == nil && !yield(t) {
				return
			}
		}
	}
}
