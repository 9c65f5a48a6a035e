package fold_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
)

const (
	second = int64(time.Second)
	hour   = int64(time.Hour)
)

var small = plimsoll.Resources{plimsoll.CPU: 500, plimsoll.Memory: 1 << 30}

// The functions below make the events of an action, as the state tells them.

func submitted(at int64, id string) []plimsoll.Event {
	return []plimsoll.Event{
		{Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Time: at, Object: id},
		{Type: plimsoll.EventApp, Change: plimsoll.ChangeSet, Detail: plimsoll.AppNew, Time: at, Object: id},
		{
			Type: plimsoll.EventQueue, Change: plimsoll.ChangeAdd, Detail: plimsoll.QueueApp, Time: at,
			Object: plimsoll.DefaultQueue, Reference: id,
		},
	}
}

// of gives the first of the events of a job its head.
func of(owner string, events []plimsoll.Event) []plimsoll.Event {
	events[0].Head = &plimsoll.JobHead{
		UID: plimsoll.MakeUID(events[0].Time+1, 1), Owner: owner, Labels: map[string]string{"team": owner},
	}
	return events
}

func node(at int64, id string) []plimsoll.Event {
	return []plimsoll.Event{
		{Type: plimsoll.EventNode, Change: plimsoll.ChangeAdd, Time: at, Object: id, Resources: small},
		{
			Type: plimsoll.EventNode, Change: plimsoll.ChangeSet, Detail: plimsoll.NodeReady, Time: at, Object: id,
			Message: "ready: true",
		},
	}
}

func ofTask(at int64, change plimsoll.ChangeType, detail plimsoll.ChangeDetail, task, message string) plimsoll.Event {
	job, _, _ := strings.Cut(task, ".")
	return plimsoll.Event{
		Type: plimsoll.EventApp, Change: change, Detail: detail, Time: at, Object: job, Reference: task,
		Resources: small, Message: message,
	}
}

func requested(at int64, task string) []plimsoll.Event {
	return []plimsoll.Event{ofTask(at, plimsoll.ChangeAdd, plimsoll.AppRequest, task, "")}
}

func onNode(at int64, change plimsoll.ChangeType, task, node string) plimsoll.Event {
	return plimsoll.Event{
		Type: plimsoll.EventNode, Change: change, Detail: plimsoll.NodeAlloc, Time: at, Object: node, Reference: task,
		Resources: small,
	}
}

func bound(at int64, task, node string) []plimsoll.Event {
	return []plimsoll.Event{
		onNode(at, plimsoll.ChangeAdd, task, node), ofTask(at, plimsoll.ChangeAdd, plimsoll.AppAlloc, task, ""),
	}
}

// released ends an attempt that is followed by another one.
func released(at int64, task, node string, result plimsoll.TaskResult) []plimsoll.Event {
	return []plimsoll.Event{
		ofTask(at, plimsoll.ChangeRemove, plimsoll.AllocCancel, task, result.String()),
		onNode(at, plimsoll.ChangeRemove, task, node),
	}
}

func ended(at int64, task, node string, result plimsoll.TaskResult) []plimsoll.Event {
	return append(released(at, task, node, result), ofTask(at, plimsoll.ChangeRemove, plimsoll.AppRequest, task, ""))
}

func removed(at int64, id string) []plimsoll.Event {
	return []plimsoll.Event{{Type: plimsoll.EventApp, Change: plimsoll.ChangeRemove, Time: at, Object: id}}
}

func all(parts ...[]plimsoll.Event) (events []plimsoll.Event) {
	for _, p := range parts {
		events = append(events, p...)
	}
	return events
}

// history1 adds up the results of calls, as a store does.
type history1 struct {
	jobs map[int64]history.Job
	rows map[rowKey]*history.Sums
}

type rowKey struct {
	hour  int64
	group history.Group
}

func newHistory() *history1 {
	return &history1{map[int64]history.Job{}, map[rowKey]*history.Sums{}}
}

// apply applies events and checks that the results fit in a batch.
func (h *history1) apply(t *testing.T, f *fold.Fold, events ...plimsoll.Event) (calls int) {
	t.Helper()
	for len(events) > 0 {
		r := f.Apply(events)
		if r.Taken < 1 {
			t.Fatal("a call takes no event")
		}
		b := history.Batch{Objects: r.Objects, Jobs: r.Jobs, Rollups: r.Rollups}
		if b.Bytes() > 3<<20 {
			t.Fatalf("a call makes %d bytes", b.Bytes())
		}
		for _, j := range r.Jobs {
			h.jobs[j.Life] = j
		}
		for i := range r.Rollups {
			key := rowKey{r.Rollups[i].Hour, r.Rollups[i].Group}
			if h.rows[key] == nil {
				h.rows[key] = &history.Sums{}
			}
			h.rows[key].Add(&r.Rollups[i].Sums)
		}
		events = events[r.Taken:]
		calls++
	}
	return calls
}

// sums adds up the rows of a life, or with 0 of all.
func (h *history1) sums(life int64) *history.Sums {
	s := &history.Sums{}
	for key, row := range h.rows {
		if life == 0 || key.group.Life == life {
			s.Add(row)
		}
	}
	return s
}

// seconds returns the use of a CPU resource of 500m in seconds.
func (h *history1) seconds(life int64) float64 {
	return h.sums(life).Used[plimsoll.CPU].Seconds() / 500
}

func TestUsageIsSplitAtTheHour(t *testing.T) {
	f, h := fold.New(), newHistory()
	h.apply(t, f, all(
		node(0, "n"), submitted(0, "j"), requested(0, "j.g.0"), bound(hour-10*second, "j.g.0", "n"),
		ended(2*hour+30*second, "j.g.0", "n", plimsoll.ResultSucceeded),
	)...)
	group := history.Group{Life: 1, Queue: plimsoll.DefaultQueue}
	for i, want := range []float64{10, 3600, 30} {
		row := h.rows[rowKey{int64(i) * 3600, group}]
		if got := row.Used[plimsoll.CPU].Seconds() / 500; got != want {
			t.Errorf("hour %d has %v s, want %v", i, got, want)
		}
	}
	if got, want := h.sums(0).Used[plimsoll.Memory], history.AmountOf(1<<30, hour+40*second); got != want {
		t.Errorf("memory: %v, want %v", got, want)
	}
}

// The clock of a new leader may be behind the one of the leader before.
func TestTimeThatGoesBackStandsStill(t *testing.T) {
	f, h := fold.New(), newHistory()
	h.apply(t, f, all(
		node(0, "n"), submitted(100*second, "j"), requested(100*second, "j.g.0"), bound(90*second, "j.g.0", "n"),
		requested(103*second, "j.g.1"), ended(50*second, "j.g.0", "n", plimsoll.ResultSucceeded),
	)...)
	if got := h.seconds(0); got != 3 {
		t.Errorf("%v s are counted, want 3", got)
	}
	if f.Time() != 103*second {
		t.Errorf("the time is %d", f.Time())
	}
}

func TestWaitsGoFromARequestToItsFirstAllocation(t *testing.T) {
	f, h := fold.New(), newHistory()
	h.apply(t, f, all(
		node(1, "n"), submitted(1, "j"), requested(second, "j.g.0"), bound(6*second, "j.g.0", "n"),
		released(7*second, "j.g.0", "n", plimsoll.ResultLost), bound(60*second, "j.g.0", "n"),
		ended(61*second, "j.g.0", "n", plimsoll.ResultKilled),
		requested(100*second, "j.g.0"), bound(102*second, "j.g.0", "n"),
	)...)
	w := h.sums(0).Waits
	if w.Count != 2 || w.Total != history.AmountOf(1, 7*second) || w.Longest != 5*second {
		t.Errorf("%d waits of %v in all, the longest %d; want 2 of 7 s, the longest 5 s", w.Count, w.Total, w.Longest)
	}
}

func TestTasksAreCountedByTheirResult(t *testing.T) {
	f, h := fold.New(), newHistory()
	h.apply(t, f, all(
		node(0, "n"), submitted(0, "j"), requested(0, "j.g.0"), requested(0, "j.g.1"), requested(0, "j.g.2"),
		bound(1, "j.g.0", "n"), ended(2, "j.g.0", "n", plimsoll.ResultSucceeded),
		bound(3, "j.g.1", "n"), released(4, "j.g.1", "n", plimsoll.ResultFailed),
		bound(5, "j.g.1", "n"), ended(6, "j.g.1", "n", plimsoll.ResultOutOfMemory),
		[]plimsoll.Event{ofTask(7, plimsoll.ChangeRemove, plimsoll.RequestCancel, "j.g.2", "scaled down")},
	)...)
	if s := h.sums(0); s.Started != 3 || s.Ended != 3 || s.Failed != 2 {
		t.Errorf("%d started, %d ended, %d failed; want 3, 3, 2", s.Started, s.Ended, s.Failed)
	}
}

// Each life of an id has a number and a group of its own, over restarts too.
func TestLivesAreCounted(t *testing.T) {
	f, h := fold.New(), newHistory()
	h.apply(t, f, all(of("owner1", submitted(10, "j")), removed(20, "j"), of("owner2", submitted(30, "k")))...)
	f, err := fold.Decode(f.AppendState(nil))
	if err != nil {
		t.Fatal(err)
	}
	h.apply(t, f, submitted(40, "j")...) // as an older version tells it
	want := map[int64]history.Job{
		1: {
			Life: 1, ID: "j", UID: plimsoll.MakeUID(11, 1), Owner: "owner1", Queue: plimsoll.DefaultQueue,
			Labels: map[string]string{"team": "owner1"}, State: plimsoll.AppNew, Submitted: 11,
		},
		2: {
			Life: 2, ID: "k", UID: plimsoll.MakeUID(31, 1), Owner: "owner2", Queue: plimsoll.DefaultQueue,
			Labels: map[string]string{"team": "owner2"}, State: plimsoll.AppNew, Submitted: 31,
		},
		3: {Life: 3, ID: "j", Queue: plimsoll.DefaultQueue, State: plimsoll.AppNew, Submitted: 40},
	}
	if diff := cmp.Diff(want, h.jobs); diff != "" {
		t.Error(diff)
	}
}

// An event belongs to the life that its job has then, and one about a job that was refused to none.
func TestObjectsAreListedOnce(t *testing.T) {
	f := fold.New()
	refused := []plimsoll.Event{
		{Type: plimsoll.EventApp, Change: plimsoll.ChangeRemove, Detail: plimsoll.AppReject, Object: "j"},
	}
	r := f.Apply(all(
		node(0, "n"), submitted(0, "j"), requested(0, "j.g.0"), bound(0, "j.g.0", "n"), refused, removed(1, "j"),
		submitted(2, "j"),
	))
	want := []history.Object{
		{Kind: history.KindNode, ID: "n"},
		{Kind: history.KindJob, ID: "j", Life: 1},
		{Kind: history.KindQueue, ID: plimsoll.DefaultQueue},
		{Kind: history.KindJob, ID: "j"},
		{Kind: history.KindJob, ID: "j", Life: 2},
	}
	if diff := cmp.Diff(want, r.Objects); diff != "" {
		t.Error(diff)
	}
}

// A refused job is a life without anything but its end.
func TestARefusalEndsTheLifeThatItBegan(t *testing.T) {
	f := fold.New()
	added := plimsoll.Event{Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Object: "j", Time: 5}
	refused := plimsoll.Event{
		Type: plimsoll.EventApp, Change: plimsoll.ChangeRemove, Detail: plimsoll.AppReject, Object: "j", Time: 5,
	}
	r := f.Apply([]plimsoll.Event{added, refused})
	want := []history.Job{{Life: 1, ID: "j", State: plimsoll.AppReject, Submitted: 5, Ended: 5}}
	if diff := cmp.Diff(want, r.Jobs); diff != "" || r.Unexpected > 0 || len(f.View().Jobs) > 0 {
		t.Errorf("%d events cannot be, %d jobs are left; %s", r.Unexpected, len(f.View().Jobs), diff)
	}
	if diff := cmp.Diff([]history.Object{{Kind: history.KindJob, ID: "j", Life: 1}}, r.Objects); diff != "" {
		t.Error(diff)
	}
}

func TestEventsThatCannotBeAreTold(t *testing.T) {
	for name, events := range map[string][]plimsoll.Event{
		"an allocation of a task that has one": all(
			requested(0, "j.g.0"), bound(1, "j.g.0", "n"), bound(2, "j.g.0", "n"),
		),
		"an end without an allocation":          all(requested(0, "j.g.0"), released(1, "j.g.0", "n", 0)),
		"a task of another job":                 {ofTask(0, plimsoll.ChangeAdd, plimsoll.AppRequest, "j.0", "")},
		"a task with an index that is too high": requested(0, "j.g.1000000"),
		"a job that is there":                   submitted(0, "j"),
		"an unknown node":                       {{Type: plimsoll.EventNode, Change: plimsoll.ChangeSet, Object: "x"}},
		"an unknown queue":                      {{Type: plimsoll.EventQueue, Change: plimsoll.ChangeSet, Object: "x"}},
	} {
		f := fold.New()
		if r := f.Apply(all(node(0, "n"), submitted(0, "j"))); r.Unexpected > 0 {
			t.Fatal(r.Example)
		}
		if r := f.Apply(events); r.Unexpected == 0 || r.Example == "" {
			t.Errorf("%s: nothing is told", name)
		}
	}
}
