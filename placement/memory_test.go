package placement_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// memoryFleet returns a fleet of n servers in fifty racks, of four platforms, without instances.
func memoryFleet(n int) *placement.Fleet {
	f := placement.NewFleet(placement.NewNames())
	for i := range n {
		s := placement.NewServer(
			fmt.Sprintf("n%06d", i), plimsoll.Resources{"cpu": 64_000, "memory": 512 << 30, "disk": 1 << 40},
		)
		s.Labels = map[string]string{"rack": fmt.Sprint("r", i%50)}
		s.Platform = fmt.Sprintf("2026%02d01T000000Z", 1+i%4)
		f.Add(&s)
	}
	return f
}

// heap returns how many bytes are in use.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkMemory reports the memory of a fleet with fifty instances on each server. On 100,000
// servers the instances are booked by one of 200 kinds, as the scheduler books tasks. On 10,000
// they come with the record of their server and have ids.
func BenchmarkMemory(b *testing.B) {
	const each = 50
	size := plimsoll.Resources{"cpu": 640, "memory": 5 << 30, "disk": 10 << 30}
	instance := func(rng *rand.Rand) placement.Instance {
		n := rng.IntN(200)
		return placement.Instance{Owner: fmt.Sprint("owner", n), Job: fmt.Sprint("job", n), Resources: size}
	}
	book := func(f *placement.Fleet, rng *rand.Rand) {
		kinds := map[string]*placement.Kind{}
		for slot := range int32(f.Len()) {
			for range each {
				in := instance(rng)
				if kinds[in.Job] == nil {
					kinds[in.Job] = f.Kind(&in)
				}
				f.Bind(slot, kinds[in.Job])
			}
		}
	}
	record := func(f *placement.Fleet, rng *rand.Rand) {
		for slot := range int32(f.Len()) {
			s := placement.NewServer(
				f.ID(slot), plimsoll.Resources{"cpu": 64_000, "memory": 512 << 30, "disk": 1 << 40},
			)
			s.Labels = map[string]string{"rack": fmt.Sprint("r", slot%50)}
			s.Platform = fmt.Sprintf("2026%02d01T000000Z", 1+slot%4)
			for k := range each {
				in := instance(rng)
				in.ID = fmt.Sprintf("%06d.%02d", slot, k)
				s.Instances = append(s.Instances, in)
			}
			f.Put(slot, &s)
		}
	}
	for _, way := range []struct {
		name    string
		servers int
		fill    func(*placement.Fleet, *rand.Rand)
	}{{"booked", 100_000, book}, {"recorded", 10_000, record}} {
		b.Run(fmt.Sprintf("nodes=%d/%s", way.servers, way.name), func(b *testing.B) {
			var none, empty, full float64
			for b.Loop() {
				none = heap()
				f := memoryFleet(way.servers)
				empty = heap()
				way.fill(f, rand.New(rand.NewPCG(1, 2)))
				full = heap()
				runtime.KeepAlive(f)
			}
			b.ReportMetric((empty-none)/float64(way.servers), "B/server")
			b.ReportMetric((full-empty)/float64(way.servers)/each, "B/instance")
		})
	}
}
