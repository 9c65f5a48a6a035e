package informer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// ErrClosed is returned by Pop and Drain when the queue is closed and nothing is queued.
var ErrClosed = errors.New("the queue is closed, and nothing is left in it")

// RequeueError is an error of a consumer's function that puts back what the function was given. The
// cause may be nil.
type RequeueError struct{ Err error }

// Error returns the text of the cause.
func (r *RequeueError) Error() string {
	if r.Err == nil {
		return "put back into the queue"
	}
	return "put back into the queue: " + r.Err.Error()
}

// Unwrap returns the cause.
func (r *RequeueError) Unwrap() error { return r.Err }

// consumer is a way to take content.
type consumer uint8

const (
	none consumer = iota // nobody takes
	popper
	drainer

	numConsumers
)

// Batch is all that was queued at one moment. It is valid until the function returns that it was
// given to.
type Batch[T any] struct {
	// Version is the place of the source that its objects have after the batch, as the last Change
	// or Replace told it. It is zero if none did. A batch without keys only tells a version.
	Version Version
	// Initial says that some of its keys belong to the initial population.
	Initial bool
	// Replaced says that the batch holds a Replace, perhaps of an empty list.
	Replaced bool
	resynced bool // it answers resyncAll
	line     *line[T]
}

// Len returns the number of keys.
func (b Batch[T]) Len() int {
	if b.line == nil {
		return 0
	}
	return b.line.len()
}

// All goes through the keys in the order in which they were queued. Each comes once, with the net
// effect of its changes: one change, or a Deleted and an object that took its place.
func (b Batch[T]) All() iter.Seq[Deltas[T]] {
	return func(yield func(Deltas[T]) bool) {
		if b.line == nil {
			return
		}
		for place := b.line.head; place < b.line.tail; place++ {
			if !yield(b.line.at(place).deltas()) {
				return
			}
		}
	}
}

// Pop waits until a key is queued, and gives process the one that has waited longest with all of
// its changes. They are valid until process returns, and are not to be changed; the objects may be
// kept. process may call the queue, but for Pop and Drain, which wait for their turn.
//
// If process returns a *RequeueError, the changes are put back, in front of newer ones of the key,
// or behind all other keys. After any other error, or a panic, they are lost. Stats counts them.
// Pop returns the error of process as it is, ErrClosed, or the error of ctx.
func (f *DeltaFIFO[T]) Pop(ctx context.Context, process func(Deltas[T]) error) error {
	if err := f.await(ctx, popper); err != nil {
		return err
	}
	f.mu.line.shift(&f.mu.popped)
	deltas := f.mu.popped.deltas()
	f.mu.counts.taken += uint64(len(deltas.Changes))
	f.mu.Unlock()

	turn := turn[T]{f: f, changes: len(deltas.Changes)}
	defer turn.endPop()
	turn.err = process(deltas)
	turn.returned = true
	return turn.err
}

// Drain waits until keys are queued, or the queue leads to another version. It takes all content in
// one step, so that a consumer that applies a batch in one step shows states of the source only.
// The batch is valid until process returns. It ends as with Pop: a *RequeueError puts the batch
// back, in front of all that came later. A consumer uses either Pop or Drain, because keys that
// were popped are not in the batch of their version.
func (f *DeltaFIFO[T]) Drain(ctx context.Context, process func(Batch[T]) error) error {
	if err := f.await(ctx, drainer); err != nil {
		return err
	}
	f.compact()
	f.mu.line, f.mu.batch = f.mu.batch, f.mu.line
	batch := Batch[T]{
		Version: f.mu.version, Initial: f.mu.batch.initial > 0, Replaced: f.mu.replaced,
		resynced: f.mu.resynced, line: f.mu.batch,
	}
	turn := turn[T]{f: f, changes: f.mu.batch.changes, before: f.mu.taken, replaced: f.mu.replaced}
	f.mu.taken, f.mu.replaced, f.mu.resynced, f.mu.woken = f.mu.version, false, false, false
	f.mu.counts.taken += uint64(turn.changes)
	f.mu.Unlock()

	defer turn.endDrain()
	turn.err = process(batch)
	turn.returned = true
	return turn.err
}

// await waits until there is content and the turn is free, and takes the turn. It returns with the
// lock held, unless with an error.
func (f *DeltaFIFO[T]) await(ctx context.Context, c consumer) error {
	f.mu.Lock()
	for {
		ready := f.mu.processing == none && f.ready(c)
		switch err := ctx.Err(); {
		case err != nil:
			f.signal() // the wake-up may have been for another
			f.mu.Unlock()
			return fmt.Errorf("take from the queue: %w", err)
		case ready:
			f.mu.processing = c
			return nil
		case f.mu.closed && f.mu.processing == none:
			f.signal()
			f.mu.Unlock()
			return ErrClosed
		}
		f.mu.waiting[c]++
		f.mu.Unlock()
		select {
		case <-f.wake[c]:
		case <-ctx.Done():
		}
		f.mu.Lock()
		f.mu.waiting[c]--
	}
}

func (f *DeltaFIFO[T]) ready(c consumer) bool {
	return f.mu.line.len() > 0 || c == drainer && (f.mu.replaced || f.mu.woken || f.mu.taken.Before(f.mu.version))
}

// turn is the part of a consumer between taking content and its end.
type turn[T any] struct {
	f        *DeltaFIFO[T]
	changes  int     // how many were taken
	before   Version // the version that the batch before led to
	replaced bool    // the batch holds a Replace
	returned bool    // process has returned; otherwise it has panicked
	err      error
}

// putBack reports whether process asks for its content to be put back. It counts lost content.
func (t *turn[T]) putBack() bool {
	if t.returned && t.err == nil {
		return false
	}
	var r *RequeueError
	if t.returned && errors.As(t.err, &r) {
		t.f.mu.counts.requeued += uint64(t.changes)
		return true
	}
	t.f.mu.counts.lost += uint64(t.changes)
	return false
}

func (t *turn[T]) endPop() {
	f := t.f
	f.mu.Lock()
	defer f.unlock()
	if t.putBack() {
		f.requeue(&f.mu.popped)
	}
	f.mu.popped.clear()
	t.end()
}

func (t *turn[T]) endDrain() {
	f := t.f
	f.mu.Lock()
	defer f.unlock()
	if t.putBack() {
		f.mu.line, f.mu.batch = f.mu.batch, f.mu.line
		f.mu.taken, f.mu.replaced = t.before, f.mu.replaced || t.replaced
		for place := f.mu.batch.head; place < f.mu.batch.tail; place++ {
			f.add(f.mu.batch.at(place))
		}
	}
	if done := f.mu.batch; done.len() <= scanned {
		done.reset()
	} else { // producers need not wait for it
		f.mu.batch = f.nothing
		f.mu.Unlock()
		done.reset()
		f.mu.Lock()
		f.mu.batch = done
	}
	t.end()
}

func (t *turn[T]) end() {
	f := t.f
	f.mu.processing = none
	f.settle()
	if f.mu.line.bytes > f.mu.limit { // what was put back is not dropped: no producer would be told
		f.compact()
	}
	f.signal()
}

// requeue puts older changes in front of those that are queued for the key, or behind all keys.
func (f *DeltaFIFO[T]) requeue(older *entry[T]) {
	line := f.mu.line
	e := line.find(older.key)
	if e == nil {
		f.add(older)
		return
	}
	newer := slices.Clone(e.changes())
	line.strip(e)
	for i, d := range slices.Concat(older.changes(), newer) {
		if !line.append(e, i == 0, d, f.weight(d.Object), f.size) {
			f.mu.counts.joined++
		}
	}
	e.since = older.since
	if older.initial {
		line.setInitial(e)
	}
}

// add puts the changes of an entry of another line behind those of its key, or behind all keys.
func (f *DeltaFIFO[T]) add(from *entry[T]) {
	line := f.mu.line
	e, hash := line.lookUp(from.key)
	isNew := e == nil
	if isNew {
		e = line.push(from.key, hash, from.since)
	}
	for i, d := range from.changes() {
		weight := 0
		if from.bytes > 0 {
			weight = f.weight(d.Object)
		}
		if !line.append(e, isNew && i == 0, d, weight, f.size) {
			f.mu.counts.joined++
		}
	}
	if from.initial {
		line.setInitial(e)
	}
}
