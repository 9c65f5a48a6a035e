package engine

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
)

func (do *SubmitJob) apply(e *Engine, id uint64, out *Batch) {
	job, err := e.state.Submit(do.Spec)
	if err == nil && job.Growing() {
		e.waiting = append(e.waiting, waiter{id, do, job})
		return
	}
	reply(out, id, do, Done{}, err)
}

func (do *KillJob) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.Kill(do.ID, do.Reason))
}

func (do *ScaleJob) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.Scale(do.ID, do.Group, do.Count))
}

func (do *SetNodeMode) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.SetNodeMode(do.ID, do.Mode))
}

func (do *RemoveNode) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.RemoveNode(do.ID))
}

func (do *SetQueueConfig) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.SetQueueConfig(&do.Config))
}

func (do *RegisterNode) apply(e *Engine, id uint64, out *Batch) {
	number, err := e.state.Register(&do.Node, do.Gateway)
	reply(out, id, do, Registration(number), err)
}

func (do *NodeSilent) apply(e *Engine, id uint64, out *Batch) {
	e.state.Silent(do.ID, do.Registration)
	reply(out, id, do, Done{}, nil)
}

func (do *GatewayLost) apply(e *Engine, _ uint64, _ *Batch) { e.state.GatewayLost(do.Gateway) }

func (do *ReportTasks) apply(e *Engine, id uint64, out *Batch) {
	e.reporting = append(e.reporting, reporting{id: id, do: do})
	e.continueReports(e.limits.Part(5), out)
}

func (do *ReportNode) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.ReportNode(do.Node, do.Incarnation, do.Sequence, &do.Report))
}

func (do *ApplyPolicies) apply(e *Engine, id uint64, out *Batch) {
	outcomes, err := e.state.ApplyPolicies(do.Policies, do.DryRun)
	reply(out, id, do, outcomes, err)
}

func (do *DeletePolicy) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.DeletePolicy(do.Ref))
}

func (do *Explain) apply(e *Engine, id uint64, out *Batch) {
	x, err := do.explain(e)
	reply(out, id, do, x, err)
}

func (do *Explain) explain(e *Engine) (scheduler.Explanation, error) {
	ref, ok := e.state.FindTask(do.Job, do.Group, do.Index)
	if !ok {
		return scheduler.Explanation{}, plimsoll.Errorf(plimsoll.CodeNotFound, "there is no task %q", plimsoll.TaskID(do.Job, do.Group, do.Index))
	}
	x, err := e.scheduler.Explain(e.state, ref, do.Node)
	if err == nil && do.Export && x.Decision != nil {
		x.Export, err = fleetjson.WriteDecision(x.Decision.Record())
	}
	return x, err
}

func (do *NodeCapacity) apply(e *Engine, id uint64, out *Batch) {
	capacities, err := e.scheduler.Capacities(e.state, do.Nodes)
	reply(out, id, do, capacities, err)
}

// question is an operation that is answered in a turn of its own.
type question interface {
	ask(e *Engine, id uint64, out *Batch)
}

func (do *PlaceJob) apply(e *Engine, id uint64, out *Batch) {
	if err := e.state.CheckSize(do.Spec); err != nil {
		reply(out, id, do, nil, err)
		return
	}
	e.asking = append(e.asking, asking{id, do})
}

func (do *PlaceJob) ask(e *Engine, id uint64, out *Batch) {
	trial, err := e.scheduler.Try(e.state, do.Spec, do.Group, int(do.Count))
	reply(out, id, do, trial, err)
}

func (do *PlanMoves) apply(e *Engine, id uint64, out *Batch) {
	if do.Spec != nil {
		if err := e.state.CheckSize(do.Spec); err != nil {
			reply(out, id, do, nil, err)
			return
		}
	}
	e.asking = append(e.asking, asking{id, do})
}

func (do *PlanMoves) ask(e *Engine, id uint64, out *Batch) {
	plan, err := e.scheduler.PlanMoves(e.state, do.Spec, do.Group, int(do.Limit))
	reply(out, id, do, plan, err)
}
