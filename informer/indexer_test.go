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
	"testing/synctest"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// item is an object with a key and some tags; tags are its values in the index "tag".
type item struct {
	key, owner string
	tags       []string
}

func (i item) String() string { return i.key + ":" + i.owner + ":" + strings.Join(i.tags, ",") }

// made reads an item from "key:owner:tag,tag".
func made(text string) item {
	parts := strings.SplitN(text, ":", 3)
	i := item{key: parts[0]}
	if len(parts) > 1 {
		i.owner = parts[1]
	}
	if len(parts) > 2 && parts[2] != "" {
		i.tags = strings.Split(parts[2], ",")
	}
	return i
}

var (
	errBadKey   = errors.New("this key is bad")
	errBadOwner = errors.New("this owner is bad")
)

func itemKey(i item) (string, error) {
	switch i.key {
	case "bad":
		return "", errBadKey
	case "panic":
		panic("the key panics")
	}
	return i.key, nil
}

func byOwner(i item, to []string) ([]string, error) {
	switch i.owner {
	case "bad":
		return to, errBadOwner
	case "panic":
		panic("the owner panics")
	}
	return append(to, i.owner), nil
}

var itemIndexes = []informer.Index[item]{
	{Name: "owner", Values: byOwner},
	{Name: "tag", Values: func(i item, to []string) ([]string, error) { return append(to, i.tags...), nil }},
}

func newItems(t testing.TB, items ...string) *informer.Indexer[item] {
	t.Helper()
	x, err := informer.NewIndexer(informer.IndexerConfig[item]{Key: itemKey, Indexes: itemIndexes})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range items {
		must(t, x.Add(made(text)))
	}
	return x
}

// tester is a testing.TB or a *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Errorf(format string, args ...any)
}

func list[K comparable](t tester) func(seq iter.Seq2[K, item], err error) string {
	return func(seq iter.Seq2[K, item], err error) string {
		t.Helper()
		must(t, err)
		var all []string
		for key, i := range seq {
			if fmt.Sprint(key) != i.key {
				t.Errorf("the key %v comes with %v", key, i)
			}
			all = append(all, i.String())
		}
		return strings.Join(all, " ")
	}
}

func all(s *informer.Snapshot[item]) (iter.Seq2[string, item], error) { return s.All(), nil }

// describe is all that a snapshot shows.
func describe(t tester, s *informer.Snapshot[item]) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%v %d objects: %s\n", s.Version(), s.Len(), list[string](t)(all(s)))
	for _, name := range s.Indexes() {
		values, err := s.IndexValues(name)
		must(t, err)
		for value, count := range values {
			keys, err := s.IndexKeys(name, "", "", value)
			must(t, err)
			fmt.Fprintf(&b, "%s %s %d: %s\n", name, value, count, strings.Join(slices.Collect(keys), " "))
		}
	}
	return b.String()
}

func put(text string) informer.Change[item] {
	return informer.Change[item]{Key: made(text).key, Object: made(text)}
}

func drop(key string) informer.Change[item] {
	return informer.Change[item]{Key: key, Deleted: true}
}

func at(revision uint64) informer.Version { return informer.Version{Epoch: 1, Revision: revision} }

func TestAddAndUpdateAreTheSame(t *testing.T) {
	added, updated := newItems(t, "a:x:1", "a:y:2"), newItems(t)
	must(t, updated.Update(made("a:x:1")))
	must(t, updated.Update(made("a:y:2")))
	if a, u := describe(t, added.Snapshot()), describe(t, updated.Snapshot()); a != u {
		t.Errorf("Add makes\n%s, Update\n%s", a, u)
	}
	if i, known, err := added.Get("a"); !known || err != nil || i.owner != "y" {
		t.Errorf("Get = %v, %v, %v", i, known, err)
	}
}

func TestAnUpdateMovesAKeyBetweenIndexValues(t *testing.T) {
	x := newItems(t)
	for _, step := range []struct {
		do              informer.Change[item]
		owners, tagged1 string
	}{
		{put("b:x:1,2"), "x=1", "b:x:1,2"},
		{put("a:x:1"), "x=2", "a:x:1 b:x:1,2"},
		{put("a:x:1"), "x=2", "a:x:1 b:x:1,2"}, // nothing changes
		{put("b:y:2,1"), "x=1 y=1", "a:x:1 b:y:2,1"},
		{put("a:y"), "y=2", "b:y:2,1"}, // the last key of x: the value is gone
		{put("c:z:1,1"), "y=2 z=1", "b:y:2,1 c:z:1,1"},
		{drop("b"), "y=1 z=1", "c:z:1,1"},
		{drop("b"), "y=1 z=1", "c:z:1,1"},
		{drop("never there"), "y=1 z=1", "c:z:1,1"},
		{drop("c"), "y=1", ""},
	} {
		must(t, x.Apply([]informer.Change[item]{step.do}, informer.Version{}))
		s := x.Snapshot()
		values, err := s.IndexValues("owner")
		must(t, err)
		var owners []string
		for value, count := range values {
			owners = append(owners, fmt.Sprintf("%s=%d", value, count))
			if n, err := s.CountByIndex("owner", value); n != count || err != nil {
				t.Errorf("CountByIndex(%q) = %d, %v, want %d", value, n, err, count)
			}
		}
		if got := strings.Join(owners, " "); got != step.owners {
			t.Errorf("after %v: owners %q, want %q", step.do, got, step.owners)
		}
		if got := list[string](t)(s.ByIndex("tag", "1")); got != step.tagged1 {
			t.Errorf("after %v: tag 1 has %q, want %q", step.do, got, step.tagged1)
		}
	}
}

func TestReadsAreInKeyOrder(t *testing.T) {
	s := newItems(t, "b1::x", "a2::x,y", "b3::y", "b2::x,z", "c::z").Snapshot()
	for _, test := range []struct {
		prefix, after, all string
		values             []string
		indexed            string
	}{
		{"", "", "a2 b1 b2 b3 c", []string{"x"}, "a2 b1 b2"},
		{"b", "", "b1 b2 b3", []string{"x"}, "b1 b2"},
		{"b", "b1", "b2 b3", []string{"x"}, "b2"},
		{"b", "b11", "b2 b3", []string{"z", "y"}, "b2 b3"},
		{"b", "a", "b1 b2 b3", []string{"y"}, "b3"},
		{"", "c", "", []string{"z"}, ""},
		{"d", "", "", []string{"x", "y", "z"}, ""},
		{"", "", "a2 b1 b2 b3 c", []string{"z", "y", "x"}, "a2 b1 b2 b3 c"}, // each once
		{"", "a2", "b1 b2 b3 c", []string{"y", "z"}, "b2 b3 c"},
		{"", "", "a2 b1 b2 b3 c", []string{"nothing"}, ""},
		{"", "", "a2 b1 b2 b3 c", nil, ""},
	} {
		var keys []string
		for key := range s.Range(test.prefix, test.after) {
			keys = append(keys, key)
		}
		if got := strings.Join(keys, " "); got != test.all {
			t.Errorf("Range(%q, %q) = %q, want %q", test.prefix, test.after, got, test.all)
		}
		keys = nil
		objects, err := s.IndexRange("tag", test.prefix, test.after, test.values...)
		must(t, err)
		for key := range objects {
			keys = append(keys, key)
		}
		if got := strings.Join(keys, " "); got != test.indexed {
			t.Errorf("IndexRange(%q, %q, %q) = %q, want %q", test.prefix, test.after, test.values, got, test.indexed)
		}
	}
	for range s.All() {
		break // an iteration may end early
	}
	cursor, keys := s.Cursor(), ""
	for cursor.Next() {
		keys += cursor.Key() + cursor.Object().key + " "
	}
	if keys != "a2a2 b1b1 b2b2 b3b3 cc " || cursor.Next() {
		t.Errorf("the cursor goes over %q", keys)
	}
}

func TestAnUnknownIndexIsAnErrorThatNamesTheOthers(t *testing.T) {
	s := newItems(t).Snapshot()
	_, byIndex := s.ByIndex("ownr", "x")
	_, values := s.IndexValues("ownr")
	_, count := s.CountByIndex("ownr", "x")
	for _, err := range []error{byIndex, values, count} {
		if err == nil || err.Error() != `index: there is no index "ownr"; there are: owner, tag` {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestAnIndexCanBeAddedToAFilledStore(t *testing.T) {
	x := newItems(t, "a:x", "b:y", "c:x")
	before := x.Snapshot()
	upper := informer.Index[item]{Name: "upper", Values: func(i item, to []string) ([]string, error) {
		return append(to, strings.ToUpper(i.owner)), nil
	}}
	must(t, x.AddIndex(upper))
	if got := list[string](t)(x.Snapshot().ByIndex("upper", "X")); got != "a:x: c:x:" {
		t.Errorf("the new index has %q", got)
	}
	if _, err := before.ByIndex("upper", "X"); err == nil {
		t.Error("an older snapshot has the new index")
	}
	must(t, x.Delete(made("a")))
	if got := list[string](t)(x.Snapshot().ByIndex("upper", "X")); got != "c:x:" {
		t.Errorf("after a deletion the new index has %q", got)
	}
	now := describe(t, x.Snapshot())
	fails := func(item, []string) ([]string, error) { return nil, errBadOwner }
	for name, index := range map[string]informer.Index[item]{
		"the name is taken": upper, "there is no function": {Name: "new"},
		"the function fails":  {Name: "new", Values: fails},
		"the function panics": {Name: "new", Values: func(item, []string) ([]string, error) { panic("no") }},
	} {
		if err := x.AddIndex(index); err == nil {
			t.Errorf("%s, and there is no error", name)
		}
		if got := describe(t, x.Snapshot()); got != now {
			t.Errorf("%s, and the content has changed to\n%s", name, got)
		}
	}
}

func TestABadConfigurationIsRefused(t *testing.T) {
	for _, indexes := range [][]informer.Index[item]{
		{itemIndexes[0], itemIndexes[0]},
		{{Name: "no function"}},
	} {
		if _, err := informer.NewIndexer(informer.IndexerConfig[item]{Indexes: indexes}); err == nil {
			t.Errorf("%v are taken", indexes)
		}
	}
	x, err := informer.NewIndexer(informer.IndexerConfig[item]{})
	must(t, err)
	if err := x.Add(made("a")); err == nil || !strings.Contains(err.Error(), "IndexerConfig.Key") {
		t.Errorf("Add without a key function: %v", err)
	}
	if err := newItems(t).Add(made("")); err == nil {
		t.Error("an empty key is taken")
	}
}

func TestObjectsAreNotCopied(t *testing.T) {
	x, err := informer.NewIndexer(informer.IndexerConfig[*item]{})
	must(t, err)
	i := &item{key: "a"}
	must(t, x.Apply([]informer.Change[*item]{{Key: "a", Object: i}}, informer.Version{}))
	if got, _, err := x.Get("a"); got != i || err != nil {
		t.Errorf("Get returns another object, %v", err)
	}
}

func TestReplaceIsTheWholeContent(t *testing.T) {
	x := newItems(t, "a:x:1", "b:y:2")
	before := x.Snapshot()
	was := describe(t, before)
	next := []item{made("d:z"), made("c:y:2"), made("b:y:3"), made("c:x:4")} // in no order; c twice
	must(t, x.ReplaceList(next, at(7)))
	want := "1.7 3 objects: b:y:3 c:x:4 d:z:\nowner x 1: c\nowner y 1: b\nowner z 1: d\ntag 3 1: b\ntag 4 1: c\n"
	if got := describe(t, x.Snapshot()); got != want {
		t.Errorf("the content is\n%s, want\n%s", got, want)
	}
	if got := describe(t, before); got != was {
		t.Errorf("the older snapshot is now\n%s", got)
	}
	must(t, x.Replace(maps.All(map[string]item{"e": made("e:x")}), at(7)))
	must(t, x.Apply([]informer.Change[item]{put("f:x:1")}, at(8)))
	want = "1.8 2 objects: e:x: f:x:1\nowner x 2: e f\ntag 1 1: f\n"
	if got := describe(t, x.Snapshot()); got != want {
		t.Errorf("the content is\n%s, want\n%s", got, want)
	}
	rebuild := x.Rebuild()
	must(t, x.AddIndex(informer.Index[item]{Name: "also", Values: byOwner}))
	_, err := rebuild.Put("g", made("g:q"))
	must(t, err)
	must(t, rebuild.Swap(at(9)))
	if got := list[string](t)(x.Snapshot().ByIndex("also", "q")); got != "g:q:" {
		t.Errorf("an index that was added during a rebuild has %q", got)
	}
}

func TestABatchIsAppliedWholeOrNotAtAll(t *testing.T) {
	x, other := newItems(t, "a:x:1", "b:y:1,2", "c:z"), newItems(t, "q:x")
	must(t, x.Apply(nil, at(5)))
	was, others := describe(t, x.Snapshot()), describe(t, other.Snapshot())
	good := []informer.Change[item]{
		put("a:w:2"), drop("b"), put("d:x:1,2,3"), put("d:y:3"), drop("d"), put("a:v"), put("e:x"), drop("nobody"),
	}
	for name, bad := range map[string]informer.Change[item]{
		"an index function fails": put("f:bad:1"), "an index function panics": put("f:panic:1"),
		"it fails for a known key": put("c:bad"),
	} {
		for i := range len(good) + 1 {
			batch := slices.Insert(slices.Clone(good), i, bad)
			if err := x.Apply(batch, at(6)); err == nil {
				t.Errorf("%s, and there is no error", name)
			}
			edits := []*informer.Edit[item]{{Indexer: other, Changes: good}, {Indexer: x, Changes: batch}}
			if err := informer.ApplyAll(at(6), edits); err == nil {
				t.Errorf("%s among several, and there is no error", name)
			}
			if got := describe(t, x.Snapshot()); got != was {
				t.Fatalf("%s at %d, and the content has changed to\n%s", name, i, got)
			}
			if got := describe(t, other.Snapshot()); got != others {
				t.Fatalf("%s at %d, and the other content has changed to\n%s", name, i, got)
			}
		}
	}
	edits := []*informer.Edit[item]{{Indexer: x, Changes: good}, {Indexer: other, Changes: good[:1]}}
	must(t, informer.ApplyAll(at(6), edits))
	want := "1.6 3 objects: a:v: c:z: e:x:\nowner v 1: a\nowner x 1: e\nowner z 1: c\n"
	if got := describe(t, x.Snapshot()); got != want {
		t.Errorf("the content is\n%s, want\n%s", got, want)
	}
	if previous := edits[0].Previous; edits[0].Indexer != x || len(previous) != len(good) ||
		previous[0].Object.String() != "a:x:1" || previous[2].Known || previous[3].Object.String() != "d:x:1,2,3" {
		t.Errorf("the former objects are %v", previous)
	}
}

func TestEditsAreChecked(t *testing.T) {
	x := newItems(t)
	for _, edits := range [][]*informer.Edit[item]{{{}}, {nil}, {{Indexer: x}, {Indexer: x}}} {
		if err := informer.ApplyAll(at(1), edits); err == nil {
			t.Errorf("%d edits are taken", len(edits))
		}
	}
}

func TestWaitForReturnsAtTheVersion(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		x := newItems(t)
		must(t, x.Apply(nil, at(3)))
		must(t, x.WaitFor(t.Context(), at(3))) // at once
		reached := make(chan uint64, 10)
		for _, revision := range []uint64{9, 5, 7, 5} {
			go func() {
				if err := x.WaitFor(t.Context(), at(revision)); err != nil {
					t.Error(err)
				}
				if v := x.Snapshot().Version(); v.Before(at(revision)) {
					t.Errorf("waited for %d, and the snapshot is of %v", revision, v)
				}
				reached <- revision
			}()
		}
		canceled, cancel := context.WithCancel(t.Context())
		defer cancel()
		failed := make(chan error, 2)
		for _, revision := range []uint64{7, 8} {
			go func() { failed <- x.WaitFor(canceled, at(revision)) }()
		}
		for _, step := range []struct {
			to   informer.Version
			want int
		}{{at(4), 0}, {at(5), 2}, {at(6), 0}, {informer.Version{Epoch: 2}, 2}} {
			synctest.Wait()
			if step.to == at(6) {
				cancel()
				for range 2 {
					if err := <-failed; !errors.Is(err, context.Canceled) {
						t.Errorf("WaitFor without its caller: %v", err)
					}
				}
			}
			must(t, x.Apply(nil, step.to))
			synctest.Wait()
			if len(reached) != step.want {
				t.Errorf("at %v %d return, want %d", step.to, len(reached), step.want)
			}
			for len(reached) > 0 {
				<-reached
			}
		}
	})
}

func TestAnErrorNamesIndexAndKeyAndKeepsItsCause(t *testing.T) {
	err := newItems(t).Add(made("k:bad"))
	var e *plimsoll.Error
	if !errors.Is(err, errBadOwner) || !errors.As(err, &e) || e.Code != plimsoll.CodeInvalid ||
		!strings.Contains(err.Error(), `"owner"`) || !strings.Contains(err.Error(), `"k"`) {
		t.Errorf("the error is %v", err)
	}
	if err := newItems(t).Add(made("bad")); !errors.Is(err, errBadKey) {
		t.Errorf("the error of a bad key is %v", err)
	}
}
