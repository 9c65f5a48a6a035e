package state

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll"
)

// maxMessage bounds the message of a task and the reason of a job, in bytes.
const maxMessage = 512

func cut(text string) string { return cutTo(text, maxMessage) }

// cutTo cuts a text to a number of bytes, and replaces invalid UTF-8. The encoder would replace it
// too, after the bytes were counted.
func cutTo(text string, end int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= end {
		return text
	}
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

func taskID(job, group string, index int32) string {
	b := make([]byte, 0, len(job)+len(group)+12)
	b = append(append(append(append(b, job...), '.'), group...), '.')
	return string(strconv.AppendInt(b, int64(index), 10))
}

const (
	lostRetryDelay  = second // delay before the next attempt of a task whose node was lost
	faultRetryDelay = second // delay before the next attempt of a task that its node could not start
)

// counter returns the count of the task's state in its group, or nil if the task is not counted.
func (r Ref) counter() *int32 {
	c, t := &r.Group.Counts, r.Task()
	switch t.State {
	case plimsoll.TaskPending:
		return &c.Pending
	case plimsoll.TaskBound:
		return &c.Bound
	case plimsoll.TaskStarting:
		return &c.Starting
	case plimsoll.TaskRunning:
		return &c.Running
	case plimsoll.TaskStopping:
		return &c.Stopping
	}
	if r.Index >= r.Group.Spec.Count { // the task was scaled away
		return nil
	}
	if t.Result == plimsoll.ResultSucceeded {
		return &c.Succeeded
	}
	return &c.Failed
}

func (s *State) count(r Ref, n int32) {
	c, j := r.counter(), r.Group.Job
	if c != nil {
		*c += n
	}
	if r.Task().State != plimsoll.TaskFinished {
		j.unfinished += n
	} else if c == &r.Group.Counts.Failed {
		j.failed += n
	}
}

// recount computes the counts of a job anew from its tasks.
func (s *State) recount(j *Job) {
	j.unfinished, j.failed = 0, 0
	for i := range j.Groups {
		g := &j.Groups[i]
		g.Counts = plimsoll.TaskCounts{}
		for index := range g.Tasks {
			s.count(Ref{g, int32(index)}, 1)
		}
	}
}

// Bind binds a pending task that Next has returned to a node with room for it.
func (s *State) Bind(r Ref, slot int32) {
	g, t := r.Group, r.Task()
	j, n := g.Job, s.slots[slot]
	s.keepAttempt(r)
	t.Attempt++
	t.Node, t.slot = s.text(n.ID), slot
	t.Bound, t.Starting, t.Started, t.Stopping, t.Finished, t.NotBefore = s.at, 0, 0, 0, 0, 0
	t.Result, t.ExitCode = plimsoll.ResultNone, 0
	s.setMessage(r, "")
	s.setTaskState(r, taskBound)
	s.tree.Charge(&g.lane)
	s.dequeued(g, t)
	s.occupy(r, n)
	s.emitNode(n, plimsoll.ChangeAdd, plimsoll.NodeAlloc, t.ID, g.Spec.Resources, "")
	if j.State == plimsoll.JobAccepted {
		s.setJobState(j, jobBound)
	}
	s.tellUse(j, plimsoll.ChangeAdd, g.Spec.Resources)
	s.emitTask(r, taskBound, "")
	s.tellAllocated(r, n)
}

func (s *State) occupy(r Ref, n *Node) {
	t := r.Task()
	t.place = int32(len(n.tasks))
	n.tasks = append(n.tasks, r)
	s.Fleet.Bind(n.Slot, r.Group.kind)
	s.nodeLog.add(n.Slot, TaskCame)
	s.markNodeStatus(n)
}

func (s *State) vacate(r Ref) {
	t := r.Task()
	n := s.slots[t.slot]
	last := n.tasks[len(n.tasks)-1]
	n.tasks[t.place] = last
	last.Task().place = t.place
	n.tasks = n.tasks[:len(n.tasks)-1]
	t.slot = -1
	s.Fleet.Unbind(n.Slot, r.Group.kind)
	n.shrunk = n.shrunk && !s.Fleet.Holds(n.Slot)
	s.nodeLog.add(n.Slot, RoomFreed)
	s.markNodeStatus(n)
	s.tree.Refund(&r.Group.lane)
	if s.names.tasks != 0 {
		s.names.stale = true
	}
}

// stopTask finishes a pending task at once. A task on a node becomes Stopping, so that its agent
// stops it.
func (s *State) stopTask(r Ref, result plimsoll.TaskResult, message string) {
	t := r.Task()
	if t.State == plimsoll.TaskPending {
		s.dequeue(r.Group, t)
		s.tree.Pend(&r.Group.lane, -1)
		s.keepAttempt(r) // its result gives way to the one of the stop
		t.Result, t.Finished = result, s.at
		s.setMessage(r, message)
		s.setTaskState(r, taskCanceled)
		s.emitTask(r, taskCanceled, message)
		if r.Group.Counts.Pending == 0 {
			s.clearWait(r.Group)
		}
		return
	}
	t.Result, t.Stopping = result, s.at
	s.setMessage(r, message)
	s.setTaskState(r, taskToStop)
}

// report applies an agent's report about an attempt. A report about an earlier attempt or an
// earlier job with the same id, or a repeated one, changes nothing.
func (s *State) report(n *Node, ref Ref, report *plimsoll.TaskReport) {
	t, j := ref.Task(), ref.Group.Job
	if t.Attempt != report.Attempt || !t.State.OnNode() || t.Node != n.ID ||
		!report.UID.IsZero() && report.UID != j.UID {
		return
	}
	at := report.At
	if at <= 0 || at > s.at {
		at = s.at
	}
	if isOfEarlierJob(t, j, report) {
		s.end(ref, plimsoll.ResultNodeFault, -1, "the agent of its node is of an older version, and took it for a task "+
			"of an earlier job with this id", s.at)
		return
	}
	s.noteStart(n, t, report)
	switch report.State {
	case plimsoll.TaskStarting:
		if t.State == plimsoll.TaskBound {
			t.Starting = at
			s.setTaskState(ref, taskPrepared)
		}
	case plimsoll.TaskRunning:
		s.started(ref, at)
	case plimsoll.TaskFinished:
		result := report.Result
		if result == plimsoll.ResultNone {
			result = plimsoll.ResultUnknownExit
		}
		if t.State == plimsoll.TaskStopping && result != plimsoll.ResultSucceeded {
			result = t.Result // the stop is the cause of the end
		}
		if report.Result == plimsoll.ResultEvicted && t.State != plimsoll.TaskStopping && !ref.Unwanted() {
			s.excludeNode(n, ref)
		}
		if j.Started == 0 && hasRun(result) {
			s.started(ref, at)
		}
		s.end(ref, result, report.ExitCode, cut(report.Message), at)
	}
}

// clockSkew is how much a node's clock may be behind, in ns, where a report has no uid.
const clockSkew = 30 * second

// isOfEarlierJob reports whether a report is about the end of an attempt of an earlier job with the
// same id. Its agent is of an older version, which knows no uids. It holds that attempt for the
// present one, so it will not start that. An agent that starts an attempt says so before the end.
func isOfEarlierJob(t *Task, j *Job, report *plimsoll.TaskReport) bool {
	return report.UID.IsZero() && report.State == plimsoll.TaskFinished && t.State == plimsoll.TaskBound &&
		report.At > 0 && report.At < j.Submitted-clockSkew
}

func (s *State) started(ref Ref, at int64) {
	t, j := ref.Task(), ref.Group.Job
	if t.Started == 0 {
		t.Started = at
		s.markTask(ref)
	}
	if t.State == plimsoll.TaskBound || t.State == plimsoll.TaskStarting {
		s.setTaskState(ref, taskStarted)
	}
	if j.Started == 0 {
		j.Started = at
		s.markStatus(j, true)
	}
	if j.State == plimsoll.JobAccepted || j.State == plimsoll.JobStarting {
		s.setJobState(j, jobStarted)
	}
}

// hasRun reports whether a task has run in an attempt that ended with a result.
func hasRun(result plimsoll.TaskResult) bool {
	switch result {
	case plimsoll.ResultNeverStarted, plimsoll.ResultLost, plimsoll.ResultNodeFault:
		return false
	}
	return true
}

// end ends an attempt. The task's room is free again, and the task is finished or pending again.
func (s *State) end(ref Ref, result plimsoll.TaskResult, exitCode int32, message string, at int64) {
	t, g := ref.Task(), ref.Group
	j, n := g.Job, s.slots[t.slot]
	s.vacate(ref)
	t.Result, t.ExitCode, t.Finished = result, exitCode, at
	s.totals.Ends[result]++
	if message != "" || result == plimsoll.ResultSucceeded {
		s.setMessage(ref, message)
	}
	detail := endDetail(result)
	if n.lost { // also if it was being stopped there, for another reason
		detail = plimsoll.AllocNodeRemoved
	}
	s.emitApp(j, plimsoll.ChangeRemove, detail, t.ID, g.Spec.Resources, result.String())
	s.emitNode(n, plimsoll.ChangeRemove, plimsoll.NodeAlloc, t.ID, g.Spec.Resources, "")
	s.tellUse(j, plimsoll.ChangeRemove, g.Spec.Resources)
	if result.Charged() {
		t.Failures++
	}
	if delay, again := s.retry(ref, result); again {
		s.requeue(ref, delay)
		return
	}
	s.setTaskState(ref, taskEnded)
	s.emitTask(ref, taskEnded, "")
	if result != plimsoll.ResultSucceeded && j.Reason == "" && !ref.Unwanted() {
		j.Reason = s.text(cut(firstFailure(t)))
		s.markStatus(j, true)
	}
	s.finishIfDone(j)
}

// firstFailure describes the failure of a task, for the reason of its job. Agents repeat the exit
// code in their message; the description has it once.
func firstFailure(t *Task) string {
	reason := t.ID + " " + t.Result.String()
	if t.Result == plimsoll.ResultFailed {
		code := "exit code " + strconv.Itoa(int(t.ExitCode))
		if t.Message == code || strings.HasPrefix(t.Message, code+";") {
			return reason + " with " + t.Message
		}
		reason += " with " + code
	}
	if t.Message != "" {
		reason += ": " + t.Message
	}
	return reason
}

func endDetail(result plimsoll.TaskResult) plimsoll.ChangeDetail {
	switch result {
	case plimsoll.ResultTimedOut:
		return plimsoll.AllocTimeout
	case plimsoll.ResultPreempted:
		return plimsoll.AllocPreempt
	case plimsoll.ResultLost:
		return plimsoll.AllocNodeRemoved
	}
	return plimsoll.AllocCancel
}

func (s *State) retry(ref Ref, result plimsoll.TaskResult) (delay int64, again bool) {
	switch {
	case ref.Unwanted() || result == plimsoll.ResultSucceeded:
		return 0, false
	case result == plimsoll.ResultLost:
		return lostRetryDelay, true
	case result == plimsoll.ResultNodeFault:
		return faultRetryDelay, true
	case !result.Charged():
		return 0, true
	}
	p, t := &ref.Group.Spec.Retry, ref.Task()
	if p.Kind == plimsoll.RetryNone || t.Failures > p.Limit {
		return 0, false
	}
	return int64(p.Delay(t.Failures)), true
}

func (s *State) requeue(ref Ref, delay int64) {
	t, g := ref.Task(), ref.Group
	s.setTaskState(ref, taskTriedAgain)
	s.tree.Pend(&g.lane, 1)
	if delay == 0 {
		s.enqueue(g, ref.Index)
		return
	}
	t.NotBefore = later(s.at, delay)
	s.wakeAt(timer{at: t.NotBefore, ref: ref})
	if g.lane.Ready() == 0 {
		s.clearWait(g)
	}
}

// retryDue queues a task whose delay before the next attempt has passed.
func (s *State) retryDue(ref Ref) {
	t := ref.Task()
	if t.State == plimsoll.TaskPending && !t.queued && t.NotBefore != 0 && t.NotBefore <= s.at && !ref.Unwanted() {
		s.enqueue(ref.Group, ref.Index)
	}
}
