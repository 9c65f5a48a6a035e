package engine_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// bench is an engine with limits over records in memory. The test makes each turn.
type bench struct {
	t       *testing.T
	engine  *engine.Engine
	cfg     state.Config
	limits  state.Limits
	records *records
	now     int64
	nextID  uint64
	queue   []engine.Command
	out     engine.Batch
	replies map[uint64]error // replies of all turns
	silent  bool             // no Check after each turn, because it costs O(everything)
}

func newBench(t *testing.T, cfg state.Config, limits state.Limits) *bench {
	cfg.Limits = limits
	b := &bench{t: t, cfg: cfg, limits: limits, records: newRecords(), now: 1e15, replies: map[uint64]error{}}
	b.crash()
	return b
}

// crash drops everything but the records, and loads them.
func (b *bench) crash() {
	b.t.Helper()
	s, err := b.records.load(b.cfg, b.now)
	if err != nil {
		b.t.Fatal(err)
	}
	b.engine, b.queue = engine.New(engine.Config{Seed: 1}, s, 0, b.now), nil
}

// crashed returns a second bench over the records that a crash would leave now. b goes on.
func (b *bench) crashed() *bench {
	b.t.Helper()
	c := &bench{
		t: b.t, cfg: b.cfg, limits: b.limits, records: b.records.clone(), now: b.now, replies: map[uint64]error{},
	}
	c.crash()
	return c
}

// tokened gives a submit a token.
func tokened(do *engine.SubmitJob, token string) *engine.SubmitJob {
	do.Spec.Token = token
	return do
}

// send queues commands for the next turn, and returns the id of the last one.
func (b *bench) send(do ...engine.Operation) uint64 {
	for _, d := range do {
		b.nextID++
		b.queue = append(b.queue, engine.Command{ID: b.nextID, Do: d})
	}
	return b.nextID
}

func (b *bench) turn() (more bool) {
	b.t.Helper()
	taken, _, more := b.engine.Turn(b.now, b.queue, &b.out)
	b.queue = b.queue[taken:]
	if !b.silent {
		if err := b.engine.State().Check(); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.records.commit(&b.out.Changes); err != nil {
		b.t.Fatal(err)
	}
	c := &b.out.Changes
	ops := len(c.JobSpecs) + len(c.JobStatuses) + len(c.Tasks) + len(c.Nodes) + len(c.DeletedTasks) +
		len(c.DeletedNodes) + 2*len(c.DeletedJobs)
	if b.limits.Ops > 0 && ops > b.limits.Ops {
		b.t.Fatalf("a turn has %d operations; the store takes %d", ops, b.limits.Ops)
	}
	for i := range b.out.Replies {
		b.replies[b.out.Replies[i].ID] = b.out.Replies[i].Err
	}
	return more
}

// settle makes turns until no work is left, and returns the number of turns.
func (b *bench) settle() int {
	b.t.Helper()
	for n := 1; ; n++ {
		if !b.turn() {
			return n
		}
		if n > 1_000_000 {
			b.t.Fatal("there is no end of turns")
		}
	}
}

// reply returns the error of a command's reply, and fails if there is no reply.
func (b *bench) reply(id uint64) error {
	b.t.Helper()
	err, ok := b.replies[id]
	if !ok {
		b.t.Fatalf("command %d has no reply", id)
	}
	return err
}

func (b *bench) wantCode(id uint64, want plimsoll.Code) {
	b.t.Helper()
	if err := b.reply(id); err == nil || plimsoll.CodeOf(err) != want {
		b.t.Fatalf("the reply is %v, want %s", err, want)
	}
}

// same compares the state that is loaded from the records with the live state.
func (b *bench) same() {
	b.t.Helper()
	reloaded, err := b.records.load(b.cfg, b.now)
	if err != nil {
		b.t.Fatal(err)
	}
	live, err := dump(b.engine.State())
	if err != nil {
		b.t.Fatal(err)
	}
	again, err := dump(reloaded)
	if err != nil {
		b.t.Fatal(err)
	}
	if live != again {
		b.t.Fatalf("the reloaded state differs:\n%s", firstDifference(live, again))
	}
}

func job(id string, count int32, cpu int64) *engine.SubmitJob {
	return &engine.SubmitJob{Spec: &plimsoll.JobSpec{
		ID: id, Queue: "root.default", Token: "t",
		Groups: []plimsoll.GroupSpec{
			{Name: "g", Count: count, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": cpu}},
		},
	}}
}

func machine(id string, cpu int64) *engine.RegisterNode {
	return &engine.RegisterNode{
		Gateway: "gw", Node: plimsoll.Node{ID: id, Incarnation: 1, Capacity: plimsoll.Resources{"cpu": cpu}},
	}
}

func finished(node, job string, index int32) *engine.ReportTasks {
	return &engine.ReportTasks{Node: node, Incarnation: 1, Reports: []engine.Report{{
		Job: job, Group: "g", Index: index,
		TaskReport: plimsoll.TaskReport{Attempt: 1, State: plimsoll.TaskFinished, Result: plimsoll.ResultSucceeded},
	}}}
}
