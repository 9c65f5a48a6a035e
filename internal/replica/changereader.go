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
	// maxSpans bounds what is kept of the positions of a part: 1 KiB.
	maxSpans = 64
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
		byPart map[Part]*partLog
		parts  [wire.NumKinds][numProperties]int // number of parts in byPart
		// touched holds the parts that the call under way has told something, and the readers that
		// it has to signal beside theirs.
		touched []*partLog
		signals []*ChangeReader
		// pointed holds the readers with a point, and far the position at which they were signalled
		// last.
		pointed [wire.NumKinds]map[*ChangeReader]struct{}
		far     [wire.NumKinds]uint64
	}
}

// partLog is a part with its readers. They share the positions of its changes, so that a change
// costs the same with any number of them.
type partLog struct {
	readers map[*ChangeReader]struct{} // guarded by ChangeReaders.mu, as is touched
	touched bool

	mu struct {
		sync.Mutex
		// spans hold the position of each change that concerns the part, since its first reader
		// came. They are in order and do not touch each other. When there are maxSpans, the older
		// half of them is joined in pairs: a reader that far behind looks at more changes.
		spans []span
	}
}

// span is a range of positions, without its end.
type span struct{ begin, end uint64 }

// tell adds the positions of changes that concern the part. Invariant: none before it is behind s.
func (p *partLog) tell(s span) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.mu.spans)
	if n > 0 && p.mu.spans[n-1].end >= s.begin {
		p.mu.spans[n-1].end = max(p.mu.spans[n-1].end, s.end)
		return
	}
	if n == maxSpans {
		for i := range maxSpans / 4 {
			p.mu.spans[i] = span{p.mu.spans[2*i].begin, p.mu.spans[2*i+1].end}
		}
		p.mu.spans = append(p.mu.spans[:maxSpans/4], p.mu.spans[maxSpans/2:]...)
	}
	p.mu.spans = append(p.mu.spans, s)
}

// within appends the parts of the spans that lie in a range.
func (p *partLog) within(spans []span, in span) []span {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.mu.spans {
		if s.begin, s.end = max(s.begin, in.begin), min(s.end, in.end); s.begin < s.end {
			spans = append(spans, s)
		}
	}
	return spans
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
	log     *partLog // of the part
	changed chan struct{}
	due     atomic.Bool // a signal is in changed, or was received and View has not been called since

	position uint64 // of the next change to look at
	wide     uint64 // up to here every change is looked at: the log may begin later
	upTo     uint64 // of the view: behind it may be a part of a batch
}

// Read makes a reader of a part, which begins with the next change unless Begin says otherwise.
// latest returns the newest view that can be read. A reader with a point is also signalled when
// many changes of others have come.
func (rs *ChangeReaders) Read(part Part, latest func() *Changes, pointed bool) *ChangeReader {
	r := &ChangeReader{
		readers: rs, latest: latest, part: part, changed: make(chan struct{}, 1),
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.mu.byPart == nil {
		rs.mu.byPart = map[Part]*partLog{}
	}
	if r.log = rs.mu.byPart[part]; r.log == nil {
		r.log = &partLog{readers: map[*ChangeReader]struct{}{}}
		rs.mu.byPart[part] = r.log
		rs.mu.parts[part.Kind][part.By]++
	}
	r.log.readers[r] = struct{}{}
	if pointed && part.By != Every {
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
	if _, open := r.log.readers[r]; !open {
		return
	}
	delete(r.log.readers, r)
	delete(rs.mu.pointed[r.part.Kind], r)
	if len(r.log.readers) == 0 {
		delete(rs.mu.byPart, r.part)
		rs.mu.parts[r.part.Kind][r.part.By]--
	}
}

// Len returns the number of readers.
func (rs *ChangeReaders) Len() (n int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, log := range rs.mu.byPart {
		n += len(log.readers)
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
		rs.signal()
	}
}

// touch makes signal signal the readers of a part. The caller holds mu.
func (rs *ChangeReaders) touch(p *partLog) {
	if !p.touched {
		p.touched, rs.mu.touched = true, append(rs.mu.touched, p)
	}
}

// signal signals all that the call under way has touched. The caller holds mu.
func (rs *ChangeReaders) signal() {
	for i, p := range rs.mu.touched {
		p.touched, rs.mu.touched[i] = false, nil
		for r := range p.readers {
			r.signal()
		}
	}
	for i, r := range rs.mu.signals {
		rs.mu.signals[i] = nil
		r.signal()
	}
	rs.mu.touched, rs.mu.signals = rs.mu.touched[:0], rs.mu.signals[:0]
}

// Replaced signals all readers: the copy is live again, and its history may have begun anew, or has
// the changes of a takeover. Positions in another history are gone.
func (rs *ChangeReaders) Replaced(view *Changes) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for kind := range rs.told {
		if begin, end := rs.told[kind].Load(), view.End(wire.Kind(kind)); begin != end {
			rs.publish(view, wire.Kind(kind), begin)
			rs.told[kind].Store(end)
		}
	}
	for _, log := range rs.mu.byPart {
		rs.touch(log)
	}
	rs.signal()
}

// tellAll tells every part of a kind of changes that may concern any of them.
func (rs *ChangeReaders) tellAll(kind wire.Kind, s span) {
	if s.begin >= s.end {
		return
	}
	for part, log := range rs.mu.byPart {
		if part.Kind == kind && part.By != Every {
			log.tell(s)
			rs.touch(log)
		}
	}
}

// publish tells the parts of a kind. The caller holds mu.
func (rs *ChangeReaders) publish(view *Changes, kind wire.Kind, begin uint64) {
	parts := &rs.mu.parts[kind]
	if parts[Every] > 0 {
		rs.touch(rs.mu.byPart[Part{Kind: kind}])
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
		rs.tellAll(kind, span{begin, view.End(kind)})
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
			rs.mu.signals = append(rs.mu.signals, r)
		}
	}
}

// tellTask tells the parts of a task's node, before and behind the change, and of its job.
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

// tellJob tells the parts of a job's owner and queues, before and behind the change.
func (rs *ChangeReaders) tellJob(c *Change, position uint64) {
	for _, value := range [2][]byte{c.Old.Value, c.New.Value} {
		if value == nil {
			continue
		}
		owner, queue, _, ok := wire.PeekJob(value)
		if !ok { // every reader of jobs has to report it
			rs.tellAll(wire.KindJobStatus, span{position, position + 1})
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
	if log := rs.mu.byPart[part]; log != nil {
		log.tell(span{position, position + 1})
		rs.touch(log)
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
	r.upTo = r.readers.told[r.part.Kind].Load() // first: the view has all changes below it
	return r.latest()
}

// Each calls look for the changes of a view from View that concern the part, and for some others,
// in their order. It goes on behind them at the next call. It ends early after an error, and when
// look reports that it has not taken the change, which is the next one then. whole is false if the
// history has lost a change that may concern the part.
func (r *ChangeReader) Each(view *Changes, look func(*Change) (taken bool, err error)) (whole bool, err error) {
	if r.part.By == Every {
		r.upTo = view.End(r.part.Kind)
		r.wide = r.upTo
	}
	var room [maxSpans + 1]span
	spans := room[:0]
	if r.position < r.wide {
		spans = append(spans, span{r.position, r.wide})
	}
	if r.part.By != Every {
		spans = r.log.within(spans, span{max(r.position, r.wide), r.upTo})
	}
	for _, s := range spans {
		changes, ok := view.From(r.part.Kind, s.begin)
		if !ok {
			return false, nil
		}
		r.position = s.begin // nothing before it concerns the part
		for _, c := range changes[:s.end-s.begin] {
			if taken, err := look(c); err != nil || !taken {
				return true, err
			}
			r.position++
		}
	}
	r.position = max(r.position, r.upTo)
	return true, nil
}
