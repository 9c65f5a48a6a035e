package placement_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll/placement"
)

// A server is sick from its second failure in a row until SickFor seconds after the first of the
// two. SickUntil agrees with the filter.
func TestSickUntilIsWhatTheFilterDoes(t *testing.T) {
	c := chainOf(t, placement.DefaultExpression(), func(s *placement.Settings) { s.SickFor = 100 })
	f := fleetOf(1)
	p := prepare(t, c, f, asks(1))
	pl := newPlacer(f, 1)
	for _, step := range []struct {
		at          int64
		failed      bool
		until, from int64 // until: as SickUntil says; from: the first second at which the server is taken again
	}{
		{1000, true, 0, 1000},
		{1040, true, 1100, 1100},
		{1090, true, 1140, 1140},
		{1145, false, 0, 1145},
		{1150, true, 0, 1150},
		{1151, true, 1250, 1250},
	} {
		f.Outcome(0, step.at, step.failed)
		if got := c.SickUntil(f, 0); got != step.until {
			t.Errorf("after %d: sick until %d, want %d", step.at, got, step.until)
		}
		for at := step.at; at <= step.from; at += 5 {
			if taken := pl.Place(p, at).Slot >= 0; taken != (at >= step.from) {
				t.Errorf("after %d: taken at %d: %v", step.at, at, taken)
			}
		}
	}
	f.Recover(0)
	if c.SickUntil(f, 0) != 0 || pl.Place(p, 1151).Slot != 0 {
		t.Error("a server that has recovered is still sick")
	}
}

// A chain without the filter has no sick servers.
func TestWithoutTheFilterNothingIsSick(t *testing.T) {
	f := fleetOf(1)
	f.Outcome(0, 10, true)
	f.Outcome(0, 11, true)
	if got := chainOf(t, stagesNamed("running")).SickUntil(f, 0); got != 0 {
		t.Errorf("sick until %d", got)
	}
}
