package engine

func (do *SubmitJob) apply(e *Engine, id uint64, out *Batch) {
	job, err := e.state.Submit(do.Spec, do.Replace)
	if err == nil && job.Growing() {
		e.submits = append(e.submits, pendingSubmit{id, do, job})
		return
	}
	reply(out, id, do, Done{}, err)
}

func (do *KillJob) apply(e *Engine, id uint64, out *Batch) {
	err := e.state.CheckLifetime(do.ID, do.UID)
	if err == nil {
		err = e.state.Kill(do.ID, do.Reason)
	}
	reply(out, id, do, Done{}, err)
}

func (do *ScaleJob) apply(e *Engine, id uint64, out *Batch) {
	err := e.state.CheckLifetime(do.ID, do.UID)
	if err == nil {
		err = e.state.Scale(do.ID, do.Group, do.Count)
	}
	reply(out, id, do, Done{}, err)
}

func (do *SetNodeMode) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.SetNodeMode(do.ID, do.Mode))
}

func (do *RemoveNode) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.RemoveNode(do.ID))
}

func (do *SetQueueConfig) apply(e *Engine, id uint64, out *Batch) {
	set := e.state.SetQueueConfig
	if do.DryRun {
		set = e.state.CheckQueueConfig
	}
	err := set(&do.Config)
	if err != nil && !do.DryRun {
		e.state.RefuseQueueConfig(err.Error())
	}
	reply(out, id, do, Done{}, err)
}

func (do *QueuesUnread) apply(e *Engine, _ uint64, _ *Batch) { e.state.RefuseQueueConfig(do.Why) }

func (do *SetEventSettings) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.SetEventSettings(do.Settings))
}

func (do *ReportHistorian) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.ReportHistorian(do.Name, do.Instance, do.Next))
}

func (do *RemoveHistorian) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.RemoveHistorian(do.Name))
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

func (do *DiskShortage) apply(e *Engine, _ uint64, _ *Batch) { e.state.SetShortage(do.Why) }

func (do *Archived) apply(e *Engine, _ uint64, _ *Batch) {
	e.state.Archived(do.ID, do.Sequence, do.Written, do.Deleted)
	e.state.ArchivedAttempts(do.Attempts)
	if do.Accept {
		e.state.AcceptArchive(do.ID, do.Sequence)
	}
}

func (do *ArchiveTrouble) apply(e *Engine, _ uint64, _ *Batch) { e.state.ArchiveTrouble(do.Why) }

func (do *DeleteJob) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.DeleteJob(do.ID, do.UID))
}

func (do *ReportTasks) apply(e *Engine, id uint64, out *Batch) {
	e.reports = append(e.reports, pendingReport{id: id, do: do})
	e.continueReports(e.limits.Part(5), out)
}

func (do *ReportNode) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.ReportNode(do.Node, do.Incarnation, do.Sequence, &do.Report))
}

func (do *LeaveNode) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.Leave(do.Node, do.Incarnation, do.Running, do.Empty))
}

func (do *ApplyPolicies) apply(e *Engine, id uint64, out *Batch) {
	outcomes, err := e.state.ApplyPolicies(do.Policies, do.DryRun)
	reply(out, id, do, outcomes, err)
}

func (do *DeletePolicy) apply(e *Engine, id uint64, out *Batch) {
	reply(out, id, do, Done{}, e.state.DeletePolicy(do.Ref))
}
