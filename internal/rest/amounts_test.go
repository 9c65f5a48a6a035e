package rest

import (
	"maps"
	"math"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// Sums and products stay at the largest number instead of becoming negative.
func TestAmountsDoNotOverflow(t *testing.T) {
	a := amounts{}
	a.add(plimsoll.Resources{plimsoll.CPU: math.MaxInt64 - 1, plimsoll.Memory: 1 << 53}, 1)
	a.add(plimsoll.Resources{plimsoll.CPU: 5, plimsoll.Memory: 1 << 53}, 1<<20)
	if want := (amounts{"vcore": math.MaxInt64, "memory": math.MaxInt64}); !maps.Equal(a, want) {
		t.Errorf("got %v, want %v", a, want)
	}
}

func TestPercentagesAreRoundedDown(t *testing.T) {
	for _, of := range []struct{ used, whole, want int64 }{
		{0, 100, 0},
		{29, 100, 29},
		{1, 3, 33},
		{299, 300, 99},
		{300, 300, 100},
		{600, 300, 200}, // a node that came back with less than its tasks hold
		{math.MaxInt64, math.MaxInt64, 100},
		{math.MaxInt64, 1, math.MaxInt64},
	} {
		if got := percentage(of.used, of.whole); got != of.want {
			t.Errorf("%d of %d is %d %%, want %d", of.used, of.whole, got, of.want)
		}
	}
	p := percentages(amounts{"vcore": 1, "gpu": 1}, amounts{"vcore": 2, "disk": 0})
	if want := (amounts{"vcore": 50}); !maps.Equal(p, want) {
		t.Errorf("got %v, want %v", p, want)
	}
}

func TestWhatIsLeftIsNeverNegative(t *testing.T) {
	left := amounts{"vcore": 2, "memory": 5}.minus(amounts{"vcore": 3, "gpu": 1})
	if want := (amounts{"vcore": 0, "memory": 5}); !maps.Equal(left, want) {
		t.Errorf("got %v, want %v", left, want)
	}
}
