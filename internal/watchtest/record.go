package watchtest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
)

// Record keeps every message of one watcher, through any number of cuts and resumes. One goroutine
// uses it at a time.
type Record struct {
	criteria func(value string) bool
	watches  []watched
	openings int

	// part has the changes of a takeover, or of a batch, that was sent in part. No watch resumes at
	// the point behind them, which is within.
	part      []Change
	within    Point
	takeovers int
	err       error // the first takeover that does not fit what was sent before
}

// watched holds the messages of one epoch, from one opening without a point to the next.
type watched struct {
	floor    uint64
	epoch    uint64 // 0: the snapshot is not complete
	messages []Message
}

// NewRecord makes a record for a watch with criteria; nil: it is sent all objects.
func NewRecord(criteria func(value string) bool) *Record { return &Record{criteria: criteria} }

// Open notes that a watch is opened without a point. Every write up to floor was acknowledged
// before.
func (r *Record) Open(floor uint64) {
	r.watches = append(r.watches, watched{floor: floor})
	r.part, r.within = nil, Point{}
	r.openings++
}

// Receive takes a message. A snapshot that a cut left incomplete is given up with Open.
//
// When the epoch rises the watch goes on at another leader. The objects that it holds then are
// checked as the snapshot of a watch of that epoch.
func (r *Record) Receive(m Message) {
	w := &r.watches[len(r.watches)-1]
	if m.Point.Part == noResume {
		r.part, r.within = append(r.part, m.Changes...), m.Point
		return
	}
	m.Changes = append(r.part, m.Changes...)
	r.part, r.within = nil, Point{}
	if w.epoch == 0 || m.Point.Epoch <= w.epoch {
		if m.SnapshotEnd {
			w.epoch = m.Point.Epoch
		}
		w.messages = append(w.messages, m)
		return
	}
	objects, _, _ := w.begin()
	for _, sent := range w.messages {
		if !sent.SnapshotEnd && sent.Point != (Point{}) {
			_ = applyAll(objects, sent.Changes) // Check looks at them
		}
	}
	if err := applyAll(objects, m.Changes); err != nil && r.err == nil {
		r.err = fmt.Errorf("ordered: at %v: %w", m.Point, err)
	}
	begin := Message{Point: m.Point, SnapshotEnd: true}
	for key, value := range objects {
		begin.Changes = append(begin.Changes, Change{Type: Present, Key: key, Value: value})
	}
	r.watches = append(r.watches, watched{floor: w.floor, epoch: m.Point.Epoch, messages: []Message{begin}})
	r.takeovers++
}

// noResume is the part of a point at which no watch resumes.
const noResume = math.MaxUint32

// applyAll applies changes to the objects of a watch. It returns an error for one that cannot be a
// change of them.
func applyAll(objects map[string]string, changes []Change) (err error) {
	for _, c := range changes {
		if _, has := objects[c.Key]; has == (c.Type == Added) && err == nil {
			err = fmt.Errorf("%+v comes, and the object was there: %v", c, has)
		}
		if objects[c.Key] = c.Value; c.Type == Deleted || c.Type == Left {
			delete(objects, c.Key)
		}
	}
	return err
}

// Point is the point from which to resume; zero: open the watch without one.
func (r *Record) Point() Point {
	switch {
	case len(r.watches) == 0:
		return Point{}
	case r.within != (Point{}):
		return r.within
	}
	return r.watches[len(r.watches)-1].last()
}

// Openings is the number of times at which the watch was opened without a point.
func (r *Record) Openings() int { return r.openings }

// Takeovers is the number of times at which the watch went on at another leader without a snapshot.
func (r *Record) Takeovers() int { return r.takeovers }

func (w *watched) last() Point {
	if len(w.messages) == 0 {
		return Point{}
	}
	return w.messages[len(w.messages)-1].Point
}

// begin returns the snapshot with its point. ok is false if it is not complete.
func (w *watched) begin() (objects map[string]string, at Point, ok bool) {
	objects = map[string]string{}
	for _, m := range w.messages {
		for _, c := range m.Changes {
			objects[c.Key] = c.Value
		}
		if m.SnapshotEnd {
			return objects, m.Point, true
		}
	}
	return nil, Point{}, false
}

// Joined is the history of an unknown writer, put together from the records of its watchers. The
// changes of two leaders are kept apart, because a takeover is sent as a difference.
type Joined struct {
	epochs map[uint64]*joinedEpoch

	// The state of the last call of State: the first batches of an epoch.
	of      uint64
	applied int
	objects map[string]string
}

type joinedEpoch struct {
	history History
	spans   []span // in order, and apart from each other
}

// span is a range of revisions, each of whose changes some watcher without criteria was sent.
type span struct{ first, last uint64 }

// Join puts the history together from records without criteria. It does not decide which of two
// records is right: Check then finds the one that lacks a change, or has another than the others.
// For revisions that no watcher was sent, the history has one batch with their net effect.
func Join(records ...*Record) *Joined {
	j := &Joined{epochs: map[uint64]*joinedEpoch{}}
	byEpoch := map[uint64][]*watched{}
	for _, r := range records {
		for i := range r.watches {
			if _, at, ok := r.watches[i].begin(); ok && r.criteria == nil {
				byEpoch[at.Epoch] = append(byEpoch[at.Epoch], &r.watches[i])
			}
		}
	}
	for epoch, watches := range byEpoch {
		j.epochs[epoch] = join(epoch, watches)
	}
	return j
}

func join(epoch uint64, watches []*watched) *joinedEpoch {
	slices.SortStableFunc(watches, func(a, b *watched) int {
		_, x, _ := a.begin() // each has its snapshot
		_, y, _ := b.begin()
		return cmp.Compare(x.Revision, y.Revision)
	})
	changes := map[uint64][]Change{}
	for _, w := range watches {
		for revision, sent := range w.byRevision() {
			if len(sent) > len(changes[revision]) {
				changes[revision] = sent
			}
		}
	}
	revisions := slices.Sorted(maps.Keys(changes))
	e := &joinedEpoch{}
	objects := map[string]string{}
	add := func(upTo uint64) { // the changes of revisions that are left
		for len(revisions) > 0 && revisions[0] <= upTo {
			batch := make([]Write, 0, len(changes[revisions[0]]))
			for _, c := range changes[revisions[0]] {
				w := Write{Key: c.Key, Value: c.Value}
				if c.Type == Deleted {
					w.Value = ""
				}
				batch = append(batch, w)
				set(objects, w)
			}
			e.history.Add(epoch, revisions[0], batch...)
			revisions = revisions[1:]
		}
	}
	for _, w := range watches {
		snapshot, at, _ := w.begin() // as above
		end := w.last().Revision
		if n := len(e.spans); n > 0 && at.Revision <= e.spans[n-1].last {
			e.spans[n-1].last = max(e.spans[n-1].last, end)
			continue
		}
		if n := len(e.spans); n > 0 {
			add(e.spans[n-1].last + 1) // also a batch that was sent in part
		}
		e.history.Add(epoch, at.Revision, difference(objects, snapshot)...)
		objects = maps.Clone(snapshot)
		e.spans = append(e.spans, span{at.Revision, end})
		for len(revisions) > 0 && revisions[0] <= at.Revision {
			revisions = revisions[1:] // part of the snapshot
		}
	}
	if n := len(e.spans); n > 0 {
		add(e.spans[n-1].last + 1)
	}
	return e
}

// byRevision returns the changes behind the snapshot.
func (w *watched) byRevision() map[uint64][]Change {
	changes := map[uint64][]Change{}
	for _, m := range w.messages {
		for _, c := range m.Changes {
			if c.Revision > 0 {
				changes[c.Revision] = append(changes[c.Revision], c)
			}
		}
	}
	return changes
}

func set(objects map[string]string, w Write) {
	if objects[w.Key] = w.Value; w.Value == "" {
		delete(objects, w.Key)
	}
}

// difference returns the writes that make one state of another, in the order of the keys.
func difference(from, to map[string]string) (writes []Write) {
	for _, key := range slices.Sorted(maps.Keys(to)) {
		if from[key] != to[key] {
			writes = append(writes, Write{Key: key, Value: to[key]})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if _, is := to[key]; !is {
			writes = append(writes, Write{Key: key})
		}
	}
	return writes
}

// Check checks a record against the history. A watch that was opened must have been strict,
// ordered, unique, reliable, bookmarkable and resumable as far as it was sent. checked counts the
// watches that it could check: not those cut within the snapshot, and with criteria only those of
// revisions that records without criteria cover.
func (j *Joined) Check(r *Record) (checked int, _ error) {
	if r.err != nil {
		return 0, r.err
	}
	for _, w := range r.watches {
		_, at, ok := w.begin()
		if !ok {
			continue // cut within the snapshot
		}
		e, ok := j.epochs[at.Epoch]
		if !ok {
			if r.criteria != nil {
				continue // nobody was sent everything of this leader
			}
			return checked, fmt.Errorf("the records of epoch %d were not joined", at.Epoch)
		}
		if r.criteria != nil && !e.covers(at.Revision, w.last().Revision) {
			continue // as above, of these revisions
		}
		criteria := r.criteria
		if criteria == nil {
			criteria = func(string) bool { return true }
		}
		c := NewChecker(&e.history, criteria)
		c.Open(w.floor)
		for _, m := range w.messages {
			if err := c.Receive(m); err != nil {
				return checked, fmt.Errorf("epoch %d: %w", at.Epoch, err)
			}
		}
		checked++
	}
	return checked, nil
}

func (e *joinedEpoch) covers(first, last uint64) bool {
	return slices.ContainsFunc(e.spans, func(s span) bool { return s.first <= first && last <= s.last })
}

// State returns the objects of a version, until the next call; ok is false if no watcher without
// criteria was sent that state. Calls in the order of versions cost one pass over the history.
func (j *Joined) State(epoch, revision uint64) (objects map[string]string, ok bool) {
	e, ok := j.epochs[epoch]
	if !ok || !e.covers(revision, revision) {
		return nil, false
	}
	batches := e.history.all()
	if j.objects == nil || j.of != epoch || j.applied > 0 && batches[j.applied-1].revision > revision {
		j.of, j.applied, j.objects = epoch, 0, map[string]string{}
	}
	for ; j.applied < len(batches) && batches[j.applied].revision <= revision; j.applied++ {
		for _, w := range batches[j.applied].writes {
			set(j.objects, w)
		}
	}
	return j.objects, true
}

// Changed reports whether an object changed at a revision. known is false if no watcher was sent
// the changes of that revision.
func (j *Joined) Changed(key string, revision uint64) (changed, known bool) {
	for _, e := range j.epochs {
		inside := slices.ContainsFunc(e.spans, func(s span) bool { return s.first < revision && revision <= s.last })
		if !inside {
			continue
		}
		known = true
		batches := e.history.all()
		first := sort.Search(len(batches), func(i int) bool { return batches[i].revision >= revision })
		for _, b := range batches[first:] {
			if b.revision > revision {
				break
			}
			if slices.ContainsFunc(b.writes, func(w Write) bool { return w.Key == key }) {
				return true, true
			}
		}
	}
	return false, known
}
