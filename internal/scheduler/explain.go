package scheduler

import (
	"cmp"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Explanation is the cause for which a task waits, or the way in which it was placed.
type Explanation struct {
	Task    plimsoll.Task
	Code    plimsoll.WaitCode
	Summary string

	placement.Explanation                     // result of each stage of the chain now
	Verdicts              []placement.Verdict // of the filters on one node, if a node was named
	Decision              *placement.Decision // how the task was placed; nil if the decision is no longer kept
}

// Subject is a task in question, with all facts about it that need no look at the nodes.
type Subject struct {
	task     plimsoll.Task
	request  placement.Request
	queue    string // path of its queue
	code     plimsoll.WaitCode
	summary  string // empty: the nodes decide
	avoids   string // which node it avoids at its next attempt, and why; empty: none
	decision *placement.Decision
}

// Subject returns the present facts of a task. It costs O(depth of the tree) and, for a placed
// task, a copy of the decision.
func (c *Scheduler) Subject(s *state.State, ref state.Ref) Subject {
	g, t := ref.Group, ref.Task()
	sub := Subject{task: s.TaskRecord(ref), request: g.Request(), queue: g.Job.Queue.Path}
	sub.task.ID = t.ID
	sub.request.Resources = s.KnownNames().Placeable(g.Spec.Resources)
	if d, ok := c.decisions.Last(t.ID); ok && d.Server == t.Node && d.At == t.Bound/second {
		d.Keep()
		sub.decision = d
	}
	if !ref.Unwanted() {
		sub.avoids = s.Avoids(ref)
	}
	owner := queue.Owner{User: g.Job.Spec.Owner, Groups: g.Job.Spec.OwnerGroups}
	full, _ := s.Tree().RefusesOwner(g.Job.Queue, owner, g.Amounts())
	switch {
	case t.State.OnNode():
		sub.summary = fmt.Sprintf("%s on node %s, attempt %d", t.State, t.Node, t.Attempt)
	case t.State == plimsoll.TaskFinished:
		sub.summary = sub.task.Ending()
	case ref.Unwanted():
		sub.summary = "is about to be stopped"
	case g.Job.State == plimsoll.JobNew:
		sub.code, sub.summary = plimsoll.WaitTurn, "its job is still being taken in"
	case g.Job.Parked() != nil:
		at := cmp.Or(s.Tree().Full(g.Job.Queue, owner), g.Job.Parked())
		sub.code, sub.summary = at.Code(), whyParked(at)
	case t.Waits():
		sub.code, sub.summary = plimsoll.WaitRetry, "waits for its next attempt after "+t.Result.String()
	case g.Refused != "":
		sub.code, sub.summary = plimsoll.WaitNotUnderstood, g.Refused
	case full != nil:
		sub.code, sub.summary = full.Code(), whyFull(s.Names, full, g.Amounts())
	case s.Lacks(g.Spec.Resources) != "":
		sub.code, sub.summary = plimsoll.WaitNoResource, whyNone(s.KnownNames(), g.Spec.Resources)
	default:
		if h, by := s.HeldBackBy(g); by != nil {
			sub.code, sub.summary = plimsoll.WaitOrder, whyHeld(by.Job.Spec.ID, g.Job.Queue.Path, h.Until)
		}
	}
	return sub
}

// Explain finds the cause for which a task waits, by evaluating every node. If a node is named, it
// also returns the verdict of each filter on that node. The subject and the view must be of the
// same turn.
func (v *View) Explain(sub *Subject, node string) (Explanation, error) {
	p, err := v.chain.Prepare(v.fleet, &sub.request)
	if err != nil {
		return Explanation{}, fmt.Errorf("prepare the request of %s: %w", sub.task.ID, err)
	}
	defer p.Release()
	placer := v.placer()
	e := Explanation{
		Task: sub.task, Code: sub.code, Summary: sub.summary, Explanation: placer.Explain(p, v.now),
		Decision: sub.decision,
	}
	if node != "" {
		slot := v.fleet.Slot(node)
		if slot < 0 {
			return Explanation{}, noNode(node)
		}
		e.Verdicts = placer.ExplainServer(p, slot, v.now)
	}
	switch {
	case e.Code == plimsoll.WaitNoResource:
		// The request leaves out the name that no node has, so nodes would seem to take it.
		e.Explanation = placement.Explanation{Servers: v.fleet.Servers()}
	case e.Summary != "":
	case e.Fit > 0:
		e.Code, e.Summary = plimsoll.WaitTurn, fmt.Sprintf(
			"waits for its turn in %s; %d of %d nodes have room", sub.queue, e.Fit, e.Servers,
		)
	default:
		e.Code, e.Summary = e.Refusal(v.fleet.Names.Resources(p.Amounts()))
	}
	if sub.avoids != "" {
		e.Summary += "; " + sub.avoids
	}
	return e, nil
}
