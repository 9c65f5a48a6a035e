package informer

import (
	"sync"
	"time"
)

// step holds the changes that one batch made to the index. It does not change.
type step[T any] struct {
	notices []notice[T]
	// synced are unchanged objects, for the handlers in due.
	synced []T
	due    map[*Registration[T]]struct{}
	bytes  int64 // of the changes and of the list of synced
}

// link is an element of the log. Only handlers that are in step hold links, so the garbage
// collector frees what the slowest of them has passed.
type link[T any] struct {
	*step[T]
	next *link[T] // nil at the tail
}

// handout is a step, or the part of it that one handler gets.
type handout[T any] struct {
	notices []notice[T]
	synced  []T
	bytes   int64
}

// difference is the work of a handler that is not in step with the log.
type difference[T any] struct {
	told   bool         // base counts
	base   *Snapshot[T] // what the handler has seen
	now    *Snapshot[T]
	owed   bool
	missed uint64
}

// fanout is the log of changes that all handlers share, with the place of each.
type fanout[T any] struct {
	index   *Indexer[T]
	same    func(a, b T) bool // does not panic
	size    func(T) int
	events  *Events
	ready   <-chan struct{} // closed when the index has its first content
	resyncs chan struct{}   // holds one signal: the next resync may be another

	// atomic is held while index and log change together, and to find them in agreement. It is
	// taken before mu.
	atomic sync.Mutex
	mu     sync.Mutex
	// Guarded by mu.
	tail     *link[T] // never nil
	handlers map[*Registration[T]]struct{}
	stop     <-chan struct{} // of the run under way; nil before it
	closed   bool
	wg       sync.WaitGroup // the goroutines of handlers
	dropped  uint64         // by handlers that are gone
}

func newFanout[T any](index *Indexer[T]) *fanout[T] {
	return &fanout[T]{
		index: index, tail: &link[T]{step: &step[T]{}}, handlers: map[*Registration[T]]struct{}{},
		resyncs: make(chan struct{}, 1),
	}
}

// add registers a handler, which begins with the content of the index.
func (f *fanout[T]) add(h Handler[T], o HandlerOptions, now time.Time) (*Registration[T], error) {
	r := &Registration[T]{
		fanout: f, handler: h, options: o,
		wake: make(chan struct{}, 1), synced: make(chan struct{}), done: make(chan struct{}),
	}
	r.queue.cut = true
	if o.Resync > 0 {
		r.queue.next = now.Add(o.Resync)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, ErrStopped
	}
	f.handlers[r] = struct{}{}
	if f.stop != nil {
		f.launch(r)
	}
	notify(f.resyncs)
	return r, nil
}

// launch starts the goroutine of a handler. The caller holds mu.
func (f *fanout[T]) launch(r *Registration[T]) {
	stop := f.stop
	f.wg.Go(func() { r.run(stop) })
}

// begin starts the goroutines of all handlers. They end when stop is closed.
func (f *fanout[T]) begin(stop <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop = stop
	for r := range f.handlers {
		f.launch(r)
	}
}

// quit lets no further call of a handler begin, and no further handler register.
func (f *fanout[T]) quit() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for r := range f.handlers {
		r.quit.Store(true)
	}
}

// end waits for all handlers, after stop was closed. It holds no lock while calls are under way.
func (f *fanout[T]) end() {
	f.quit()
	f.wg.Wait()
}

// forget takes a removed handler out. Its goroutine finishes it, if it has one.
func (f *fanout[T]) forget(r *Registration[T]) {
	f.mu.Lock()
	idle := f.stop == nil && !f.closed
	f.mu.Unlock()
	if idle {
		f.finish(r)
	}
}

// finish ends a handler and counts what waits for it as dropped.
func (f *fanout[T]) finish(r *Registration[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := &r.queue
	if q.ended {
		return
	}
	r.quit.Store(true)
	q.ended = true
	q.dropped = uint64(q.pending) + q.missed
	f.dropped += q.dropped
	q.at, q.rest, q.base, q.pending, q.bytes, q.missed = nil, nil, nil, 0, 0, 0
	delete(f.handlers, r)
	close(r.done)
}

// take returns the next work of a handler: a step, or a difference, or neither.
func (f *fanout[T]) take(r *Registration[T]) (*handout[T], *difference[T]) {
	f.mu.Lock()
	s, inStep := f.nextStep(r), !r.queue.cut
	f.mu.Unlock()
	if s != nil || inStep || !isClosed(f.ready) {
		return s, nil
	}
	f.atomic.Lock()
	defer f.atomic.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	q := &r.queue
	if !q.cut || len(q.rest) > 0 {
		return nil, nil
	}
	d := &difference[T]{told: q.told, base: q.base, now: f.index.Snapshot(), owed: q.owed, missed: q.missed}
	q.at, q.cut, q.told, q.base, q.owed, q.missed = f.tail, false, true, nil, false, 0
	return nil, d
}

func (f *fanout[T]) nextStep(r *Registration[T]) *handout[T] {
	q := &r.queue
	var s *step[T]
	switch {
	case len(q.rest) > 0:
		s = q.rest[0]
		q.rest[0] = nil
		q.rest = q.rest[1:]
	case !q.cut && q.at.next != nil:
		q.at = q.at.next
		s = q.at.step
	default:
		return nil
	}
	h := &handout[T]{notices: s.notices, bytes: s.bytes}
	if _, due := s.due[r]; due {
		h.synced = s.synced
	}
	return h
}

// told notes that so many calls of a handout were made. The rest of it stays pending, and is
// dropped.
func (f *fanout[T]) told(r *Registration[T], s *handout[T], calls int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.queue.pending -= calls
	r.queue.bytes -= s.bytes
}

// abandon counts changes that a handler which was removed will not be told.
func (f *fanout[T]) abandon(r *Registration[T], changes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.queue.missed += changes
}

// prepare cuts the handlers that have no room for a step of so many changes and unchanged objects,
// before the index changes. The bytes count for each handler, since its place in the log holds all
// steps behind it, also those without a call for it. The caller holds atomic.
func (f *fanout[T]) prepare(changes, synced int, bytes int64) {
	var behind []*Registration[T]
	var base *Snapshot[T]
	f.mu.Lock()
	for r := range f.handlers {
		q := &r.queue
		n := changes
		if q.shown {
			n += synced
		}
		fits := q.pending+n <= r.options.MaxBacklog && q.bytes+bytes <= r.options.MaxBacklogBytes
		if q.cut || n == 0 && bytes == 0 || fits {
			continue
		}
		if base == nil {
			base = f.index.Snapshot()
		}
		for l := q.at.next; l != nil; l = l.next {
			q.rest = append(q.rest, l.step)
		}
		q.at, q.cut = nil, true
		if r.handler.Reset == nil {
			q.base = base
		}
		behind = append(behind, r)
	}
	f.mu.Unlock()
	for _, r := range behind {
		if f.events.HandlerFellBehind != nil {
			f.events.HandlerFellBehind(r.options.Name)
		}
	}
}

// publish gives a step, which the index shows by now, to the handlers. It reports whether a resync
// is due that the step does not answer. The caller holds atomic.
func (f *fanout[T]) publish(s *step[T]) (due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	linked := false
	for r := range f.handlers {
		q := &r.queue
		n := len(s.notices)
		if q.shown {
			q.due, q.asked, q.shown = false, false, false
			if q.cut {
				q.owed = true
			} else if len(s.synced) > 0 {
				n += len(s.synced)
				if s.due == nil {
					s.due = map[*Registration[T]]struct{}{}
				}
				s.due[r] = struct{}{}
			}
		}
		if q.cut {
			q.missed += uint64(len(s.notices))
		} else {
			q.pending += n
			linked = linked || n > 0
		}
		due = due || q.due
		r.signal()
	}
	if !linked {
		return due
	}
	for r := range f.handlers {
		if !r.queue.cut {
			r.queue.bytes += s.bytes
		}
	}
	l := &link[T]{step: s}
	f.tail.next = l
	f.tail = l
	return due
}

// elapse marks the handlers whose resync is due, and returns whether there are any and the instant
// of the next one. It is zero if no handler has a resync. One that was due and was not answered
// stays due; an empty index has nothing to show.
func (f *fanout[T]) elapse(now time.Time) (some bool, next time.Time) {
	filled := f.index.Len() > 0
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.handlers {
		q := &r.queue
		if q.next.IsZero() {
			continue
		}
		if !q.next.After(now) {
			q.due = true
			q.next = now.Add(r.options.Resync)
		}
		q.due, q.asked = q.due && filled, q.asked && filled
		some = some || q.due && !q.asked
		if next.IsZero() || q.next.Before(next) {
			next = q.next
		}
	}
	return some, next
}

// ask notes for which handlers the resync that the caller begins now is, and reports whether there
// are any.
func (f *fanout[T]) ask() (some bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.handlers {
		if q := &r.queue; q.due && !q.asked {
			q.asked, some = true, true
		}
	}
	return some
}

// skip ends the resync for which ask has noted the handlers: the index has nothing to show.
func (f *fanout[T]) skip() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.handlers {
		if q := &r.queue; q.asked {
			q.due, q.asked = false, false
		}
	}
}

// start begins a step: it notes which handlers' resync the step answers. A list answers all that
// are due, and the objects of a resync those for which it was begun. It reports whether there are
// handlers, and whether there are such. The caller holds atomic.
func (f *fanout[T]) start(replaced, resynced bool) (some, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.handlers {
		q := &r.queue
		q.shown = q.due && (replaced || resynced && q.asked)
		due = due || q.shown
	}
	return len(f.handlers) > 0, due
}

// stats returns the counts of all handlers.
func (f *fanout[T]) stats() (handlers []HandlerStats, dropped uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.handlers {
		handlers = append(handlers, r.stats())
	}
	return handlers, f.dropped
}

// signalAll wakes all handlers.
func (f *fanout[T]) signalAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.handlers {
		r.signal()
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a signal is there already, and stands for both
	}
}
