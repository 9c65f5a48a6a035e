package informer_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll/informer"
)

// thing is the object of these tests. Its text is its name and its state: "a1".
type thing struct {
	name  string
	state int
}

func th(text string) thing {
	return thing{name: text[:1], state: int(text[1] - '0')}
}

func things(texts string) []thing {
	var all []thing
	for text := range strings.FieldsSeq(texts) {
		all = append(all, th(text))
	}
	return all
}

var errNoName = errors.New("the thing has no name")

func keyOf(t thing) (string, error) {
	if t.name == "!" {
		return "", errNoName
	}
	return t.name, nil
}

// copied is a consumer's copy: the things that it knows. Keys in failing cannot be looked up, and
// keys in vanished are listed without a thing.
type copied struct {
	things            map[string]thing
	failing, vanished map[string]bool
}

var errLookup = errors.New("the copy is broken")

func knows(texts string) *copied {
	c := &copied{things: map[string]thing{}, failing: map[string]bool{}, vanished: map[string]bool{}}
	for _, t := range things(texts) {
		c.things[t.name] = t
	}
	return c
}

func (c *copied) Get(key string) (thing, bool, error) {
	if c.failing[key] {
		return thing{}, false, errLookup
	}
	t, ok := c.things[key]
	return t, ok && !c.vanished[key], nil
}

func (c *copied) Keys() iter.Seq[string] {
	return slices.Values(slices.Sorted(maps.Keys(c.things)))
}

type config = informer.FIFOConfig[thing]

// queue makes a queue of things, with EmitReplaced and as change says.
func queue(t testing.TB, change func(*config)) *informer.DeltaFIFO[thing] {
	t.Helper()
	c := config{Key: keyOf, EmitReplaced: true, Size: func(thing) int { return 100 }}
	if change != nil {
		change(&c)
	}
	q, err := informer.NewDeltaFIFO(c)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func withKnown(known *copied) func(*config) {
	return func(c *config) { c.Known = known }
}

// line is the text of deltas: "a: Added 1, Deleted 1?". The question mark is that of a tombstone.
func line(d informer.Deltas[thing]) string {
	changes := make([]string, len(d.Changes))
	for i, c := range d.Changes {
		changes[i] = fmt.Sprintf("%v %d", c.Type, c.Object.state)
		if c.Tombstone {
			changes[i] += "?"
		}
	}
	return d.Key + ": " + strings.Join(changes, ", ")
}

// pop returns the text of the next key.
func pop(t testing.TB, q *informer.DeltaFIFO[thing]) (text string) {
	t.Helper()
	err := q.Pop(t.Context(), func(d informer.Deltas[thing]) error {
		text = line(d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// popAll returns the texts of all queued keys.
func popAll(t testing.TB, q *informer.DeltaFIFO[thing]) []string {
	t.Helper()
	var texts []string
	for q.Stats().Depth > 0 {
		texts = append(texts, pop(t, q))
	}
	return texts
}

// drained returns the texts of a batch and its version.
func drained(t testing.TB, q *informer.DeltaFIFO[thing]) (texts []string, at informer.Version) {
	t.Helper()
	err := q.Drain(t.Context(), func(b informer.Batch[thing]) error {
		texts, at = batchLines(b), b.Version
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts, at
}

func batchLines(b informer.Batch[thing]) (texts []string) {
	for d := range b.All() {
		texts = append(texts, line(d))
	}
	return texts
}

func same(t testing.TB, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the wanted (-) and the given (+) deltas differ:\n%s", diff)
	}
}

func must(t tester, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// none is a context that is over: a take that would wait fails at once instead.
func isEmpty(t testing.TB, q *informer.DeltaFIFO[thing]) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s := q.Stats(); s.Depth != 0 || s.Changes != 0 || s.Bytes != 0 {
		t.Errorf("the queue should be empty: %+v", s)
	}
	if err := q.Pop(ctx, func(informer.Deltas[thing]) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Pop returned %v", err)
	}
}

func synced(t testing.TB, q *informer.DeltaFIFO[thing], want bool) {
	t.Helper()
	if q.HasSynced() != want {
		t.Errorf("HasSynced is %v", !want)
	}
	select {
	case <-q.Synced():
		if !want {
			t.Error("Synced is closed")
		}
	default:
		if want {
			t.Error("Synced is open")
		}
	}
}
