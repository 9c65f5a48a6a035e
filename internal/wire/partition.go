package wire

import (
	"maps"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

func accessToProto(l *plimsoll.AccessList) *pb.AccessList {
	if l == nil {
		return nil
	}
	return &pb.AccessList{Everybody: l.Everybody, Users: textsToProto(l.Users), Groups: textsToProto(l.Groups)}
}

func accessFromProto(m *pb.AccessList) *plimsoll.AccessList {
	if m == nil {
		return nil
	}
	return &plimsoll.AccessList{
		Everybody: m.GetEverybody(), Users: textsFromProto(m.GetUsers()), Groups: textsFromProto(m.GetGroups()),
	}
}

func partitionToProto(p *plimsoll.PartitionConfig) *pb.PartitionConfig {
	if p == nil {
		return nil
	}
	m := &pb.PartitionConfig{NoPreemption: p.NoPreemption, QuotaPreemption: p.QuotaPreemption}
	for i := range p.Rules {
		m.Rules = append(m.Rules, ruleToProto(&p.Rules[i]))
	}
	if s := p.NodeSort; s != nil {
		m.NodeSort = &pb.NodeSort{Binpacking: s.Binpacking}
		for name, weight := range s.Weights {
			if m.NodeSort.Weights == nil {
				m.NodeSort.Weights = make(map[string]float64, len(s.Weights))
			}
			m.NodeSort.Weights[text(name)] = weight
		}
	}
	return m
}

func partitionFromProto(m *pb.PartitionConfig) *plimsoll.PartitionConfig {
	if m == nil {
		return nil
	}
	p := &plimsoll.PartitionConfig{NoPreemption: m.GetNoPreemption(), QuotaPreemption: m.GetQuotaPreemption()}
	for _, r := range m.GetRules() {
		p.Rules = append(p.Rules, *ruleFromProto(r))
	}
	if s := m.GetNodeSort(); s != nil {
		p.NodeSort = &plimsoll.NodeSort{Binpacking: s.GetBinpacking()}
		if len(s.GetWeights()) > 0 {
			p.NodeSort.Weights = maps.Clone(s.GetWeights())
		}
	}
	return p
}

func ruleToProto(r *plimsoll.PlacementRule) *pb.PlacementRule {
	if r == nil {
		return nil
	}
	m := &pb.PlacementRule{
		Name: text(r.Name), Create: r.Create, Value: text(r.Value), Parent: ruleToProto(r.Parent),
	}
	if f := r.Filter; f != nil {
		m.Filter = &pb.RuleFilter{Deny: f.Deny, Users: textsToProto(f.Users), Groups: textsToProto(f.Groups)}
	}
	return m
}

func ruleFromProto(m *pb.PlacementRule) *plimsoll.PlacementRule {
	if m == nil {
		return nil
	}
	r := &plimsoll.PlacementRule{
		Name: m.GetName(), Create: m.GetCreate(), Value: m.GetValue(), Parent: ruleFromProto(m.GetParent()),
	}
	if f := m.GetFilter(); f != nil {
		r.Filter = &plimsoll.RuleFilter{
			Deny: f.GetDeny(), Users: textsFromProto(f.GetUsers()), Groups: textsFromProto(f.GetGroups()),
		}
	}
	return r
}
