package informer

import (
	"errors"
	"maps"
	"slices"
	"testing"
)

func contentOf(x *Indexer[int]) map[string]int { return maps.Collect(x.Snapshot().All()) }

func newLoader(t *testing.T, indexes ...Index[int]) *Loader[int] {
	t.Helper()
	index, err := NewIndexer(IndexerConfig[int]{Indexes: indexes})
	if err != nil {
		t.Fatal(err)
	}
	return NewLoader(index)
}

func puts(pairs map[string]int) (changes []Change[int]) {
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		changes = append(changes, Change[int]{Key: key, Object: pairs[key]})
	}
	return changes
}

func mustApply(t *testing.T, r *Loader[int], changes []Change[int], v Version) {
	t.Helper()
	if err := r.Apply(changes, v); err != nil {
		t.Fatal(err)
	}
}

// A list replaces the content when it is complete, and not before. Then changes are applied.
func TestAListReplacesTheContentWhenItIsComplete(t *testing.T) {
	r := newLoader(t)
	mustApply(t, r, puts(map[string]int{"a": 1, "b": 1}), at(1))
	before := r.Index().Snapshot()
	r.Begin()
	mustApply(t, r, puts(map[string]int{"b": 2}), Version{})
	mustApply(t, r, append(puts(map[string]int{"c": 2, "d": 2}), Change[int]{Key: "d", Deleted: true}), Version{})
	if !r.Listing() || !r.Index().Snapshot().Same(before) {
		t.Errorf("a list that is not complete shows %v", contentOf(r.Index()))
	}
	if err := r.Complete(at(2)); err != nil {
		t.Fatal(err)
	}
	if got := contentOf(r.Index()); r.Listing() || !maps.Equal(got, map[string]int{"b": 2, "c": 2}) {
		t.Errorf("after the list it is %v", got)
	}
	mustApply(t, r, []Change[int]{{Key: "b", Deleted: true}, {Key: "e", Object: 3}}, at(3))
	if got := contentOf(r.Index()); !maps.Equal(got, map[string]int{"c": 2, "e": 3}) {
		t.Errorf("after changes it is %v", got)
	}
	if v := r.Index().Version(); v != at(3) {
		t.Errorf("its version is %v", v)
	}
}

// A list of a stream that breaks leaves the content as it was, also if another list begins.
func TestABrokenListChangesNothing(t *testing.T) {
	r := newLoader(t)
	mustApply(t, r, puts(map[string]int{"a": 1}), Version{})
	r.Begin()
	mustApply(t, r, puts(map[string]int{"b": 2}), Version{})
	r.Begin()
	mustApply(t, r, puts(map[string]int{"c": 2}), Version{})
	r.Drop()
	if err := r.Complete(Version{}); err != nil {
		t.Error(err)
	}
	if got := contentOf(r.Index()); !maps.Equal(got, map[string]int{"a": 1}) {
		t.Errorf("it is %v", got)
	}
}

// A list with a part that cannot be taken in never replaces the content.
func TestAListThatFailsIsDropped(t *testing.T) {
	failed := errors.New("no negative numbers")
	r := newLoader(t, Index[int]{Name: "sign", Values: func(n int, to []string) ([]string, error) {
		if n < 0 {
			return to, failed
		}
		return append(to, "positive"), nil
	}})
	mustApply(t, r, puts(map[string]int{"a": 1}), Version{})
	r.Begin()
	if err := r.Apply(puts(map[string]int{"b": 1, "c": -1}), Version{}); !errors.Is(err, failed) {
		t.Errorf("a bad part: %v", err)
	}
	if err := r.Complete(Version{}); err != nil || r.Listing() {
		t.Error(err, r.Listing())
	}
	if got := contentOf(r.Index()); !maps.Equal(got, map[string]int{"a": 1}) {
		t.Errorf("it is %v", got)
	}
}

func at(revision uint64) Version { return Version{Epoch: 1, Revision: revision} }
