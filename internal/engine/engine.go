// Package engine is one turn of the coordinator as a pure state machine: it is given commands and a time, applies them to the
// working state, runs a scheduling cycle, and returns the batch that is to be committed: what changed, the events, and the
// replies.
//
// It owns the State and the Scheduler. It starts no goroutine, takes no lock, reads no clock and does no I/O, so the same code
// runs in the coordinator, in a simulation in virtual time and in tests that replay a failure from its seed: the same seed and
// the same inputs give the same batches.
//
// A turn stays within the limits of the store: large work goes on in the next turn, and what was asked for is answered when it
// is done. The cost of a turn is linear in its commands and what they change.
package engine

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
)

// Config sets up an engine.
type Config struct {
	Seed   uint64
	Limits state.Budget // of the store
}

// Engine makes turns. It has one caller at a time.
type Engine struct {
	state     *state.State
	scheduler *scheduler.Scheduler
	limits    state.Budget
	revision  uint64 // of the last batch that changed something
	time      int64  // of the last turn
	waiting   []waiter
	reporting []reporting
	asking    []Command // dry runs and plans that are to be answered, one a turn
}

// waiter is a submit whose tasks are still being created.
type waiter struct {
	id  uint64
	job *state.Job
}

// reporting is a report that did not fit in a turn.
type reporting struct {
	id   uint64
	cmd  *ReportTasks
	next int
}

// New returns an engine over a loaded state. revision and time are those of the last batch that was committed.
func New(cfg Config, s *state.State, revision uint64, time int64) *Engine {
	return &Engine{state: s, scheduler: scheduler.New(s, cfg.Seed), limits: cfg.Limits, revision: revision, time: time}
}

// State returns the working state, for tests and for questions between turns.
func (e *Engine) State() *state.State { return e.state }

// Command is something to do, with an id for the reply. Do is one of the types below.
type Command struct {
	ID uint64
	Do any
}

// The commands.
type (
	// SubmitJob takes in a job; the specification must not be changed afterwards.
	SubmitJob struct{ Spec *plimsoll.JobSpec }
	// KillJob begins to stop a job.
	KillJob struct{ ID, Reason string }
	// ScaleJob changes how many tasks a group has; an empty group is the only one.
	ScaleJob struct {
		ID, Group string
		Count     int32
	}
	// SetNodeMode lets a node take tasks, or not, or drains it.
	SetNodeMode struct {
		ID   string
		Mode plimsoll.NodeMode
	}
	// RemoveNode forgets a node that holds no task.
	RemoveNode struct{ ID string }
	// SetQueueConfig replaces the tree of queues.
	SetQueueConfig struct{ Config plimsoll.QueueConfig }
	// RegisterNode makes a node known through a gateway. The reply holds the number of the registration.
	RegisterNode struct {
		Node    plimsoll.Node
		Gateway string
	}
	// NodeSilent says that a gateway no longer hears a node.
	NodeSilent struct {
		ID           string
		Registration uint64
	}
	// GatewayLost says that a gateway is gone. It has no reply.
	GatewayLost struct{ Gateway string }
	// ReportTasks takes in what an agent says about attempts.
	ReportTasks struct {
		Node        string
		Incarnation uint64
		Reports     []Report
	}
	// ReportNode takes in what the QoS agent of a node says of it.
	ReportNode struct {
		Node        string
		Incarnation uint64
		Sequence    uint64
		Report      plimsoll.NodeReport
	}
	// ApplyPolicies creates and replaces policies, all of them or none; a dry run says what it would do. The policies must not be changed
	// afterwards.
	ApplyPolicies struct {
		Policies []plimsoll.Policy
		DryRun   bool
	}
	// DeletePolicy deletes a policy that no other names.
	DeletePolicy struct{ Ref plimsoll.PolicyRef }
	// Explain asks why a task waits, and what each filter says about a node, if one is named. It changes nothing.
	Explain struct {
		Job, Group string
		Index      int32
		Node       string
		Export     bool // the decision that put the task on its node, too
	}
	// NodeCapacity asks what is left on nodes; none named: on all. It changes nothing.
	NodeCapacity struct{ Nodes []string }
	// PlaceJob asks where tasks of a job would be placed: so many of each group, 0: as many as it has; an empty group: of all. It
	// changes nothing.
	PlaceJob struct {
		Spec  *plimsoll.JobSpec
		Group string
		Count int32
	}
	// PlanMoves asks for moves that would make room for a task of a group of a job, or, without a job, empty nodes. It changes
	// nothing.
	PlanMoves struct {
		Spec  *plimsoll.JobSpec
		Group string
		Limit int32
	}
)

// Report is a task report with its task's name taken apart.
type Report struct {
	Job, Group string
	Index      int32
	plimsoll.TaskReport
}

// Reply answers a command.
type Reply struct {
	ID           uint64
	Err          error
	Registration uint64
	Explanation  *Explanation
	Capacities   []placement.Capacity // of NodeCapacity; nil: it was not asked for
	Trial        *scheduler.Trial
	Plan         *scheduler.MovePlan
	Policies     []state.PolicyOutcome // of ApplyPolicies
}

// Explanation answers Explain.
type Explanation struct {
	Task plimsoll.Task
	scheduler.Explanation
	Export []byte // the decision, as fleetjson.ReadDecision takes it
}

// Batch is what a turn made. It can be reused for another turn.
type Batch struct {
	Revision uint64 // 0: nothing changed, there is nothing to commit
	Time     int64
	Changes  state.Changes
	Replies  []Reply
}

// Turn applies commands in their order, as many as fit, runs a scheduling cycle and fills out. It returns how many commands it
// took, when it next wants to be woken (0: never), and whether it wants to be called again at once.
func (e *Engine) Turn(now int64, commands []Command, out *Batch) (taken int, wake int64, more bool) {
	e.time = max(e.time, now)
	out.Replies = out.Replies[:0]
	s := e.state
	s.Begin(e.time, e.revision+1)
	// Each has a part of the budget that nothing before it can take away, so that large work does not hold up what is urgent.
	s.Forget(e.limits.Part(2))
	s.Due(e.limits.Part(3))
	e.continueReports(e.limits.Part(4), out)
	for taken < len(commands) && !s.Over(e.limits.Part(5)) {
		e.apply(&commands[taken], out)
		taken++
	}
	e.answer(out)
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
	more = behind || taken < len(commands) || s.Behind() || len(e.reporting)+len(e.asking) > 0
	return taken, s.Wake(), more
}

func (e *Engine) apply(c *Command, out *Batch) {
	r := Reply{ID: c.ID}
	s := e.state
	switch do := c.Do.(type) {
	case *SubmitJob:
		job, err := s.Submit(do.Spec)
		if err == nil && job.Growing() {
			e.waiting = append(e.waiting, waiter{c.ID, job})
			return
		}
		r.Err = err
	case *KillJob:
		r.Err = s.Kill(do.ID, do.Reason)
	case *ScaleJob:
		r.Err = s.Scale(do.ID, do.Group, do.Count)
	case *SetNodeMode:
		r.Err = s.SetNodeMode(do.ID, do.Mode)
	case *RemoveNode:
		r.Err = s.RemoveNode(do.ID)
	case *SetQueueConfig:
		r.Err = s.SetQueueConfig(&do.Config)
	case *RegisterNode:
		r.Registration, r.Err = s.Register(&do.Node, do.Gateway)
	case *NodeSilent:
		s.Silent(do.ID, do.Registration)
	case *GatewayLost:
		s.GatewayLost(do.Gateway)
		return
	case *ReportNode:
		r.Err = s.ReportNode(do.Node, do.Incarnation, do.Sequence, &do.Report)
	case *ApplyPolicies:
		r.Policies, r.Err = s.ApplyPolicies(do.Policies, do.DryRun)
	case *DeletePolicy:
		r.Err = s.DeletePolicy(do.Ref)
	case *ReportTasks:
		e.reporting = append(e.reporting, reporting{id: c.ID, cmd: do})
		e.continueReports(e.limits.Part(5), out)
		return
	case *Explain:
		r.Explanation, r.Err = e.explain(do)
	case *NodeCapacity:
		r.Capacities, r.Err = e.scheduler.Capacities(s, do.Nodes)
	case *PlaceJob, *PlanMoves:
		e.asking = append(e.asking, *c)
		return
	default:
		r.Err = plimsoll.Errorf(plimsoll.CodeUnimplemented, "the leader does not know the command %T", do)
	}
	out.Replies = append(out.Replies, r)
}

// answer answers the first dry run or plan that waits, which costs a turn's time, so that those who ask do not hold up those who command.
func (e *Engine) answer(out *Batch) {
	if len(e.asking) == 0 {
		return
	}
	c := e.asking[0]
	e.asking[0] = Command{}
	if e.asking = e.asking[1:]; len(e.asking) == 0 {
		e.asking = nil
	}
	r := Reply{ID: c.ID}
	switch do := c.Do.(type) {
	case *PlaceJob:
		r.Trial, r.Err = e.scheduler.Try(e.state, do.Spec, do.Group, int(do.Count))
	case *PlanMoves:
		r.Plan, r.Err = e.scheduler.PlanMoves(e.state, do.Spec, do.Group, int(do.Limit))
	}
	out.Replies = append(out.Replies, r)
}

// continueReports takes in reports as far as the budget goes, in the order in which they came.
func (e *Engine) continueReports(budget state.Budget, out *Batch) {
	for len(e.reporting) > 0 {
		w := &e.reporting[0]
		node, err := e.state.CheckReporter(w.cmd.Node, w.cmd.Incarnation)
		for err == nil && w.next < len(w.cmd.Reports) {
			if e.state.Over(budget) {
				return
			}
			r := &w.cmd.Reports[w.next]
			e.state.Report(node, r.Job, r.Group, r.Index, &r.TaskReport)
			w.next++
		}
		out.Replies = append(out.Replies, Reply{ID: w.id, Err: err})
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
		out.Replies = append(out.Replies, Reply{ID: w.id})
	}
	clear(e.waiting[len(kept):])
	e.waiting = kept
}

func (e *Engine) explain(do *Explain) (*Explanation, error) {
	ref, ok := e.state.FindTask(do.Job, do.Group, do.Index)
	if !ok {
		return nil, plimsoll.Errorf(plimsoll.CodeNotFound, "there is no task %q", plimsoll.TaskID(do.Job, do.Group, do.Index))
	}
	record := e.state.TaskRecord(ref)
	record.ID = ref.Task().ID
	x, err := e.scheduler.Explain(e.state, ref, do.Node)
	if err != nil {
		return nil, err
	}
	out := &Explanation{Task: record, Explanation: x}
	if do.Export && x.Decision != nil {
		if out.Export, err = fleetjson.WriteDecision(x.Decision.Record()); err != nil {
			return nil, err //nolint:wrapcheck // it says what was done
		}
	}
	return out, nil
}
