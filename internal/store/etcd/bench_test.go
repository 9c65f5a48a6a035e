package etcd

import (
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// BenchmarkCommit commits batches of records of 300 bytes, with some under way at a time.
func BenchmarkCommit(b *testing.B) {
	for _, members := range []int{1, 3} {
		cluster := etcdtest.Start(b, members)
		for _, tc := range []struct{ under, records int }{{1, 10}, {4, 10}, {4, 1000}} {
			b.Run(fmt.Sprintf("members=%d/under=%d/records=%d", members, tc.under, tc.records), func(b *testing.B) {
				benchmarkCommit(b, openStore(b, config(cluster)), tc.under, tc.records)
			})
		}
	}
}

func benchmarkCommit(b *testing.B, s *Store, under, records int) {
	epoch := leadStore(b, s)
	value := make([]byte, 300)
	waiting := make([]store.Pending, 0, under)
	wait := func() {
		if err := waiting[0].Wait(); err != nil {
			b.Fatal(err)
		}
		waiting = waiting[1:]
	}
	revision := uint64(0)
	for b.Loop() {
		revision++
		batch := &wire.Batch{Epoch: epoch, Revision: revision}
		for i := range records {
			batch.Mutations = append(batch.Mutations, wire.Mutation{
				Kind: wire.KindTask, Key: fmt.Sprintf("job/group/%d", (int(revision)*records+i)%100_000), Value: value,
			})
		}
		if len(waiting) == under {
			wait()
		}
		p, err := s.Commit(batch)
		if err != nil {
			b.Fatal(err)
		}
		waiting = append(waiting, p)
	}
	for len(waiting) > 0 {
		wait()
	}
	b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "records/s")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLoad loads stores of records of 300 bytes. Its time is that of etcd and of the reading,
// without the building of the state.
func BenchmarkLoad(b *testing.B) {
	for _, records := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) { benchmarkLoad(b, records) })
	}
}

func benchmarkLoad(b *testing.B, records int) {
	const perBatch = 2000
	cluster := etcdtest.Start(b, 1, "--quota-backend-bytes=8000000000")
	cfg := config(cluster)
	cfg.TTL = time.Minute // the writing of so much is not what is measured
	s := openStore(b, cfg)
	epoch := leadStore(b, s)
	value := make([]byte, 300)
	for r := range records / perBatch {
		batch := &wire.Batch{Epoch: epoch, Revision: uint64(r + 1)}
		for i := range perBatch {
			batch.Mutations = append(batch.Mutations, wire.Mutation{
				Kind: wire.KindTask, Key: fmt.Sprintf("job/group/%d", r*perBatch+i), Value: value,
			})
		}
		mustCommit(b, s, batch)
	}
	for b.Loop() {
		n := 0
		count := func(wire.Kind, string, []byte) error { n++; return nil }
		_, _, err := s.Load(b.Context(), count, func(uint64, wire.EventChunk) error { return nil })
		if err != nil || n != records {
			b.Fatalf("%d records, %v", n, err)
		}
	}
	b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "records/s")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
