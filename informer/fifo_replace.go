package informer

import "github.com/plimsoll-dev/plimsoll"

// Replace queues a new list of the source: every object of it, and then the deletion of each key
// that exists and is not in the list. Those are keys that are queued, in process or known. Deleted
// objects are tombstones with their newest state. The source is then at the version at, if that is
// not zero. If any object has no key, or is not transformed, nothing is queued.
//
// The first list is the initial population: HasSynced becomes true when its keys were processed. A
// list ends the need to list again after the content was dropped.
func (f *DeltaFIFO[T]) Replace(objects []T, at Version) error {
	t := Sync
	if f.config.EmitReplaced {
		t = Replaced
	}
	items, err := f.prepareAll(make([]item[T], 0, len(objects)), t, objects)
	if err != nil {
		return plimsoll.Within("objects", err)
	}
	f.mu.Lock()
	defer f.unlock()
	if err := f.isBehind(at); err != nil {
		return err
	}
	f.mu.counts.lists++
	own := f.queueList(items)
	f.mu.limit = max(f.config.MaxBytes, 2*own)
	if f.mu.line.bytes > f.mu.limit {
		f.compact()
	}
	if f.mu.line.bytes > f.mu.limit {
		f.drop()
		f.queueList(items)
	}
	f.mu.relist, f.mu.replaced = false, true
	f.reach(at)
	f.signal()
	if !f.mu.populated && !f.mu.isSynced {
		for place := f.mu.line.head; place < f.mu.line.tail; place++ {
			f.mu.line.setInitial(f.mu.line.at(place))
		}
	}
	f.populate()
	return nil
}

// queueList queues a list and the deletions that follow from it. It returns the bytes that the list
// takes in an empty queue.
func (f *DeltaFIFO[T]) queueList(items []item[T]) (bytes int) {
	f.mu.listsQueued++
	queued := f.mu.line.tail
	if f.mu.line.len() == 0 {
		f.mu.line.reserve(len(items))
	}
	for i := range items {
		e := f.put(&items[i])
		e.list = f.mu.listsQueued
		bytes += items[i].weight + keyOverhead + len(items[i].key)
	}
	queueTombstone := func(key string, last T) {
		it := f.tombstoneItem(key, last)
		f.put(&it)
		bytes += it.weight + keyOverhead + len(key)
	}
	for place := f.mu.line.head; place < queued; place++ {
		if e := f.mu.line.at(place); e.list != f.mu.listsQueued {
			it := f.tombstoneItem(e.key, e.newest().Object)
			f.put(&it)
		}
	}
	f.eachInProcess(func(e *entry[T]) {
		if e.newest().Type != Deleted && f.mu.line.find(e.key) == nil {
			queueTombstone(e.key, e.newest().Object)
		}
	})
	if f.config.Known == nil {
		return bytes
	}
	for key := range f.config.Known.Keys() {
		if f.mu.line.find(key) != nil {
			continue
		}
		last, ok, err := f.config.Known.Get(key)
		if err != nil {
			f.lookupFailed(err)
		}
		if !ok || err != nil {
			var unknown T
			last = unknown
		}
		queueTombstone(key, last)
	}
	return bytes
}

// Resync queues a Sync of each known object, so that the consumer looks at all again. Keys that are
// queued or in process are left out: their changes are newer than the known object. It weighs
// nothing towards the bound of the queue, because Known holds the objects.
func (f *DeltaFIFO[T]) Resync() {
	if f.config.Known == nil {
		return
	}
	f.mu.Lock()
	defer f.unlock()
	f.putKnown(nil)
}

// resyncAll is Resync for the consumer that drains. The next batch answers it, and says so. told
// holds keys that are left out, unless there are no others. The consumer processes nothing
// meanwhile, so no other key is left out but those of queued changes, which come in that batch. It
// reports whether there is anything.
func (f *DeltaFIFO[T]) resyncAll(told map[string]struct{}) (some bool) {
	f.mu.Lock()
	defer f.unlock()
	f.putKnown(told)
	if f.mu.line.len() == 0 && len(told) > 0 {
		f.putKnown(nil)
	}
	f.mu.resynced = f.mu.line.len() > 0
	return f.mu.resynced
}

// wakeDrain lets Drain return soon, with an empty batch if nothing is queued.
func (f *DeltaFIFO[T]) wakeDrain() {
	f.mu.Lock()
	defer f.unlock()
	f.mu.woken = true
	f.signal()
}

// putKnown queues a Sync of each known object that has no change under way and is not in told. The
// caller holds mu.
func (f *DeltaFIFO[T]) putKnown(told map[string]struct{}) {
	for key := range f.config.Known.Keys() {
		if _, has := told[key]; has || f.mu.line.find(key) != nil || f.inProcess(key) != nil {
			continue
		}
		object, ok, err := f.config.Known.Get(key)
		switch {
		case err != nil:
			f.lookupFailed(err)
		case ok:
			f.put(&item[T]{key: key, delta: Delta[T]{Type: Sync, Object: object}})
		}
	}
}

// eachInProcess calls visit for each entry that a consumer processes.
func (f *DeltaFIFO[T]) eachInProcess(visit func(*entry[T])) {
	switch f.mu.processing {
	case popper:
		visit(&f.mu.popped)
	case drainer:
		for place := f.mu.batch.head; place < f.mu.batch.tail; place++ {
			visit(f.mu.batch.at(place))
		}
	}
}
