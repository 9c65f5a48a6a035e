package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// process is a coordinator that runs until it is stopped, with channels of its events.
type process struct {
	*Coordinator
	t       *testing.T
	cancel  context.CancelFunc
	ended   chan error
	standby chan error
	led     chan uint64 // epochs
	failed  chan error
	deposed chan error
	// following gets a value when the copy of a standby begins to follow.
	following chan struct{}
}

// run runs a coordinator whose pauses after failures are short.
func run(t *testing.T, cfg Config, open Open) *process {
	t.Helper()
	p := &process{
		t: t, ended: make(chan error, 1), standby: make(chan error, 100), led: make(chan uint64, 100),
		failed: make(chan error, 100), deposed: make(chan error, 100), following: make(chan struct{}, 100),
	}
	cfg.Events.Following = func(uint64, uint64) { p.following <- struct{}{} }
	cfg.Events.Deposed = func(_ uint64, err error) { p.deposed <- err }
	cfg.Events.Standby = func(err error) { p.standby <- err }
	cfg.Events.Leading = func(epoch, _ uint64, _ string) { p.led <- epoch }
	cfg.Events.Failed = func(err error, _ time.Duration) { p.failed <- err }
	if cfg.Listen == "" {
		cfg.Listen = "unix:" + filepath.Join(t.TempDir(), "s")
	}
	var err error
	if p.Coordinator, err = New(cfg, open); err != nil {
		t.Fatal(err)
	}
	p.pauses.handover = 50 * time.Millisecond
	p.pauses.failure, p.pauses.standby = plimsoll.Backoff{
		First: time.Millisecond, Longest: time.Millisecond,
	}, time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() { p.ended <- p.Run(ctx) }()
	return p
}

// stop ends the process and waits for it.
func (p *process) stop() {
	p.t.Helper()
	p.cancel()
	if err := <-p.ended; err != nil {
		p.t.Errorf("Run ended with %v", err)
	}
}

// health returns the report of /healthz and its status code.
func (p *process) health() (report healthReport, code int) {
	p.t.Helper()
	client, url, err := transport.CallClient(p.cfg.Listen)
	if err != nil {
		p.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(url + "/healthz")
	if err != nil {
		p.t.Fatal(err)
	}
	data, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close(), json.Unmarshal(data, &report)); err != nil {
		p.t.Fatalf("%s: %v", data, err)
	}
	return report, response.StatusCode
}

// follow follows the process until the returned function is called. The error of each stream's end
// goes to lost, as far as it has room.
func (p *process) follow(lost chan error) (f *replica.Follower, stop func()) {
	p.t.Helper()
	return followAt(p.t, p.cfg.Listen, lost)
}

// followAt follows whichever of some addresses leads.
func followAt(t *testing.T, leader string, lost chan error) (f *replica.Follower, stop func()) {
	t.Helper()
	f, err := replica.NewFollower(replica.FollowerConfig{
		Gateway: "gw", Leader: leader, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond,
		Events: replica.FollowerEvents{Disconnected: func(err error, _ time.Duration) {
			select {
			case lost <- err:
			default: // it has seen enough
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return f, func() {
		cancel()
		group.Wait()
	}
}

// faults holds the failures of the first term's store: at the beginning of a commit, at its end,
// and at the disk, where one sync fails when the test wants it.
var faults = map[string]func(fs vfs.FS, now *atomic.Bool) (store.Store, error){
	"commit": func(fs vfs.FS, _ *atomic.Bool) (store.Store, error) {
		st, err := pebble.Open(pebble.Config{Dir: "store", FS: fs})
		return &spy{Store: st, failCommit: 20}, err
	},
	"wait": func(fs vfs.FS, _ *atomic.Bool) (store.Store, error) {
		st, err := pebble.Open(pebble.Config{Dir: "store", FS: fs})
		return &spy{Store: st, failWait: 20}, err
	},
	"disk": func(fs vfs.FS, now *atomic.Bool) (store.Store, error) {
		return pebble.Open(pebble.Config{Dir: "store", FS: errorfs.Wrap(fs, errorfs.InjectorFunc(func(
			op errorfs.Op,
		) error {
			if strings.HasSuffix(
				op.Path, ".log",
			) && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && now.CompareAndSwap(true, false) {
				return errInjected
			}
			return nil
		}))})
	},
}

// A commit fails under load. The same process leads again with a higher epoch, and the gateway's
// stream comes back by itself. Callers that waited for a reply get CodeOutcomeUnknown. No
// acknowledged command is lost.
func TestFailedCommitLeadsAgain(t *testing.T) {
	for name, open := range faults {
		t.Run(name, func(t *testing.T) {
			fs, opened, now := vfs.NewMem(), 0, new(atomic.Bool)
			p := run(t, Config{}, func(context.Context) (store.Store, error) {
				if opened++; opened == 1 {
					return open(fs, now)
				}
				return pebble.Open(pebble.Config{Dir: "store", FS: fs})
			})
			f, unfollow := p.follow(nil)
			if err := f.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			first := <-p.led
			acked, mu := map[string]bool{}, sync.Mutex{}
			var workers sync.WaitGroup
			for w := range 4 {
				workers.Go(func() {
					for i := 0; f.Latest().Epoch() == first; i++ {
						id := fmt.Sprintf("j%d-%d", w, i)
						switch _, err := f.Do(t.Context(), submit(job(id, 1))); {
						case err == nil:
							mu.Lock()
							acked[id] = true
							if len(acked) == 10 {
								now.Store(true)
							}
							mu.Unlock()
						case !lost(err):
							t.Errorf("%s: %v", id, err)
						}
					}
				})
			}
			if err := <-p.failed; !strings.Contains(err.Error(), "injected") {
				t.Errorf("the term failed with %v", err)
			}
			second := <-p.led
			workers.Wait()
			latest, err := f.Barrier(t.Context())
			if err != nil || second <= first || latest.Epoch() != second || len(acked) < 10 {
				t.Fatalf("epoch %d follows %d: %v; %d jobs were acknowledged", second, first, err, len(acked))
			}
			for id := range acked {
				if _, ok := latest.Get(wire.KindTask, wire.TaskKey(id, "work", 0)); !ok {
					t.Errorf("%s was acknowledged and is gone", id)
				}
			}
			if _, err := f.Do(t.Context(), submit(job("after", 1))); err != nil {
				t.Error(err)
			}
			if h, code := p.health(); code != http.StatusOK || h.Status != "ok" || h.Role != roleLeader ||
				h.Epoch != second || h.Terms != 2 || h.Failures != 1 ||
				!strings.Contains(h.LastFailure, "injected") || h.LastFailed == nil {
				t.Errorf("/healthz: %d %+v", code, h)
			}
			unfollow()
			p.stop()
		})
	}
}

// Of two coordinators on one directory the second is a standby. Its health report says so, its
// refusals of gateways say how to go on, and it leads when the first one has gone.
func TestStandbyTakesOver(t *testing.T) {
	dir := t.TempDir()
	open := func(context.Context) (store.Store, error) { return pebble.Open(pebble.Config{Dir: dir}) }
	first := run(t, Config{}, open)
	epoch := <-first.led
	f, unfollow := first.follow(nil)
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Do(t.Context(), submit(job("kept", 1))); err != nil {
		t.Fatal(err)
	}
	second := run(t, Config{}, open)
	if err := <-second.standby; !strings.Contains(err.Error(), dir) {
		t.Errorf("the standby waits because of %v", err)
	}
	for p, want := range map[*process]int{first: http.StatusOK, second: http.StatusServiceUnavailable} {
		w := httptest.NewRecorder()
		p.routes().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if w.Code != want {
			t.Errorf("/readyz: %d %s, want %d", w.Code, w.Body, want)
		}
	}
	if h, code := second.health(); code != http.StatusOK || h.Status != "standby" || h.Role != roleStandby ||
		!strings.Contains(h.Reason, dir) || h.Terms != 0 {
		t.Errorf("/healthz of the standby: %d %+v", code, h)
	}
	lost := make(chan error, 20)
	other, unfollowOther := second.follow(lost)
	for range cap(lost) {
		if err := <-lost; plimsoll.CodeOf(err) != plimsoll.CodeUnavailable ||
			!strings.Contains(err.Error(), "does not lead") || !strings.Contains(err.Error(), "try again") {
			t.Errorf("a gateway is told %v", err)
		}
	}
	if len(second.standby) > 0 || len(second.failed) > 0 {
		t.Errorf("being a standby was told %d times more, and %d failures", len(second.standby), len(second.failed))
	}
	unfollow()
	first.stop()
	if got := <-second.led; got <= epoch {
		t.Errorf("epoch %d follows %d", got, epoch)
	}
	if err := other.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := other.Latest().Get(wire.KindJobSpec, "kept"); !ok {
		t.Error("the job is gone")
	}
	unfollowOther()
	second.stop()
}

// The configured tree of queues replaces the stored one once. A later term keeps a tree that a user
// has set since.
func TestQueueFileReplacesOnce(t *testing.T) {
	mine, theirs := tree("a"), tree("b")
	fs, opened, first := vfs.NewMem(), 0, &spy{}
	p := run(t, Config{Queues: mine, ReplaceQueues: true}, func(context.Context) (store.Store, error) {
		st, err := pebble.Open(pebble.Config{Dir: "store", FS: fs})
		if opened++; opened == 1 {
			first.Store = st
			return first, err
		}
		return st, err
	})
	f, unfollow := p.follow(nil)
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-p.led
	if _, err := f.Do(t.Context(), setQueues(&theirs)); err != nil {
		t.Fatal(err)
	}
	first.mu.Lock()
	first.failCommit = first.mu.commits + 1
	first.mu.Unlock()
	spec := job("lost", 1)
	spec.Queue = "root.b"
	if _, err := f.Do(t.Context(), submit(spec)); !lost(err) {
		t.Errorf("the commit was to fail: %v", err)
	}
	<-p.led
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	now, err := f.Barrier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := now.Get(wire.KindQueueStatus, "root.b"); !ok {
		t.Error("the tree that was set is gone")
	}
	unfollow()
	p.stop()
}

// A permanent error ends Run. After any other error Run goes on with the next term.
func TestErrorsThatLastEndRun(t *testing.T) {
	for code := plimsoll.CodeInternal; code <= plimsoll.CodeOutcomeUnknown; code++ {
		opened := 0
		p := run(t, Config{}, func(context.Context) (store.Store, error) {
			if opened++; opened > 2 {
				return &memory{}, nil
			}
			return nil, plimsoll.Errorf(code, "injected")
		})
		switch code {
		case plimsoll.CodeCorrupt, plimsoll.CodeConflict, plimsoll.CodeDenied, plimsoll.CodeInvalid:
			if err := <-p.ended; plimsoll.CodeOf(err) != code || opened != 1 {
				t.Errorf("%s: Run ended with %v after %d times", code, err, opened)
			}
			p.cancel()
			continue
		}
		<-p.led
		if want := map[bool]int{false: 2, true: 0}[code == plimsoll.CodeAlreadyRunning]; len(p.failed) != want {
			t.Errorf("%s: %d failures were told, want %d", code, len(p.failed), want)
		}
		p.stop()
	}
}

// The pause after a failure doubles, from 1 to 2 s up to 15 to 30 s. After a term that led for a
// minute it is short again. Requests in the pause are refused with the reason.
func TestPausesBetweenTerms(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		const failures = 8
		ctx, cancel := context.WithCancel(t.Context())
		var c *Coordinator
		var opened int
		var pauses []time.Duration
		open := func(context.Context) (store.Store, error) {
			if opened++; opened != failures {
				return nil, errInjected
			}
			st := &spy{Store: &memory{}, failCommit: 2} // the first is of the tree of queues
			time.AfterFunc(2*time.Minute, func() { c.status.get().term.exec(ctx, "gw", submit(job("a", 1)), nil) })
			return st, nil
		}
		var ended time.Time
		cfg := Config{Listen: "127.0.0.1:0", Access: transport.AnyCaller(), Events: Events{Failed: func(
			_ error, pause time.Duration,
		) {
			if len(pauses) > 0 && opened != failures {
				if waited := time.Since(ended); waited != pauses[len(pauses)-1] {
					t.Errorf("the pause took %s, not %s", waited, pauses[len(pauses)-1])
				}
			}
			if now := c.status.get(); now.role != roleFailed || !strings.Contains(now.reason, "injected") {
				t.Errorf("meanwhile it is %+v", now)
			}
			ended, pauses = time.Now(), append(pauses, pause)
			if len(pauses) == failures+2 {
				cancel()
			}
		}}}
		var err error
		if c, err = New(cfg, open); err != nil {
			t.Fatal(err)
		}
		if err := c.leadLoop(ctx); err != nil {
			t.Errorf("it ended with %v", err)
		}
		for i, longest := range []time.Duration{2, 4, 8, 16, 30, 30, 30, 2, 4, 8} {
			if longest *= time.Second; pauses[i] < longest/2 || pauses[i] > longest {
				t.Errorf("pause %d is %s, want between %s and %s", i, pauses[i], longest/2, longest)
			}
		}
	})
}
