package placement_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// twoOfTen returns a fleet of ten racks of three servers. Those in the racks r3 and r7 are changed
// as wished, the others by without.
func twoOfTen(with, without func(*placement.Server)) *placement.Fleet {
	return fleetOf(30, labelled("rack", "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"),
		func(_ int, s *placement.Server) {
			if rack := s.Labels["rack"]; rack == "r3" || rack == "r7" {
				with(s)
			} else if without != nil {
				without(s)
			}
		})
}

// perRack places so many instances of a request, one after another, and counts them by rack.
func perRack(t *testing.T, f *placement.Fleet, r *placement.Request, count int) map[string]int {
	t.Helper()
	pl, p := newPlacer(f, 1), prepare(t, placement.Default(), f, r)
	kind := f.Kind(&placement.Instance{Owner: r.Owner, Job: r.Job, Group: r.Group, Resources: r.Resources})
	racks := map[string]int{}
	for range count {
		slot := pl.Place(p, 0).Slot
		if slot < 0 {
			x := pl.Explain(p, 0)
			t.Logf("after %v: %s", racks, x.Summary())
			break
		}
		f.Bind(slot, kind)
		record := f.Record(slot)
		racks[record.Labels["rack"]]++
	}
	return racks
}

// A spread counts a rack only if it has a server that the request's other constraints allow,
// whichever constraint that is: a hundred instances go evenly to the two racks of ten that can take
// them.
func TestSpreadCountsOnlyRacksThatOtherConstraintsAllow(t *testing.T) {
	nothing := func(*placement.Server) {}
	gpus := func(s *placement.Server) { s.Capacity["gpu"] = 100 }
	for _, test := range []struct {
		name          string
		with, without func(*placement.Server)
		ask           func(*placement.Request)
	}{
		{"a resource", gpus, nil, func(r *placement.Request) { r.Resources["gpu"] = 1 }},
		{
			"too small", nothing, func(s *placement.Server) { s.Capacity["cpu"] = 5 },
			func(r *placement.Request) { r.Resources["cpu"] = 10 },
		},
		{
			"traits", func(s *placement.Server) { s.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}} }, nil,
			func(r *placement.Request) { r.Constraints.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}} },
		},
		{
			"networks", func(s *placement.Server) { s.Networks = map[string]bool{"admin": true} }, nil,
			func(r *placement.Request) { r.Constraints.Networks = [][]string{{"admin"}} },
		},
		{
			"platform", func(s *placement.Server) { s.Platform = "20260102T000000Z" },
			func(s *placement.Server) { s.Platform = "20250102T000000Z" },
			func(r *placement.Request) { r.Constraints.Platform.Min = map[string]string{"": "20260101T000000Z"} },
		},
		{
			"where", nothing, nil,
			func(r *placement.Request) { r.Constraints.Where = `node.labels.rack in ["r3", "r7"]` },
		},
		{
			"where, server by server", nothing, nil, func(r *placement.Request) {
				r.Constraints.Where = `node.id in ["n3", "n7", "n13", "n27"]`
			},
		},
		{
			"nodes", nothing, nil,
			func(r *placement.Request) { r.Constraints.Nodes = []string{"n?3", "n3", "n?7", "n7"} },
		},
		{
			"reservoir", func(s *placement.Server) { s.Reservoir = true }, nil,
			func(r *placement.Request) { r.Constraints.Reservoir = plimsoll.ReservoirOnly },
		},
		{
			"class", func(s *placement.Server) { s.Overprovision = map[string]float64{"cpu": 2} }, nil,
			func(r *placement.Request) { r.Constraints.Class = map[string]float64{"cpu": 2} },
		},
		{"headnodes", nothing, func(s *placement.Server) { s.Headnode = true }, func(*placement.Request) {}},
		{"closed", nothing, func(s *placement.Server) { s.Reserved = "cordoned" }, func(*placement.Request) {}},
		{
			"near", func(s *placement.Server) { s.Instances = []placement.Instance{{Job: "data", Owner: "bob"}} }, nil,
			func(r *placement.Request) { r.Constraints.Near = []plimsoll.Selector{{Job: "data"}} },
		},
		{
			"far", nothing,
			func(s *placement.Server) { s.Instances = []placement.Instance{{Job: "loud", Owner: "bob"}} },
			func(r *placement.Request) { r.Constraints.Far = []plimsoll.Selector{{Job: "loud"}} },
		},
		{
			"exclusions", nothing, nil, func(r *placement.Request) {
				for i := range 30 {
					if i%10 != 3 && i%10 != 7 {
						r.Except = append(r.Except, placement.Exclusion{Server: fmt.Sprint("n", i), Why: "evicted"})
					}
				}
			},
		},
	} {
		for _, by := range []string{"rack", placement.SpreadByNode} {
			r := asks(1, test.ask, spreadBy(by, 1))
			if by == placement.SpreadByNode {
				r.Constraints.Spread = append(r.Constraints.Spread, plimsoll.Spread{By: "rack", MaxSkew: 2})
			}
			if got := perRack(t, twoOfTen(test.with, test.without), r, 100); got["r3"] != 50 || got["r7"] != 50 {
				t.Errorf("%s, by %s: %v, want 50 in each of r3 and r7", test.name, by, got)
			}
		}
	}
}

// Volumes are on one server, so only its rack counts: as many come as have room.
func TestSpreadCountsTheRackOfVolumes(t *testing.T) {
	f := twoOfTen(func(s *placement.Server) {
		if s.ID == "n13" {
			s.Instances = []placement.Instance{{ID: "db", Owner: "alice"}}
		}
	}, nil)
	r := asks(1, spreadBy("rack", 1), func(r *placement.Request) { r.Constraints.VolumesFrom = []string{"db"} })
	if got := perRack(t, f, r, 100); got["r3"] != 100 {
		t.Errorf("%v, want 100 beside the volumes in r3", got)
	}
}

// A group of three does not wait for racks that could never take one of it.
func TestThreeOfAGroupFindTwoRacks(t *testing.T) {
	f := twoOfTen(func(s *placement.Server) { s.Capacity["gpu"] = 1 }, nil)
	r := asks(1, spreadBy("rack", 1), func(r *placement.Request) { r.Resources["gpu"] = 1 })
	got := perRack(t, f, r, 3)
	if got["r3"]+got["r7"] != 3 || got["r3"] == 0 || got["r7"] == 0 {
		t.Errorf("%v, want three in r3 and r7", got)
	}
}

// A rack whose servers are full is waited for: its servers are for the request, and have room once
// something ends.
func TestSpreadCountsFullRacks(t *testing.T) {
	f := twoOfTen(func(s *placement.Server) { s.Capacity["gpu"] = 1 }, nil)
	full := f.Kind(&placement.Instance{Owner: "bob", Resources: plimsoll.Resources{"gpu": 1}})
	for _, slot := range []int32{3, 13, 23} {
		f.Bind(slot, full)
	}
	r := asks(1, spreadBy("rack", 1), func(r *placement.Request) { r.Resources["gpu"] = 1 })
	if got := perRack(t, f, r, 3); got["r7"] != 1 || got["r3"] != 0 {
		t.Errorf("%v, want one in r7, and the others waiting for r3", got)
	}
}

// Explain says which values are compared, which one has the fewest, and which are left out.
func TestExplainSaysWhichValuesASpreadCounts(t *testing.T) {
	f := twoOfTen(func(s *placement.Server) { s.Capacity["gpu"] = 1 }, nil)
	r := asks(1, spreadBy("rack", 1), func(r *placement.Request) { r.Resources["gpu"] = 1 })
	f.Bind(7, member(f))
	full := f.Kind(&placement.Instance{Owner: "bob", Resources: plimsoll.Resources{"gpu": 1}})
	for _, slot := range []int32{3, 13, 23} {
		f.Bind(slot, full)
	}
	x := newPlacer(f, 1).Explain(prepare(t, placement.Default(), f, r), 0)
	want := placement.SpreadCount{
		By: "rack", MaxSkew: 1, Values: 10, Counted: 2, Fewest: 0, FewestIn: "r3",
		Uncounted: []string{"r0", "r1", "r2", "r4", "r5", "r6", "r8", "r9"},
	}
	if len(x.Spreads) != 1 || fmt.Sprint(x.Spreads[0]) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", x.Spreads, want)
	}
	sentence := "3 of 30 nodes: too many of the group in its rack: rack r3 has the fewest, 0; " +
		"spread by rack: r3 has the fewest, 0, of 2 that count; 8 others have no node that the other constraints allow"
	if got := x.Summary(); !strings.HasSuffix(got, sentence) {
		t.Errorf("%s\nwant at its end\n%s", got, sentence)
	}
}

// The instances that a request must be far from move, and with them the racks that count. The
// number of other moves since the last look does not matter.
func TestSpreadFollowsWhatIsNearAndFar(t *testing.T) {
	for _, others := range []int{0, 10, 3000} {
		f := fleetOf(2, labelled("rack", "a", "b"))
		kind, loud := member(f), f.Kind(&placement.Instance{Job: "loud"})
		other := f.Kind(&placement.Instance{Job: "other"})
		r := asks(1, spreadBy("rack", 1), func(r *placement.Request) {
			r.Constraints.Far = []plimsoll.Selector{{Job: "loud"}}
		})
		p, pl := prepare(t, placement.Default(), f, r), newPlacer(f, 1)
		f.Bind(0, kind)
		step := func(what string, want bool, do func()) {
			distant := p.Distant()
			do()
			for range others {
				f.Bind(1, other)
				f.Unbind(1, other)
			}
			if got := pl.Keeps(p, 0, 0); got != want {
				t.Errorf("%s: rack a takes one more: %t, want %t", what, got, want)
			}
			if p.Distant() == distant {
				t.Errorf("%s: Distant stays, and nobody who waits looks again", what)
			}
		}
		step("rack b is empty", false, func() { f.Bind(0, kind); f.Unbind(0, kind) })
		step("what it is far from comes to rack b", true, func() { f.Bind(1, loud) })
		step("and goes", false, func() { f.Unbind(1, loud) })
	}
}

// spreadReference finds by brute force the servers that a spread keeps. A server stays if its value
// would have at most maxSkew more instances than the least value. A value is compared if it has a
// server that is open, passes the other filters on records, and would have room if empty.
type spreadReference struct {
	fleet  *placement.Fleet
	placer *placement.Placer
	p      *placement.Prepared
}

// eligibility are the filters that say whether a server is for a request.
var eligibility = []string{
	"setup", "running", "invalid-servers", "volumes-from", "reserved", "networks", "platform-versions", "traits",
	"headnode",
	"overprovision-ratios", "names", "reservoir-use", "where", "locality", "owners-servers",
}

func (x *spreadReference) allows(slot int32) bool {
	for _, v := range x.placer.ExplainServer(x.p, slot, testNow) {
		if v.Why != "" && slices.Contains(eligibility, v.Stage) {
			return false
		}
	}
	record, r := x.fleet.Record(slot), &x.p.Request
	for name, n := range r.Resources {
		need := float64(n)
		if ratio := r.Constraints.Class[name]; ratio > 0 {
			need = math.Ceil(need / ratio)
		}
		if n > 0 && math.Floor(float64(record.Capacity[name])*(1-record.Reserve[name])) < need {
			return false
		}
	}
	return true
}

// refused returns the servers that the i-th spread refuses.
func (x *spreadReference) refused(i int, members map[string]int) map[string]bool {
	spread := x.p.Request.Constraints.Spread[i]
	value := func(slot int32) (string, bool) {
		if spread.By == placement.SpreadByNode {
			return x.fleet.ID(slot), true
		}
		record := x.fleet.Record(slot)
		v, ok := record.Labels[spread.By]
		return v, ok
	}
	counts, least := map[string]int{}, math.MaxInt
	for slot := range int32(x.fleet.Len()) {
		if v, ok := value(slot); ok {
			counts[v] += members[x.fleet.ID(slot)]
		}
	}
	for slot := range int32(x.fleet.Len()) {
		if v, ok := value(slot); ok && x.allows(slot) {
			least = min(least, counts[v])
		}
	}
	if least == math.MaxInt {
		least = 0
	}
	out := map[string]bool{}
	for slot := range int32(x.fleet.Len()) {
		if v, ok := value(slot); !ok || counts[v]+1-least > int(spread.MaxSkew) {
			out[x.fleet.ID(slot)] = true
		}
	}
	return out
}

// The filter spread agrees with the brute-force reference for any fleet, request and settings.
// Meanwhile instances come and go, and servers close and get other records.
func TestSpreadAgreesWithBruteForce(t *testing.T) {
	counted := 0
	testrun.Check(t, func(t *rapid.T) {
		servers, r := drawServers(t), drawRequest(t)
		if len(servers) == 0 {
			return
		}
		f := booked(servers)
		r.Constraints.Spread = []plimsoll.Spread{{By: oneOf(t, "rack", "node"), MaxSkew: int32(oneOf(t, 1, 2))}}
		p := prepare(t, chainOf(t, placement.DefaultExpression(), drawSettings(t)), f, r)
		x := &spreadReference{f, newPlacer(f, 1), p}
		members := map[string]int{}
		for i := range servers {
			for _, in := range servers[i].Instances {
				if in.Job == "j" && in.Group == "g" && f.Record(int32(i)).Fault == "" {
					members[servers[i].ID]++
				}
			}
		}
		kinds := []*placement.Kind{
			f.Kind(&placement.Instance{Job: "j", Group: "g"}), f.Kind(&placement.Instance{Job: "k", Owner: "bob"}),
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "moves"), 1))
		for range 6 {
			refused := x.refused(0, members)
			counted += len(refused)
			for slot := range int32(f.Len()) {
				for _, v := range x.placer.ExplainServer(p, slot, testNow) {
					if v.Stage == "spread" && (v.Why != "") != refused[f.ID(slot)] {
						t.Fatalf("%s: %q, want refused %t; %+v", f.ID(slot), v.Why, refused[f.ID(slot)], p.Request)
					}
				}
			}
			for range 3 {
				slot := rng.Int32N(int32(f.Len()))
				switch record := f.Record(slot); rng.IntN(4) {
				case 0:
					f.Bind(slot, kinds[0])
					members[f.ID(slot)]++
				case 1:
					f.Bind(slot, kinds[1])
				case 2:
					record.Reserved, record.Instances = "cordoned", servers[slot].Instances
					f.Put(slot, &record)
				default:
					record.Labels = maps.Clone(record.Labels)
					if record.Labels != nil {
						record.Labels["rack"] = fmt.Sprint("r", rng.IntN(5))
					}
					record.Instances = servers[slot].Instances
					f.Put(slot, &record)
				}
			}
		}
	})
	if counted == 0 {
		t.Error("no spread refused anything: the test tests little")
	}
}

// The record of a decision has the counts that its spreads compared. A replay has only the servers
// of the last batch, and so compares the same counts. A record without Fewest compares all its
// counts.
func TestReplayComparesWhatTheDecisionCompared(t *testing.T) {
	f := twoOfTen(func(s *placement.Server) { s.Capacity["gpu"] = 9 }, nil)
	kind := f.Kind(&placement.Instance{Owner: "alice", Job: "j", Group: "g"})
	for _, slot := range []int32{3, 3, 7, 7, 7} {
		f.Bind(slot, kind)
	}
	r := asks(1, spreadBy("rack", 1), func(r *placement.Request) { r.Resources["gpu"] = 1 })
	pl, kept := newPlacer(f, 1), placement.NewDecisions(1)
	if c := pl.Place(prepare(t, placement.Default(), f, r), 0); c.Slot < 0 {
		t.Fatal("nothing was chosen")
	}
	pl.Note(kept, "t")
	d, _ := kept.Last("t")
	record := d.Record()
	if !slices.Equal(record.Fewest, []int32{2}) {
		t.Fatalf("the fewest were %v, want the 2 of r3", record.Fewest)
	}
	replay := func() string {
		again, err := record.Replay(nil)
		if err != nil {
			t.Fatal(err)
		}
		return again.Server
	}
	if got := replay(); got != d.Server {
		t.Errorf("replayed: %q, decided: %q", got, d.Server)
	}
	record.Fewest, record.Spreads[0]["r1"] = nil, 0
	if got := replay(); got != "" {
		t.Errorf("%q, and r1 has none of the group", got)
	}
}
