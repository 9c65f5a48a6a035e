package nodeqos

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Status returns the figures and the plan of the last sample. It waits for a sample that is under
// way.
func (l *Loop) Status() *pb.NodeQOSStatus {
	s := &l.state
	s.Lock()
	defer s.Unlock()
	out := &pb.NodeQOSStatus{
		Node: l.cfg.Node, SchedulingDisabled: s.reporter.closed, SchedulingReason: s.reporter.reason,
	}
	if l.cfg.Subtree == nil {
		out.Unable = "tasks have no control groups, so they cannot be slowed down or measured; they can be evicted, and new ones kept away"
	}
	if s.snapshot == nil || s.result == nil {
		return out
	}
	out.At, out.Sequence, out.Waits = s.now.UnixNano(), s.snapshot.Sequence, s.result.Waits
	out.CpuNanocores, out.MemoryBytes, out.Values = s.snapshot.Cores, s.snapshot.Memory, maps.Clone(s.snapshot.Values)
	if offered := s.lending.offered(); offered != nil {
		out.Extended = &pb.Resources{Amounts: offered}
	}
	if s.result.Waits == "" {
		out.SchedulingDisabled, out.SchedulingReason = s.result.Closed, s.result.ClosedBy
	}
	metric, triggers := qos.CPUTotalUsage, s.policies.Triggers()
	for i := range s.result.Rules {
		r := &s.result.Rules[i]
		out.Lines = append(out.Lines, l.line(r, triggers[r.Rule]))
		if r.Fires && !r.Preview {
			metric = r.Metric
		}
	}
	out.Waterlines = l.waterlines(s.result)
	for _, i := range s.policies.Order(s.snapshot.Tasks, metric) {
		out.Tasks = append(out.Tasks, s.task(&s.snapshot.Tasks[i]))
	}
	for i := range s.result.Steps {
		out.Plan = append(out.Plan, l.step(&s.result.Steps[i]))
	}
	for _, skip := range s.result.Skipped {
		out.Skipped = append(
			out.Skipped,
			&pb.QOSSkip{Task: skip.Task, Rule: skip.Rule, Verb: skip.Verb.String(), Reason: skip.Why.String()},
		)
	}
	return out
}

func (l *Loop) line(r *qos.RuleReport, trigger int32) *pb.QOSLine {
	out := &pb.QOSLine{
		Rule: r.Rule, Metric: r.Metric, Scale: plimsoll.LineScale, Waterline: r.Line, Release: r.Target, Usage: r.Usage,
		Triggered: r.Active,
		Since:     r.Since, Action: r.Action, Preview: r.Preview, Missing: !r.Known, Waits: r.Note,
	}
	if m := l.registry.Find(r.Metric); m != nil {
		out.Unit = m.Unit
		if m.Scale > 0 {
			out.Scale = m.Scale
		}
	}
	if r.Known && (r.Fires || r.Usage > r.Line) {
		out.Gap = r.Usage - r.Target
	}
	switch {
	case r.Absent:
		out.Waits = "nobody has registered the metric on this node"
	case r.NoAction:
		out.Waits = "there is no action of that name"
	case !r.Active && r.Above > 0:
		out.Waits = fmt.Sprintf("%d of %d samples", r.Above, max(trigger, r.Above))
	}
	return out
}

// waterlines returns the three sets of lines of a plan.
func (l *Loop) waterlines(res *qos.Result) *pb.QOSWaterlines {
	reports := make(map[string]*qos.RuleReport, len(res.Rules))
	for i := range res.Rules {
		reports[res.Rules[i].Rule] = &res.Rules[i]
	}
	set := func(lines []qos.Waterline) []*pb.QOSWaterline {
		smallest := make(map[string]int64)
		for _, line := range lines {
			if least, known := smallest[line.Metric]; !known || line.Value < least {
				smallest[line.Metric] = line.Value
			}
		}
		out := make([]*pb.QOSWaterline, len(lines))
		for i, line := range lines {
			w := &pb.QOSWaterline{
				Metric: line.Metric, Rule: line.Rule, Scale: plimsoll.LineScale, Value: line.Value,
				Smallest: line.Value == smallest[line.Metric],
			}
			if m := l.registry.Find(line.Metric); m != nil {
				w.Unit, w.Scale = m.Unit, m.LineScale()
			}
			if r := reports[line.Rule]; r != nil && r.Known {
				w.Gap = max(line.Value-r.Usage, r.Usage-line.Value)
			}
			out[i] = w
		}
		return out
	}
	return &pb.QOSWaterlines{Throttle: set(res.Down), Restore: set(res.Up), Evict: set(res.Evict)}
}

func (s *loopState) task(t *qos.Task) *pb.QOSTask {
	key := t.Key()
	out := &pb.QOSTask{
		Task: t.ID, Attempt: t.Attempt, Class: pb.Class(t.Class), Priority: t.Priority, CpuNanocores: t.CPU,
		MemoryBytes: t.Memory, Started: t.Started,
		Pending: t.Stopping || s.evicting[key], Stopping: t.Stopping, CpuUnknown: !t.CPUKnown,
		MemoryUnknown: !t.MemoryKnown,
		Owner:         t.Owner, Queue: t.Queue, Labels: t.Labels,
		ExtCpuNanocores: t.ExtCPU, ExtMemoryBytes: t.ExtMemory,
		CpuPressure: t.CPUPressure, MemoryPressure: t.MemoryPressure, PressureKnown: t.PressureKnown,
		OwnQuota: t.OwnQuota, Values: maps.Clone(t.Values),
	}
	for i := range t.Groups { // there is one
		out.LimitNanocores, out.RequestNanocores = t.Groups[i].Limit, t.Groups[i].Request
	}
	if t.ExtCPU > 0 {
		out.ExtRatioPermille = scale(t.CPU, 1000, t.ExtCPU)
	}
	out.Allowed, out.Exempt = s.policies.Allowed(t)
	switch {
	case out.Exempt != "":
	case len(out.Allowed) == 0:
		out.Exempt = "no TaskQOS allows an action on it"
	}
	s.taken(t, out)
	return out
}

// taken fills in the task's quota, weight and rung, and the original values.
func (s *loopState) taken(t *qos.Task, out *pb.QOSTask) {
	key := t.Key()
	if g := s.groups[key]; g != nil && g.control != nil {
		out.QuotaNanocores = max(nanocoresOf(g.quota), 0)
		out.OriginalQuotaNanocores = out.QuotaNanocores
		out.Idle, out.Frozen, out.Shares = g.weight.Idle, g.frozen, g.weight.Shares
		if shares, _, ok := s.ledger.Weight(key, g.name); ok {
			out.OriginalShares, out.Rung = shares, "weight"
		}
		if original, ok := s.ledger.Original(key, g.name); ok {
			out.OriginalQuotaNanocores, out.Rung = max(original, 0), "throttle"
		}
	}
	if s.ledger.Limited(key) {
		out.Rung = "throttle"
	}
	if s.ledger.FrozenUntil(key) != 0 {
		out.Rung = "freeze"
	}
	if s.evicting[key] {
		out.Rung = "evict"
	}
}

func (l *Loop) step(step *qos.Step) *pb.QOSStep {
	before, after := step.Change()
	out := &pb.QOSStep{
		Task: step.Task, Verb: step.Verb.String(), Metric: step.Metric, Rule: step.Rule, Before: before, After: after,
		Reason:  step.Reason,
		Preview: step.Preview,
	}
	for i, a := range step.Release {
		if i > 0 {
			out.Amount += ", "
		}
		amount := qos.FormatAmount(a.Dimension, a.Value)
		if m := l.registry.Find(a.Dimension); m != nil { // the metric is a dimension of its own
			amount = m.FormatAmount(a.Value)
		}
		out.Amount += a.Dimension + " " + amount
	}
	return out
}

// Watch calls each with the status now and then at every interval. It returns the error of each, or
// of ctx when it ends. There is no new status between two samples.
func (l *Loop) Watch(ctx context.Context, interval time.Duration, each func(*pb.NodeQOSStatus) error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		if err := each(l.Status()); err != nil {
			return err
		}
		timer.Reset(max(interval-l.cfg.interval()/2, 0)) // the next sample after that is reported
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-l.sampled.wait():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
