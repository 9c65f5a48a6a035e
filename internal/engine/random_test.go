package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// records is a store of records in memory: what a crash leaves behind.
type records struct {
	specs    map[string]*plimsoll.JobSpec
	statuses map[string]plimsoll.JobStatus
	tasks    map[state.TaskName]plimsoll.Task
	nodes    map[string]plimsoll.Node
	queues   *plimsoll.QueueConfig
}

func newRecords() *records {
	return &records{map[string]*plimsoll.JobSpec{}, map[string]plimsoll.JobStatus{}, map[state.TaskName]plimsoll.Task{}, map[string]plimsoll.Node{}, nil}
}

func (r *records) commit(c *state.Changes) {
	for _, spec := range c.JobSpecs {
		r.specs[spec.ID] = spec
	}
	for i := range c.JobStatuses {
		if !c.JobStatuses[i].Ephemeral {
			r.statuses[c.JobStatuses[i].ID] = c.JobStatuses[i].JobStatus
		}
	}
	for _, t := range c.Tasks {
		r.tasks[state.TaskName{Job: t.Job, Group: t.Group, Index: t.Index}] = t
	}
	for _, n := range c.Nodes {
		r.nodes[n.ID] = n
	}
	if c.QueueConfig != nil {
		r.queues = c.QueueConfig
	}
	for _, id := range c.DeletedJobs {
		delete(r.specs, id)
		delete(r.statuses, id)
	}
	for _, name := range c.DeletedTasks {
		delete(r.tasks, name)
	}
	for _, id := range c.DeletedNodes {
		delete(r.nodes, id)
	}
}

func (r *records) load(cfg state.Config, at int64) (*state.State, error) {
	l := state.NewLoader(cfg, plimsoll.DefaultQueues())
	if r.queues != nil {
		l.QueueConfig(*r.queues)
	}
	for _, spec := range r.specs {
		l.JobSpec(*spec)
	}
	for _, st := range r.statuses {
		l.JobStatus(st)
	}
	for _, t := range r.tasks {
		l.Task(t)
	}
	for _, n := range r.nodes {
		l.Node(n)
	}
	return l.End(at)
}

// world is an engine with a fleet of agents that do as they are told, more or less.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	engine  *engine.Engine
	cfg     state.Config
	limits  state.Budget
	records *records
	now     int64
	jobs    []string
	nextJob int
	nextID  uint64
	queue   []engine.Command
	out     engine.Batch
	regs    map[string]uint64
	submits map[uint64]string // not yet answered
	acked   map[string]bool
	log     *bytes.Buffer
}

func newWorld(t *testing.T, seed uint64, limits state.Budget) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), records: newRecords(), now: 1_000_000_000_000, limits: limits,
		cfg:  state.Config{MaxEnded: 12, KeepEnded: 500e9, LostAfter: 20e9, NodeGrace: 5e9},
		regs: map[string]uint64{}, submits: map[uint64]string{}, acked: map[string]bool{}, log: &bytes.Buffer{},
	}
	w.restart(seed)
	return w
}

func (w *world) restart(seed uint64) {
	s, err := w.records.load(w.cfg, w.now)
	if err != nil {
		w.t.Fatalf("reload: %v", err)
	}
	w.engine = engine.New(engine.Config{Seed: seed, Limits: w.limits}, s, 0, w.now)
	w.queue, w.submits = nil, map[uint64]string{}
}

func (w *world) send(do any) uint64 {
	w.nextID++
	w.queue = append(w.queue, engine.Command{ID: w.nextID, Do: do})
	return w.nextID
}

func (w *world) turn() {
	taken, wake, _ := w.engine.Turn(w.now, w.queue, &w.out)
	w.queue = w.queue[taken:]
	if wake != 0 && wake < w.now-int64(3600e9) {
		w.t.Fatalf("the engine wants to be woken at %d, long before now", wake)
	}
	if err := w.engine.State().Check(); err != nil {
		w.t.Fatalf("after a turn: %v", err)
	}
	w.checkLimits()
	w.records.commit(&w.out.Changes)
	fmt.Fprintf(w.log, "%d %+v %+v\n", w.out.Revision, w.out.Changes.Tasks, w.out.Changes.Events)
	for _, r := range w.out.Replies {
		if r.Registration != 0 {
			w.regs[strconv.FormatUint(r.ID, 10)] = r.Registration
		}
		if id := w.submits[r.ID]; id != "" && r.Err == nil {
			w.acked[id] = true
		}
	}
}

func (w *world) checkLimits() {
	c := &w.out.Changes
	ops := len(c.JobSpecs) + len(c.JobStatuses) + len(c.Tasks) + len(c.Nodes) + len(c.DeletedTasks) + len(c.DeletedNodes) + 2*len(c.DeletedJobs)
	if w.limits.Ops > 0 && ops > w.limits.Ops {
		w.t.Fatalf("a turn has %d operations; the store takes %d", ops, w.limits.Ops)
	}
	s := w.engine.State()
	s.Root.Walk(func(q *state.Queue) {
		for i := range q.Max {
			if q.MaxSet&(1<<i) != 0 && q.Allocated[i] > q.Max[i] && q.Freed < 1 {
				w.t.Fatalf("queue %s is over its max", q.Path)
			}
		}
	})
}

func (w *world) step() {
	w.now += w.rng.Int64N(3e9)
	switch w.rng.IntN(20) {
	case 0, 1, 2, 3:
		w.submit()
	case 4:
		if len(w.jobs) > 0 {
			w.send(&engine.KillJob{ID: w.pick(w.jobs), Reason: "test"})
		}
	case 5:
		if len(w.jobs) > 0 {
			w.send(&engine.ScaleJob{ID: w.pick(w.jobs), Group: "g", Count: w.rng.Int32N(9)})
		}
	case 6, 7:
		w.register()
	case 8:
		w.send(&engine.SetNodeMode{ID: w.node(), Mode: plimsoll.NodeMode(1 + w.rng.IntN(3))})
	case 9:
		id := w.node()
		if n := w.engine.State().Node(id); n != nil {
			w.send(&engine.NodeSilent{ID: id, Registration: n.Registration})
		}
	case 10:
		w.send(&engine.RemoveNode{ID: w.node()})
	case 11:
		if w.rng.IntN(4) == 0 {
			w.send(&engine.GatewayLost{Gateway: "gw"})
		}
	case 12:
		if w.rng.IntN(3) == 0 {
			w.send(&engine.SetQueueConfig{Config: w.tree()})
		}
	default:
		w.report()
	}
	w.turn()
}

func (w *world) pick(from []string) string { return from[w.rng.IntN(len(from))] }
func (w *world) node() string              { return "n" + strconv.Itoa(w.rng.IntN(6)) }

func (w *world) submit() {
	w.nextJob++
	id := "j" + strconv.Itoa(w.nextJob)
	w.jobs = append(w.jobs, id)
	spec := &plimsoll.JobSpec{
		ID: id, Owner: "alice", Queue: w.pick([]string{"root.default", "root.batch", "root.small", "root.nope"}),
		Groups: []plimsoll.GroupSpec{
			{
				Name: "g", Count: w.rng.Int32N(8), Command: []string{"true"},
				Resources: plimsoll.Resources{"cpu": int64(100 * (1 + w.rng.IntN(12))), "memory": int64(w.rng.IntN(4)) << 28},
				Retry:     plimsoll.RetryPolicy{Kind: plimsoll.RetryKind(w.rng.IntN(4)), Limit: w.rng.Int32N(3)},
			},
			{Name: "h", Count: w.rng.Int32N(3), Command: []string{"true"}, Resources: plimsoll.Resources{"nvidia.com/gpu": 1}},
		},
	}
	w.submits[w.send(&engine.SubmitJob{Spec: spec})] = id
}

func (w *world) register() {
	id, incarnation := w.node(), uint64(1)
	if n := w.engine.State().Node(id); n != nil {
		incarnation = n.Incarnation + uint64(w.rng.IntN(2))
	}
	w.send(&engine.RegisterNode{Gateway: "gw", Node: plimsoll.Node{
		ID: id, Incarnation: incarnation, Capacity: plimsoll.Resources{"cpu": 4000, "memory": 1 << 31, "disk": 1 << 40, "nvidia.com/gpu": 1},
	}})
}

// report says something about a random task that is on a node, mostly what is true.
func (w *world) report() {
	s := w.engine.State()
	var on []plimsoll.Task
	for _, id := range w.jobs {
		j := s.Job(id)
		if j == nil {
			continue
		}
		for g := range j.Groups {
			for i := range j.Groups[g].Tasks {
				if ref := (state.Ref{Group: &j.Groups[g], Index: int32(i)}); ref.Task().State.OnNode() {
					on = append(on, s.TaskRecord(ref))
				}
			}
		}
	}
	if len(on) == 0 {
		return
	}
	node := on[w.rng.IntN(len(on))].Node
	cmd := &engine.ReportTasks{Node: node, Incarnation: s.Node(node).Incarnation}
	for _, t := range on {
		if t.Node != node || w.rng.IntN(3) == 0 {
			continue
		}
		r := engine.Report{Job: t.Job, Group: t.Group, Index: t.Index}
		r.Attempt, r.At = t.Attempt-int32(w.rng.IntN(8)/7), w.now
		r.State = plimsoll.TaskState(w.rng.IntN(3)) + plimsoll.TaskStarting
		if r.State == plimsoll.TaskStopping || t.State == plimsoll.TaskRunning {
			r.State = plimsoll.TaskFinished
		}
		if r.State == plimsoll.TaskFinished {
			r.Result = plimsoll.TaskResult(1 + w.rng.IntN(10))
		}
		cmd.Reports = append(cmd.Reports, r)
	}
	w.send(cmd)
}

func (w *world) tree() plimsoll.QueueConfig {
	c := plimsoll.DefaultQueues()
	c.Queues[0].Max = plimsoll.Resources{"cpu": int64(1000 * (1 + w.rng.IntN(8)))}
	c.Queues[1].Guaranteed = plimsoll.Resources{"memory": 1 << 30}
	if w.rng.IntN(2) == 0 {
		c.Queues = append(c.Queues, plimsoll.QueueConfig{Name: "small", MaxJobs: 2, Max: plimsoll.Resources{"nvidia.com/gpu": 1}})
	}
	return c
}

func dump(t *testing.T, s *state.State) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Dump(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func seeds(t *testing.T) []uint64 {
	t.Helper()
	if text := os.Getenv("PLIMSOLL_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("PLIMSOLL_SEED=%q is not a number: %v", text, err)
		}
		return []uint64{1, seed}
	}
	return []uint64{1, 2}
}

func steps() int {
	if os.Getenv("PLIMSOLL_SOAK") != "" {
		return 500_000
	}
	return 10_000
}

// Random commands, reports, silences, lost gateways and reloads: after every step no node is over its capacity, every total is
// the sum of its parts, and at any moment the state is the one that the store would give back.
func TestRandomStepsKeepInvariantsAndReload(t *testing.T) {
	for _, seed := range seeds(t) {
		for _, limits := range []state.Budget{{}, {Ops: 40, Bytes: 1 << 20}} {
			t.Run(fmt.Sprintf("seed=%d/ops=%d", seed, limits.Ops), func(t *testing.T) {
				t.Logf("replay with PLIMSOLL_SEED=%d", seed)
				w := newWorld(t, seed, limits)
				for i := range steps() {
					w.step()
					w.log.Reset()
					if i%250 == 0 {
						reloaded, err := w.records.load(w.cfg, w.now)
						if err != nil {
							t.Fatalf("step %d: %v", i, err)
						}
						if err := reloaded.Check(); err != nil {
							t.Fatalf("step %d, reloaded: %v", i, err)
						}
						w.compare(i, reloaded)
					}
					if w.rng.IntN(400) == 0 {
						w.restart(seed + uint64(i))
					}
				}
				if len(w.acked) == 0 {
					t.Fatal("no submit was acknowledged: the test tests nothing")
				}
			})
		}
	}
}

// compare holds the reloaded state against the live one. Jobs still being created are not stored for good yet.
func (w *world) compare(step int, reloaded *state.State) {
	w.t.Helper()
	for w.limits.Ops > 0 && w.engine.State().Behind() { // let unfinished parts finish, so that both have the same tasks
		w.turn()
		var err error
		if reloaded, err = w.records.load(w.cfg, w.now); err != nil {
			w.t.Fatalf("step %d: %v", step, err)
		}
	}
	live, again := dump(w.t, w.engine.State()), dump(w.t, reloaded)
	if live != again {
		w.t.Fatalf("step %d: the reloaded state differs:\n%s", step, firstDifference(live, again))
	}
}

func firstDifference(a, b string) string {
	as, bs := bytes.Split([]byte(a), []byte("\n")), bytes.Split([]byte(b), []byte("\n"))
	for i := range min(len(as), len(bs)) {
		if !bytes.Equal(as[i], bs[i]) {
			return fmt.Sprintf("live:     %s\nreloaded: %s", as[i], bs[i])
		}
	}
	return fmt.Sprintf("%d lines live, %d reloaded", len(as), len(bs))
}

// The same seed and the same inputs give the same batches.
func TestSameSeedSameBatches(t *testing.T) {
	run := func() string {
		w := newWorld(t, 7, state.Budget{})
		var all bytes.Buffer
		for range 2000 {
			w.step()
			all.Write(w.log.Bytes())
			w.log.Reset()
		}
		return all.String()
	}
	if a, b := run(), run(); a != b {
		t.Fatal("two runs differ:\n" + firstDifference(a, b))
	}
}
