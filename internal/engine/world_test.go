package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// world is an engine with a simulated fleet of agents, which mostly obey.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	engine  *engine.Engine
	cfg     state.Config
	limits  state.Limits
	records *records
	now     int64
	jobs    []string // ids, used again and again
	nextID  uint64
	queue   []engine.Command
	out     engine.Batch
	sent    []engine.Command  // with tokens, which may be repeated
	submits map[uint64]string // not yet answered
	acked   map[string]bool   // submits that were acknowledged, until the job is forgotten
	acks    int
	used    map[string]placement.Amounts // of each queue, and of users and groups there, after the turn before
	let     map[string]int32             // jobs that each of these has let in, the same
	seen    map[string]int32             // attempt of each task after the turn before
	placed  int                          // tasks that were bound
	made    int                          // tasks that were there after the turn before
	tracked int                          // users and groups for which limits held, by turns
	lacking int                          // groups that waited for a resource that no node has, by turns
	behind  int                          // groups that another job of their leaf held back, by turns
	full    map[string]int               // submits and scalings that were refused, by the bound that was reached
	handed  map[string]handed            // attempts on nodes after the turn before, by task
	archive *modelArchive                // nil: without an archive
	dynamic int                          // dynamic queues that were there, by turns
	fold    *fold                        // of all committed events
	told    *told                        // the same to a history; nil: there is none
	every   int                          // one turn of so many is checked in full; 0: each is
	turns   int
	log     *bytes.Buffer // what the turns made; nil: nobody reads it
}

func newWorld(t *testing.T, seed uint64, limits state.Limits) *world {
	return newWorldOf(t, seed, limits, func(*placement.Settings) {})
}

func newWorldOf(t *testing.T, seed uint64, limits state.Limits, change func(*placement.Settings)) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), records: newRecords(), now: 1_000_000_000_000, limits: limits,
		cfg: state.Config{
			MaxEnded: 8, KeepEnded: 300e9, LostAfter: 20e9, NodeGrace: 5e9, EvictedFor: 25e9, Chain: soonWell(change),
			Limits: limits, MaxTasks: 150, MaxBytes: 60_000, TrustOwner: true,
		},
		fold: newFold(), acked: map[string]bool{}, seen: map[string]int32{}, full: map[string]int{},
	}
	w.cfg.KeepOutcomes, w.cfg.MaxOutcomes = 20e9, 12
	for i := range 24 {
		w.jobs = append(w.jobs, "j"+strconv.Itoa(i))
	}
	w.restart(seed)
	return w
}

// restart simulates a crash: unanswered commands are lost, and the records are loaded again.
func (w *world) restart(seed uint64) {
	s, err := w.records.load(w.cfg, w.now)
	if err != nil {
		w.t.Fatalf("reload: %v", err)
	}
	for _, id := range w.jobs {
		if w.acked[id] && s.Job(id) == nil {
			w.t.Fatalf("job %s was acknowledged and is gone", id)
		}
	}
	w.engine = engine.New(engine.Config{Seed: seed}, s, 0, w.now)
	w.queue, w.submits = nil, map[uint64]string{}
	w.used, w.let = map[string]placement.Amounts{}, map[string]int32{}
	w.remember()
}

func (w *world) send(do engine.Operation) uint64 {
	w.nextID++
	c := engine.Command{ID: w.nextID, Do: do}
	if w.rng.IntN(3) == 0 { // some are repeated, and then perhaps another time
		c.Token, c.Digest = fmt.Sprint("t", w.nextID), w.nextID
		if w.sent = append(w.sent, c); len(w.sent) > 20 {
			w.sent = w.sent[1:]
		}
	}
	w.queue = append(w.queue, c)
	if len(w.sent) > 0 && w.rng.IntN(6) == 0 {
		again := w.sent[w.rng.IntN(len(w.sent))]
		again.ID += 1 << 32
		w.queue = append(w.queue, again)
	}
	return w.nextID
}

func (w *world) turn() (more bool) {
	taken, wake, more := w.engine.Turn(w.now, w.queue, &w.out)
	configured := 0
	for i := range w.queue[:taken] {
		if _, ok := w.queue[i].Do.(*engine.SetQueueConfig); ok {
			configured++
		}
	}
	w.queue = w.queue[taken:]
	s := w.engine.State()
	if !more && wake != 0 && wake <= w.now {
		w.t.Fatalf("the engine is done but wants to be woken at %d, and now is %d", wake, w.now)
	}
	w.turns++
	full := w.every == 0 || w.turns%w.every == 0
	check := s.Tree().Check
	if full {
		check = s.Check // of the tree and all else
	}
	if err := check(); err != nil {
		w.t.Fatalf("after a turn: %v", err)
	}
	w.checkLimits()
	w.checkQuotas(configured)
	w.checkPlaced()
	w.checkHeld()
	w.checkHanded()
	w.archive.checkDeletes(w)
	if !more {
		w.checkWaiting()
	}
	if err := w.records.commit(&w.out.Changes); err != nil {
		w.t.Fatal(err)
	}
	w.archive.checkAll(w)
	for i := range w.out.Changes.Events {
		w.fold.apply(&w.out.Changes.Events[i])
	}
	if full && (!testrun.Quick() || w.nextID%8 == 0) { // the fold itself has every event
		w.checkFold()
		w.checkPlaces()
	}
	w.told.turn(full)
	if w.log != nil {
		fmt.Fprintf(w.log, "%d %+v %+v\n", w.out.Revision, w.out.Changes.Tasks, w.out.Changes.Events)
	}
	for _, id := range w.out.Changes.DeletedJobs {
		delete(w.acked, id)
	}
	for i := range w.out.Changes.JobStatuses {
		if st := &w.out.Changes.JobStatuses[i]; st.State == plimsoll.JobRejected {
			delete(w.acked, st.ID) // its id belonged to a job that was forgotten
		}
	}
	for _, r := range w.out.Replies {
		if plimsoll.CodeOf(r.Err) == plimsoll.CodeExhausted {
			bound, _, _ := strings.Cut(r.Err.Error(), ":")
			w.full[bound]++
		}
		if id := w.submits[r.ID]; id != "" && r.Err == nil {
			w.acked[id] = true
			w.acks++
			delete(w.submits, r.ID)
		}
	}
	return more
}

// checkLimits checks that a batch is within the limits of the store.
func (w *world) checkLimits() {
	c := &w.out.Changes
	ops := len(c.JobSpecs) + len(c.Tasks) + len(c.Nodes) + len(c.Policies) + len(c.DeletedPolicies) +
		len(c.DeletedTasks) + len(c.DeletedNodes) + 2*len(c.DeletedJobs)
	for i := range c.JobStatuses {
		if !c.JobStatuses[i].Ephemeral {
			ops++
		}
	}
	ops += len(c.QueuePasts) + len(c.DeletedQueuePasts)
	if ops += len(c.Outcomes) + len(c.DeletedOutcomes); c.QueueConfig != nil {
		ops++
	}
	if w.limits.Ops > 0 && ops > w.limits.Ops {
		w.t.Fatalf("a turn has %d operations; the store takes %d", ops, w.limits.Ops)
	}
}

// checkHeld checks the bound on tasks of all jobs. A lowered bound may be exceeded by tasks from
// before, but their number does not grow. Tasks that were to make room for accepted ones come on
// top when their jobs wait for the archive once more: after a restart, or a deletion.
func (w *world) checkHeld() {
	tasks, _ := w.engine.State().Usage()
	made, waiting := 0, 0
	for _, id := range w.jobs {
		j := w.engine.State().Job(id)
		if j == nil {
			continue
		}
		n := 0
		for i := range j.Groups {
			n += len(j.Groups[i].Tasks)
		}
		if made += n; w.archive != nil && j.State.Ended() {
			waiting += n
		}
	}
	if most := w.cfg.MaxTasks + waiting; made > most && made > w.made || tasks < made {
		w.t.Fatalf(
			"%d tasks are there and %d are counted; at most %d are possible, and %d were there before", made, tasks,
			most, w.made,
		)
	}
	w.made = made
}

// checkWaiting checks all waiting groups by brute force. No task waits that could be placed, and
// each reason is true.
func (w *world) checkWaiting() {
	s := w.engine.State()
	placer := placement.NewPlacer(s.Fleet, rand.NewPCG(1, 1)) // it draws nothing
	for _, id := range w.jobs {
		j := s.Job(id)
		if j == nil || j.State.Ended() || j.State == plimsoll.JobNew {
			continue
		}
		for i := range j.Groups {
			g := &j.Groups[i]
			ready := 0
			for index := range g.Tasks {
				t := &g.Tasks[index]
				if t.State != plimsoll.TaskPending {
					continue
				}
				if (state.Ref{Group: g, Index: int32(index)}).Unwanted() {
					w.t.Fatalf("task %s is unwanted, nothing is left to do, and it still waits", t.ID)
				}
				if !t.Waits() {
					ready++
				} else if t.NotBefore <= w.now {
					w.t.Fatalf("task %s was to be tried again at %d, and now is %d", t.ID, t.NotBefore, w.now)
				}
			}
			if g.Wait.Code == plimsoll.WaitNoResource {
				w.lacking++
			}
			if why := w.untrue(s, placer, g, ready); why != "" {
				w.t.Fatalf(
					"job %s group %s, %d tasks ready, waits for %s %q, but %s", id, g.Spec.Name, ready, g.Wait.Code,
					g.Wait, why,
				)
			}
		}
	}
}

// untrue says why a group's cause of waiting is wrong; empty if it is right.
func (w *world) untrue(s *state.State, placer *placement.Placer, g *state.Group, ready int) string {
	p, release := s.Prepared(g)
	defer release()
	open, eligible, empty, fit := 0, 0, 0, 0
	for slot := range int32(s.Fleet.Len()) {
		if s.Fleet.Open(slot) {
			open++
		}
		suits, fitsEmpty := placer.Suits(p, slot, s.Seconds())
		if suits {
			eligible++
		}
		if fitsEmpty {
			empty++
		}
		if placer.Keeps(p, slot, s.Seconds()) {
			fit++
		}
	}
	owner := queue.Owner{User: g.Job.Spec.Owner, Groups: g.Job.Spec.OwnerGroups}
	by, _ := s.Tree().RefusesOwner(g.Job.Queue, owner, g.Amounts())
	full := g.Wait.Code == plimsoll.WaitQueueMax || g.Wait.Code == plimsoll.WaitUserMax ||
		g.Wait.Code == plimsoll.WaitGroupMax
	parked := g.Job.Parked() != nil
	lacks := w.lacks(g.Spec.Resources)
	switch code := g.Wait.Code; {
	case g.Counts.Pending == 0 && code != plimsoll.WaitNone:
		return "nothing is pending"
	case ready == 0 && g.Counts.Pending > 0 && code != plimsoll.WaitRetry:
		return "all that is pending waits for its next attempt"
	case ready == 0:
		return ""
	case code == plimsoll.WaitOrder:
		if _, by := s.HeldBackBy(g); by == nil || by.Job == g.Job || by.Job.Queue != g.Job.Queue {
			return "no other job of its queue holds it back"
		}
		w.behind++
	case code == plimsoll.WaitNoResource && g.Wait.Resource != lacks:
		return fmt.Sprintf("it is %q that no node has", lacks)
	case lacks != "" && by == nil && !parked && code != plimsoll.WaitNoResource:
		return "no node has " + lacks
	case lacks == "" && fit > 0 && by == nil && !parked:
		return "a node has room and no queue is at its maximum"
	case full && by == nil && !parked:
		return "no queue is at its maximum, and no limit is reached"
	case full && !parked && !w.stillHeld(g):
		return "that has room"
	case parked && !full:
		return "its job is parked"
	case code == plimsoll.WaitNoNodes && open > 0:
		return "a node may take tasks"
	case code == plimsoll.WaitNotEligible && (eligible > 0 || open == 0):
		return "a node is for it, or none may take tasks"
	case code == plimsoll.WaitTooLarge && (empty > 0 || eligible == 0 || open == 0):
		return "a node would have room if it were empty, or none may take tasks"
	case code == plimsoll.WaitNoNode && (empty == 0 || eligible == 0 || open == 0):
		return "no node would have room, or none may take tasks"
	case code == plimsoll.WaitNone, code == plimsoll.WaitTurn, code == plimsoll.WaitRetry:
		return "that is no reason"
	}
	return ""
}

// lacks returns the first requested resource that no node has.
func (w *world) lacks(asked plimsoll.Resources) string {
	for _, name := range asked.Names() {
		has := asked[name] == 0 || name == plimsoll.CPU || name == plimsoll.Memory || name == plimsoll.Disk
		for i := range 6 {
			if n := w.engine.State().Node("n" + strconv.Itoa(i)); n != nil && n.Capacity[name] > 0 {
				has = true
			}
		}
		if !has {
			return name
		}
	}
	return ""
}

// odd returns a resource name that few nodes and queues have, mostly none. There are more such
// names than slots.
func (w *world) odd() string { return "example.com/r" + strconv.Itoa(w.rng.IntN(14)) }

// soonWell returns the default chain with a short time of sickness, so that it passes now and then.
// change may change further settings.
func soonWell(change func(*placement.Settings)) *placement.Chain {
	settings := placement.DefaultSettings()
	settings.SickFor = 15
	change(&settings)
	c, err := placement.NewChain(placement.DefaultExpression(), placement.Stages(), nil, settings)
	if err != nil {
		panic(err)
	}
	return c
}

func (w *world) step() {
	w.now += w.rng.Int64N(3e9)
	w.archive.step(w)
	for more := true; more; more = w.rng.IntN(4) == 0 { // sometimes several commands arrive between two turns
		w.command()
	}
	w.turn()
}

func (w *world) command() {
	switch w.rng.IntN(29) {
	case 0, 1, 2, 3:
		w.submit()
	case 4:
		w.send(&engine.KillJob{ID: w.pick(w.jobs), Reason: "test"})
	case 5:
		w.send(&engine.ScaleJob{ID: w.pick(w.jobs), Group: "g", Count: w.count()})
	case 6, 7:
		w.register()
	case 8:
		w.send(&engine.SetNodeMode{ID: w.node(), Mode: plimsoll.NodeMode(1 + w.rng.IntN(3))})
	case 9:
		id := w.node()
		if n := w.engine.State().Node(id); n != nil {
			w.send(&engine.NodeSilent{ID: id, Registration: n.Registration})
			if w.rng.IntN(2) == 0 {
				w.send(&engine.LeaveNode{Node: id, Incarnation: n.Incarnation, Empty: w.rng.IntN(2) == 0})
			}
		}
	case 10:
		w.send(&engine.RemoveNode{ID: w.node()})
	case 11:
		switch w.rng.IntN(4) {
		case 0:
			w.send(&engine.GatewayLost{Gateway: "gw"})
		case 1: // the collection stays on, as the fold wants all events
			age := w.pick([]string{"0", "1h", "72h", "never"})
			w.send(&engine.SetEventSettings{Settings: map[string]string{"ringBufferAge": age}})
		case 2:
			name := w.pick([]string{"h1", "h2", ""})
			w.send(&engine.ReportHistorian{Name: name, Instance: "i", Next: w.rng.Uint64N(100)})
		case 3:
			w.send(&engine.RemoveHistorian{Name: w.pick([]string{"h1", "h2"})})
		}
	case 12:
		if w.rng.IntN(3) == 0 {
			w.send(&engine.SetQueueConfig{Config: w.tree()})
		}
	case 13:
		w.policy()
	case 14, 15:
		w.reportNode()
	case 16:
		w.send(&engine.DeleteJob{ID: w.pick(w.jobs)})
	default:
		w.report()
	}
}

func (w *world) pick(from []string) string { return from[w.rng.IntN(len(from))] }
func (w *world) node() string              { return "n" + strconv.Itoa(w.rng.IntN(6)) }

// count draws a number of tasks, mostly a small one. Some are more than a turn can hold with tiny
// limits. Others are about as many as the bound on tasks has room for.
func (w *world) count() int32 {
	switch w.rng.IntN(24) {
	case 0, 1:
		return w.rng.Int32N(70)
	case 2:
		return int32(max(0, w.room()-4+w.rng.IntN(9)))
	}
	return w.rng.Int32N(8)
}

// room returns how many more tasks the jobs that have not ended may have.
func (w *world) room() int {
	room := w.cfg.MaxTasks
	for _, id := range w.jobs {
		if j := w.engine.State().Job(id); j != nil && !j.State.Ended() {
			for i := range j.Spec.Groups {
				room -= int(j.Spec.Groups[i].Count)
			}
		}
	}
	return room
}

func (w *world) submit() {
	id := w.pick(w.jobs)
	spec := &plimsoll.JobSpec{
		ID: id, Owner: w.pick([]string{"alice", "alice", "bob", "carol"}),
		Queue: w.pick([]string{"root.default", "root.batch", "root.small", "root.team.x", "root.nope"}),
		Tags:  map[string]string{},
		Groups: []plimsoll.GroupSpec{
			{
				Name: "g", Count: w.count(), Command: []string{"true"},
				Resources: plimsoll.Resources{
					"cpu": int64(100 * (1 + w.rng.IntN(12))), "memory": int64(w.rng.IntN(4)) << 28,
				},
				Retry: plimsoll.RetryPolicy{Kind: plimsoll.RetryKind(w.rng.IntN(4)), Limit: w.rng.Int32N(3)},
			},
			{
				Name: "h", Count: w.rng.Int32N(3), Command: []string{"true"},
				Resources: plimsoll.Resources{"nvidia.com/gpu": 1},
			},
		},
	}
	if w.rng.IntN(2) == 0 {
		spec.Token = "token"
	}
	if w.rng.IntN(2) == 0 {
		spec.Completing = time.Duration(w.rng.Int64N(30e9))
	}
	if w.rng.IntN(6) == 0 {
		spec.Groups[1].Resources = plimsoll.Resources{plimsoll.ExtCPU: 500}
	}
	if w.rng.IntN(6) == 0 {
		for range 1 + w.rng.IntN(9)*w.rng.IntN(2) { // nine are too many, unless some of them are known
			spec.Groups[1].Resources[w.odd()] = w.rng.Int64N(3)
		}
	}
	if w.rng.IntN(20) == 0 {
		spec.Groups[0].Resources["cpu"] = 4500 // only the largest nodes have it
	}
	if w.rng.IntN(4) == 0 {
		spec.Groups[0].Resources["disk"] = int64(1+w.rng.IntN(3)) << 39
	}
	if w.rng.IntN(16) == 0 { // a few of these reach the bound on bytes
		spec.Groups[0].Env = map[string]string{"LONG": strings.Repeat("x", w.rng.IntN(w.cfg.MaxBytes/4))}
	}
	w.rank(spec)
	w.constrain(spec)
	w.ask(spec)
	w.submits[w.send(&engine.SubmitJob{Spec: spec, Replace: w.rng.IntN(4) == 0})] = id
}

func (w *world) register() {
	id, incarnation := w.node(), uint64(1)
	if n := w.engine.State().Node(id); n != nil {
		incarnation = n.Incarnation + uint64(w.rng.IntN(2))
	}
	capacity := plimsoll.Resources{"cpu": 4000, "memory": 1 << 31, "disk": 1 << 40, "nvidia.com/gpu": 1}
	if w.rng.IntN(6) == 0 { // some machines change
		capacity["cpu"] = int64(1000 * w.rng.IntN(6))
	}
	for w.rng.IntN(3) == 0 {
		capacity[w.odd()] = w.rng.Int64N(4)
	}
	if w.rng.IntN(8) == 0 {
		delete(capacity, "nvidia.com/gpu")
	}
	node := plimsoll.Node{ID: id, Incarnation: incarnation, Capacity: capacity}
	w.claim(&node)
	if w.rng.IntN(3) > 0 {
		w.describe(&node)
	}
	w.send(&engine.RegisterNode{Gateway: "gw", Node: node})
}

// report sends reports about the tasks of a random node, most of them true.
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
			if w.rng.IntN(4) == 0 {
				r.Result = plimsoll.ResultNodeFault
			}
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
		c.Queues = append(
			c.Queues,
			plimsoll.QueueConfig{
				Name: "small", MaxJobs: 1 + w.rng.Int32N(3), Max: plimsoll.Resources{"nvidia.com/gpu": 1},
			},
		)
	}
	if w.rng.IntN(3) == 0 {
		c.Queues[1].Max = plimsoll.Resources{w.odd(): w.rng.Int64N(3), "nvidia.com/gpu": 2}
	}
	c.Queues[1].MaxTasks = w.rng.Int32N(3) * 40
	if w.rng.IntN(2) == 0 {
		limit, most, below := int64(1000*(1+w.rng.IntN(8))), w.rng.Int32N(4), w.rng.Int32N(3)
		if most > 0 {
			below = 1 + below%most // a queue below one with a limit has one too, which is no larger
		}
		c.Queues = append(c.Queues, plimsoll.QueueConfig{
			Name: "team", Max: plimsoll.Resources{"cpu": limit}, MaxJobs: most, Queues: []plimsoll.QueueConfig{
				{Name: "x", Max: plimsoll.Resources{"cpu": limit, "memory": 1 << 31}, MaxJobs: below},
			},
		})
	}
	if w.rng.IntN(3) > 0 {
		w.order(&c)
	}
	w.rules(&c)
	return c
}
