package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// seldom is true once in n times.
func seldom(t *rapid.T, n int) bool { return rapid.IntRange(1, n).Draw(t, "seldom") == n }

func oneOf[V any](t *rapid.T, values ...V) V { return rapid.SampledFrom(values).Draw(t, "one of") }

func drawTraits(t *rapid.T) map[string]plimsoll.Trait {
	return oneOf(
		t, nil, nil, nil,
		map[string]plimsoll.Trait{"ssd": {Flag: true}},
		map[string]plimsoll.Trait{"arch": {Words: []string{"arm", "x86"}}},
		map[string]plimsoll.Trait{"arch": {Words: []string{"x86"}}, "ssd": {Flag: true}},
		map[string]plimsoll.Trait{"ssd": {}},
	)
}

// drawServer draws a server of any kind, mostly an open one.
func drawServer(t *rapid.T, i int) placement.Server {
	s := placement.NewServer(fmt.Sprintf("n%d", i), plimsoll.Resources{
		"cpu": int64(rapid.IntRange(0, 4).Draw(t, "cpu")), "memory": int64(rapid.IntRange(0, 6).Draw(t, "memory")),
		"disk": 10,
	})
	if seldom(t, 3) {
		s.Capacity["gpu"] = int64(rapid.IntRange(0, 2).Draw(t, "gpu"))
	}
	s.Setup, s.Headnode, s.Reservoir = !seldom(t, 12), seldom(t, 12), seldom(t, 6)
	s.Status = oneOf(t, "running", "running", "running", "running", "unknown")
	s.Reserved = oneOf(t, "", "", "", "", "cordoned")
	if seldom(t, 12) {
		s.Capacity["memory"] = -1
	}
	if seldom(t, 3) {
		s.Traits = drawTraits(t)
	}
	s.Labels = map[string]string{"rack": oneOf(t, "r1", "r2", "r3")}
	if seldom(t, 8) {
		s.Labels = nil
	}
	s.Networks = oneOf(
		t, nil, map[string]bool{"admin": true}, map[string]bool{"admin": true, "public": true},
		map[string]bool{"admin": false},
	)
	s.Platform = oneOf(t, "", "20250101T000000Z", "20260101T000000Z", "20260102T030405Z")
	s.Release = oneOf(t, "7.0", "7.0", "6.5", "")
	s.Overprovision = oneOf(t, nil, nil, nil, map[string]float64{"cpu": 2})
	s.Reserve = oneOf(t, nil, nil, map[string]float64{"memory": 0.25})
	s.NextReboot = int64(oneOf(t, 0, 0, 1000, 5_000_000))
	for k := range rapid.IntRange(0, 3).Draw(t, "instances") {
		s.Instances = append(s.Instances, placement.Instance{
			ID: fmt.Sprintf("%s-%d", s.ID, k), Owner: oneOf(t, "alice", "bob"), Job: oneOf(t, "", "j", "k"),
			Group:     oneOf(t, "", "g"),
			Labels:    oneOf(t, nil, map[string]string{"app": "db"}),
			Resources: plimsoll.Resources{"cpu": int64(oneOf(t, 0, 1, 1)), "memory": int64(oneOf(t, 1, 2)), "disk": 1},
			Failed:    seldom(t, 5), Modified: int64(oneOf(t, 0, 90_000, 100_000)),
		})
	}
	return s
}

func drawServers(t *rapid.T) []placement.Server {
	servers := make([]placement.Server, rapid.IntRange(0, 70).Draw(t, "servers"))
	for i := range servers {
		servers[i] = drawServer(t, i)
	}
	return servers
}

func drawSelectors(t *rapid.T, rarity int) []plimsoll.Selector {
	if !seldom(t, rarity) {
		return nil
	}
	return []plimsoll.Selector{oneOf(t, plimsoll.Selector{
		Task: "n1-0",
	}, plimsoll.Selector{Job: "j"}, plimsoll.Selector{Job: "k"},
		plimsoll.Selector{Label: "app=db"}, plimsoll.Selector{Task: "nowhere"})}
}

func drawRequest(t *rapid.T) *placement.Request {
	r := &placement.Request{
		Owner: oneOf(t, "alice", "bob", "carol"), Job: "j", Group: "g", OwnOnly: seldom(t, 4), AnyClass: !seldom(t, 4),
		Resources: plimsoll.Resources{
			"cpu": int64(oneOf(t, 0, 1, 2, 9)), "memory": int64(rapid.IntRange(0, 4).Draw(t, "asked")),
		},
	}
	if seldom(t, 4) {
		r.Resources["gpu"] = 1
	}
	c, p := &r.Constraints, &r.Preferences
	if seldom(t, 3) {
		c.Traits = drawTraits(t)
	}
	if seldom(t, 5) {
		c.Networks = oneOf(t, [][]string{}, [][]string{{"admin"}}, [][]string{{"public", "admin"}})
	}
	if seldom(t, 6) {
		c.Platform.Min = oneOf(
			t, map[string]string{"": "20260101T000000Z"}, map[string]string{"7.0": "20260101T000000Z"},
		)
	}
	if seldom(t, 8) {
		c.VolumesFrom = oneOf(t, []string{"n0-0"}, []string{"n0-0", "n1-0"}, []string{"gone"})
	}
	if seldom(t, 8) {
		c.Nodes = oneOf(t, []string{"n1*"}, []string{"n?", "n33"})
	}
	if seldom(t, 8) {
		c.Where = oneOf(t, `node.labels.rack == "r1"`, `node.capacity.cpu > 2`, `node.id != "n3"`)
	}
	if !r.AnyClass {
		c.Class = oneOf(t, nil, map[string]float64{"cpu": 2})
	}
	c.Reservoir = oneOf(
		t, plimsoll.ReservoirLast, plimsoll.ReservoirLast, plimsoll.ReservoirNever, plimsoll.ReservoirOnly,
	)
	c.Near, c.Far, p.Near, p.Far = drawSelectors(t, 8), drawSelectors(t, 4), drawSelectors(t, 4), drawSelectors(t, 4)
	p.Strategy = oneOf(
		t, plimsoll.StrategyDefault, plimsoll.StrategyDefault, plimsoll.StrategyPack, plimsoll.StrategySpread,
		plimsoll.StrategyRandom,
	)
	return r
}

func drawSpread(t *rapid.T, r *placement.Request) {
	if seldom(t, 3) {
		r.Constraints.Spread = []plimsoll.Spread{{By: oneOf(t, "rack", "node"), MaxSkew: int32(oneOf(t, 1, 2))}}
	}
	if seldom(t, 3) {
		r.Preferences.Spread = []plimsoll.Spread{{By: oneOf(t, "rack", "node"), MaxSkew: 1}}
	}
}

func drawSettings(t *rapid.T) func(*placement.Settings) {
	weight := func() float64 { return oneOf(t, 0.0, 1, 2, -1, 0.5) }
	w := placement.Weights{
		UnreservedMemory: weight(), UnreservedDisk: weight(), UnreservedCustom: weight(), OwnerInstances: weight(),
		CurrentPlatform: weight(),
		NextReboot:      weight(), Random: weight(), Near: weight(), Spread: weight(),
	}
	batch, capness, heads, large, owners := oneOf(
		t, 0, 1, 7, 50,
	), seldom(t, 4), seldom(t, 2), seldom(t, 2), seldom(t, 2)
	most, rules := oneOf(t, 0, 0, 2), oneOf(t, nil, nil, map[string]string{"bob": `node.labels.rack == "r2"`})
	return func(s *placement.Settings) {
		s.Batch, s.Capness, s.Headnodes, s.LargeServers, s.OwnerSpread = batch, capness, heads, large, owners
		s.MaxInstances, s.OwnerRules, s.Weights = most, rules, w
	}
}

// booked returns a fleet of servers whose instances came with them.
func booked(servers []placement.Server) *placement.Fleet { return fleetWith(slices.Clone(servers)...) }

// bound returns the same fleet, with the instances bound one by one.
func bound(servers []placement.Server) *placement.Fleet {
	f := placement.NewFleet(placement.NewNames())
	where := map[string]*placement.Instance{}
	server := map[string]string{}
	for i := range servers {
		s := servers[i]
		s.Instances = nil
		slot := f.Add(&s)
		if s.Validate() != nil {
			continue
		}
		for k := range servers[i].Instances {
			in := &servers[i].Instances[k]
			f.Bind(slot, f.Kind(in))
			f.Outcome(slot, in.Modified, in.Failed)
			where[in.ID], server[in.ID] = in, s.ID
		}
	}
	f.Loader.Instance = func(id string) (string, string, error) {
		if in := where[id]; in != nil {
			return server[id], in.Owner, nil
		}
		return "", "", nil
	}
	return f
}

// lazy returns the same fleet, with instances that are loaded when they are needed: server by
// server, or a batch at once.
func lazy(servers []placement.Server, atOnce bool) *placement.Fleet {
	f := bound(servers)
	for slot := range int32(f.Len()) {
		s := servers[slot]
		s.Instances = nil
		f.Remove(slot)
		f.Put(slot, &s)
	}
	instances := func(id string) ([]placement.Instance, error) {
		for i := range servers {
			if servers[i].ID == id {
				return servers[i].Instances, nil
			}
		}
		return nil, fmt.Errorf("there is no server %s", id)
	}
	if !atOnce {
		f.Loader.Within = time.Second
		f.Loader.Instances = instances
		return f
	}
	f.Loader.Within = time.Second
	f.Loader.Batch = func(ids []string) []placement.Loaded {
		out := make([]placement.Loaded, len(ids))
		for i, id := range ids {
			out[i].Instances, out[i].Err = instances(id)
		}
		return out
	}
	return f
}

const testNow = 150_000 // Unix seconds; instances of drawServer were changed within a day before it

// "an allocation is still guaranteed to succeed if it's possible" (RFD 60, phase 3). Batches give a
// server if and only if a run of all filters over all servers leaves one. The chosen server passes
// every filter. The chain's filters that compare servers never drop the last one.
func TestPlaceAgreesWithTheEagerRun(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		f, r := booked(drawServers(t)), drawRequest(t)
		drawSpread(t, r)
		c := chainOf(t, placement.DefaultExpression(), drawSettings(t))
		p := prepare(t, c, f, r)
		before := f.Dump()
		pl := newPlacer(f, rapid.Uint64().Draw(t, "seed"))
		choice, x := pl.Place(p, testNow), pl.Explain(p, testNow)
		if after := f.Dump(); after != before {
			t.Fatalf("the fleet was changed from\n%s\nto\n%s", before, after)
		}
		if (choice.Slot >= 0) != (x.Fit > 0) {
			t.Fatalf("%+v, but %d of %d servers fit", choice, x.Fit, x.Servers)
		}
		if x.FitEmpty > x.Eligible || x.Eligible > x.Servers || x.Open > x.Servers ||
			x.Fit > min(x.Open, x.Eligible) || f.Servers() != x.Servers {
			t.Fatalf("%+v does not add up", x)
		}
		kept := 0
		for slot := range int32(f.Len()) {
			refused := slices.ContainsFunc(
				pl.ExplainServer(p, slot, testNow),
				func(v placement.Verdict) bool { return v.Why != "" && v.Kind != placement.NotBest },
			)
			if !refused {
				kept++
			} else if slot == choice.Slot {
				t.Fatalf("%s was chosen, but: %+v", f.ID(slot), pl.ExplainServer(p, slot, testNow))
			}
			if refused != !pl.Keeps(p, slot, testNow) && !f.Open(slot) {
				t.Fatalf("server %s: Keeps says %t", f.ID(slot), refused)
			}
		}
		if kept != x.Fit {
			t.Fatalf("Explain says that %d fit; asked one by one, %d do", x.Fit, kept)
		}
	})
}

// The counts of an explanation add up: a stage receives the servers that the one before it left.
// Every dropped server has a reason, and no filter drops more than it refuses.
func TestStepsAddUp(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		f, r := booked(drawServers(t)), drawRequest(t)
		drawSpread(t, r)
		x := newPlacer(f, 1).Explain(prepare(t, placement.Default(), f, r), testNow)
		got := x.Servers
		for _, step := range x.Steps {
			sum := 0
			for _, reason := range step.Reasons {
				sum += reason.Servers
				if reason.Text == "" || len(reason.Examples) != min(reason.Servers, 10) {
					t.Fatalf("%s: %+v", step.Stage, reason)
				}
			}
			if step.Dropped != sum || step.Remaining != step.Received-step.Dropped {
				t.Fatalf("%+v: the reasons are of %d servers", step, sum)
			}
			if step.Received > got || step.Kind != placement.NotBest && step.Dropped > step.Refused {
				t.Fatalf("%+v: %d were left by the stage before", step, got)
			}
			if step.Stage != "reservoir" { // its alternative gets the same servers again
				got = step.Remaining
			}
		}
	})
}

// "move from strict to lazy loading of container data" (RFD 60, phase 2) changes no choice. The
// same seed gives the same server and score for recorded, bound and loaded instances, with and
// without a recorder of the stages.
func TestLazyLoadingChangesNoChoice(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		servers, r := drawServers(t), drawRequest(t)
		c, seed := chainOf(t, placement.DefaultExpression(), drawSettings(t)), rapid.Uint64().Draw(t, "seed")
		var first placement.Choice
		var fit int
		for i, f := range []*placement.Fleet{
			booked(servers), bound(servers), lazy(servers, false), lazy(servers, true),
		} {
			p, before := prepare(t, c, f, r), f.Dump()
			choice := newPlacer(f, seed).Place(p, testNow)
			recorded, _ := newPlacer(f, seed).PlaceRecorded(p, testNow)
			x := newPlacer(f, seed).Explain(p, testNow)
			if recorded != choice {
				t.Fatalf("%d: %+v when the stages are noted, %+v when not", i, recorded, choice)
			}
			if after := f.Dump(); after != before {
				t.Fatalf("%d: the fleet was changed from\n%s\nto\n%s", i, before, after)
			}
			choice.Loads, choice.Peak = 0, 0
			if i == 0 {
				first, fit = choice, x.Fit
			}
			if choice != first {
				t.Fatalf("%d: %+v, and %+v of the fleet whose instances came with their servers", i, choice, first)
			}
			if x.Fit != fit {
				t.Fatalf(
					"%d: %d servers fit, and %d of the fleet whose instances came with their servers", i, x.Fit, fit,
				)
			}
		}
	})
}

// Scores only order: whatever the weights, the same servers survive, and the chosen one is among
// them.
func TestScoresOnlyOrder(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		f, r := booked(drawServers(t)), drawRequest(t)
		drawSpread(t, r)
		var first []string
		// of servers with equal memory the order of drawing says which count as large
		seed := rapid.Uint64().Draw(t, "seed")
		for i := range 3 {
			var left []string
			note := placement.Stage{Name: "note", Scores: true, Batch: func(b *placement.Batch, set []int32) []int32 {
				left = nil
				for _, at := range set {
					left = append(left, b.At(at).ID())
				}
				return set
			}}
			e := placement.DefaultExpression()
			e.List = append(e.List, placement.Named("note"))
			weights := drawSettings(t)
			c := chainWith(t, e, append(placement.Stages(), note), func(s *placement.Settings) {
				var w placement.Settings
				weights(&w)
				s.All, s.Weights = true, w.Weights
			})
			p := prepare(t, c, f, r)
			choice := newPlacer(f, seed).Place(p, testNow)
			slices.Sort(left)
			if i == 0 {
				first = left
			}
			if !slices.Equal(left, first) {
				t.Fatalf("%v survive, and %v with other weights", left, first)
			}
			if (choice.Slot >= 0) != (len(left) > 0) || choice.Slot >= 0 && !slices.Contains(left, f.ID(choice.Slot)) {
				t.Fatalf("%+v, but %v survive", choice, left)
			}
		}
	})
}

// A chain that does not ask whether servers are open places on closed ones too, and says so whether
// its stages are noted or not.
func TestChainThatDoesNotAskWhetherServersAreOpen(t *testing.T) {
	for _, test := range []struct {
		e    placement.Expression
		want int32
	}{
		{stagesNamed("setup", "running", "invalid-servers", "traits"), 2},
		{stagesNamed("headnode"), 0},
		{placement.Named("reserved"), 1},
		{placement.Or(placement.Named("reservoir"), placement.Named("identity")), 3},
	} {
		f := fleetWith(
			plain("a", func(s *placement.Server) { s.Setup = false }),
			plain("b", func(s *placement.Server) { s.Status = "unknown" }),
			plain("c", func(s *placement.Server) { s.Reserved = "cordoned" }),
			plain("d", func(s *placement.Server) { s.Fault = "gibberish" }),
		)
		for slot := range int32(4) {
			if slot != test.want {
				f.Remove(slot)
			}
		}
		p := prepare(t, chainOf(t, test.e), f, asks(1))
		pl := placement.NewPlacer(f, rand.NewPCG(1, 1))
		choice := pl.Place(p, 0)
		recorded, _ := pl.PlaceRecorded(p, 0)
		if choice.Slot != test.want || recorded.Slot != test.want || pl.Explain(p, 0).Fit != 1 ||
			!pl.Keeps(p, test.want, 0) {
			t.Errorf(
				"%s: %d, recorded %d, fit %d, keeps %t; want %d", test.e, choice.Slot, recorded.Slot,
				pl.Explain(p, 0).Fit, pl.Keeps(p, test.want, 0), test.want,
			)
		}
	}
}
