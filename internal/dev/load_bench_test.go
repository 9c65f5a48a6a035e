package dev_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const submitters = 64

// cluster is a coordinator on a real disk and a gateway. A load generator registers its nodes over
// the agents' RPC and keeps them alive with heartbeats.
type cluster struct {
	url    string
	client *client.Client
}

func startCluster(tb testing.TB, nodes int, watch bool) *cluster {
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
	c, err := client.New(client.Config{Server: d.URL()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	registerNodes(ctx, tb, g, d.URL(), nodes, watch)
	return &cluster{url: d.URL(), client: c}
}

func registerNodes(ctx context.Context, tb testing.TB, g *errgroup.Group, url string, nodes int, watch bool) {
	tb.Helper()
	httpClient, base, err := transport.Client(url)
	if err != nil {
		tb.Fatal(err)
	}
	transport.SendToken(httpClient, token.Finder{Kind: token.Agent}.For(url))
	tb.Cleanup(httpClient.CloseIdleConnections)
	agents := plimsollv1connect.NewAgentServiceClient(httpClient, base)
	name := func(i int) string { return fmt.Sprintf("node-%04d", i) }
	for i := range nodes {
		node := plimsoll.Node{
			ID: name(i), Address: "127.0.0.1:1", Incarnation: 1,
			Capacity: plimsoll.Resources{"cpu": 64_000, "memory": 256 << 30, "disk": 4 << 40},
		}
		if _, err := agents.RegisterNode(
			ctx, connect.NewRequest(&pb.RegisterNodeRequest{Node: wire.NodeToProto(&node)}),
		); err != nil {
			tb.Fatal(err)
		}
		if watch {
			g.Go(func() error { return drainAssignments(ctx, agents, node.ID) })
		}
	}
	g.Go(func() error {
		tick := time.NewTicker(4 * time.Second / time.Duration(nodes))
		defer tick.Stop()
		for i := 0; ; i = (i + 1) % nodes {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			beat := &pb.HeartbeatRequest{Node: name(i), Incarnation: 1}
			if _, err := agents.Heartbeat(ctx, connect.NewRequest(beat)); err != nil && ctx.Err() == nil {
				return fmt.Errorf("heartbeat of %s: %w", name(i), err)
			}
		}
	})
}

func drainAssignments(ctx context.Context, agents plimsollv1connect.AgentServiceClient, node string) error {
	stream, err := agents.WatchAssignments(
		ctx, connect.NewRequest(&pb.WatchAssignmentsRequest{Node: node, Incarnation: 1}),
	)
	for err == nil && stream.Receive() {
		continue // an agent would start the new assignments
	}
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		err = stream.Err()
	}
	return fmt.Errorf("watch the assignments of %s: %w", node, err)
}

// submitAll submits jobs from 64 submitters and returns when a strict read at the gateway shows
// every task on a node.
func (c *cluster) submitAll(tb testing.TB, round, jobs, tasks int) {
	tb.Helper()
	ctx := context.Background()
	next := atomic.Int64{}
	g, ctx := errgroup.WithContext(ctx)
	for range submitters {
		own, err := client.New(client.Config{Server: c.url})
		if err != nil {
			tb.Fatal(err)
		}
		g.Go(func() error {
			defer own.Close()
			for i := next.Add(1); i <= int64(jobs); i = next.Add(1) {
				if _, err := own.SubmitJob(ctx, plimsoll.JobSpec{
					ID: fmt.Sprintf("load-%d-%d", round, i), Owner: "alice", Queue: "root.batch",
					Groups: []plimsoll.GroupSpec{{
						Name: "work", Count: int32(tasks), Command: []string{"sleep", "60"},
						Resources: plimsoll.Resources{"cpu": 10, "memory": 32 << 20},
					}},
				}); err != nil {
					return fmt.Errorf("submit: %w", err)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		tb.Fatal(err)
	}
	want := int32((round + 1) * jobs * tasks)
	bounded, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		queues, err := c.client.Queues(bounded)
		if err != nil {
			tb.Fatal(err)
		}
		if queues[0].Running == want && queues[0].Waiting == 0 {
			return
		}
	}
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
			c := startCluster(b, 1000, load.watch)
			b.ResetTimer()
			for round := range b.N {
				c.submitAll(b, round, load.jobs, load.tasks)
			}
			b.ReportMetric(float64(b.N*load.jobs*load.tasks)/b.Elapsed().Seconds(), "tasks/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
