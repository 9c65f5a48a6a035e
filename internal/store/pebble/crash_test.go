package pebble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/storetest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// runs commits batches in a store on a file system, and notes the promises that it is given.
type runs struct{ *storetest.Promises }

func newRuns() runs { return runs{storetest.NewPromises()} }

func (p runs) run(cfg Config, rng *rand.Rand, batches uint64) error {
	return p.Run(context.Background(), func() (store.Store, error) { return wrapNil(Open(cfg)) }, rng,
		storetest.Workload{Batches: batches})
}

// crash is a file system as a crash left it, with the promises given until then.
type crash struct {
	fs    storetest.CrashableFS
	given storetest.Given
	what  string
}

// crashNow copies the file system at this instant. The given share of the unsynced data survives.
func (p runs) crashNow(fs storetest.CrashableFS, rng *rand.Rand, percent int, what string) crash {
	c := crash{given: p.Before(), what: fmt.Sprintf("%s, %d%% of the rest survives", what, percent)}
	c.fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
	c.given = p.After(c.given)
	return c
}

// check opens the store after a crash, and looks whether the promises hold.
func (p runs) check(c crash) (err error) {
	s, err := Open(small(c.fs, "store"))
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return p.Check(context.Background(), s, c.given)
}

func randomSeed(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(testrun.Seed(t), 3))
}

// The machine dies before any write to the disk, from the making of the store to its close.
func TestCrashAtEveryPoint(t *testing.T) {
	rng := randomSeed(t)
	mem := storetest.NewCrashableFS()
	p := newRuns()
	var mu sync.Mutex // Pebble writes from several goroutines
	var crashes []crash
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			mu.Lock()
			defer mu.Unlock()
			percent := []int{0, 50, 100}[rng.IntN(3)]
			crashes = append(
				crashes, p.crashNow(mem, rng, percent, fmt.Sprintf("before operation %d on %s", op.Kind, op.Path)),
			)
		}
		return nil
	}))
	if err := p.run(small(fs, "store"), rand.New(rand.NewPCG(rng.Uint64(), 4)), 120); err != nil {
		t.Fatal(err)
	}
	crashes = append(crashes, p.crashNow(mem, rng, 0, "after the close"))
	for i, c := range crashes {
		if err := p.check(c); err != nil {
			t.Fatalf("crash %d of %d, %s: %v", i, len(crashes), c.what, err)
		}
	}
	t.Logf("%d crashes", len(crashes))
	if len(crashes) < 200 {
		t.Errorf("only %d crashes were tried", len(crashes))
	}
}

// The machine dies again while the store is opened after a crash.
func TestCrashDuringRecovery(t *testing.T) {
	rng := randomSeed(t)
	mem := storetest.NewCrashableFS()
	p := newRuns()
	var first []crash
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData && len(first) < 300 { // the log's syncs, one after the other
			first = append(first, p.crashNow(mem, rng, 100*rng.IntN(2), "before a sync"))
		}
		return nil
	}))
	cfg := small(fs, "store")
	cfg.MemTableBytes = DefaultMemTableBytes
	if err := p.run(cfg, rand.New(rand.NewPCG(rng.Uint64(), 4)), 60); err != nil {
		t.Fatal(err)
	}
	if len(first) == 0 {
		t.Fatal("no crash was tried")
	}
	second := 0
	for range 8 {
		c := first[rng.IntN(len(first))]
		var mu sync.Mutex
		var again []crash
		recovering := errorfs.Wrap(c.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				mu.Lock()
				defer mu.Unlock()
				d := c
				d.fs = c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng})
				again = append(again, d)
			}
			return nil
		}))
		s, err := Open(small(recovering, "store"))
		if err != nil {
			t.Fatalf("%s: open: %v", c.what, err)
		}
		mustClose(t, s)
		for i, d := range again {
			if err := p.check(d); err != nil {
				t.Fatalf("%s, and again at point %d of the recovery: %v", c.what, i, err)
			}
		}
		second += len(again)
	}
	t.Logf("%d crashes during recovery", second)
}

// The disk fails at some write, once or for good. Every waiting caller gets an error, and the
// store accepts nothing more. Batches acknowledged before are there when the disk works again,
// even if the machine dies immediately.
func TestDiskErrors(t *testing.T) {
	rng := randomSeed(t)
	const batches = 60
	total := countWrites(t, batches)
	failed := 0
	for range 80 {
		at, once := rng.Int64N(total), rng.IntN(2) == 0
		seed := rng.Uint64()
		mem := storetest.NewCrashableFS()
		var n atomic.Int64
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
				return nil
			}
			if i := n.Add(1) - 1; i == at || i > at && !once {
				return errorfs.ErrInjected
			}
			return nil
		}))
		what := fmt.Sprintf("write %d of %d fails, once=%v, workload %d", at, total, once, seed)
		p := newRuns()
		if err := p.run(small(fs, "store"), rand.New(rand.NewPCG(seed, 4)), batches); err != nil {
			failed++
		}
		for _, percent := range []int{0, 100} {
			if err := p.check(p.crashNow(mem, rng, percent, what)); err != nil {
				t.Fatalf("%s, %d%% of what was not synced survives: %v", what, percent, err)
			}
		}
	}
	t.Logf("%d of 80 runs failed", failed)
	if failed < 40 {
		t.Errorf("only %d of 80 runs noticed the failing disk", failed)
	}
}

// countWrites returns how many writes a run without errors makes.
func countWrites(t *testing.T, batches uint64) int64 {
	t.Helper()
	var n atomic.Int64
	fs := errorfs.Wrap(storetest.NewCrashableFS(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			n.Add(1)
		}
		return nil
	}))
	if err := newRuns().run(small(fs, "store"), rand.New(rand.NewPCG(1, 4)), batches); err != nil {
		t.Fatal(err)
	}
	return n.Load()
}

// After the first failed sync nothing is accepted any more, even if the disk works again.
func TestFirstFailureIsTheLast(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // a failed store closes its goroutines too
	var failing errorfs.Toggle
	failing.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSync {
			return errorfs.ErrInjected
		}
		return nil
	})
	mem := storetest.NewCrashableFS()
	s := mustOpen(t, small(errorfs.Wrap(mem, &failing), "store"))
	epoch := lead(t, s)
	mustCommit(t, s, epoch, 1)
	failing.On()
	err := commitOne(s, epoch, 2)
	wantError(t, err, plimsoll.CodeUnavailable, "store", "failed", "disk", "injected error")
	failing.Off()
	_, err = s.Commit(&wire.Batch{Epoch: epoch, Revision: 3})
	wantError(t, err, plimsoll.CodeUnavailable, "takes no more")
	wantError(t, s.Confirm(context.Background()), plimsoll.CodeUnavailable)
	wantError(t, s.TrimEvents(1), plimsoll.CodeUnavailable)
	_, err = s.Lead(context.Background(), nil)
	wantError(t, err, plimsoll.CodeUnavailable)
	if err := s.Close(); err == nil {
		t.Error("close after a failure: no error")
	}
	s = mustOpen(t, small(mem.CrashClone(vfs.CrashCloneCfg{}), "store"))
	defer mustClose(t, s)
	if got := read(t, s); got.Revision != 1 {
		t.Errorf("revision %d is there, want 1, which was acknowledged", got.Revision)
	}
}

// Reading fails while the store is opened or loaded: an error, never a panic, and nothing is lost.
func TestReadErrors(t *testing.T) {
	rng := randomSeed(t)
	mem := vfs.NewMem()
	want := fill(t, mem, 100, rng.Uint64())
	failed := 0
	for range 100 {
		at := rng.Int64N(60)
		var n atomic.Int64
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsRead && op.Kind != errorfs.OpGetDiskUsage && n.Add(1)-1 == at {
				return errorfs.ErrInjected
			}
			return nil
		}))
		if got, err := openAndRead(small(fs, "store")); err != nil {
			failed++
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("read %d failed, and the store holds something else (-want +got):\n%s", at, diff)
		}
	}
	if got, err := openAndRead(small(mem, "store")); err != nil || !cmp.Equal(want, got) {
		t.Fatalf("after %d failures the store does not come back: %v", failed, err)
	}
	t.Logf("%d of 100 runs failed", failed)
}

// The disk fails at a write of a manifest, after which Pebble expects the process to end. The
// store fails as with any other file, and does not panic.
func TestManifestErrors(t *testing.T) {
	rng := randomSeed(t)
	for at := range int64(40) {
		seed := rng.Uint64()
		mem := storetest.NewCrashableFS()
		var n atomic.Int64
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			base := mem.PathBase(op.Path)
			harmless := op.Kind == errorfs.OpRemove || op.Kind == errorfs.OpFilePreallocate
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || harmless || !isManifest(base) && !isMarker(base) {
				return nil
			}
			if n.Add(1)-1 == at {
				return errorfs.ErrInjected
			}
			return nil
		}))
		p := newRuns()
		err := p.run(small(fs, "store"), rand.New(rand.NewPCG(seed, 5)), 200)
		if n.Load() > at && err == nil {
			t.Errorf("write %d of a manifest failed, workload %d, and nobody was told", at, seed)
		}
		if err := p.check(p.crashNow(mem, rng, 0, "at once")); err != nil {
			t.Fatalf("write %d of a manifest fails, workload %d: %v", at, seed, err)
		}
	}
}
