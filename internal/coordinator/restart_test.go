package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// events returns the events of the ring, which begins at id low.
func events(t *testing.T, s *replica.Snapshot) (low uint64, all []string) {
	t.Helper()
	low, _, _ = s.Events().Range()
	next := low
	if err := s.Events().Batch(low, 1<<40, func(id uint64, ev *plimsoll.Event) bool {
		if id != next {
			t.Errorf("event %d comes after %d", id, next-1)
		}
		next++
		all = append(all, fmt.Sprintf("%+v", *ev))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return low, all
}

// Each leader has a higher epoch, which is a field of its own. The events go on: they keep their
// ids, and the InstanceUUID says so.
func TestIDsOfEventsGoOnWithTheNextLeader(t *testing.T) {
	fs := vfs.NewMem()
	var epoch, revision uint64
	var instance string
	var before []string
	for i := range 4 {
		l := lead(t, Config{}, openStore(t, fs, store.Limits{}))
		now := l.Latest()
		if now.Epoch() <= epoch || i > 0 && now.InstanceUUID() != instance || now.Revision() < revision {
			t.Errorf("leader %d: epoch %d after %d, instance %s after %s, revision %d after %d",
				i, now.Epoch(), epoch, now.InstanceUUID(), instance, now.Revision(), revision)
		}
		l.settle()
		low, all := events(t, l.Latest())
		if low != 0 || len(all) < len(before) || !slices.Equal(all[:len(before)], before) {
			t.Errorf("leader %d has %d events from %d on; there were %d", i, len(all), low, len(before))
		}
		l.must(submit(job(fmt.Sprintf("j%d", i), 3)))
		l.settle()
		epoch, instance, revision = l.Latest().Epoch(), l.Latest().InstanceUUID(), l.Latest().Revision()
		_, before = events(t, l.Latest())
		l.stop()
	}
}

// gappy is a store that has lost the chunk of events of one revision, or all chunks.
type gappy struct {
	store.Store
	lost func(revision uint64) bool
}

func (g *gappy) Load(ctx context.Context, record func(wire.Kind, string, []byte) error,
	chunk func(uint64, wire.EventChunk) error,
) (uint64, int64, error) {
	return g.Store.Load(ctx, record, func(revision uint64, c wire.EventChunk) error {
		if g.lost(revision) {
			return nil
		}
		return chunk(revision, c)
	})
}

// A reader that continued behind a gap would take other events for those that it misses.
func TestIDsOfEventsBeginAnewWhenSomeAreLost(t *testing.T) {
	for name, lost := range map[string]func(revision, last uint64) bool{
		"some of them": func(revision, last uint64) bool { return revision == last-1 },
		"all of them":  func(uint64, uint64) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			l := lead(t, Config{}, openStore(t, fs, store.Limits{}))
			for i := range 5 {
				l.must(submit(job(fmt.Sprintf("j%d", i), 1)))
			}
			before := l.Latest()
			l.stop()
			g := &gappy{openStore(t, fs, store.Limits{}), func(revision uint64) bool {
				return lost(revision, before.Revision())
			}}
			l = lead(t, Config{}, g)
			anew := l.Latest()
			if anew.InstanceUUID() == before.InstanceUUID() {
				t.Fatal("the InstanceUUID is that of before")
			}
			events(t, anew)
			l.must(submit(job("more", 1)))
			l.stop()
			l = lead(t, Config{}, openStore(t, fs, store.Limits{}))
			defer l.stop()
			if name == "all of them" && l.Latest().InstanceUUID() == anew.InstanceUUID() {
				t.Error("events that came back have ids of the new instance")
			}
		})
	}
}

// The store keeps as many events as the ring, and a quarter more.
func TestStoredEventsAreTrimmed(t *testing.T) {
	const capacity = 200
	fs := vfs.NewMem()
	st := &spy{Store: openStore(t, fs, store.Limits{})}
	cfg := Config{State: state.Config{Events: map[string]string{"ringBufferCapacity": strconv.Itoa(capacity)}}}
	l := lead(t, cfg, st)
	for i := range 400 {
		l.must(submit(job(fmt.Sprintf("j%d", i), i%5)))
	}
	_, newest := events(t, l.Latest())
	l.stop()
	most := slices.Max(st.mu.events)
	var stored, total uint64
	for _, n := range st.mu.events {
		total += n
	}
	again := openStore(t, fs, store.Limits{})
	_, _, err := again.Load(context.Background(), func(wire.Kind, string, []byte) error { return nil },
		func(_ uint64, chunk wire.EventChunk) error {
			stored += chunk.Count
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if stored < capacity || stored > capacity+capacity/4+most {
		t.Errorf("%d events are stored of %d; %d to %d are right", stored, total, capacity, capacity+capacity/4+most)
	}
	wantEvents(t, l.term.metrics.events, map[string]uint64{
		"created": total, "channeled": total, "stored": total, "processed": total, "collected": total - stored,
	})
	l = lead(t, cfg, again)
	defer l.stop()
	low, found := events(t, l.Latest())
	if !slices.Equal(found, newest) {
		t.Errorf("the next leader has %d events, which are not the newest %d", len(found), len(newest))
	}
	if low+capacity != total {
		t.Errorf("the ids end at %d, but there were %d events and the first had id 0", low+capacity, total)
	}
}

// The wall clock goes back, under a leader and between two leaders. The times of batches never do.
func TestTimeNeverGoesBack(t *testing.T) {
	fs := vfs.NewMem()
	var last int64
	for round := range 3 {
		rng := rand.New(rand.NewPCG(testrun.Seed(t), uint64(round)))
		var mu sync.Mutex
		clock := func() int64 {
			mu.Lock()
			defer mu.Unlock()
			return 1e18 - int64(round)*3600e9 + rng.Int64N(600e9)
		}
		st := &spy{Store: openStore(t, fs, store.Limits{})}
		l := lead(t, Config{Now: clock}, st)
		for i := range 50 {
			l.must(submit(job(fmt.Sprintf("j%d-%d", round, i), 1)))
		}
		l.stop()
		for i, at := range st.mu.times {
			if at < last {
				t.Fatalf("round %d: batch %d is of %d, which is before %d", round, i, at, last)
			}
			last = at
		}
	}
}

// load is a random load on a leader from submitters, users and agents, each with a goroutine.
type load struct {
	l       *leader
	clock   *clock
	sent    atomic.Int64
	refused atomic.Int64
}

// clock is the leader's clock. Each reading advances it until the clock is stopped.
type clock struct{ now, step atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.now.Store(1e18)
	c.step.Store(int64(20 * time.Millisecond))
	return c
}

func (c *clock) read() int64 { return c.now.Add(c.step.Load()) }

func (d *load) do(cmd *pb.Command) {
	reply, err := d.l.Do(context.Background(), cmd)
	d.sent.Add(1)
	if err != nil {
		d.refused.Add(1)
		if reply == nil {
			d.l.t.Errorf("%T: %v", cmd.GetKind(), err)
		}
	}
}

func (d *load) run(seed uint64, workers, steps int) {
	var group sync.WaitGroup
	for w := range workers {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		group.Go(func() {
			for i := range steps {
				d.step(rng, fmt.Sprintf("j%d-%d", w, i))
			}
		})
	}
	group.Wait()
}

func (d *load) step(rng *rand.Rand, fresh string) {
	node := fmt.Sprintf("n%d", rng.IntN(6))
	switch rng.IntN(16) {
	case 0, 1, 2:
		spec := job(fresh, rng.IntN(30))
		spec.Queue = []string{"root.default", "root.batch", "root.small", "root.nope"}[rng.IntN(4)]
		spec.Groups[0].Resources = plimsoll.Resources{
			"cpu": int64(100 * (1 + rng.IntN(15))), "memory": int64(rng.IntN(4)) << 28,
		}
		spec.Groups[0].Retry = plimsoll.RetryPolicy{Kind: plimsoll.RetryKind(rng.IntN(4)), Limit: rng.Int32N(3)}
		d.do(submit(spec))
	case 3, 4:
		d.do(kill(d.someJob(rng)))
	case 5:
		d.do(scale(d.someJob(rng), rng.Int32N(40)))
	case 6:
		d.do(register(node, uint64(1+rng.IntN(2))))
	case 7:
		d.do(
			&pb.Command{
				Kind: &pb.Command_SetNodeMode{
					SetNodeMode: &pb.SetNodeModeRequest{Id: node, Mode: pb.NodeMode(1 + rng.IntN(3))},
				},
			},
		)
	case 8:
		d.do(&pb.Command{Kind: &pb.Command_RemoveNode{RemoveNode: &pb.RemoveNodeRequest{Id: node}}})
	case 9:
		if rng.IntN(5) == 0 {
			queues := plimsoll.DefaultQueues()
			queues.Queues[0].Max = plimsoll.Resources{"cpu": int64(1000 * (1 + rng.IntN(8)))}
			if rng.IntN(2) == 0 {
				queues.Queues = append(queues.Queues, plimsoll.QueueConfig{Name: "small", MaxJobs: 2})
			}
			d.do(setQueues(&queues))
		}
	case 10:
		d.do(explain(d.someJob(rng) + ".work.0"))
	default:
		d.report(rng, node)
	}
}

// someJob returns a job of the gateway's copy.
func (d *load) someJob(rng *rand.Rand) string {
	from := fmt.Sprintf("j%d-%d", rng.IntN(8), rng.IntN(2000))
	for id := range d.l.Latest().Scan(wire.KindJobSpec, "", from) {
		return id
	}
	return from
}

// report sends reports about the tasks of a node, most of them true.
func (d *load) report(rng *rand.Rand, id string) {
	now := d.l.Latest()
	data, ok := now.Get(wire.KindNode, id)
	if !ok {
		d.do(register(id, 1))
		return
	}
	node, err := wire.DecodeNode(data)
	if err != nil {
		d.l.t.Error(err)
		return
	}
	cmd := &pb.ReportTasksRequest{Node: id, Incarnation: node.Incarnation}
	for _, data := range now.NodeTasks(id) {
		task, err := wire.DecodeTask(data)
		if err != nil {
			d.l.t.Error(err)
			return
		}
		if rng.IntN(3) == 0 {
			continue
		}
		r := &pb.TaskReport{
			Task: plimsoll.TaskID(task.Job, task.Group, task.Index), Attempt: task.Attempt - rng.Int32N(8)/7,
			At: d.clock.now.Load(),
		}
		r.State = pb.TaskState(plimsoll.TaskStarting) + pb.TaskState(rng.IntN(2))
		if task.State == plimsoll.TaskRunning || rng.IntN(4) == 0 {
			r.State, r.Result, r.Message = pb.TaskState(
				plimsoll.TaskFinished,
			), pb.TaskResult(1+rng.IntN(10)), "it is over"
		}
		cmd.Reports = append(cmd.Reports, r)
	}
	d.do(&pb.Command{Kind: &pb.Command_ReportTasks{ReportTasks: cmd}})
}

func dump(t *testing.T, s *state.State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Dump(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sameRecords compares all records of some kinds, byte for byte.
func sameRecords(t *testing.T, what string, a, b *replica.Snapshot, kinds ...wire.Kind) {
	t.Helper()
	for _, kind := range kinds {
		left, right := map[string]string{}, map[string]string{}
		for key, value := range a.Scan(kind, "", "") {
			left[key] = string(value)
		}
		for key, value := range b.Scan(kind, "", "") {
			right[key] = string(value)
			if left[key] != string(value) {
				t.Errorf("%s: record %q of kind %d is\n%x, not\n%x", what, key, kind, value, left[key])
				return
			}
		}
		if len(left) != len(right) {
			t.Errorf("%s: %d records of kind %d, not %d", what, len(right), kind, len(left))
		}
	}
}

// After a random load four states are the same: the working state, the copies of an old gateway and
// of a new one, and the state that the next leader loads. The store refuses batches beyond its
// limits, so all batches were within them.
func TestStateEqualsReload(t *testing.T) {
	for name, limits := range map[string]store.Limits{"default limits": {}, "tiny limits": tiny} {
		t.Run(name, func(t *testing.T) {
			seed := testrun.Seed(t)
			fs, clock := vfs.NewMem(), newClock()
			st := &spy{Store: openStore(t, fs, limits)}
			cfg := Config{
				Now: clock.read, Seed: 1,
				State: state.Config{MaxEnded: 200, KeepEnded: 3600e9, LostAfter: 20e9, NodeGrace: 5e9},
			}
			l := lead(t, cfg, st)
			d := &load{l: l, clock: clock}
			d.run(seed, 8, testrun.Count(100, 400, 20_000))
			clock.step.Store(0)
			l.settle()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			other := l.follow(ctx, "other")
			live, err := l.Barrier(ctx)
			if err != nil {
				t.Fatal(err)
			}
			fresh, err := other.Barrier(ctx)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			l.stop()
			all := []wire.Kind{
				wire.KindJobSpec, wire.KindJobStatus, wire.KindTask, wire.KindNode, wire.KindNodeStatus,
				wire.KindQueueConfig, wire.KindQueueStatus,
			}
			sameRecords(t, "a new gateway", live, fresh, all...)
			checkNodeTasks(t, live)
			checkNodeTasks(t, fresh)
			again := reload(t, fs, cfg)
			sameRecords(
				t, "the next leader", live, again.source.Snapshot(), wire.KindJobSpec, wire.KindTask, wire.KindNode,
				wire.KindQueueConfig,
			)
			if a, b := dump(t, l.term.engine.State()), dump(t, again.engine.State()); !bytes.Equal(a, b) {
				t.Errorf("the reloaded state differs:\n%s", firstDifference(a, b))
			}
			t.Logf(
				"%d commands, %d refused, %d batches; %d jobs and %d tasks are left", d.sent.Load(),
				d.refused.Load(), st.mu.commits, live.Len(wire.KindJobSpec), live.Len(wire.KindTask),
			)
		})
	}
}

// checkNodeTasks compares the index of tasks by node with the tasks.
func checkNodeTasks(t *testing.T, s *replica.Snapshot) {
	t.Helper()
	on := map[string][]string{} // tasks by node
	for key, data := range s.Scan(wire.KindTask, "", "") {
		task, err := wire.DecodeTask(data)
		if err != nil {
			t.Fatal(err)
		}
		if task.State.OnNode() {
			on[task.Node] = append(on[task.Node], key)
		}
	}
	if len(on) == 0 {
		t.Error("no task is on a node, so this shows nothing")
	}
	for node := range s.Scan(wire.KindNode, "", "") {
		var keys []string
		for key := range s.NodeTasks(node) {
			keys = append(keys, key)
		}
		if !slices.Equal(keys, on[node]) {
			t.Errorf("node %s has %d tasks, but %d are on it", node, len(keys), len(on[node]))
		}
	}
}

func firstDifference(a, b []byte) string {
	as, bs := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	for i := range min(len(as), len(bs)) {
		if !bytes.Equal(as[i], bs[i]) {
			return fmt.Sprintf("live:     %s\nreloaded: %s", as[i], bs[i])
		}
	}
	return fmt.Sprintf("%d lines live, %d reloaded", len(as), len(bs))
}
