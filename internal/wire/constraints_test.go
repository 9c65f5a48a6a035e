package wire

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

func drawConstraints(t *rapid.T) plimsoll.Constraints {
	if rapid.Bool().Draw(t, "no constraints") {
		return plimsoll.Constraints{}
	}
	return plimsoll.Constraints{
		Traits:      drawTraits(t),
		Networks:    drawSlice(t, "networks", drawNames),
		Platform:    plimsoll.PlatformRange{Min: drawTexts(t, "min"), Max: drawTexts(t, "max")},
		VolumesFrom: drawNames(t),
		Near:        drawSlice(t, "near", drawSelector),
		Far:         drawSlice(t, "far", drawSelector),
		Spread:      drawSlice(t, "spread", drawSpread),
		Nodes:       drawNames(t),
		Reservoir:   drawEnum[plimsoll.ReservoirUse](t, "reservoir"),
		Class:       drawRatios(t, "class"),
		Where:       drawText(t, "where"),
	}
}

func drawPreferences(t *rapid.T) plimsoll.Preferences {
	return plimsoll.Preferences{
		Near:     drawSlice(t, "near", drawSelector),
		Far:      drawSlice(t, "far", drawSelector),
		Spread:   drawSlice(t, "spread", drawSpread),
		Strategy: drawEnum[plimsoll.Strategy](t, "strategy"),
	}
}

func drawNodeFacts(t *rapid.T) plimsoll.NodeFacts {
	f := plimsoll.NodeFacts{
		Traits:        drawTraits(t),
		Networks:      rapid.MapOfN(rapid.String(), rapid.Bool(), 0, 4).Draw(t, "networks"),
		Release:       drawText(t, "release"),
		Platform:      drawText(t, "platform"),
		Headnode:      rapid.Bool().Draw(t, "headnode"),
		Reservoir:     rapid.Bool().Draw(t, "reservoir"),
		Reserve:       drawRatios(t, "reserve"),
		Overprovision: drawRatios(t, "overprovision"),
		LastBoot:      drawInt64(t, "last boot"),
		NextReboot:    drawInt64(t, "next reboot"),
		Metrics:       drawSlice(t, "metrics", func(t *rapid.T) string { return drawText(t, "metric") }),
	}
	if len(f.Networks) == 0 {
		f.Networks = nil
	}
	return f
}

func drawNames(t *rapid.T) []string {
	return drawSlice(t, "names", func(t *rapid.T) string { return drawText(t, "name") })
}

// drawTraits draws flags, words, and lists without a word.
func drawTraits(t *rapid.T) map[string]plimsoll.Trait {
	value := rapid.Custom(func(t *rapid.T) plimsoll.Trait {
		trait := plimsoll.Trait{Flag: rapid.Bool().Draw(t, "flag"), Words: drawNames(t)}
		if trait.Words == nil && rapid.Bool().Draw(t, "no words") {
			trait.Words = []string{}
		}
		return trait
	})
	traits := rapid.MapOfN(rapid.String(), value, 0, 4).Draw(t, "traits")
	if len(traits) == 0 {
		return nil
	}
	return traits
}

func drawRatios(t *rapid.T, label string) map[string]float64 {
	finite := rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64)
	ratios := rapid.MapOfN(rapid.String(), finite, 0, 4).Draw(t, label)
	if len(ratios) == 0 {
		return nil
	}
	return ratios
}

func drawSelector(t *rapid.T) plimsoll.Selector {
	return plimsoll.Selector{Task: drawText(t, "task"), Job: drawText(t, "job"), Label: drawText(t, "label")}
}

func drawSpread(t *rapid.T) plimsoll.Spread {
	return plimsoll.Spread{By: drawText(t, "by"), MaxSkew: drawInt32(t, "max skew")}
}

func sampleConstrained() plimsoll.JobSpec {
	return plimsoll.JobSpec{ID: "train", Groups: []plimsoll.GroupSpec{{
		Constraints: plimsoll.Constraints{
			Traits: map[string]plimsoll.Trait{
				"ssd": {Flag: true}, "gpu": {Words: []string{"a100", "h100"}}, "odd": {Words: []string{}},
			},
			Networks: [][]string{{"external"}, {"storage-a", "storage-b"}},
			Platform: plimsoll.PlatformRange{Min: map[string]string{"7.0": "20260114T101500Z"}},
			Near:     []plimsoll.Selector{{Label: "app=db"}}, Spread: []plimsoll.Spread{{By: "rack", MaxSkew: 1}},
			Nodes: []string{"gpu-*"}, Reservoir: plimsoll.ReservoirNever, Class: map[string]float64{"cpu": 4},
			Where: "true",
		},
		Preferences: plimsoll.Preferences{Strategy: plimsoll.StrategyPack},
	}}}
}

func sampleNode() plimsoll.Node {
	return plimsoll.Node{ID: "n1", Mode: plimsoll.NodeActive, Facts: plimsoll.NodeFacts{
		Traits: map[string]plimsoll.Trait{"ssd": {Flag: true}}, Networks: map[string]bool{"eth0": true}, Release: "7.0",
		Reserve: map[string]float64{"memory": 0.15}, Overprovision: map[string]float64{"cpu": 4}, LastBoot: 1,
	}}
}

// A job without constraints and a node without facts take no byte more than before there were any.
func TestNothingConstrainedIsNotWritten(t *testing.T) {
	group := plimsoll.GroupSpec{
		Name: "g", Constraints: plimsoll.Constraints{Traits: map[string]plimsoll.Trait{}, Near: []plimsoll.Selector{}},
	}
	job := plimsoll.JobSpec{ID: "j", Groups: []plimsoll.GroupSpec{group}}
	want := marshal(t, &pb.JobSpec{Id: "j", Groups: []*pb.GroupSpec{{Name: "g"}}})
	if got := AppendJobSpec(nil, &job); string(got) != string(want) {
		t.Errorf("the job is %x, want %x", got, want)
	}
	node := plimsoll.Node{ID: "n", Facts: plimsoll.NodeFacts{Networks: map[string]bool{}}}
	if got, want := AppendNode(nil, &node), marshal(t, &pb.Node{Id: "n"}); string(got) != string(want) {
		t.Errorf("the node is %x, want %x", got, want)
	}
}
