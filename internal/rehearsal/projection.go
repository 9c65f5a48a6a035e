package rehearsal

import (
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// FromAgent makes a snapshot and a ledger from an agent's report: the node as the agent plans with
// it, and the resources taken from its tasks.
func FromAgent(q *client.NodeQOS) (*qos.Snapshot, *qos.Ledger) {
	s := &qos.Snapshot{
		Sequence: q.Sequence, At: q.At, Cores: q.CPU, Memory: q.Memory, Values: q.Values,
		ExtCPU:    q.Extended[plimsoll.ExtCPU] * (qos.Core / 1000),
		ExtMemory: q.Extended[plimsoll.ExtMemory], Tasks: make([]qos.Task, len(q.Tasks)),
	}
	l := qos.NewLedger()
	for i := range q.Tasks {
		t := &q.Tasks[i]
		g := qos.Group{
			Name: "task", CPU: t.CPU, Quota: t.Quota, Limit: t.Limit, Request: t.Request, Ext: t.ExtCPU,
			Shares: t.Shares, Idle: t.Idle, Frozen: t.Frozen,
		}
		s.Tasks[i] = qos.Task{
			ID: t.Task, Attempt: t.Attempt, Class: t.Class, Priority: t.Priority, Owner: t.Owner, Queue: t.Queue,
			Labels: t.Labels, Started: t.Started,
			CPU: t.CPU, CPUKnown: t.CPUKnown, Memory: t.Memory, MemoryKnown: t.MemoryKnown, ExtCPU: t.ExtCPU,
			ExtMemory:   t.ExtMemory,
			CPUPressure: t.CPUPressure, MemoryPressure: t.MemoryPressure, PressureKnown: t.PressureKnown,
			OwnQuota: t.OwnQuota, Stopping: t.Stopping,
			Values: t.Values, Groups: []qos.Group{g},
		}
		if t.Rung != "" && t.Rung != qos.Evict.String() {
			quota, shares := t.OriginalQuota, max(t.OriginalShares, t.Shares)
			if quota == 0 {
				quota = qos.Unlimited
			}
			l.Adopt(s.Tasks[i].Key(), &g, quota, shares)
		}
	}
	return s, l
}

// advance applies the steps of a plan to the snapshot, and lets a second pass.
func (x *rehearsal) advance(res *qos.Result) {
	s := x.snapshot
	next := projection{*s}
	next.Tasks, next.Values = slices.Clone(s.Tasks), maps.Clone(s.Values)
	x.ledger.Accept(res, s)
	for i := range s.Tasks {
		if s.Tasks[i].Stopping {
			next.remove(s.Tasks[i].Key()) // it is gone by the next sample
		}
	}
	for i := range res.Steps {
		step := &res.Steps[i]
		x.ledger.Begin(step, s.At)
		next.apply(step)
		x.ledger.Done(step, nil, s.At)
	}
	next.Sequence, next.At = s.Sequence+1, s.At+int64(time.Second)
	x.snapshot = &next.Snapshot
}

// projection is the snapshot expected after the planned steps. Effects that are not known are left
// out.
type projection struct{ qos.Snapshot }

func (s *projection) find(key qos.Key) int {
	return slices.IndexFunc(s.Tasks, func(t qos.Task) bool { return t.Key() == key })
}

// apply changes the projection as a step would change the node.
func (s *projection) apply(step *qos.Step) {
	i := s.find(step.Key())
	if i < 0 {
		return
	}
	if step.Verb == qos.Evict {
		s.remove(step.Key())
		return
	}
	t := &s.Tasks[i]
	before := t.CPU
	t.Groups = slices.Clone(t.Groups)
	for j := range t.Groups {
		g := &t.Groups[j]
		if step.Group != g.Name && step.Group != "" {
			continue
		}
		switch step.Verb {
		case qos.Reweight, qos.Unweight:
			g.Shares, g.Idle = step.NewWeight.Shares, step.NewWeight.Idle
		case qos.Throttle, qos.Restore:
			g.Quota = step.After
			if step.After > 0 {
				t.CPU -= max(g.CPU-step.After, 0)
				g.CPU = min(g.CPU, step.After)
			}
		case qos.Freeze:
			t.CPU, g.CPU, g.Frozen = 0, 0, true
		case qos.Thaw:
			g.Frozen = false
		case qos.Reclaim, qos.Evict:
		}
	}
	s.lower(qos.CPUTotalUsage, qos.CPUTotalUtilization, before-t.CPU, s.Cores)
}

// remove removes a task and its use.
func (s *projection) remove(key qos.Key) {
	i := s.find(key)
	if i < 0 {
		return
	}
	s.lower(qos.CPUTotalUsage, qos.CPUTotalUtilization, s.Tasks[i].CPU, s.Cores)
	s.lower(qos.MemoryTotalUsage, qos.MemoryTotalUtilization, s.Tasks[i].Memory, s.Memory)
	s.Tasks = slices.Delete(s.Tasks, i, i+1)
}

// lower subtracts an amount from both metrics of a resource.
func (s *projection) lower(usage, utilization string, amount, all int64) {
	if v, ok := s.Values[usage]; ok {
		s.Values[usage] = max(v-amount, 0)
	}
	if v, ok := s.Values[utilization]; ok && all > 0 {
		s.Values[utilization] = max(v-int64(float64(amount)/float64(all)*100*plimsoll.LineScale+0.5), 0)
	}
}
