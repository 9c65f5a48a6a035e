package informer_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// modelOf is describe of plain maps.
func modelOf(version informer.Version, items map[string]item) string {
	var b strings.Builder
	keys := slices.Sorted(maps.Keys(items))
	lists := map[string][]string{}
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = items[key].String()
		lists["owner "+items[key].owner] = append(lists["owner "+items[key].owner], key)
		tags := slices.Sorted(slices.Values(items[key].tags))
		for _, tag := range slices.Compact(tags) {
			lists["tag "+tag] = append(lists["tag "+tag], key)
		}
	}
	fmt.Fprintf(&b, "%v %d objects: %s\n", version, len(keys), strings.Join(texts, " "))
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		fmt.Fprintf(&b, "%s %d: %s\n", name, len(lists[name]), strings.Join(lists[name], " "))
	}
	return b.String()
}

func drawItem(t *rapid.T) item {
	i := item{
		key:   fmt.Sprint("k", rapid.IntRange(0, 200).Draw(t, "key")),
		owner: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "owner"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "tags") {
		i.tags = append(i.tags, fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "tag")))
	}
	return i
}

// After any calls the content equals plain maps. An error changes nothing, and every snapshot stays
// as it was.
func TestAnIndexerEqualsPlainMaps(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		x, err := informer.NewIndexer(informer.IndexerConfig[item]{Key: itemKey, Indexes: itemIndexes})
		if err != nil {
			t.Fatal(err)
		}
		model, version := map[string]item{}, informer.Version{}
		type kept struct {
			snapshot *informer.Snapshot[item]
			was      string
		}
		var snapshots []kept
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			to := version
			if rapid.Bool().Draw(t, "a new version") {
				to.Revision++
			}
			next := maps.Clone(model)
			fails := rapid.IntRange(0, 4).Draw(t, "fails") == 0
			if rapid.IntRange(0, 9).Draw(t, "replace") == 0 {
				clear(next)
				var items []item
				for range rapid.IntRange(0, 150).Draw(t, "objects") {
					i := drawItem(t)
					items, next[i.key] = append(items, i), i
				}
				if fails {
					items = append(items, made("k1:panic"))
				}
				err = x.ReplaceList(items, to)
			} else {
				var changes []informer.Change[item]
				for range rapid.IntRange(0, 120).Draw(t, "changes") {
					i := drawItem(t)
					c := informer.Change[item]{Key: i.key, Object: i}
					c.Deleted = rapid.IntRange(0, 2).Draw(t, "delete") == 0
					if changes = append(changes, c); c.Deleted {
						delete(next, i.key)
					} else {
						next[i.key] = i
					}
				}
				if fails {
					changes = append(changes, put("k1:bad"))
				}
				err = x.Apply(changes, to)
			}
			if (err != nil) != fails {
				t.Fatalf("the error is %v, want one: %v", err, fails)
			}
			if !fails {
				model, version = next, to
			}
			if rapid.Bool().Draw(t, "a snapshot") {
				snapshots = append(snapshots, kept{x.Snapshot(), modelOf(version, model)})
			}
		}
		snapshots = append(snapshots, kept{x.Snapshot(), modelOf(version, model)})
		for _, k := range snapshots {
			if got := describe(t, k.snapshot); got != k.was {
				t.Fatalf("a snapshot is\n%s, want\n%s", got, k.was)
			}
		}
	})
}

// Readers beside writers see whole batches only, and versions that never fall.
func TestReadersBesideWritersSeeWholeBatches(t *testing.T) {
	x := newItems(t)
	rounds := testrun.Count(300, 2000, 50_000)
	var writer, readers sync.WaitGroup
	stop := make(chan struct{})
	writer.Go(func() {
		for i := range uint64(rounds) {
			var changes []informer.Change[item]
			for k := range 5 {
				changes = append(changes, put(fmt.Sprint("k", k, ":", i%7, ":", i)))
			}
			var err error
			if i%100 == 99 {
				err = x.ReplaceList([]item{changes[0].Object, changes[1].Object}, at(i+1))
			} else {
				err = x.Apply(changes, at(i+1))
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	for range 4 {
		readers.Go(func() {
			var last informer.Version
			for {
				select {
				case <-stop:
					return
				default:
				}
				s := x.Snapshot()
				if s.Version().Before(last) {
					t.Errorf("version %v behind %v", s.Version(), last)
				}
				last = s.Version()
				if s.Len() == 0 {
					continue
				}
				first, _ := s.Get("k0")
				n := 0
				objects, err := s.ByIndex("owner", first.owner)
				if err != nil {
					t.Error(err)
					return
				}
				for _, i := range objects {
					n++
					if i.tags[0] != first.tags[0] {
						t.Errorf("one snapshot holds %v and %v", first, i)
					}
				}
				if n != s.Len() {
					t.Errorf("%d of %d objects have the owner", n, s.Len())
				}
			}
		})
	}
	writer.Wait()
	close(stop)
	readers.Wait()
}
