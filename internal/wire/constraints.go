package wire

import (
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// ConstraintsToProto converts the constraints of a group; nil if nothing is constrained.
func ConstraintsToProto(c *plimsoll.Constraints) *pb.Constraints {
	if c.IsZero() {
		return nil
	}
	m := &pb.Constraints{
		Traits:      traitsToProto(c.Traits),
		VolumesFrom: textsToProto(c.VolumesFrom),
		Near:        selectorsToProto(c.Near),
		Far:         selectorsToProto(c.Far),
		Spread:      spreadsToProto(c.Spread),
		Nodes:       textsToProto(c.Nodes),
		Reservoir:   pb.ReservoirUse(c.Reservoir),
		Class:       ratiosToProto(c.Class),
		Where:       text(c.Where),
	}
	for _, names := range c.Networks {
		m.Networks = append(m.Networks, &pb.NetworkChoice{Names: textsToProto(names)})
	}
	if p := &c.Platform; len(p.Min) > 0 || len(p.Max) > 0 {
		m.Platform = &pb.PlatformRange{Min: textMapToProto(p.Min), Max: textMapToProto(p.Max)}
	}
	return m
}

// ConstraintsFromProto converts the constraints of a group.
func ConstraintsFromProto(m *pb.Constraints) plimsoll.Constraints {
	c := plimsoll.Constraints{
		Traits: traitsFromProto(m.GetTraits()),
		Platform: plimsoll.PlatformRange{
			Min: textMapFromProto(m.GetPlatform().GetMin()), Max: textMapFromProto(m.GetPlatform().GetMax()),
		},
		VolumesFrom: textsFromProto(m.GetVolumesFrom()),
		Near:        selectorsFromProto(m.GetNear()),
		Far:         selectorsFromProto(m.GetFar()),
		Spread:      spreadsFromProto(m.GetSpread()),
		Nodes:       textsFromProto(m.GetNodes()),
		Reservoir:   EnumFromProto[plimsoll.ReservoirUse](m.GetReservoir()),
		Class:       ratiosFromProto(m.GetClass()),
		Where:       m.GetWhere(),
	}
	for _, choice := range m.GetNetworks() {
		c.Networks = append(c.Networks, textsFromProto(choice.GetNames()))
	}
	return c
}

// PreferencesToProto converts the preferences of a group; nil if nothing is preferred.
func PreferencesToProto(p *plimsoll.Preferences) *pb.Preferences {
	if p.IsZero() {
		return nil
	}
	return &pb.Preferences{
		Near: selectorsToProto(p.Near), Far: selectorsToProto(p.Far), Spread: spreadsToProto(p.Spread),
		Strategy: pb.Strategy(p.Strategy),
	}
}

// PreferencesFromProto converts the preferences of a group.
func PreferencesFromProto(m *pb.Preferences) plimsoll.Preferences {
	return plimsoll.Preferences{
		Near:     selectorsFromProto(m.GetNear()),
		Far:      selectorsFromProto(m.GetFar()),
		Spread:   spreadsFromProto(m.GetSpread()),
		Strategy: EnumFromProto[plimsoll.Strategy](m.GetStrategy()),
	}
}

// NodeFactsToProto converts the facts of a node for placement; nil if there are none.
func NodeFactsToProto(f *plimsoll.NodeFacts) *pb.NodeFacts {
	if f.IsZero() {
		return nil
	}
	m := &pb.NodeFacts{
		Traits:        traitsToProto(f.Traits),
		Release:       text(f.Release),
		Platform:      text(f.Platform),
		Headnode:      f.Headnode,
		Reservoir:     f.Reservoir,
		Reserve:       ratiosToProto(f.Reserve),
		Overprovision: ratiosToProto(f.Overprovision),
		LastBoot:      f.LastBoot,
		NextReboot:    f.NextReboot,
		Metrics:       textsToProto(f.Metrics),
		MaxTasks:      f.MaxTasks,
	}
	if len(f.Networks) > 0 {
		m.Networks = make(map[string]bool, len(f.Networks))
		for _, name := range slices.Sorted(maps.Keys(f.Networks)) {
			m.Networks[text(name)] = f.Networks[name]
		}
	}
	return m
}

// NodeFactsFromProto converts the facts of a node for placement.
func NodeFactsFromProto(m *pb.NodeFacts) plimsoll.NodeFacts {
	f := plimsoll.NodeFacts{
		Traits:        traitsFromProto(m.GetTraits()),
		Release:       m.GetRelease(),
		Platform:      m.GetPlatform(),
		Headnode:      m.GetHeadnode(),
		Reservoir:     m.GetReservoir(),
		Reserve:       ratiosFromProto(m.GetReserve()),
		Overprovision: ratiosFromProto(m.GetOverprovision()),
		LastBoot:      m.GetLastBoot(),
		NextReboot:    m.GetNextReboot(),
		Metrics:       textsFromProto(m.GetMetrics()),
		MaxTasks:      m.GetMaxTasks(),
	}
	if len(m.GetNetworks()) > 0 {
		f.Networks = maps.Clone(m.GetNetworks())
	}
	return f
}

var errRatio = errors.New("a ratio is not a finite number")

// checkPlacement fails for values that FromProto cannot represent: an unknown enumeration number,
// and a ratio that is not a number.
func checkPlacement(g *pb.GroupSpec) error {
	if err := checkEnum[plimsoll.ReservoirUse](
		"use of reservoir nodes", g.GetConstraints().GetReservoir(),
	); err != nil {
		return err
	}
	if err := checkEnum[plimsoll.Strategy]("strategy", g.GetPreferences().GetStrategy()); err != nil {
		return err
	}
	return checkRatios(g.GetConstraints().GetClass())
}

func checkRatios(ratios map[string]float64) error {
	for _, r := range ratios {
		if math.IsNaN(r) || math.IsInf(r, 0) {
			return errRatio
		}
	}
	return nil
}

// traitsToProto marks a list of words, because an empty list would otherwise look like a flag.
func traitsToProto(traits map[string]plimsoll.Trait) map[string]*pb.Trait {
	if len(traits) == 0 {
		return nil
	}
	out := make(map[string]*pb.Trait, len(traits))
	for _, name := range slices.Sorted(maps.Keys(traits)) {
		t := traits[name]
		out[text(name)] = &pb.Trait{Flag: t.Flag, Words: textsToProto(t.Words), IsWords: t.Words != nil}
	}
	return out
}

func traitsFromProto(traits map[string]*pb.Trait) map[string]plimsoll.Trait {
	if len(traits) == 0 {
		return nil
	}
	out := make(map[string]plimsoll.Trait, len(traits))
	for name, m := range traits {
		t := plimsoll.Trait{Flag: m.GetFlag(), Words: textsFromProto(m.GetWords())}
		if m.GetIsWords() && t.Words == nil {
			t.Words = []string{}
		}
		out[name] = t
	}
	return out
}

func selectorsToProto(selectors []plimsoll.Selector) []*pb.Selector {
	var out []*pb.Selector
	for i := range selectors {
		s := &selectors[i]
		out = append(out, &pb.Selector{Task: text(s.Task), Job: text(s.Job), Label: text(s.Label)})
	}
	return out
}

func selectorsFromProto(selectors []*pb.Selector) []plimsoll.Selector {
	var out []plimsoll.Selector
	for _, s := range selectors {
		out = append(out, plimsoll.Selector{Task: s.GetTask(), Job: s.GetJob(), Label: s.GetLabel()})
	}
	return out
}

func spreadsToProto(spreads []plimsoll.Spread) []*pb.Spread {
	var out []*pb.Spread
	for i := range spreads {
		out = append(out, &pb.Spread{By: text(spreads[i].By), MaxSkew: spreads[i].MaxSkew})
	}
	return out
}

func spreadsFromProto(spreads []*pb.Spread) []plimsoll.Spread {
	var out []plimsoll.Spread
	for _, s := range spreads {
		out = append(out, plimsoll.Spread{By: s.GetBy(), MaxSkew: s.GetMaxSkew()})
	}
	return out
}

func ratiosToProto(ratios map[string]float64) map[string]float64 {
	if len(ratios) == 0 {
		return nil
	}
	out := make(map[string]float64, len(ratios))
	for _, name := range slices.Sorted(maps.Keys(ratios)) {
		out[text(name)] = ratios[name]
	}
	return out
}

func ratiosFromProto(ratios map[string]float64) map[string]float64 {
	if len(ratios) == 0 {
		return nil
	}
	return maps.Clone(ratios)
}

func textsToProto(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, text(s))
	}
	return out
}

func textsFromProto(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return slices.Clone(list)
}
