package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
)

// jobRun is an arrival and how far its tasks are, by group.
type jobRun struct {
	*Arrival

	runs [][]taskRun
}

// taskRun is how far a task is.
type taskRun struct {
	attempts int32 // that have ended as the workload says
	began    bool
}

// planJob plans an arrival and its later changes.
func (r *runner) planJob(a *Arrival) error {
	if r.jobs[a.Job] != nil {
		return plimsoll.Invalid("workload", "the job %q stands twice; give each job its own name", a.Job)
	}
	j := &jobRun{a, make([][]taskRun, len(a.Groups))}
	for k := range a.Groups {
		j.runs[k] = make([]taskRun, len(a.Groups[k].Tasks))
	}
	r.jobs[a.Job] = j
	r.at(a.At, func(r *runner) []engine.Operation { return r.submit(a) })
	for _, s := range a.Scales {
		r.at(s.At, func(*runner) []engine.Operation {
			return []engine.Operation{&engine.ScaleJob{ID: a.Job, Group: s.Group, Count: s.Count}}
		})
	}
	if a.Killed > 0 {
		r.at(a.Killed, func(*runner) []engine.Operation {
			return []engine.Operation{&engine.KillJob{ID: a.Job, Reason: "killed, as in the workload"}}
		})
	}
	return nil
}

// onlyGroup is the name of a group that has none.
const onlyGroup = "t"

// submit returns the operation that submits a job.
func (r *runner) submit(a *Arrival) []engine.Operation {
	spec := &plimsoll.JobSpec{ID: a.Job, Owner: a.Owner, Queue: r.queueOf(a), Labels: a.Labels, Tags: a.Tags}
	if len(a.Scales) > 0 {
		spec.Completing = plimsoll.MaxCompleting // it may get more tasks after all have ended
	}
	for i := range a.Groups {
		g := &a.Groups[i]
		retries := 0
		for _, t := range g.Tasks {
			retries = max(retries, t.retries())
		}
		spec.Groups = append(spec.Groups, plimsoll.GroupSpec{
			Name: cmp.Or(g.Name, onlyGroup), Count: int32(len(g.Tasks)) - g.Later, Command: []string{"true"},
			Resources: g.Resources, Priority: g.Priority, Constraints: g.Constraints,
			Retry: plimsoll.RetryPolicy{Kind: plimsoll.RetryImmediate, Limit: int32(retries)},
		})
	}
	return []engine.Operation{&engine.SubmitJob{Spec: spec, Replace: true}}
}

// retries returns how many failures of a task are followed by another attempt.
func (t Task) retries() (n int) {
	for i := range t[:max(len(t)-1, 0)] {
		if t[i].Result.Charged() {
			n++
		}
	}
	return n
}

// queueOf returns the queue of a job; empty: the rules of the tree decide.
func (r *runner) queueOf(a *Arrival) string {
	if slices.Contains(r.leaves, a.Queue) {
		return a.Queue
	}
	if last := a.Queue[strings.LastIndexByte(a.Queue, '.')+1:]; last != "" {
		for _, leaf := range r.leaves {
			if strings.HasSuffix(leaf, "."+last) {
				return leaf
			}
		}
	}
	switch p := r.cfg.Queues.Partition; {
	case p != nil && len(p.Rules) > 0:
		return ""
	case slices.Contains(r.leaves, plimsoll.DefaultQueue), len(r.leaves) == 0:
		return plimsoll.DefaultQueue
	}
	n, ok := r.owners[a.Owner]
	if !ok {
		n = len(r.owners)
		r.owners[a.Owner] = n
	}
	return r.leaves[n%len(r.leaves)]
}

// refuse notes an operation that the engine has not applied. A job that has ended cannot be killed
// nor get another size, and a node that is gone cannot leave.
func (r *runner) refuse(op engine.Operation, err error) {
	switch op := op.(type) {
	case *engine.SubmitJob:
		r.report.refused(r.jobs[op.Spec.ID].tasks(), err)
	case *engine.SetQueueConfig:
		r.report.Notes = append(r.report.Notes, fmt.Sprintf("the queues of %s after the beginning were refused: %v",
			time.Duration(r.now-scenarioBase), err))
	}
}

// runOf returns the job of a task, and the number of its group.
func (r *runner) runOf(t *plimsoll.Task) (*jobRun, int) {
	j := r.jobs[t.Job]
	for i := range j.Groups {
		if cmp.Or(j.Groups[i].Name, onlyGroup) == t.Group {
			return j, i
		}
	}
	return j, 0
}

// taskStarted plans the end of an attempt that has begun.
func (r *runner) taskStarted(t *plimsoll.Task) {
	j, k := r.runOf(t)
	g, run := &j.Groups[k], &j.runs[k][t.Index]
	if !run.began {
		run.began = true
		r.begin(j, g, t)
	}
	task := g.Tasks[t.Index]
	attempt := task[min(int(run.attempts), len(task)-1)]
	if attempt.Runtime == 0 {
		return
	}
	name := *t
	r.at(r.now-scenarioBase+attempt.Runtime, func(r *runner) []engine.Operation {
		ref, ok := r.state().FindTask(name.Job, name.Group, name.Index)
		if !ok || ref.Task().Attempt != name.Attempt || ref.Task().State != plimsoll.TaskRunning {
			return nil // it was stopped before
		}
		run.attempts++
		return []engine.Operation{r.finished(&name, attempt.Result)}
	})
}

// begin notes that a task runs for the first time.
func (r *runner) begin(j *jobRun, g *TaskGroup, t *plimsoll.Task) {
	r.report.Placed++
	wait, then := t.Bound-t.Created, NoWait
	if g.Waits != nil {
		if then = g.Waits[t.Index]; then == NoWait {
			return
		}
	}
	r.report.began(r.state().Job(t.Job).Queue.Path, j.Owner, wait)
	if then >= 0 {
		r.differences = append(r.differences, max(wait-then, then-wait))
	}
}

// finished is the report of an agent that an attempt has ended.
func (r *runner) finished(t *plimsoll.Task, result plimsoll.TaskResult) engine.Operation {
	return &engine.ReportTasks{Node: t.Node, Incarnation: 1, Reports: []engine.Report{{
		Job: t.Job, Group: t.Group, Index: t.Index,
		TaskReport: plimsoll.TaskReport{
			Attempt: t.Attempt, State: plimsoll.TaskFinished, Result: result, At: r.now,
		},
	}}}
}

// taskEnded notes the end of a task. One that was stopped may be asked for again.
func (r *runner) taskEnded(t *plimsoll.Task) {
	if t.State != plimsoll.TaskFinished {
		return
	}
	if t.Result == plimsoll.ResultKilled {
		j, k := r.runOf(t)
		j.runs[k][t.Index].attempts++
	}
	r.report.ended(t)
}
