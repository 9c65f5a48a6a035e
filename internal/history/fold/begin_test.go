package fold_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
)

// listedTask is a task of a list.
type listedTask struct {
	index   int32
	created int64
	bound   int64 // 0: it waits
}

// snapshot returns lists with a node, a queue, and a job j that was submitted at 1 s.
func snapshot(uid plimsoll.UID, tasks ...listedTask) *fold.Snapshot {
	s := fold.NewSnapshot()
	s.AddQueue(&plimsoll.QueueStatus{Path: plimsoll.DefaultQueue, Leaf: true})
	s.AddNode(&plimsoll.Node{ID: "n", Capacity: small, Ready: true, Mode: plimsoll.NodeActive})
	s.AddJob(&plimsoll.Job{
		Spec: plimsoll.JobSpec{ID: "j", Groups: []plimsoll.GroupSpec{{Name: "g", Resources: small}}},
		Status: plimsoll.JobStatus{
			ID: "j", UID: uid, Owner: "alice", Queue: plimsoll.DefaultQueue, State: plimsoll.JobRunning,
			Submitted: second,
		},
	})
	for _, t := range tasks {
		is := plimsoll.Task{Job: "j", Group: "g", Index: t.index, Created: t.created, State: plimsoll.TaskPending}
		if t.bound != 0 {
			is.State, is.Node, is.Bound, is.Attempt = plimsoll.TaskRunning, "n", t.bound, 1
		}
		s.AddTask(&is)
	}
	return s
}

// The lists are read at 110 s, and events are applied from 100 s on.
func TestALateFoldCountsFromItsBeginning(t *testing.T) {
	uid := plimsoll.MakeUID(second, 1)
	f, h := fold.Begin(snapshot(uid,
		listedTask{0, 2 * second, 3 * second},     // runs all the time
		listedTask{1, 2 * second, 105 * second},   // is bound between the event and the list
		listedTask{2, 2 * second, 106 * second},   // the same, in a second attempt
		listedTask{4, 2 * second, 0},              // waits
		listedTask{5, 101 * second, 102 * second}, // is requested and bound in between
		listedTask{6, 2 * second, 100 * second},   // is bound in the last turn before, or the first
	), 100*second), newHistory()
	h.apply(t, f, all(
		bound(100*second, "j.g.6", "n"), requested(101*second, "j.g.5"), bound(102*second, "j.g.5", "n"),
		ended(104*second, "j.g.3", "n", plimsoll.ResultSucceeded), // is not in the list any more
		bound(105*second, "j.g.1", "n"),
		released(105*second, "j.g.2", "n", plimsoll.ResultFailed), bound(106*second, "j.g.2", "n"),
		submitted(107*second, "k"), requested(107*second, "k.g.0"), bound(108*second, "k.g.0", "n"),
		ended(120*second, "j.g.0", "n", plimsoll.ResultSucceeded),
		bound(122*second, "j.g.4", "n"),
	)...)
	if got, want := h.seconds(1), float64(20+17+5+16+4+20+22); got != want {
		t.Errorf("job j has used %v s, want %v", got, want)
	}
	if got := h.seconds(2); got != 14 {
		t.Errorf("job k has used %v s, want 14", got)
	}
	if s := h.sums(0); s.Started != 6 || s.Ended != 2 || s.Failed != 0 {
		t.Errorf("%d started, %d ended, %d failed; want 6, 2, 0", s.Started, s.Ended, s.Failed)
	}
	if w := h.sums(0).Waits; w.Count != 3 || w.Total != history.AmountOf(1, (1+1+120)*second) {
		t.Errorf("%d waits of %v; want those of j.g.5, k.g.0 and j.g.4", w.Count, w.Total)
	}
	if j := h.jobs[1]; j.UID != uid || j.Owner != "alice" || j.Submitted != second {
		t.Errorf("job j is told as %+v", j)
	}
}

// A leader has bound a task with a clock that was ahead by 60 s. No event will tell it again.
func TestALateFoldCountsWhatNoEventTells(t *testing.T) {
	f, h := fold.Begin(snapshot(plimsoll.UID{}, listedTask{0, second, 160 * second}), 100*second), newHistory()
	if tasks := slices.Collect(f.Tasks("j")); len(tasks) != 1 || !tasks[0].Allocated || tasks[0].Node != "n" {
		t.Errorf("the task is not on its node: %+v", tasks)
	}
	h.apply(t, f, requested(120*second, "j.g.1")...)
	if got := h.seconds(0); got != 0 {
		t.Errorf("%v s are counted before the allocation", got)
	}
	h.apply(t, f, requested(170*second, "j.g.2")...)
	if got := h.seconds(0); got != 10 {
		t.Errorf("%v s are counted, want 10", got)
	}
}

// A job whose events go on, and that no list has shown, was there and is gone.
func TestAJobThatIsInNoListIsOneWithoutAnOwner(t *testing.T) {
	f, h := fold.Begin(fold.NewSnapshot(), 100*second), newHistory()
	h.apply(t, f, all(
		ended(110*second, "old.g.0", "n", plimsoll.ResultSucceeded), removed(120*second, "old"),
	)...)
	if got := h.seconds(1); got != 10 || h.jobs[1].ID != "old" || h.jobs[1].Owner != "" {
		t.Errorf("%v s of %+v are counted", got, h.jobs[1])
	}
	if v := f.View(); len(v.Jobs) != 0 {
		t.Errorf("jobs are left: %+v", v.Jobs)
	}
}

// The gap goes from 50 s to 100 s.
func TestAGapIsCountedThroughForTasksThatAreLeft(t *testing.T) {
	uid := plimsoll.MakeUID(second+1, 1)
	f, h := fold.New(), newHistory()
	h.apply(t, f, all(
		node(second, "n"), of("alice", submitted(second, "j")), requested(second, "j.g.0"), requested(second, "j.g.1"),
		requested(second, "j.g.3"), bound(40*second, "j.g.0", "n"), bound(40*second, "j.g.1", "n"),
		of("alice", submitted(45*second, "k")), requested(45*second, "k.g.0"), bound(50*second, "k.g.0", "n"),
	)...)
	f.Gap(snapshot(uid,
		listedTask{0, second, 40 * second}, // was open before, and is
		listedTask{2, second, 70 * second}, // is new
		listedTask{3, second, 0},           // waits all the time
	), 100*second)
	h.apply(t, f, all(
		bound(110*second, "j.g.3", "n"), ended(120*second, "j.g.0", "n", plimsoll.ResultSucceeded),
	)...)
	if got, want := h.seconds(1), float64(80+60+20+10); got != want {
		t.Errorf("job j has used %v s, want %v", got, want)
	}
	if got := h.seconds(2); got != 50 {
		t.Errorf("job k, which is gone, has used %v s, want 50", got)
	}
	if w := h.sums(1).Waits; w.Count != 3 || w.Longest != 109*second {
		t.Errorf("%d waits, the longest of %d; want 3, the longest of 109 s", w.Count, w.Longest)
	}
	if k := h.jobs[2]; k.Ended != 100*second || k.State != plimsoll.AppNew {
		t.Errorf("job k ends as %+v, want an end at the end of the gap in the last known state", k)
	}
	if j := h.jobs[1]; j.State != plimsoll.AppRunning || len(h.jobs) != 2 {
		t.Errorf("job j goes on as %+v, and there are %d lives", j, len(h.jobs))
	}
}

// Nodes have two switches, and a queue says what it is.
func TestTheViewShowsEachSwitch(t *testing.T) {
	nodeSet := func(detail plimsoll.ChangeDetail, message string) plimsoll.Event {
		return plimsoll.Event{
			Type: plimsoll.EventNode, Change: plimsoll.ChangeSet, Detail: detail, Object: "n", Message: message,
		}
	}
	queueSet := func(detail plimsoll.ChangeDetail, message string, r plimsoll.Resources) plimsoll.Event {
		return plimsoll.Event{
			Type: plimsoll.EventQueue, Change: plimsoll.ChangeSet, Detail: detail, Object: "root.a", Message: message,
			Resources: r,
		}
	}
	f := fold.New()
	f.Apply(all(node(0, "n"), []plimsoll.Event{
		nodeSet(plimsoll.NodeSchedulable, "schedulable: false"),
		nodeSet(plimsoll.NodeSchedulable, "schedulable: false (its agent has stopped new tasks: hot)"),
		nodeSet(plimsoll.NodeSchedulable, "schedulable: true"),
		nodeSet(plimsoll.NodeReady, "ready: false (its agent is not heard)"),
		{Type: plimsoll.EventQueue, Change: plimsoll.ChangeAdd, Object: "root.a"},
		queueSet(plimsoll.QueueType, "leaf queue: false", nil),
		queueSet(plimsoll.QueueMax, "", small),
		queueSet(plimsoll.QueueConfigured, "draining: true", nil),
	}))
	want := &fold.View{
		Nodes: []fold.Node{{ID: "n", Capacity: small, Allocated: plimsoll.Resources{}, Closed: true}},
		Queues: []fold.Queue{
			{Path: "root.a", Draining: true, Max: small, Allocated: plimsoll.Resources{}},
		},
	}
	if diff := cmp.Diff(want, f.View()); diff != "" {
		t.Error(diff)
	}
}
