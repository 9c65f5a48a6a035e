package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/plimsoll-dev/plimsoll/informer"
)

// lister gives the same 100,000 objects again whenever it is asked.
type lister struct {
	objects []*meta
	again   chan struct{}
	seen    atomic.Int64 // calls of the handler
}

func newLister() *lister {
	return &lister{objects: newServer(1).objects[0], again: make(chan struct{})}
}

// relisted is an informer with one handler. ready waits until it has applied a list: the first is
// number 1.
type relisted struct {
	run   func(context.Context)
	ready func(ctx context.Context, list int)
}

// As a Source.

type listing struct {
	*lister
	ctx   context.Context
	lists uint64
}

func (l *listing) Open(ctx context.Context, _ informer.Version) (informer.Stream[*meta], error) {
	l.ctx = ctx
	return l, nil
}

func (l *listing) Close() error { return nil }

func (l *listing) Next() (m informer.Message[*meta], err error) {
	if l.lists > 0 {
		select {
		case <-l.again:
		case <-l.ctx.Done():
			return m, io.EOF
		}
	}
	l.lists++
	m.Kind, m.Version = informer.SnapshotEnd, informer.Version{Revision: l.lists}
	m.Objects = append(m.Objects, l.objects...)
	return m, nil
}

func plimsollRelisted(l *lister) relisted {
	i, err := informer.NewSharedInformer(informer.Config[*meta]{
		Source: &listing{lister: l},
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
	})
	if err != nil {
		panic(err)
	}
	if _, err := i.AddHandler(
		informer.Handler[*meta]{Add: func(*meta, bool) { l.seen.Add(1) }}, informer.HandlerOptions{},
	); err != nil {
		panic(err)
	}
	return relisted{
		run: func(ctx context.Context) {
			if err := i.Run(ctx); err != nil {
				panic(err)
			}
		},
		ready: func(ctx context.Context, list int) {
			if err := i.Indexer().WaitFor(ctx, informer.Version{Revision: uint64(list)}); err != nil {
				panic(err)
			}
			for l.seen.Load() < sharedObjects {
				<-time.After(time.Millisecond)
			}
		},
	}
}

// As a ListerWatcher whose watch expires whenever a list is asked for. Its handler is called for
// each object of each list, which tells when the list is applied.
func clientGoRelisted(l *lister) relisted {
	var lists atomic.Int64
	lw := &cache.ListWatch{
		ListFunc: func(metav1.ListOptions) (apiruntime.Object, error) {
			list := &metav1.PartialObjectMetadataList{
				ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(lists.Add(1), 10)},
			}
			for _, o := range l.objects {
				list.Items = append(list.Items, *o)
			}
			return list, nil
		},
		WatchFunc: func(o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, errors.New("this server has no streaming lists")
			}
			w := &watcher{events: make(chan watch.Event, 1), stop: make(chan struct{})}
			go func() {
				defer close(w.events)
				select {
				case <-l.again:
					w.events <- watch.Event{Type: watch.Error, Object: &metav1.Status{
						Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired,
					}}
					<-w.stop
				case <-w.stop:
				}
			}()
			return w, nil
		},
	}
	i := cache.NewSharedIndexInformer(lw, &meta{}, 0, cache.Indexers{
		"namespace": func(o any) ([]string, error) { return []string{o.(*meta).Namespace}, nil },
		"node":      func(o any) ([]string, error) { return []string{o.(*meta).Labels["node"]}, nil },
	})
	if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { l.seen.Add(1) },
		UpdateFunc: func(_, _ any) { l.seen.Add(1) },
	}); err != nil {
		panic(err)
	}
	return relisted{
		run: func(ctx context.Context) { i.Run(ctx.Done()) },
		ready: func(_ context.Context, list int) {
			for l.seen.Load() < int64(list)*sharedObjects {
				<-time.After(time.Millisecond)
			}
		},
	}
}

// BenchmarkInformerList measures the processor time from a list of 100,000 objects to the index and
// the handler: of the first list, and of the same list again.
func BenchmarkInformerList(b *testing.B) {
	for _, list := range []string{"first", "again"} {
		for _, side := range []struct {
			name string
			made func(*lister) relisted
		}{{"plimsoll", plimsollRelisted}, {"client-go", clientGoRelisted}} {
			b.Run(fmt.Sprintf("%s/%s", list, side.name), func(b *testing.B) {
				var spent int64
				for range b.N {
					l := newLister()
					i := side.made(l)
					ctx, cancel := context.WithCancel(context.Background())
					began, ended := processorTime(), make(chan struct{})
					go func() { defer close(ended); i.run(ctx) }()
					i.ready(ctx, 1)
					if list == "again" {
						began = processorTime()
						l.again <- struct{}{}
						i.ready(ctx, 2)
					}
					spent += processorTime() - began
					cancel()
					<-ended
				}
				b.ReportMetric(float64(spent)/float64(b.N)/1e6, "cpu-ms/op")
			})
		}
	}
}
