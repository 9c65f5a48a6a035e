// Package engine makes the turns of the coordinator, as a deterministic function of its inputs.
// Turn is given commands and a time. It applies the commands to the working state, runs a
// scheduling cycle, and fills the batch to be committed: the changed records, the events, and the
// replies.
//
//	taken, wake, more := e.Turn(now, commands, &batch)
//
// A command is an Operation with an id (command.go). The type of the operation determines how it is
// applied (apply.go) and the type of its answer. The reply holds the answer or an error.
//
// Guarantees: the same seed and the same inputs give the same batches. A batch is within the limits
// of the store: large work goes on in the next turn, and is answered when it is done. Each kind of
// work has a part of the budget that the kinds before it cannot take. So a large submit does not
// hold up a kill. A command with a token has its effect once: its answer is part of the batch, and
// a repetition gets the same answer (repeat.go). Questions are answered beside the turns, from a
// Copy of the fleet.
//
// The engine owns the State and the Scheduler. It starts no goroutine, takes no lock, reads no
// clock and does no I/O. So the same code runs in the coordinator, in a simulation in virtual time,
// and in tests that replay a failure from its seed. The cost of a turn is linear in its commands
// and their changes, plus the scheduling cycle.
package engine

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// Config configures an engine.
type Config struct {
	Seed uint64 // seed of the order in which nodes are drawn
}

// Engine makes turns. One goroutine calls it at a time.
type Engine struct {
	state     *state.State
	scheduler *scheduler.Scheduler
	limits    state.Budget // budget of a turn
	revision  uint64       // revision of the last batch that changed something
	time      int64        // time of the last turn; it never goes back
	submits   []pendingSubmit
	reports   []pendingReport // in the order in which they came
}

// pendingSubmit is a submit whose tasks are still being created.
type pendingSubmit struct {
	id  uint64
	do  *SubmitJob
	job *state.Job
}

// pendingReport is a report that is not yet applied as a whole.
type pendingReport struct {
	id   uint64
	do   *ReportTasks
	next int // index of the first task report that is not applied
}

// New returns an engine over a loaded state, with the revision and the time of the last committed
// batch.
func New(cfg Config, s *state.State, revision uint64, time int64) *Engine {
	return &Engine{state: s, scheduler: scheduler.New(s, cfg.Seed), limits: s.Budget(), revision: revision, time: time}
}

// State returns the working state, for tests and for questions between turns.
func (e *Engine) State() *state.State { return e.state }

// Copy begins a copy of the fleet after the last turn, for questions, and returns that turn's
// revision. The caller continues the copy between turns; see scheduler.Copy.
func (e *Engine) Copy() (c *scheduler.Copy, revision uint64) {
	return e.scheduler.Copy(e.state), e.revision
}

// Subject returns a task as it is after the last turn, for a question about it.
func (e *Engine) Subject(job, group string, index int32) (scheduler.Subject, error) {
	ref, ok := e.state.FindTask(job, group, index)
	if !ok {
		return scheduler.Subject{}, plimsoll.Errorf(
			plimsoll.CodeNotFound, "there is no task %q", plimsoll.TaskID(job, group, index),
		)
	}
	return e.scheduler.Subject(e.state, ref), nil
}

// Batch is the result of a turn. It can be reused for another turn.
type Batch struct {
	Revision uint64 // 0: nothing changed, so there is nothing to commit
	Time     int64
	Changes  state.Changes
	Replies  []Reply
	Totals   state.Totals // after the turn
}

// Turn applies as many commands as fit, in their order, runs a scheduling cycle and fills out. It
// returns the number of applied commands, the time of the next timer (0: none), and whether work is
// left for a further turn at once.
func (e *Engine) Turn(now int64, commands []Command, out *Batch) (taken int, wake int64, more bool) {
	e.time = max(e.time, now)
	out.Replies = out.Replies[:0]
	s := e.state
	s.Begin(e.time, e.revision+1)
	// Each kind of work has a part of the budget that the kinds before it cannot take. So large
	// work does not hold up urgent commands.
	s.Forget(e.limits.Part(2))
	s.Due(e.limits.Part(3))
	e.continueReports(e.limits.Part(4), out)
	for taken < len(commands) && !s.Over(e.limits.Part(5)) {
		e.perform(&commands[taken], out)
		taken++
	}
	s.Continue(e.limits.Part(6))
	e.answerSubmits(out)
	_, behind := e.scheduler.Cycle(s, e.limits.Part(7))
	s.RecordCauses(e.limits)
	s.Take(&out.Changes)
	out.Totals = s.Totals()
	out.Time, out.Revision = e.time, 0
	if !out.Changes.Empty() {
		e.revision++
		out.Revision = e.revision
	}
	more = behind || taken < len(commands) || s.Behind() || len(e.reports) > 0
	return taken, s.Wake(), more
}

// continueReports applies the pending reports as far as the budget goes, in their order.
func (e *Engine) continueReports(budget state.Budget, out *Batch) {
	for len(e.reports) > 0 {
		w := &e.reports[0]
		node, err := e.state.CheckReporter(w.do.Node, w.do.Incarnation)
		for err == nil && w.next < len(w.do.Reports) {
			if e.state.Over(budget) {
				return
			}
			r := &w.do.Reports[w.next]
			e.state.Report(node, r.Job, r.Group, r.Index, &r.TaskReport)
			w.next++
		}
		reply(out, w.id, w.do, Done{}, err)
		e.reports[0] = pendingReport{}
		if e.reports = e.reports[1:]; len(e.reports) == 0 {
			e.reports = nil
		}
	}
}

// answerSubmits replies to the submits whose tasks are all created.
func (e *Engine) answerSubmits(out *Batch) {
	kept := e.submits[:0]
	for _, w := range e.submits {
		if w.job.Growing() {
			kept = append(kept, w)
			continue
		}
		reply(out, w.id, w.do, Done{}, nil)
	}
	clear(e.submits[len(kept):])
	e.submits = kept
}
