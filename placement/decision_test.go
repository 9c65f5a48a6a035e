package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
)

// A decision has the steps of all stages and the scores of the candidates. A replay of its export
// chooses the same server, for any request.
func TestDecisionIsKeptAndReplayed(t *testing.T) {
	const gib = 1 << 30
	f := placement.NewFleet(placement.NewNames())
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 300 {
		s := placement.NewServer(
			fmt.Sprintf("n%03d", i), plimsoll.Resources{"cpu": 8000, "memory": 64 * gib, "x/gpu": int64(i % 4)},
		)
		s.Labels = map[string]string{"rack": fmt.Sprint("r", i%7)}
		if i%10 == 0 {
			s.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
		}
		slot := f.Add(&s)
		for range rng.IntN(5) {
			in := placement.Instance{
				Owner: fmt.Sprint("o", rng.IntN(5)), Job: fmt.Sprint("j", rng.IntN(5)), Group: "g",
				Labels:    map[string]string{"tier": "db"},
				Resources: plimsoll.Resources{"cpu": 500, "memory": gib * int64(1+rng.IntN(4))},
			}
			f.Bind(slot, f.Kind(&in))
		}
	}
	named := placement.NewServer("with-instances", plimsoll.Resources{"cpu": 8000, "memory": 64 * gib})
	named.Labels, named.Instances = map[string]string{"rack": "r0"}, []placement.Instance{
		{ID: "db.main.0", Owner: "o1", Resources: plimsoll.Resources{"cpu": 100}},
	}
	f.Add(&named)
	ask := plimsoll.Resources{"cpu": 1000, "memory": gib}
	for name, r := range map[string]*placement.Request{
		"plain": {Owner: "o1", Resources: ask},
		"gpu":   {Owner: "o1", Resources: plimsoll.Resources{"cpu": 1000, "x/gpu": 2}},
		"traits": {
			Owner: "o1", Resources: ask,
			Constraints: plimsoll.Constraints{Traits: map[string]plimsoll.Trait{"ssd": {Flag: true}}},
		},
		"spread": {
			Owner: "o1", Job: "j1", Group: "g", Resources: ask,
			Constraints: plimsoll.Constraints{Spread: []plimsoll.Spread{{By: "rack", MaxSkew: 40}}},
			Preferences: plimsoll.Preferences{Spread: []plimsoll.Spread{{By: "node"}}},
		},
		"near": {
			Owner: "o1", Resources: ask, Constraints: plimsoll.Constraints{Near: []plimsoll.Selector{{Job: "j2"}}},
			Preferences: plimsoll.Preferences{Far: []plimsoll.Selector{{Label: "tier=db"}}},
		},
		"by id": {
			Owner: "o1", Resources: ask,
			Constraints: plimsoll.Constraints{Near: []plimsoll.Selector{{Task: "db.main.0"}}},
		},
		"volumes": {Owner: "o1", Resources: ask, Constraints: plimsoll.Constraints{VolumesFrom: []string{"db.main.0"}}},
		"random":  {Owner: "o1", Resources: ask, Preferences: plimsoll.Preferences{Strategy: plimsoll.StrategyRandom}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := placement.Default().Prepare(f, r)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Release()
			pl, kept := placement.NewPlacer(f, rand.NewPCG(1, 2)), placement.NewDecisions(20)
			for i := range 30 {
				c := pl.Place(p, 100)
				if c.Slot < 0 {
					t.Fatal("nothing was chosen")
				}
				task := fmt.Sprint("t", i)
				pl.Note(kept, task)
				d, ok := kept.Last(task)
				if !ok || d.Server != f.ID(c.Slot) || !slices.ContainsFunc(
					d.Candidates, func(x placement.Candidate) bool { return x.Server == d.Server && x.Kept },
				) {
					t.Fatalf("%+v is not the decision for %s", d, f.ID(c.Slot))
				}
				if best := d.Candidates[0]; best.Score != d.Score {
					t.Errorf("the best candidate has %v, the chosen one %v", best.Score, d.Score)
				}
				if left := d.Steps[0].Received; left != d.Looked {
					t.Errorf("the first stage got %d of %d servers", left, d.Looked)
				}
				data, err := fleetjson.WriteDecision(d.Record())
				if err != nil {
					t.Fatal(err)
				}
				record, err := fleetjson.ReadDecision(data)
				if err != nil {
					t.Fatal(err)
				}
				again, err := record.Replay(nil)
				if err != nil {
					t.Fatal(err)
				}
				if again.Server != d.Server || again.Score != d.Score {
					t.Fatalf(
						"replayed: %s with %v, decided: %s with %v\n%s", again.Server, again.Score, d.Server, d.Score,
						data,
					)
				}
			}
			if _, ok := kept.Last("t9"); ok || kept.Len() != 20 {
				t.Errorf("%d decisions are kept, want the last 20", kept.Len())
			}
		})
	}
}

// The size of a kept decision follows its last batch, not the fleet that its instances are spread
// over.
func TestDecisionsOfSpreadsAreSmall(t *testing.T) {
	f := fleetOf(5000)
	p := prepare(t, placement.Default(), f, asks(1, func(r *placement.Request) {
		r.Constraints.Spread = []plimsoll.Spread{{By: "node", MaxSkew: 5}}
		r.Preferences.Spread = []plimsoll.Spread{{By: "node"}}
	}))
	pl, kept := newPlacer(f, 1), placement.NewDecisions(1)
	kind := f.Kind(&placement.Instance{Owner: "alice", Job: "j", Group: "g", Resources: plimsoll.Resources{"cpu": 1}})
	for range 100 {
		c := pl.Place(p, 0)
		pl.Note(kept, "t")
		f.Bind(c.Slot, kind)
	}
	if n := testing.AllocsPerRun(100, func() { pl.Note(kept, "t") }); n > 1 {
		t.Errorf("%v allocations a decision", n)
	}
	d, _ := kept.Last("t")
	data, err := fleetjson.WriteDecision(d.Record())
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 50_000 {
		t.Errorf("the export is %d bytes long", len(data))
	}
}
