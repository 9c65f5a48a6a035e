package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Batches of a Draw, evaluated one by one until one has a survivor, lead to the same choice as
// Place. The score and the steps are the same too.
func TestBatchesOneByOneAgreeWithPlace(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		request := anyRequest(t)
		settings := placement.DefaultSettings()
		settings.Batch = rapid.IntRange(1, 9).Draw(t, "batch")
		chain, err := placement.NewChain(placement.DefaultExpression(), placement.Stages(), nil, settings)
		if err != nil {
			t.Fatal(err)
		}
		f := placement.NewFleet(placement.NewNames())
		for i := range rapid.IntRange(0, 30).Draw(t, "servers") {
			s := anyServer(t, fmt.Sprint("n", i))
			f.Add(&s)
		}
		p, err := chain.Prepare(f, &request)
		if err != nil {
			t.Fatal(err)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		want, steps := placement.NewPlacer(f, rand.NewPCG(seed, 1)).PlaceRecorded(p, 1)

		pl, draw := placement.NewPlacer(f, rand.NewPCG(0, 0)), placement.NewDraw(rand.NewPCG(seed, 1))
		got := placement.Choice{Slot: -1}
		var sum placement.StepSum
		for batchSeed, slots := range draw.Batches(f.Len(), chain.BatchSize(f.Len()), f.Open) {
			got.Batches++
			e := pl.Evaluate(p, slots, batchSeed, 1)
			for i := range e.Steps {
				sum.Add(e.Stages[i], &e.Steps[i])
			}
			if len(e.Survivors) > 0 {
				got.Slot, got.Score = e.Survivors[0].Slot, e.Survivors[0].Score
				break
			}
		}
		if got.Slot != want.Slot || got.Score != want.Score || got.Batches != want.Batches {
			t.Fatalf("one by one %+v, Place %+v", got, want)
		}
		if d := cmp.Diff(steps, sum.Steps()); d != "" {
			t.Fatalf("steps: -Place +one by one:\n%s", d)
		}
	})
}

// Survivors stand best first, and of equals the one that was drawn last first, which is the one
// that is chosen.
func TestSurvivorsStandBestFirst(t *testing.T) {
	f := placement.NewFleet(placement.NewNames())
	for i := range 4 {
		s := placement.NewServer(fmt.Sprint("n", i), nil)
		f.Add(&s)
	}
	chain, err := placement.NewChain(
		placement.Pipe(placement.Named("setup")), placement.Stages(), nil, placement.DefaultSettings(),
	)
	if err != nil {
		t.Fatal(err)
	}
	p, err := chain.Prepare(f, &placement.Request{})
	if err != nil {
		t.Fatal(err)
	}
	e := placement.NewPlacer(f, rand.NewPCG(1, 2)).Evaluate(p, []int32{2, 0, 99, -1, 3}, 1, 1)
	if d := cmp.Diff([]placement.Survivor{{Slot: 3}, {Slot: 0}, {Slot: 2}}, e.Survivors); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Every server is dealt once, in batches that hold so many open ones, whatever order an earlier
// deal left behind.
func TestDealIsAPermutation(t *testing.T) {
	d := placement.NewDraw(rand.NewPCG(1, 2))
	open := func(slot int32) bool { return slot%3 != 0 }
	for _, n := range []int{100, 7, 0, 101} {
		var all []int32
		for _, batch := range d.Batches(n, 5, open) {
			found := 0
			for _, slot := range batch {
				if open(slot) {
					found++
				}
			}
			all = append(all, batch...)
			if found != 5 && len(all) < n || found > 5 {
				t.Errorf("%d: a batch holds %d open servers", n, found)
			}
		}
		slices.Sort(all)
		for i, slot := range all {
			if int(slot) != i {
				t.Fatalf("%d: %v", n, all)
			}
		}
		if len(all) != n {
			t.Errorf("%d of %d were dealt", len(all), n)
		}
	}
}

// A sum of many reasons is bounded: the rest is told as one, and no reason names more than ten
// servers.
func TestSumOfStepsIsBounded(t *testing.T) {
	var sum placement.StepSum
	for i := range 300 {
		sum.Add(2, &placement.Step{Stage: "where", Received: 2, Remaining: 1, Dropped: 1, Reasons: []placement.Reason{
			{Text: fmt.Sprint("because ", i), Servers: 1, Examples: []string{fmt.Sprint("n", i)}},
		}})
	}
	steps := sum.Steps()
	if len(steps) != 1 || len(steps[0].Reasons) != 100 || steps[0].Received != 600 || steps[0].Dropped != 300 {
		t.Fatalf("%d steps: %+v", len(steps), steps)
	}
	rest := steps[0].Reasons[0]
	if rest.Text != "other reasons" || rest.Servers != 201 || len(rest.Examples) != 10 {
		t.Errorf("the rest is %+v", rest)
	}
}
