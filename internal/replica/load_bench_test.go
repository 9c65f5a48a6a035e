package replica

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// benchTask is a task of a fleet in use: four of five run, the others have ended.
func benchTask(i int) wire.Mutation {
	t := plimsoll.Task{
		Job: fmt.Sprintf("analytics-%05d", i/100), Group: "map", Index: int32(i % 100), Attempt: 1,
		State: plimsoll.TaskRunning, Node: fmt.Sprintf("node-%04d", i%2000), Created: 1.7e18 + int64(i),
		Bound: 1.7e18 + int64(i) + 1, Started: 1.7e18 + int64(i) + 2, Revision: uint64(i),
	}
	m := wire.Mutation{Kind: wire.KindTask, Key: wire.TaskKey(t.Job, t.Group, t.Index), Node: t.Node}
	if i%5 == 0 {
		t.State, t.Result, t.Finished, m.Node = plimsoll.TaskFinished, plimsoll.ResultSucceeded, t.Started+1, ""
	}
	m.Value = wire.AppendTask(nil, &t)
	return m
}

// benchParts encodes a snapshot of n tasks as the leader sends it.
func benchParts(b *testing.B, n int) [][]byte {
	b.Helper()
	tables := NewTables()
	for first := 0; first < n; first += 10_000 {
		batch := wire.Batch{Epoch: 1, Revision: 1}
		for i := first; i < min(first+10_000, n); i++ {
			batch.Mutations = append(batch.Mutations, benchTask(i))
		}
		mustApply(tables, &batch)
	}
	var parts [][]byte
	add := func(r *pb.ReplicateResponse) {
		data, err := proto.Marshal(r)
		if err != nil {
			b.Fatal(err)
		}
		parts = append(parts, data)
	}
	snapshot := tables.Snapshot()
	r := newSnapshotReader(snapshot, nil)
	for part := r.next(); part != nil; part = r.next() {
		add(&pb.ReplicateResponse{Kind: &pb.ReplicateResponse_Snapshot{Snapshot: part}})
	}
	add(snapshotEnd(snapshot))
	return parts
}

// BenchmarkLoad is a gateway's load of a snapshot of 1,000,000 tasks with all indexes, from the
// encoded messages to a copy that can be read. Targets: 2.5 s, and a peak of 1.6 times the final
// heap. The final heap is 1.3 times the encoded bytes and over-B/record: at most 200. With a copy,
// from the leader before, all of these count from the copy on.
func BenchmarkLoad(b *testing.B) {
	const tasks = 1_000_000
	parts := benchParts(b, tasks)
	for _, copied := range []bool{false, true} {
		b.Run(fmt.Sprintf("copy=%t", copied), func(b *testing.B) { benchmarkLoad(b, parts, tasks, copied) })
	}
}

func benchmarkLoad(b *testing.B, parts [][]byte, tasks float64, copied bool) {
	var final, peak, cpu, took float64
	for b.Loop() {
		b.StopTimer()
		m, epoch, empty := &mirror{}, uint64(1), heapAfterGC()
		if copied {
			benchLoad(b, m, epoch, parts)
			epoch++
		}
		before := heapAfterGC()
		var highest atomic.Uint64
		stop, stopped := make(chan struct{}), make(chan struct{})
		go watchHeap(&highest, stop, stopped)
		b.StartTimer()
		spent, began := cpuTime(b), time.Now()
		benchLoad(b, m, epoch, parts)
		cpu, took = (cpuTime(b) - spent).Seconds(), time.Since(began).Seconds()
		b.StopTimer()
		close(stop)
		<-stopped
		now := heapAfterGC()
		final = float64(now) - float64(before)
		peak = float64(highest.Load()-empty) / float64(now-empty)
		encoded := float64(m.latest.Bytes())
		b.ReportMetric(final/tasks, "B/record")
		b.ReportMetric(encoded/tasks, "encoded-B/record")
		if !copied {
			b.ReportMetric((final-1.3*encoded)/tasks, "over-B/record")
		}
		runtime.KeepAlive(m)
		b.StartTimer()
	}
	b.ReportMetric(peak, "peak/final")
	b.ReportMetric(cpu, "cpu-s")
	b.ReportMetric(took, "s")
}

// benchLoad lets a mirror take the snapshot of a leader.
func benchLoad(b *testing.B, m *mirror, epoch uint64, parts [][]byte) {
	b.Helper()
	m.open("g")
	step := func(r *pb.ReplicateResponse) {
		if _, err := m.step(r); err != nil {
			b.Fatal(err)
		}
	}
	step(welcomeMsg(epoch, fmt.Sprint("i", epoch), false))
	for _, data := range parts {
		response := &pb.ReplicateResponse{}
		if err := proto.Unmarshal(data, response); err != nil {
			b.Fatal(err)
		}
		step(response)
	}
}

func heapAfterGC() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// watchHeap keeps the highest size of the heap.
func watchHeap(highest *atomic.Uint64, stop <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	for {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		highest.Store(max(highest.Load(), stats.HeapAlloc))
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
