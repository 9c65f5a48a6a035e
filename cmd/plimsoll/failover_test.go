package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/calltest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// failoverRun is a cluster under load with the history of its clients.
type failoverRun struct {
	*failoverCluster
	linearRun
	test    *testing.T
	work    *calltest.Workload
	users   []*calltest.Client
	runner  *runner
	calling sync.WaitGroup     // clients, and faults of links
	over    func()             // ends those
	watch   sync.WaitGroup     // watches
	stop    context.CancelFunc // ends the watches
	errs    []error            // of the watches
}

// startFailoverRun starts four clients, three watches, and a user whose jobs run.
func startFailoverRun(t *testing.T, seed uint64) *failoverRun {
	t.Helper()
	r := &failoverRun{
		failoverCluster: newFailoverCluster(t, 3*time.Second), linearRun: linearRun{seed: seed}, test: t,
		work: &calltest.Workload{T: t, Pause: 60 * time.Millisecond, Archive: true, Over: make(chan struct{})},
	}
	watches := make([]plimsollv1connect.WatchServiceClient, len(r.gateways))
	for i, name := range r.gateways {
		watches[i] = r.watchClient(name)
	}
	for i := range 4 {
		u := &calltest.Client{
			Workload: r.work, ID: i, Rand: rand.New(rand.NewPCG(seed, uint64(i))), Watches: watches,
		}
		for _, name := range r.gateways {
			u.Gateways = append(u.Gateways, r.user(name, []time.Duration{-1, time.Second}[i%2]))
		}
		r.users = append(r.users, u)
		r.calling.Go(u.Run)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.stop, r.errs = cancel, make([]error, 3)
	for i, owner := range []string{"", "ann", "bob"} {
		of := calltest.NewWatcher(r.work, rand.New(rand.NewPCG(seed, uint64(100+i))), owner)
		of.Gateways = watches
		r.Watchers = append(r.Watchers, of)
		r.watch.Go(func() { r.errs[i] = of.Run(ctx) })
	}
	r.runner = newRunner(r.failoverCluster)
	r.calling.Go(func() { r.runner.run(r.work.Over) })
	r.over = sync.OnceFunc(func() {
		close(r.work.Over)
		r.calling.Wait()
	})
	t.Cleanup(func() {
		r.over()
		r.stop()
		r.watch.Wait()
	})
	return r
}

// busy waits until the clients have made n calls more, and two more jobs were taken in.
func (r *failoverRun) busy(n int64) {
	r.t.Helper()
	calls, jobs := r.work.Calls()+n, r.runner.taken.Load()+2
	r.await("the clients go on", func(context.Context) error {
		if c, j := r.work.Calls(), r.runner.taken.Load(); c < calls || j < jobs {
			return fmt.Errorf("%d calls of %d, %d jobs of %d", c, calls, j, jobs)
		}
		return nil
	})
}

// end ends the load and waits for the watches.
func (r *failoverRun) end() {
	r.t.Helper()
	r.over()
	last := r.lastChanges(r.work)
	for _, of := range r.Watchers {
		of.Until.Store(last[of.Owner])
	}
	watched := make(chan struct{})
	go func() {
		r.watch.Wait()
		close(watched)
	}()
	r.await("the watches are sent everything", func(ctx context.Context) error {
		select {
		case <-watched:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	r.stop()
	if err := errors.Join(r.errs...); err != nil {
		r.t.Error(err)
	}
	for _, u := range r.users {
		r.Answers, r.Unknown = append(r.Answers, u.Answers...), r.Unknown+u.Unknown
	}
}

// checkAll checks the history of the clients, the attempts of tasks, the epochs of leaders, the
// gateways' own counters and the history of events.
func (r *failoverRun) checkAll() {
	t := r.test
	t.Helper()
	r.runner.check()
	r.recorded(r.runner.acked)
	r.epochsRise()
	for _, name := range r.gateways {
		if n := r.metricOf("unix:"+r.path(name+".users"), "plimsoll_gateway_reads_went_back_total"); n != "0" {
			t.Errorf("%s refused %s reads that would have gone back", name, n)
		}
	}
	done, problems := r.Problems(time.Minute, false)
	r.Log(t, &done)
	if len(r.Answers) < 50 {
		t.Errorf("the history has %d answers only", len(r.Answers))
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	if len(problems) > 0 {
		t.Errorf("the history is in %s", r.save(t))
	}
}

// runner submits jobs whose tasks write a line for each attempt.
type runner struct {
	c     *failoverCluster
	log   string
	taken atomic.Int64
	acked map[string]bool // jobs whose submission was acknowledged
}

func newRunner(c *failoverCluster) *runner {
	r := &runner{c: c, log: c.path("attempts"), acked: map[string]bool{}}
	err := os.WriteFile(r.log, nil, 0o600)
	if err = errors.Join(err, os.Chmod(r.log, 0o666)); err != nil { // tasks of any user write to it
		c.t.Fatal(err)
	}
	return r
}

func (r *runner) run(over <-chan struct{}) {
	user, script := r.c.clientOf(r.c.address), "echo $PLIMSOLL_TASK_ID $PLIMSOLL_ATTEMPT >> "+r.log
	for i := 0; ; i++ {
		select {
		case <-over:
			return
		case <-time.After(300 * time.Millisecond):
		}
		ctx, cancel := context.WithTimeout(r.c.t.Context(), askTimeout)
		s := calltest.Spec(fmt.Sprintf("r%05d", i), "runner", 2)
		s.Groups[0].Resources, s.Groups[0].Command = plimsoll.Resources{"cpu": 100}, []string{"sh", "-c", script}
		_, err := user.SubmitJob(ctx, s)
		cancel()
		switch plimsoll.CodeOf(err) {
		case plimsoll.CodeUnavailable, plimsoll.CodeExhausted, plimsoll.CodeDeadline, plimsoll.CodeCanceled,
			plimsoll.CodeStale, plimsoll.CodeOutcomeUnknown:
			continue
		case plimsoll.CodeConflict, plimsoll.CodeAlreadyExists: // an attempt before had its effect
		default:
			if err != nil {
				r.c.t.Errorf("submit %s: %v", s.ID, err)
			}
		}
		r.acked[s.ID] = true
		r.taken.Add(1)
	}
}

// check waits until all tasks have ended. No acknowledged job is lost, and no attempt ran twice.
func (r *runner) check() {
	t := r.c.t
	t.Helper()
	r.c.await("all jobs that run have ended", func(ctx context.Context) error {
		found := 0
		for j, err := range r.c.asked.Jobs(ctx, client.JobFilter{Owner: "runner", Scope: client.ScopeAll}) {
			if err != nil || !j.State.Ended() {
				return errors.Join(err, fmt.Errorf("job %s is %v", j.ID, j.State))
			}
			if r.acked[j.ID] {
				found++
			}
		}
		if found != len(r.acked) {
			return fmt.Errorf("%d jobs of %d that were acknowledged are there", found, len(r.acked))
		}
		return nil
	})
	data, err := os.ReadFile(r.log)
	if err != nil {
		t.Fatal(err)
	}
	begun := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if begun[line] {
			t.Errorf("the attempt %q was started twice", line)
		}
		begun[line] = true
	}
	t.Logf("%d jobs were acknowledged, and %d attempts ran", len(r.acked), len(begun))
	if len(begun) < 2*len(r.acked) {
		t.Errorf("%d attempts ran of %d jobs with two tasks each", len(begun), len(r.acked))
	}
}

// TestFailoversOfRealProcesses runs three coordinators on a real cluster of etcd under load, and
// takes leadership from one after the other: it is killed, stopped beyond its lease, cut from etcd
// in several ways, or asked to step down, and etcd loses its majority. Members of etcd are killed,
// and their disks stall. Meanwhile links between gateways and coordinators are cut, slow, or half
// open. The history is linearizable, no acknowledged job is lost, and no attempt is started
// twice. Epochs and revisions never go back, and the historian has each event once.
func TestFailoversOfRealProcesses(t *testing.T) {
	seed := testrun.Seed(t)
	r := startFailoverRun(t, seed)
	r.calling.Go(func() {
		made := plague(rand.New(rand.NewPCG(seed, 301)), r.linkFaults(), math.MaxInt, 2*time.Second, r.work.Over)
		t.Logf("%d faults of links: %q", len(made), made)
	})
	rng := rand.New(rand.NewPCG(seed, 300))
	failovers, members := r.failovers(), r.memberFaults()
	rng.Shuffle(len(failovers), func(i, j int) { failovers[i], failovers[j] = failovers[j], failovers[i] })
	count := testrun.Count(1, 3, 32)
	for i := range count {
		faults := []fault{failovers[i%len(failovers)]}
		if i%3 == 2 {
			faults = append(faults, members[rng.IntN(len(members))])
		}
		for _, f := range faults {
			began := time.Now()
			repair := f.strike()
			r.serves()
			repair()
			t.Logf("%s: epoch %d, read again %v later", f.name, r.last.Epoch, time.Since(began).Round(time.Millisecond))
			r.busy(20)
		}
	}
	r.writes()
	r.end()
	r.checkAll()
}
