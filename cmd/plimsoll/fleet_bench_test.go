package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/calltest"
	"github.com/plimsoll-dev/plimsoll/internal/loadtest"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// fleetCluster is a member of etcd, two coordinators and many gateways, as processes.
type fleetCluster struct {
	*site
	coordinators map[string]*daemon // by address
	gateways     []string           // their addresses
	asked        *client.Client
}

func newFleetCluster(b *testing.B, gateways int) *fleetCluster {
	b.Helper()
	c := &fleetCluster{site: newSite(b), coordinators: map[string]*daemon{}}
	etcd := etcdtest.Start(b, 1).Members[0].Endpoint
	leaders := []string{"unix:" + c.path("c1"), "unix:" + c.path("c2")}
	for i, address := range leaders {
		c.coordinators[address] = start(b, "coordinator", "--data", c.path(fmt.Sprint("c", i, ".d")),
			"--listen", address, "--etcd", etcd, "--peers", strings.Join(leaders, ","), "--archive", "none",
			"--lease", "2s")
	}
	for i := range gateways {
		address := "unix:" + c.path(fmt.Sprint("g", i))
		c.gateways = append(c.gateways, address)
		start(b, "gateway", "--data", c.path(fmt.Sprint("g", i, ".d")), "--leader", strings.Join(leaders, ","),
			"--listen", address, "--archive", "none").says("following the leader")
	}
	c.asked = c.clientOf(strings.Join(c.gateways, ","))
	return c
}

// warmLeader waits until the leader has sent the standby everything, and returns its address.
func (c *fleetCluster) warmLeader() string {
	c.t.Helper()
	leader := ""
	eventually(c.t, "the standby is warm", func() error {
		now, err := warmLeader(c.t.Context(), c.asked, 1)
		leader = now.Address
		return err
	})
	return leader
}

// metric is the sum of a metric over some processes.
func (c *fleetCluster) metric(name string, addresses ...string) (sum float64) {
	c.t.Helper()
	for _, address := range addresses {
		value, err := strconv.ParseFloat(c.metricOf(address, name), 64)
		if err != nil {
			c.t.Fatalf("%s of %s: %v", name, address, err)
		}
		sum += value
	}
	return sum
}

// failOver kills the leader, and returns the address of the other coordinator.
func (c *fleetCluster) failOver(leader string) (next string) {
	c.t.Helper()
	c.coordinators[leader].kill()
	for address := range c.coordinators {
		if address != leader {
			next = address
		}
	}
	return next
}

// BenchmarkFleetFailover registers 10,000 nodes through 3 gateways. Without work their heartbeats
// reach the leader with no message. Then the leader is killed, and the time is measured until all
// nodes are registered with the next one.
func BenchmarkFleetFailover(b *testing.B) {
	const nodes, watched = 10_000, 10 * time.Second
	for b.Loop() {
		c := newFleetCluster(b, 3)
		l := loadtest.New(b, loadtest.Config{Gateways: c.gateways, Nodes: nodes, Heartbeat: 2 * time.Second})
		leader := c.warmLeader()
		before := c.metric("plimsoll_coordinator_turns_total", leader)
		pause(b.Context(), watched)
		turns := c.metric("plimsoll_coordinator_turns_total", leader) - before
		b.ReportMetric(turns/watched.Seconds(), "turns/s")
		registered, began := l.Registrations(), time.Now()
		c.failOver(leader)
		for l.Registrations() < registered+nodes {
			pause(b.Context(), 10*time.Millisecond)
		}
		b.ReportMetric(time.Since(began).Seconds(), "registered-s")
	}
}

// fleetWatches are watches of the jobs of one owner, some at each gateway.
type fleetWatches struct {
	seen      []atomic.Int32 // by watch: the newest job that it was told, by number
	snapshots atomic.Int64   // that ended
	ended     atomic.Int64   // streams that ended
	wait      sync.WaitGroup
}

func (w *fleetWatches) run(ctx context.Context, i int, at plimsollv1connect.WatchServiceClient) {
	var from *pb.WatchPoint
	for ctx.Err() == nil {
		stream, err := at.WatchJobs(ctx, connect.NewRequest(&pb.WatchJobsRequest{Owner: "prober", From: from}))
		if err != nil {
			pause(ctx, 100*time.Millisecond)
			continue
		}
		for stream.Receive() {
			m := stream.Msg()
			if from = m.GetPoint(); m.GetSnapshotEnd() {
				w.snapshots.Add(1)
			}
			for _, job := range m.GetJobs() {
				if n, err := strconv.Atoi(strings.TrimPrefix(job.GetJob().GetStatus().GetId(), "probe-")); err == nil {
					w.seen[i].Store(int32(n))
				}
			}
		}
		if plimsoll.CodeOf(wire.FromReadError(ctx, stream.Err())) == plimsoll.CodeStale {
			from = nil // the gateway cannot go on from there
		}
		_ = stream.Close() // nothing was written
		w.ended.Add(1)
		pause(ctx, 100*time.Millisecond)
	}
}

// live waits until all watches were told of a job.
func (w *fleetWatches) live(ctx context.Context, job int) {
	for i := range w.seen {
		for w.seen[i].Load() < int32(job) && ctx.Err() == nil {
			pause(ctx, time.Millisecond)
		}
	}
}

// BenchmarkWatchersFailover has 10,000 watches at 50 gateways, and kills the leader. It measures
// the time until all watches are told of a job that is submitted then. It counts the watches and
// the gateways that went on without a snapshot, and compares the memory of the two leaders.
func BenchmarkWatchersFailover(b *testing.B) {
	const gateways, each, perConnection, jobs = 50, 200, 50, 200
	for b.Loop() {
		c := newFleetCluster(b, gateways)
		for i := range jobs {
			waits := calltest.Spec(fmt.Sprint("waits-", i), "ann", 100)
			if _, err := c.asked.SubmitJob(b.Context(), waits); err != nil {
				b.Fatal(err)
			}
		}
		w := &fleetWatches{seen: make([]atomic.Int32, gateways*each)}
		ctx, cancel := context.WithCancel(b.Context())
		var at plimsollv1connect.WatchServiceClient
		for i := range gateways * each {
			if i%perConnection == 0 {
				for w.snapshots.Load() < int64(i) { // not all at once: that would cost the leader its lease
					pause(ctx, time.Millisecond)
				}
				caller, base, err := transport.Client(c.gateways[i/each])
				if err != nil {
					b.Fatal(err)
				}
				at = plimsollv1connect.NewWatchServiceClient(caller, base)
			}
			of := at
			w.wait.Go(func() { w.run(ctx, i, of) })
		}
		c.probe(1)
		w.live(ctx, 1)
		leader := c.warmLeader()
		memory := c.metric("process_resident_memory_bytes", leader)
		resumed := c.metric("plimsoll_gateway_links_resumed_total", c.gateways...)
		w.snapshots.Store(0)
		w.ended.Store(0)
		began := time.Now()
		next := c.failOver(leader)
		c.probe(2)
		w.live(ctx, 2)
		b.ReportMetric(time.Since(began).Seconds(), "live-s")
		resumed = c.metric("plimsoll_gateway_links_resumed_total", c.gateways...) - resumed
		b.ReportMetric(100*resumed/gateways, "%gateways-resumed")
		b.ReportMetric(100-100*float64(w.snapshots.Load())/(gateways*each), "%watches-resumed")
		b.ReportMetric(float64(w.ended.Load()), "streams-ended")
		b.ReportMetric(c.metric("process_resident_memory_bytes", next)/memory, "memory-x")
		cancel()
		w.wait.Wait()
	}
}

// probe submits a job, until it is taken.
func (c *fleetCluster) probe(n int) {
	c.t.Helper()
	eventually(c.t, "a job is taken", func() error {
		_, err := c.asked.SubmitJob(c.t.Context(), calltest.Spec(fmt.Sprint("probe-", n), "prober", 1))
		if code := plimsoll.CodeOf(err); code == plimsoll.CodeConflict || code == plimsoll.CodeAlreadyExists {
			return nil
		}
		return err
	})
}
