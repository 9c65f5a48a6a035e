package coordinator

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// stores open an empty store of each kind.
var stores = map[string]func(b *testing.B) (store.Store, error){
	"pebble": func(b *testing.B) (store.Store, error) { return pebble.Open(pebble.Config{Dir: b.TempDir()}) },
	"etcd": func(b *testing.B) (store.Store, error) {
		cluster := etcdtest.Start(b, 1, "--quota-backend-bytes=8000000000")
		return etcd.Open(b.Context(), etcd.Config{
			Endpoints: cluster.Endpoints(), Prefix: "/bench/", TTL: time.Minute,
		})
	},
}

// storeOfTasks returns a store with jobs of 100 waiting tasks each, and a standby's copy of it.
func storeOfTasks(b *testing.B, kind string, tasks int) (store.Store, *replica.Tables) {
	b.Helper()
	st, err := stores[kind](b)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := st.Close(); err != nil {
			b.Error(err)
		}
	})
	epoch, err := st.Lead(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	tree := plimsoll.DefaultQueues()
	var events ring.Encoder // a copy without an event cannot be used
	events.Append(&plimsoll.Event{Type: plimsoll.EventQueue, Change: plimsoll.ChangeAdd, Object: "root"})
	batch := &wire.Batch{
		Epoch: epoch, Events: wire.EventChunk{Count: 1, Data: events.Finish(nil)}, Mutations: []wire.Mutation{
			{Kind: wire.KindQueueConfig, Value: wire.AppendQueueConfig(nil, &tree)},
			{Kind: wire.KindEventIDs, Value: wire.AppendEventIDs(nil, wire.EventIDs{Instance: "bench"})},
		},
	}
	tables := replica.NewTables()
	flush := func() {
		batch.Revision++
		batch.Time = int64(batch.Revision)
		pending, err := st.Commit(batch)
		if err == nil {
			err = pending.Wait()
		}
		if err == nil {
			err = tables.Apply(batch)
		}
		if err != nil {
			b.Fatal(err)
		}
		batch = &wire.Batch{Epoch: epoch, Revision: batch.Revision}
	}
	const perJob = 100
	for j := range tasks / perJob {
		spec := job(fmt.Sprintf("job-%06d", j), perJob)
		status := plimsoll.JobStatus{
			ID: spec.ID, State: plimsoll.JobAccepted, Queue: spec.Queue, Submitted: int64(j + 1),
			UID: plimsoll.MakeUID(int64(j+1), 0),
		}
		batch.Mutations = append(batch.Mutations,
			wire.Mutation{Kind: wire.KindJobSpec, Key: spec.ID, Value: wire.AppendJobSpec(nil, spec)},
			wire.Mutation{Kind: wire.KindJobStatus, Key: spec.ID, Value: wire.AppendJobStatus(nil, &status)},
		)
		for i := range int32(perJob) {
			task := plimsoll.Task{
				Job: spec.ID, Group: "work", Index: i, State: plimsoll.TaskPending, Attempt: 1, Created: int64(j + 1),
			}
			batch.Mutations = append(batch.Mutations, wire.Mutation{
				Kind: wire.KindTask, Key: wire.TaskKey(spec.ID, "work", i), Value: wire.AppendTask(nil, &task),
			})
		}
		if len(batch.Mutations) > st.Limits().Ops*3/4 {
			flush()
		}
	}
	flush()
	return st, tables
}

// BenchmarkTakeover measures the time from leadership to the first turn: with a complete copy of
// the leader's records, and with none.
//
//	go test ./internal/coordinator -run '^$' -bench Takeover -benchtime 3x
func BenchmarkTakeover(b *testing.B) {
	for _, kind := range slices.Sorted(maps.Keys(stores)) {
		for _, tasks := range []int{100_000, 1_000_000} {
			name := fmt.Sprintf("store=%s/tasks=%d", kind, tasks)
			b.Run(name, func(b *testing.B) { benchmarkTakeover(b, kind, tasks) })
		}
	}
}

func benchmarkTakeover(b *testing.B, kind string, tasks int) {
	st, copied := storeOfTasks(b, kind, tasks)
	c, err := New(Config{Listen: "127.0.0.1:0"}, only(st))
	if err != nil {
		b.Fatal(err)
	}
	for _, warm := range []bool{true, false} {
		b.Run(fmt.Sprintf("copy=%t", warm), func(b *testing.B) {
			for b.Loop() {
				from := stored{read: st.Load}
				if warm {
					b.StopTimer()
					own := copyOf(b, copied.Snapshot())
					b.StartTimer()
					var ok bool
					if from, ok = afterCopy(context.Background(), st, own, math.MaxUint64); !ok {
						b.Fatal("the copy cannot be used")
					}
				}
				if _, err := c.enter(context.Background(), st, from, 2); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(copied.Snapshot().Bytes())/(1<<20), "copied-MiB")
		})
	}
}

// copyOf returns the tables of another standby with the same copy.
func copyOf(b *testing.B, s *replica.Snapshot) *replica.Tables {
	b.Helper()
	copied := replica.Replace(nil)
	for chunk := range s.Events().Chunks() {
		events := wire.EventChunk{FirstID: chunk.FirstID, Count: chunk.Count, Data: chunk.Data}
		if err := copied.Tables().Apply(&wire.Batch{Events: events}); err != nil {
			b.Fatal(err)
		}
	}
	var records []wire.Mutation
	for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
		for key, value := range s.Scan(kind, "", "") {
			records = append(records, wire.Mutation{Kind: kind, Key: key, Value: value})
		}
	}
	if err := copied.Put(records); err != nil {
		b.Fatal(err)
	}
	if err := copied.Complete(s.Version(), s.Time()); err != nil {
		b.Fatal(err)
	}
	return copied.Tables()
}
