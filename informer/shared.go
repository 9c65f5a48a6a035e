package informer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
)

// Config holds the settings of a SharedInformer. Zero values stand for the defaults.
type Config[T any] struct {
	Source Source[T]  // required
	Key    KeyFunc[T] // required
	// Same reports whether two objects of one key are the same version of it, as by their
	// revisions. Required: after a relist only handlers whose resync is due see an object that is
	// the same.
	Same    func(a, b T) bool
	Indexes []Index[T]
	// Transform changes an object before anything else sees it, as to leave fields out.
	Transform func(T) (T, error)
	// Size returns the bytes of an object. Without it each object is counted as 1 KiB.
	Size func(T) int
	// MaxQueueBytes bounds the queue between the source and the index; default DefaultMaxBytes.
	MaxQueueBytes int
	// MaxSnapshotBytes and Backoff are those of ReflectorConfig.
	MaxSnapshotBytes int64
	Backoff          plimsoll.Backoff
	// Events are the callbacks of the informer.
	Events Events
}

// Events are callbacks, each nil or quick: the informer waits for them. None of them may wait for
// the informer. They are called from several goroutines at once. Faulted and HandlerFellBehind may
// be called while the index is locked for changes.
type Events struct {
	ReflectorEvents
	FIFOEvents
	// Faulted is called when the index refused a batch: it stays as it was, and the reflector
	// takes a snapshot. It is also called when Same panicked.
	Faulted func(err error)
	// HandlerFailed is called when a handler panicked; err is a PanicError. The call counts as
	// made. A panic of HandlerFailed itself ends the process.
	HandlerFailed func(handler string, err error)
	// HandlerFellBehind is called when a handler's backlog has reached its bound. HandlerCaughtUp
	// is called when it has been told the difference, in place of so many changes.
	HandlerFellBehind func(handler string)
	HandlerCaughtUp   func(handler string, missed uint64)
}

// Stats tells how far an informer is.
type Stats struct {
	Seen     Version // the version that was received
	Shown    Version // the version of the index
	Objects  int
	Queue    FIFOStats
	Handlers []HandlerStats // in no order
	// Dropped counts the changes that waited for handlers which have ended.
	Dropped uint64
	// Faults counts the calls of Events.Faulted.
	Faults uint64
}

// SharedInformer keeps an Indexer like its Source, and tells any number of handlers of each change.
type SharedInformer[T any] struct {
	cfg       Config[T]
	index     *Indexer[T]
	queue     *DeltaFIFO[T]
	reflector *Reflector[T]
	fanout    *fanout[T]
	synced    chan struct{} // closed when the index has the first content of the source
	running   atomic.Bool
	faults    atomic.Uint64

	// batchLost says that a batch was lost, so that only a Replace may follow. The goroutine that
	// drains owns it, and the rest, which is used again for each batch and empty between two.
	batchLost bool
	// told has the keys of the last batch's changes if a resync fell due while it was in process:
	// the handler was told newer objects. It is empty otherwise.
	told    map[string]struct{}
	changes []Change[T]
	gone    []Delta[T] // of those of changes that are deletions, in their order
	edits   []*Edit[T]
}

// NewSharedInformer returns a SharedInformer. Run starts it.
func NewSharedInformer[T any](cfg Config[T]) (*SharedInformer[T], error) {
	if cfg.Same == nil {
		return nil, plimsoll.Invalid("Same", "is not set; give a function that compares the revisions of two objects")
	}
	index, err := NewIndexer(IndexerConfig[T]{Key: cfg.Key, Indexes: cfg.Indexes})
	if err != nil {
		return nil, err
	}
	queue, err := NewDeltaFIFO(FIFOConfig[T]{
		Key: cfg.Key, Known: index, EmitReplaced: true, Transform: cfg.Transform, Size: cfg.Size,
		MaxBytes: cfg.MaxQueueBytes, Events: cfg.Events.FIFOEvents,
	})
	if err != nil {
		return nil, err
	}
	reflector, err := NewReflector(ReflectorConfig[T]{
		Source: cfg.Source, Receiver: queue, Size: cfg.Size, MaxSnapshotBytes: cfg.MaxSnapshotBytes,
		Backoff: cfg.Backoff, Events: cfg.Events.ReflectorEvents,
	})
	if err != nil {
		return nil, err
	}
	s := &SharedInformer[T]{
		cfg: cfg, index: index, queue: queue, reflector: reflector, fanout: newFanout(index),
		synced: make(chan struct{}), edits: []*Edit[T]{{Indexer: index}},
	}
	s.fanout.same, s.fanout.size, s.fanout.events, s.fanout.ready = s.same, sizeOr(cfg.Size), &s.cfg.Events, s.synced
	return s, nil
}

// sizeOr returns the function, or the one that counts 1 KiB.
func sizeOr[T any](size func(T) int) func(T) int {
	if size != nil {
		return size
	}
	return func(T) int { return defaultSize }
}

// same is Config.Same. Objects over which it panics count as different.
func (s *SharedInformer[T]) same(a, b T) (is bool) {
	defer func() {
		if p := recover(); p != nil {
			is = false
			s.faulted(fmt.Errorf("compare two objects: %w", &PanicError{Value: p}))
		}
	}()
	return s.cfg.Same(a, b)
}

// Indexer returns the copy. Only the informer changes it.
func (s *SharedInformer[T]) Indexer() *Indexer[T] { return s.index }

// HasSynced reports whether the index has the first content of the source. It stays true.
func (s *SharedInformer[T]) HasSynced() bool { return isClosed(s.synced) }

// Synced is closed when HasSynced turns true.
func (s *SharedInformer[T]) Synced() <-chan struct{} { return s.synced }

// Stats returns the informer's counts.
func (s *SharedInformer[T]) Stats() Stats {
	now := s.index.Snapshot()
	handlers, dropped := s.fanout.stats()
	return Stats{
		Seen: s.reflector.Version(), Shown: now.Version(), Objects: now.Len(), Queue: s.queue.Stats(),
		Handlers: handlers, Dropped: dropped, Faults: s.faults.Load(),
	}
}

// AddHandler registers a handler, before Run or during it. The handler is first told the content
// of the index, as soon as it has synced, and then each change. Once the context of Run has ended
// it is ErrStopped.
func (s *SharedInformer[T]) AddHandler(h Handler[T], o HandlerOptions) (*Registration[T], error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	return s.fanout.add(h, o, time.Now())
}

// Run follows the source until ctx ends. It returns nil when every goroutine has ended, the
// handlers' among them: it waits for calls under way, and calls that wait are counted as dropped.
// The index keeps its content. An informer runs once.
func (s *SharedInformer[T]) Run(ctx context.Context) error {
	if s.running.Swap(true) {
		return plimsoll.Errorf(plimsoll.CodeConflict, "an informer runs once; make a new one")
	}
	group, ctx := errgroup.WithContext(ctx)
	s.fanout.begin(ctx.Done())
	quit := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(quit)
		s.fanout.quit()
	})
	group.Go(func() error { return s.reflector.Run(ctx) })
	group.Go(func() error { return s.drain(ctx) })
	group.Go(func() error { return s.resync(ctx) })
	err := group.Wait()
	s.queue.Close()
	if !stop() {
		<-quit
	}
	s.fanout.end()
	return err
}

// drain applies batches until ctx ends. A batch that fails is lost to the index, so the reflector
// takes a snapshot, and earlier batches are left out.
func (s *SharedInformer[T]) drain(ctx context.Context) error {
	for {
		if !s.batchLost && s.fanout.ask() && !s.queue.resyncAll(s.told) {
			s.fanout.skip()
		}
		s.told = nil
		err := s.queue.Drain(ctx, s.handleDeltas)
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrClosed):
			return nil
		case err != nil:
			s.batchLost = true
			s.faulted(err)
			s.reflector.Relist(err)
		case !s.HasSynced() && !s.batchLost && s.queue.HasSynced():
			close(s.synced)
			s.fanout.signalAll()
		}
	}
}

func (s *SharedInformer[T]) faulted(err error) {
	s.faults.Add(1)
	if s.cfg.Events.Faulted != nil {
		s.cfg.Events.Faulted(err)
	}
}

// resync begins the handlers' resyncs at their instants.
func (s *SharedInformer[T]) resync(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.fanout.resyncs:
		case <-timer.C:
		}
		now := time.Now()
		some, next := s.fanout.elapse(now)
		if some {
			s.queue.wakeDrain() // behind the batch in process, if there is one
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(next.Sub(now))
		}
	}
}
