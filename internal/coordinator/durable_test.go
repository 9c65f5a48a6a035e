package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/storetest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// whole reports whether a reloaded state has a job with all its tasks.
func whole(t *term, id string, tasks int) error {
	j := t.engine.State().Job(id)
	if j == nil || j.State == plimsoll.JobNew {
		return fmt.Errorf("job %s is not there", id)
	}
	if got := len(j.Groups[0].Tasks); got != tasks {
		return fmt.Errorf("job %s has %d tasks, not %d", id, got, tasks)
	}
	return nil
}

// A reply comes when its commit has ended. If the machine dies right after it, the whole job is
// there, also if its creation took many turns.
func TestSubmitIsDurableBeforeItsReply(t *testing.T) {
	fs := storetest.NewCrashableFS()
	st := &spy{Store: openStore(t, fs, tiny)}
	l := lead(t, Config{}, st)
	defer l.stop()
	for i, tasks := range []int{1, 500, 3, 0, 64, 63, 1, 200} {
		id := fmt.Sprintf("j%d", i)
		reply := l.must(submit(job(id, tasks)))
		st.mu.Lock()
		durable := st.mu.durable
		st.mu.Unlock()
		if durable < reply.GetRevision() {
			t.Errorf("the reply at revision %d came when %d was durable", reply.GetRevision(), durable)
		}
		if err := whole(reload(t, fs.CrashClone(vfs.CrashCloneCfg{}), Config{}), id, tasks); err != nil {
			t.Error(err)
		}
	}
}

// crash is a file system after a crash, with the jobs that were acknowledged before.
type crash struct {
	fs    storetest.CrashableFS
	acked map[string]int
	what  string
}

// The machine dies at random moments under load. Each acknowledged job is there, and no job is half
// there.
func TestCrashUnderLoad(t *testing.T) {
	seed := testrun.Seed(t)
	fs := storetest.NewCrashableFS()
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 1))
	acked := map[string]int{} // tasks by job
	var crashes []crash
	st := &spy{Store: openStore(t, fs, tiny), at: func(what string) {
		mu.Lock()
		defer mu.Unlock()
		if rng.IntN(12) > 0 || len(crashes) == 60 {
			return
		}
		c := crash{acked: map[string]int{}, what: fmt.Sprintf("crash %d, %s", len(crashes), what)}
		for id, tasks := range acked {
			c.acked[id] = tasks
		}
		c.fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * rng.IntN(3), RNG: rng})
		crashes = append(crashes, c)
	}}
	l := lead(t, Config{}, st)
	var workers sync.WaitGroup
	for w := range 8 {
		rng := rand.New(rand.NewPCG(seed, 2+uint64(w)))
		workers.Go(func() {
			for i := range 40 {
				id, tasks := fmt.Sprintf("j%d-%d", w, i), rng.IntN(90)
				if _, err := l.Do(context.Background(), submit(job(id, tasks))); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked[id] = tasks
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	l.stop()
	checked := 0
	for _, c := range crashes {
		term := reload(t, c.fs, Config{})
		for id, tasks := range c.acked {
			checked++
			if err := whole(term, id, tasks); err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
		}
	}
	t.Logf("%d crashes, %d acknowledged jobs checked", len(crashes), checked)
	if len(crashes) < 20 || checked < 100 {
		t.Error("that is too few to show anything")
	}
}

// The reply comes after the batch: a client that has the reply finds the effect in the gateway's
// copy.
func TestReplyComesBehindItsBatch(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), tiny))
	defer l.stop()
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for i := range 25 {
				id := fmt.Sprintf("j%d-%d", w, i)
				reply, err := l.Do(context.Background(), submit(job(id, 30)))
				now := l.Latest()
				_, ok := now.Get(wire.KindJobStatus, id)
				if err != nil || !ok || now.Revision() < reply.GetRevision() {
					t.Errorf(
						"submit %s: %v; its status is there: %v, at revision %d of %d", id, err, ok, now.Revision(),
						reply.GetRevision(),
					)
					return
				}
				if _, ok := now.Get(wire.KindTask, wire.TaskKey(id, "work", 29)); !ok {
					t.Errorf("the last task of %s is not there", id)
				}
				_, err = l.Do(context.Background(), kill(id))
				data, _ := l.Latest().Get(wire.KindJobStatus, id)
				if status, decodeErr := wire.DecodeJobStatus(data); err != nil || decodeErr != nil || !status.Killed {
					t.Errorf("kill %s: %v; its status says %+v, %v", id, err, status, decodeErr)
				}
			}
		})
	}
	workers.Wait()
}

// A commit fails, at its beginning or at the disk. The term ends with the error, even if no further
// command comes. Nothing of that batch or of a later one was published or answered.
func TestFailedCommitEndsTheTerm(t *testing.T) {
	for _, workers := range []int{1, 8} {
		for _, fail := range []struct{ commit, wait int }{{2, 0}, {0, 2}, {9, 0}, {0, 9}} {
			t.Run(fmt.Sprintf("commit %d or wait %d, %d workers", fail.commit, fail.wait, workers), func(t *testing.T) {
				fs := vfs.NewMem()
				st := &spy{Store: openStore(t, fs, store.Limits{}), failCommit: fail.commit, failWait: fail.wait}
				l := lead(t, Config{}, st)
				var acked sync.Map
				var replies atomic.Uint64
				var group sync.WaitGroup
				for w := range workers {
					group.Go(func() {
						for i := 0; ; i++ {
							id := fmt.Sprintf("j%d-%d", w, i)
							reply, err := l.Do(context.Background(), submit(job(id, 1)))
							if err != nil {
								return // the stream is gone
							}
							acked.Store(id, 1)
							for {
								old := replies.Load()
								if old >= reply.GetRevision() || replies.CompareAndSwap(old, reply.GetRevision()) {
									break
								}
							}
						}
					})
				}
				if err := <-l.led; !errors.Is(err, errInjected) {
					t.Errorf("the leader ended with %v", err)
				}
				group.Wait()
				l.cancel()
				l.follows.Wait()
				checkEvents(t, l.term.metrics.events, fail.commit > 0)
				failed := st.mu.failed
				if seen := max(
					l.Latest().Revision(), l.term.source.Snapshot().Revision(), replies.Load(),
				); failed == 0 || seen >= failed {
					t.Errorf("revision %d failed, but %d was seen", failed, seen)
				}
				term := reload(t, fs, Config{})
				acked.Range(func(id, _ any) bool {
					if err := whole(term, id.(string), 1); err != nil {
						t.Error(err)
					}
					return true
				})
			})
		}
	}
}
