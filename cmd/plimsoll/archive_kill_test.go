package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/calltest"
	"github.com/plimsoll-dev/plimsoll/internal/coordinator"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// dyingCell is a cell whose leader kills itself at steps of archiving.
//
//	writers, readers, watch ── g1 g2 ── leader ── store, archive
//	agent ─────────────────────┘  │                  │
//	                              └──────────────────┘ archive
type dyingCell struct {
	*site
	ledger  ledger
	running map[string]*daemon
	leader  *daemon
	leads   int
	servers string
	writing sync.RWMutex // held for writing while no call that changes something may be under way
	mu      struct {
		sync.Mutex
		errs  []error
		lists int
		ids   int
	}
}

func (c *dyingCell) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.errs = append(c.mu.errs, err)
}

func newDyingCell(t *testing.T) *dyingCell {
	t.Helper()
	c := &dyingCell{site: newSite(t), running: map[string]*daemon{}}
	c.ledger.jobs = map[plimsoll.UID]*entry{}
	c.servers = "unix:" + c.path("g1") + ",unix:" + c.path("g2")
	c.lead()
	for _, name := range []string{"g1", "g2"} {
		c.serve(name)
	}
	start(t, "agent", "--data", c.path("agent"), "--gateways", "unix:"+c.path("g1"), "--gateways", "unix:"+c.path("g2"),
		"--node", "n1", "--capacity", "cpu=2;memory=2Gi")
	c.address = "unix:" + c.path("g1")
	c.nodeReady("n1")
	return c
}

// lead starts the leader. Jobs leave the store once they have been archived, or soon after.
func (c *dyingCell) lead() {
	c.leads++
	keep := []string{"1ns", "20ms"}[c.leads%2]
	c.leader = startCommand(c.t, exec.Command(steppedCoordinator, "-data", c.path("store"), "-listen",
		"unix:"+c.path("leader"), "-keep-ended", keep, "-plan", c.path("plan")))
}

func (c *dyingCell) serve(name string) {
	c.running[name] = start(c.t, "gateway", "--id", name, "--data", c.path(name+".d"), "--leader",
		"unix:"+c.path("leader"), "--listen", "unix:"+c.path(name), "--archive", c.path("archive", "jobs.db"))
}

// user is a client of some gateways that waits while they are away.
func (c *dyingCell) user(servers string) *client.Client {
	c.t.Helper()
	user, err := client.New(client.Config{Server: servers, RetryBudget: patience})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(user.Close)
	return user
}

// death is the place at which a leader dies: behind a step, after some others of its kind. With a
// pause it dies between that step and the next.
type death struct {
	step  coordinator.ArchiveStep
	after int
	pause time.Duration
}

// deaths returns a function for the next death. Each step has some, at once and a little later. All
// come in a random order, again and again.
func deaths(rng *rand.Rand) func() death {
	var left []death
	return func() death {
		if len(left) == 0 {
			for _, step := range []coordinator.ArchiveStep{
				coordinator.StepOpened, coordinator.StepWritten, coordinator.StepTold, coordinator.StepDeleted,
			} {
				many := 1 + rng.IntN(4)
				if step == coordinator.StepOpened {
					many = 0
				}
				left = append(left, death{step, many, 0})
				for _, most := range []time.Duration{time.Millisecond, 4 * time.Millisecond, 40 * time.Millisecond} {
					left = append(left, death{step, rng.IntN(many + 1), 1 + time.Duration(rng.Int64N(int64(most)))})
				}
			}
			rng.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		}
		next := left[0]
		left = left[1:]
		return next
	}
}

// arm tells the leader where to die; nil: nowhere.
func (c *dyingCell) arm(d *death) {
	c.t.Helper()
	path := c.path("plan")
	if d == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			c.t.Fatal(err)
		}
		return
	}
	err := os.WriteFile(path+".new", fmt.Appendf(nil, "%s %d %d", d.step, d.after, int64(d.pause)), 0o600)
	if err = errors.Join(err, os.Rename(path+".new", path)); err != nil {
		c.t.Fatal(err)
	}
}

// write submits jobs and ends them in all ways until ctx ends.
func (c *dyingCell) write(ctx context.Context, rng *rand.Rand) {
	user := c.user(c.servers)
	var old []plimsoll.UID // of this writer, that may be deleted
	for ctx.Err() == nil {
		c.writing.RLock()
		var err error
		if len(old) > 3 && rng.IntN(4) == 0 {
			at := rng.IntN(len(old))
			err = c.remove(ctx, user, old[at])
			old = slices.Delete(old, at, at+1)
		} else {
			var uids []plimsoll.UID
			uids, err = c.live(ctx, user, rng)
			old = append(old, uids...)
		}
		c.writing.RUnlock()
		if err != nil && ctx.Err() == nil {
			c.fail(err)
		}
		pause(ctx, time.Duration(rng.IntN(int(10*time.Millisecond))))
	}
}

// live submits a job, and ends it or lets it run. Some ids are used twice. It returns the jobs that
// have ended.
func (c *dyingCell) live(ctx context.Context, user *client.Client, rng *rand.Rand) (ended []plimsoll.UID, err error) {
	c.mu.Lock()
	c.mu.ids++
	id := fmt.Sprintf("j%05d", c.mu.ids)
	c.mu.Unlock()
	count := int32(1 + rng.IntN(20))
	switch rng.IntN(30) {
	case 0:
		count = 2500 // leaves the store in several batches
	case 1, 2:
		count = 600 // has several parts in the archive
	}
	s := calltest.Spec(id, []string{"ann", "bob"}[rng.IntN(2)], count)
	s.Labels = map[string]string{"part": fmt.Sprint(rng.IntN(5))}
	runs := rng.IntN(5) == 0
	if runs {
		s.Groups[0].Count, s.Groups[0].Resources = 1, plimsoll.Resources{"cpu": 10}
	}
	lives := 1
	if !runs && rng.IntN(4) == 0 {
		lives = 2
	}
	for life := range lives {
		submit := user.SubmitJob
		if life > 0 {
			submit = user.ReplaceJob
		}
		job, err := submit(ctx, s)
		if err != nil {
			return ended, fmt.Errorf("submit %s: %w", id, err)
		}
		if job.Status.UID.IsZero() { // it has ended and left before the answer, and the archive was not read
			return ended, nil
		}
		uid := c.ledger.add(&job, runs)
		if runs {
			return nil, nil
		}
		if _, err := user.KillJob(ctx, id, "of the test"); err != nil {
			return ended, fmt.Errorf("kill %s: %w", id, err)
		}
		ended = append(ended, uid)
	}
	return ended, nil
}

// remove deletes a job. A repetition of a call to a leader that died may find that it is gone.
func (c *dyingCell) remove(ctx context.Context, user *client.Client, uid plimsoll.UID) error {
	c.ledger.note(uid, func(e *entry) { e.deleting = true })
	err := user.DeleteJob(ctx, "", uid)
	if err != nil && plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		return fmt.Errorf("delete %s: %w", uid, err)
	}
	c.ledger.note(uid, func(e *entry) { e.deleted = true })
	return nil
}

// read lists all jobs at a gateway until ctx ends.
func (c *dyingCell) read(ctx context.Context, name string, rng *rand.Rand) {
	reader := c.user("unix:" + c.path(name))
	for ctx.Err() == nil {
		err := c.ledger.checkList(ctx, reader, rng)
		switch code := plimsoll.CodeOf(err); {
		case ctx.Err() != nil:
			return
		case err == nil:
			c.mu.Lock()
			c.mu.lists++
			c.mu.Unlock()
		case errors.Is(err, errWrongList) || code != plimsoll.CodeStale && code != plimsoll.CodeUnavailable:
			c.fail(fmt.Errorf("at %s: %w", name, err))
		}
		pause(ctx, time.Duration(rng.IntN(int(20*time.Millisecond))))
	}
}

// check waits until all writers are between two calls and all jobs that have ended are in the
// archive, and checks everything.
func (c *dyingCell) check(m *mirror, rng *rand.Rand, whole bool) {
	c.t.Helper()
	c.writing.Lock()
	defer c.writing.Unlock()
	ctx, reader := c.t.Context(), c.user("unix:"+c.path([]string{"g1", "g2"}[rng.IntN(2)]))
	eventually(c.t, "all jobs go to the archive", func() error {
		active, err := listAll(ctx, reader, client.JobFilter{})
		if err != nil || len(active) > 0 {
			return fmt.Errorf("%d jobs are active, %w", len(active), err)
		}
		return nil
	})
	archived := sqlite.OpenReader(c.path("archive", "jobs.db"))
	err := c.ledger.checkPlaces(ctx, reader, archived)
	fresh := slices.Collect(maps.Keys(c.ledger.uids(isNotRead)))
	err = errors.Join(err, archived.Close(), c.ledger.checkRecords(ctx, reader, fresh))
	known := slices.Collect(maps.Keys(c.ledger.uids(hasBeenRead)))
	if !whole {
		known = known[:min(len(known), 10)]
	}
	if err = errors.Join(err, c.ledger.checkRecords(ctx, reader, known)); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, "the watch tells the state", func() error { return m.agrees(ctx, reader) })
}

// TestNoJobIsLostOrDoubledAtAnyStepOfArchiving runs a coordinator that kills itself behind a step
// of archiving, two gateways that are killed too, and an agent, each as a process. Meanwhile jobs
// are submitted, killed, run, deleted and replaced. Lists of all jobs and a watch look for each job
// that was acknowledged. Now and then everything is compared: each job is in the store or in the
// archive, in one of them, once, and as a whole.
func TestNoJobIsLostOrDoubledAtAnyStepOfArchiving(t *testing.T) {
	t.Parallel()
	const checks = 4 // kills between two
	seed, kills := testrun.Seed(t), testrun.Count(4, 8, 200)
	rng, began := rand.New(rand.NewPCG(seed, 0)), time.Now()
	c := newDyingCell(t)
	watch := &mirror{ledger: &c.ledger, reader: c.user(c.servers), fail: c.fail}
	watch.mu.jobs = map[plimsoll.UID]string{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work sync.WaitGroup
	for i := range 3 {
		work.Go(func() { c.write(ctx, rand.New(rand.NewPCG(seed, uint64(10+i)))) })
	}
	for i, name := range []string{"g1", "g2"} {
		work.Go(func() { c.read(ctx, name, rand.New(rand.NewPCG(seed, uint64(20+i)))) })
	}
	work.Go(func() { watch.run(ctx) })
	next, made, gateways, done := deaths(rng), map[string]int{}, 0, 0
	for done < kills {
		d := next()
		c.arm(&d)
		if d.step == coordinator.StepOpened || rng.IntN(2) == 0 { // it dies at its start, or soon after
			c.leader.kill()
			c.lead()
		}
		if rng.IntN(3) == 0 {
			pause(ctx, time.Duration(rng.IntN(int(100*time.Millisecond))))
			name := []string{"g1", "g2"}[rng.IntN(2)]
			c.running[name].kill()
			c.serve(name)
			gateways++
		}
		select {
		case <-c.leader.ended:
			done++
			made[string(d.step)]++
		case <-time.After(5 * time.Second): // a slow machine: the step has not come
			c.leader.kill()
		}
		if done%checks == 0 {
			c.arm(nil)
		}
		c.lead()
		if done%checks == 0 {
			c.check(watch, rng, done == kills)
		}
		if c.failed() {
			break
		}
	}
	c.arm(nil)
	c.check(watch, rng, true)
	cancel()
	work.Wait()
	c.failed()
	t.Logf("%d kills of the leader, by step: %v; %d of gateways; %s", done, made, gateways,
		time.Since(began).Round(time.Second))
	t.Logf("%d jobs, of which %d were deleted; %d lists of all; %d jobs seen to leave, in %d watches",
		len(c.ledger.jobs), len(c.ledger.uids(wasDeleted)), c.mu.lists, watch.mu.left, watch.mu.resets)
	if len(c.ledger.jobs) < 3*kills || c.mu.lists < kills || watch.mu.left == 0 {
		t.Error("the run did too little")
	}
}

// failed reports the errors of the readers and the watch to the test, and returns whether there are
// any.
func (c *dyingCell) failed() bool {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.mu.errs[:min(len(c.mu.errs), 10)] {
		c.t.Error(strings.TrimSpace(err.Error()))
	}
	found := len(c.mu.errs) > 0
	c.mu.errs = nil
	return found
}
