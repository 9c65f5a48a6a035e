package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/plimsoll-dev/plimsoll/informer"
)

const (
	sharedObjects = 100_000
	sharedUpdates = 1_000_000
	// sharedLead is how far the server runs ahead of the slowest handler, so that every handler is
	// told every change.
	sharedLead = 50_000
)

type meta = metav1.PartialObjectMetadata

// server has the objects in two revisions each, in turns. All are made before a measurement.
type server struct {
	objects [2][]*meta
	told    []atomic.Int64 // changes that each handler was told
	slowest atomic.Int64   // at least so many were told to each of them
	initial atomic.Int64   // additions that all handlers were told
	free    bool           // it does not wait for handlers
}

func newServer(handlers int) *server {
	s := &server{told: make([]atomic.Int64, handlers)}
	for revision := range s.objects {
		for i := range sharedObjects {
			s.objects[revision] = append(s.objects[revision], &meta{
				TypeMeta: metav1.TypeMeta{Kind: "Task", APIVersion: "v1"},
				ObjectMeta: metav1.ObjectMeta{
					Namespace: fmt.Sprintf("queue-%02d", i%100), Name: fmt.Sprintf("task-%06d", i),
					ResourceVersion: fmt.Sprint(revision + 1),
					Labels:          map[string]string{"node": fmt.Sprintf("n%03d", i%1000)},
				},
			})
		}
	}
	return s
}

// update returns the change number i. The keys are drawn without order, each once in a round.
func (s *server) update(i int) *meta {
	return s.objects[1-i/sharedObjects%2][i*7919%sharedObjects]
}

// await waits until no handler is further behind than sharedLead.
func (s *server) await(sent int) {
	if s.free {
		return
	}
	for int64(sent)-s.slowest.Load() > sharedLead {
		low := s.told[0].Load()
		for i := range s.told {
			low = min(low, s.told[i].Load())
		}
		s.slowest.Store(low)
		if int64(sent)-low > sharedLead {
			<-time.After(100 * time.Microsecond)
		}
	}
}

// The server as a Source.

type follow struct {
	*server
	ctx    context.Context
	listed bool
	begin  <-chan struct{}
	next   int
	buffer [64]*meta
}

func (s *server) source(begin <-chan struct{}) informer.Source[*meta] {
	return &follow{server: s, begin: begin}
}

func (f *follow) Open(ctx context.Context, _ informer.Version) (informer.Stream[*meta], error) {
	f.ctx = ctx
	return f, nil
}

func (f *follow) Close() error { return nil }

func (f *follow) Next() (m informer.Message[*meta], err error) {
	if !f.listed {
		f.listed = true
		m.Kind, m.Version = informer.SnapshotEnd, informer.Version{Revision: 1}
		m.Objects = append(m.Objects, f.objects[0]...)
		return m, nil
	}
	if f.next == 0 {
		select {
		case <-f.begin:
		case <-f.ctx.Done():
			return m, io.EOF
		}
	}
	if f.next == sharedUpdates {
		<-f.ctx.Done()
		return m, io.EOF
	}
	if f.next%64 == 0 {
		f.await(f.next)
	}
	one := f.buffer[f.next%64:][:1]
	one[0] = f.update(f.next)
	f.next++
	m.Kind, m.Version, m.Objects = informer.Changed, informer.Version{Revision: uint64(f.next) + 1}, one
	return m, nil
}

// The server as a ListerWatcher.

func (s *server) listWatch(begin <-chan struct{}) cache.ListerWatcher {
	return &cache.ListWatch{
		ListFunc: func(metav1.ListOptions) (apiruntime.Object, error) {
			list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			for _, o := range s.objects[0] {
				list.Items = append(list.Items, *o)
			}
			return list, nil
		},
		WatchFunc: func(o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, errors.New("this server has no streaming lists")
			}
			w := &watcher{events: make(chan watch.Event, 100), stop: make(chan struct{})}
			go s.watch(w, begin)
			return w, nil
		},
	}
}

type watcher struct {
	events chan watch.Event
	stop   chan struct{}
}

func (w *watcher) ResultChan() <-chan watch.Event { return w.events }
func (w *watcher) Stop()                          { close(w.stop) }

func (s *server) watch(w *watcher, begin <-chan struct{}) {
	defer close(w.events)
	select {
	case <-begin:
	case <-w.stop:
		return
	}
	for i := range sharedUpdates {
		if i%64 == 0 {
			s.await(i)
		}
		select {
		case w.events <- watch.Event{Type: watch.Modified, Object: s.update(i)}:
		case <-w.stop:
			return
		}
	}
	<-w.stop
}

// informerUnderTest runs until its context ends.
type informerUnderTest func(ctx context.Context, s *server, begin <-chan struct{}, work func()) (run func())

func plimsollInformer(options informer.HandlerOptions) informerUnderTest {
	return func(ctx context.Context, s *server, begin <-chan struct{}, work func()) func() {
		i, err := informer.NewSharedInformer(informer.Config[*meta]{
			Source: s.source(begin),
			Key:    func(o *meta) (string, error) { return o.Namespace + "/" + o.Name, nil },
			Same:   func(a, b *meta) bool { return a.ResourceVersion == b.ResourceVersion },
			Indexes: []informer.Index[*meta]{
				{Name: "namespace", Values: func(o *meta, to []string) ([]string, error) {
					return append(to, o.Namespace), nil
				}},
				{Name: "node", Values: func(o *meta, to []string) ([]string, error) {
					return append(to, o.Labels["node"]), nil
				}},
			},
			MaxQueueBytes: 1 << 30,
		})
		if err != nil {
			panic(err)
		}
		for h := range s.told {
			if _, err := i.AddHandler(informer.Handler[*meta]{
				Add:    func(*meta, bool) { s.initial.Add(1) },
				Update: func(_, _ *meta) { work(); s.told[h].Add(1) },
			}, options); err != nil {
				panic(err)
			}
		}
		return func() {
			if err := i.Run(ctx); err != nil {
				panic(err)
			}
		}
	}
}

func clientGoInformer(ctx context.Context, s *server, begin <-chan struct{}, work func()) func() {
	i := cache.NewSharedIndexInformer(s.listWatch(begin), &meta{}, 0, cache.Indexers{
		"namespace": func(o any) ([]string, error) { return []string{o.(*meta).Namespace}, nil },
		"node":      func(o any) ([]string, error) { return []string{o.(*meta).Labels["node"]}, nil },
	})
	for h := range s.told {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { s.initial.Add(1) },
			UpdateFunc: func(_, _ any) { work(); s.told[h].Add(1) },
		}); err != nil {
			panic(err)
		}
	}
	return func() { i.Run(ctx.Done()) }
}

// measureShared lists the objects, and then measures the updates until every handler was told the
// last one; or until done, with a server that does not wait for handlers.
func measureShared(b *testing.B, handlers int, start informerUnderTest, work func(), done func(s *server) bool) {
	free := done != nil
	for b.Loop() {
		b.StopTimer()
		s := newServer(handlers)
		s.free = free
		if done == nil {
			done = func(s *server) bool {
				for i := range s.told {
					if s.told[i].Load() < sharedUpdates {
						return false
					}
				}
				return true
			}
		}
		begin := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		run := start(ctx, s, begin, work)
		ended := make(chan struct{})
		began := time.Now()
		go func() { defer close(ended); run() }()
		for s.initial.Load() < int64(handlers)*sharedObjects {
			<-time.After(time.Millisecond)
		}
		b.ReportMetric(time.Since(began).Seconds(), "sync-s")
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		peak, cpu := watchHeap(ctx), processorTime()
		b.StartTimer()
		began = time.Now()
		close(begin)
		for !done(s) {
			<-time.After(time.Millisecond)
		}
		took := time.Since(began)
		b.StopTimer()
		runtime.ReadMemStats(&after)
		var told int64
		for i := range s.told {
			told += s.told[i].Load()
		}
		b.ReportMetric(sharedUpdates/took.Seconds(), "events/s")
		b.ReportMetric(float64(told)/took.Seconds(), "deliveries/s")
		b.ReportMetric(float64(told)/float64(handlers)/sharedUpdates, "told/event")
		b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/sharedUpdates, "B/event")
		b.ReportMetric(float64(after.Mallocs-before.Mallocs)/sharedUpdates, "allocs/event")
		b.ReportMetric(float64(processorTime()-cpu)/sharedUpdates, "cpu-ns/event")
		cancel()
		b.ReportMetric(float64(<-peak)/(1<<20), "peak-MiB")
		<-ended
		b.StartTimer()
	}
}

// watchHeap returns the largest heap seen until ctx ends.
func watchHeap(ctx context.Context) <-chan uint64 {
	out := make(chan uint64, 1)
	go func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		var peak uint64
		for ctx.Err() == nil {
			metrics.Read(sample)
			peak = max(peak, sample[0].Value.Uint64())
			<-time.After(2 * time.Millisecond)
		}
		out <- peak
	}()
	return out
}

func processorTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func informers() map[string]informerUnderTest {
	return map[string]informerUnderTest{
		"plimsoll": plimsollInformer(informer.HandlerOptions{}), "client-go": clientGoInformer,
	}
}

// BenchmarkInformer tells 1,000,000 updates of 100,000 objects to handlers that do nothing.
func BenchmarkInformer(b *testing.B) {
	for _, handlers := range []int{1, 10} {
		for name, start := range informers() {
			b.Run(fmt.Sprintf("handlers=%d/%s", handlers, name), func(b *testing.B) {
				measureShared(b, handlers, start, func() {}, nil)
			})
		}
	}
}

// BenchmarkInformerSlowHandler has one handler that works for 10 µs a call, and a server that does
// not wait for it.
func BenchmarkInformerSlowHandler(b *testing.B) {
	work := func() {
		for began := time.Now(); time.Since(began) < 10*time.Microsecond; {
		}
	}
	for name, start := range informers() {
		b.Run(name, func(b *testing.B) {
			var last, same int64
			measureShared(b, 1, start, work, func(s *server) bool { // no call for a fifth of a second
				now := s.told[0].Load()
				if now != last || now == 0 {
					last, same = now, 0
				} else {
					same++
				}
				return same > 200
			})
		})
	}
}
