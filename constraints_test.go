package plimsoll_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

type (
	constraints = plimsoll.Constraints
	preferences = plimsoll.Preferences
	facts       = plimsoll.NodeFacts
	trait       = plimsoll.Trait
	selector    = plimsoll.Selector
	spread      = plimsoll.Spread
)

// Every constraint of a group and every fact of a node is accepted at its bound.
func TestPlacementWordsAreAccepted(t *testing.T) {
	long := strings.Repeat("x", plimsoll.MaxPlacementName)
	job := constrained(constraints{
		Traits: map[string]trait{
			"ssd": {Flag: true}, "hdd": {}, "tier": {Words: []string{"gold"}},
			"gpu": {Words: texts64(func(i int) string { return fmt.Sprint("w", i) })},
			long:  {Words: []string{long}}, "größe": {Words: []string{"üppig, sehr"}},
		},
		Networks: [][]string{{"external"}, texts64(func(i int) string { return fmt.Sprint("n", i) })[:32]},
		Platform: plimsoll.PlatformRange{
			Min: map[string]string{"": "20260114T101500Z", "7.0": "20240229T000000Z"},
			Max: map[string]string{"10.12": "20991231T235959Z"},
		},
		VolumesFrom: []string{"db.main.0", "web-2.1.front.999999"},
		Near: []selector{
			{Task: "db.main.0"}, {Job: "web-2.1"}, {Label: "app=db"}, {Label: "app="}, {Label: "a=b=c"},
		},
		Far:       []selector{{Job: "db"}},
		Spread:    []spread{{By: "rack", MaxSkew: 1}, {By: "node", MaxSkew: math.MaxInt32}},
		Nodes:     []string{"n1", "gpu-*", "*", "rack?.n??"},
		Reservoir: plimsoll.ReservoirOnly,
		Class:     map[string]float64{"cpu": 1000, "nvidia.com/gpu": 0.001},
		Where:     strings.Repeat(" ", plimsoll.MaxWhere),
	}, preferences{
		Near: []selector{{Job: "a"}}, Spread: []spread{{By: "zone"}, {By: "rack"}}, Strategy: plimsoll.StrategyRandom,
	})
	if err := job.Validate(); err != nil {
		t.Error(err)
	}
	node := nodeWith(facts{
		Traits:   map[string]trait{"ssd": {Flag: true}, "gpu": {Words: []string{"a100"}}},
		Networks: map[string]bool{"eth0": true, "back": false},
		Release:  "7.0", Platform: "20260114T101500Z", Headnode: true, Reservoir: true,
		Reserve:       map[string]float64{"memory": 0.15, "cpu": 0, "disk": 0.999},
		Overprovision: map[string]float64{"cpu": 4},
		LastBoot:      1, NextReboot: 2,
	})
	if err := node.Validate(); err != nil {
		t.Error(err)
	}
}

// An impossible constraint is refused with the field as in the job file, and with the correction.
func TestConstraintsRefused(t *testing.T) {
	many := func(n int) []string { return make([]string, n) }
	traits := func(name string, words ...string) constraints {
		return constraints{Traits: map[string]trait{name: {Words: words}}}
	}
	for _, test := range []struct {
		field, msg string
		c          constraints
	}{
		{"traits", "empty name", traits("", "a")},
		{"traits", "at most 128 bytes", traits(strings.Repeat("x", 129), "a")},
		{"traits", "without control characters", traits("a\nb", "a")},
		{"traits", "without control characters", traits("\xff", "a")},
		{"traits.gpu", "empty name", traits("gpu", "a100", "")},
		{"traits.gpu", "at most 64", traits("gpu", many(65)...)},
		{"traits.gpu", "give at least one word", constraints{Traits: map[string]trait{"gpu": {Words: []string{}}}}},
		{"traits", "has 65 entries; at most 64", constraints{Traits: entries(65, func(int) trait { return trait{} })}},
		{"networks", "has 65 entries", constraints{Networks: make([][]string, 65)}},
		{"networks[1]", "name at least one network", constraints{Networks: [][]string{{"a"}, {}}}},
		{"networks[0]", "at most 32", constraints{Networks: [][]string{many(33)}}},
		{"networks[0]", "empty name", constraints{Networks: [][]string{{"a", ""}}}},
		{
			"platform.min", "20260114T101500Z",
			constraints{Platform: plimsoll.PlatformRange{Min: map[string]string{"": "2026-01-14"}}},
		},
		{
			"platform.max.7.0", "20260114T101500Z",
			constraints{Platform: plimsoll.PlatformRange{Max: map[string]string{"7.0": "20261314T101500Z"}}},
		},
		{
			"platform.max", `"7" is not a release`,
			constraints{Platform: plimsoll.PlatformRange{Max: map[string]string{"7": "20260114T101500Z"}}},
		},
		{
			"platform.min", "has 65 entries",
			constraints{Platform: plimsoll.PlatformRange{Min: entries(65, func(int) string { return "" })}},
		},
		{"volumesFrom", "has 33 entries", constraints{VolumesFrom: many(33)}},
		{"volumesFrom[0]", "job.group.index", constraints{VolumesFrom: []string{"db.0"}}},
		{"near", "has 65 entries", constraints{Near: make([]selector, 65)}},
		{"far[0]", "names 0 things", constraints{Far: []selector{{}}}},
		{"near[0]", "names 2 things", constraints{Near: []selector{{Job: "a", Label: "a=b"}}}},
		{"near[0].task", "job.group.index", constraints{Near: []selector{{Task: "db.main.01"}}}},
		{"near[0].task", "job.group.index", constraints{Near: []selector{{Task: "db.main.-1"}}}},
		{"near[0].task", "job.group.index", constraints{Near: []selector{{Task: "db.main.1000000"}}}},
		{"near[0].task", "job.group.index", constraints{Near: []selector{{Task: "d b.main.1"}}}},
		{"near[0].job", "not a possible id", constraints{Near: []selector{{Job: "a b"}}}},
		{"far[0].label", "key=value", constraints{Far: []selector{{Label: "app"}}}},
		{"far[0].label", "key=value", constraints{Far: []selector{{Label: "=db"}}}},
		{"spread", "has 9 entries", constraints{Spread: make([]spread, 9)}},
		{"spread[0].by", "empty name", constraints{Spread: []spread{{MaxSkew: 1}}}},
		{"spread[1].by", "stands in entry 0 already", constraints{Spread: []spread{{"rack", 1}, {"rack", 2}}}},
		{"spread[0].maxSkew", "give 1 or more", constraints{Spread: []spread{{By: "rack"}}}},
		{"spread[0].maxSkew", "is -1", constraints{Spread: []spread{{"rack", -1}}}},
		{"nodes", "has 257 entries", constraints{Nodes: many(257)}},
		{"nodes[0]", "gpu-*", constraints{Nodes: []string{"n[12]"}}},
		{"nodes[0]", "gpu-*", constraints{Nodes: []string{""}}},
		{"reservoir", "last, never, only", constraints{Reservoir: 3}},
		{"class.cpu", "above 0", constraints{Class: map[string]float64{"cpu": 0}}},
		{"class.cpu", "is NaN", constraints{Class: map[string]float64{"cpu": math.NaN()}}},
		{"class.cpu", "is +Inf", constraints{Class: map[string]float64{"cpu": math.Inf(1)}}},
		{"class.cpu", "is -4", constraints{Class: map[string]float64{"cpu": -4}}},
		{"class.cpu", "at most 1000", constraints{Class: map[string]float64{"cpu": 1000.5}}},
		{"class", "has 17 entries", constraints{Class: entries(17, func(int) float64 { return 1 })}},
		{"class", "resource name", constraints{Class: map[string]float64{"c p u": 1}}},
		{"where", "is 4097 bytes long", constraints{Where: strings.Repeat("x", 4097)}},
		{"where", "not UTF-8", constraints{Where: "\xff"}},
	} {
		job := constrained(test.c, preferences{})
		refused(t, job.Validate(), "groups[0].constraints."+test.field, test.msg)
	}
}

// A preference is checked like a constraint, but has no bound on the skew.
func TestPreferencesRefused(t *testing.T) {
	for _, test := range []struct {
		field, msg string
		p          preferences
	}{
		{"near[0]", "names 0 things", preferences{Near: []selector{{}}}},
		{"far", "has 65 entries", preferences{Far: make([]selector, 65)}},
		{"spread[0].maxSkew", "move it to constraints", preferences{Spread: []spread{{"rack", 1}}}},
		{"spread[1].by", "remove one", preferences{Spread: []spread{{By: "a"}, {By: "a"}}}},
		{"strategy", "fewest-of-owner", preferences{Strategy: 5}},
	} {
		job := constrained(constraints{}, test.p)
		refused(t, job.Validate(), "groups[0].preferences."+test.field, test.msg)
	}
}

// A node cannot report facts that placement could not use.
func TestFactsRefused(t *testing.T) {
	for _, test := range []struct {
		field, msg string
		f          facts
	}{
		{"traits", "has 65 entries", facts{Traits: entries(65, func(int) trait { return trait{} })}},
		{"traits.gpu", "empty name", facts{Traits: map[string]trait{"gpu": {Words: []string{""}}}}},
		{"networks", "has 257 entries", facts{Networks: entries(257, func(int) bool { return true })}},
		{"networks", "empty name", facts{Networks: map[string]bool{"": true}}},
		{"release", "at most 128 bytes", facts{Release: strings.Repeat("7", 129)}},
		{"platform", "20260114T101500Z", facts{Platform: "yesterday"}},
		{"reserve.memory", "is 1; give the part", facts{Reserve: map[string]float64{"memory": 1}}},
		{"reserve.memory", "is -0.1", facts{Reserve: map[string]float64{"memory": -0.1}}},
		{"reserve.memory", "is NaN", facts{Reserve: map[string]float64{"memory": math.NaN()}}},
		{"overprovision.cpu", "above 0", facts{Overprovision: map[string]float64{"cpu": 0}}},
		{"overprovision", "has 17 entries", facts{Overprovision: entries(17, func(int) float64 { return 1 })}},
		{"lastBoot", "negative", facts{LastBoot: -1}},
		{"nextReboot", "negative", facts{NextReboot: -1}},
	} {
		node := nodeWith(test.f)
		refused(t, node.Validate(), "facts."+test.field, test.msg)
		refused(t, test.f.Validate(""), test.field, test.msg)
	}
}

// The words of the job file are those that String prints.
func TestPlacementWordsAreRead(t *testing.T) {
	for use := plimsoll.ReservoirLast; use <= plimsoll.ReservoirOnly; use++ {
		if got, ok := plimsoll.ParseReservoirUse(use.String()); got != use || !ok {
			t.Errorf("%v is read as %v", use, got)
		}
	}
	for s := plimsoll.StrategyDefault; s <= plimsoll.StrategyRandom; s++ {
		if got, ok := plimsoll.ParseStrategy(s.String()); got != s || !ok {
			t.Errorf("%v is read as %v", s, got)
		}
	}
	if _, ok := plimsoll.ParseReservoirUse(""); ok {
		t.Error("no word is read as a use of reservoir nodes")
	}
	if _, ok := plimsoll.ParseStrategy("Pack"); ok {
		t.Error("an unknown word is read as a strategy")
	}
}

// A flag matches the same flag, words match when they share one, and a flag never matches a word
// (RFD 60, hard-filter-traits).
func TestTraitMatches(t *testing.T) {
	words := func(w ...string) trait { return trait{Words: w} }
	for _, test := range []struct {
		asked, node trait
		want        bool
	}{
		{trait{Flag: true}, trait{Flag: true}, true},
		{trait{}, trait{}, true},
		{trait{Flag: true}, trait{}, false},
		{trait{Flag: true}, words("true"), false},
		{words("a100"), words("a100"), true},
		{words("a100"), words("h100", "a100"), true},
		{words("a100", "h100"), words("h100"), true},
		{words("a100", "h100"), words("v100", "t4"), false},
		{words(), words("a"), false},
		{trait{Words: []string{}}, trait{}, false},
	} {
		if got := test.asked.Matches(test.node); got != test.want {
			t.Errorf("%v asked of %v: %v", test.asked, test.node, got)
		}
	}
}

// Facts are equal until one of them changes.
func TestFactsEqual(t *testing.T) {
	full := func() facts {
		return facts{
			Traits:   map[string]trait{"ssd": {Flag: true}, "gpu": {Words: []string{"a", "b"}}, "odd": {}},
			Networks: map[string]bool{"eth0": true},
			Reserve:  map[string]float64{"memory": 0.15}, Overprovision: map[string]float64{"cpu": 4},
		}
	}
	a, b := full(), full()
	if !a.Equal(&b) || !(&facts{}).Equal(&facts{Networks: map[string]bool{}}) {
		t.Error("the same facts are not equal")
	}
	for name, change := range map[string]func(*facts){
		"a flag":               func(f *facts) { f.Traits["ssd"] = trait{} },
		"a word":               func(f *facts) { f.Traits["gpu"] = trait{Words: []string{"a"}} },
		"a flag becomes words": func(f *facts) { f.Traits["odd"] = trait{Words: []string{}} },
		"no traits":            func(f *facts) { f.Traits = nil },
		"a network":            func(f *facts) { f.Networks["eth0"] = false },
		"the release":          func(f *facts) { f.Release = "7.0" },
		"the platform":         func(f *facts) { f.Platform = "20260114T101500Z" },
		"headnode":             func(f *facts) { f.Headnode = true },
		"reservoir":            func(f *facts) { f.Reservoir = true },
		"the reserve":          func(f *facts) { f.Reserve["memory"] = 0.2 },
		"the ratio":            func(f *facts) { f.Overprovision = map[string]float64{"memory": 4} },
		"the last boot":        func(f *facts) { f.LastBoot = 1 },
		"the next reboot":      func(f *facts) { f.NextReboot = 1 },
		"a metric":             func(f *facts) { f.Metrics = []string{"queue_length"} },
	} {
		changed := full()
		change(&changed)
		if a.Equal(&changed) {
			t.Errorf("%s has changed, and the facts are equal", name)
		}
	}
}

func constrained(c constraints, p preferences) plimsoll.JobSpec {
	return plimsoll.JobSpec{ID: "j", Queue: "root.default", Groups: []plimsoll.GroupSpec{
		{Name: "g", Count: 1, Command: []string{"true"}, Constraints: c, Preferences: p},
	}}
}

func nodeWith(f facts) plimsoll.Node {
	return plimsoll.Node{ID: "n1", Incarnation: 1, Mode: plimsoll.NodeActive, Facts: f}
}

func entries[V any](n int, value func(int) V) map[string]V {
	m := make(map[string]V, n)
	for i := range n {
		m[fmt.Sprint("name", i)] = value(i)
	}
	return m
}

func texts64(word func(int) string) []string {
	list := make([]string, 64)
	for i := range list {
		list[i] = word(i)
	}
	return list
}

func refused(t *testing.T, err error, field, msg string) {
	t.Helper()
	var e *plimsoll.Error
	if !errors.As(err, &e) || e.Code != plimsoll.CodeInvalid || e.Field != field || !strings.Contains(e.Msg, msg) {
		t.Errorf("got %v, want %s: … %s …", err, field, msg)
	}
}
