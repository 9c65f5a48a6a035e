package informer

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/cache"

	"github.com/plimsoll-dev/plimsoll/informer"
)

// pod is an object with a value in each of two indexes.
type pod struct {
	key, node, owner string
	revision         int
}

const (
	pods  = 100_000
	nodes = 1000 // so 100 pods have the same value
)

func podAt(i int) *pod {
	return &pod{
		key:  fmt.Sprintf("namespace-%03d/pod-%08d", i%100, i),
		node: "node-" + strconv.Itoa(i%nodes), owner: "owner-" + strconv.Itoa(i%100),
	}
}

// store is ours or the peer's.
type store struct {
	update  func(*pod)
	replace func(map[string]*pod)
	list    func() int            // reads all objects
	byNode  func(node string) int // reads those of a node
	get     func(key string) int
}

var stores = []struct {
	name string
	made func(testing.TB) store
}{{"plimsoll", ours}, {"client-go", peers}}

func ours(t testing.TB) store {
	x, err := informer.NewIndexer(informer.IndexerConfig[*pod]{Indexes: []informer.Index[*pod]{
		{Name: "node", Values: func(p *pod, to []string) ([]string, error) { return append(to, p.node), nil }},
		{Name: "owner", Values: func(p *pod, to []string) ([]string, error) { return append(to, p.owner), nil }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return store{
		update: func(p *pod) {
			change := informer.Change[*pod]{Key: p.key, Object: p}
			if err := x.Apply([]informer.Change[*pod]{change}, informer.Version{}); err != nil {
				t.Error(err)
			}
		},
		replace: func(all map[string]*pod) {
			if err := x.Replace(func(yield func(string, *pod) bool) {
				for key, p := range all {
					if !yield(key, p) {
						return
					}
				}
			}, informer.Version{}); err != nil {
				t.Error(err)
			}
		},
		list: func() (sum int) {
			for _, p := range x.Snapshot().All() {
				sum += p.revision
			}
			return sum
		},
		get: func(key string) int {
			p, _ := x.Snapshot().Get(key)
			return p.revision
		},
		byNode: func(node string) (sum int) {
			found, err := x.Snapshot().ByIndex("node", node)
			if err != nil {
				t.Error(err)
				return 0
			}
			for _, p := range found {
				sum += p.revision
			}
			return sum
		},
	}
}

func peers(t testing.TB) store {
	x := cache.NewThreadSafeStore(cache.Indexers{
		"node":  func(o any) ([]string, error) { return []string{o.(*pod).node}, nil },
		"owner": func(o any) ([]string, error) { return []string{o.(*pod).owner}, nil },
	}, cache.Indices{})
	return store{
		update: func(p *pod) { x.Update(p.key, p) },
		replace: func(all map[string]*pod) {
			objects := make(map[string]any, len(all))
			for key, p := range all {
				objects[key] = p
			}
			x.Replace(objects, "")
		},
		list: func() (sum int) {
			for _, o := range x.List() {
				sum += o.(*pod).revision
			}
			return sum
		},
		get: func(key string) int {
			o, _ := x.Get(key)
			return o.(*pod).revision
		},
		byNode: func(node string) (sum int) {
			found, err := x.ByIndex("node", node)
			if err != nil {
				t.Error(err)
				return 0
			}
			for _, o := range found {
				sum += o.(*pod).revision
			}
			return sum
		},
	}
}

func filled(t testing.TB, made func(testing.TB) store) store {
	s := made(t)
	for i := range pods {
		s.update(podAt(i))
	}
	return s
}

// threadTime returns the processor time of the calling thread.
func threadTime(t testing.TB) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkStoreUpdate updates random objects while others read without a pause: all objects, or
// those of a node. moves: the update changes an index value. cpu-ns/op is the time of the writer's
// own thread, so that the readers' share of the processors is not in it; ns/op has it.
func BenchmarkStoreUpdate(b *testing.B) {
	for _, test := range []struct {
		readers int
		reads   string
		moves   bool
	}{
		{0, "none", false},
		{0, "none", true},
		{4, "node", false},
		{4, "all", false},
		{80, "node", false},
		{80, "all", false},
	} {
		for _, s := range stores {
			name := fmt.Sprintf("readers=%d/reads=%s/moves=%v/%s", test.readers, test.reads, test.moves, s.name)
			b.Run(name, func(b *testing.B) {
				updates(b, filled(b, s.made), test.readers, test.reads == "all", test.moves)
			})
		}
	}
}

func updates(b *testing.B, s store, readers int, all, moves bool) {
	stop := make(chan struct{})
	var group sync.WaitGroup
	for r := range readers {
		group.Go(func() {
			for i := r; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if all {
					s.list()
				} else {
					s.byNode("node-" + strconv.Itoa(i%nodes))
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	current := make([]*pod, pods)
	for i := range current {
		current[i] = podAt(i)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ReportAllocs()
	b.ResetTimer()
	began := threadTime(b)
	for i := range b.N {
		k := rng.IntN(pods)
		p := *current[k]
		p.revision++
		if moves {
			p.node = "node-" + strconv.Itoa((k+i)%nodes)
		}
		s.update(&p)
		current[k] = &p
	}
	cpu := threadTime(b) - began
	b.StopTimer()
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N), "cpu-ns/op")
	close(stop)
	group.Wait()
}

// BenchmarkStoreReplace replaces 100,000 objects by the same.
func BenchmarkStoreReplace(b *testing.B) {
	all := make(map[string]*pod, pods)
	for i := range pods {
		p := podAt(i)
		all[p.key] = p
	}
	for _, s := range stores {
		b.Run(s.name, func(b *testing.B) {
			store := s.made(b)
			b.ReportAllocs()
			defer measureThread(b)()
			for range b.N {
				store.replace(all)
			}
		})
	}
}

// BenchmarkStoreAdd adds objects to a store of at most 100,000.
func BenchmarkStoreAdd(b *testing.B) {
	all := make([]*pod, pods)
	for i := range all {
		all[i] = podAt(i * 7919 % pods)
	}
	for _, s := range stores {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			defer measureThread(b)()
			store := s.made(b)
			for i := range b.N {
				if i%pods == 0 {
					store = s.made(b)
				}
				store.update(all[i%pods])
			}
		})
	}
}

// BenchmarkStoreGet reads random objects.
func BenchmarkStoreGet(b *testing.B) {
	for _, s := range stores {
		b.Run(s.name, func(b *testing.B) {
			store, keys := filled(b, s.made), make([]string, pods)
			for i := range keys {
				keys[i] = podAt(i * 7919 % pods).key
			}
			b.ReportAllocs()
			defer measureThread(b)()
			for i := range b.N {
				store.get(keys[i%pods])
			}
		})
	}
}

// BenchmarkStoreMemory holds 100,000 objects with two indexes; B/object is the memory of the store
// beside the objects and their keys.
func BenchmarkStoreMemory(b *testing.B) {
	all := make([]*pod, pods)
	for i := range all {
		all[i] = podAt(i)
	}
	for _, s := range stores {
		b.Run(s.name, func(b *testing.B) {
			for b.Loop() {
				before := liveHeap()
				store := s.made(b)
				for _, p := range all {
					store.update(p)
				}
				b.ReportMetric(float64(liveHeap()-before)/pods, "B/object")
				runtime.KeepAlive(store)
			}
		})
	}
	runtime.KeepAlive(all)
}

// liveHeap returns the bytes of the heap that are in use.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// measureThread begins to measure. The function that it returns reports the processor time of the
// thread for an operation.
func measureThread(b *testing.B) func() {
	runtime.LockOSThread()
	b.ResetTimer()
	began := threadTime(b)
	return func() {
		b.ReportMetric(float64(threadTime(b)-began)/float64(b.N), "cpu-ns/op")
		runtime.UnlockOSThread()
	}
}

// BenchmarkStoreByIndex reads the 100 objects of a node.
func BenchmarkStoreByIndex(b *testing.B) {
	for _, s := range stores {
		b.Run(s.name, func(b *testing.B) {
			store := filled(b, s.made)
			b.ReportAllocs()
			defer measureThread(b)()
			for i := range b.N {
				store.byNode("node-" + strconv.Itoa(i%nodes))
			}
		})
	}
}

// BenchmarkStoreList reads 100,000 objects.
func BenchmarkStoreList(b *testing.B) {
	for _, s := range stores {
		b.Run(s.name, func(b *testing.B) {
			store := filled(b, s.made)
			b.ReportAllocs()
			for b.Loop() {
				store.list()
			}
		})
	}
}
