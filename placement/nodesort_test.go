package placement_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// sortedFleet is a fleet with an order, and a plain copy of its servers.
type sortedFleet struct {
	t      *testing.T
	fleet  *placement.Fleet
	placer *placement.Placer
	sort   plimsoll.NodeSort
	whole  map[int32]plimsoll.Resources
	used   map[int32]plimsoll.Resources
	closed map[int32]bool
}

func newSortedFleet(t *testing.T, sort plimsoll.NodeSort, seed uint64) *sortedFleet {
	f := &sortedFleet{
		t: t, fleet: placement.NewFleet(placement.NewNames()), sort: sort, whole: map[int32]plimsoll.Resources{},
		used: map[int32]plimsoll.Resources{}, closed: map[int32]bool{},
	}
	f.fleet.OrderBy(&sort)
	f.placer = placement.NewPlacer(f.fleet, rand.NewPCG(seed, 1))
	return f
}

func (f *sortedFleet) put(slot int32, capacity plimsoll.Resources, closed bool) {
	s := placement.NewServer(fmt.Sprintf("n%03d", slot), capacity)
	if closed {
		s.Reserved = "cordoned"
	}
	f.fleet.Put(slot, &s)
	if f.used[slot] == nil {
		f.used[slot] = plimsoll.Resources{}
	}
	f.whole[slot], f.closed[slot] = capacity, closed
}

// usage is the definition of YuniKorn's mean, from the plain copy.
func (f *sortedFleet) usage(slot int32) float64 {
	weights := f.sort.Weights
	if weights == nil {
		weights = map[string]float64{"cpu": 1, "memory": 1}
	}
	sum, total := 0.0, 0.0
	for _, name := range f.whole[slot].Names() {
		if w := weights[name]; w != 0 && f.whole[slot][name] > 0 {
			sum += w * (1 - float64(f.whole[slot][name]-f.used[slot][name])/float64(f.whole[slot][name]))
			total += w
		}
	}
	if total == 0 {
		return 0
	}
	return sum / total
}

// best returns the slot that the definition chooses; -1: none fits.
func (f *sortedFleet) best(asked plimsoll.Resources) int32 {
	var fit []int32
	for slot := range int32(f.fleet.Len()) {
		whole := f.whole[slot]
		if whole == nil || f.closed[slot] {
			continue
		}
		fits := true
		for _, name := range asked.Names() {
			fits = fits && whole[name]-f.used[slot][name] >= asked[name]
		}
		if fits {
			fit = append(fit, slot)
		}
	}
	if len(fit) == 0 {
		return -1
	}
	return slices.MinFunc(fit, func(a, b int32) int {
		c := cmp.Compare(f.usage(a), f.usage(b))
		if f.sort.Binpacking {
			c = -c
		}
		return cmp.Or(c, cmp.Compare(a, b)) // ids have the order of slots
	})
}

// TestNodeSortChoosesByDefinition draws histories of servers and tasks, and compares each choice
// with a search over all servers. Some servers have no gpu, some are closed, and some change.
func TestNodeSortChoosesByDefinition(t *testing.T) {
	seed := testrun.Seed(t)
	for _, sort := range []plimsoll.NodeSort{
		{},
		{Binpacking: true},
		{Binpacking: true, Weights: map[string]float64{"memory": 1, "cpu": 0}},
		{Weights: map[string]float64{"nvidia.com/gpu": 3, "cpu": 1, "disk": 2}},
		{Weights: map[string]float64{"example.com/none": 1}},
	} {
		rng := rand.New(rand.NewPCG(seed, 2))
		f := newSortedFleet(t, sort, seed)
		f.history(rng, testrun.Count(100, 300, 20_000))
	}
}

func (f *sortedFleet) history(rng *rand.Rand, steps int) {
	type booking struct {
		slot int32
		kind *placement.Kind
		of   plimsoll.Resources
	}
	var booked []booking
	servers := 20 + rng.IntN(150)
	for step := range steps {
		switch n := rng.IntN(10); {
		case n == 0 || f.fleet.Len() < servers:
			capacity := plimsoll.Resources{"cpu": int64(8000 * (1 + rng.IntN(4))), "memory": 1 << (34 + rng.IntN(2))}
			if rng.IntN(2) == 0 {
				capacity["nvidia.com/gpu"] = 8
			}
			slot := int32(rng.IntN(servers))
			if f.fleet.Len() < servers {
				slot = int32(f.fleet.Len())
			}
			f.put(slot, capacity, rng.IntN(8) == 0)
		case n < 4 && len(booked) > 0:
			k := rng.IntN(len(booked))
			b := booked[k]
			f.fleet.Unbind(b.slot, b.kind)
			f.fleet.Forget(b.kind)
			for _, name := range b.of.Names() {
				f.used[b.slot][name] -= b.of[name]
			}
			booked = slices.Delete(booked, k, k+1)
		default:
			asked := plimsoll.Resources{"cpu": int64(500 * (1 + rng.IntN(8))), "memory": int64(1+rng.IntN(4)) << 30}
			if rng.IntN(3) == 0 {
				asked["nvidia.com/gpu"] = int64(1 + rng.IntN(2))
			}
			p, err := placement.ClusterDefault().Prepare(f.fleet, &placement.Request{Owner: "ann", Resources: asked})
			if err != nil {
				f.t.Fatal(err)
			}
			got, want := f.placer.Place(p, 0).Slot, f.best(asked)
			p.Release()
			if got != want {
				f.t.Fatalf("%+v, step %d: slot %d was chosen, and the definition says %d", f.sort, step, got, want)
			}
			if got < 0 {
				continue
			}
			kind := f.fleet.Kind(&placement.Instance{Owner: "ann", Resources: asked})
			f.fleet.Bind(got, kind)
			for _, name := range asked.Names() {
				f.used[got][name] += asked[name]
			}
			booked = append(booked, booking{got, kind, asked})
		}
	}
}

// TestNodeSortCountsWhatIsKeptBack compares servers of which a part is kept back, as used, and of
// equal ones takes the lower id.
func TestNodeSortCountsWhatIsKeptBack(t *testing.T) {
	f := placement.NewFleet(placement.NewNames())
	f.OrderBy(&plimsoll.NodeSort{Binpacking: true, Weights: map[string]float64{"memory": 1}})
	for slot, reserve := range []map[string]float64{{"cpu": 0.75}, {}, {"memory": 0.5}, {"memory": 0.5}} {
		s := placement.NewServer(fmt.Sprint("n", slot), plimsoll.Resources{"cpu": 8000, "memory": 8 << 30})
		s.Reserve = reserve
		f.Put(int32(slot), &s)
	}
	place := func() int32 {
		request := &placement.Request{Resources: plimsoll.Resources{"cpu": 1000, "memory": 1 << 30}}
		p, err := placement.ClusterDefault().Prepare(f, request)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		return placement.NewPlacer(f, rand.NewPCG(1, 1)).Place(p, 0).Slot
	}
	if got := place(); got != 2 {
		t.Errorf("slot %d was chosen, want 2", got)
	}
	f.Remove(2)
	if got := place(); got != 3 {
		t.Errorf("after the server is gone slot %d was chosen, want 3", got)
	}
	c := f.Copy()
	c.Continue(10)
	f = c.Fork()
	if got := place(); got != 3 {
		t.Errorf("a copy has chosen slot %d, want 3", got)
	}
}

// TestNodeSortLeavesReservoirsLast has an empty reservoir, which fair sorting would choose first.
func TestNodeSortLeavesReservoirsLast(t *testing.T) {
	f := placement.NewFleet(placement.NewNames())
	f.OrderBy(&plimsoll.NodeSort{})
	for slot := range int32(200) {
		s := placement.NewServer(fmt.Sprintf("n%03d", slot), plimsoll.Resources{"cpu": 8000, "memory": 8 << 30})
		if s.Reservoir = slot < 100; !s.Reservoir {
			s.Reserve = map[string]float64{"cpu": 0.5}
		}
		f.Put(slot, &s)
	}
	p, err := placement.ClusterDefault().Prepare(f, &placement.Request{Resources: plimsoll.Resources{"cpu": 1000}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if got := placement.NewPlacer(f, rand.NewPCG(1, 1)).Place(p, 0).Slot; got != 100 {
		t.Errorf("slot %d was chosen, want the first that is no reservoir, 100", got)
	}
}
