package wire

import (
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// PolicyKey returns the key of a policy's record: its kind as a word, and its name.
func PolicyKey(ref plimsoll.PolicyRef) string { return ref.Kind.String() + "/" + ref.Name }

// SplitPolicyKey is the inverse of PolicyKey.
func SplitPolicyKey(key string) (ref plimsoll.PolicyRef, ok bool) {
	kind, name, found := strings.Cut(key, "/")
	ref = plimsoll.PolicyRef{Kind: plimsoll.ParsePolicyKind(kind), Name: name}
	return ref, found && ref.Kind != 0
}

// PolicyRefToProto converts the name of a policy.
func PolicyRefToProto(r plimsoll.PolicyRef) *pb.PolicyRef {
	return &pb.PolicyRef{Kind: pb.PolicyKind(r.Kind), Name: text(r.Name)}
}

// PolicyRefFromProto converts the name of a policy.
func PolicyRefFromProto(m *pb.PolicyRef) plimsoll.PolicyRef {
	return plimsoll.PolicyRef{Kind: EnumFromProto[plimsoll.PolicyKind](m.GetKind()), Name: m.GetName()}
}

// PolicyToProto converts a policy.
func PolicyToProto(p *plimsoll.Policy) *pb.Policy {
	m := &pb.Policy{Revision: p.Revision}
	switch p.Kind() {
	case plimsoll.PolicyAction:
		m.Kind = &pb.Policy_Action{Action: actionToProto(p.Action)}
	case plimsoll.PolicyTaskQOS:
		m.Kind = &pb.Policy_TaskQos{TaskQos: taskQOSToProto(p.TaskQOS)}
	case plimsoll.PolicyNodeQOS:
		m.Kind = &pb.Policy_NodeQos{NodeQos: nodeQOSToProto(p.NodeQOS)}
	}
	return m
}

// PolicyFromProto converts a policy. A policy without a kind stays without one, and validation
// refuses it.
func PolicyFromProto(m *pb.Policy) plimsoll.Policy {
	p := plimsoll.Policy{Revision: m.GetRevision()}
	switch kind := m.GetKind().(type) {
	case *pb.Policy_Action:
		p.Action = actionFromProto(kind.Action)
	case *pb.Policy_TaskQos:
		p.TaskQOS = taskQOSFromProto(kind.TaskQos)
	case *pb.Policy_NodeQos:
		p.NodeQOS = nodeQOSFromProto(kind.NodeQos)
	}
	return p
}

// AppendPolicy encodes a policy.
func AppendPolicy(dst []byte, p *plimsoll.Policy) []byte { return appendMessage(dst, PolicyToProto(p)) }

// DecodePolicy decodes a policy.
func DecodePolicy(data []byte) (plimsoll.Policy, error) {
	var m pb.Policy
	if err := decodeMessage("policy", data, &m); err != nil {
		return plimsoll.Policy{}, err
	}
	for _, r := range m.GetTaskQos().GetMatch() {
		if err := checkEnum[plimsoll.Scope]("scope", r.GetScope()); err != nil {
			return plimsoll.Policy{}, corrupt("policy", err)
		}
	}
	return PolicyFromProto(&m), nil
}

func actionToProto(a *plimsoll.Action) *pb.Action {
	m := &pb.Action{Name: text(a.Name), CoolDownNanos: int64(a.CoolDown), DisableScheduling: a.DisableScheduling}
	if w := a.Weight; w != nil {
		m.Weight = &pb.WeightAction{Idle: w.Idle, Shares: w.Shares}
	}
	if t := a.Throttle; t != nil {
		m.Throttle = &pb.ThrottleAction{MinRatio: t.MinRatio, Step: t.Step}
	}
	if f := a.Freeze; f != nil {
		m.Freeze = &pb.FreezeAction{ForNanos: int64(f.For)}
	}
	if e := a.Evict; e != nil {
		m.Evict = &pb.EvictAction{GraceNanos: int64(e.Grace), Reclaim: e.Reclaim}
	}
	return m
}

func actionFromProto(m *pb.Action) *plimsoll.Action {
	a := &plimsoll.Action{
		Name: m.GetName(), CoolDown: time.Duration(m.GetCoolDownNanos()), DisableScheduling: m.GetDisableScheduling(),
	}
	if w := m.GetWeight(); w != nil {
		a.Weight = &plimsoll.WeightAction{Idle: w.GetIdle(), Shares: w.GetShares()}
	}
	if t := m.GetThrottle(); t != nil {
		a.Throttle = &plimsoll.ThrottleAction{MinRatio: t.GetMinRatio(), Step: t.GetStep()}
	}
	if f := m.GetFreeze(); f != nil {
		a.Freeze = &plimsoll.FreezeAction{For: time.Duration(f.GetForNanos())}
	}
	if e := m.GetEvict(); e != nil {
		a.Evict = &plimsoll.EvictAction{Grace: time.Duration(e.GetGraceNanos()), Reclaim: e.GetReclaim()}
	}
	return a
}

func taskQOSToProto(t *plimsoll.TaskQOS) *pb.TaskQOS {
	m := &pb.TaskQOS{
		Name: text(t.Name), Labels: textMapToProto(t.Labels), Allowed: textsToProto(t.Allowed), Prefer: t.Prefer,
		Avoid:    t.Avoid,
		Critical: t.Critical,
	}
	for i := range t.Match {
		r := &t.Match[i]
		m.Match = append(
			m.Match, &pb.PolicyRequirement{Scope: pb.PolicyScope(r.Scope), Not: r.Not, Values: textsToProto(r.Values)},
		)
	}
	return m
}

func taskQOSFromProto(m *pb.TaskQOS) *plimsoll.TaskQOS {
	t := &plimsoll.TaskQOS{
		Name: m.GetName(), Labels: textMapFromProto(m.GetLabels()), Allowed: textsFromProto(m.GetAllowed()),
		Prefer: m.GetPrefer(),
		Avoid:  m.GetAvoid(), Critical: m.GetCritical(),
	}
	for _, r := range m.GetMatch() {
		t.Match = append(t.Match, plimsoll.Requirement{
			Scope: EnumFromProto[plimsoll.Scope](r.GetScope()), Not: r.GetNot(), Values: textsFromProto(r.GetValues()),
		})
	}
	return t
}

func nodeQOSToProto(n *plimsoll.NodeQOS) *pb.NodeQOS {
	m := &pb.NodeQOS{Name: text(n.Name), Selector: textMapToProto(n.Selector), Options: qosOptionsToProto(&n.Options)}
	for i := range n.Rules {
		r := &n.Rules[i]
		m.Rules = append(m.Rules, &pb.QOSRule{
			Name: text(r.Name), Metric: text(r.Metric), Waterline: text(r.Waterline), Release: text(r.Release),
			TriggerAfter: r.TriggerAfter, RestoreAfter: r.RestoreAfter, Action: text(r.Action), Preview: r.Preview,
			Hold: r.Hold,
		})
	}
	return m
}

func nodeQOSFromProto(m *pb.NodeQOS) *plimsoll.NodeQOS {
	n := &plimsoll.NodeQOS{
		Name: m.GetName(), Selector: textMapFromProto(m.GetSelector()), Options: qosOptionsFromProto(m.GetOptions()),
	}
	for _, r := range m.GetRules() {
		n.Rules = append(n.Rules, plimsoll.Rule{
			Name: r.GetName(), Metric: r.GetMetric(), Waterline: r.GetWaterline(), Release: r.GetRelease(),
			TriggerAfter: r.GetTriggerAfter(), RestoreAfter: r.GetRestoreAfter(), Action: r.GetAction(),
			Preview: r.GetPreview(), Hold: r.GetHold(),
		})
	}
	return n
}

// NodeReportToProto converts the report of a QoS agent.
func NodeReportToProto(r *plimsoll.NodeReport) *pb.NodeReport {
	m := &pb.NodeReport{
		SchedulingDisabled: r.SchedulingDisabled, SchedulingReason: text(r.SchedulingReason),
		Extended: resourcesToProto(r.Extended),
	}
	if r.Occupied != nil {
		m.Occupied = nodeUseToProto(r.Occupied)
	}
	for i := range r.Events {
		e := &r.Events[i]
		m.Events = append(m.Events, &pb.QOSEvent{
			At: e.At, Kind: pb.QOSEventKind(e.Kind), Task: text(e.Task), Attempt: e.Attempt, Rule: text(e.Rule),
			Metric: text(e.Metric),
			Before: text(e.Before), After: text(e.After), Message: text(e.Message),
		})
	}
	return m
}

// NodeReportFromProto converts the report of a QoS agent.
func NodeReportFromProto(m *pb.NodeReport) plimsoll.NodeReport {
	r := plimsoll.NodeReport{
		SchedulingDisabled: m.GetSchedulingDisabled(), SchedulingReason: m.GetSchedulingReason(),
		Extended: resourcesFromProto(m.GetExtended()),
	}
	if m.GetOccupied() != nil {
		use := nodeUseFromProto(m.GetOccupied())
		r.Occupied = &use
	}
	for _, e := range m.GetEvents() {
		r.Events = append(r.Events, plimsoll.QOSEvent{
			At: e.GetAt(), Kind: EnumFromProto[plimsoll.QOSEventKind](e.GetKind()), Task: e.GetTask(),
			Attempt: e.GetAttempt(),
			Rule:    e.GetRule(), Metric: e.GetMetric(), Before: e.GetBefore(), After: e.GetAfter(),
			Message: e.GetMessage(),
		})
	}
	return r
}

// qosOptionsToProto converts options; nil if none is set, so that the encoding of old records does
// not change.
func qosOptionsToProto(o *plimsoll.QOSOptions) *pb.QOSOptions {
	if *o == (plimsoll.QOSOptions{}) {
		return nil
	}
	return &pb.QOSOptions{
		Excess: o.Excess, OverdueNanos: int64(o.Overdue), StaleNanos: int64(o.Stale), BackoffNanos: int64(o.Backoff),
		SettleNanos: int64(o.Settle), LagNanos: int64(o.Lag),
	}
}

func qosOptionsFromProto(m *pb.QOSOptions) plimsoll.QOSOptions {
	return plimsoll.QOSOptions{
		Excess: m.GetExcess(), Overdue: time.Duration(m.GetOverdueNanos()), Stale: time.Duration(m.GetStaleNanos()),
		Backoff: time.Duration(m.GetBackoffNanos()), Settle: time.Duration(m.GetSettleNanos()),
		Lag: time.Duration(m.GetLagNanos()),
	}
}
