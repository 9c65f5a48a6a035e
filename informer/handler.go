package informer

import (
	"errors"
	"runtime/debug"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/plimsoll-dev/plimsoll"
)

// Defaults and bounds of HandlerOptions.
const (
	DefaultMaxBacklog      = 65_536
	DefaultMaxBacklogBytes = 64 << 20
	MinResync              = time.Second
)

// ErrStopped is the answer of a SharedInformer that has ended.
var ErrStopped = errors.New("informer: it has ended; make a new one")

// Handler is called for each change of the index, after the index has it, by one goroutine of its
// own. A nil function skips its changes. Objects are shared with the index and other handlers, so a
// handler changes a copy only. A handler may call every method of the informer and of its
// Registration, but must not wait for its own end.
type Handler[T any] struct {
	// Add is called for an object that the handler has not seen. initial says that the object
	// belongs to the content of the index that the handler began with.
	Add func(object T, initial bool)
	// Update is called for a changed object. A resync calls it with the same object twice.
	Update func(was, is T)
	// Delete is called for an object that the handler has seen and that is gone.
	Delete func(Deletion[T])
	// Reset replaces the differences for a handler that has fallen behind: instead of them it is
	// given the whole index, and forgets what it was told before.
	Reset func(*Snapshot[T])
}

// HandlerOptions hold the settings of a handler. Zero values stand for the defaults.
type HandlerOptions struct {
	Name string // for Stats and Events
	// Resync is the period after which the handler is given every unchanged object again; zero is
	// never, otherwise at least MinResync.
	Resync time.Duration
	// MaxBacklog and MaxBacklogBytes bound the changes that wait for the handler. Beyond them it
	// has fallen behind. Defaults DefaultMaxBacklog, DefaultMaxBacklogBytes.
	MaxBacklog      int
	MaxBacklogBytes int64
}

func (o *HandlerOptions) complete() error {
	switch {
	case o.Resync < 0 || o.Resync > 0 && o.Resync < MinResync:
		return plimsoll.Invalid("Resync", "is %s; give zero, or %s and more", o.Resync, MinResync)
	case o.MaxBacklog < 0:
		return plimsoll.Invalid("MaxBacklog", "is %d; give a bound above zero", o.MaxBacklog)
	case o.MaxBacklogBytes < 0:
		return plimsoll.Invalid("MaxBacklogBytes", "is %d; give a bound above zero", o.MaxBacklogBytes)
	}
	if o.MaxBacklog == 0 {
		o.MaxBacklog = DefaultMaxBacklog
	}
	if o.MaxBacklogBytes == 0 {
		o.MaxBacklogBytes = DefaultMaxBacklogBytes
	}
	return nil
}

// HandlerStats tells how far a handler is.
type HandlerStats struct {
	Name string
	// Pending is the number of calls that wait in the log, and PendingBytes their size.
	Pending      int
	PendingBytes int64
	// Behind says that the handler has fallen behind. Missed is the number of changes since then,
	// or since a new handler was added; it reaches the handler as one difference.
	Behind bool
	Missed uint64
	// Delivered counts the calls, and Panics those that panicked. Dropped counts the changes that
	// waited when the handler ended. CaughtUp counts the differences that it was told after it had
	// fallen behind.
	Delivered, Dropped, CaughtUp, Panics uint64
}

// noticeKind says which function of a Handler a notice calls.
type noticeKind uint8

const (
	added noticeKind = iota
	updated
	deleted
)

// notice is one change of the index.
type notice[T any] struct {
	key       string
	old, new  T // an added object has no old state, a deleted one no new state
	kind      noticeKind
	initial   bool // for added: it belongs to the content that the handler began with
	tombstone bool // for deleted: old may not be the final state
}

// noticeBytes is the size of a notice without its objects.
func noticeBytes[T any]() int64 { return int64(unsafe.Sizeof(notice[T]{})) }

// Registration is a handler at a SharedInformer.
type Registration[T any] struct {
	fanout  *fanout[T]
	handler Handler[T]
	options HandlerOptions

	wake   chan struct{} // holds one signal: there may be work
	quit   atomic.Bool   // no further call begins
	synced chan struct{} // closed when the initial content was delivered
	done   chan struct{} // closed when no call is under way and none will come

	delivered, caughtUp, panics atomic.Uint64

	// queue is guarded by fanout.mu.
	queue backlog[T]
}

// backlog is the work that waits for one handler.
//
// In step with the log: at is the last link that the handler has taken, rest is nil. Cut: rest
// holds the steps that remain in their order, and the difference between base and the index
// follows them. A handler begins cut, with nothing told.
type backlog[T any] struct {
	at   *link[T]
	rest []*step[T]
	cut  bool
	// told says that base counts; without it the handler has seen nothing.
	told bool
	base *Snapshot[T]
	// owed says that the difference includes unchanged objects, for a resync.
	owed bool
	// missed counts the changes since the cut.
	missed uint64
	// due says that it is time for a resync of the handler and its objects have not come; next is
	// the instant of the one after. asked says that the objects are queued, and shown that the step
	// under way has them. Invariant: without due, asked and shown are false.
	due, asked, shown bool
	next              time.Time
	// pending and bytes count the calls in the log that are not finished.
	pending int
	bytes   int64
	dropped uint64
	ended   bool
}

// HasSynced reports whether the handler has been given the content that the index had when it
// began. It stays true.
func (r *Registration[T]) HasSynced() bool { return isClosed(r.synced) }

// Synced is closed when HasSynced turns true. It stays open if the handler ends before; wait for
// Done too.
func (r *Registration[T]) Synced() <-chan struct{} { return r.synced }

// Remove ends the handler: no call begins after it, and changes that wait are counted as dropped.
// It does not wait for a call under way, so a handler may remove itself; Done does. It may be
// repeated.
func (r *Registration[T]) Remove() {
	r.quit.Store(true)
	r.fanout.forget(r)
	r.signal()
}

// Done is closed when the handler has ended: no call of it is under way, and none will come.
func (r *Registration[T]) Done() <-chan struct{} { return r.done }

// Stats returns the handler's counts.
func (r *Registration[T]) Stats() HandlerStats {
	r.fanout.mu.Lock()
	defer r.fanout.mu.Unlock()
	return r.stats()
}

// stats is Stats for a caller that holds fanout.mu.
func (r *Registration[T]) stats() HandlerStats {
	q := &r.queue
	return HandlerStats{
		Name: r.options.Name, Pending: q.pending, PendingBytes: q.bytes, Behind: q.cut && q.told, Missed: q.missed,
		Delivered: r.delivered.Load(), Dropped: q.dropped, CaughtUp: r.caughtUp.Load(), Panics: r.panics.Load(),
	}
}

func (r *Registration[T]) signal() {
	select {
	case r.wake <- struct{}{}:
	default: // a signal is there already, and stands for both
	}
}

// run calls the handler until it is removed or stop is closed.
func (r *Registration[T]) run(stop <-chan struct{}) {
	defer r.fanout.finish(r) // also after runtime.Goexit in a callback
	for {
		if r.quit.Load() {
			return
		}
		s, d := r.fanout.take(r)
		switch {
		case s != nil:
			r.deliver(s)
		case d != nil:
			r.catchUp(d)
		default:
			select {
			case <-r.wake:
			case <-stop:
				return
			}
		}
	}
}

// deliver calls the handler for each notice of a step.
func (r *Registration[T]) deliver(s *handout[T]) {
	told := 0
	defer func() { r.fanout.told(r, s, told) }()
	for i := range s.notices {
		if r.quit.Load() {
			return
		}
		told++
		r.tell(&s.notices[i])
	}
	for i := range s.synced {
		if r.quit.Load() {
			return
		}
		told++
		r.tell(&notice[T]{kind: updated, old: s.synced[i], new: s.synced[i]})
	}
}

// tell makes one call. A panic of the handler ends this call only.
func (r *Registration[T]) tell(e *notice[T]) {
	defer r.caughtPanic()
	r.delivered.Add(1)
	h := &r.handler
	switch e.kind {
	case added:
		if h.Add != nil {
			h.Add(e.new, e.initial)
		}
	case updated:
		if h.Update != nil {
			h.Update(e.old, e.new)
		}
	case deleted:
		if h.Delete != nil {
			h.Delete(Deletion[T]{Key: e.key, Object: e.old, Tombstone: e.tombstone})
		}
	}
}

// caughtPanic is deferred around calls of the handler.
func (r *Registration[T]) caughtPanic() {
	if p := recover(); p != nil {
		r.panics.Add(1)
		if f := r.fanout.events.HandlerFailed; f != nil {
			f(r.options.Name, &PanicError{Value: p, Stack: debug.Stack()})
		}
	}
}

// catchUp tells the handler the difference between what it has seen and the index.
func (r *Registration[T]) catchUp(d *difference[T]) {
	if d.told && r.handler.Reset != nil {
		func() {
			defer r.caughtPanic()
			r.delivered.Add(1)
			r.handler.Reset(d.now)
		}()
	} else if left := r.tellDifference(d); left > 0 {
		r.fanout.abandon(r, left)
		return
	}
	if !d.told {
		close(r.synced)
		return
	}
	r.caughtUp.Add(1)
	if f := r.fanout.events.HandlerCaughtUp; f != nil {
		f(r.options.Name, d.missed)
	}
}

// tellDifference tells deletions first, then the rest in key order. If the handler was removed
// meanwhile, it returns at least one: the objects of its first content that were left, or all
// changes that were missed, also those told in part.
func (r *Registration[T]) tellDifference(d *difference[T]) (left uint64) {
	before := r.delivered.Load()
	if d.base != nil {
		for key, old := range d.base.All() {
			if r.quit.Load() {
				return max(1, d.missed)
			}
			if _, is := d.now.Get(key); !is {
				r.tell(&notice[T]{kind: deleted, key: key, old: old, tombstone: true})
			}
		}
	}
	for key, object := range d.now.All() {
		if r.quit.Load() {
			if !d.told {
				return uint64(d.now.Len()) - (r.delivered.Load() - before)
			}
			return max(1, d.missed)
		}
		var old T
		was := false
		if d.base != nil {
			old, was = d.base.Get(key)
		}
		switch {
		case !was:
			r.tell(&notice[T]{kind: added, key: key, new: object, initial: !d.told})
		case !r.fanout.same(old, object):
			r.tell(&notice[T]{kind: updated, key: key, old: old, new: object})
		case d.owed:
			r.tell(&notice[T]{kind: updated, key: key, old: object, new: object})
		}
	}
	return 0
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
