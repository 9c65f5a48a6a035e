package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

const (
	cpu    = placement.IndexCPU
	memory = placement.IndexMemory
)

// fleet returns n empty servers of 4 cores and 8Gi, ready and active.
func fleet(n int) []placement.Server {
	servers := make([]placement.Server, n)
	for i := range servers {
		servers[i] = placement.Server{ID: fmt.Sprintf("n%d", i), Present: true, Ready: true, Mode: plimsoll.NodeActive}
		servers[i].Capacity[cpu], servers[i].Capacity[memory] = 4000, 8<<30
	}
	return servers
}

func cores(milli int64) *placement.Request {
	var a placement.Amounts
	a[cpu] = milli
	return placement.NewRequest(a)
}

func draw(seed uint64) *placement.Draw { return placement.NewDraw(rand.NewPCG(seed, seed)) }

// watched returns the default chain and the servers that its first filter was asked about, in order.
func watched() (*placement.Chain, *[]string) {
	c, seen := placement.Default(), &[]string{}
	keep := c.Stages[0].Keep
	c.Stages[0].Keep = func(r *placement.Request, s *placement.Server) bool {
		*seen = append(*seen, s.ID)
		return keep(r, s)
	}
	return c, seen
}

// "we'll go with a batch size of fifty servers" and "an allocation in batches … only one batch" (RFD 60, phase 3).
func TestOneBatchOfFiftyOfAFleetWithRoom(t *testing.T) {
	c, seen := watched()
	if slot := c.Place(cores(1000), fleet(1000), draw(1)); slot < 0 {
		t.Fatal("no server was chosen, all have room")
	}
	if len(*seen) != 50 {
		t.Fatalf("%d servers were looked at, want 50", len(*seen))
	}
}

// "cnapi would retrieve all eligible servers, sort them randomly, and then feed batches" (RFD 60, phase 3): no server is
// looked at twice, and the order is not that of the list.
func TestBatchesAreDrawnInRandomOrder(t *testing.T) {
	c, seen := watched()
	if slot := c.Place(cores(9000), fleet(200), draw(1)); slot != -1 {
		t.Fatalf("slot %d was chosen, but none has room", slot)
	}
	inOrder := slices.Clone(*seen)
	slices.Sort(inOrder)
	if len(slices.Compact(inOrder)) != 200 {
		t.Fatalf("%d different servers were looked at, want each of 200", len(slices.Compact(inOrder)))
	}
	rising := 0
	for i := 1; i < len(*seen); i++ {
		if (*seen)[i] > (*seen)[i-1] {
			rising++
		}
	}
	if rising < 60 || rising > 140 {
		t.Fatalf("%d of 199 steps rise: that is not a random order", rising)
	}
}

// "Each batch would be loaded and fed into dapi until dapi finds an eligible server" (RFD 60, phase 3).
func TestStopsAtTheFirstBatchWithASurvivor(t *testing.T) {
	// The order of drawing follows from the seed, so the first run tells where each server stands in it.
	c, order := watched()
	c.Place(cores(9000), fleet(200), draw(7))
	for _, test := range []struct{ survivor, looked int }{{0, 50}, {49, 50}, {50, 100}, {120, 150}, {199, 200}} {
		servers := fleet(200)
		for i := range servers {
			servers[i].Ready = servers[i].ID == (*order)[test.survivor]
		}
		again, seen := watched()
		slot := again.Place(cores(1000), servers, draw(7))
		if slot < 0 || servers[slot].ID != (*order)[test.survivor] {
			t.Fatalf("slot %d, want the survivor %s", slot, (*order)[test.survivor])
		}
		if len(*seen) != test.looked {
			t.Errorf("the survivor is number %d: %d servers were looked at, want %d", test.survivor, len(*seen), test.looked)
		}
	}
}

// "an allocation is still guaranteed to succeed if it's possible, since all servers will be checked in the worst case" (RFD 60,
// phase 3): the answer "none" comes only after all.
func TestNoneOnlyAfterAll(t *testing.T) {
	for _, n := range []int{0, 1, 49, 50, 51, 175} {
		c, seen := watched()
		if slot := c.Place(cores(9000), fleet(n), draw(3)); slot != -1 || len(*seen) != n {
			t.Errorf("%d servers: slot %d after %d of them", n, slot, len(*seen))
		}
	}
}

// Of the survivors of a batch the highest score wins: the fullest server that still has room.
func TestHighestScoreOfTheBatchWins(t *testing.T) {
	servers := fleet(50)
	servers[17].Used[memory] = 6 << 30
	servers[31].Used[memory], servers[31].Used[cpu] = 7<<30, 3500 // fuller, but without room
	if slot := placement.Default().Place(cores(1000), servers, draw(1)); slot != 17 {
		t.Fatalf("slot %d, want 17", slot)
	}
}

// The same seed gives the same choices, another seed others.
func TestSameSeedSameChoice(t *testing.T) {
	run := func(seed uint64) (slots []int) {
		servers, d := fleet(500), draw(seed)
		for range 200 {
			slot := placement.Default().Place(cores(500), servers, d)
			servers[slot].Used[cpu] += 500
			slots = append(slots, slot)
		}
		return slots
	}
	if !slices.Equal(run(5), run(5)) {
		t.Error("two runs with one seed differ")
	}
	if slices.Equal(run(5), run(6)) {
		t.Error("another seed makes no difference")
	}
}

// Every server of an even fleet can be chosen, about equally often: 300 servers, 30,000 choices, so each is expected a hundred times
// with a standard deviation of ten.
func TestEveryServerCanBeChosen(t *testing.T) {
	servers, d, c := fleet(300), draw(11), placement.Default()
	counts := make([]int, len(servers))
	r := cores(1000)
	for range 30_000 {
		counts[c.Place(r, servers, d)]++
	}
	if low, high := slices.Min(counts), slices.Max(counts); low < 55 || high > 150 {
		t.Fatalf("a server was chosen %d times and another %d times, expected about 100", low, high)
	}
}

// A fleet that grows and one that has gaps are drawn from whole.
func TestFleetThatGrowsAndHasGaps(t *testing.T) {
	servers, d, c := fleet(10), draw(1), placement.Default()
	c.Place(cores(1), servers, d)
	servers = fleet(130)
	for i := range servers {
		servers[i].Present = i == 129
	}
	if slot := c.Place(cores(1), servers, d); slot != 129 {
		t.Fatalf("slot %d, want the only one that is there", slot)
	}
	if slot := c.Place(cores(1), servers[:100], d); slot != -1 {
		t.Fatalf("slot %d of a fleet without servers", slot)
	}
}

// The zero values of a chain are usable.
func TestChainWithoutBatchAndScore(t *testing.T) {
	if slot := (&placement.Chain{}).Place(cores(1), fleet(3), draw(1)); slot < 0 {
		t.Fatal("a chain that filters nothing chose nothing")
	}
}

// Explain counts every server once, where the chain drops it.
func TestExplainCounts(t *testing.T) {
	servers := fleet(12)
	servers[0].Ready = false
	servers[1].Mode, servers[2].Mode, servers[3].Mode = plimsoll.NodeCordoned, plimsoll.NodeDraining, plimsoll.NodeDraining
	servers[4].Used[cpu] = 3500
	servers[5].Used[memory] = 8 << 30
	servers[6].Capacity[cpu] = 500
	servers[11].Present = false
	var a placement.Amounts
	a[cpu], a[memory] = 1000, 1<<30
	x := placement.Default().Explain(placement.NewRequest(a), servers, placement.NewNames())
	if x.Servers != 11 || x.Eligible != 7 || x.FitEmpty != 10 || x.Fit != 4 {
		t.Errorf("servers %d, eligible %d, would fit if empty %d, fit %d; want 11, 7, 10, 4", x.Servers, x.Eligible, x.FitEmpty, x.Fit)
	}
	remaining := x.Servers
	for _, step := range x.Steps {
		sum := 0
		for _, reason := range step.Reasons {
			sum += reason.Servers
		}
		if step.Dropped != sum || step.Remaining != remaining-step.Dropped {
			t.Errorf("%s: %d dropped for reasons of %d, %d remain of %d", step.Stage, step.Dropped, sum, step.Remaining, remaining)
		}
		remaining = step.Remaining
	}
	want := "1 of 11 nodes: not heard from; 2 of 11 nodes: draining; 1 of 11 nodes: cordoned; 2 of 11 nodes: not enough cpu; 1 of 11 nodes: not enough memory"
	if got := x.Summary(); got != want {
		t.Errorf("summary\n%s, want\n%s", got, want)
	}
}

// A reason names at most ten servers, in the fleet's order.
func TestExplainNamesTenServers(t *testing.T) {
	x := placement.Default().Explain(cores(9000), fleet(30), placement.NewNames())
	for _, step := range x.Steps {
		for _, reason := range step.Reasons {
			if len(reason.Examples) != 10 || reason.Examples[9] != "n9" || reason.Servers != 30 {
				t.Errorf("%+v", reason)
			}
		}
	}
}

// Place returns a server if and only if a run of every filter over every server keeps one; that server passes every filter, and the
// fleet is not changed.
func TestPlaceAgreesWithTheEagerRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		servers := rapid.SliceOfN(rapid.Custom(server), 0, 160).Draw(t, "servers")
		var a placement.Amounts
		for i := range 5 {
			a[i] = rapid.Int64Range(0, 12).Draw(t, "asked")
		}
		r, c := placement.NewRequest(a), placement.Default()
		before := slices.Clone(servers)
		slot := c.Place(r, servers, draw(rapid.Uint64().Draw(t, "seed")))
		if !slices.Equal(before, servers) {
			t.Fatal("the fleet was changed")
		}
		kept := 0
		for i := range servers {
			if servers[i].Present && c.Keeps(r, &servers[i]) {
				kept++
			}
		}
		names := placement.NewNames()
		names.Amounts(plimsoll.Resources{"x/a": 1, "x/b": 1})
		if x := c.Explain(r, servers, names); x.Fit != kept {
			t.Fatalf("Explain says that %d fit, %d do", x.Fit, kept)
		}
		if (slot >= 0) != (kept > 0) {
			t.Fatalf("slot %d, but %d servers pass", slot, kept)
		}
		if slot >= 0 && (!servers[slot].Present || !c.Keeps(r, &servers[slot])) {
			t.Fatalf("the chosen server %d does not pass", slot)
		}
	})
}

func server(t *rapid.T) placement.Server {
	s := placement.Server{
		Present: rapid.IntRange(0, 9).Draw(t, "present") > 0, Ready: rapid.IntRange(0, 3).Draw(t, "ready") > 0,
		Mode: plimsoll.NodeMode(rapid.IntRange(1, 3).Draw(t, "mode")),
	}
	for i := range 5 {
		s.Capacity[i] = rapid.Int64Range(0, 12).Draw(t, "capacity")
		s.Used[i] = rapid.Int64Range(0, 12).Draw(t, "used") // also more than the capacity, which may have shrunk
	}
	return s
}

// A placement allocates nothing, whether it looks at one batch or at every server.
func TestPlaceDoesNotAllocate(t *testing.T) {
	servers, d, c := fleet(1000), draw(1), placement.Default()
	var a placement.Amounts
	a[cpu], a[memory], a[4] = 1000, 1<<30, 1 // a custom resource that no server has
	for _, r := range []*placement.Request{cores(1000), cores(9000), placement.NewRequest(a)} {
		c.Place(r, servers, d)
		if n := testing.AllocsPerRun(100, func() { c.Place(r, servers, d) }); n != 0 {
			t.Errorf("%v: %v allocations for a placement", r.Amounts, n)
		}
	}
}

// Names are interned in the order in which they come, the usual ones first, and refused beyond the maximum.
func TestNames(t *testing.T) {
	n := placement.NewNames()
	a, set := n.Amounts(plimsoll.Resources{"nvidia.com/gpu": 2, "memory": 0, "cpu": 5})
	if a[cpu] != 5 || a[3] != 2 || set != 1<<cpu|1<<memory|1<<3 || n.Name(3) != "nvidia.com/gpu" || n.Index("nvidia.com/gpu") != 3 {
		t.Fatalf("amounts %v, set %b", a, set)
	}
	if r := n.Resources(&a); len(r) != 2 {
		t.Errorf("%v: amounts of zero are left out", r)
	}
	if r := n.Masked(&a, set); len(r) != 3 || r["memory"] != 0 {
		t.Errorf("%v: amounts of zero in the mask are not left out", r)
	}
	many := plimsoll.Resources{}
	for i := range plimsoll.MaxResourceNames - 4 {
		many[fmt.Sprintf("r%d", i)] = 1
	}
	if err := n.Check("f", many); err != nil {
		t.Errorf("%d names: %v", n.Len()+len(many), err)
	}
	many["one-more"] = 1
	if err := n.Check("f", many); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("%d names: %v", n.Len()+len(many), err)
	}
	if n.Len() != 4 || n.Index("r0") != -1 {
		t.Error("Check took names in")
	}
}
