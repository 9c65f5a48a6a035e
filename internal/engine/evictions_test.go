package engine_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// evictions counts the evictions in the records of all nodes.
func (b *bench) evictions(nodes int) (n int) {
	for i := range nodes {
		n += len(b.engine.State().Node(fmt.Sprintf("n%d", i)).Evictions)
	}
	return n
}

func (b *bench) mode(nodes int, mode plimsoll.NodeMode) {
	b.t.Helper()
	for i := range nodes {
		b.send(&engine.SetNodeMode{ID: fmt.Sprintf("n%d", i), Mode: mode})
	}
	b.settle()
}

// An ended job is removed from the records of many nodes that have evicted it. The removal goes in
// parts, goes on after a crash, and precedes the end of the job's own records.
func TestManyNodesForgiveAnEndedJobWithinTinyLimits(t *testing.T) {
	const nodes = 200
	b := newBench(t, state.Config{KeepEnded: 1e9, EvictedFor: 3600e9}, state.Limits{Ops: 40})
	for i := range nodes {
		b.send(machine(fmt.Sprintf("n%d", i), 1000))
	}
	b.send(job("j", nodes, 1000))
	b.settle()
	b.mode(nodes, plimsoll.NodeCordoned) // so that nothing is placed again
	for i := range nodes {
		ref, _ := b.engine.State().FindTask("j", "g", int32(i))
		r := engine.Report{Job: "j", Group: "g", Index: int32(i)}
		r.Attempt, r.State, r.Result = 1, plimsoll.TaskFinished, plimsoll.ResultEvicted
		b.send(&engine.ReportTasks{Node: ref.Task().Node, Incarnation: 1, Reports: []engine.Report{r}})
	}
	b.settle()
	if n := b.evictions(nodes); n != nodes {
		t.Fatalf("%d nodes keep the job away, want %d: the test tests nothing", n, nodes)
	}
	b.send(&engine.KillJob{ID: "j"})
	for b.turn() && b.evictions(nodes) > nodes/2 {
	}
	if n := b.evictions(nodes); n == 0 {
		t.Fatal("all nodes forgave in a turn: the test tests nothing")
	}
	b.now += 2e9 // it is time to forget the job
	b.crash()
	other := job("j", 1, 1000)
	other.Spec.Token = "other"
	taken := b.send(other)
	b.turn()
	if b.evictions(nodes) > 0 && b.reply(taken) == nil {
		t.Fatal("the id was given away while nodes keep its job away")
	}
	b.settle()
	b.same()
	if n, known := b.evictions(nodes), b.engine.State().Job("j") != nil; n != 0 || known {
		t.Fatalf("%d evictions are left, the job is known: %t", n, known)
	}
	b.mode(nodes, plimsoll.NodeActive)
	again := b.send(job("j", nodes, 1000))
	b.settle()
	if err := b.reply(again); err != nil {
		t.Fatal(err)
	}
	if c := b.engine.State().Job("j").Groups[0].Counts; c.Bound != nodes {
		t.Fatalf("%+v: the nodes keep another job of the same id away", c)
	}
}
