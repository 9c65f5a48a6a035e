package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// mixed returns twelve servers of which each says something else.
func mixed() *placement.Fleet {
	return fleetOf(12, func(i int, s *placement.Server) {
		switch i {
		case 0:
			s.Status = "not heard from"
		case 1:
			s.Reserved = "cordoned"
		case 2, 3:
			s.Reserved = "draining"
		case 4:
			used(plimsoll.Resources{"cpu": 3500})(s)
		case 5:
			used(plimsoll.Resources{"memory": 8 * gib})(s)
		case 6:
			s.Capacity["cpu"] = 500
		case 7:
			s.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
		case 8:
			s.Traits, s.Reserved = map[string]plimsoll.Trait{"ssd": {Flag: true}}, "draining"
		}
	})
}

// Explain counts every server once at the stage that drops it, and for each filter all servers that
// it refuses. Open and eligible servers, those with room if empty, and those with room now are
// counted separately.
func TestExplainCounts(t *testing.T) {
	f := mixed()
	f.Remove(11)
	r := asks(1000, func(r *placement.Request) { r.Resources["memory"] = gib })
	x := newPlacer(f, 1).Explain(prepare(t, placement.Default(), f, r), 0)
	if x.Servers != 11 || x.Open != 6 || x.Eligible != 9 || x.FitEmpty != 8 || x.Fit != 2 {
		t.Errorf(
			"servers %d, open %d, eligible %d, would fit if empty %d, fit %d; want 11, 6, 9, 8, 2", x.Servers, x.Open,
			x.Eligible, x.FitEmpty, x.Fit,
		)
	}
	want := map[string][2]int{
		"running": {1, 1}, "reserved": {4, 4}, "traits": {1, 2}, "min-memory": {1, 1}, "min-cpu": {2, 2},
	}
	for _, step := range x.Steps {
		if got := [2]int{step.Dropped, step.Refused}; got != want[step.Stage] {
			t.Errorf("%s: %v dropped and refused, want %v", step.Stage, got, want[step.Stage])
		}
	}
	summary := "1 of 11 nodes: not heard from; 3 of 11 nodes: draining; 1 of 11 nodes: cordoned; 1 of 11 nodes: has trait ssd, which is not asked for; " +
		"1 of 11 nodes: not enough memory; 2 of 11 nodes: not enough cpu"
	if got := x.Summary(); got != summary {
		t.Errorf("summary\n%s, want\n%s", got, summary)
	}
}

// The summary of a fleet without servers, and of one where all have room.
func TestSummaries(t *testing.T) {
	for n, want := range map[int]string{0: "there is no node", 3: "3 of 3 nodes have room"} {
		f := fleetOf(n)
		if x := newPlacer(f, 1).Explain(prepare(t, placement.Default(), f, asks(1)), 0); x.Summary() != want {
			t.Errorf("%q, want %q", x.Summary(), want)
		}
	}
}

// A reason names at most ten servers, in the order of the fleet, and a step at most a hundred
// reasons: the rest is told as one.
func TestExplainIsBounded(t *testing.T) {
	f := fleetOf(30)
	x := newPlacer(f, 1).Explain(prepare(t, placement.Default(), f, asks(9000)), 0)
	reason := x.Steps[slices.IndexFunc(x.Steps, func(s placement.Step) bool { return s.Stage == "min-cpu" })].Reasons[0]
	if len(reason.Examples) != 10 || reason.Examples[9] != "n9" || reason.Servers != 30 {
		t.Errorf("%+v", reason)
	}
	f = fleetOf(250, func(i int, s *placement.Server) { s.Reserved = fmt.Sprint("reason ", i) })
	x = newPlacer(f, 1).Explain(prepare(t, placement.Default(), f, asks(1)), 0)
	reasons := x.Steps[slices.IndexFunc(x.Steps, func(s placement.Step) bool { return s.Stage == "reserved" })].Reasons
	sum := 0
	for _, r := range reasons {
		sum += r.Servers
	}
	if len(reasons) != 100 || reasons[0].Text != "other reasons" || reasons[0].Servers != 151 || sum != 250 {
		t.Errorf("%d reasons of %d servers, the most frequent %+v", len(reasons), sum, reasons[0])
	}
}

// The steps of a placement are recorded too, added up over all its batches, and a preference is no
// reason for a refusal.
func TestPlaceRecordedAddsUpBatches(t *testing.T) {
	f := fleetOf(170, func(i int, s *placement.Server) {
		if i%10 == 0 {
			s.Reserved = "cordoned"
		}
	})
	choice, steps := newPlacer(f, 1).PlaceRecorded(prepare(t, placement.Default(), f, asks(9000)), 0)
	got := map[string]placement.Step{}
	for _, s := range steps {
		got[s.Stage] = s
	}
	if choice.Slot != -1 || choice.Batches != 4 || choice.Looked != 153 {
		t.Errorf("%+v", choice)
	}
	if s := got["reserved"]; s.Received != 170 || s.Dropped != 17 {
		t.Errorf("%+v", s)
	}
	if s := got["min-cpu"]; s.Received != 153 || s.Remaining != 0 || s.Kind != placement.NoRoom ||
		s.Reasons[0].Servers != 153 {
		t.Errorf("%+v", s)
	}
}

// One server is asked everything, whatever dropped it first.
func TestExplainServerTellsAllReasons(t *testing.T) {
	f := mixed()
	r := asks(5000, func(r *placement.Request) { r.Constraints.Nodes = []string{"x*"} })
	pl, p := newPlacer(f, 1), prepare(t, placement.Default(), f, r)
	got := map[string]string{}
	for _, v := range pl.ExplainServer(p, 8, 0) {
		if v.Why != "" {
			got[v.Stage] = v.Kind.String() + ": " + v.Why
		}
	}
	want := map[string]string{
		"reserved": "closed: draining", "traits": "not eligible: has trait ssd, which is not asked for",
		"names": "not eligible: not one of the nodes that are asked for", "min-cpu": "no room: not enough cpu",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	eligible, empty := pl.Suits(prepare(t, placement.Default(), f, asks(3000)), 4, 0)
	if !eligible || !empty || pl.Keeps(prepare(t, placement.Default(), f, asks(3000)), 4, 0) {
		t.Errorf("a full server: eligible %t, room if empty %t", eligible, empty)
	}
	if eligible, _ := pl.Suits(prepare(t, placement.Default(), f, asks(1)), 7, 0); eligible {
		t.Error("a server with a trait is for a request without")
	}
}
