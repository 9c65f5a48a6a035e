package informer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll/informer"
)

// object is a record of the size of a small Kubernetes object; its key is kept in it.
type object struct {
	key   string
	value int
	_     [28]uintptr
}

func benchQueue(b testing.TB, maxBytes int) *informer.DeltaFIFO[*object] {
	q, err := informer.NewDeltaFIFO(informer.FIFOConfig[*object]{
		Key:          func(o *object) (string, error) { return o.key, nil },
		Size:         func(*object) int { return 256 },
		EmitReplaced: true,
		MaxBytes:     maxBytes,
	})
	if err != nil {
		b.Fatal(err)
	}
	return q
}

func benchObjects(n int) []*object {
	objects := make([]*object, n)
	for i := range objects {
		objects[i] = &object{key: fmt.Sprintf("namespace-%d/name-%d", i%17, i), value: i}
	}
	return objects
}

var depths = []int{1_000, 100_000}

// BenchmarkFIFOPingPong adds one key and pops it.
func BenchmarkFIFOPingPong(b *testing.B) {
	q, objects := benchQueue(b, 0), benchObjects(1024)
	process := func(informer.Deltas[*object]) error { return nil }
	ctx := context.Background()
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if q.Add(objects[i&1023]) != nil || q.Pop(ctx, process) != nil {
			b.Fatal("refused")
		}
		i++
	}
}

// BenchmarkFIFOSequential adds all keys and then pops all; one operation is one Add and one Pop.
func BenchmarkFIFOSequential(b *testing.B) {
	for _, n := range depths {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			q, objects := benchQueue(b, 1<<30), benchObjects(n)
			process := func(informer.Deltas[*object]) error { return nil }
			ctx := context.Background()
			b.ReportAllocs()
			for i := 0; i < b.N; i += n {
				for _, o := range objects {
					if q.Add(o) != nil {
						b.Fatal("refused")
					}
				}
				for range objects {
					if q.Pop(ctx, process) != nil {
						b.Fatal("refused")
					}
				}
			}
		})
	}
}

// BenchmarkFIFODrain adds all keys and drains them; one operation is one key.
func BenchmarkFIFODrain(b *testing.B) {
	for _, n := range depths {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			q, objects := benchQueue(b, 1<<30), benchObjects(n)
			seen := 0
			process := func(batch informer.Batch[*object]) error {
				for d := range batch.All() {
					seen += len(d.Changes)
				}
				return nil
			}
			ctx := context.Background()
			b.ReportAllocs()
			for i := 0; i < b.N; i += n {
				for _, o := range objects {
					if q.Add(o) != nil {
						b.Fatal("refused")
					}
				}
				if q.Drain(ctx, process) != nil {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkFIFOConcurrent has producers beside one consumer; one operation is one change delivered.
func BenchmarkFIFOConcurrent(b *testing.B) {
	for _, way := range []string{"pop", "drain"} {
		for _, n := range depths {
			for _, producers := range []int{1, 4} {
				b.Run(fmt.Sprintf("%s/keys=%d/producers=%d", way, n, producers), func(b *testing.B) {
					concurrently(b, way == "drain", producers, benchObjects(n))
				})
			}
		}
	}
}

func concurrently(b *testing.B, drain bool, producers int, objects []*object) {
	q := benchQueue(b, 1<<30)
	ctx := context.Background()
	each := (b.N + producers - 1) / producers
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for i := range each {
				if q.Update(objects[(i+p*len(objects)/producers)%len(objects)]) != nil {
					panic("refused")
				}
			}
		})
	}
	for left := each * producers; left > 0; {
		var err error
		if drain {
			err = q.Drain(ctx, func(informer.Batch[*object]) error { return nil })
			s := q.Stats()
			left = each*producers - int(s.Queued) + s.Changes
		} else {
			err = q.Pop(ctx, func(d informer.Deltas[*object]) error {
				left -= len(d.Changes)
				return nil
			})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	all.Wait()
}

// BenchmarkFIFOReplace lays a list over an empty queue, over itself, and half of it over itself.
func BenchmarkFIFOReplace(b *testing.B) {
	const n = 100_000
	objects := benchObjects(n)
	for _, c := range []struct {
		name string
		list []*object
	}{{"again", objects}, {"half-gone", objects[:n/2]}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				q := benchQueue(b, 0)
				if err := q.Replace(objects, informer.Version{}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := q.Replace(c.list, informer.Version{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := benchQueue(b, 0).Replace(objects, informer.Version{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
