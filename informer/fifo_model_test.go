package informer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

type delta = informer.Delta[thing]

// model is a DeltaFIFO in its simplest form, without a bound: slices that are searched and copied
// at each step.
type model struct {
	known     *copied
	queued    []informer.Deltas[thing]
	process   []informer.Deltas[thing]
	populated bool
	isSynced  bool
}

func find(all []informer.Deltas[thing], key string) *informer.Deltas[thing] {
	for i := range all {
		if all[i].Key == key {
			return &all[i]
		}
	}
	return nil
}

func (m *model) put(key string, d delta) {
	e := find(m.queued, key)
	if e == nil {
		m.queued = append(m.queued, informer.Deltas[thing]{Key: key})
		e = &m.queued[len(m.queued)-1]
	}
	n := len(e.Changes)
	if n == 0 || d.Type != informer.Deleted || e.Newest().Type != informer.Deleted {
		e.Changes = append(e.Changes, d)
	} else if e.Newest().Tombstone {
		e.Changes[n-1] = d
	}
}

// settle notes that the initial population was processed, if it was.
func (m *model) settle() {
	isInitial := func(d informer.Deltas[thing]) bool { return d.Initial }
	left := slices.ContainsFunc(m.queued, isInitial) || slices.ContainsFunc(m.process, isInitial)
	m.isSynced = m.isSynced || m.populated && !left
}

func (m *model) change(d delta) {
	key := d.Object.name
	_, known := m.known.things[key]
	if d.Type != informer.Deleted || known || find(m.queued, key) != nil || find(m.process, key) != nil {
		m.put(key, d)
	}
	m.populated = true
	m.settle()
}

func tombstone(last thing) delta {
	return delta{Type: informer.Deleted, Tombstone: true, Object: last}
}

func (m *model) replace(list []thing) {
	before := slices.Clone(m.queued)
	for _, t := range list {
		m.put(t.name, delta{Type: informer.Replaced, Object: t})
	}
	for _, d := range before {
		if !slices.ContainsFunc(list, func(t thing) bool { return t.name == d.Key }) {
			m.put(d.Key, tombstone(d.Newest().Object))
		}
	}
	for _, d := range m.process {
		if d.Newest().Type != informer.Deleted && find(m.queued, d.Key) == nil {
			m.put(d.Key, tombstone(d.Newest().Object))
		}
	}
	for key := range m.known.Keys() {
		if find(m.queued, key) == nil {
			m.put(key, tombstone(m.known.things[key]))
		}
	}
	if !m.populated {
		for i := range m.queued {
			m.queued[i].Initial = true
		}
	}
	m.populated = true
	m.settle()
}

func (m *model) resync() {
	for key := range m.known.Keys() {
		if find(m.queued, key) == nil && find(m.process, key) == nil {
			m.put(key, delta{Type: informer.Sync, Object: m.known.things[key]})
		}
	}
}

func (m *model) addIfNotPresent(d informer.Deltas[thing]) {
	if find(m.queued, d.Key) == nil {
		for _, c := range d.Changes {
			m.put(d.Key, c)
		}
		find(m.queued, d.Key).Initial = d.Initial && !m.isSynced
	}
	m.populated = true
	m.settle()
}

// take moves the first keys into process.
func (m *model) take(keys int) {
	m.process = slices.Clone(m.queued[:keys])
	m.queued = slices.Clone(m.queued[keys:])
}

// end ends the process. If its content is put back, it comes in front of newer changes of its keys;
// all is in front of all if it was a batch.
func (m *model) end(back, batch bool) {
	older, newer := m.process, m.queued
	m.process = nil
	if back {
		order := slices.Concat(newer, older)
		if batch {
			order = slices.Concat(older, newer)
		}
		m.queued = nil
		for _, d := range order {
			if find(m.queued, d.Key) == nil {
				m.merge(find(older, d.Key), find(newer, d.Key))
			}
		}
	}
	m.settle()
}

func (m *model) merge(parts ...*informer.Deltas[thing]) {
	for _, part := range parts {
		if part == nil {
			continue
		}
		for _, c := range part.Changes {
			m.put(part.Key, c)
		}
		e := find(m.queued, part.Key)
		e.Initial = e.Initial || part.Initial
	}
}

// apply is the work of a consumer: it brings the copy to the state after the changes.
func (m *model) apply() {
	for _, d := range m.process {
		if n := d.Newest(); n.Type == informer.Deleted {
			delete(m.known.things, d.Key)
		} else {
			m.known.things[d.Key] = n.Object
		}
	}
}

// modelTest drives a queue and its model with the same random steps.
type modelTest struct {
	*testing.T
	rng   *rand.Rand
	q     *informer.DeltaFIFO[thing]
	m     *model
	log   []string
	state int
	quiet bool // consumers do nothing but consume
}

func (t *modelTest) thing() thing {
	t.state++
	return thing{string(rune('a' + t.rng.IntN(12))), t.state}
}

func (t *modelTest) list() []thing {
	list := make([]thing, t.rng.IntN(12))
	for i := range list {
		list[i] = t.thing()
	}
	return list
}

func (t *modelTest) replace() {
	list := t.list()
	t.say("replace %v", list)
	t.m.replace(list)
	must(t, t.q.Replace(list, informer.Version{}))
}

// produce does one random step of a producer.
func (t *modelTest) produce() {
	o := t.thing()
	switch n := t.rng.IntN(20); {
	case n < 5:
		t.say("add %v", o)
		t.m.change(delta{Type: informer.Added, Object: o})
		must(t, t.q.Add(o))
	case n < 9:
		t.say("update %v", o)
		t.m.change(delta{Type: informer.Updated, Object: o})
		must(t, t.q.Update(o))
	case n < 12:
		t.say("delete %v", o)
		t.m.change(delta{Type: informer.Deleted, Object: o})
		must(t, t.q.Delete(o))
	case n < 14:
		t.say("delete key of %v", o)
		t.m.change(tombstone(o))
		must(t, t.q.DeleteKey(o.name, o, true))
	case n < 15:
		t.replace()
	case n < 17:
		t.say("resync")
		t.m.resync()
		t.q.Resync()
	case n < 18:
		d := informer.Deltas[thing]{
			Key: o.name, Initial: o.state%2 == 0,
			Changes: []delta{{Type: informer.Added, Object: o}, {Type: informer.Deleted, Object: o}},
		}
		t.say("add if not present %v", o)
		t.m.addIfNotPresent(d)
		must(t, t.q.AddIfNotPresent(d))
	default:
		list, gone := t.list(), t.thing()
		t.say("change %v, delete %v", list, gone)
		for _, o := range list {
			t.m.put(o.name, delta{Type: informer.Updated, Object: o})
		}
		t.m.put(gone.name, delta{Type: informer.Deleted, Object: gone})
		t.m.populated = true
		t.m.settle()
		must(t, t.q.Change(list, []informer.Deletion[thing]{{Key: gone.name, Object: gone}}, informer.Version{}))
	}
}

// during is the time in which a consumer processes. It returns the consumer's error.
func (t *modelTest) during() error {
	if t.quiet {
		return nil
	}
	for range t.rng.IntN(4) {
		t.produce()
	}
	switch t.rng.IntN(6) {
	case 0:
		t.say("requeue")
		return &informer.RequeueError{}
	case 1:
		t.say("fail")
		return errBroken
	}
	t.m.apply()
	return nil
}

func (t *modelTest) pop() {
	t.say("pop")
	t.m.take(1)
	err := t.q.Pop(t.Context(), func(d informer.Deltas[thing]) error {
		t.compare([]informer.Deltas[thing]{d}, t.m.process)
		return t.during()
	})
	var back *informer.RequeueError
	t.m.end(errors.As(err, &back), false)
}

func (t *modelTest) drain() {
	t.say("drain")
	t.m.take(len(t.m.queued))
	for i := range t.m.process {
		t.m.process[i].Changes = netOf(t.m.process[i].Changes)
	}
	err := t.q.Drain(t.Context(), func(b informer.Batch[thing]) error {
		t.compare(slices.Collect(b.All()), t.m.process)
		return t.during()
	})
	var back *informer.RequeueError
	t.m.end(errors.As(err, &back), true)
}

func (t *modelTest) say(format string, args ...any) {
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

func (t *modelTest) compare(got, want []informer.Deltas[thing]) {
	t.Helper()
	equal := slices.EqualFunc(got, want, func(a, b informer.Deltas[thing]) bool {
		return a.Key == b.Key && a.Initial == b.Initial && slices.Equal(a.Changes, b.Changes)
	})
	if !equal {
		diff := cmp.Diff(want, got, cmp.AllowUnexported(thing{}))
		t.Fatalf("after %q the model (-) and the queue (+) differ:\n%s", t.log, diff)
	}
}

// netOf is another way to say the net effect: the first deletion of the key's first object, and the
// last object if one is left.
func netOf(changes []delta) []delta {
	last := len(changes) - 1
	for last >= 0 && changes[last].Type != informer.Deleted {
		last--
	}
	var out []delta
	for i := 0; i <= last; i++ {
		if changes[i].Type != informer.Deleted {
			continue
		}
		out = []delta{changes[i]}
		for i++; i <= last && changes[i].Type == informer.Deleted && out[0].Tombstone; i++ {
			out[0] = changes[i]
		}
		break
	}
	if alive := changes[last+1:]; len(alive) > 0 {
		result := alive[len(alive)-1]
		for _, d := range alive {
			if result.Type = d.Type; d.Type != informer.Sync {
				break
			}
		}
		out = append(out, result)
	}
	return out
}

func TestTheQueueDoesAsItsModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 11))
	for range testrun.Count(100, 300, 50_000) {
		known := knows("")
		t := &modelTest{T: t, rng: rng, m: &model{known: known}, q: queue(t, withKnown(known))}
		if t.rng.IntN(2) == 0 {
			t.replace() // an initial population
		}
		for range 60 {
			switch n := t.rng.IntN(10); {
			case n < 6 || len(t.m.queued) == 0:
				t.produce()
			case n < 9:
				t.pop()
			default:
				t.drain()
			}
			if got := t.q.HasSynced(); got != t.m.isSynced {
				t.Fatalf("after %q HasSynced is %v", t.log, got)
			}
			s, changes := t.q.Stats(), 0
			for _, d := range t.m.queued {
				changes += len(d.Changes)
			}
			if s.Depth != len(t.m.queued) || s.Changes != changes {
				t.Fatalf("after %q: %+v, want %d keys and %d changes", t.log, s, len(t.m.queued), changes)
			}
		}
		for t.quiet = true; len(t.m.queued) > 0; {
			t.pop()
		}
		isEmpty(t, t.q)
	}
}
