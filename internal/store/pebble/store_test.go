package pebble

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/storetest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// small makes flushes and rotations of the log frequent.
func small(fs vfs.FS, dir string) Config {
	return Config{Dir: dir, FS: fs, MemTableBytes: minMemTableBytes, Limits: store.Limits{Ops: 100, Bytes: 256 << 10}}
}

func TestConformance(t *testing.T) {
	for name, config := range map[string]func(t *testing.T) Config{
		"default on disk": func(t *testing.T) Config { return Config{Dir: t.TempDir()} },
		"small in memory": func(*testing.T) Config { return small(vfs.NewMem(), "store") },
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			storetest.Run(t, func(t *testing.T) storetest.Harness {
				cfg := config(t)
				return storetest.Harness{
					Openers: storetest.OneOpener, Open: func() (store.Store, error) { return wrapNil(Open(cfg)) },
				}
			})
		})
	}
}

// wrapNil keeps a nil *Store from becoming a store.Store that is not nil.
func wrapNil(s *Store, err error) (store.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func TestPebblesOwnLogIsQuiet(t *testing.T) {
	var out bytes.Buffer
	s := mustOpen(t, Config{Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&out, nil))})
	mustCommit(t, s, lead(t, s), 1)
	mustClose(t, s)
	if out.Len() > 0 {
		t.Errorf("a healthy store logged:\n%s", &out)
	}
}

func TestConfigIsValidated(t *testing.T) {
	for field, cfg := range map[string]Config{
		"store.dir":           {},
		"store.limits":        {Dir: "d", Limits: store.Limits{Ops: -1}},
		"store.cacheBytes":    {Dir: "d", CacheBytes: -1},
		"store.memTableBytes": {Dir: "d", MemTableBytes: 1},
	} {
		_, err := Open(cfg)
		wantError(t, err, plimsoll.CodeInvalid, field)
	}
}

func TestDefaultLimitsAreGenerous(t *testing.T) {
	s := mustOpen(t, small(vfs.NewMem(), "store"))
	defer mustClose(t, s)
	if got, want := s.Limits(), (store.Limits{Ops: 100, Bytes: 256 << 10}); got != want {
		t.Errorf("limits %v, want those that were configured, %v", got, want)
	}
	d := mustOpen(t, Config{Dir: "store", FS: vfs.NewMem()})
	defer mustClose(t, d)
	if got, want := d.Limits(), (store.Limits{Ops: DefaultOps, Bytes: DefaultBytes}); got != want {
		t.Errorf("limits %v, want the default %v", got, want)
	}
}

func TestUnknownKindIsRefused(t *testing.T) {
	s := mustOpen(t, Config{Dir: "store", FS: vfs.NewMem()})
	defer mustClose(t, s)
	epoch := lead(t, s)
	for _, kind := range []wire.Kind{0, wire.NumKinds, wire.Kind(prefixChunk), 0xff} {
		_, err := s.Commit(
			&wire.Batch{
				Epoch: epoch, Revision: 1, Mutations: []wire.Mutation{{Kind: kind, Key: "k", Value: []byte("v")}},
			},
		)
		wantError(t, err, plimsoll.CodeInvalid, "kind")
	}
}

func mustOpen(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func lead(t testing.TB, s *Store) uint64 {
	t.Helper()
	epoch, err := s.Lead(context.Background(), nil)
	if err != nil {
		t.Fatalf("lead: %v", err)
	}
	return epoch
}

func mustCommit(t testing.TB, s *Store, epoch, revision uint64) {
	t.Helper()
	if err := commitOne(s, epoch, revision); err != nil {
		t.Fatalf("commit revision %d: %v", revision, err)
	}
}

func commitOne(s *Store, epoch, revision uint64) error {
	p, err := s.Commit(&wire.Batch{Epoch: epoch, Revision: revision, Time: int64(revision), Mutations: []wire.Mutation{
		{Kind: wire.KindNode, Key: "node", Value: bytes.Repeat([]byte{byte(revision)}, 300)},
	}, Events: wire.EventChunk{FirstID: revision, Count: 1, Data: []byte("event")}})
	if err != nil {
		return err
	}
	return p.Wait()
}
