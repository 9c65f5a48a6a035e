package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// BenchmarkPlanMoves plans up to 1,000 moves on 10,000 servers that hold 1 to 60 instances each.
// The bound on work is the scheduler's, so the result is how long a plan delays a turn.
func BenchmarkPlanMoves(b *testing.B) {
	f, rng := NewFleet(NewNames()), rand.New(rand.NewPCG(1, 2))
	var movables []Movable
	r := Request{Owner: "o", Resources: plimsoll.Resources{plimsoll.CPU: 1000, plimsoll.Memory: 1 << 30}}
	p, err := Default().Prepare(f, &r)
	if err != nil {
		b.Fatal(err)
	}
	kind := f.Kind(&Instance{Owner: r.Owner, Resources: r.Resources})
	for i := range 10_000 {
		s := NewServer(fmt.Sprintf("n%05d", i), plimsoll.Resources{plimsoll.CPU: 64_000, plimsoll.Memory: 64 << 30})
		slot := f.Add(&s)
		for k := range 1 + rng.IntN(60) {
			f.Bind(slot, kind)
			movables = append(movables, Movable{Name: fmt.Sprintf("%d.%d", i, k), Slot: slot, Kind: kind, Prepared: p})
		}
	}
	large := Request{Resources: plimsoll.Resources{plimsoll.CPU: 64_000}}
	for _, goal := range []struct {
		name   string
		wanted *Request
	}{{"empty", nil}, {"room", &large}} {
		b.Run(goal.name, func(b *testing.B) {
			var plan Plan
			for b.Loop() {
				if plan, err = NewPlacer(f, rand.NewPCG(1, 1)).PlanMoves(
					movables, Goal{For: goal.wanted, Chain: Default(), Limit: 1000, Looks: 500_000},
				); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(plan.Moves)), "moves")
			b.ReportMetric(float64(len(plan.Emptied)), "emptied")
		})
	}
}
