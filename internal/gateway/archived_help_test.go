package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/archivetest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// cell is a leader with an archive, in the process of the test: jobs are submitted, end, are
// written to the archive and leave the active store, in the order and the batches of a leader.
type cell struct {
	t       testing.TB
	f       *fake
	archive *archivetest.Memory
	mark    archive.Mark
	clock   int64
	jobs    map[plimsoll.UID]*cellJob
	active  map[string]*cellJob // by id
}

// cellJob is a job of a cell.
type cellJob struct {
	spec    plimsoll.JobSpec
	status  plimsoll.JobStatus
	tasks   []plimsoll.Task
	stored  bool // in the archive
	deleted bool
}

func newCell(t testing.TB) *cell {
	c := &cell{
		t: t, f: newFake(), archive: archivetest.NewMemory(), clock: 1_000_000, jobs: map[plimsoll.UID]*cellJob{},
		active: map[string]*cellJob{},
	}
	var err error
	if c.mark, err = c.archive.Fence(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.f.put(c.archiveStatus())
	return c
}

func (c *cell) archiveStatus() wire.Mutation {
	s := plimsoll.ArchiveStatus{Mode: plimsoll.ArchiveKept, ID: c.mark.ID, Sequence: c.mark.Sequence}
	return wire.Mutation{Kind: wire.KindArchive, Value: wire.AppendArchiveStatus(nil, &s)}
}

// submit takes in a job with so many tasks that run.
func (c *cell) submit(id, owner, queue string, labels map[string]string, tasks int) *cellJob {
	c.clock++
	j := &cellJob{}
	j.spec = plimsoll.JobSpec{
		ID: id, Owner: owner, Queue: queue, Labels: labels,
		Groups: []plimsoll.GroupSpec{{Name: "map", Count: int32(tasks), Command: []string{"true"}}},
	}
	j.status = plimsoll.JobStatus{
		ID: id, Owner: owner, Queue: queue, State: plimsoll.JobRunning, Submitted: c.clock,
		UID: plimsoll.MakeUID(c.clock, c.f.revision+1), Revision: c.f.revision + 1,
	}
	batch := []wire.Mutation{putSpec(j.spec), putStatus(j.status)}
	for i := range tasks {
		task := plimsoll.Task{
			ID: plimsoll.TaskID(id, "map", int32(i)), Job: id, Group: "map", Index: int32(i), Attempt: 1,
			State: plimsoll.TaskRunning, Node: "n1", Created: c.clock,
		}
		j.tasks = append(j.tasks, task)
		batch = append(batch, putTask(task))
	}
	c.jobs[j.status.UID], c.active[id] = j, j
	c.f.put(batch...)
	return j
}

// end ends a job; some of its tasks have failed, the first ones.
func (c *cell) end(j *cellJob, failed int) {
	c.clock++
	j.status.State, j.status.Finished = plimsoll.JobCompleted, c.clock
	if failed > 0 {
		j.status.State = plimsoll.JobFailed
	}
	var batch []wire.Mutation
	for i := range j.tasks {
		t := &j.tasks[i]
		t.State, t.Result, t.Finished = plimsoll.TaskFinished, plimsoll.ResultSucceeded, c.clock
		if i < failed {
			t.Result, t.ExitCode = plimsoll.ResultFailed, int32(1+i)
		}
		batch = append(batch, putTask(*t))
	}
	c.f.put(append(batch, putStatus(j.status))...)
}

// store writes an ended job to the archive.
func (c *cell) store(j *cellJob) {
	job := archive.Job{
		Head: archive.Head{
			UID: j.status.UID, ID: j.spec.ID, Owner: j.spec.Owner, Queue: j.spec.Queue, Labels: j.spec.Labels,
			State: j.status.State, Result: j.status.Result(), Finished: j.status.Finished, Tasks: int32(len(j.tasks)),
		},
		Spec: wire.AppendJobSpec(nil, &j.spec), Status: wire.AppendJobStatus(nil, &j.status),
	}
	var records []archive.TaskRecord
	for i := range j.tasks {
		t := &j.tasks[i]
		r := archive.TaskRecord{
			Key: wire.TaskKey(t.Job, t.Group, t.Index), State: t.State, Result: t.Result, Value: wire.AppendTask(nil,
				t),
		}
		if records = append(records, r); r.Failed() {
			job.Failed++
		}
	}
	job.Records = slices.Values(records)
	var err error
	if c.mark, err = c.archive.Write(context.Background(), 1, []archive.Job{job}, nil); err != nil {
		c.t.Fatal(err)
	}
	j.stored = true
}

// expire begins to remove a stored job from the active store: it is marked, and some tasks go.
func (c *cell) expire(j *cellJob, tasks int) {
	gone := j.status
	gone.State = plimsoll.JobExpired
	batch := []wire.Mutation{c.archiveStatus(), putStatus(gone)}
	for i := range min(tasks, len(j.tasks)) {
		batch = append(batch, deleted(putTask(j.tasks[i])))
	}
	c.f.put(batch...)
}

// forget removes the rest of a stored job from the active store.
func (c *cell) forget(j *cellJob) {
	batch := []wire.Mutation{c.archiveStatus(), deleted(putSpec(j.spec)), deleted(putStatus(j.status))}
	for _, t := range j.tasks {
		batch = append(batch, deleted(putTask(t)))
	}
	delete(c.active, j.spec.ID)
	c.f.put(batch...)
}

// archived takes an ended job through all steps.
func (c *cell) archived(j *cellJob) {
	c.store(j)
	c.expire(j, 0)
	c.forget(j)
}

// remove deletes a job of the active store for good.
func (c *cell) remove(j *cellJob) {
	j.status.Deleted, j.deleted = true, true
	c.f.put(putStatus(j.status))
	if err := c.archive.Delete(context.Background(), 1, []plimsoll.UID{j.status.UID}, c.clock); err != nil {
		c.t.Fatal(err)
	}
	c.forget(j)
}

// message is the status as a list answers with it.
func (j *cellJob) message() *pb.JobStatus {
	m := &pb.JobStatus{}
	if err := proto.Unmarshal(wire.AppendJobStatus(nil, &j.status), m); err != nil {
		panic(err)
	}
	return m
}

// sorted returns all jobs that are not deleted, in the order of their submits.
func (c *cell) sorted() []*cellJob {
	all := slices.Collect(maps.Values(c.jobs))
	all = slices.DeleteFunc(all, func(j *cellJob) bool { return j.deleted })
	slices.SortFunc(all, func(a, b *cellJob) int { return slices.Compare(a.status.UID[:], b.status.UID[:]) })
	return all
}

// serve returns a gateway beside the archive.
func (c *cell) serve(cfg Config) *served {
	if cfg.Archive == nil {
		cfg.Archive = c.archive
	}
	return directly(newGateway(c.t, cfg, c.f))
}

// idsOf returns the ids of a list, each with the time of its submit, from the uid.
func idsOf(jobs []*pb.JobStatus) (ids []string) {
	for _, j := range jobs {
		ids = append(ids, fmt.Sprintf("%s@%d", j.GetId(), j.GetSubmitted()))
	}
	return ids
}
