package fold

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// MaxResultBytes bounds what a call of Apply makes, in bytes as history.Batch.Bytes counts them.
// One event may go beyond it. Beyond it Apply takes no more events, and usage and jobs that are due
// wait for the next calls, which begin with them. Few are due unless time has gone on by hours
// between two events, or after lists. Then there are as many as groups with open allocations, and
// jobs of the lists: each takes less than 100 bytes of memory.
const MaxResultBytes = 2 << 20

// Which open allocations a call of Apply counts.
const (
	OpenEach  = 100                   // groups of tasks that every call counts
	OpenEvery = int64(60_000_000_000) // nanoseconds after which the others are counted again
)

// Fold is the cluster as events tell it. Make one with New, Begin or Decode.
type Fold struct {
	clock  int64 // newest time of all events
	since  int64 // beginning of the fold, or end of its last gap: allocations of a list count from here
	lives  int64 // number of the last life
	jobs   map[string]*job
	nodes  map[string]*node
	queues map[string]*queue
	open   openList

	ahead      []place // allocations of a list that events are to tell again
	aheadUntil int64   // when all of them should have been told

	owedJobs []*job // to be told by the next calls
	owedUse  []span // the same

	bytes  int // of memory, about
	names  map[string]string
	recent []amount // resources of the group that was made last
	batch  batch
}

// Result has what follows from the events that a call of Apply has taken.
type Result struct {
	Taken   int // events, from the first one on; at least one if there are any
	Objects []history.Object
	Jobs    []history.Job
	Rollups []history.Rollup
	// Unexpected counts events that cannot be after those before them; Example is the first. There
	// are none in a sequence without gaps, but for the time after Begin or Gap in which events tell
	// what the lists have shown.
	Unexpected int
	Example    string
}

// New returns the fold of a cluster before its first event.
func New() *Fold {
	return &Fold{
		jobs: map[string]*job{}, nodes: map[string]*node{}, queues: map[string]*queue{}, names: map[string]string{},
	}
}

// Time returns the newest time of all events, in Unix nanoseconds.
func (f *Fold) Time() int64 { return f.clock }

// Memory returns about how many bytes of memory the fold takes.
func (f *Fold) Memory() int {
	return f.bytes + len(f.owedJobs)*pointerBytes + len(f.owedUse)*spanBytes + len(f.ahead)*placeBytes
}

// Apply applies events, which follow those of the call before. It takes as many as
// MaxResultBytes allows.
func (f *Fold) Apply(events []plimsoll.Event) Result {
	f.beginBatch()
	f.payJobs()
	f.payUse()
	taken := 0
	for i := range events {
		if i > 0 && f.batch.spent >= MaxResultBytes {
			break
		}
		f.apply(&events[i])
		taken++
	}
	f.countOpen()
	return f.endBatch(taken)
}

// apply applies one event.
func (f *Fold) apply(e *plimsoll.Event) {
	f.clock = max(f.clock, e.Time)
	// A decoded fold lacks the allocations that were told meanwhile, and may have the time alone.
	if (len(f.ahead) > 0 || f.aheadUntil > 0) && f.clock > f.aheadUntil {
		f.settleAhead()
	}
	f.batch.event = e
	f.meet(e)
	f.index(e)
	switch e.Type {
	case plimsoll.EventApp:
		f.app(e)
	case plimsoll.EventNode:
		f.node(e)
	case plimsoll.EventQueue:
		f.queue(e)
	}
}

// meet makes the job of an event known, before the event is indexed.
func (f *Fold) meet(e *plimsoll.Event) {
	switch {
	case refuses(e):
	case history.Begins(e):
		f.takeIn(e)
	case e.Type == plimsoll.EventApp:
		f.known(e.Object, e.Time)
	case e.Type == plimsoll.EventQueue && e.Detail == plimsoll.QueueApp:
		f.known(e.Reference, e.Time)
	case e.Type == plimsoll.EventNode && e.Detail == plimsoll.NodeAlloc && e.Change == plimsoll.ChangeAdd:
		if id, _, _, ok := SplitTask(e.Reference); ok {
			f.known(id, e.Time)
		}
	}
}

// unexpected notes that the event of this moment cannot be.
func (f *Fold) unexpected() {
	b := &f.batch
	if b.unexpected++; b.unexpected == 1 {
		e := b.event
		b.example = fmt.Sprintf(
			"%v %v %v of %q, %q at %d", e.Type, e.Change, e.Detail, e.Object, e.Reference, e.Time,
		)
	}
}

// text returns a copy of a short text that many objects share, such as the name of a group.
func (f *Fold) text(s string) string {
	if known, ok := f.names[s]; ok {
		return known
	}
	if len(f.names) >= maxNames {
		clear(f.names)
	}
	s = strings.Clone(s)
	f.names[s] = s
	return s
}

// maxNames bounds the texts that are shared. Beyond it they are shared anew.
const maxNames = 1000

// About what objects take in memory, with their place in a map.
const (
	pointerBytes = 8
	spanBytes    = 64
	placeBytes   = 16
	taskBytes    = 72
	groupBytes   = 600
	jobBytes     = 400
	nodeBytes    = 250
	queueBytes   = 200
)
