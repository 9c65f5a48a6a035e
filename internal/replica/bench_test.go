package replica

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// BenchmarkBarrierIdle measures the wait of a strict read over an eventual one when nothing else
// happens: behind the leader, and behind one relay or two. Target: p50 at most 0.2 ms behind the
// leader.
func BenchmarkBarrierIdle(b *testing.B) {
	for _, test := range []struct {
		network string
		relays  int
	}{{"unix", 0}, {"tcp", 0}, {"tcp", 1}, {"tcp", 2}} {
		b.Run(fmt.Sprintf("%s/relays=%d", test.network, test.relays), func(b *testing.B) {
			leader := startLeader(b, test.network, "", SourceConfig{})
			parent := leader.address
			for i := range test.relays {
				parent = startRelay(b, fmt.Sprint("relay", i), "127.0.0.1:0", parent, FollowerConfig{}).address
			}
			f, _ := startFollower(b, FollowerConfig{Leader: parent})
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

// BenchmarkSyncs measures what the strict reads of one gateway cost its leader: the syncs that it
// answers, and the reads that share each of them.
func BenchmarkSyncs(b *testing.B) {
	for _, readers := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			leader := startLeader(b, "tcp", "", SourceConfig{})
			f, _ := startFollower(b, FollowerConfig{Leader: leader.address})
			ctx := testContext(b)
			mustReady(ctx, b, f)
			syncs := func() uint64 {
				f.mu.Lock()
				defer f.mu.Unlock()
				return f.mu.pending.lastID // no command is sent
			}
			for b.Loop() {
				var reads atomic.Int64
				var group sync.WaitGroup
				before, began := syncs(), time.Now()
				for range readers {
					group.Go(func() {
						for time.Since(began) < 2*time.Second {
							if _, err := f.Barrier(ctx); err != nil {
								b.Error(err)
								return
							}
							reads.Add(1)
						}
					})
				}
				group.Wait()
				sent, took := float64(syncs()-before), time.Since(began).Seconds()
				b.ReportMetric(sent/took, "syncs/s")
				b.ReportMetric(float64(reads.Load())/took, "reads/s")
				b.ReportMetric(float64(reads.Load())/sent, "reads/sync")
			}
		})
	}
}

// BenchmarkPublish measures the leader's cost of a batch of 100 tasks among 100,000: encode, apply,
// snapshot, and wake the streams. With followers, their work is in it too, for they share the
// machine.
func BenchmarkPublish(b *testing.B) {
	for _, followers := range []int{0, 4} {
		b.Run(fmt.Sprintf("followers=%d", followers), func(b *testing.B) {
			leader := startLeader(b, "unix", "", SourceConfig{})
			ctx := testContext(b)
			const tasks, batch = 100_000, 100
			key := func(i int) string { return wire.TaskKey(fmt.Sprint("job-", i/batch), "map", int32(i%batch)) }
			value := make([]byte, 120)
			for i := 0; i < tasks; i += batch {
				leader.publish(taskBatch(key, value, i, batch)...)
			}
			var all []*Follower
			for i := range followers {
				f, _ := startFollower(b, FollowerConfig{Leader: leader.address, Gateway: fmt.Sprint("g", i)})
				mustReady(ctx, b, f)
				all = append(all, f)
			}
			b.ReportAllocs()
			n, cpu := 0, cpuTime(b)
			for b.Loop() {
				leader.publish(taskBatch(key, value, n*batch%tasks, batch)...)
				// a leader that nothing slows down would leave them behind, and they would begin
				// anew
				if n++; n%100 == 0 {
					catchUp(ctx, b, all)
				}
			}
			catchUp(ctx, b, all)
			b.ReportMetric(float64(cpuTime(b)-cpu)/float64(n*batch), "cpu-ns/mutation")
		})
	}
}

// catchUp waits until the followers have everything.
func catchUp(ctx context.Context, b *testing.B, followers []*Follower) {
	b.Helper()
	for _, f := range followers {
		if _, err := f.Barrier(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// cpuTime returns the processor time that the process has used: on a machine with other load the
// elapsed time says little.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func taskBatch(key func(int) string, value []byte, first, count int) []wire.Mutation {
	mutations := make([]wire.Mutation, count)
	for i := range mutations {
		mutations[i] = wire.Mutation{
			Kind: wire.KindTask, Key: key(first + i), Value: value, Node: fmt.Sprint("node-", i%10),
		}
	}
	return mutations
}

// BenchmarkSnapshotTransfer is the time from a first connection to a copy of 100,000 tasks that is
// live.
func BenchmarkSnapshotTransfer(b *testing.B) {
	leader := startLeader(b, "unix", "", SourceConfig{})
	ctx := testContext(b)
	key := func(i int) string { return wire.TaskKey("job", "map", int32(i)) }
	leader.publish(taskBatch(key, make([]byte, 120), 0, 100_000)...)
	for b.Loop() {
		f, stop := startFollower(b, FollowerConfig{Leader: leader.address})
		mustReady(ctx, b, f)
		stop()
	}
}
