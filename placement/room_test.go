package placement_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// used returns a change that puts an instance of bob's on a server.
func used(r plimsoll.Resources) func(*placement.Server) {
	return func(s *placement.Server) {
		s.Instances = append(s.Instances, placement.Instance{Owner: "bob", Resources: r})
	}
}

// "hard-filter-min-ram", "-min-cpu" and "-min-disk", and min-custom for every other resource: the
// amounts asked for must be free, to the last unit. Other resources are not compared, even if they
// are overdrawn.
func TestRoom(t *testing.T) {
	gpu := func(n int64) func(*placement.Server) { return func(s *placement.Server) { s.Capacity["gpu"] = n } }
	f := fleetWith(
		plain("n0"), plain("n1", used(plimsoll.Resources{"cpu": 3000, "memory": gib})),
		plain("n2", used(plimsoll.Resources{"cpu": 9000})),
		plain("n3", gpu(2)), plain("n4", gpu(2), used(plimsoll.Resources{"gpu": 1})),
		plain("n5", gpu(1), used(plimsoll.Resources{"gpu": 3})),
	)
	all := []string{"n0", "n1", "n2", "n3", "n4", "n5"}
	for _, test := range []struct {
		stage string
		ask   plimsoll.Resources
		want  []string
	}{
		{"min-cpu", plimsoll.Resources{"cpu": 1000}, []string{"n0", "n1", "n3", "n4", "n5"}},
		{"min-cpu", plimsoll.Resources{"cpu": 1001}, []string{"n0", "n3", "n4", "n5"}},
		{"min-cpu", plimsoll.Resources{"cpu": 4001}, nil},
		{"min-cpu", plimsoll.Resources{"cpu": 0}, all},
		{"min-cpu", plimsoll.Resources{"memory": 1}, all},
		{"min-memory", plimsoll.Resources{"memory": 7*gib + 1}, []string{"n0", "n2", "n3", "n4", "n5"}},
		{"min-disk", plimsoll.Resources{"disk": 100*gib + 1}, nil},
		{"min-custom", plimsoll.Resources{"gpu": 1}, []string{"n3", "n4"}},
		{"min-custom", plimsoll.Resources{"gpu": 2}, []string{"n3"}},
		{"min-custom", plimsoll.Resources{"gpu": 0}, all},
		{"min-custom", plimsoll.Resources{"gpu": 1, "fpga": 1}, nil},
	} {
		r := &placement.Request{Owner: "alice", Resources: test.ask}
		if got := survivors(t, f, r, test.stage); !slices.Equal(got, test.want) {
			t.Errorf("%s %v: %v, want %v", test.stage, test.ask, got, test.want)
		}
	}
	got := reasons(t, f, &placement.Request{Resources: plimsoll.Resources{"gpu": 1, "fpga": 1}}, "min-custom")
	if got["n0"] != "not enough fpga" && got["n0"] != "not enough gpu" || len(got) != 6 {
		t.Errorf("%q", got)
	}
	off := func(s *placement.Settings) { s.NoRoom = true }
	for _, stage := range []string{"min-cpu", "min-memory", "min-disk", "min-custom"} {
		r := &placement.Request{
			Resources: plimsoll.Resources{"cpu": 1e6, "memory": 1 << 50, "disk": 1 << 50, "gpu": 1e6},
		}
		if got := survivors(t, f, r, stage, off); len(got) != 6 {
			t.Errorf("%s: %v stay, want all when room is not looked at", stage, got)
		}
	}
}

// The reserve is not available, and a ratio makes an amount available several times. A request for
// a class needs its part of an amount, or the amount in Needs if it has one.
func TestRatiosAndReserves(t *testing.T) {
	over := func(s *placement.Server) {
		s.Overprovision, s.Reserve = map[string]float64{"cpu": 2}, map[string]float64{"memory": 0.25}
	}
	f := fleetWith(plain("n0", over), plain("n1", over, used(plimsoll.Resources{"cpu": 4000, "memory": gib})))
	if cpu, memory := f.Free(1, placement.IndexCPU), f.Free(1, placement.IndexMemory); cpu != 2000 || memory != 5*gib {
		t.Errorf("%d of cpu and %d of memory are free, want 2000 and 5Gi", cpu, memory)
	}
	class := func(r *placement.Request) { r.Constraints.Class = map[string]float64{"cpu": 2} }
	needs := func(r *placement.Request) { r.Needs = plimsoll.Resources{"cpu": 3000} }
	for _, test := range []struct {
		r    *placement.Request
		want []string
	}{
		{asks(4000, class), []string{"n0", "n1"}},
		{asks(4001, class), []string{"n0"}},
		{asks(8000, class), []string{"n0"}},
		{asks(8001, class), nil},
		{asks(1, class, needs), []string{"n0"}},
		{asks(99_999, needs), []string{"n0"}},
	} {
		if got := survivors(t, f, test.r, "min-cpu"); !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, want %v", test.r.Resources, got, test.want)
		}
	}
	if got := survivors(
		t, f, &placement.Request{Resources: plimsoll.Resources{"memory": 6 * gib}}, "min-memory",
	); !slices.Equal(got, []string{"n0"}) {
		t.Errorf("%v has 6Gi", got)
	}
}

// "hard-filter-capness": instances with and without a bound on cpu stay apart.
// "hard-filter-vm-count": so many and no more.
func TestCapnessAndCount(t *testing.T) {
	f := fleetWith(plain("none"), plain("capped", used(plimsoll.Resources{"cpu": 1})), plain(
		"free", used(plimsoll.Resources{"memory": 1}),
	),
		plain("both", used(plimsoll.Resources{"cpu": 1}), used(nil)))
	on := func(s *placement.Settings) { s.Capness, s.MaxInstances = true, 2 }
	for _, test := range []struct {
		stage string
		milli int64
		want  []string
	}{
		{"capness", 100, []string{"none", "capped"}},
		{"capness", 0, []string{"none", "free"}},
		{"instance-count", 1, []string{"none", "capped", "free"}},
	} {
		if got := survivors(t, f, asks(test.milli), test.stage, on); !slices.Equal(got, test.want) {
			t.Errorf("%s %d: %v, want %v", test.stage, test.milli, got, test.want)
		}
		if got := survivors(t, f, asks(test.milli), test.stage); len(got) != 4 {
			t.Errorf("%s: %v stay, want all: it is off", test.stage, got)
		}
	}
	if got := reasons(t, f, asks(100), "capness", on); !maps.Equal(
		got,
		map[string]string{
			"free": "has instances without a bound on cpu", "both": "has instances without a bound on cpu",
		},
	) {
		t.Errorf("%q", got)
	}
	if got := reasons(t, f, asks(0), "instance-count", on); !maps.Equal(
		got, map[string]string{"both": "has 2 instances or more"},
	) {
		t.Errorf("%q", got)
	}
}

// A failed instance holds its Left amounts and nothing else.
func TestFailedInstancesHoldWhatTheyLeft(t *testing.T) {
	f := fleetWith(plain("n0", func(s *placement.Server) {
		s.Instances = []placement.Instance{
			{Failed: true, Resources: plimsoll.Resources{"cpu": 4000, "disk": 10}, Left: plimsoll.Resources{"disk": 7}},
		}
	}))
	if f.Free(0, placement.IndexCPU) != 4000 || f.Free(0, placement.IndexDisk) != 100*gib-7 {
		t.Errorf("%d of cpu and %d of disk are free", f.Free(0, placement.IndexCPU), f.Free(0, placement.IndexDisk))
	}
}

// "serverCapacity()": what is left on servers that have a capacity to tell of, and why the others
// have none.
func TestCapacities(t *testing.T) {
	f := fleetWith(plain("n0", used(plimsoll.Resources{"cpu": 5000})), plain(
		"n1", func(s *placement.Server) { s.Setup = false },
	),
		plain("n2", func(s *placement.Server) { s.Capacity["gpu"] = 2 }), plain("n3"))
	if err := f.AddTicket(placement.Ticket{ID: "t", Server: "n3"}); err != nil {
		t.Fatal(err)
	}
	c, err := placement.CapacityChain(placement.Stages())
	if err != nil {
		t.Fatal(err)
	}
	before := f.Dump()
	got, err := newPlacer(f, 1).Capacities(c, []int32{2, 0, 1, 3}, 0)
	if err != nil || len(got) != 4 {
		t.Fatalf("%v, %v", got, err)
	}
	if f.Dump() != before {
		t.Error("the fleet was changed")
	}
	if got[0].Server != "n2" ||
		!maps.Equal(got[0].Free, plimsoll.Resources{"cpu": 4000, "memory": 8 * gib, "disk": 100 * gib, "gpu": 2}) {
		t.Errorf("%+v", got[0])
	}
	if got[1].Free["cpu"] != -1000 || got[1].Instances != 1 || got[1].Whole["cpu"] != 4000 || len(got[1].Free) != 3 {
		t.Errorf("%+v", got[1])
	}
	if got[2].Why != "setup: not set up" || got[2].Free != nil ||
		got[3].Why != "calculate-tickets: an instance of unknown size is on its way to it" {
		t.Errorf("%+v, %+v", got[2], got[3])
	}
}

// A placement allocates nothing, for one batch and for every server, and for any request.
func TestPlaceDoesNotAllocate(t *testing.T) {
	f := fleetOf(1000, labelled("rack", "a", "b", "c"), func(i int, s *placement.Server) {
		s.Capacity["gpu"] = int64(i % 2)
		if i%3 == 0 {
			s.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
		}
		if i%4 == 0 {
			s.NextReboot, s.Platform = int64(i%8), "20260101T000000Z"
		}
	})
	kind := f.Kind(
		&placement.Instance{ID: "x", Owner: "alice", Job: "j", Group: "g", Labels: map[string]string{"app": "db"}},
	)
	for i := range int32(200) {
		f.Bind(i*7%1000, kind)
	}
	f.Loader.Instance = func(string) (string, string, error) { return "n3", "alice", nil }
	for name, r := range map[string]*placement.Request{
		"room": asks(1000), "none": asks(9000),
		"custom":    asks(1, func(r *placement.Request) { r.Resources["gpu"] = 1 }),
		"no custom": asks(1, func(r *placement.Request) { r.Resources["gpu"] = 7 }),
		"traits": asks(
			1, func(r *placement.Request) { r.Constraints.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}} },
		),
		"spread":      asks(1, spreadBy("rack", 1)),
		"spread node": asks(1, spreadBy("node", 1)),
		"near": asks(
			1, func(r *placement.Request) { r.Constraints.Near = []plimsoll.Selector{{Job: "j"}, {Label: "app=db"}} },
		),
		"far": asks(
			9000, func(r *placement.Request) { r.Constraints.Far = []plimsoll.Selector{{Task: "x"}, {Job: "j"}} },
		),
		"soft": asks(1, func(r *placement.Request) {
			r.Preferences.Near, r.Preferences.Spread = []plimsoll.Selector{{Job: "j"}}, []plimsoll.Spread{{By: "rack"}}
		}),
		"names": asks(1, func(r *placement.Request) { r.Constraints.Nodes = []string{"n99*"} }),
		"where": asks(1, func(r *placement.Request) { r.Constraints.Where = `node.labels.rack == "a"` }),
	} {
		pl, p := newPlacer(f, 1), prepare(t, placement.Default(), f, r)
		for range 100 { // once a class of servers the filters by record may
			pl.Place(p, 1)
		}
		if n := testing.AllocsPerRun(50, func() { pl.Place(p, 1) }); n != 0 {
			t.Errorf("%s: %v allocations for a placement", name, n)
		}
	}
	// A fleet that is full, and one that has gaps.
	for slot := range int32(1000) {
		if slot%5 == 0 {
			f.Remove(slot)
		} else {
			f.Bind(slot, f.Kind(&placement.Instance{Resources: plimsoll.Resources{"cpu": 4000}}))
		}
	}
	pl, p := newPlacer(f, 1), prepare(t, placement.Default(), f, asks(1))
	pl.Place(p, 1)
	if n := testing.AllocsPerRun(20, func() { pl.Place(p, 1) }); n != 0 {
		t.Errorf("%v allocations to say none", n)
	}
}

// However small the ratio is that a request names, what must be free for it is never less than
// nothing: a number that is too large to be counted counts as more than any server has.
func TestTinyRatiosAskForMuch(t *testing.T) {
	for _, ratio := range []float64{1e-3, 1e-4, 1e-300, math.SmallestNonzeroFloat64} {
		s := plain("n0")
		f := fleetWith(s)
		p := prepare(t, placement.Default(), f, asks(1, func(r *placement.Request) {
			r.Resources = plimsoll.Resources{"memory": plimsoll.MaxAmount}
			r.Constraints.Class = map[string]float64{"memory": ratio}
		}))
		if c := newPlacer(f, 1).Place(p, 0); c.Slot >= 0 {
			t.Errorf("ratio %v: %d bytes are placed on a server with %v", ratio, plimsoll.MaxAmount, s.Capacity)
		}
	}
}

// The amount left is negative on a server with a tiny ratio as soon as an instance runs there.
func TestTinyRatiosOfServers(t *testing.T) {
	for _, ratio := range []float64{1e-3, 1e-300, math.SmallestNonzeroFloat64} {
		s := plain("n0", func(s *placement.Server) {
			s.Overprovision = map[string]float64{"memory": ratio}
			s.Instances = []placement.Instance{{ID: "i", Resources: plimsoll.Resources{"memory": plimsoll.MaxAmount}}}
		})
		f := fleetWith(s)
		p := prepare(t, placement.Default(), f, asks(1, func(r *placement.Request) {
			r.Resources, r.AnyClass = plimsoll.Resources{"memory": plimsoll.MaxAmount}, true
		}))
		if n := f.Free(0, placement.IndexMemory); n >= 0 || n < -(1<<62) {
			t.Errorf("ratio %v: %d bytes are free", ratio, n)
		}
		if c := newPlacer(f, 1).Place(p, 0); c.Slot >= 0 {
			t.Errorf("ratio %v: placed", ratio)
		}
	}
}

// Instances that together hold more than can be counted make the record of their server unusable,
// not their server empty.
func TestInstancesThatCannotBeCounted(t *testing.T) {
	many := make([]placement.Instance, 1030)
	for i := range many {
		many[i] = placement.Instance{
			ID: fmt.Sprint("i", i), Resources: plimsoll.Resources{"memory": plimsoll.MaxAmount},
		}
	}
	for _, lazy := range []bool{false, true} {
		s := plain("n0")
		if !lazy {
			s.Instances = many
		}
		f := fleetWith(s)
		if lazy {
			f.Loader.Within = time.Second
			f.Loader.Instances = func(string) ([]placement.Instance, error) { return many, nil }
		}
		p := prepare(t, placement.Default(), f, asks(1))
		c, steps := newPlacer(f, 1).PlaceRecorded(p, 0)
		if c.Slot >= 0 {
			t.Errorf("lazy %t: placed on a server that holds 1,030 times the largest amount", lazy)
		}
		if text := fmt.Sprint(steps); !strings.Contains(text, "more than can be counted") {
			t.Errorf("lazy %t: the reason is not told: %s", lazy, text)
		}
	}
}

// Ratios that are the same as people write them, in hundredths, promise the same: nothing is
// promised that the server has not.
func TestRatiosThatAreWrittenAlikePromiseAlike(t *testing.T) {
	for _, ratios := range [][2]float64{{4, 4.004}, {3.996, 4}, {3.996, 4.004}, {4.004, 3.996}} {
		s := plain("n0", func(s *placement.Server) { s.Overprovision = map[string]float64{"memory": ratios[0]} })
		f := fleetWith(s)
		p := prepare(t, placement.Default(), f, asks(0, func(r *placement.Request) {
			r.Resources = plimsoll.Resources{"memory": gib / 7}
			r.Constraints.Class = map[string]float64{"memory": ratios[1]}
		}))
		kind := f.Kind(&placement.Instance{Owner: "alice", Resources: plimsoll.Resources{"memory": gib / 7}})
		pl, n := newPlacer(f, 1), 0
		for ; pl.Place(p, 0).Slot >= 0; n++ {
			f.Bind(0, kind)
		}
		if n != 8*7*4 || !f.Holds(0) {
			t.Errorf(
				"a server with %v takes %d instances with %v, want %d; it holds them: %t", ratios[0], n, ratios[1],
				8*7*4, f.Holds(0),
			)
		}
		empty := fleetWith(s)
		large := prepare(t, placement.Default(), empty, asks(0, func(r *placement.Request) {
			r.Resources = plimsoll.Resources{"memory": 8*4*gib + gib/100}
			r.Constraints.Class = map[string]float64{"memory": ratios[1]}
		}))
		if newPlacer(empty, 1).Place(large, 0).Slot >= 0 {
			t.Errorf("a server with %v takes more than four times what it has with %v", ratios[0], ratios[1])
		}
	}
}
