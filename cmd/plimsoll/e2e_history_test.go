package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// recordedCell is a cell with a historian, whose processes are killed again and again. A reader
// follows the events all the time.
//
//	submits ── g1 ── leader
//	reader ─── g2 ───┘
//	historian ─┴─ g1
type recordedCell struct {
	*site
	user    *client.Client
	roles   map[string][]string // command lines of the processes
	history string              // address of the historian
	running map[string]*daemon
	mu      struct {
		sync.Mutex
		events []client.HistoryEvent // of the reader, in its order
	}
	moments []momentSeen
}

// momentSeen is the cluster as the lists showed it at an instant, at which nothing happened.
type momentSeen struct {
	at     int64  // Unix nanoseconds
	next   uint64 // id of the first event behind it
	jobs   map[string]plimsoll.JobState
	nodes  map[string]string
	queues map[string]string
}

// rolesApart returns the command lines of roles in processes of their own.
func (c *recordedCell) rolesApart() map[string][]string {
	gateway := func(name string) []string {
		return []string{
			"gateway", "--id", name, "--data", c.path(name + ".d"), "--leader", "unix:" + c.path("leader"),
			"--listen", "unix:" + c.path(name), "--archive", c.path("archive", "jobs.db"),
		}
	}
	return map[string][]string{
		"leader": {"coordinator", "--data", c.path("store"), "--listen", "unix:" + c.path("leader")},
		"g1":     gateway("g1"),
		"g2":     gateway("g2"),
		"historian": {
			"historian", "--server", "unix:" + c.path("g1") + ",unix:" + c.path("g2"), "--data", c.path("historian.d"),
			"--listen", "unix:" + c.path("historian"), "--history-bytes", "1Gi",
		},
	}
}

func (c *recordedCell) startRole(name string) {
	c.running[name] = start(c.t, c.roles[name]...)
}

// newDev returns a cell of one process.
func newDev(t *testing.T) *recordedCell {
	t.Helper()
	c := &recordedCell{site: newSite(t), running: map[string]*daemon{}}
	c.roles, c.history = map[string][]string{"dev": c.devArgs()}, c.address
	c.startRole("dev")
	c.nodeReady("n1")
	c.user = c.client()
	return c
}

func newRecordedCell(t *testing.T) *recordedCell {
	t.Helper()
	c := &recordedCell{site: newSite(t), running: map[string]*daemon{}}
	c.beginApart()
	return c
}

// beginApart starts roles in processes of their own, and an agent.
func (c *recordedCell) beginApart() {
	t := c.t
	t.Helper()
	c.roles, c.history = c.rolesApart(), "unix:"+c.path("historian")
	for _, name := range []string{"leader", "g1", "g2", "historian"} {
		c.startRole(name)
	}
	c.address = "unix:" + c.path("g1")
	start(t, "agent", "--data", c.path("agent"), "--gateways", "unix:"+c.path("g2"), "--gateways", "unix:"+c.path("g1"),
		"--node", "n1", "--capacity", "cpu=64;memory=8Gi")
	c.nodeReady("n1")
	c.address = "unix:" + c.path("g1") + ",unix:" + c.path("g2")
	c.user = c.client()
}

// follow keeps all events until ctx ends.
func (c *recordedCell) follow(ctx context.Context) error {
	instance, next := "", uint64(0)
	for ctx.Err() == nil {
		for page, err := range c.user.FollowEventPages(ctx, instance, next) {
			if err != nil {
				break // the cell is away for longer than the budget of the client
			}
			c.mu.Lock()
			for _, r := range page.Records {
				c.mu.events = append(c.mu.events, client.HistoryEvent{InstanceUUID: page.InstanceUUID, EventRecord: r})
			}
			c.mu.Unlock()
			instance, next = page.InstanceUUID, page.Next
		}
	}
	return nil
}

// submitSome submits jobs that end soon, and some that last.
func (c *recordedCell) submitSome(ctx context.Context, round int, rng *rand.Rand) error {
	for i := range 1 + rng.IntN(3) {
		owner := []string{"ann", "bob"}[rng.IntN(2)]
		script := []string{"exit 0", "sleep 0.2", "exit 1", "sleep 1"}[rng.IntN(4)]
		s := plimsoll.JobSpec{
			ID: fmt.Sprintf("j%d-%d", round, i), Owner: owner, Labels: map[string]string{"team": owner + "s"},
			Groups: []plimsoll.GroupSpec{{
				Name: "main", Count: int32(1 + rng.IntN(5)), Command: []string{"sh", "-c", script},
				Resources: plimsoll.Resources{plimsoll.CPU: int64(100 * (1 + rng.IntN(3))), plimsoll.Memory: 1 << 20},
			}},
		}
		if _, err := c.user.SubmitJob(ctx, s); err != nil {
			return fmt.Errorf("submit %s: %w", s.ID, err)
		}
	}
	return nil
}

func nodeSeen(ready bool, tasks int64, allocated, capacity plimsoll.Resources) string {
	return fmt.Sprintf("ready %v, %d tasks, %v of %v", ready, tasks, allocated, capacity)
}

// look records the cluster if nothing happens while the lists are read.
func (c *recordedCell) look(ctx context.Context) error {
	before, err := c.user.Events(ctx, client.EventFilter{Count: 1})
	if err != nil {
		return err
	}
	m := momentSeen{
		next: before.Highest + 1, jobs: map[string]plimsoll.JobState{}, nodes: map[string]string{},
		queues: map[string]string{},
	}
	for j, err := range c.user.Jobs(ctx, client.JobFilter{}) {
		if err != nil {
			return err
		}
		m.jobs[j.ID] = j.State
	}
	nodes, err := c.user.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		m.nodes[n.Node.ID] = nodeSeen(n.Node.Ready, int64(n.Status.Tasks), n.Status.Allocated, n.Node.Capacity)
	}
	queues, err := c.user.Queues(ctx)
	if err != nil {
		return err
	}
	for _, q := range queues {
		m.queues[q.Path] = fmt.Sprintf("%d jobs, %v", q.Jobs, q.Allocated)
	}
	m.at = time.Now().UnixNano()
	after, err := c.user.Events(ctx, client.EventFilter{Count: 1})
	if err == nil && after.Highest == before.Highest {
		c.moments = append(c.moments, m)
	}
	return err
}

// TestTheHistoryHasEachEventOnce kills the historian, gateways and the leader in a loop while jobs
// run. The history then has every event that the reader saw, once and in order; its usage is that
// which the events tell; and the cluster at an instant is that of the lists at that time.
func TestTheHistoryHasEachEventOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		begin   func(*testing.T) *recordedCell
		victims []string
	}{
		"roles apart": {newRecordedCell, []string{"historian", "historian", "historian", "g1", "g2", "leader"}},
		"dev":         {newDev, []string{"dev"}},
	} {
		t.Run(name, func(t *testing.T) { test.begin(t).suffer(test.victims) })
	}
}

// suffer kills processes while jobs run, and compares the history with the reader in the end.
func (c *recordedCell) suffer(victims []string) {
	t := c.t
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 13))
	ctx, stop := context.WithCancel(t.Context())
	var reader sync.WaitGroup
	reader.Go(func() { _ = c.follow(ctx) })
	defer reader.Wait()
	defer stop()
	for round := range testrun.Count(5, 10, 300) {
		if err := c.submitSome(ctx, round, rng); err != nil {
			t.Fatal(err)
		}
		pause(ctx, time.Duration(rng.Int64N(int64(400*time.Millisecond))))
		if err := c.look(ctx); err != nil {
			t.Fatal(err)
		}
		victim := victims[rng.IntN(len(victims))]
		c.running[victim].kill()
		pause(ctx, time.Duration(rng.Int64N(int64(200*time.Millisecond))))
		c.startRole(victim)
	}
	c.settle(ctx)
	stop()
	reader.Wait()
	events := c.mu.events
	t.Logf("%d events, %d moments", len(events), len(c.moments))
	asked := c.clientOf(c.history)
	for range 2 { // and the same once more behind a stop
		c.compareEvents(asked, events)
		c.compareUsage(asked, events)
		c.compareMoments(asked, events)
		c.running[victims[0]].kill()
		c.startRole(victims[0])
	}
}

// settle waits until all jobs have ended, and the reader and the history have their events.
func (c *recordedCell) settle(ctx context.Context) {
	c.t.Helper()
	asked := c.clientOf(c.history)
	c.allEnd()
	eventually(c.t, "all events are in the history", func() error {
		page, err := c.user.Events(ctx, client.EventFilter{Count: 1})
		if err != nil {
			return err
		}
		status, err := asked.HistoryStatus(ctx)
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.mu.events); n == 0 || c.mu.events[n-1].ID != page.Highest || status.Next != page.Highest+1 {
			return fmt.Errorf("the newest event is %d; the reader has %d, and the history goes on with %d", page.Highest, n,
				status.Next)
		}
		return nil
	})
}

// allEnd waits until all jobs have ended.
func (c *recordedCell) allEnd() {
	c.t.Helper()
	eventually(c.t, "all jobs end", func() error {
		for j, err := range c.user.Jobs(c.t.Context(), client.JobFilter{}) {
			if err != nil || !j.State.Ended() {
				return errors.Join(err, fmt.Errorf("job %s is %v", j.ID, j.State))
			}
		}
		return nil
	})
}

// compareEvents compares the history with all events that the reader saw.
func (c *recordedCell) compareEvents(asked *client.Client, events []client.HistoryEvent) {
	c.t.Helper()
	c.sameEvents(asked, events)
	status, err := asked.HistoryStatus(c.t.Context())
	if err != nil || len(status.Gaps) > 0 {
		c.t.Errorf("the history has gaps: %+v, %v", status.Gaps, err)
	}
}

// sameEvents compares the events of the history with others.
func (c *recordedCell) sameEvents(asked *client.Client, events []client.HistoryEvent) {
	c.t.Helper()
	i := 0
	for e, err := range asked.Timeline(c.t.Context(), client.TimelineFilter{}) {
		if err != nil {
			c.t.Fatal(err)
		}
		if i == len(events) {
			c.t.Fatalf("the history has an event behind the last one: %+v", e)
		}
		if got, want := fmt.Sprintf("%+v", e), fmt.Sprintf("%+v", events[i]); got != want {
			c.t.Fatalf("event number %d of the history is\n%s\nthe reader saw\n%s", i, got, want)
		}
		i++
	}
	if i != len(events) {
		c.t.Fatalf("the history has %d events, and the reader saw %d", i, len(events))
	}
}

// ownersOf returns the owner of each job, from the labels that the test gave.
func (c *recordedCell) ownersOf(asked *client.Client) map[string]string {
	c.t.Helper()
	owners := map[string]string{}
	for j, err := range c.user.Jobs(c.t.Context(), client.JobFilter{Scope: client.ScopeAll}) {
		if err != nil {
			c.t.Fatal(err)
		}
		owners[j.ID] = j.Owner
	}
	for j, err := range asked.HistoryJobs(c.t.Context(), client.HistoryJobFilter{}) {
		if err != nil {
			c.t.Fatal(err)
		}
		if j.Owner != owners[j.ID] || j.Labels["team"] != j.Owner+"s" {
			c.t.Errorf("job %s is of %q in the history, with the labels %v; it is of %q", j.ID, j.Owner, j.Labels,
				owners[j.ID])
		}
	}
	return owners
}

// compareUsage compares the usage by owner with that of the events.
func (c *recordedCell) compareUsage(asked *client.Client, events []client.HistoryEvent) {
	c.t.Helper()
	owners := c.ownersOf(asked)
	type use struct {
		cpu                    float64
		started, ended, failed uint64
	}
	want, since := map[string]*use{"ann": {}, "bob": {}}, map[string]int64{}
	results := map[string]string{} // of the last attempts
	for i := range events {
		e := &events[i].Event
		if e.Type != plimsoll.EventApp || e.Reference == "" {
			continue
		}
		u := want[owners[e.Object]]
		switch {
		case e.Change == plimsoll.ChangeAdd && e.Detail == plimsoll.AppAlloc:
			u.started++
			since[e.Reference] = e.Time
		case e.Change == plimsoll.ChangeRemove && since[e.Reference] != 0 && e.Detail != plimsoll.AppRequest:
			u.cpu += float64(e.Resources[plimsoll.CPU]) * float64(e.Time-since[e.Reference]) / 1e9
			delete(since, e.Reference)
			results[e.Reference] = e.Message
		case e.Change == plimsoll.ChangeRemove && e.Detail == plimsoll.AppRequest:
			u.ended++
			if results[e.Reference] != plimsoll.ResultSucceeded.String() {
				u.failed++
			}
		}
	}
	got, err := asked.Usage(c.t.Context(), client.UsageFilter{By: []string{"owner"}})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, row := range got.Rows {
		u := want[row.Keys[0]]
		if u == nil {
			c.t.Errorf("somebody called %q used something: %+v", row.Keys[0], row)
			continue
		}
		cpu := row.Used[plimsoll.CPU]
		got := use{cpu, row.Started, row.Ended, row.Failed}
		if math.Abs(cpu-u.cpu) <= 1e-6*u.cpu {
			got.cpu = u.cpu
		}
		if got != *u {
			c.t.Errorf("the usage of %s is %+v; want %+v", row.Keys[0], got, *u)
		}
		delete(want, row.Keys[0])
	}
	for owner, u := range want {
		if u.started > 0 {
			c.t.Errorf("the usage of %s is missing: %+v", owner, *u)
		}
	}
}

// compareMoments compares the cluster at the recorded instants with the lists of that time.
func (c *recordedCell) compareMoments(asked *client.Client, events []client.HistoryEvent) {
	c.t.Helper()
	compared := 0
	for _, m := range c.moments {
		at, found := slices.BinarySearchFunc(events, m.next, func(e client.HistoryEvent, next uint64) int {
			return cmp.Compare(e.ID, next)
		})
		if found && events[at].Event.Time <= m.at {
			continue // its turn had begun when the lists were read
		}
		compared++
		got := momentSeen{jobs: map[string]plimsoll.JobState{}, nodes: map[string]string{}, queues: map[string]string{}}
		for _, part := range []client.ClusterPart{client.PartJobs, client.PartNodes, client.PartQueues} {
			page, err := asked.ClusterAt(c.t.Context(), client.ClusterQuestion{At: m.at, Part: part}, "")
			if err != nil || page.Next != "" {
				c.t.Fatalf("the cluster at %d: %v, %q", m.at, err, page.Next)
			}
			for _, j := range page.Jobs {
				got.jobs[j.ID] = j.State
			}
			for _, n := range page.NodeList {
				got.nodes[n.ID] = nodeSeen(n.Ready, n.Tasks, n.Allocated, n.Capacity)
			}
			for _, q := range page.Queues {
				got.queues[q.Path] = fmt.Sprintf("%d jobs, %v", q.Jobs, q.Allocated)
			}
		}
		for what, pair := range map[string][2]any{
			"jobs": {got.jobs, m.jobs}, "nodes": {got.nodes, m.nodes}, "queues": {got.queues, m.queues},
		} {
			if fmt.Sprint(pair[0]) != fmt.Sprint(pair[1]) {
				c.t.Errorf("the %s at %d were\n%v\nthe lists said\n%v", what, m.at, pair[0], pair[1])
			}
		}
	}
	if len(c.moments) > 0 && compared == 0 {
		c.t.Errorf("none of %d moments could be compared", len(c.moments))
	}
}
