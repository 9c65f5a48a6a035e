package informer_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// An index is walked in the order of its values, and objects against the order of their keys, from
// any place on.
func TestASnapshotIsWalkedInBothDirectionsFromAnyPlace(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		x, err := informer.NewIndexer(informer.IndexerConfig[item]{Key: itemKey, Indexes: itemIndexes})
		if err != nil {
			t.Fatal(err)
		}
		var items []item
		seen := map[string]bool{}
		for range rapid.IntRange(0, 100).Draw(t, "objects") {
			if i := drawItem(t); !seen[i.key] {
				seen[i.key] = true
				items = append(items, i)
			}
		}
		if err := x.ReplaceList(items, informer.Version{}); err != nil {
			t.Fatal(err)
		}
		s := x.Snapshot()
		place := rapid.SampledFrom([]string{"", "k", "k1", "k150", "y", "z", "3", "~"}).Draw(t, "place")
		descending := rapid.Bool().Draw(t, "descending")

		var want, got []string
		slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.key, b.key) })
		for _, i := range slices.Backward(items) {
			if place == "" || i.key < place {
				want = append(want, i.key)
			}
		}
		for key := range s.Backward(place) {
			got = append(got, key)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("backward from %q: %v, want %v", place, got, want)
		}

		values, err := s.IndexFrom("tag", place, descending)
		if err != nil {
			t.Fatal(err)
		}
		want, got = nil, nil
		type entry struct{ value, key string }
		var entries []entry
		for _, i := range items {
			for _, tag := range slices.Compact(slices.Sorted(slices.Values(i.tags))) {
				if place == "" || !descending && tag > place || descending && tag < place {
					entries = append(entries, entry{tag, i.key})
				}
			}
		}
		slices.SortFunc(entries, func(a, b entry) int {
			byValue := cmp.Compare(a.value, b.value)
			if descending {
				byValue = -byValue
			}
			return cmp.Or(byValue, cmp.Compare(a.key, b.key))
		})
		for _, e := range entries {
			want = append(want, fmt.Sprint(e))
		}
		for value, key := range values {
			got = append(got, fmt.Sprint(entry{value, key}))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("by tag behind %q, descending %v: %v, want %v", place, descending, got, want)
		}
		for range values { // leaving the loop ends the walk
			break
		}
	})
}

func TestAnUnknownIndexCannotBeWalked(t *testing.T) {
	if _, err := newItems(t).Snapshot().IndexFrom("none", "", false); err == nil {
		t.Error("an unknown index is walked")
	}
}
