package dev_test

import (
	"context"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll/internal/dev"
	"github.com/plimsoll-dev/plimsoll/internal/loadtest"
)

// startCluster starts a coordinator on a real disk and a gateway, and returns the gateway's URL.
func startCluster(tb testing.TB) string {
	tb.Helper()
	d, err := dev.New(dev.Config{Data: tb.TempDir(), Listen: "127.0.0.1:0", NoAgent: true})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.Run(ctx) })
	tb.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			tb.Errorf("the cluster ended: %v", err)
		}
	})
	if err := d.Ready(ctx); err != nil {
		tb.Fatal(err)
	}
	return d.URL()
}

// BenchmarkSubmitToBound measures the time from the first submit to the last binding that a gateway
// shows, durable and through the coordinator. The rounds use the same cluster, so it is not empty.
func BenchmarkSubmitToBound(b *testing.B) {
	for _, load := range []struct {
		name        string
		jobs, tasks int
		watch       bool
	}{
		{"jobs-of-100", 400, 100, false},
		{"jobs-of-1", 10_000, 1, false},
		{"jobs-of-100/agents-watch", 400, 100, true},
	} {
		b.Run(load.name, func(b *testing.B) {
			l := loadtest.New(b, loadtest.Config{Gateways: []string{startCluster(b)}, Nodes: 1000, Watch: load.watch})
			b.ResetTimer()
			for range b.N {
				l.SubmitToBound(load.jobs, load.tasks)
			}
			b.ReportMetric(float64(b.N*load.jobs*load.tasks)/b.Elapsed().Seconds(), "tasks/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
