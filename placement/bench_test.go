package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// benchFleet returns a fleet of n servers with about fifty instances each, of 200 owners, that use
// full percent of it. A server has room for 50/full instances. They were dealt out at random as
// long as there was room, so at 99 % most servers are full. Every twentieth server has a trait.
func benchFleet(n, full int) *placement.Fleet {
	rng := rand.New(rand.NewPCG(1, 2))
	f := placement.NewFleet(placement.NewNames())
	size := plimsoll.Resources{"cpu": 640, "memory": 5 << 30, "disk": 10 << 30}
	var kinds []*placement.Kind
	for owner := range 200 {
		kinds = append(
			kinds,
			f.Kind(
				&placement.Instance{Owner: fmt.Sprint("owner", owner), Job: fmt.Sprint("job", owner), Resources: size},
			),
		)
	}
	room, total := 5000/full, 0
	for i := range n {
		slots := int64(room - 5 + 5*(i%3))
		total += int(slots)
		s := placement.NewServer(
			fmt.Sprintf("n%06d", i),
			plimsoll.Resources{"cpu": slots * 640, "memory": slots * 5 << 30, "disk": slots * 10 << 30},
		)
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

// place places requests of a kind one after the other, each booked and taken back, so that the
// fleet stays as full as it is.
func place(b *testing.B, chain *placement.Chain, f *placement.Fleet, r *placement.Request) {
	pl := placement.NewPlacer(f, rand.NewPCG(3, 4))
	p, err := chain.Prepare(f, r)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Release()
	kind := f.Kind(&placement.Instance{Owner: r.Owner, Job: r.Job, Group: r.Group, Resources: r.Resources})
	defer f.Forget(kind)
	pl.Place(p, 1)
	took := make([]time.Duration, 0, 1<<20)
	none := 0
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		c := pl.Place(p, 1)
		if len(took) < cap(took) {
			took = append(took, time.Since(began))
		}
		if c.Slot < 0 {
			none++
			continue
		}
		f.Bind(c.Slot, kind)
		f.Unbind(c.Slot, kind)
	}
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "placements/s")
	b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-us")
	if none > 0 {
		b.Fatalf("%d of %d placements found no server", none, b.N)
	}
}

// request returns the request that the benchmarks place, as large as the booked instances.
func request() *placement.Request {
	return &placement.Request{
		Owner: "owner7", Job: "new", Group: "main",
		Resources: plimsoll.Resources{"cpu": 640, "memory": 5 << 30, "disk": 10 << 30},
	}
}

// BenchmarkPlace is one placement with the full default chain, in batches of fifty; with traits,
// one server in twenty is eligible.
func BenchmarkPlace(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		for _, full := range []int{30, 90, 99} {
			f := benchFleet(n, full)
			b.Run(
				fmt.Sprintf("nodes=%d/full=%d/traits=false", n, full),
				func(b *testing.B) { place(b, placement.Default(), f, request()) },
			)
			if full != 30 {
				continue
			}
			b.Run(fmt.Sprintf("nodes=%d/full=%d/traits=true", n, full), func(b *testing.B) {
				r := request()
				r.Constraints.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
				place(b, placement.Default(), f, r)
			})
		}
	}
}

// BenchmarkPlaceAll looks at every server before it chooses.
func BenchmarkPlaceAll(b *testing.B) {
	settings := placement.DefaultSettings()
	settings.All = true
	chain, err := placement.NewChain(placement.DefaultExpression(), placement.Stages(), nil, settings)
	if err != nil {
		b.Fatal(err)
	}
	f := benchFleet(10_000, 30)
	b.Run("nodes=10000", func(b *testing.B) { place(b, chain, f, request()) })
}

// BenchmarkPlaceSpread places on the racks that hold the fewest instances of the group: hard, and
// preferred.
func BenchmarkPlaceSpread(b *testing.B) {
	f := benchFleet(10_000, 30)
	b.Run("nodes=10000", func(b *testing.B) {
		r := request()
		r.Constraints.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 1}}
		r.Preferences.Spread = []plimsoll.Spread{{By: "rack"}}
		place(b, placement.Default(), f, r)
	})
}

// BenchmarkPlaceInOrder places and books a task on 10,000 servers in YuniKorn's order.
func BenchmarkPlaceInOrder(b *testing.B) {
	for name, sort := range map[string]*plimsoll.NodeSort{
		"none": nil, "fair": {}, "binpacking": {Binpacking: true},
	} {
		b.Run(name, func(b *testing.B) {
			f := placement.NewFleet(placement.NewNames())
			f.OrderBy(sort)
			for slot := range int32(10_000) {
				size := plimsoll.Resources{"cpu": 64_000, "memory": 1 << 38}
				s := placement.NewServer(fmt.Sprintf("n%05d", slot), size)
				f.Put(slot, &s)
			}
			asked := plimsoll.Resources{"cpu": 1000, "memory": 1 << 30}
			p, err := placement.ClusterDefault().Prepare(f, &placement.Request{Resources: asked})
			if err != nil {
				b.Fatal(err)
			}
			kind := f.Kind(&placement.Instance{Resources: asked})
			placer := placement.NewPlacer(f, rand.NewPCG(1, 1))
			var booked []int32
			for b.Loop() {
				if len(booked) == 300_000 {
					for _, slot := range booked {
						f.Unbind(slot, kind)
					}
					booked = booked[:0]
				}
				slot := placer.Place(p, 0).Slot
				f.Bind(slot, kind)
				booked = append(booked, slot)
			}
		})
	}
}
