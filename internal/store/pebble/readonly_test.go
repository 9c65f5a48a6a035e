package pebble

import (
	"reflect"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func mustRead(t *testing.T, cfg Config) *Reader {
	t.Helper()
	r, err := OpenReadOnly(cfg)
	if err != nil {
		t.Fatalf("open for reading: %v", err)
	}
	return r
}

// A store on a full disk is read as a whole, including content that is only in its log. No file is
// changed.
func TestAStoreOnAFullDiskIsRead(t *testing.T) {
	for name, make := range map[string]func(*testing.T, vfs.FS) any{
		"tables and a log": func(t *testing.T, fs vfs.FS) any { return fill(t, fs, 50, 1) },
		"a log alone":      func(t *testing.T, fs vfs.FS) any { return fillLog(t, fs, 20, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			want := make(t, mem)
			before := snapshot(t, mem)
			full := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind.ReadOrWrite() == errorfs.OpIsWrite &&
					op.Kind != errorfs.OpFileClose && op.Kind != errorfs.OpLock {
					return syscall.ENOSPC
				}
				return nil
			}))
			cfg := small(full, "store")
			if _, err := Open(cfg); plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
				t.Errorf("opened for writing: %v", err)
			}
			r := mustRead(t, cfg)
			if got := read(t, r); !reflect.DeepEqual(any(got), want) {
				t.Error("what is read is not what was stored")
			}
			epoch, err := r.Lead(t.Context(), nil)
			if err != nil || epoch != r.last.epoch+1 || r.Confirm(t.Context()) != nil {
				t.Errorf("it leads with epoch %d after %d, %v, %v", epoch, r.last.epoch, err, r.Confirm(t.Context()))
			}
			_, err = r.Commit(&wire.Batch{Epoch: epoch, Revision: 1 << 40})
			wantError(t, err, plimsoll.CodeUnavailable, "only read", "disk is full")
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			unchanged(t, mem, before)
		})
	}
}

// A read-only store is in use: nobody else can open it until it is closed. Then it can be opened
// for writing, unchanged.
func TestAReaderHoldsTheDirectory(t *testing.T) {
	fs := vfs.NewMem()
	want := fill(t, fs, 20, 3)
	r := mustRead(t, small(fs, "store"))
	_, err := Open(small(fs, "store"))
	wantError(t, err, plimsoll.CodeAlreadyRunning, "in use")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	got, err := openAndRead(small(fs, "store"))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("afterwards it is another one, %v", err)
	}
}

// A store that was never made cannot be read, and reading makes no file.
func TestAStoreThatWasNeverMadeIsNotRead(t *testing.T) {
	_, err := OpenReadOnly(Config{Dir: "store", FS: vfs.NewMem()})
	wantError(t, err, plimsoll.CodeExhausted, "no space left", "free some")
}

// A disk may become full at any write, in a commit or while the store is opened. All acknowledged
// batches can be read, and written again once there is space.
func TestADiskThatIsFullFromAnyWriteOnLosesNothing(t *testing.T) {
	for n := int64(0); n < 400; n += 7 {
		var left atomic.Int64
		left.Store(n)
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite &&
				op.Kind != errorfs.OpFileClose && op.Kind != errorfs.OpLock && left.Add(-1) < 0 {
				return syscall.ENOSPC
			}
			return nil
		}))
		acked := uint64(0)
		for range 3 {
			s, err := Open(small(fs, "store"))
			if err != nil {
				break
			}
			epoch, err := s.Lead(t.Context(), nil)
			for revision := acked + 1; err == nil && revision < acked+30; revision++ {
				if err = commitOne(s, epoch, s.mu.last.revision+1); err == nil {
					acked = s.mu.last.revision
				}
			}
			_ = s.Close() // it has failed, and Close returns that error
		}
		left.Store(0)
		if r, err := OpenReadOnly(small(fs, "store")); err == nil {
			if r.last.revision < acked {
				t.Errorf(
					"full from write %d on: revision %d was acknowledged, and %d is read", n, acked, r.last.revision,
				)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		} else if acked > 0 {
			t.Errorf("full from write %d on: %v", n, err)
		}
		left.Store(1 << 40)
		s := mustOpen(t, small(fs, "store"))
		if s.mu.last.revision < acked {
			t.Errorf(
				"full from write %d on: revision %d was acknowledged, and %d is there with space again", n, acked,
				s.mu.last.revision,
			)
		}
		mustClose(t, s)
	}
}
