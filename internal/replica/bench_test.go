package replica

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkBarrierIdle is what a strict read waits over an eventual one when nothing else happens. Target: p50 at most 0.2 ms.
func BenchmarkBarrierIdle(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		b.Run(network, func(b *testing.B) {
			leader := startLeader(b, network, "", SourceConfig{})
			f, _ := startFollower(b, FollowerConfig{Leader: leader.address})
			ctx := testContext(b)
			mustReady(ctx, b, f)
			waits := make([]time.Duration, 0, b.N)
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				if _, err := f.Barrier(ctx); err != nil {
					b.Fatal(err)
				}
				waits = append(waits, time.Since(began))
			}
			reportPercentiles(b, waits)
		})
	}
}

func reportPercentiles(b *testing.B, waits []time.Duration) {
	b.Helper()
	slices.Sort(waits)
	at := func(percent int) float64 { return float64(waits[(len(waits)-1)*percent/100].Nanoseconds()) / 1e6 }
	b.ReportMetric(at(50), "p50-ms")
	b.ReportMetric(at(99), "p99-ms")
}

// BenchmarkBarrierShared is the cost of a barrier when many wait at once.
func BenchmarkBarrierShared(b *testing.B) {
	leader := startLeader(b, "unix", "", SourceConfig{})
	f, _ := startFollower(b, FollowerConfig{Leader: leader.address})
	ctx := testContext(b)
	mustReady(ctx, b, f)
	const readers = 64
	var group sync.WaitGroup
	b.ResetTimer()
	for range readers {
		group.Go(func() {
			for range b.N/readers + 1 {
				if _, err := f.Barrier(ctx); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}
