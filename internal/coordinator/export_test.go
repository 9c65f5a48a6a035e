package coordinator

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/backup"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// backedUp asks a coordinator, whose present term is l's, for a backup.
func (l *leader) backedUp(ctx context.Context) *http.Response {
	c, err := New(Config{Listen: "127.0.0.1:0"}, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	c.status.leading(l.term)
	answer := httptest.NewRecorder()
	c.routes().ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, BackupPath, nil))
	return answer.Result()
}

// opened saves a backup to a file and checks it.
func (l *leader) opened(r *http.Response) (*backup.File, error) {
	path := filepath.Join(l.t.TempDir(), "backup")
	f, err := os.Create(path)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := f.ReadFrom(r.Body); err != nil {
		l.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		l.t.Fatal(err)
	}
	return backup.Open(l.t.Context(), path)
}

// A backup that is taken while jobs come in has every job whole that was acknowledged before it
// was asked for. A new store that it was put into leads to the same jobs.
func TestABackupIsTakenWhileTurnsGoOn(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), tiny))
	defer l.stop()
	goOn, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-goOn:
				return
			default:
				l.must(submit(job(fmt.Sprintf("beside%d", i), 70)))
			}
		}
	}()
	for round := range 5 {
		id := fmt.Sprintf("before%d", round)
		l.must(submit(job(id, 200)))
		f, err := l.opened(l.backedUp(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(t.Context(), f.Load, state.Config{}); err != nil {
			t.Fatal(err)
		}
		target := openStore(t, vfs.NewMem(), tiny)
		if err := backup.Restore(t.Context(), f, target, backup.Options{Move: round%2 == 0}); err != nil {
			t.Fatal(err)
		}
		next := lead(t, Config{}, target)
		if err := whole(next.term, id, 200); err != nil {
			t.Error(err)
		}
		if next.Latest().Epoch() <= l.term.epoch {
			t.Errorf("the restored store leads with epoch %d, not above %d", next.Latest().Epoch(), l.term.epoch)
		}
		same := next.Latest().InstanceUUID() == l.Latest().InstanceUUID()
		if moved := round%2 == 0; same != moved {
			t.Errorf("moved: %v, and the InstanceUUID is the same: %v", moved, same)
		}
		next.stop()
	}
	close(goOn)
	<-stopped
}

// One backup is sent at a time. One that is under way when the term ends is broken off, the trailer
// says so, and the file is refused.
func TestABackupIsBrokenOffWhenTheTermEnds(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	l.must(submit(job("a", 10)))
	ctx, done, err := l.term.reads.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := l.backedUp(t.Context()); r.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a second backup: %s", r.Status)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.term.reads.end()
	}()
	<-ctx.Done()
	select {
	case <-ended:
		t.Error("the term ends while its store is read")
	default:
	}
	done()
	<-ended
	if r := l.backedUp(t.Context()); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a backup behind the term's end: %s", r.Status)
	}

	l.term.reads = storeReads{}
	given, giveUp := context.WithCancel(t.Context())
	giveUp()
	r := l.backedUp(given)
	if _, err := l.opened(r); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
		t.Errorf("a backup that was broken off is read: %v", err)
	}
	if reason := r.Trailer.Get(BackupErrorTrailer); !strings.Contains(reason, "canceled") {
		t.Errorf("the trailer of a backup that was broken off: %q", reason)
	}
}

// No coordinator leads with a store whose import did not end.
func TestNobodyLeadsWithAnUnfinishedImport(t *testing.T) {
	fs := vfs.NewMem()
	s := openStore(t, fs, store.Limits{})
	epoch, err := s.Lead(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Commit(&wire.Batch{Epoch: epoch, Revision: 1, Mutations: []wire.Mutation{
		{Kind: wire.KindImport, Value: []byte{}},
	}})
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Listen: "127.0.0.1:0", Access: transport.AnyCaller()}, only(s))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Run(t.Context())
	if plimsoll.CodeOf(err) != plimsoll.CodeCorrupt || !strings.Contains(err.Error(), "plimsoll store import") {
		t.Errorf("got %v, want an error that names plimsoll store import", err)
	}
}
