package placement_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Each filter by record, one sentence of RFD 60's list or one of ours a row: what is asked for,
// which servers of the fleet stay, and why the others do not.
func TestFiltersByRecord(t *testing.T) {
	type server = func(*placement.Server)
	flag := plimsoll.Trait{Flag: true}
	word := func(words ...string) plimsoll.Trait { return plimsoll.Trait{Words: words} }
	with := func(traits map[string]plimsoll.Trait) server { return func(s *placement.Server) { s.Traits = traits } }
	nets := func(networks map[string]bool) server { return func(s *placement.Server) { s.Networks = networks } }
	at := func(release, platform string) server {
		return func(s *placement.Server) { s.Release, s.Platform = release, platform }
	}
	over := func(ratios map[string]float64) server { return func(s *placement.Server) { s.Overprovision = ratios } }
	for _, test := range []struct {
		name    string
		stage   string
		servers []server
		ask     func(*placement.Request)
		want    map[string]string // why, of those that are dropped
	}{
		{
			"what is not set up", "setup",
			[]server{func(s *placement.Server) { s.Setup = false }, nil},
			nil,
			map[string]string{"a": "not set up"},
		},
		{
			"what does not run", "running", []server{
				func(s *placement.Server) { s.Status = "rebooting" }, func(s *placement.Server) { s.Status = "" },
				func(s *placement.Server) { s.Status = "Running" }, nil,
			}, nil, map[string]string{"a": "rebooting", "b": "not running: its status is not known", "c": "Running"},
		},
		{
			"gibberish", "invalid-servers", []server{
				func(s *placement.Server) { s.Capacity = plimsoll.Resources{"cpu": -1} },
				func(s *placement.Server) { s.Reserve = map[string]float64{"cpu": 1} },
				func(s *placement.Server) { s.Instances = []placement.Instance{{ID: "x", Modified: -1}} }, nil,
			}, nil, map[string]string{
				"a": "its record cannot be used: capacity.cpu: is negative (-1); give zero or more",
				"b": "its record cannot be used: reserve.cpu: is 1; give a part from 0 to below 1",
				"c": "its record cannot be used: instances.x.modified: is negative; give Unix seconds",
			},
		},
		{
			"what is reserved", "reserved",
			[]server{func(s *placement.Server) { s.Reserved = "draining" }, nil},
			nil,
			map[string]string{"a": "draining"},
		},
		{
			"a network that is up", "networks",
			[]server{
				nets(map[string]bool{"admin": true}), nets(map[string]bool{"admin": false}),
				nets(map[string]bool{}), nil,
			},
			func(r *placement.Request) { r.Constraints.Networks = [][]string{{"admin"}} },
			map[string]string{"b": "network admin is not up", "c": "has no network admin", "d": "has no networks"},
		},
		{
			"one network of each entry", "networks",
			[]server{
				nets(map[string]bool{"a": true, "b": true}), nets(map[string]bool{"a": true, "c": true}),
				nets(map[string]bool{"b": false, "c": true}),
			},
			func(r *placement.Request) { r.Constraints.Networks = [][]string{{"a", "b"}, {"c"}} },
			map[string]string{"a": "has no network c", "c": "network b is not up"},
		},
		{
			"an entry that nothing meets", "networks",
			[]server{nets(map[string]bool{"a": true})},
			func(r *placement.Request) { r.Constraints.Networks = [][]string{{}} },
			map[string]string{"a": "has no network "},
		},
		{
			"networks at all", "networks",
			[]server{nets(map[string]bool{}), nil},
			func(r *placement.Request) { r.Constraints.Networks = [][]string{} },
			map[string]string{"b": "has no networks"},
		},
		{
			"no traits", "traits",
			[]server{nil, with(map[string]plimsoll.Trait{}), with(map[string]plimsoll.Trait{"ssd": flag})},
			nil,
			map[string]string{"c": "has trait ssd, which is not asked for"},
		},
		{
			"a flag", "traits",
			[]server{
				with(map[string]plimsoll.Trait{"ssd": flag}), with(map[string]plimsoll.Trait{"ssd": {}}),
				with(map[string]plimsoll.Trait{"ssd": word("true")}), nil,
			},
			func(r *placement.Request) { r.Constraints.Traits = map[string]plimsoll.Trait{"ssd": flag} },
			map[string]string{
				"b": "has another value of trait ssd", "c": "has another value of trait ssd", "d": "lacks trait ssd",
			},
		},
		{
			"a word in common", "traits",
			[]server{
				with(map[string]plimsoll.Trait{"arch": word("arm", "x86")}),
				with(map[string]plimsoll.Trait{"arch": word("riscv")}),
				with(map[string]plimsoll.Trait{"arch": word("x86"), "ssd": flag}),
			},
			func(r *placement.Request) {
				r.Constraints.Traits = map[string]plimsoll.Trait{"arch": word("x86", "mips")}
			},
			map[string]string{"b": "has another value of trait arch", "c": "has trait ssd, which is not asked for"},
		},
		{
			"head nodes", "headnode",
			[]server{func(s *placement.Server) { s.Headnode = true }, nil},
			nil,
			map[string]string{"a": "is a head node"},
		},
		{
			"the same ratios", "overprovision-ratios",
			[]server{
				over(map[string]float64{"cpu": 4}), over(map[string]float64{"cpu": 4.004}),
				over(map[string]float64{"cpu": 4.01}), nil,
				over(map[string]float64{"cpu": 4, "memory": 2}),
			},
			func(r *placement.Request) { r.Constraints.Class = map[string]float64{"cpu": 4} },
			map[string]string{
				"c": "over-provisions cpu by 4.01, asked is 4.00",
				"d": "does not over-provision cpu, asked is 4.00",
				"e": "over-provisions memory by 2.00, which is not asked for",
			},
		},
		{
			"any ratios", "overprovision-ratios",
			[]server{over(map[string]float64{"cpu": 4}), nil},
			func(r *placement.Request) { r.AnyClass = true }, nil,
		},
		{
			"a platform", "platform-versions",
			[]server{
				at("7.0", "20260101T000000Z"), at("7.0", "20251231T235959Z"), at("7.1", "20200101T000000Z"),
				at("6.5", "20270101T000000Z"), nil,
			},
			func(r *placement.Request) {
				r.Constraints.Platform.Min = map[string]string{"7.0": "20260101T000000Z", "nonsense": "9"}
			},
			map[string]string{
				"b": "platform 20251231T235959Z is too old", "d": "platform 20270101T000000Z is too old",
				"e": "platform unknown is too old",
			},
		},
		{
			"a platform between two", "platform-versions",
			[]server{at("7.0", "2026"), at("7.5", "2000"), at("8.0", "2024"), at("9.0", "2000")},
			func(r *placement.Request) {
				r.Constraints.Platform.Min = map[string]string{"7.0": "2026", "8.0": "2025"}
				r.Platforms = []plimsoll.PlatformRange{{Max: map[string]string{"": "2026", "8.0": "2024"}}}
			},
			map[string]string{"c": "platform 2024 is too old", "d": "platform 2000 is too new"},
		},
		{
			"nodes by name", "names",
			[]server{nil, nil, nil},
			func(r *placement.Request) { r.Constraints.Nodes = []string{"b", "?x", "*c"} },
			map[string]string{"a": "not one of the nodes that are asked for"},
		},
		{
			"never a reservoir", "reservoir-use",
			[]server{func(s *placement.Server) { s.Reservoir = true }, nil},
			func(r *placement.Request) { r.Constraints.Reservoir = plimsoll.ReservoirNever },
			map[string]string{"a": "is a reservoir node"},
		},
		{
			"only a reservoir", "reservoir-use",
			[]server{func(s *placement.Server) { s.Reservoir = true }, nil},
			func(r *placement.Request) { r.Constraints.Reservoir = plimsoll.ReservoirOnly },
			map[string]string{"b": "is not a reservoir node"},
		},
		{
			"a where expression", "where",
			[]server{func(s *placement.Server) { s.Labels = map[string]string{"zone": "x"} }, nil},
			func(r *placement.Request) { r.Constraints.Where = `node.labels.zone == "x"` },
			map[string]string{"b": "the where expression is false"},
		},
	} {
		f := placement.NewFleet(placement.NewNames())
		var kept []string
		for i, change := range test.servers {
			s := plain(string(rune('a' + i)))
			if change != nil {
				change(&s)
			}
			f.Add(&s)
			if test.want[s.ID] == "" {
				kept = append(kept, s.ID)
			}
		}
		r := asks(0)
		if test.ask != nil {
			test.ask(r)
		}
		if got := reasons(t, f, r, test.stage); !maps.Equal(got, test.want) {
			t.Errorf("%s:\n%q, want\n%q", test.name, got, test.want)
		}
		if got := survivors(t, f, r, test.stage); !slices.Equal(got, kept) {
			t.Errorf("%s: %v stay, want %v", test.name, got, kept)
		}
	}
}

// Patterns of names are those of a shell without brackets, whatever their length.
func TestNamePatterns(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"n1", "n1", true},
		{"n1", "n11", false},
		{"n?", "n1", true},
		{"n?", "n", false},
		{"n?", "n11", false},
		{"*", "n1", true},
		{"n*1", "n1", true},
		{"n*1", "n2301", true},
		{"n*1*", "n2", false},
		{"**", "x", true},
		{"*a*b*c", "xxaxxbxxbc", true},
		{"*a*b*c", "xxaxxbxxcb", false},
		{"", "x", false},
		{"[n]", "n", false},
		{"[n]", "[n]", true},
		{"*********************b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
	} {
		f := fleetWith(plain(test.name))
		r := asks(1, func(r *placement.Request) { r.Constraints.Nodes = []string{test.pattern} })
		if got := len(survivors(t, f, r, "names")) == 1; got != test.want {
			t.Errorf("%q matches %q: %t, want %t", test.pattern, test.name, got, test.want)
		}
	}
}

// A reservoir server is used only when nothing else is left, unless the request says never or only.
func TestReservoirIsForWhenNothingElseIsLeft(t *testing.T) {
	f := fleetOf(4, func(i int, s *placement.Server) {
		s.Reservoir = i >= 2
		if i < 2 {
			s.Capacity["cpu"] = 2000
		}
	})
	for _, test := range []struct {
		use   plimsoll.ReservoirUse
		milli int64
		want  []int32
	}{
		{plimsoll.ReservoirLast, 1000, []int32{0, 1}},
		{plimsoll.ReservoirLast, 3000, []int32{2, 3}},
		{plimsoll.ReservoirLast, 5000, []int32{-1}},
		{plimsoll.ReservoirNever, 3000, []int32{-1}},
		{plimsoll.ReservoirOnly, 1000, []int32{2, 3}},
	} {
		ask := asks(test.milli, func(r *placement.Request) { r.Constraints.Reservoir = test.use })
		p := prepare(t, placement.Default(), f, ask)
		for seed := range uint64(20) {
			if slot := newPlacer(f, seed).Place(p, 0).Slot; !slices.Contains(test.want, slot) {
				t.Errorf("%v, %d: slot %d, want one of %v", test.use, test.milli, slot, test.want)
			}
		}
	}
}
