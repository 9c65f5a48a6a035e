package placement_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Releases compare as numbers, part by part: 10.0 comes after 7.0. One that is not known, or no
// number, is older than all.
func TestReleasesCompareAsNumbers(t *testing.T) {
	order := []string{"", "6.5", "7.0", "7.0.1", "7.9", "7.10", "10.0", "100.0", "99999999999999999999.0"}
	for i, release := range order {
		for k, other := range order[1:] {
			for _, table := range []struct {
				field string
				r     plimsoll.PlatformRange
				old   bool // what is older passes
			}{
				{"min", plimsoll.PlatformRange{Min: map[string]string{other: "20260101T000000Z"}}, false},
				{"max", plimsoll.PlatformRange{Max: map[string]string{other: "20260101T000000Z"}}, true},
			} {
				if strings.Count(other, ".") != 1 || i == k+1 {
					continue // tables list numbers with one point
				}
				f := fleetOf(1, func(_ int, s *placement.Server) { s.Release = release })
				r := asks(1, func(r *placement.Request) { r.Constraints.Platform = table.r })
				got := len(survivors(t, f, r, "platform-versions")) == 1
				if want := (i < k+1) == table.old; got != want {
					t.Errorf("%q with %s %q: passes: %t, want %t", release, table.field, other, got, want)
				}
			}
		}
	}
}

// A release that is listed must have the stamp of its entry, however its number is written; one
// that is not listed passes between two that are.
func TestListedReleases(t *testing.T) {
	table := map[string]string{"7.9": "20250101T000000Z", "10.0": "20260101T000000Z"}
	for _, test := range []struct {
		release, platform string
		min, max          bool
	}{
		{"10.0", "20260101T000000Z", true, true},
		{"10.0", "20251231T000000Z", false, true},
		{"10.00", "20260102T000000Z", true, false},
		{"7.10", "20200101T000000Z", true, true},
		{"7.9", "20240101T000000Z", false, true},
		{"11.0", "20200101T000000Z", true, false},
		{"7.8", "20300101T000000Z", false, true},
		{"dev", "20300101T000000Z", false, true},
	} {
		f := fleetOf(1, func(_ int, s *placement.Server) { s.Release, s.Platform = test.release, test.platform })
		for field, want := range map[string]bool{"min": test.min, "max": test.max} {
			r := asks(1, func(r *placement.Request) {
				if field == "min" {
					r.Constraints.Platform.Min = table
				} else {
					r.Constraints.Platform.Max = table
				}
			})
			if got := len(survivors(t, f, r, "platform-versions")) == 1; got != want {
				t.Errorf("%s of %s with %s: passes: %t, want %t", test.platform, test.release, field, got, want)
			}
			p := prepare(t, placement.Default(), f, r)
			record := f.Record(0)
			if got := p.Query().Matches(&record); got != want {
				t.Errorf(
					"%s of %s with %s: the query matches: %t, want %t", test.platform, test.release, field, got, want,
				)
			}
		}
	}
}

// A stage with another order of releases keeps what that order says, and stays out of queries,
// which know one order.
func TestPlatformStageOfAnotherOrder(t *testing.T) {
	stages := placement.Stages()
	i := slices.IndexFunc(stages, func(s placement.Stage) bool { return s.Name == "platform-versions" })
	stages[i] = placement.PlatformStage(strings.Compare)
	f := fleetOf(1, func(_ int, s *placement.Server) { s.Release, s.Platform = "10.0", "20200101T000000Z" })
	r := asks(1, func(r *placement.Request) {
		r.Constraints.Platform.Min = map[string]string{"7.0": "20260101T000000Z"}
	})
	p := prepare(t, chainWith(t, placement.DefaultExpression(), stages), f, r)
	if c := newPlacer(f, 1).Place(p, 0); c.Slot >= 0 {
		t.Error(`"10.0" is placed on, and comes before "7.0" as a text`)
	}
	if q := p.Query(); len(q.Platforms) > 0 {
		t.Errorf("the query asks for %v", q.Platforms)
	}
	if slot := slotOf(t, f, r, 1); slot != 0 {
		t.Error("10.0 is refused, and comes after 7.0 as a number")
	}
}
