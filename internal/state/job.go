package state

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/size"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// addJob makes the row of a job, and puts a live one into its queue. prepared, unless nil, holds
// the prepared requests of its groups.
func (s *State) addJob(
	spec *plimsoll.JobSpec, q *queue.Queue, submitted int64, live bool, prepared []*placement.Prepared,
	refused []string,
) *Job {
	j := &Job{Spec: spec, Queue: q, Submitted: submitted, Groups: make([]Group, len(spec.Groups))}
	for i := range spec.Groups {
		g := &j.Groups[i]
		g.Job, g.Index, g.Spec = j, i, &spec.Groups[i]
		if refused != nil {
			g.Refused = refused[i]
		}
	}
	if live {
		s.enterQueue(j, prepared) // before the kinds: names without a slot need not be counted
	}
	for i := range j.Groups {
		s.fit(&j.Groups[i])
		j.Groups[i].resourceBytes = int32(size.Of(j.Groups[i].Spec.Resources))
	}
	s.jobs[spec.ID] = j
	return j
}

// scheduleGrowth lets Continue create the missing tasks of a job.
func (s *State) scheduleGrowth(j *Job) {
	for i := range j.Groups {
		j.Groups[i].createCursor = 0
	}
	if !j.growing {
		j.growing = true
		s.growing = append(s.growing, j)
	}
}

// Growing reports whether tasks of the job are still to be created.
func (j *Job) Growing() bool { return j.growing }

// createTasks creates the missing tasks of a growing job as far as the budget goes, and reports
// whether it is done. Tasks that an earlier scaling has stopped are revived.
func (s *State) createTasks(j *Job, budget Budget) bool {
	for i := range j.Groups {
		g := &j.Groups[i]
		for ; g.createCursor < g.Spec.Count && !j.Killed; g.createCursor++ {
			if s.Over(budget) {
				return false
			}
			switch {
			case int(g.createCursor) < len(g.Tasks) && j.State == plimsoll.JobNew: // created by a former leader
			case int(g.createCursor) < len(g.Tasks):
				s.revive(Ref{g, g.createCursor})
			case s.atTaskBound():
				return false
			default:
				s.createTask(g)
			}
		}
	}
	j.growing = false
	if j.State == plimsoll.JobNew {
		s.setJobState(j, jobCreated)
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
	s.goOn(g.Job)
	index := int32(len(g.Tasks))
	g.Tasks = append(g.Tasks, Task{
		ID: taskID(g.Job.Spec.ID, g.Spec.Name, index), State: taskTransitions[taskCreated].to, Created: s.at, slot: -1,
	})
	s.taskCount++
	s.countTask(plimsoll.TaskPending, 1)
	g.Counts.Pending++
	g.Job.unfinished++
	s.tree.Pend(&g.lane, 1)
	ref := Ref{g, index}
	s.markTask(ref)
	s.markStatus(g.Job, false)
	s.emitTask(ref, taskCreated, "")
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
	j.Killed, j.Reason = true, s.text(cut(reason))
	s.setJobState(j, jobKilled)
	s.countUsage(j) // no further tasks will be created
	s.unqueue(j)
	s.scheduleStop(j)
	return nil
}

// CheckLifetime fails if the job with an id has another uid than the given one. A zero uid stands
// for that of any job.
func (s *State) CheckLifetime(id string, uid plimsoll.UID) error {
	if j := s.jobs[id]; j != nil && !uid.IsZero() && uid != j.UID {
		return plimsoll.Errorf(plimsoll.CodeConflict,
			"the id %q belongs to a job with the uid %s now; the one with the uid %s has ended", id, j.UID, uid)
	}
	return nil
}

func (s *State) liveJob(id string) (*Job, error) {
	if r := s.rejected.byID[id]; r != nil {
		return nil, plimsoll.AlreadyEnded(id, r.status.State, r.status.Finished)
	}
	j := s.jobs[id]
	if j == nil || j.forgetting && j.State == plimsoll.JobNew {
		return nil, plimsoll.Errorf(plimsoll.CodeNotFound, "there is no job %q", id)
	}
	if j.State.Ended() {
		return nil, plimsoll.AlreadyEnded(id, j.State, j.Finished)
	}
	return j, nil
}

// unqueue removes the unwanted pending tasks from the queue at once. Stopping them may take several
// turns, and none may be placed meanwhile.
func (s *State) unqueue(j *Job) {
	for i := range j.Groups {
		g := &j.Groups[i]
		first := int(g.Spec.Count)
		if j.Killed {
			first = 0
		}
		for index := first; index < len(g.Tasks); index++ {
			s.dequeue(g, &g.Tasks[index])
		}
	}
}

// scheduleStop lets Continue stop the unwanted tasks of a job.
func (s *State) scheduleStop(j *Job) {
	for i := range j.Groups {
		j.Groups[i].stopCursor = 0
	}
	if !j.stopping {
		j.stopping = true
		s.stopping = append(s.stopping, j)
	}
}

// Scale changes the number of tasks of a group. Surplus tasks are stopped: those with the highest
// indexes.
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
	spec := *j.Spec // the old specification may still be on its way to the store
	spec.Groups = append([]plimsoll.GroupSpec(nil), j.Spec.Groups...)
	spec.Groups[g.Index].Count = count
	if err := spec.Validate(); err != nil {
		return err
	}
	if bytes, most := j.specSize(), s.bounds.step-s.bounds.row; bytes > most { // an older version took the job in
		return plimsoll.Invalid(
			"job", "%q has a specification of %d bytes; at most %d are possible; submit a smaller job instead", id,
			bytes, most,
		)
	}
	if j.growing && j.State == plimsoll.JobNew {
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "job %q is still being submitted; try again", id)
	}
	if wanted := j.usageWith(&spec); wanted.tasks > j.usage.tasks {
		if err := s.checkUsage(j.Queue, j.usage, wanted); err != nil {
			return err
		}
	}
	if count > g.Spec.Count {
		if err := s.checkDisk(); err != nil {
			return err
		}
	}
	if err := s.checkAsked(j, &spec); err != nil {
		return err
	}
	s.setSpec(j, &spec)
	s.markSpec(j)
	s.markStatus(j, true)
	s.unqueue(j)
	s.scheduleGrowth(j)
	s.scheduleStop(j)
	return nil
}

func (s *State) setSpec(j *Job, spec *plimsoll.JobSpec) {
	s.addAllAsked(j, -1)
	j.Spec = spec
	for i := range j.Groups {
		j.Groups[i].Spec = &spec.Groups[i]
	}
	s.addAllAsked(j, 1)
	s.recount(j)
	s.countUsage(j)
}

// revive makes a task pending again that an earlier scaling has stopped and the group wants again.
// A finished task without success and without a fault of its own was unwanted: any other such task
// is retried at once and does not finish.
func (s *State) revive(r Ref) {
	g, t := r.Group, r.Task()
	switch {
	case t.State == plimsoll.TaskFinished && t.Result != plimsoll.ResultSucceeded && !t.Result.Charged():
		s.goOn(g.Job)
		s.setTaskState(r, taskRevived)
		t.NotBefore = 0
		s.tree.Pend(&g.lane, 1)
		s.emitTask(r, taskRevived, "")
		s.enqueue(g, r.Index)
	case t.State == plimsoll.TaskPending && !t.queued && t.NotBefore <= s.at: // not stopped yet
		s.enqueue(g, r.Index)
	}
}

// Unwanted reports whether the task is to be stopped: its job was killed, or the group was scaled
// down.
func (r Ref) Unwanted() bool { return r.Group.Job.Killed || r.Index >= r.Group.Spec.Count }

// stopTasks stops the unwanted tasks of a job as far as the budget goes and reports whether it is
// done.
func (s *State) stopTasks(j *Job, budget Budget) bool {
	message := j.Reason
	if !j.Killed {
		message = "the group was scaled down"
	}
	for i := range j.Groups {
		g := &j.Groups[i]
		for ; int(g.stopCursor) < len(g.Tasks); g.stopCursor++ {
			ref := Ref{g, g.stopCursor}
			t := ref.Task()
			if !ref.Unwanted() || t.State == plimsoll.TaskFinished || t.State == plimsoll.TaskStopping {
				continue
			}
			if s.Over(budget) {
				return false
			}
			s.stopTask(ref, plimsoll.ResultKilled, message)
		}
	}
	j.stopping = false
	s.finishIfDone(j)
	return true
}

// complete lets a job complete whose tasks have all ended well. It leaves its place among the
// running jobs of its queues to others.
func (s *State) complete(j *Job) {
	s.setJobState(j, jobEndedWell)
	if j.Spec.Completing > 0 {
		s.tree.Dismiss(&j.account)
		s.completeAt(j, s.at)
	}
}

// completeAt sets the time at which a job completes that has been completing since a time.
func (s *State) completeAt(j *Job, since int64) {
	j.completes = later(since, int64(j.Spec.Completing))
	s.wakeAt(timer{at: j.completes, job: j})
}

// goOn lets a completing job run on, before it gets another task. It may have to wait for a place
// among the running jobs of its queues.
func (s *State) goOn(j *Job) {
	if j.State == plimsoll.JobCompleting {
		j.completes = 0
		s.setJobState(j, jobGoesOn)
		s.admit(j)
	}
}

// finishIfDone ends a job when all its tasks have finished and none is to be created. One whose
// tasks have ended well stays open for more tasks for JobSpec.Completing.
func (s *State) finishIfDone(j *Job) {
	if j.unfinished > 0 || j.growing || j.State.Ended() {
		return
	}
	well := !j.Killed && j.failed == 0
	if well && j.State != plimsoll.JobCompleting {
		s.complete(j)
	}
	if well && s.at < j.completes {
		return
	}
	j.Finished = s.at
	if !well {
		if j.State != plimsoll.JobFailing { // it was not killed
			s.setJobState(j, jobEndedBadly)
		}
		s.setJobState(j, jobFailed)
	} else {
		s.setJobState(j, jobCompleted)
	}
	s.emitQueue(j.Queue, plimsoll.ChangeRemove, plimsoll.QueueApp, j.Spec.ID, nil, "")
	s.addAllAsked(j, -1)
	s.leaveQueue(j)
	s.setLimited(j, queue.LimitedBy{})
	s.noteEnd(j)
	s.tellQueues(s.tree.Tidy(j.Queue))
}

// forgetTasks deletes the records of a job as far as the budget goes and reports whether it is
// done.
func (s *State) forgetTasks(j *Job, budget Budget) bool {
	if !s.dropExclusions(j, budget) {
		return false
	}
	for i := range j.Groups {
		g := &j.Groups[i]
		for n := len(g.Tasks); n > 0; n-- {
			if s.Over(budget) {
				s.countUsage(j)
				return false
			}
			s.dirty.deletedTasks = append(s.dirty.deletedTasks, TaskName{j.Spec.ID, g.Spec.Name, int32(n - 1)})
			s.dirty.bytes += taskBytes(Ref{g, int32(n - 1)})
			s.setFormer(Ref{g, int32(n - 1)}, former{})
			s.countTexts(j, -len(g.Tasks[n-1].Message))
			s.taskCount--
			s.countTask(g.Tasks[n-1].State, -1)
			g.Tasks[n-1] = Task{}
			g.Tasks = g.Tasks[:n-1]
		}
	}
	for i := range j.Groups {
		s.Fleet.Forget(j.Groups[i].kind)
	}
	s.dirty.deletedJobs = append(s.dirty.deletedJobs, j.Spec.ID)
	s.dirty.bytes += 2 * len(j.Spec.ID) // it has two records
	s.emitApp(j, plimsoll.ChangeRemove, plimsoll.DetailNone, "", nil, "")
	s.rememberSubmit(j)
	s.uncountUsage(j)
	s.countJob(j.State, -1)
	delete(s.jobs, j.Spec.ID)
	s.Fleet.Moved()                    // the volumes of its tasks are nowhere any more
	s.tellQueues(s.tree.Tidy(j.Queue)) // the queue may have held only this job, if its submit was abandoned
	return true
}
