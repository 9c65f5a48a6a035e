package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/backup"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
	"github.com/plimsoll-dev/plimsoll/internal/store/storetest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// open opens a store in memory, the same one for the same file system.
func open(t *testing.T, fs vfs.FS, limits store.Limits) store.Store {
	t.Helper()
	s, err := pebble.Open(pebble.Config{Dir: "store", FS: fs, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func lead(t *testing.T, s store.Store, least uint64) (epoch uint64) {
	t.Helper()
	for epoch < least {
		var err error
		if epoch, err = s.Lead(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	return epoch
}

func commit(t *testing.T, s store.Store, b *wire.Batch) {
	t.Helper()
	p, err := s.Commit(b)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// random returns bytes that cannot be compressed.
func random(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// filled returns a store with random content of some epoch.
func filled(t *testing.T, seed, epoch uint64) store.Store {
	t.Helper()
	s := open(t, vfs.NewMem(), store.Limits{})
	epoch = lead(t, s, epoch)
	rng := rand.New(rand.NewPCG(seed, 1))
	id := uint64(0)
	for r := uint64(1); r <= 40; r++ {
		b := &wire.Batch{Epoch: epoch, Revision: 10 + 3*r, Time: int64(r)}
		for range rng.IntN(20) {
			value := random(rng, rng.IntN(300))
			b.Mutations = append(b.Mutations, wire.Mutation{
				Kind: []wire.Kind{wire.KindTask, wire.KindNode, wire.KindOutcome}[rng.IntN(3)],
				Key:  fmt.Sprint("key ", rng.IntN(100)), Value: value,
			})
		}
		if rng.IntN(2) == 0 || r == 40 {
			b.Events = wire.EventChunk{FirstID: id, Count: 3, Data: random(rng, rng.IntN(500))}
			id += 3
		}
		commit(t, s, b)
	}
	ids := wire.AppendEventIDs(nil, wire.EventIDs{Instance: "instance", First: 0})
	commit(t, s, &wire.Batch{Epoch: epoch, Revision: 200, Time: 77, Mutations: []wire.Mutation{
		{Kind: wire.KindEventIDs, Value: ids},
	}})
	return s
}

// exported writes a backup of a store to a file and opens it.
func exported(t *testing.T, s store.Store, epoch uint64) (path string, f *backup.File) {
	t.Helper()
	var data bytes.Buffer
	content, err := backup.Write(t.Context(), &data, backup.Header{Version: "1.2", Epoch: epoch}, s.Load)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "store.backup")
	if err := os.WriteFile(path, data.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err = backup.Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if got := f.Content(); got != content {
		t.Fatalf("the file holds %+v, and %+v was written", got, content)
	}
	return path, f
}

func read(t *testing.T, s store.Store) storetest.Content {
	t.Helper()
	c, err := storetest.Read(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A move takes over all: records, events at their revisions, and the ids of events. The epoch is
// higher than that of before.
func TestAMoveTakesOverEverything(t *testing.T) {
	source := filled(t, testrun.Seed(t), 7)
	want := read(t, source)
	_, f := exported(t, source, 7)
	for _, limits := range []store.Limits{{}, {Ops: 3, Bytes: 2000}} {
		target := open(t, vfs.NewMem(), limits)
		var told []uint64
		err := backup.Restore(t.Context(), f, target, backup.Options{Move: true, Progress: func(done, all uint64) {
			told = append(told, done)
			if all != uint64(len(want.Records)) {
				t.Errorf("the progress is told as of %d records, and there are %d", all, len(want.Records))
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		got := read(t, target)
		if got.Revision <= want.Revision || got.Time != want.Time || len(told) == 0 {
			t.Errorf("revision %d after %d, time %d and not %d, %d reports of progress", got.Revision, want.Revision,
				got.Time, want.Time, len(told))
		}
		got.Revision = want.Revision
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limits %+v: -source +target:\n%s", limits, diff)
		}
		if epoch := lead(t, target, 1); epoch <= 7 {
			t.Errorf("the next leader has epoch %d, not one above 7", epoch)
		}
	}
}

// Without a move the events stay away, and their ids go on behind the last, without the name of
// the instance: what followed the backup may have used them.
func TestARestoreBeginsAnotherInstanceOfEvents(t *testing.T) {
	source := filled(t, testrun.Seed(t), 1)
	want := read(t, source)
	_, f := exported(t, source, 1)
	target := open(t, vfs.NewMem(), store.Limits{})
	if err := backup.Restore(t.Context(), f, target, backup.Options{}); err != nil {
		t.Fatal(err)
	}
	got := read(t, target)
	last := want.Chunks[len(want.Chunks)-1]
	for i, r := range want.Records {
		if r.Kind == wire.KindEventIDs {
			ids := wire.AppendEventIDs(nil, wire.EventIDs{First: last.FirstID + last.Count})
			want.Records[i].Value = string(ids)
		}
	}
	if diff := cmp.Diff(want.Records, got.Records); diff != "" || len(got.Chunks) > 0 {
		t.Errorf("%d chunks of events; records -want +got:\n%s", len(got.Chunks), diff)
	}
}

// A file that was damaged at any byte, or cut off at any, is refused with CodeCorrupt.
func TestADamagedFileIsRefused(t *testing.T) {
	path, _ := exported(t, filled(t, 1, 1), 1)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged")
	refused := func(data []byte, what string) {
		t.Helper()
		if err := os.WriteFile(damaged, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := backup.Open(t.Context(), damaged); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
			t.Errorf("%s: got %v, want code %v", what, err, plimsoll.CodeCorrupt)
		}
	}
	step := max(1, len(whole)/200)
	for i := 0; i < len(whole); i += step {
		refused(whole[:i], fmt.Sprintf("cut off at byte %d of %d", i, len(whole)))
		bad := bytes.Clone(whole)
		bad[i] ^= 0x10
		if i >= 4 && i < 6 {
			continue // bits of the frame's header that no reader needs
		}
		refused(bad, fmt.Sprintf("a bit is turned in byte %d of %d", i, len(whole)))
	}
	refused(append(bytes.Clone(whole), whole...), "two files in one")
}

// A store that is not empty is replaced only by force, and the error says which is newer.
func TestAStoreThatIsNotEmptyIsReplacedOnlyByForce(t *testing.T) {
	_, f := exported(t, filled(t, 1, 3), 3)
	for _, c := range []struct {
		epoch uint64
		age   string
	}{{1, "it is older than the backup"}, {5, "it is not older than the backup"}} {
		target := filled(t, 2, c.epoch)
		before := read(t, target)
		err := backup.Restore(t.Context(), f, target, backup.Options{Move: true})
		if plimsoll.CodeOf(err) != plimsoll.CodeConflict || !strings.Contains(err.Error(), c.age) ||
			!strings.Contains(err.Error(), "--force") {
			t.Errorf("epoch %d: got %v", c.epoch, err)
		}
		if diff := cmp.Diff(before, read(t, target)); diff != "" {
			t.Errorf("a refused restore changed the store:\n%s", diff)
		}
		if err := backup.Restore(t.Context(), f, target, backup.Options{Move: true, Force: true}); err != nil {
			t.Fatal(err)
		}
		var want storetest.Content
		want.Revision, want.Time, err = f.Load(t.Context(), func(kind wire.Kind, key string, value []byte) error {
			want.Records = append(want.Records, storetest.Record{Kind: kind, Key: key, Value: string(value)})
			return nil
		}, func(uint64, wire.EventChunk) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Records, read(t, target).Records); diff != "" {
			t.Errorf("-backup +target:\n%s", diff)
		}
		if epoch := lead(t, target, 1); epoch <= max(3, c.epoch) {
			t.Errorf("the next leader has epoch %d, not one above %d and 3", epoch, c.epoch)
		}
	}
}

// All objects that the store cannot take are named before anything is written.
func TestObjectsThatDoNotFitAreNamed(t *testing.T) {
	source := open(t, vfs.NewMem(), store.Limits{})
	epoch := lead(t, source, 1)
	b := wire.Batch{Epoch: epoch, Revision: 1, Mutations: []wire.Mutation{
		{Kind: wire.KindTask, Key: "small", Value: make([]byte, 10)},
	}, Events: wire.EventChunk{Count: 1, Data: make([]byte, 3000)}}
	want := []string{"the events of revision 1"}
	for i := range 100 {
		key := fmt.Sprintf("large%02d", i)
		b.Mutations = append(b.Mutations, wire.Mutation{Kind: wire.KindTask, Key: key, Value: make([]byte, 1000)})
		want = append(want, strconv.Quote(key))
	}
	commit(t, source, &b)
	_, f := exported(t, source, epoch)
	target := open(t, vfs.NewMem(), store.Limits{Ops: 10, Bytes: 500})
	var all []string
	err := backup.Restore(t.Context(), f, target, backup.Options{
		DryRun: true, Misfit: func(object string) { all = append(all, object) },
	})
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), "101 objects") ||
		!strings.Contains(err.Error(), `"large00"`) || !strings.Contains(err.Error(), "and 96 more") {
		t.Fatalf("got %v, code %v", err, plimsoll.CodeOf(err))
	}
	named := strings.Join(all, "\n")
	for _, name := range want {
		if !strings.Contains(named, name) {
			t.Errorf("%s is not named", name)
		}
	}
	if got := read(t, target); got.Revision != 0 || len(all) != len(want) {
		t.Errorf("%d objects are named, want %d; the store holds %+v", len(all), len(want), got)
	}
}

// broken is a store whose commits fail behind the first few.
type broken struct {
	store.Store
	left int
}

var errBroken = errors.New("the test broke the store")

func (b *broken) Commit(batch *wire.Batch) (store.Pending, error) {
	if b.left--; b.left < 0 {
		return nil, errBroken
	}
	return b.Store.Commit(batch)
}

// A restore that ends anywhere leaves the mark of an unfinished import, or all or nothing. The next
// one needs no force, and puts everything there.
func TestARestoreThatEndsAnywhereIsDoneAgain(t *testing.T) {
	source := filled(t, testrun.Seed(t), 2)
	want := read(t, source)
	_, f := exported(t, source, 2)
	for left := 0; ; left++ {
		target := open(t, vfs.NewMem(), store.Limits{Ops: 20, Bytes: 4000})
		err := backup.Restore(t.Context(), f, &broken{target, left}, backup.Options{Move: true})
		if err == nil {
			if left < 10 {
				t.Fatalf("the test tests little: a restore takes %d commits", left)
			}
			return
		}
		if !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		got := read(t, target)
		marked := len(got.Records) > 0 && got.Records[len(got.Records)-1].Kind == wire.KindImport
		if !marked && got.Revision != 0 {
			t.Fatalf("behind %d commits the store holds %d records and no mark", left, len(got.Records))
		}
		if err := backup.Restore(t.Context(), f, target, backup.Options{Move: true}); err != nil {
			t.Fatalf("behind %d commits: %v", left, err)
		}
		got = read(t, target)
		if diff := cmp.Diff(want.Records, got.Records); diff != "" || len(got.Chunks) != len(want.Chunks) {
			t.Fatalf("behind %d commits: %d chunks of %d, records -source +target:\n%s", left, len(got.Chunks),
				len(want.Chunks), diff)
		}
	}
}

// A restore that its caller gives up ends.
func TestARestoreEndsWithItsContext(t *testing.T) {
	_, f := exported(t, filled(t, 1, 1), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := backup.Restore(ctx, f, open(t, vfs.NewMem(), store.Limits{}), backup.Options{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
