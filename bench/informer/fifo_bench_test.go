package informer_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/cache"

	"github.com/plimsoll-dev/plimsoll/informer"
)

// object is as large as a small Kubernetes object. Its key is kept in it, so that neither side pays
// for making one.
type object struct {
	key   string
	value int
	_     [28]uintptr
}

func benchObjects(n int) []*object {
	objects := make([]*object, n)
	for i := range objects {
		objects[i] = &object{key: fmt.Sprintf("namespace-%d/name-%d", i%17, i), value: i}
	}
	return objects
}

// measure begins to measure. The function that it returns reports the processor time of the process
// for an operation, garbage collection included: other programs may use the machine too.
func measure(b *testing.B) func() {
	b.Helper()
	runtime.GC()
	began := processorTime(b)
	b.ResetTimer()
	return func() {
		b.ReportMetric(float64(processorTime(b)-began)/float64(b.N), "cpu-ns/op")
	}
}

func processorTime(b *testing.B) int64 {
	b.Helper()
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return use.Utime.Nano() + use.Stime.Nano()
}

// contender is one of the two queues. take takes one key, or all if the queue can, and returns the
// number of changes that it was given.
type contender struct {
	add  func(*object)
	take func() int
}

func ours(tb testing.TB, drain bool) contender {
	q, err := informer.NewDeltaFIFO(informer.FIFOConfig[*object]{
		Key:          func(o *object) (string, error) { return o.key, nil },
		Size:         func(*object) int { return 256 },
		EmitReplaced: true,
		MaxBytes:     1 << 30,
	})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, n := context.Background(), 0
	pop := func(d informer.Deltas[*object]) error { n = len(d.Changes); return nil }
	all := func(b informer.Batch[*object]) error {
		for d := range b.All() {
			n += len(d.Changes)
		}
		return nil
	}
	return contender{
		add: func(o *object) {
			if err := q.Add(o); err != nil {
				panic(err)
			}
		},
		take: func() int {
			n = 0
			err := error(nil)
			if drain {
				err = q.Drain(ctx, all)
			} else {
				err = q.Pop(ctx, pop)
			}
			if err != nil {
				panic(err)
			}
			return n
		},
	}
}

func clientGo() contender {
	q := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
		KeyFunction:           func(o any) (string, error) { return o.(*object).key, nil },
		EmitDeltaTypeReplaced: true,
	})
	n := 0
	pop := func(o any, _ bool) error { n = len(o.(cache.Deltas)); return nil }
	return contender{
		add: func(o *object) {
			if err := q.Add(o); err != nil {
				panic(err)
			}
		},
		take: func() int {
			if _, err := q.Pop(pop); err != nil {
				panic(err)
			}
			return n
		},
	}
}

func contenders(tb testing.TB) []struct {
	name string
	make func() contender
} {
	return []struct {
		name string
		make func() contender
	}{
		{"client-go", clientGo},
		{"pop", func() contender { return ours(tb, false) }},
		{"drain", func() contender { return ours(tb, true) }},
	}
}

// BenchmarkFIFOAddPop adds all keys and then takes all; one operation is one key.
func BenchmarkFIFOAddPop(b *testing.B) {
	for _, n := range []int{1, 1_000, 100_000} {
		for _, c := range contenders(b) {
			b.Run(fmt.Sprintf("keys=%d/%s", n, c.name), func(b *testing.B) {
				objects, q := benchObjects(n), c.make()
				b.ReportAllocs()
				defer measure(b)()
				for i := 0; i < b.N; i += n {
					for _, o := range objects {
						q.add(o)
					}
					for taken := 0; taken < n; {
						taken += q.take()
					}
				}
			})
		}
	}
}

// BenchmarkFIFODelivered has producers beside one consumer; one operation is one change that was
// added.
func BenchmarkFIFODelivered(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		for _, producers := range []int{1, 4} {
			for _, c := range contenders(b) {
				b.Run(fmt.Sprintf("keys=%d/producers=%d/%s", n, producers, c.name), func(b *testing.B) {
					deliver(b, c.make(), producers, benchObjects(n))
				})
			}
		}
	}
}

// deliver ends when every producer has added its part and the consumer has taken a last key, which
// is added behind all others.
func deliver(b *testing.B, q contender, producers int, objects []*object) {
	each := b.N/producers + 1
	b.ReportAllocs()
	defer measure(b)()
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for i := range each {
				q.add(objects[(i+p*len(objects)/producers)%len(objects)])
			}
		})
	}
	produced := make(chan struct{})
	go func() {
		all.Wait()
		close(produced)
		q.add(&object{key: "last"})
	}()
	for done := false; !done; {
		q.take()
		select {
		case <-produced:
			done = true
		default:
		}
	}
}

// BenchmarkFIFOReplace lays a list of 100,000 objects over a queue that holds it already.
func BenchmarkFIFOReplace(b *testing.B) {
	objects := benchObjects(100_000)
	anys := make([]any, len(objects))
	for i, o := range objects {
		anys[i] = o
	}
	b.Run("client-go", func(b *testing.B) {
		b.ReportAllocs()
		defer measure(b)()
		for range b.N {
			q := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
				KeyFunction: func(o any) (string, error) { return o.(*object).key, nil }, EmitDeltaTypeReplaced: true,
			})
			for range 2 {
				if err := q.Replace(anys, ""); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("plimsoll", func(b *testing.B) {
		b.ReportAllocs()
		defer measure(b)()
		for range b.N {
			q, err := informer.NewDeltaFIFO(informer.FIFOConfig[*object]{
				Key: func(o *object) (string, error) { return o.key, nil }, EmitReplaced: true,
			})
			if err != nil {
				b.Fatal(err)
			}
			for range 2 {
				if err := q.Replace(objects, informer.Version{}); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
