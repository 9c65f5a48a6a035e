package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// benchFleet returns a fleet of n servers with about fifty instances each, of 200 owners, that use so many percent of it. A server
// has room for 50/full instances, and they were dealt out at random as long as there was room, so at 99 % most servers are full.
// Every twentieth server has a trait.
func benchFleet(n, full int) *placement.Fleet {
	rng := rand.New(rand.NewPCG(1, 2))
	f := placement.NewFleet(placement.NewNames())
	size := plimsoll.Resources{"cpu": 640, "memory": 5 << 30, "disk": 10 << 30}
	var kinds []*placement.Kind
	for owner := range 200 {
		kinds = append(kinds, f.Kind(&placement.Instance{Owner: fmt.Sprint("owner", owner), Job: fmt.Sprint("job", owner), Resources: size}))
	}
	room, total := 5000/full, 0
	for i := range n {
		slots := int64(room - 5 + 5*(i%3))
		total += int(slots)
		s := placement.NewServer(fmt.Sprintf("n%06d", i), plimsoll.Resources{"cpu": slots * 640, "memory": slots * 5 << 30, "disk": slots * 10 << 30})
		s.Labels = map[string]string{"rack": fmt.Sprint("r", i%50)}
		s.Platform = fmt.Sprintf("2026%02d01T000000Z", 1+i%4)
		if i%3 == 0 {
			s.NextReboot = 1_800_000_000 + int64(i%8)*7*86400
		}
		if i%20 == 0 {
			s.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
		}
		f.Add(&s)
	}
	for range total * full / 100 {
		kind := kinds[rng.IntN(len(kinds))]
		for {
			if slot := int32(rng.IntN(n)); f.Free(slot, placement.IndexMemory) >= 5<<30 {
				f.Bind(slot, kind)
				break
			}
		}
	}
	return f
}

// BenchmarkPlace is one placement with the full default chain, in batches of fifty.
func BenchmarkPlace(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		for _, full := range []int{30, 90, 99} {
			f := benchFleet(n, full)
			for _, traits := range []bool{false, true} {
				if traits && full != 30 {
					continue
				}
				b.Run(fmt.Sprintf("nodes=%d/full=%d/traits=%t", n, full, traits), func(b *testing.B) {
					chain := placement.Default()
					pl := placement.NewPlacer(f, rand.NewPCG(3, 4))
					r := &placement.Request{Owner: "owner7", Resources: plimsoll.Resources{"cpu": 640, "memory": 5 << 30, "disk": 10 << 30}}
					if traits {
						r.Constraints.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
					}
					p, err := chain.Prepare(f, r)
					if err != nil {
						b.Fatal(err)
					}
					kind := f.Kind(&placement.Instance{Owner: r.Owner, Resources: r.Resources})
					b.ReportAllocs()
					none := 0
					for b.Loop() {
						c := pl.Place(p, 1)
						if c.Slot < 0 {
							none++
							continue
						}
						f.Bind(c.Slot, kind)
						f.Unbind(c.Slot, kind)
					}
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "placements/s")
					b.ReportMetric(float64(none)/float64(b.N), "none")
				})
			}
		}
	}
}
