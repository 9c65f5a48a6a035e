// Package loadtest puts a cluster under load in a benchmark: nodes without agents, and users that
// submit jobs at the same time.
//
// It owns its calls and goroutines, which end with the benchmark. Benchmarks of whole clusters call
// it. It costs one goroutine for each node that follows its assignments, and one for each of 64
// submitters.
package loadtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	submitters = 64
	atOnce     = 64 // calls for nodes
)

// Config describes a load.
type Config struct {
	Gateways  []string      // the nodes are spread over them, and users call the first
	Nodes     int           // registered over the RPC of agents, and kept alive with heartbeats
	Watch     bool          // each node follows its assignments, as an agent does
	Start     bool          // with Watch: it also reports each bound task as running, and comes back after a failover
	Heartbeat time.Duration // from one of a node to the next; 0: 4 s
}

// Load is the load of a cluster. It lasts until the benchmark ends.
type Load struct {
	tb     testing.TB
	cfg    Config
	agents []plimsollv1connect.AgentServiceClient // of each gateway
	client *client.Client
	rounds int

	registrations atomic.Int64
	running       atomic.Int64
}

// New registers the nodes. A node that its gateway does not know any more registers again.
func New(tb testing.TB, cfg Config) *Load {
	tb.Helper()
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 4 * time.Second
	}
	users, err := client.New(client.Config{Server: cfg.Gateways[0]})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(users.Close)
	l := &Load{tb: tb, cfg: cfg, client: users}
	for _, url := range cfg.Gateways {
		httpClient, base, err := transport.Client(url)
		if err != nil {
			tb.Fatal(err)
		}
		transport.SendToken(httpClient, token.Finder{Kind: token.Agent}.For(url))
		tb.Cleanup(httpClient.CloseIdleConnections)
		l.agents = append(l.agents, plimsollv1connect.NewAgentServiceClient(httpClient, base))
	}
	ctx, cancel := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	tb.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			tb.Errorf("the load ended: %v", err)
		}
	})
	first, registering := errgroup.WithContext(ctx)
	first.SetLimit(atOnce)
	for i := range cfg.Nodes {
		first.Go(func() error { return l.register(registering, i) })
	}
	if err := first.Wait(); err != nil {
		tb.Fatal(err)
	}
	for i := range cfg.Nodes {
		if cfg.Watch {
			g.Go(func() error { return l.follow(ctx, i) })
		}
	}
	g.Go(func() error { return l.beat(ctx) })
	return l
}

// Registrations returns how many registrations of nodes were acknowledged so far.
func (l *Load) Registrations() int64 { return l.registrations.Load() }

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

func (l *Load) register(ctx context.Context, i int) error {
	node := plimsoll.Node{
		ID: nodeName(i), Address: "127.0.0.1:1", Incarnation: 1,
		Capacity: plimsoll.Resources{"cpu": 64_000, "memory": 256 << 30, "disk": 4 << 40},
	}
	request := &pb.RegisterNodeRequest{Node: wire.NodeToProto(&node)}
	if _, err := l.agents[i%len(l.agents)].RegisterNode(ctx, connect.NewRequest(request)); err != nil {
		return fmt.Errorf("register %s: %w", node.ID, err)
	}
	l.registrations.Add(1)
	return nil
}

// passes reports whether an error is that of a leader that went away. The call is repeated then.
func passes(ctx context.Context, err error) bool {
	code := plimsoll.CodeOf(wire.FromReadError(ctx, err))
	return code == plimsoll.CodeUnavailable || code == plimsoll.CodeOutcomeUnknown
}

// beat sends the heartbeats of all nodes, most atOnce at the same time. While nobody leads they may
// fail.
func (l *Load) beat(ctx context.Context) error {
	tick := time.NewTicker(l.cfg.Heartbeat / time.Duration(l.cfg.Nodes))
	defer tick.Stop()
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := 0; ; i = (i + 1) % l.cfg.Nodes {
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-tick.C:
		}
		g.Go(func() error {
			beat := &pb.HeartbeatRequest{Node: nodeName(i), Incarnation: 1}
			known, err := l.agents[i%len(l.agents)].Heartbeat(ctx, connect.NewRequest(beat))
			if err == nil && !known.Msg.GetRegistered() {
				err = l.register(ctx, i)
			}
			if ctx.Err() != nil || passes(ctx, err) {
				return nil
			}
			return err
		})
	}
}

// Running returns how many tasks were reported as running so far, each once.
func (l *Load) Running() int64 { return l.running.Load() }

// follow keeps a stream of the node's assignments. While nobody leads it may break off.
func (l *Load) follow(ctx context.Context, i int) error {
	redial := plimsoll.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second} // as an agent's
	var sequence uint64
	failures, reported := 0, map[string]bool{}
	for {
		received, err := l.followOnce(ctx, i, &sequence, reported)
		if failures++; received {
			failures = 1
		}
		if ctx.Err() == nil && (!l.cfg.Start || !passes(ctx, err)) {
			return fmt.Errorf("follow the assignments of %s: %w", nodeName(i), err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(redial.Jittered(failures, rand.Int64N)):
		}
	}
}

func (l *Load) followOnce(
	ctx context.Context, i int, sequence *uint64, reported map[string]bool,
) (received bool, err error) {
	agents, node := l.agents[i%len(l.agents)], nodeName(i)
	stream, err := agents.WatchAssignments(
		ctx, connect.NewRequest(&pb.WatchAssignmentsRequest{Node: node, Incarnation: 1}),
	)
	if err != nil {
		return false, err
	}
	defer func() { _ = stream.Close() }() // nothing was written
	for stream.Receive() {
		if received = true; !l.cfg.Start {
			continue
		}
		*sequence++
		report := &pb.ReportTasksRequest{Node: node, Incarnation: 1, Sequence: *sequence}
		for _, a := range stream.Msg().GetChanged() {
			if t := wire.TaskFromProto(a.GetTask()); t.State == plimsoll.TaskBound && !reported[t.ID] {
				report.Reports = append(report.Reports, &pb.TaskReport{
					Task: t.ID, Attempt: t.Attempt, Uid: a.GetUid(), State: pb.TaskState_TASK_STATE_RUNNING,
					At: time.Now().UnixNano(),
				})
			}
		}
		if len(report.Reports) == 0 {
			continue
		}
		if _, err := agents.ReportTasks(ctx, connect.NewRequest(report)); err != nil {
			return received, err
		}
		for _, r := range report.Reports {
			reported[r.GetTask()] = true
		}
		l.running.Add(int64(len(report.Reports)))
	}
	if err := stream.Err(); err != nil {
		return received, err
	}
	return received, plimsoll.Errorf(plimsoll.CodeUnavailable, "the gateway ended the stream")
}

// SubmitToBound submits jobs from 64 submitters. It returns when a strict read at the gateway shows
// every task on a node, with those of earlier calls. All calls must have the same parameters.
func (l *Load) SubmitToBound(jobs, tasks int) {
	l.tb.Helper()
	next := atomic.Int64{}
	g, ctx := errgroup.WithContext(context.Background())
	for range submitters {
		own, err := client.New(client.Config{Server: l.cfg.Gateways[0]})
		if err != nil {
			l.tb.Fatal(err)
		}
		g.Go(func() error {
			defer own.Close()
			for i := next.Add(1); i <= int64(jobs); i = next.Add(1) {
				if _, err := own.SubmitJob(ctx, plimsoll.JobSpec{
					ID: fmt.Sprintf("load-%d-%d", l.rounds, i), Owner: "alice", Queue: "root.batch",
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
		l.tb.Fatal(err)
	}
	l.rounds++
	want := int32(l.rounds * jobs * tasks)
	bounded, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		queues, err := l.client.Queues(bounded)
		if err != nil {
			l.tb.Fatal(err)
		}
		if queues[0].Running == want && queues[0].Waiting == 0 {
			return
		}
	}
}
