package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/calltest"
	"github.com/plimsoll-dev/plimsoll/internal/loadtest"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
)

// BenchmarkFailover kills the coordinator that leads 30 times, with 100,000 tasks and two warm
// standbys on three members of etcd, all as processes. It measures the time from each kill until
// both gateways answer a strict read and a job is taken in. The lease is the shortest that etcd
// grants. The tasks wait, or they run on 1,000 nodes, which register again with each leader.
func BenchmarkFailover(b *testing.B) {
	const jobs, tasks, kills = 1000, 100, 30
	b.Run("tasks=waiting", func(b *testing.B) {
		c := newFailoverCluster(b, 2*time.Second)
		for i := range jobs {
			waits := calltest.Spec(fmt.Sprintf("waits-%04d", i), "ann", tasks)
			if _, err := c.asked.SubmitJob(b.Context(), waits); err != nil {
				b.Fatal(err)
			}
		}
		c.measureKills(b, kills)
	})
	b.Run("tasks=running", func(b *testing.B) {
		c := newFailoverCluster(b, 2*time.Second)
		// The agent of n1 would really run its tasks, and they would end.
		if _, err := c.asked.SetNodeMode(b.Context(), "n1", plimsoll.NodeCordoned); err != nil {
			b.Fatal(err)
		}
		c.serves()
		l := loadtest.New(b, loadtest.Config{
			Gateways: strings.Split(c.address, ","), Nodes: 1000, Watch: true, Start: true,
		})
		l.SubmitToBound(jobs, tasks)
		c.await("the tasks run", func(context.Context) error {
			if n := l.Running(); n < jobs*tasks {
				return fmt.Errorf("%d tasks run", n)
			}
			return nil
		})
		c.measureKills(b, kills)
	})
}

func (c *failoverCluster) measureKills(b *testing.B, kills int) {
	b.Helper()
	var took []time.Duration
	for b.Loop() {
		for range kills {
			c.standbysAreWarm()
			leader, epoch := c.leads(0), c.last.Epoch
			began := time.Now()
			c.running[leader].kill()
			c.serves()
			c.writes()
			took = append(took, time.Since(began))
			c.leads(epoch)
			c.begin(leader)
		}
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds(), "p50-s")
	b.ReportMetric(took[len(took)-1].Seconds(), "longest-s")
	b.ReportMetric(0, "ns/op")
}

// standbysAreWarm waits until both standbys have been sent all that the leader has committed.
func (c *failoverCluster) standbysAreWarm() {
	c.t.Helper()
	c.await("two standbys are warm", func(ctx context.Context) error {
		_, err := warmLeader(ctx, c.asked, len(coordinatorNames)-1)
		return err
	})
}

// warmLeader returns the leader, once it has sent so many standbys all that it has committed.
func warmLeader(ctx context.Context, asked *client.Client, standbys int) (client.Leader, error) {
	now, err := asked.Leader(ctx)
	if err != nil {
		return now, err
	}
	for _, s := range now.Standbys {
		if s.Revision == now.Revision && s.BehindBytes == 0 {
			standbys--
		}
	}
	if standbys > 0 {
		return now, fmt.Errorf("%d standbys more are to be warm: %+v", standbys, now)
	}
	return now, nil
}

// BenchmarkSubmitToBoundOnEtcd measures the time from the first submit to the last binding that a
// gateway shows, as BenchmarkSubmitToBound of internal/dev does on Pebble. Members of etcd, the
// coordinator and the gateway are processes of this machine.
func BenchmarkSubmitToBoundOnEtcd(b *testing.B) {
	for _, members := range []int{1, 3} {
		for _, load := range []struct{ jobs, tasks int }{{400, 100}, {10_000, 1}} {
			b.Run(fmt.Sprintf("members=%d/jobs-of-%d", members, load.tasks), func(b *testing.B) {
				s := newSite(b)
				var endpoints []string
				for _, m := range etcdtest.StartOnDisks(b, members).Members {
					endpoints = append(endpoints, m.Endpoint)
				}
				leader := "unix:" + s.path("leader")
				start(b, "coordinator", "--data", s.path("c"), "--listen", leader, "--archive", "none",
					"--etcd", strings.Join(endpoints, ",")).says("msg=leading")
				start(b, "gateway", "--data", s.path("g"), "--leader", leader, "--listen", s.address,
					"--archive", "none").says("following the leader")
				l := loadtest.New(b, loadtest.Config{Gateways: []string{s.address}, Nodes: 1000})
				b.ResetTimer()
				for range b.N {
					l.SubmitToBound(load.jobs, load.tasks)
				}
				b.ReportMetric(float64(b.N*load.jobs*load.tasks)/b.Elapsed().Seconds(), "tasks/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
