// Package watchtest checks what a watch sends against the writes that were made.
//
// A History holds the writes; a Checker holds the state of one watcher, through any number of cuts
// and resumes, and is given each message in turn:
//
//	c := watchtest.NewChecker(history, criteria)
//	c.Open(floor)             // a watch without a point; floor was acknowledged before
//	err := c.Receive(message) // for each message
//	c.Point()                 // where another watch goes on after a cut
//	err = c.Complete()        // the watch has been sent everything
//
// The checks, by the names that errors begin with:
//   - strict: a snapshot holds every write acknowledged before its watch was opened, and is the
//     state at exactly its own point;
//   - ordered: changes come in the order of revisions;
//   - unique: no change comes twice, not even around a resume;
//   - reliable: no change is left out, and each has the right type and object;
//   - bookmarkable: a point lies behind everything that was sent and before all that was not;
//   - resumable: a watch that resumes at a point goes on exactly there.
//
// The tests of package gateway call it. A History may be written while checkers read it. A message
// costs O(its changes × log(writes)) and, for a snapshot, a pass over all writes.
package watchtest

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"sync"
)

// Type is the type of a change.
type Type uint8

// The types, with the numbers of the message WatchChange.
const (
	Present Type = 1 + iota
	Added
	Updated
	Left
	Deleted
)

// Write is the state of an object behind a batch. An empty Value stands for no object.
type Write struct {
	Key, Value string
}

// History holds batches of writes.
type History struct {
	mu struct {
		sync.Mutex
		batches []batch // by revision
	}
}

type batch struct {
	epoch, revision uint64
	writes          []Write
}

// Add appends a batch. Its objects are different ones, in the order of their changes. The caller
// adds a batch before any watcher can be sent it.
func (h *History) Add(epoch, revision uint64, writes ...Write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.batches = append(h.mu.batches, batch{epoch, revision, writes})
}

func (h *History) all() []batch {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.batches
}

// state returns the objects behind a revision.
func state(batches []batch, revision uint64) map[string]string {
	objects := map[string]string{}
	for _, b := range batches {
		if b.revision > revision {
			break
		}
		for _, w := range b.writes {
			set(objects, w)
		}
	}
	return objects
}

// Change is a change in a message.
type Change struct {
	Type     Type
	Key      string
	Value    string // of the object that came with the change
	Revision uint64
}

// Point is the point of a message.
type Point struct {
	Epoch, Revision uint64
	Part            uint32
}

// Message is a message of a watch.
type Message struct {
	Changes     []Change
	Point       Point // zero: none
	SnapshotEnd bool
}

// Checker checks one watcher.
type Checker struct {
	history  *History
	criteria func(value string) bool

	floor    uint64            // least revision of the snapshot
	snapshot map[string]string // received so far; nil: the snapshot is complete
	point    Point             // of the last message
	objects  map[string]string // all objects, at the place that the watch has reached
	next     []Change          // changes that must come next, in order, as far as they were derived
	derived  uint64            // revision up to which next was derived
}

// NewChecker makes a checker for a watch of the objects whose values meet the criteria.
func NewChecker(h *History, criteria func(value string) bool) *Checker {
	return &Checker{history: h, criteria: criteria}
}

// Open notes that a watch is opened without a point. Every write up to floor was acknowledged
// before.
func (c *Checker) Open(floor uint64) {
	*c = Checker{history: c.history, criteria: c.criteria, floor: floor, snapshot: map[string]string{}}
}

// Point is the point from which to resume; zero before the end of the snapshot.
func (c *Checker) Point() Point { return c.point }

// Receive checks a message.
func (c *Checker) Receive(m Message) error {
	if c.snapshot != nil {
		return c.receiveSnapshot(m)
	}
	if m.SnapshotEnd {
		return fmt.Errorf("ordered: a second end of the snapshot at %v", m.Point)
	}
	for _, change := range m.Changes {
		c.derive(change.Revision)
		if err := c.expect(change); err != nil {
			return err
		}
	}
	return c.reach(m.Point)
}

func (c *Checker) receiveSnapshot(m Message) error {
	for _, change := range m.Changes {
		if change.Type != Present || change.Revision != 0 {
			return fmt.Errorf("ordered: %+v in the snapshot", change)
		}
		if _, twice := c.snapshot[change.Key]; twice {
			return fmt.Errorf("unique: %s is twice in the snapshot", change.Key)
		}
		c.snapshot[change.Key] = change.Value
	}
	if !m.SnapshotEnd {
		if m.Point != (Point{}) {
			return fmt.Errorf("bookmarkable: a point %v within the snapshot", m.Point)
		}
		return nil
	}
	if m.Point.Revision < c.floor {
		return fmt.Errorf("strict: the snapshot is of revision %d, and %d was acknowledged before", m.Point.Revision, c.floor)
	}
	c.objects = state(c.history.all(), m.Point.Revision)
	want := map[string]string{}
	for key, value := range c.objects {
		if c.criteria(value) {
			want[key] = value
		}
	}
	if !maps.Equal(want, c.snapshot) {
		return fmt.Errorf("strict: at revision %d the snapshot is %v, want %v", m.Point.Revision, c.snapshot, want)
	}
	c.snapshot, c.point, c.derived = nil, m.Point, m.Point.Revision
	return nil
}

// derive derives the changes up to a revision.
func (c *Checker) derive(revision uint64) {
	batches := c.history.all()
	first := sort.Search(len(batches), func(i int) bool { return batches[i].revision > c.derived })
	for _, b := range batches[first:] {
		if b.revision > revision {
			return
		}
		for _, w := range b.writes {
			if change, is := c.changeOf(w); is {
				change.Revision = b.revision
				c.next = append(c.next, change)
			}
			set(c.objects, w)
		}
		c.derived = b.revision
	}
}

// changeOf returns the change that a write is for this watcher, if it is one.
func (c *Checker) changeOf(w Write) (Change, bool) {
	old, had := c.objects[w.Key]
	was, is := had && c.criteria(old), w.Value != "" && c.criteria(w.Value)
	switch {
	case was && is && old != w.Value:
		return Change{Type: Updated, Key: w.Key, Value: w.Value}, true
	case is && !was:
		return Change{Type: Added, Key: w.Key, Value: w.Value}, true
	case was && w.Value == "":
		return Change{Type: Deleted, Key: w.Key, Value: old}, true
	case was && !is:
		return Change{Type: Left, Key: w.Key, Value: w.Value}, true
	}
	return Change{}, false
}

// expect takes one change off those that must come next.
func (c *Checker) expect(got Change) error {
	switch {
	case len(c.next) > 0 && c.next[0] == got:
		c.next = c.next[1:]
		return nil
	case got.Revision <= c.point.Revision:
		return fmt.Errorf("unique: %+v comes behind the point %v", got, c.point)
	case slices.Contains(c.next, got):
		return fmt.Errorf("reliable or ordered: %+v comes, and before it %+v was due", got, c.next[0])
	}
	return fmt.Errorf("unique or reliable: %+v comes, and due are %v", got, c.next[:min(3, len(c.next))])
}

// reach checks the point of a message.
func (c *Checker) reach(p Point) error {
	switch {
	case p == Point{}:
		return fmt.Errorf("bookmarkable: a message behind the snapshot has no point")
	case p.Epoch < c.point.Epoch:
		return fmt.Errorf("bookmarkable: the epoch goes back from %d to %d", c.point.Epoch, p.Epoch)
	case p.Revision < c.point.Revision || p.Revision == c.point.Revision && p.Part < c.point.Part:
		return fmt.Errorf("bookmarkable: the point goes back from %v to %v", c.point, p)
	}
	c.derive(p.Revision)
	if len(c.next) > 0 && c.next[0].Revision <= p.Revision {
		return fmt.Errorf("reliable: at the point %v, %+v has not come", p, c.next[0])
	}
	c.point = p
	return nil
}

// Complete checks that the watch has been sent everything.
func (c *Checker) Complete() error {
	batches := c.history.all()
	if c.snapshot != nil {
		return fmt.Errorf("reliable: the snapshot was not completed")
	}
	if len(batches) > 0 {
		c.derive(batches[len(batches)-1].revision)
	}
	if len(c.next) > 0 {
		return fmt.Errorf("reliable: %d changes have not come, the first is %+v", len(c.next), c.next[0])
	}
	return nil
}
