package wire_test

import (
	"math"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Equal samples are left out, and those that ended more than a day ago are dropped. The sample that
// held when the day began stays.
func TestCountsLookBackADay(t *testing.T) {
	var c wire.Counts
	add := func(minute int64, jobs int32, want bool) {
		t.Helper()
		if got := c.Add(wire.Count{Minute: minute, Jobs: jobs}, minute); got != want {
			t.Errorf("minute %d with %d jobs was added: %v", minute, jobs, got)
		}
	}
	add(10, 1, true)
	add(20, 1, false)
	add(30, 2, true)
	add(30+wire.CountedMinutes-1, 3, true)
	if len(c) != 3 {
		t.Errorf("a sample that held a day ago is gone: %v", c)
	}
	add(30+wire.CountedMinutes, 4, true)
	want := wire.Counts{
		{Minute: 30, Jobs: 2},
		{Minute: 30 + wire.CountedMinutes - 1, Jobs: 3},
		{Minute: 30 + wire.CountedMinutes, Jobs: 4},
	}
	if !slices.Equal(c, want) {
		t.Errorf("got %v, want %v", c, want)
	}
}

func TestCountsComeBackAsTheyWere(t *testing.T) {
	full := make(wire.Counts, wire.CountedMinutes+1)
	for i := range full {
		full[i] = wire.Count{Minute: math.MaxInt64/2 + int64(i), Jobs: math.MaxInt32, Tasks: math.MaxInt32}
	}
	for _, c := range []wire.Counts{{}, {{1, 2, 3}}, {{1, 2, 3}, {2, 0, 0}, {900, 0, 1}}, full} {
		data := wire.AppendCounts(nil, c)
		if len(data) > wire.CountsBytes {
			t.Errorf("%d samples take %d bytes, which is more than %d", len(c), len(data), wire.CountsBytes)
		}
		got, err := wire.DecodeCounts(data)
		if err != nil || !slices.Equal(got, c) {
			t.Errorf("%d samples came back as %d: %v", len(c), len(got), err)
		}
	}
}

func TestCountsThatContradictThemselvesAreRefused(t *testing.T) {
	for name, data := range map[string][]byte{
		"no message":      {0xff},
		"unequal lists":   {10, 1, 5, 18, 2, 1, 1},
		"the same minute": wire.AppendCounts(nil, wire.Counts{{5, 1, 1}, {5, 2, 2}}),
	} {
		if _, err := wire.DecodeCounts(data); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
			t.Errorf("%s: %v", name, err)
		}
	}
}
