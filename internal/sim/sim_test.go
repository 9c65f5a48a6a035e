package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/calltest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

const (
	clients  = 4
	watchers = 3
	// decideWithin bounds the search of porcupine in one history, which is exponential. It takes
	// milliseconds. A history that it does not decide counts as decided by the other checks.
	decideWithin = 20 * time.Second
	// usualPause and densePause are the longest pauses of a client between two calls.
	usualPause = 200 * time.Millisecond
	densePause = 40 * time.Millisecond
)

// result is one history with the failovers, problems and other events counted in it.
type result struct {
	calltest.History
	plan

	failovers int
	deposed   int
	live      int
	resumed   int
	started   int // attempts that agents have started
	problems  []error
	compared  calltest.Compared
	decided   bool
}

// TestFailovers makes histories of a whole cluster that loses its leader in every way, one after
// the other, and checks each of them (DESIGN.md).
func TestFailovers(t *testing.T) {
	first, total := testrun.Seed(t), result{}
	histories, rounds := testrun.Count(1, 7, 170), testrun.Count(1, 2, 2)
	answers, decided, takeovers := 0, 0, 0
	for i := range uint64(histories) {
		r := simulate(t, plan{seed: first + i, kinds: slices.Repeat(failovers, rounds), pause: usualPause})
		if len(r.problems) > 0 {
			for _, problem := range r.problems {
				t.Error(problem)
			}
			t.Fatalf("replay with PLIMSOLL_SEED=%d go test ./internal/sim -run TestFailovers", r.seed)
		}
		total.failovers += r.failovers
		total.deposed, total.live, total.resumed = total.deposed+r.deposed, total.live+r.live, total.resumed+r.resumed
		total.started += r.started
		answers, total.Unknown = answers+len(r.Answers), total.Unknown+r.Unknown
		total.compared.Changes += r.compared.Changes
		total.compared.Reads += r.compared.Reads
		if r.decided {
			decided++
		}
		for _, w := range r.Watchers {
			takeovers += w.Record.Takeovers()
		}
	}
	t.Logf("%d failovers in %d histories, of which porcupine decided %d; %d terms were deposed; "+
		"%d answers, %d changes of unknown outcome; %d changes and %d reads were compared with watches; "+
		"followers became live %d times, %d of them without a snapshot; watches went on at another leader %d times; "+
		"agents started %d attempts",
		total.failovers, histories, decided, total.deposed, answers, total.Unknown,
		total.compared.Changes, total.compared.Reads, total.live, total.resumed, takeovers, total.started)
	if total.failovers < histories*rounds*len(failovers) {
		t.Errorf("%d failovers are too few", total.failovers)
	}
	if takeovers == 0 {
		t.Error("no watch went on at another leader")
	}
	if total.started == 0 {
		t.Error("no agent started an attempt")
	}
}

// plan is one history.
type plan struct {
	seed   uint64
	kinds  []failover // each once, in a random order
	pause  time.Duration
	faults storeFaults // that the history is to show
}

// simulate makes one history and checks it.
func simulate(t *testing.T, p plan) *result {
	t.Helper()
	r := &result{plan: p}
	testrun.Bubble(t, func(t *testing.T) { r.run(t) })
	r.decided = true
	switch result := r.Linearizable(decideWithin); result {
	case porcupine.Illegal:
		r.problems = append(r.problems, errors.New("the history is not linearizable"))
	case porcupine.Unknown:
		r.decided = false
	}
	if err := calltest.StrictByVersion(r.Answers); err != nil {
		r.problems = append(r.problems, err)
	}
	compared, problems := r.Watched()
	r.compared, r.problems = compared, append(r.problems, problems...)
	return r
}

func (r *result) run(t *testing.T) {
	c := newCluster(t, r.seed, r.faults)
	defer c.end()
	if !c.awaitLeader(0, time.Minute) {
		r.problems = append(r.problems, errors.New("nobody leads"))
		return
	}
	var agents *fleet
	if r.faults == (storeFaults{}) { // those that look for a fault look at the store alone
		agents = c.startAgents(r.seed)
	}
	w := &calltest.Workload{T: t, Pause: r.pause, Over: make(chan struct{})}
	watches := make([]plimsollv1connect.WatchServiceClient, len(gatewayNames))
	for i, name := range gatewayNames {
		watches[i] = c.watches(name)
	}
	var calling, watching sync.WaitGroup
	users := make([]*calltest.Client, clients)
	for i := range users {
		u := &calltest.Client{Workload: w, ID: i, Rand: rand.New(rand.NewPCG(r.seed, 100+uint64(i))), Watches: watches}
		for _, name := range gatewayNames {
			u.Gateways = append(u.Gateways, c.user(name, -1))
		}
		users[i] = u
		calling.Go(u.Run)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := make([]error, watchers)
	for i := range watchers {
		of := calltest.NewWatcher(w, rand.New(rand.NewPCG(r.seed, 200+uint64(i))), []string{"", "", "ann"}[i%3])
		of.Gateways = watches
		r.Watchers = append(r.Watchers, of)
		watching.Go(func() { errs[i] = of.Run(ctx) })
	}
	var faulting sync.WaitGroup
	faulting.Go(func() { c.plague(newDice(r.seed, 2), w.Over) })
	order := rand.New(rand.NewPCG(r.seed, 3)).Perm(len(r.kinds))
	for _, i := range order {
		sleep(t.Context(), c.dice.between(200*time.Millisecond, 1500*time.Millisecond))
		if !c.failOver(r.kinds[i]) {
			r.problems = append(r.problems, fmt.Errorf("after %q nobody leads", r.kinds[i].name))
			break
		}
		r.failovers++
		if err := c.problem(); err != nil {
			r.problems = append(r.problems, fmt.Errorf("after %q: %w", r.kinds[i].name, err))
			break
		}
	}
	close(w.Over)
	faulting.Wait()
	c.net.heal()
	calling.Wait()
	for _, u := range users {
		r.Answers, r.Unknown = append(r.Answers, u.Answers...), r.Unknown+u.Unknown
	}
	r.problems = append(r.problems, c.settle(w, r.Watchers)...)
	late := time.AfterFunc(time.Minute, cancel)
	watching.Wait()
	late.Stop()
	if err := errors.Join(errs...); err != nil {
		r.problems = append(r.problems, err)
	}
	if err := c.problem(); err != nil {
		r.problems = append(r.problems, err)
	}
	r.problems = append(r.problems, c.checkHistorian()...)
	if agents != nil {
		r.started = agents.started()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.deposed, r.live, r.resumed = c.mu.deposed, c.mu.live, c.mu.resumed
}

// settle waits until every gateway answers, and tells the watchers where to end.
func (c *cluster) settle(w *calltest.Workload, watching []*calltest.Watcher) (problems []error) {
	for _, name := range gatewayNames {
		if err := c.answers(name); err != nil {
			problems = append(problems, err)
		}
	}
	writer, last := c.user("g1", time.Minute), map[string]uint64{}
	for _, owner := range []string{"ann", "bob"} {
		job, err := writer.SubmitJob(c.t.Context(), calltest.Spec("last-"+owner, owner, 1))
		if err != nil {
			problems = append(problems, err)
		}
		last[owner], last[""] = job.Status.Revision, job.Status.Revision
		w.NoteChanged(job.Status.Revision)
	}
	for _, of := range watching {
		of.Until.Store(max(1, last[of.Owner]))
	}
	return problems
}
