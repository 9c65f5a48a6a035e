package informer_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// The tests of this file hold flaws of client-go's ThreadSafeStore against the Indexer: each is
// named after the behaviour that we have in its place.

// There: the panic reaches the caller after the object was stored, and the index stays wrong.
func TestAFailingIndexFunctionLeavesNothingStored(t *testing.T) {
	for _, owner := range []string{"bad", "panic"} {
		x := newItems(t, "a:x:1")
		was := describe(t, x.Snapshot())
		for _, key := range []string{"a", "new"} {
			if err := x.Update(made(key + ":" + owner + ":2")); err == nil {
				t.Errorf("an index function that answers %q is no error", owner)
			}
		}
		if err := x.ReplaceList([]item{made("b:y"), made("c:" + owner)}, informer.Version{}); err == nil {
			t.Errorf("in Replace an index function that answers %q is no error", owner)
		}
		if got := describe(t, x.Snapshot()); got != was {
			t.Errorf("the content is\n%s, want\n%s", got, was)
		}
		must(t, x.Update(made("a:y:2"))) // and the store can be used
		if got := list[string](t)(x.Snapshot().ByIndex("owner", "y")); got != "a:y:2" {
			t.Errorf("then the index has %q", got)
		}
	}
	if err := newItems(t).Add(made("panic")); plimsoll.CodeOf(err) != plimsoll.CodeInternal {
		t.Errorf("a key function that panics: %v", err)
	}
}

// There: the version is that of the last write, whichever it was.
func TestTheVersionNeverGoesBackwards(t *testing.T) {
	x := newItems(t)
	must(t, x.Apply([]informer.Change[item]{put("a:x")}, at(7)))
	must(t, x.Apply([]informer.Change[item]{put("b:x")}, at(7))) // a version may come in parts
	was := describe(t, x.Snapshot())
	rebuild := x.Rebuild()
	for name, err := range map[string]error{
		"Apply":       x.Apply([]informer.Change[item]{put("c:x")}, at(6)),
		"a bookmark":  x.Apply(nil, at(6)),
		"an epoch":    x.Apply(nil, informer.Version{Revision: 9}),
		"Replace":     x.Replace(newItems(t, "d:x").Snapshot().All(), at(6)),
		"a rebuild":   rebuild.Swap(at(6)),
		"ApplyAll":    informer.ApplyAll(at(6), []*informer.Edit[item]{{Indexer: x}}),
		"ReplaceList": x.ReplaceList(nil, at(6)),
	} {
		if plimsoll.CodeOf(err) != plimsoll.CodeStale {
			t.Errorf("%s to an older version: %v", name, err)
		}
	}
	must(t, x.Add(made("a:x"))) // no version: it stays
	if got := describe(t, x.Snapshot()); got != was {
		t.Errorf("the content is\n%s, want\n%s", got, was)
	}
}

// There: a reader in a list holds the lock, and writers stand still.
func TestAReaderInTheMiddleOfAListHoldsUpNobody(t *testing.T) {
	x := newItems(t, "a:x", "b:x", "c:x")
	var seen []string
	objects, err := x.Snapshot().ByIndex("owner", "x")
	must(t, err)
	for key := range objects {
		seen = append(seen, key)
		must(t, x.Update(made(key+":y:1")))
		must(t, x.Add(made("z"+key+":x")))
		must(t, x.Replace(x.Snapshot().All(), informer.Version{}))
	}
	if got := strings.Join(seen, " "); got != "a b c" {
		t.Errorf("the reader sees %q", got)
	}
	if n := x.Len(); n != 6 {
		t.Errorf("%d objects, want 6", n)
	}
}

// There: Replace holds the lock while it builds the indexes. Here the objects come one by one, and
// in between everybody can read and write.
func TestAReplaceUnderWayHoldsUpNobody(t *testing.T) {
	x := newItems(t, "a:x")
	must(t, x.Replace(func(yield func(string, item) bool) {
		for i := range 3 {
			key := fmt.Sprint("new", i)
			if !yield(key, made(key+":y")) {
				t.Error("the Replace ends early")
			}
			must(t, x.Add(made(fmt.Sprint("a:x:", i))))
			if got := list[string](t)(x.Snapshot().ByIndex("tag", fmt.Sprint(i))); got != fmt.Sprint("a:x:", i) {
				t.Errorf("during a Replace the index has %q", got)
			}
		}
	}, informer.Version{}))
	if got := list[string](t)(all(x.Snapshot())); got != "new0:y: new1:y: new2:y:" {
		t.Errorf("the content is %q", got)
	}
}

// There: readers wait for a long transaction. Here they see the content before it.
func TestALongApplyHoldsUpNoReader(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		hold, x := make(chan struct{}), newItems(t, "a:x")
		must(t, x.AddIndex(informer.Index[item]{Name: "slow", Values: func(i item, to []string) ([]string, error) {
			if i.owner == "slow" {
				<-hold
			}
			return to, nil
		}}))
		must(t, x.Apply(nil, at(1))) // nobody has read: there is no snapshot
		changes := []informer.Change[item]{put("b:slow")}
		for i := range 70_000 {
			changes = append(changes, put(fmt.Sprint("c", i, ":x")))
		}
		done := make(chan error)
		go func() { done <- x.Apply(changes, at(2)) }()
		synctest.Wait()
		if s := x.Snapshot(); s.Len() != 1 {
			t.Errorf("during an Apply a snapshot has %d objects", s.Len())
		}
		close(hold)
		must(t, <-done)
		if n := x.Len(); n != 70_002 {
			t.Errorf("%d objects afterwards", n)
		}
	})
}

// There: an object that was changed in place leaves its key in the index of its old value for
// ever. Here the next change of the key says so.
func TestAnObjectThatWasChangedInPlaceIsFound(t *testing.T) {
	x, err := informer.NewIndexer(informer.IndexerConfig[*item]{Indexes: []informer.Index[*item]{{
		Name: "owner", Values: func(i *item, to []string) ([]string, error) { return byOwner(*i, to) },
	}}})
	must(t, err)
	a := &item{key: "a", owner: "x"}
	must(t, x.Apply([]informer.Change[*item]{{Key: "a", Object: a}}, informer.Version{}))
	a.owner = "y"
	err = x.Apply([]informer.Change[*item]{{Key: "a", Object: &item{key: "a", owner: "z"}}}, informer.Version{})
	if err == nil || !strings.Contains(err.Error(), "changed after it was stored") {
		t.Errorf("the error is %v", err)
	}
	if n, err := x.Snapshot().CountByIndex("owner", "x"); n != 1 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
}
