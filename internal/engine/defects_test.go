package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// The tests of this file show that the engine lacks defects of YuniKorn; docs/yunikorn.md lists
// them.

// told runs turns until no work is left, and returns their events: type, change, detail, object.
func (b *bench) told() (list []string) {
	b.t.Helper()
	for more := true; more; {
		more = b.turn()
		for i := range b.out.Changes.Events {
			e := &b.out.Changes.Events[i]
			list = append(list, fmt.Sprintf("%v %v %v %s %s", e.Type, e.Change, e.Detail, e.Object, e.Reference))
		}
	}
	return list
}

// The event about the maximum of root has the new total, when a node joins or its
// capacity changes.
func TestTheMaxOfRootIsTheNewTotal(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	wants := func(do engine.Operation, cpu int64) {
		t.Helper()
		b.send(do)
		got := int64(-1)
		for more := true; more; {
			more = b.turn()
			for i := range b.out.Changes.Events {
				if e := &b.out.Changes.Events[i]; e.Detail == plimsoll.QueueMax {
					got = e.Resources[plimsoll.CPU]
				}
			}
		}
		if got != cpu {
			t.Errorf("the event about the max of root has cpu %d, want %d (-1: no event)", got, cpu)
		}
	}
	b.settle() // the events of the queues
	wants(machine("n1", 4000), 4000)
	wants(machine("n2", 8000), 12_000)
	wants(machine("n2", 2000), 6000)
}

// A node that is refused has no event: readers never learn of a node that does not exist.
func TestARefusedNodeHasNoEvent(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.settle() // the events of the queues
	bad := machine("n1", 4000)
	bad.Node.Capacity = plimsoll.Resources{plimsoll.CPU: -1}
	id := b.send(bad)
	if list := b.told(); len(list) > 0 {
		t.Errorf("a refused node has the events %q", list)
	}
	b.wantCode(id, plimsoll.CodeInvalid)
}

// Many tasks that fit nowhere, of a high priority, keep nothing back from others.
func TestATaskThatFitsIsNotStarvedByThoseThatDoNot(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.send(machine("n1", 4000), machine("n2", 4000))
	for i := range 20 {
		large := job(fmt.Sprint("large", i), 5, int64(5000+i))
		large.Spec.Groups[0].Priority = 100
		b.send(large)
	}
	b.settle()
	b.send(job("small", 8, 1000))
	b.settle()
	if n := b.running("small"); n != 8 {
		t.Errorf("%d tasks of the small job have a node, want 8", n)
	}
}

// Tracking that is switched off and on again has events again.
func TestTrackingThatIsSwitchedOnAgainHasEvents(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	submit := func(name, tracking string) (events int) {
		id := b.send(&engine.SetEventSettings{Settings: map[string]string{"trackingEventsEnabled": tracking}})
		b.told()
		if err := b.reply(id); err != nil {
			t.Fatal(err)
		}
		b.send(job(name, 1, 1000))
		return len(b.told())
	}
	if off := submit("off", "false"); off != 0 {
		t.Errorf("with tracking off there are %d events", off)
	}
	if on := submit("on", "true"); on == 0 {
		t.Error("with tracking on again there are no events")
	}
}

// The last event about a job is the one that it has gone, also of a job that was killed while its
// tasks ran.
func TestAKilledJobHasNoEventAfterItIsGone(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.send(machine("n1", 4000), job("j", 3, 2000)) // one waits
	b.settle()
	b.send(&engine.KillJob{ID: "j"})
	list := b.told()
	for i := range int32(2) {
		r := engine.Report{Job: "j", Group: "g", Index: i}
		r.Attempt, r.State, r.Result = 1, plimsoll.TaskFinished, plimsoll.ResultKilled
		b.send(&engine.ReportTasks{Node: "n1", Incarnation: 1, Reports: []engine.Report{r}})
	}
	list = append(list, b.told()...)
	b.send(&engine.DeleteJob{ID: "j"})
	list = append(list, b.told()...)
	if last := list[len(list)-1]; last != "APP REMOVE DETAILS_NONE j " {
		t.Errorf("the last event is %q; all are %q", last, list)
	}
	for _, want := range []string{"APP SET APP_FAILED j ", "QUEUE REMOVE QUEUE_APP root.default j"} {
		if !slices.Contains(list, want) {
			t.Errorf("there is no event %q among %q", want, list)
		}
	}
}
