package coordinator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/plimsoll-dev/plimsoll/internal/store"
)

// BenchmarkCopyHoldsUp measures how long a copy of the fleet holds up one turn, and all turns
// together. Each node has 10 tasks.
func BenchmarkCopyHoldsUp(b *testing.B) {
	for _, nodes := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			f := newFleet(b, nodes, 20)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				c, _ := f.engine.Copy()
				for done := false; !done; began = time.Now() {
					done = c.Continue(copyNodes)
					took = append(took, time.Since(began))
				}
			}
			slices.Sort(took)
			b.ReportMetric(milliseconds(took[len(took)/2]), "median-ms/turn")
			b.ReportMetric(milliseconds(took[len(took)*95/100]), "p95-ms/turn")
			b.ReportMetric(float64(len(took))/float64(b.N), "turns/copy")
		})
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkFork measures the cost of a copy for a worker, beside the turns.
func BenchmarkFork(b *testing.B) {
	for _, nodes := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			f := newFleet(b, nodes, 20)
			c, _ := f.engine.Copy()
			for !c.Continue(copyNodes) {
			}
			for b.Loop() {
				c.View(records{})
			}
		})
	}
}

// BenchmarkSubmitBesideQuestions measures the median time of a submit of one task on 10,000 nodes.
// Submits follow one another. Meanwhile a number of callers ask where 1,000 tasks would go, each
// again as soon as it has its answer.
func BenchmarkSubmitBesideQuestions(b *testing.B) {
	for _, callers := range []int{0, 1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			l := lead(b, Config{}, openStore(b, vfs.NewMem(), store.Limits{}))
			defer l.stop()
			var joined sync.WaitGroup
			for k := range 100 {
				joined.Go(func() {
					for i := range 100 {
						if _, err := l.Do(
							context.Background(), register(fmt.Sprintf("n%02d-%02d", k, i), 1),
						); err != nil {
							b.Error(err)
						}
					}
				})
			}
			joined.Wait()
			l.must(submit(job("filler", 100_000)))
			l.settle()
			ctx, cancel := context.WithCancel(context.Background())
			var asking sync.WaitGroup
			var asked sync.Map
			for k := range callers {
				asking.Go(func() {
					n := 0
					for ; ctx.Err() == nil; n++ {
						if _, err := l.Do(ctx, place(job("asked", 1000), "", 0)); err != nil && ctx.Err() == nil {
							b.Error(err)
						}
					}
					asked.Store(k, n)
				})
			}
			var took []time.Duration
			n := 0
			for b.Loop() {
				began := time.Now()
				l.must(submit(job(fmt.Sprintf("s%d-%d", callers, n), 1)))
				took = append(took, time.Since(began))
				n++
			}
			cancel()
			asking.Wait()
			answers := 0
			asked.Range(func(_, n any) bool {
				answers += n.(int)
				return true
			})
			slices.Sort(took)
			b.ReportMetric(milliseconds(took[len(took)/2]), "median-ms")
			b.ReportMetric(milliseconds(took[len(took)*99/100]), "p99-ms")
			b.ReportMetric(float64(answers), "answers")
		})
	}
}
