package informer

import (
	"iter"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// DefaultMaxBytes bounds a queue whose configuration names no bound.
const DefaultMaxBytes = 64 << 20

// defaultSize is the size of an object where the configuration has no function for it.
const defaultSize = 1 << 10

// KnownObjects is the copy that the consumer of a queue keeps. The queue compares a new list with
// it. Its methods are called with the queue locked, so they call no method of the queue.
type KnownObjects[T any] interface {
	// Get returns the object of a key and true, or false if there is none.
	Get(key string) (T, bool, error)
	// Keys goes through all keys. Its order is the order of the deltas that follow from them.
	Keys() iter.Seq[string]
}

// FIFOConfig configures a DeltaFIFO. Key is required; the zero value of each other field is its
// default.
type FIFOConfig[T any] struct {
	Key KeyFunc[T]
	// Known is the consumer's copy. Without it, Replace notices only deletions of keys that are
	// queued or in process, Delete of any other key is ignored, and Resync does nothing.
	Known KnownObjects[T]
	// EmitReplaced gives the objects of a new list the type Replaced. Without it they are Sync.
	EmitReplaced bool
	// Transform changes each object before it is queued, after its key was taken. It is not applied
	// to tombstones and to objects of Known.
	Transform func(T) (T, error)
	// Size returns the bytes of an object. It is called again for an object that is still queued,
	// also with the queue locked. Without it each object is counted as 1 KiB.
	Size func(T) int
	// MaxBytes bounds the queued objects and keys with the queue's own memory. 0: DefaultMaxBytes.
	MaxBytes int
	// Now is the clock of Stats.Oldest. nil: time.Now.
	Now func() time.Time
	// Events are told of faults.
	Events FIFOEvents
}

// FIFOEvents are called by a queue, without its lock. Any of them may be nil.
type FIFOEvents struct {
	// Overflow is called when a full queue has dropped its content.
	Overflow func(Overflow)
	// LookupFailed is called when Known has returned errors: for how many keys of one call, and the
	// first error. The keys of a Replace are deleted with an unknown object. Those of a Resync are
	// left out. The key of a Delete counts as known.
	LookupFailed func(keys int, first error)
}

// Overflow is the content that a full queue has dropped.
type Overflow struct {
	Keys, Changes, Bytes int
	Limit                int // the bound in bytes
}

// DeltaFIFO is a queue of changes with one place for each key. The changes of a key that is queued
// already join those that wait there. So a consumer that is slow is handed less often more changes.
//
// Any number of goroutines may call its methods. Consumers take turns: while one processes, others
// wait, and producers go on. So the changes of a key are processed in their order.
//
// A queue whose content exceeds MaxBytes first reduces the changes of each key to their net effect.
// If it is still too large, it drops all. Changes are then refused with ErrRelist until the next
// Replace. Replace is never refused: a list that is larger than half of MaxBytes raises the bound
// to twice its size until the next one. The part that is in process is counted apart; with it a
// queue holds at most twice its bound. Content that is put back is not dropped before the next
// change.
type DeltaFIFO[T any] struct {
	config FIFOConfig[T]
	size   func(T) int  // of an object that is queued, or of none; does not panic
	clock  func() int64 // nanoseconds from any begin

	synced chan struct{} // closed when the initial population was processed
	wake   [numConsumers]chan struct{}
	lists  sync.Pool // of *[]item[T], for calls that are given several objects

	// nothing stands in for the batch while that is being cleared. Invariant: it is empty.
	nothing *line[T]

	mu struct {
		sync.Mutex
		line *line[T] // all that is queued
		// batch is the content in process by Drain, otherwise it is empty. popped is the entry in
		// process by Pop. Invariant: their keys, types and objects do not change while they are in
		// process.
		batch  *line[T]
		popped entry[T]
		// processing says whether a consumer has its turn, and how it takes.
		processing consumer
		waiting    [numConsumers]int // consumers that wait on wake

		// version is the place of the source that the content leads to, taken the place that the
		// last batch led to. Invariant: taken <= version.
		version, taken Version
		replaced       bool // a Replace has come since the last batch was taken
		resynced       bool // the content answers resyncAll
		woken          bool // wakeDrain was called since the last batch was taken
		// limit bounds the bytes that are queued. Invariant: whenever the lock is free, the bytes
		// that are queued are within it, and with those that are in process within twice of it.
		// Content that was put back may exceed the first until the next change.
		limit       int
		listsQueued uint64 // the number of calls of queueList

		populated bool // a list, or a change before any list, has come
		isSynced  bool // synced is closed
		relist    bool // the content was dropped, and no list has come since
		closed    bool

		counts  counts
		pending pendingEvents
	}
}

// pendingEvents are calls of events that wait until the lock is free.
type pendingEvents struct {
	overflow *Overflow
	lookups  int
	lookup   error // the first
}

// NewDeltaFIFO returns an empty queue.
func NewDeltaFIFO[T any](config FIFOConfig[T]) (*DeltaFIFO[T], error) {
	switch {
	case config.Key == nil:
		return nil, plimsoll.Invalid("Key", "a queue needs a function that returns the key of an object")
	case config.MaxBytes < 0:
		return nil, plimsoll.Invalid("MaxBytes", "is %d; 0 is the default, %d", config.MaxBytes, DefaultMaxBytes)
	case config.MaxBytes == 0:
		config.MaxBytes = DefaultMaxBytes
	}
	config.Size = sizeOr(config.Size)
	f := &DeltaFIFO[T]{config: config, size: sizeOfQueued(config.Size), synced: make(chan struct{})}
	if now := config.Now; now != nil {
		f.clock = func() int64 { return now().UnixNano() }
	} else {
		began := time.Now()
		f.clock = func() int64 { return int64(time.Since(began)) }
	}
	for i := range f.wake {
		f.wake[i] = make(chan struct{}, 1)
	}
	f.lists.New = func() any { return new([]item[T]) }
	f.mu.line, f.mu.batch, f.nothing = newLine[T](), newLine[T](), newLine[T]()
	f.mu.limit = config.MaxBytes
	return f, nil
}

// Close ends the waiting of consumers. Content that is queued can still be taken, and changes are
// still accepted. It may be called again.
func (f *DeltaFIFO[T]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.closed = true
	f.signal()
}

// HasSynced reports whether the initial population was processed: the keys of the first Replace. It
// is also true after a first change without a list before it. Once true it stays true.
func (f *DeltaFIFO[T]) HasSynced() bool {
	select {
	case <-f.synced:
		return true
	default:
		return false
	}
}

// Synced returns a channel that is closed when HasSynced becomes true.
func (f *DeltaFIFO[T]) Synced() <-chan struct{} { return f.synced }

// populate notes that the source has begun to speak.
func (f *DeltaFIFO[T]) populate() {
	if !f.mu.populated {
		f.mu.populated = true
		f.settle()
	}
}

// settle closes synced when all of the initial population was processed.
func (f *DeltaFIFO[T]) settle() {
	if f.mu.isSynced || !f.mu.populated || f.mu.line.initial+f.mu.batch.initial > 0 || f.mu.popped.initial {
		return
	}
	f.mu.isSynced = true
	close(f.synced)
}

// signal wakes a consumer of each kind, if one waits.
func (f *DeltaFIFO[T]) signal() {
	for i, n := range f.mu.waiting {
		if n > 0 {
			select {
			case f.wake[i] <- struct{}{}:
			default: // it is being woken
			}
		}
	}
}

// unlock frees the lock and then calls the events that wait.
func (f *DeltaFIFO[T]) unlock() {
	if f.mu.pending.overflow == nil && f.mu.pending.lookups == 0 {
		f.mu.Unlock()
		return
	}
	n := f.mu.pending
	f.mu.pending = pendingEvents{}
	f.mu.Unlock()
	if n.overflow != nil && f.config.Events.Overflow != nil {
		f.config.Events.Overflow(*n.overflow)
	}
	if n.lookups > 0 && f.config.Events.LookupFailed != nil {
		f.config.Events.LookupFailed(n.lookups, n.lookup)
	}
}

func (f *DeltaFIFO[T]) lookupFailed(err error) {
	if f.mu.pending.lookups++; f.mu.pending.lookups == 1 {
		f.mu.pending.lookup = err
	}
	f.mu.counts.lookupsFailed++
}
