package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// "we'll go with a batch size of fifty servers" (RFD 60, phase 3).
//
// "operating in batches will cut the typical amount … to only one batch" (RFD 60, phase 3).
func TestOneBatchOfFiftyOfAFleetWithRoom(t *testing.T) {
	c, seen := watched(t)
	f := fleetOf(1000)
	choice := newPlacer(f, 1).Place(prepare(t, c, f, asks(1000)), 0)
	if choice.Slot < 0 || choice.Looked != 50 || choice.Batches != 1 || len(*seen) != 50 {
		t.Fatalf("%+v after %d servers, want one of the first 50", choice, len(*seen))
	}
}

// "sort them randomly, and then feed batches from this list into dapi" (RFD 60, phase 3): no server
// is looked at twice, and the order is not that of the fleet.
func TestBatchesAreDrawnInRandomOrder(t *testing.T) {
	c, seen := watched(t)
	f := fleetOf(200)
	if choice := newPlacer(f, 1).Place(prepare(t, c, f, asks(9000)), 0); choice.Slot >= 0 || choice.Batches != 4 {
		t.Fatalf("%+v, but none has room", choice)
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

// The order is computed only as far as needed. The choice from a batch does not depend on the
// number of servers behind it. Fifty draws of a fleet of a million leave the rest alone.
func TestOrderIsLazy(t *testing.T) {
	c, seen := watched(t)
	f := fleetOf(3000)
	pl := newPlacer(f, 1)
	p := prepare(t, c, f, asks(1000))
	for range 10 {
		pl.Place(p, 0)
	}
	if len(*seen) != 500 {
		t.Fatalf("%d servers were looked at in ten placements, want 500", len(*seen))
	}
}

// "Each batch would be loaded and fed into dapi until dapi finds an eligible server" (RFD 60, phase
// 3).
func TestStopsAtTheFirstBatchWithASurvivor(t *testing.T) {
	// The order of drawing follows from the seed, so the first run tells where each server stands
	// in it.
	c, order := watched(t)
	f := fleetOf(200)
	newPlacer(f, 7).Place(prepare(t, c, f, asks(9000)), 0)
	for _, test := range []struct{ survivor, looked int }{{0, 50}, {49, 50}, {50, 100}, {120, 150}, {199, 200}} {
		want := (*order)[test.survivor]
		f := fleetOf(200, func(_ int, s *placement.Server) {
			if s.ID != want {
				s.Capacity = plimsoll.Resources{"cpu": 10}
			}
		})
		choice := newPlacer(f, 7).Place(prepare(t, placement.Default(), f, asks(1000)), 0)
		if choice.Slot < 0 || f.ID(choice.Slot) != want || choice.Looked != test.looked ||
			choice.Batches != (test.looked+49)/50 {
			t.Errorf("the survivor is number %d: %+v, want %d servers looked at", test.survivor, choice, test.looked)
		}
	}
}

// "an allocation is still guaranteed to succeed if it's possible, since all servers will be checked
// in the worst case" (RFD 60, phase 3): the answer "none" comes only after all.
func TestNoneOnlyAfterAll(t *testing.T) {
	for _, n := range []int{0, 1, 49, 50, 51, 175} {
		c, seen := watched(t)
		f := fleetOf(n)
		choice := newPlacer(f, 3).Place(prepare(t, c, f, asks(9000)), 0)
		if choice.Slot != -1 || len(*seen) != n || choice.Looked != n {
			t.Errorf("%d servers: %+v after %d of them", n, choice, len(*seen))
		}
	}
}

// Of the survivors of a batch the highest score wins: the fullest server that still has room. Of a
// single batch that is the best of all, whatever the seed, if nothing scores at random.
func TestHighestScoreOfTheBatchWins(t *testing.T) {
	f := fleetOf(50)
	used := func(slot int32, milli, bytes int64) {
		f.Bind(
			slot,
			f.Kind(&placement.Instance{Owner: "bob", Resources: plimsoll.Resources{"cpu": milli, "memory": bytes}}),
		)
	}
	used(17, 10, 6*gib)
	used(31, 3500, 7*gib) // fuller, but without room
	c := chainOf(
		t, placement.DefaultExpression(),
		func(s *placement.Settings) { s.Weights.Random, s.Weights.UnreservedDisk = 0, 0 },
	)
	p := prepare(t, c, f, asks(1000))
	for seed := range uint64(50) {
		if choice := newPlacer(f, seed).Place(p, 0); choice.Slot != 17 {
			t.Fatalf("seed %d: %+v, want slot 17", seed, choice)
		}
	}
}

// Of servers with the same score the one that was drawn last is chosen, as the original does.
func TestOfEqualScoresTheLastDrawnWins(t *testing.T) {
	c, seen := watched(t, func(s *placement.Settings) { s.Weights = placement.Weights{} })
	f := fleetOf(10)
	for seed := range uint64(20) {
		*seen = nil
		choice := newPlacer(f, seed).Place(prepare(t, c, f, asks(1)), 0)
		// Without a stage that sorts, the order of drawing is kept; large-servers sorts by free
		// memory, stably.
		if want := (*seen)[9]; f.ID(choice.Slot) != want {
			t.Fatalf("seed %d: %s was chosen of %v, want %s", seed, f.ID(choice.Slot), *seen, want)
		}
	}
}

// The same seed gives the same choices, another seed others.
func TestSameSeedSameChoice(t *testing.T) {
	run := func(seed uint64) (slots []int32) {
		f := fleetOf(500)
		pl := newPlacer(f, seed)
		p := prepare(t, placement.Default(), f, asks(500))
		kind := f.Kind(&placement.Instance{Owner: "alice", Resources: plimsoll.Resources{"cpu": 500}})
		for range 200 {
			slot := pl.Place(p, 0).Slot
			f.Bind(slot, kind)
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

// "without biasing servers towards the beginning of the sort order" (RFD 60, phase 3): every server
// of an even fleet can be chosen, about equally often. 300 servers, 30,000 choices, so each is
// expected a hundred times with a standard deviation of ten.
func TestEveryServerCanBeChosen(t *testing.T) {
	f := fleetOf(300)
	pl, p := newPlacer(f, 11), prepare(t, placement.Default(), f, asks(1000))
	counts := make([]int, f.Len())
	for range 30_000 {
		counts[pl.Place(p, 0).Slot]++
	}
	if low, high := slices.Min(counts), slices.Max(counts); low < 55 || high > 150 {
		t.Fatalf("a server was chosen %d times and another %d times, expected about 100", low, high)
	}
}

// Servers that take nothing at all do not count to a batch, as those that a query for servers
// leaves out: a batch has fifty that could be chosen.
func TestClosedServersDoNotCountToTheBatch(t *testing.T) {
	closed := []func(*placement.Server){
		func(s *placement.Server) { s.Setup = false },
		func(s *placement.Server) { s.Status = "unknown" },
		func(s *placement.Server) { s.Reserved = "draining" },
		func(s *placement.Server) { s.Fault = "gibberish" },
	}
	for i, close := range closed {
		f := fleetOf(400, func(i int, s *placement.Server) {
			if i%4 != 0 {
				close(s)
			}
		})
		c, seen := watched(t)
		if choice := newPlacer(f, 1).Place(
			prepare(t, c, f, asks(1000)), 0,
		); choice.Slot < 0 || choice.Slot%4 != 0 || choice.Looked != 50 || len(*seen) != 50 {
			t.Errorf("%d: %+v, %d asked; want an open one of 50", i, choice, len(*seen))
		}
		if choice := newPlacer(f, 1).Place(
			prepare(t, placement.Default(), f, asks(9000)), 0,
		); choice.Looked != 100 || choice.Batches < 2 {
			t.Errorf("%d: %+v, want 100 open ones in two batches", i, choice)
		}
	}
}

// A fleet that grows and one that has gaps are drawn from whole, and slots that are vacant are
// never chosen.
func TestFleetThatGrowsAndHasGaps(t *testing.T) {
	f := fleetOf(10)
	pl, p := newPlacer(f, 1), prepare(t, placement.Default(), f, asks(1))
	pl.Place(p, 0)
	for i := 10; i < 130; i++ {
		s := plain(fmt.Sprintf("n%d", i))
		f.Add(&s)
	}
	for slot := range int32(129) {
		f.Remove(slot)
	}
	if choice := pl.Place(p, 0); choice.Slot != 129 || choice.Looked != 1 {
		t.Fatalf("%+v, want the only one that is there", choice)
	}
	f.Remove(129)
	if choice := pl.Place(p, 0); choice.Slot != -1 || choice.Looked != 0 {
		t.Fatalf("%+v of a fleet without servers", choice)
	}
	s := plain("again")
	f.Put(64, &s)
	if choice := pl.Place(p, 0); choice.Slot != 64 {
		t.Fatalf("%+v, want the slot that was filled again", choice)
	}
}

// With Settings.All every server is looked at before a choice is made, and the best of all is
// taken.
func TestScoreAllLooksAtEveryServer(t *testing.T) {
	f := fleetOf(300)
	f.Bind(211, f.Kind(&placement.Instance{Owner: "bob", Resources: plimsoll.Resources{"memory": 6 * gib}}))
	c, seen := watched(
		t, func(s *placement.Settings) { s.All = true; s.Weights.Random, s.Weights.UnreservedDisk = 0, 0 },
	)
	for seed := range uint64(10) {
		*seen = nil
		choice := newPlacer(f, seed).Place(prepare(t, c, f, asks(1000)), 0)
		if choice.Slot != 211 || choice.Batches != 1 || choice.Looked != 300 || len(*seen) != 300 {
			t.Fatalf("seed %d: %+v, want the fullest of 300", seed, choice)
		}
	}
}

// The size of a batch can be set; 0 means fifty.
func TestBatchSize(t *testing.T) {
	for _, test := range []struct{ set, want int }{{0, 50}, {1, 1}, {7, 7}, {100, 100}, {1000, 100}} {
		f := fleetOf(100)
		c := chainOf(t, placement.DefaultExpression(), func(s *placement.Settings) { s.Batch = test.set })
		if choice := newPlacer(f, 1).Place(prepare(t, c, f, asks(1)), 0); choice.Looked != test.want {
			t.Errorf("batch %d: %d looked at, want %d", test.set, choice.Looked, test.want)
		}
	}
}

// "In a pipe the output of one is the input of the next, until nothing is left": what stands behind
// is not asked.
func TestPipeStopsWhenNothingIsLeft(t *testing.T) {
	asked := 0
	stages := append(placement.Stages(),
		placement.Stage{
			Name: "none", Reads: placement.ReadsInstances, Keep: func(*placement.View) bool { return false },
		},
		placement.Stage{
			Name: "count", Reads: placement.ReadsInstances,
			Batch: func(_ *placement.Batch, set []int32) []int32 { asked++; return set },
		},
	)
	f := fleetOf(60)
	c := chainWith(t, stagesNamed("load-instances", "count", "none", "count"), stages)
	if choice := newPlacer(f, 1).Place(prepare(t, c, f, asks(1)), 0); choice.Slot != -1 || asked != 2 {
		t.Fatalf("%+v, asked %d times, want once in each of two batches", choice, asked)
	}
}

// "Of an or every one gets the same input, until one leaves something": the first alternative that
// leaves something counts. Each alternative gets the whole input of the or, however much the one
// before dropped and however they are nested.
func TestOrTakesTheFirstThatLeavesSomething(t *testing.T) {
	keep := func(name string, ids ...string) placement.Stage {
		return placement.Stage{Name: name, Keep: func(v *placement.View) bool { return slices.Contains(ids, v.ID()) }}
	}
	stages := append(placement.Stages(), keep("a", "n0", "n1"), keep("b", "n1", "n2"), keep("c", "n3"), keep("nothing"))
	name := placement.Named
	for _, test := range []struct {
		e    placement.Expression
		want []string
	}{
		{placement.Or(name("a"), name("b")), []string{"n0", "n1"}},
		{placement.Or(name("nothing"), name("b")), []string{"n1", "n2"}},
		{placement.Or(name("nothing"), name("nothing")), nil},
		{placement.Or(placement.Pipe(name("a"), name("c")), name("b")), []string{"n1", "n2"}},
		{
			placement.Or(
				placement.Or(name("nothing"), placement.Pipe(name("b"), name("c"))),
				placement.Or(placement.Pipe(name("a"), name("nothing")), name("c")),
			),
			[]string{"n3"},
		},
		{placement.Pipe(placement.Or(name("a"), name("b")), placement.Or(name("c"), name("b"))), []string{"n1"}},
		{placement.Or(name("nothing"), name("identity")), []string{"n0", "n1", "n2", "n3"}},
	} {
		f := fleetOf(4)
		c := chainWith(t, test.e, stages)
		x := newPlacer(f, 1).Explain(prepare(t, c, f, asks(1)), 0)
		last := x.Steps[len(x.Steps)-1]
		chosen := map[string]bool{}
		for seed := range uint64(100) {
			if choice := newPlacer(f, seed).Place(prepare(t, c, f, asks(1)), 0); choice.Slot >= 0 {
				chosen[f.ID(choice.Slot)] = true
			}
		}
		for id := range chosen {
			if !slices.Contains(test.want, id) {
				t.Errorf("%s: %s was chosen, want one of %v", test.e, id, test.want)
			}
		}
		if len(chosen) != len(test.want) {
			t.Errorf("%s: %v were chosen in 100 placements, want %v (%+v)", test.e, chosen, test.want, last)
		}
	}
}
