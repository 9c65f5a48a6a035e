package replica

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Property is a property by which a part of the objects of a kind is chosen.
type Property uint8

// The properties of parts.
const (
	Every   Property = iota // no property: all objects of the kind
	ByNode                  // tasks that are bound to a node
	ByJob                   // tasks of a job
	ByOwner                 // jobs of an owner
	ByQueue                 // jobs of a queue and of those below it
	numProperties
)

// Part is a part of the objects of one kind. A change concerns it if the object is in the part
// before or behind the change.
type Part struct {
	Kind  wire.Kind // one of Change.Kind
	By    Property
	Value string // of the property; empty for Every
}

const (
	// maxWaiting bounds the positions that wait for one reader: 1 KiB. Beyond it the reader looks
	// at every change behind the first of them.
	maxWaiting = 128
	// farChanges is the number of changes of others after which a reader with a point is signalled,
	// so that its point stays in the history. An eighth of the history counts instead if it is
	// more.
	farChanges = 512
)

// ChangeReaders tells each reader of a history's changes which of them concern its part. One
// goroutine publishes; any goroutine reads.
type ChangeReaders struct {
	// told holds, for each kind, the position up to which all readers have been told. Invariant:
	// each position below it is in its readers already.
	told [wire.NumKinds]atomic.Uint64

	mu struct {
		sync.Mutex
		byPart map[Part]map[*ChangeReader]struct{}
		parts  [wire.NumKinds][numProperties]int // number of parts in byPart
		// touched holds the readers that were told something by the call under way.
		touched []*ChangeReader
		// pointed holds the readers with a point, and far the position at which they were signalled
		// last.
		pointed [wire.NumKinds]map[*ChangeReader]struct{}
		far     [wire.NumKinds]uint64
	}
}

// ChangeReader reads the changes of one part of the objects, in their order. It is signalled only
// for those: what changes elsewhere costs it nothing. All methods but Changed belong to one
// goroutine.
//
//	r := f.ReadChanges(replica.Part{Kind: wire.KindTask, By: replica.ByNode, Value: "n1"}, false)
//	defer r.Close()
//	r.Begin(position)
//	for {
//		<-r.Changed()
//		view := r.View()
//		whole, err := r.Each(view, look)
//		...
//	}
type ChangeReader struct {
	readers *ChangeReaders
	latest  func() *Changes
	part    Part
	pointed bool
	changed chan struct{}
	touched bool        // guarded by readers.mu
	due     atomic.Bool // a signal is in changed, or was received and View has not been called since

	position uint64 // of the next change to look at
	wide     uint64 // up to here every change is looked at
	// waiting holds positions of changes behind wide that concern the part, in order. Invariant:
	// all those below upTo are in it, unless they are below position or wide. Those from upTo on
	// are of a batch of which the reader has not been told everything. It has at most maxWaiting.
	waiting []uint64
	upTo    uint64

	mu struct {
		sync.Mutex
		waiting []uint64 // positions of changes that concern the part; at most maxWaiting
		over    bool     // there were more
	}
}

// Read makes a reader of a part, which begins with the next change unless Begin says otherwise.
// latest returns the newest view that can be read. A reader with a point is also signalled when
// many changes of others have come.
func (rs *ChangeReaders) Read(part Part, latest func() *Changes, pointed bool) *ChangeReader {
	r := &ChangeReader{
		readers: rs, latest: latest, part: part, changed: make(chan struct{}, 1),
		pointed: pointed && part.By != Every,
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.mu.byPart == nil {
		rs.mu.byPart = map[Part]map[*ChangeReader]struct{}{}
	}
	if rs.mu.byPart[part] == nil {
		rs.mu.byPart[part] = map[*ChangeReader]struct{}{}
		rs.mu.parts[part.Kind][part.By]++
	}
	rs.mu.byPart[part][r] = struct{}{}
	if r.pointed {
		if rs.mu.pointed[part.Kind] == nil {
			rs.mu.pointed[part.Kind] = map[*ChangeReader]struct{}{}
		}
		rs.mu.pointed[part.Kind][r] = struct{}{}
	}
	r.wide = rs.told[part.Kind].Load()
	r.position = r.wide
	return r
}

// Close ends the reader. It is signalled no more.
func (r *ChangeReader) Close() {
	rs := r.readers
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if _, open := rs.mu.byPart[r.part][r]; !open {
		return
	}
	delete(rs.mu.byPart[r.part], r)
	delete(rs.mu.pointed[r.part.Kind], r)
	if len(rs.mu.byPart[r.part]) == 0 {
		delete(rs.mu.byPart, r.part)
		rs.mu.parts[r.part.Kind][r.part.By]--
	}
}

// Len returns the number of readers.
func (rs *ChangeReaders) Len() (n int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, readers := range rs.mu.byPart {
		n += len(readers)
	}
	return n
}

// Publish tells the readers of the changes that a view has beyond the one before. The view and the
// snapshot of its revision can be read by then.
func (rs *ChangeReaders) Publish(view *Changes) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for kind := range rs.told {
		if begin, end := rs.told[kind].Load(), view.End(wire.Kind(kind)); begin != end {
			rs.publish(view, wire.Kind(kind), begin)
			rs.told[kind].Store(end) // and then they are signalled, so that they see a batch as a whole
		}
		for i, r := range rs.mu.touched {
			r.touched, rs.mu.touched[i] = false, nil
			r.signal()
		}
		rs.mu.touched = rs.mu.touched[:0]
	}
}

// touch makes Publish signal a reader. The caller holds mu.
func (rs *ChangeReaders) touch(r *ChangeReader) {
	if !r.touched {
		r.touched, rs.mu.touched = true, append(rs.mu.touched, r)
	}
}

// Replaced signals all readers: the copy is live again, and its history may have begun anew. Their
// positions in another history are gone.
func (rs *ChangeReaders) Replaced(view *Changes) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for kind := range rs.told {
		rs.told[kind].Store(view.End(wire.Kind(kind)))
	}
	for _, readers := range rs.mu.byPart {
		for r := range readers {
			r.signal()
		}
	}
}

// publish tells the readers of a kind. The caller holds mu.
func (rs *ChangeReaders) publish(view *Changes, kind wire.Kind, begin uint64) {
	parts := &rs.mu.parts[kind]
	if parts[Every] > 0 {
		for r := range rs.mu.byPart[Part{Kind: kind}] {
			rs.touch(r)
		}
	}
	narrow := 0
	for _, n := range parts[Every+1:] {
		narrow += n
	}
	if narrow == 0 {
		return
	}
	changes, ok := view.From(kind, begin)
	if !ok { // one batch is larger than the history, and nobody can tell whom the lost changes concern
		for part, readers := range rs.mu.byPart {
			for r := range readers {
				if part.Kind == kind && part.By != Every {
					r.tell(begin) // which the view does not have
					rs.touch(r)
				}
			}
		}
		return
	}
	for i, c := range changes {
		position := begin + uint64(i)
		switch kind {
		case wire.KindTask:
			rs.tellTask(c, position)
		case wire.KindJobStatus:
			rs.tellJob(c, position)
		}
	}
	if end := view.End(kind); end-rs.mu.far[kind] >= uint64(max(farChanges, view.Len(kind)/8)) {
		rs.mu.far[kind] = end
		for r := range rs.mu.pointed[kind] {
			rs.touch(r)
		}
	}
}

// tellTask tells the readers of a task's node, before and behind the change, and of its job.
func (rs *ChangeReaders) tellTask(c *Change, position uint64) {
	parts := &rs.mu.parts[wire.KindTask]
	if parts[ByNode] > 0 {
		if c.Old.Node != "" {
			rs.tell(Part{wire.KindTask, ByNode, c.Old.Node}, position)
		}
		if c.New.Node != "" && c.New.Node != c.Old.Node {
			rs.tell(Part{wire.KindTask, ByNode, c.New.Node}, position)
		}
	}
	if parts[ByJob] > 0 {
		rs.tell(Part{wire.KindTask, ByJob, wire.JobOfTaskKey(c.Key)}, position)
	}
}

// tellJob tells the readers of a job's owner and queues, before and behind the change.
func (rs *ChangeReaders) tellJob(c *Change, position uint64) {
	for _, value := range [2][]byte{c.Old.Value, c.New.Value} {
		if value == nil {
			continue
		}
		owner, queue, _, ok := wire.PeekJob(value)
		if !ok { // every reader of jobs has to report it
			for part := range rs.mu.byPart {
				if part.Kind == wire.KindJobStatus {
					rs.tell(part, position)
				}
			}
			return
		}
		rs.tell(Part{wire.KindJobStatus, ByOwner, string(owner)}, position)
		if rs.mu.parts[wire.KindJobStatus][ByQueue] == 0 {
			continue
		}
		for end, more := 0, true; more; end++ {
			next := bytes.IndexByte(queue[end:], '.')
			if more = next >= 0; more {
				end += next
			} else {
				end = len(queue)
			}
			rs.tell(Part{wire.KindJobStatus, ByQueue, string(queue[:end])}, position)
		}
	}
}

func (rs *ChangeReaders) tell(part Part, position uint64) {
	for r := range rs.mu.byPart[part] {
		r.tell(position)
		rs.touch(r)
	}
}

// tell adds the position of a change that concerns the reader.
func (r *ChangeReader) tell(position uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.mu.waiting)
	switch {
	case n > 0 && (r.mu.over || r.mu.waiting[n-1] == position): // it is there already
	case n == maxWaiting:
		r.mu.over = true
	default:
		r.mu.waiting = append(r.mu.waiting, position)
	}
}

// signal signals the reader, unless its next View comes in any case. View begins with the end of
// due, so it sees what was published before a signal that is left out.
func (r *ChangeReader) signal() {
	if r.due.Load() || r.due.Swap(true) {
		return
	}
	select {
	case r.changed <- struct{}{}:
	default: // one is there already, and stands for both
	}
}

// Changed returns the channel, of capacity one, that gets a signal when the reader has something to
// read, and when the history was replaced. View follows each signal; there is no other before it.
func (r *ChangeReader) Changed() <-chan struct{} { return r.changed }

// Begin makes Each begin with the change at a position. A position from before the reader was made
// costs a look at every change from there on until then.
func (r *ChangeReader) Begin(position uint64) { r.position, r.upTo = position, 0 }

// Position returns the position behind which Each has looked at nothing yet.
func (r *ChangeReader) Position() uint64 { return r.position }

// View returns the newest view of the history, and makes Each yield what it has of the part. A
// snapshot that is taken behind it holds each of those changes.
func (r *ChangeReader) View() *Changes {
	r.due.Store(false)
	r.upTo = r.readers.told[r.part.Kind].Load() // first: all positions below it are there by now
	waiting, over := r.take()
	view := r.latest()
	r.waiting = append(r.waiting, waiting...)
	if over || len(r.waiting) > maxWaiting {
		if r.position >= r.wide {
			r.position = max(r.position, r.waiting[0])
		}
		r.wide, r.waiting = max(r.wide, view.End(r.part.Kind)), nil
	}
	return view
}

// take returns the positions that the reader was told, and whether there were more.
func (r *ChangeReader) take() (waiting []uint64, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting, over = r.mu.waiting, r.mu.over
	r.mu.waiting, r.mu.over = nil, false
	return waiting, over
}

// Each calls look for the changes of a view from View that concern the part, and for some others,
// in their order. It goes on behind them at the next call. It ends early after an error, and when
// look reports that it has not taken the change, which is the next one then. whole is false if the
// history has lost a change that may concern the part.
func (r *ChangeReader) Each(view *Changes, look func(*Change) (taken bool, err error)) (whole bool, err error) {
	if r.part.By == Every {
		r.wide = view.End(r.part.Kind)
	}
	if r.position < r.wide {
		changes, ok := view.From(r.part.Kind, r.position)
		if !ok {
			return false, nil
		}
		for _, c := range changes[:min(r.wide-r.position, uint64(len(changes)))] {
			if taken, err := look(c); err != nil || !taken {
				return true, err
			}
			r.position++
		}
	}
	for len(r.waiting) > 0 && r.waiting[0] < r.upTo {
		at := r.waiting[0]
		if at >= r.position {
			c, ok := view.At(r.part.Kind, at)
			if !ok {
				return false, nil
			}
			r.position = at // nothing before it concerns the part
			if taken, err := look(c); err != nil || !taken {
				return true, err
			}
			r.position = at + 1
		}
		r.waiting = r.waiting[1:]
	}
	if len(r.waiting) == 0 {
		r.waiting = nil
	}
	r.position = max(r.position, r.upTo)
	return true, nil
}
