package informer

import (
	"errors"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
)

// ErrRelist is the cause of an error of a change that came after the queue had dropped its content.
// The caller lists the source again and calls Replace.
var ErrRelist = errors.New("the queue was full and has dropped its content: list again and call Replace")

// item is a change that is ready to be queued.
type item[T any] struct {
	key    string
	delta  Delta[T]
	weight int
}

// Add queues an object that is new in the source.
func (f *DeltaFIFO[T]) Add(object T) error { return f.offer(Added, object) }

// Update queues an object that has changed.
func (f *DeltaFIFO[T]) Update(object T) error { return f.offer(Updated, object) }

// Delete queues the final state of an object that is gone. A deletion of a key that is neither
// known, queued nor in process is ignored. If Known cannot tell, it counts as known.
func (f *DeltaFIFO[T]) Delete(object T) error { return f.offer(Deleted, object) }

// DeleteKey queues the deletion of an object whose final state is unknown. If isKnown, last is its
// last known state; otherwise the newest state that is queued takes its place. It is ignored as by
// Delete.
func (f *DeltaFIFO[T]) DeleteKey(key string, last T, isKnown bool) error {
	it, err := f.tombstone(key, last)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.unlock()
	if !isKnown {
		if e := f.mu.line.find(key); e != nil {
			it = f.tombstoneItem(key, e.newest().Object)
		} else if e := f.inProcess(key); e != nil {
			it = f.tombstoneItem(key, e.newest().Object)
		}
	}
	return f.queue(it)
}

// Change queues one step of the source: objects that are new or changed, as Updated, and deleted
// ones. A consumer sees all of it or nothing. The source is then at the version at, if that is not
// zero. A call without objects only tells the version. Deletions are queued whether their keys are
// known or not. If any part is refused, nothing is queued.
func (f *DeltaFIFO[T]) Change(objects []T, deleted []Deletion[T], at Version) error {
	pooled := f.lists.Get().(*[]item[T])
	defer f.giveBack(pooled)
	items, err := f.prepareAll((*pooled)[:0], Updated, objects)
	*pooled = items
	if err != nil {
		return plimsoll.Within("objects", err)
	}
	for i, d := range deleted {
		it, err := f.deletion(d)
		if err != nil {
			return plimsoll.Within(fmt.Sprintf("deleted[%d]", i), err)
		}
		items = append(items, it)
	}
	*pooled = items
	f.mu.Lock()
	defer f.unlock()
	if err := f.refused(at); err != nil {
		return err
	}
	for i := range items {
		f.put(&items[i])
	}
	f.reach(at)
	f.populate()
	return f.fit()
}

// AddIfNotPresent puts changes behind all others, unless their key is queued: then newer ones wait
// already. It is for changes that a consumer could not process. The slice stays the caller's.
func (f *DeltaFIFO[T]) AddIfNotPresent(deltas Deltas[T]) error {
	switch {
	case deltas.Key == "":
		return plimsoll.Invalid("key", "is empty")
	case len(deltas.Changes) == 0:
		return plimsoll.Invalid("changes", "has no element: a key is queued with at least one change")
	}
	for i, d := range deltas.Changes {
		if d.Type >= numDeltaTypes {
			return plimsoll.Invalid(fmt.Sprintf("changes[%d].type", i), "%d is not a type of deltas", d.Type)
		}
	}
	f.mu.Lock()
	defer f.unlock()
	if err := f.refused(Version{}); err != nil {
		return err
	}
	if f.mu.line.find(deltas.Key) == nil {
		for _, d := range deltas.Changes {
			f.put(&item[T]{deltas.Key, d, f.weight(d.Object)})
		}
		if deltas.Initial && !f.mu.isSynced {
			f.mu.line.setInitial(f.mu.line.find(deltas.Key))
		}
	}
	f.populate()
	return f.fit()
}

// offer queues one change of an object.
func (f *DeltaFIFO[T]) offer(t DeltaType, object T) error {
	it, err := f.prepare(t, object)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.unlock()
	return f.queue(it)
}

// queue queues one change, unless it is a deletion of a key that does not exist.
func (f *DeltaFIFO[T]) queue(it item[T]) error {
	if err := f.refused(Version{}); err != nil {
		return err
	}
	if it.delta.Type != Deleted || f.exists(it.key) {
		f.put(&it)
	}
	f.populate()
	return f.fit()
}

// put adds a change to those of its key.
func (f *DeltaFIFO[T]) put(it *item[T]) *entry[T] {
	line := f.mu.line
	e, hash := line.lookUp(it.key)
	isNew := e == nil
	if isNew {
		e = line.push(it.key, hash, f.clock())
		if f.mu.waiting != [numConsumers]int{} && f.mu.processing == none {
			f.signal()
		}
	}
	f.mu.counts.queued++
	if !line.append(e, isNew, it.delta, it.weight, f.size) {
		f.mu.counts.joined++
	}
	return e
}

// refused returns the error of a change that leads to the version at, if it cannot be accepted now.
func (f *DeltaFIFO[T]) refused(at Version) error {
	if f.mu.relist {
		return &plimsoll.Error{Code: plimsoll.CodeExhausted, Op: "queue a change", Err: ErrRelist}
	}
	return f.isBehind(at)
}

func (f *DeltaFIFO[T]) isBehind(at Version) error {
	if at.IsZero() || !at.Before(f.mu.version) {
		return nil
	}
	return &plimsoll.Error{
		Code: plimsoll.CodeStale, Op: "queue a change", Field: "at",
		Msg: fmt.Sprintf("%v is before %v, to which the queue already leads", at, f.mu.version),
	}
}

// reach notes that the content leads to a version. A consumer that drains is told even if nothing
// is queued.
func (f *DeltaFIFO[T]) reach(at Version) {
	if f.mu.version.Before(at) {
		f.mu.version = at
		f.signal()
	}
}

// exists reports whether the consumer knows the key, or will know it when it has processed all.
func (f *DeltaFIFO[T]) exists(key string) bool {
	if f.mu.line.find(key) != nil || f.inProcess(key) != nil {
		return true
	}
	if f.config.Known == nil {
		return false
	}
	_, ok, err := f.config.Known.Get(key)
	if err != nil {
		f.lookupFailed(err)
	}
	return ok || err != nil
}

// inProcess returns the entry of a key that a consumer processes, or nil.
func (f *DeltaFIFO[T]) inProcess(key string) *entry[T] {
	switch f.mu.processing {
	case popper:
		if f.mu.popped.key == key {
			return &f.mu.popped
		}
	case drainer:
		return f.mu.batch.find(key)
	}
	return nil
}

// sizeOfQueued is FIFOConfig.Size for objects that were weighed when they came, mostly under the
// lock. It is also for those of deletions, which may be the zero value. An object over which the
// function panics has the default size, so that no step is queued in part.
func sizeOfQueued[T any](size func(T) int) func(T) int {
	return func(object T) (bytes int) {
		defer func() {
			if recover() != nil {
				bytes = defaultSize
			}
		}()
		return size(object)
	}
}

func (f *DeltaFIFO[T]) weight(object T) int { return deltaOverhead + max(f.size(object), 0) }

// prepare finds the key of an object, transforms it and weighs it. It needs no lock.
func (f *DeltaFIFO[T]) prepare(t DeltaType, object T) (item[T], error) {
	key, err := f.config.Key(object)
	if err == nil && key == "" {
		err = errors.New("the key is empty")
	}
	if err != nil {
		return item[T]{}, &plimsoll.Error{
			Code: plimsoll.CodeInvalid, Field: "key", Msg: "an object has no key", Err: err,
		}
	}
	if f.config.Transform != nil {
		if object, err = f.config.Transform(object); err != nil {
			return item[T]{}, notTransformed(key, err)
		}
	}
	// Without the lock: a panic of Size queues nothing.
	return item[T]{key, Delta[T]{Type: t, Object: object}, deltaOverhead + max(f.config.Size(object), 0)}, nil
}

func (f *DeltaFIFO[T]) prepareAll(items []item[T], t DeltaType, objects []T) ([]item[T], error) {
	for i, object := range objects {
		it, err := f.prepare(t, object)
		if err != nil {
			return items, plimsoll.Within(fmt.Sprintf("[%d]", i), err)
		}
		items = append(items, it)
	}
	return items, nil
}

func (f *DeltaFIFO[T]) tombstone(key string, last T) (item[T], error) {
	if key == "" {
		return item[T]{}, plimsoll.Invalid("key", "is empty")
	}
	return f.tombstoneItem(key, last), nil
}

// tombstoneItem is the deletion of a key whose final state is unknown.
func (f *DeltaFIFO[T]) tombstoneItem(key string, last T) item[T] {
	return item[T]{key, Delta[T]{Type: Deleted, Tombstone: true, Object: last}, f.weight(last)}
}

func (f *DeltaFIFO[T]) deletion(d Deletion[T]) (item[T], error) {
	it, err := f.tombstone(d.Key, d.Object)
	if err != nil || d.Tombstone {
		return it, err
	}
	it.delta.Tombstone = false
	if f.config.Transform == nil {
		return it, nil
	}
	if it.delta.Object, err = f.config.Transform(d.Object); err != nil {
		return it, notTransformed(d.Key, err)
	}
	it.weight = f.weight(it.delta.Object)
	return it, nil
}

func notTransformed(key string, cause error) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeInvalid, Field: "object", Msg: fmt.Sprintf("%.100q was not transformed", key), Err: cause,
	}
}

// giveBack keeps a slice of items for another call, without their objects.
func (f *DeltaFIFO[T]) giveBack(pooled *[]item[T]) {
	if cap(*pooled) > keptSlots {
		return
	}
	clear(*pooled)
	*pooled = (*pooled)[:0]
	f.lists.Put(pooled)
}
