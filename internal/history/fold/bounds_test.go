package fold_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
)

// busy returns the events of jobs that each have a task on a node.
func busy(at int64, from, jobs int) (events []plimsoll.Event) {
	for i := from; i < from+jobs; i++ {
		id := fmt.Sprint("j", i)
		events = append(events, all(submitted(at, id), requested(at, id+".g.0"), bound(at, id+".g.0", "n"))...)
	}
	return events
}

// A call counts some open allocations, and the others when a minute has gone by. So it makes few
// rollups however many tasks run.
func TestOpenAllocationsAreCountedNowAndThen(t *testing.T) {
	f, h := fold.New(), newHistory()
	h.apply(t, f, all(node(0, "n"), busy(0, 0, 1000))...)
	tick := func(at int64) int {
		before := h.seconds(0)
		h.apply(t, f, plimsoll.Event{
			Type: plimsoll.EventNode, Change: plimsoll.ChangeSet, Detail: plimsoll.NodeReady, Time: at, Object: "n",
		})
		return int(h.seconds(0) - before)
	}
	if got := tick(second); got != fold.OpenEach {
		t.Errorf("after a second %d s are counted, want one of each of %d tasks", got, fold.OpenEach)
	}
	if got, want := tick(fold.OpenEvery), 1000*60-fold.OpenEach; got > want || got < want-fold.OpenEach*60 {
		t.Errorf("after a minute %d s more are counted, want nearly %d", got, want)
	}
	if got := tick(2*fold.OpenEvery + second); int(h.seconds(0)) != 1000*121 {
		t.Errorf("after two minutes %d s more are counted, and %v in all", got, h.seconds(0))
	}
}

// Large labels, and a long time in which nothing happened: a call makes no more than fits, and
// the next calls make the rest.
func TestACallMakesNoMoreThanFits(t *testing.T) {
	f, h := fold.New(), newHistory()
	labels := map[string]string{}
	for i := range plimsoll.MaxLabels {
		labels[fmt.Sprint("key", i)] = strings.Repeat("x", plimsoll.MaxLabelValue)
	}
	events := busy(0, 0, 200)
	for i, taken := 0, 0; i < len(events) && taken < 100; i++ {
		if history.Begins(&events[i]) {
			events[i].Head, taken = &plimsoll.JobHead{Owner: "alice", Labels: labels}, taken+1
		}
	}
	if calls := h.apply(t, f, all(node(0, "n"), events)...); calls < 5 {
		t.Errorf("jobs with 7 MB of labels are taken in by %d calls", calls)
	}
	const hours = 50
	h.apply(t, f, requested(hours*hour, "j0.g.1")...)
	if got := h.seconds(0); got >= 200*hours*3600 {
		t.Fatal("one call has made the usage of all hours")
	}
	for i := range 400 {
		if i == 100 { // what is owed survives a restart
			decoded, err := fold.Decode(f.AppendState(nil))
			if err != nil {
				t.Fatal(err)
			}
			f = decoded
		}
		h.apply(t, f, requested(hours*hour, "j0.g.1")...)
	}
	if got := h.seconds(0); got != 200*hours*3600 {
		t.Errorf("%v s are counted, want %d", got, 200*hours*3600)
	}
	for life := range int64(200) {
		if got := h.seconds(life + 1); got != hours*3600 {
			t.Errorf("life %d has used %v s", life+1, got)
		}
	}
}

// Memory is given back with the objects.
func TestMemoryIsThatOfTheObjects(t *testing.T) {
	f := fold.New()
	empty := f.Memory()
	for round := range 5 {
		at := int64(round) * second
		f.Apply(all(node(at, "n"), busy(at, 0, 100)))
		if full := f.Memory(); full < empty+100*500 {
			t.Fatalf("100 jobs take %d bytes", full-empty)
		}
		for i := range 100 {
			id := fmt.Sprint("j", i)
			f.Apply(all(ended(at, id+".g.0", "n", plimsoll.ResultSucceeded), removed(at, id)))
		}
		f.Apply([]plimsoll.Event{{
			Type: plimsoll.EventNode, Change: plimsoll.ChangeRemove, Detail: plimsoll.NodeDecomission, Object: "n",
		}})
		if got := f.Memory(); got != empty {
			t.Fatalf("a fold of nothing takes %d bytes, and %d before", got, empty)
		}
	}
}
