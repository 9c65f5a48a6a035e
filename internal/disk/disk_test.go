package disk

import (
	"testing"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// The least free space is the smaller of 5 % and 2 GiB.
func TestTheLeastIsTheSmallerOf5PercentAnd2GiB(t *testing.T) {
	for size, want := range map[int64]int64{
		0: 0, 100 * mib: 5 * mib, 40 * gib: 2 * gib, 39 * gib: 39 * gib / 20, 1 << 45: 2 * gib,
	} {
		if got := (Space{Size: size}).Least(); got != want {
			t.Errorf("of %d bytes %d must be free, want %d", size, got, want)
		}
	}
}

// A gate shuts below the least and opens when a tenth more is free.
func TestAGateOpensATenthAboveWhereItShuts(t *testing.T) {
	var g Gate
	for i, step := range []struct {
		free int64
		shut bool
	}{
		{50 * mib, false},
		{49 * mib, true},
		{54 * mib, true},
		{55 * mib, false},
		{50 * mib, false},
		{0, true},
	} {
		if got := g.Shut(Space{Free: step.free, Size: 1000 * mib}); got != step.shut {
			t.Errorf("step %d, %d MiB free: shut %t, want %t", i, step.free/mib, got, step.shut)
		}
	}
	if g.Shut(Space{}) {
		t.Error("a file system without a size shuts it")
	}
}

// A shortage names the path, the free and the needed amount, and the reason.
func TestAShortageSaysWhatIsMissing(t *testing.T) {
	s := Space{Path: "/data", Free: 120*mib + 1234, Size: 1 << 40}
	if got, want := s.Shortage(), "the disk of /data has 120Mi free and needs 2Gi"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got, want := (Space{
		Path: "/d", Free: 5*mib/2 + 3, Size: 64 * mib,
	}).Shortage(), "the disk of /d has 2560Ki free and needs 3276Ki"; got != want {
		t.Errorf("of a small one it says %q, want %q", got, want)
	}
	if got, want := (Space{Size: 200 * mib}).Enough(), "11Mi free"; got != want {
		t.Errorf("it opens with %q, want %q", got, want)
	}
}

// The file system of a directory has a size, and less free than that. A missing path is an error.
func TestMeasure(t *testing.T) {
	s, err := Measure(t.TempDir())
	if err != nil || s.Size <= 0 || s.Free < 0 || s.Free > s.Size {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Measure("/no/such/directory"); err == nil {
		t.Error("a path that is not there was measured")
	}
}
