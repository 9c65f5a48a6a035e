package coordinator

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/backup"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// BackupPath is the path at which the coordinator's listener sends a backup of its store, while
// turns go on. The callers are those of the other paths.
const BackupPath = "/store/backup"

// BackupErrorTrailer is the trailer of a backup that broke off, with the reason.
const BackupErrorTrailer = "Plimsoll-Backup-Error"

// storeReads lets one caller at a time read the store of a term beside its turns. The term closes
// the store once that has ended.
type storeReads struct {
	mu struct {
		sync.Mutex
		ended  bool
		cancel context.CancelFunc // of the reading under way; nil: there is none
	}
	under sync.WaitGroup
}

// begin admits a reading. The caller calls done at its end.
func (r *storeReads) begin(ctx context.Context) (reading context.Context, done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mu.ended:
		return nil, nil, plimsoll.Errorf(plimsoll.CodeUnavailable, "this coordinator does not lead any more; try again")
	case r.mu.cancel != nil:
		return nil, nil, plimsoll.Errorf(
			plimsoll.CodeExhausted, "another backup is under way; try again when it has ended",
		)
	}
	reading, cancel := context.WithCancel(ctx)
	r.mu.cancel = cancel
	r.under.Add(1)
	return reading, func() {
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mu.cancel = nil
		r.under.Done()
	}, nil
}

// end breaks a reading off, waits for it, and admits no more.
func (r *storeReads) end() {
	r.mu.Lock()
	r.mu.ended = true
	if r.mu.cancel != nil {
		r.mu.cancel()
	}
	r.mu.Unlock()
	r.under.Wait()
}

// export sends a backup of the store.
func (c *Coordinator) export(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "a backup is read with GET", http.StatusMethodNotAllowed)
		return
	}
	t := c.status.get().term
	if t == nil {
		http.Error(w, c.status.refusal().Error(), http.StatusServiceUnavailable)
		return
	}
	ctx, done, err := t.reads.begin(r.Context())
	if err != nil {
		status := http.StatusServiceUnavailable
		if plimsoll.CodeOf(err) == plimsoll.CodeExhausted {
			status = http.StatusTooManyRequests
		}
		http.Error(w, err.Error(), status)
		return
	}
	defer done()
	if answer, ok := w.(*transport.Answer); ok { // a caller that does not read must not hold up the term's end
		defer context.AfterFunc(ctx, answer.Cut)()
	}
	w.Header().Set("Content-Type", "application/zstd")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Trailer", BackupErrorTrailer)
	_, err = backup.Write(ctx, w, backup.Header{Version: c.cfg.Version, Epoch: t.epoch}, t.store.Load)
	if err == nil {
		err = t.store.Confirm(ctx)
	}
	if err != nil {
		w.Header().Set(BackupErrorTrailer, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// Check loads a content, such as a backup, as a leader with the given settings would. It returns
// the error that would keep it from leading. It takes the memory of a coordinator with that
// content.
func Check(ctx context.Context, load backup.LoadFunc, cfg state.Config) error {
	c, err := New(Config{Listen: "127.0.0.1:0", State: cfg}, nil)
	if err != nil {
		return err
	}
	_, err = c.load(ctx, store.Limits{}, stored{read: reader(load)}, 1)
	return err
}
