package pebble

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const benchRecord = 512

// BenchmarkCommit commits batches of records of 512 bytes, each synced to the disk. It varies the
// number of batches under way at a time.
func BenchmarkCommit(b *testing.B) {
	for _, records := range []int{1, 100} {
		for _, under := range []int{1, 4, 64} {
			b.Run(
				fmt.Sprintf("records=%d/pipelined=%d", records, under),
				func(b *testing.B) { benchCommit(b, records, under) },
			)
		}
	}
}

func benchCommit(b *testing.B, records, under int) {
	s := mustOpen(b, Config{Dir: b.TempDir()})
	defer mustClose(b, s)
	batch := benchBatch(lead(b, s), records)
	queue := make(chan store.Pending, under-1) // the batch that is waited for is under way too
	done := make(chan error, 1)
	go func() {
		var failed error
		for p := range queue {
			if err := p.Wait(); err != nil && failed == nil {
				failed = err
			}
		}
		done <- failed
	}()
	b.SetBytes(int64(records * benchRecord))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		batch.Revision = uint64(i + 1)
		for j := range batch.Mutations {
			batch.Mutations[j].Key = wire.TaskKey("job", "group", int32((i*records+j)%100_000))
		}
		p, err := s.Commit(batch)
		if err != nil {
			b.Fatal(err)
		}
		queue <- p
	}
	close(queue)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "records/s")
}

func benchBatch(epoch uint64, records int) *wire.Batch {
	rng := rand.New(rand.NewPCG(1, 1))
	batch := &wire.Batch{Epoch: epoch, Mutations: make([]wire.Mutation, records)}
	for j := range batch.Mutations {
		value := make([]byte, benchRecord)
		for i := range value {
			value[i] = byte('a' + rng.IntN(16))
		}
		batch.Mutations[j] = wire.Mutation{Kind: wire.KindTask, Value: value}
	}
	return batch
}

// BenchmarkOpenAndLoad opens and loads a store of 100,000 records of 512 bytes.
func BenchmarkOpenAndLoad(b *testing.B) {
	const records, perBatch = 100_000, 1000
	dir := b.TempDir()
	s := mustOpen(b, Config{Dir: dir})
	batch := benchBatch(lead(b, s), perBatch)
	for r := range records / perBatch {
		batch.Revision = uint64(r + 1)
		for j := range batch.Mutations {
			batch.Mutations[j].Key = wire.TaskKey("job", "group", int32(r*perBatch+j))
		}
		p, err := s.Commit(batch)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	mustClose(b, s)
	for b.Loop() {
		s := mustOpen(b, Config{Dir: dir})
		n := 0
		_, _, err := s.Load(
			b.Context(), func(wire.Kind, string, []byte) error { n++; return nil },
			func(uint64, wire.EventChunk) error { return nil },
		)
		if err != nil || n != records {
			b.Fatalf("%d records, %v", n, err)
		}
		mustClose(b, s)
	}
}
