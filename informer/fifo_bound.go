package informer

import (
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// FIFOStats are the state of a queue at one moment, and counters since its begin. The rate of
// changes is the growth of Queued.
type FIFOStats struct {
	Depth      int           // keys that are queued
	Changes    int           // their changes
	Bytes      int           // the bytes that count towards the bound
	Limit      int           // the bound
	Oldest     time.Duration // how long the key that is next has waited
	Processing int           // keys that a consumer processes
	Version    Version       // the place of the source that the content leads to

	Queued        uint64 // changes that came
	Joined        uint64 // changes that were joined with another one of their key
	Taken         uint64 // changes that consumers were given
	Requeued      uint64 // changes of Taken that were put back
	Lost          uint64 // changes of Taken whose consumer returned an error or panicked
	Dropped       uint64 // changes that a full queue has dropped
	Overflows     uint64 // how often a full queue has dropped its content
	Lists         uint64 // calls of Replace
	LookupsFailed uint64 // errors of KnownObjects.Get
}

// counts are the counters of FIFOStats.
type counts struct {
	queued, joined, taken, requeued, lost, dropped, overflows, lists, lookupsFailed uint64
}

// Stats returns the state of the queue. Its cost does not depend on the content.
func (f *DeltaFIFO[T]) Stats() FIFOStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.mu.counts
	s := FIFOStats{
		Depth: f.mu.line.len(), Changes: f.mu.line.changes, Bytes: f.mu.line.bytes, Limit: f.mu.limit,
		Version: f.mu.version,
		Queued:  c.queued, Joined: c.joined, Taken: c.taken, Requeued: c.requeued, Lost: c.lost,
		Dropped: c.dropped, Overflows: c.overflows, Lists: c.lists, LookupsFailed: c.lookupsFailed,
	}
	switch f.mu.processing {
	case popper:
		s.Processing = 1
	case drainer:
		s.Processing = f.mu.batch.len()
	}
	if s.Depth > 0 {
		s.Oldest = max(time.Duration(f.clock()-f.mu.line.at(f.mu.line.head).since), 0)
	}
	return s
}

// Compact reduces the changes of each queued key to their net effect: one change, or a Deleted and
// an object that took its place. The queue does so itself for Drain, and before it drops content.
// Its cost grows with the number of changes since it was last called.
func (f *DeltaFIFO[T]) Compact() {
	f.mu.Lock()
	defer f.unlock()
	f.compact()
}

func (f *DeltaFIFO[T]) compact() {
	f.mu.counts.joined += uint64(f.mu.line.compact(f.size))
}

// fit makes the content fit the bound. It returns an ErrRelist if it had to be dropped for that.
func (f *DeltaFIFO[T]) fit() error {
	if f.fits() {
		return nil
	}
	if f.compact(); f.fits() {
		return nil
	}
	f.drop()
	return &plimsoll.Error{Code: plimsoll.CodeExhausted, Op: "queue a change", Err: ErrRelist}
}

// fits reports whether the content is within the bound. A batch in process that was put back before
// may exceed the bound. The excess is then counted with the content, so that both together
// are at most twice the bound.
func (f *DeltaFIFO[T]) fits() bool {
	return f.mu.line.bytes+max(f.mu.batch.bytes-f.mu.limit, 0) <= f.mu.limit
}

// drop forgets all content. An initial population of which a part was not yet taken begins anew
// with the next list. A version that no consumer was told is no longer led to.
func (f *DeltaFIFO[T]) drop() {
	line := f.mu.line
	f.mu.pending.overflow = &Overflow{Keys: line.len(), Changes: line.changes, Bytes: line.bytes, Limit: f.mu.limit}
	f.mu.counts.overflows++
	f.mu.counts.dropped += uint64(line.changes)
	if line.initial > 0 {
		f.mu.populated = false
	}
	line.reset()
	f.mu.relist, f.mu.replaced, f.mu.resynced = true, false, false
	f.mu.version = f.mu.taken
}
