// Package engine is one turn of the coordinator as a pure state machine. Turn is given commands and
// a time. It applies the commands to the working state, runs a scheduling cycle, and fills the
// batch that is to be committed: what changed, the events, and the replies.
//
//	taken, wake, more := e.Turn(now, commands, &batch)
//
// A command is an Operation with an id (command.go). The type of the operation says how it is
// applied (apply.go) and of which type its answer is, so that none can be answered with the answer
// of another. The reply holds the answer or an error.
//
// Guarantees: the same seed and the same inputs give the same batches. A batch is within the
// limits of the store: large work goes on in the next turn, and is answered when it is done. Each
// kind of work has a part of the turn that the kinds before it cannot take, so that a large
// submit does not hold up a kill. A command with a token has its effect once: its answer is part
// of the batch, and a repetition gets the same (repeat.go). Questions are not answered in a turn:
// Copy makes what answers them beside the turns.
//
// It owns the State and the Scheduler. It starts no goroutine, takes no lock, reads no clock and
// does no I/O, so the same code runs in the coordinator, in a simulation in virtual time, and in
// tests that replay a failure from its seed. The cost of a turn is linear in its commands and what
// they change, beside the scheduling cycle.
package engine

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// Config sets up an engine.
type Config struct {
	Seed uint64
}

// Engine makes turns. It has one caller at a time.
type Engine struct {
	state     *state.State
	scheduler *scheduler.Scheduler
	limits    state.Budget // of a turn
	revision  uint64       // of the last batch that changed something
	time      int64        // of the last turn
	waiting   []waiter
	reporting []reporting
}

// waiter is a submit whose tasks are still being created.
type waiter struct {
	id  uint64
	do  *SubmitJob
	job *state.Job
}

// reporting is a report that did not fit in a turn.
type reporting struct {
	id   uint64
	do   *ReportTasks
	next int
}

// New returns an engine over a loaded state. revision and time are those of the last batch that was
// committed.
func New(cfg Config, s *state.State, revision uint64, time int64) *Engine {
	return &Engine{state: s, scheduler: scheduler.New(s, cfg.Seed), limits: s.Budget(), revision: revision, time: time}
}

// State returns the working state, for tests and for questions between turns.
func (e *Engine) State() *state.State { return e.state }

// Copy begins a copy of what questions are about, as it is after the last turn, with that turn's
// revision. Its caller lets it go on between turns; see scheduler.Copy.
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

// Batch is what a turn made. It can be reused for another turn.
type Batch struct {
	Revision uint64 // 0: nothing changed, there is nothing to commit
	Time     int64
	Changes  state.Changes
	Replies  []Reply
}

// Turn applies commands in their order, as many as fit, runs a scheduling cycle and fills out. It
// returns how many commands it took, when it next wants to be woken (0: never), and whether it
// wants to be called again at once.
func (e *Engine) Turn(now int64, commands []Command, out *Batch) (taken int, wake int64, more bool) {
	e.time = max(e.time, now)
	out.Replies = out.Replies[:0]
	s := e.state
	s.Begin(e.time, e.revision+1)
	// Each has a part of the budget that nothing before it can take away, so that large work does
	// not hold up what is urgent.
	s.Forget(e.limits.Part(2))
	s.Due(e.limits.Part(3))
	e.continueReports(e.limits.Part(4), out)
	for taken < len(commands) && !s.Over(e.limits.Part(5)) {
		e.perform(&commands[taken], out)
		taken++
	}
	s.Continue(e.limits.Part(6))
	e.answerWaiters(out)
	_, behind := e.scheduler.Cycle(s, e.limits.Part(7))
	s.Tell(e.limits)
	s.Take(&out.Changes)
	out.Time, out.Revision = e.time, 0
	if !out.Changes.Empty() {
		e.revision++
		out.Revision = e.revision
	}
	more = behind || taken < len(commands) || s.Behind() || len(e.reporting) > 0
	return taken, s.Wake(), more
}

// continueReports takes in reports as far as the budget goes, in the order in which they came.
func (e *Engine) continueReports(budget state.Budget, out *Batch) {
	for len(e.reporting) > 0 {
		w := &e.reporting[0]
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
		e.reporting[0] = reporting{}
		if e.reporting = e.reporting[1:]; len(e.reporting) == 0 {
			e.reporting = nil
		}
	}
}

func (e *Engine) answerWaiters(out *Batch) {
	kept := e.waiting[:0]
	for _, w := range e.waiting {
		if w.job.Growing() {
			kept = append(kept, w)
			continue
		}
		reply(out, w.id, w.do, Done{}, nil)
	}
	clear(e.waiting[len(kept):])
	e.waiting = kept
}
