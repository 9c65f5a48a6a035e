package state

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Submit takes in a job. It is acknowledged when Growing says that all its tasks are created; a job for which that has not
// happened is dropped at load. A second submit with the same id and the same token is the first one again.
func (s *State) Submit(spec *plimsoll.JobSpec) (*Job, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if old := s.jobs[spec.ID]; old != nil {
		if spec.Token != "" && spec.Token == old.Spec.Token {
			return old, nil
		}
		return nil, &plimsoll.Error{Code: plimsoll.CodeAlreadyExists, Field: "job", Msg: fmt.Sprintf(
			"%q already exists (%s); choose another id", spec.ID, old.State)}
	}
	q, err := s.leafFor(spec.Queue)
	if err != nil {
		return nil, err
	}
	if len(s.jobs) >= s.cfg.MaxJobs {
		return nil, plimsoll.Errorf(plimsoll.CodeExhausted, "%d jobs are known, as many as are possible; wait until some have ended", len(s.jobs))
	}
	if size := SpecBytes(spec); size > s.cfg.MaxSpecBytes {
		return nil, plimsoll.Invalid("groups", "the specification is %d bytes long; at most %d are possible", size, s.cfg.MaxSpecBytes)
	}
	for i := range spec.Groups {
		if err := s.Names.Check(fmt.Sprintf("groups[%d].resources", i), spec.Groups[i].Resources); err != nil {
			return nil, err
		}
	}
	s.lastSubmitted = max(s.at, s.lastSubmitted+1)
	j := s.addJob(spec, q, s.lastSubmitted)
	j.State = plimsoll.JobNew
	s.markSpec(j)
	s.markStatus(j, true)
	s.addJobs(q, 1)
	s.emitApp(j, plimsoll.ChangeAdd, plimsoll.DetailNone, "", nil, "")
	s.emitApp(j, plimsoll.ChangeSet, plimsoll.AppNew, "", nil, "")
	s.emitQueue(q, plimsoll.ChangeAdd, plimsoll.QueueApp, j.Spec.ID, nil, "")
	s.grow(j)
	return j, nil
}

func (s *State) leafFor(path string) (*Queue, error) {
	q := s.queues[path]
	switch {
	case q == nil:
		return nil, plimsoll.Invalid("queue", "%q does not exist; the leaf queues are %s", path, s.leafNames())
	case !q.Leaf:
		return nil, plimsoll.Invalid("queue", "%q is not a leaf and takes no jobs; the leaf queues are %s", path, s.leafNames())
	case q.Draining:
		return nil, plimsoll.Errorf(plimsoll.CodeConflict, "queue: %q is being removed and takes no new jobs; the leaf queues are %s", path, s.leafNames())
	}
	return q, nil
}

func (s *State) leafNames() string {
	var names []string
	s.Root.Walk(func(q *Queue) {
		if q.Leaf && !q.Draining {
			names = append(names, q.Path)
		}
	})
	const most = 10
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}

// Walk calls visit for the queue and all below it, parents first, children by name.
func (q *Queue) Walk(visit func(*Queue)) {
	visit(q)
	for _, c := range q.Children {
		c.Walk(visit)
	}
}

// SpecBytes estimates the encoded size of a specification, not too low.
func SpecBytes(spec *plimsoll.JobSpec) int {
	size := 128 + len(spec.ID) + len(spec.Owner) + len(spec.Queue) + len(spec.Token)
	for _, r := range plimsoll.SortedPairs(spec.Labels) {
		size += len(r[0]) + len(r[1]) + 8
	}
	for i := range spec.Groups {
		g := &spec.Groups[i]
		size += 128 + len(g.Name) + len(g.WorkDir) + len(g.User) + len(g.UserGroup)
		for _, arg := range g.Command {
			size += len(arg) + 4
		}
		for _, r := range plimsoll.SortedPairs(g.Env) {
			size += len(r[0]) + len(r[1]) + 8
		}
		for _, name := range g.Resources.Names() {
			size += len(name) + 16
		}
	}
	return size
}

func (s *State) addJob(spec *plimsoll.JobSpec, q *Queue, submitted int64) *Job {
	j := &Job{Spec: spec, Queue: q, Submitted: submitted, Groups: make([]Group, len(spec.Groups))}
	for i := range spec.Groups {
		g := &j.Groups[i]
		g.Job, g.Index, g.Spec = j, i, &spec.Groups[i]
		g.Shape = s.shapeOf(q, g.Spec)
	}
	s.jobs[spec.ID] = j
	return j
}

func (s *State) grow(j *Job) {
	if !j.growing {
		j.growing = true
		s.growing = append(s.growing, j)
	}
}

// Growing reports whether tasks of the job are still to be created.
func (j *Job) Growing() bool { return j.growing }

// createTasks creates tasks of a growing job as far as the budget goes and reports whether it is done.
func (s *State) createTasks(j *Job, budget Budget) bool {
	for i := range j.Groups {
		g := &j.Groups[i]
		for len(g.Tasks) < int(g.Spec.Count) && !j.Killed {
			if s.Over(budget) {
				return false
			}
			s.createTask(g)
		}
	}
	j.growing = false
	if j.State == plimsoll.JobNew {
		s.setJobState(j, plimsoll.JobAccepted)
		for i := range j.Groups {
			for index := range j.Groups[i].Tasks {
				s.enqueue(&j.Groups[i], int32(index))
			}
		}
		s.admit(j)
	}
	s.finishIfDone(j)
	return true
}

func (s *State) createTask(g *Group) {
	index := int32(len(g.Tasks))
	g.Tasks = append(g.Tasks, Task{
		ID: taskID(g.Job.Spec.ID, g.Spec.Name, index), State: plimsoll.TaskPending, Created: s.at, slot: -1,
	})
	g.Counts.Pending++
	g.Job.unfinished++
	s.addPending(g.Job.Queue, &g.Shape.Request.Amounts, 1)
	ref := Ref{g, index}
	s.markTask(ref)
	s.markStatus(g.Job, false)
	s.emitApp(g.Job, plimsoll.ChangeAdd, plimsoll.AppRequest, ref.Task().ID, g.Spec.Resources, "")
	if g.Job.State != plimsoll.JobNew {
		s.enqueue(g, index)
	}
}

// Kill begins to stop a job. Killing it again changes nothing.
func (s *State) Kill(id, reason string) error {
	j, err := s.liveJob(id)
	if err != nil || j.Killed {
		return err
	}
	if reason == "" {
		reason = "killed"
	}
	j.Killed, j.Reason = true, cut(reason)
	s.setJobState(j, plimsoll.JobFailing)
	s.stop(j)
	return nil
}

func (s *State) liveJob(id string) (*Job, error) {
	j := s.jobs[id]
	if j == nil {
		return nil, plimsoll.Errorf(plimsoll.CodeNotFound, "there is no job %q", id)
	}
	if j.State.Ended() {
		return nil, plimsoll.Errorf(plimsoll.CodeConflict, "job %q has already ended (%s)", id, j.State)
	}
	return j, nil
}

func (s *State) stop(j *Job) {
	if !j.stopping {
		j.stopping = true
		s.stopping = append(s.stopping, j)
	}
}

// Scale changes how many tasks a group has. Tasks that are too many are stopped, the highest indexes first to go.
func (s *State) Scale(id, group string, count int32) error {
	j, err := s.liveJob(id)
	if err != nil {
		return err
	}
	if j.Killed {
		return plimsoll.Errorf(plimsoll.CodeConflict, "job %q is being killed", id)
	}
	if group == "" && len(j.Groups) != 1 {
		return plimsoll.Invalid("group", "job %q has %d groups; name the one to scale", id, len(j.Groups))
	}
	g := &j.Groups[0]
	if group != "" {
		if g = j.group(group); g == nil {
			return plimsoll.Invalid("group", "job %q has no group %q", id, group)
		}
	}
	spec := *j.Spec // the old one may still be on its way to the store
	spec.Groups = append([]plimsoll.GroupSpec(nil), j.Spec.Groups...)
	spec.Groups[g.Index].Count = count
	if err := spec.Validate(); err != nil {
		return err
	}
	if j.growing && j.State == plimsoll.JobNew {
		return plimsoll.Errorf(plimsoll.CodeConflict, "job %q is still being submitted; try again", id)
	}
	s.setSpec(j, &spec)
	s.markSpec(j)
	s.markStatus(j, true)
	s.revive(g)
	s.grow(j)
	s.stop(j)
	return nil
}

func (s *State) setSpec(j *Job, spec *plimsoll.JobSpec) {
	j.Spec = spec
	for i := range j.Groups {
		j.Groups[i].Spec = &spec.Groups[i]
	}
	s.recount(j)
}

// revive makes tasks pending again that a former scaling has ended and that the group wants back.
func (s *State) revive(g *Group) {
	for index := range min(g.Spec.Count, int32(len(g.Tasks))) {
		t := &g.Tasks[index]
		if t.State == plimsoll.TaskFinished && t.Result == plimsoll.ResultKilled {
			s.setTaskState(Ref{g, index}, plimsoll.TaskPending)
			t.NotBefore = 0
			s.addPending(g.Job.Queue, &g.Shape.Request.Amounts, 1)
			s.emitApp(g.Job, plimsoll.ChangeAdd, plimsoll.AppRequest, t.ID, g.Spec.Resources, "")
			s.enqueue(g, index)
		}
	}
}

// unwanted reports whether the task is to be stopped.
func (r Ref) unwanted() bool { return r.Group.Job.Killed || r.Index >= r.Group.Spec.Count }

// stopTasks stops the unwanted tasks of a job as far as the budget goes and reports whether it is done.
func (s *State) stopTasks(j *Job, budget Budget) bool {
	for i := range j.Groups {
		g := &j.Groups[i]
		for index := range g.Tasks {
			ref := Ref{g, int32(index)}
			t := ref.Task()
			if !ref.unwanted() || t.State == plimsoll.TaskFinished || t.State == plimsoll.TaskStopping {
				continue
			}
			if s.Over(budget) {
				return false
			}
			s.stopTask(ref, plimsoll.ResultKilled, j.Reason)
		}
	}
	j.stopping = false
	s.finishIfDone(j)
	return true
}

func (s *State) setJobState(j *Job, to plimsoll.JobState) {
	if j.State == to {
		return
	}
	j.State = to
	s.markStatus(j, true)
	message := ""
	if to == plimsoll.JobFailing || to == plimsoll.JobFailed {
		message = j.Reason
	}
	s.emitApp(j, plimsoll.ChangeSet, jobDetails[to], "", nil, message)
}

var jobDetails = [...]plimsoll.ChangeDetail{
	plimsoll.JobNew: plimsoll.AppNew, plimsoll.JobAccepted: plimsoll.AppAccepted, plimsoll.JobStarting: plimsoll.AppStarting,
	plimsoll.JobRunning: plimsoll.AppRunning, plimsoll.JobCompleting: plimsoll.AppCompleting, plimsoll.JobCompleted: plimsoll.AppCompleted,
	plimsoll.JobRejected: plimsoll.AppReject, plimsoll.JobFailing: plimsoll.AppFailing, plimsoll.JobFailed: plimsoll.AppFailed,
	plimsoll.JobResuming: plimsoll.AppResuming, plimsoll.JobExpired: plimsoll.AppExpired,
}

// finishIfDone ends a job none of whose tasks will run again.
func (s *State) finishIfDone(j *Job) {
	if j.unfinished > 0 || j.growing || j.State.Ended() {
		return
	}
	j.Finished = s.at
	if j.Killed || j.failed > 0 {
		s.setJobState(j, plimsoll.JobFailing)
		s.setJobState(j, plimsoll.JobFailed)
	} else {
		s.setJobState(j, plimsoll.JobCompleting)
		s.setJobState(j, plimsoll.JobCompleted)
	}
	s.emitQueue(j.Queue, plimsoll.ChangeRemove, plimsoll.QueueApp, j.Spec.ID, nil, "")
	s.addJobs(j.Queue, -1)
	s.release(j)
	s.ended.push(j)
	s.dropIfEmpty(j.Queue)
}

// expire begins to forget jobs that ended long ago, or are too many.
func (s *State) expire() {
	for s.ended.len() > 0 {
		j := *s.ended.front()
		if s.ended.len() <= s.cfg.MaxEnded && s.at < j.Finished+s.cfg.KeepEnded {
			return
		}
		s.ended.pop()
		s.forget(j)
	}
}

func (s *State) forget(j *Job) {
	s.setJobState(j, plimsoll.JobExpired)
	j.forgetting = true
	s.forgetting = append(s.forgetting, j)
}

// forgetTasks deletes the records of a job as far as the budget goes and reports whether it is done.
func (s *State) forgetTasks(j *Job, budget Budget) bool {
	for i := range j.Groups {
		g := &j.Groups[i]
		for n := len(g.Tasks); n > 0; n-- {
			if s.Over(budget) {
				return false
			}
			s.dirty.deletedTasks = append(s.dirty.deletedTasks, TaskName{j.Spec.ID, g.Spec.Name, int32(n - 1)})
			g.Tasks = g.Tasks[:n-1]
		}
	}
	s.dirty.deletedJobs = append(s.dirty.deletedJobs, j.Spec.ID)
	s.emitApp(j, plimsoll.ChangeRemove, plimsoll.DetailNone, "", nil, "")
	delete(s.jobs, j.Spec.ID)
	return true
}
