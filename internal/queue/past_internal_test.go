package queue

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// A weight of 1 becomes 2^(-time/half-life).
func TestAWeightFades(t *testing.T) {
	hour := uint64(time.Hour)
	for _, half := range []uint64{uint64(time.Minute), hour, 24 * hour, 8760 * hour} {
		for _, time := range []uint64{1, uint64(pastStep), uint64(time.Minute), hour - 1, hour, 3 * hour, 1000 * hour} {
			got, want := math.Ldexp(float64(faded(time, half)), -64), math.Exp2(-float64(time)/float64(half))
			if math.Abs(got-want) > 1e-15 {
				t.Errorf("after %d of %d: %v, want %v", time, half, got, want)
			}
		}
	}
	if got := faded(64*hour, hour); got != 0 {
		t.Errorf("after 64 half-lives %d is left", got)
	}
}

// The mean is that of a model with float64: in each step the average use of the step takes the
// place of the part that has faded. The use changes at any time, and steps may be left out.
func TestThePastIsAMeanThatFades(t *testing.T) {
	seed := testrun.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 50 {
		half := time.Minute << rng.IntN(20)
		var p past
		var used Amounts
		now, mean, spent := rng.Int64N(1e18)+1, 0.0, 0.0
		largest := int64(1) << (1 + rng.IntN(55))
		p.spend(&used, now)
		since := now
		for range 500 {
			pause := rng.Int64N(int64(8 * time.Second))
			spent += float64(used[0]) * float64(pause)
			now += pause
			p.spend(&used, now)
			used[0] = rng.Int64N(largest)
			if now > since && rng.IntN(3) == 0 {
				gone := -math.Expm1(-math.Ln2 * float64(now-since) / float64(half)) // exact also when it is small
				mean += (spent/float64(now-since) - mean) * gone
				p.fade(half)
				spent, since = 0, now
			}
			if p.mean[0] == (fixed{}) && mean < 0x1p-20 {
				mean = 0 // so little is forgotten
			}
			if got := p.mean[0].float(); math.Abs(got-mean) > 1e-9*math.Max(mean, 1e-3) {
				t.Fatalf("half-life %v: the mean is %v, want %v", half, got, mean)
			}
		}
	}
}

// A mean that is stored as a float64 is read as one that gives the same float64.
func TestMeansAreStored(t *testing.T) {
	for _, f := range []float64{0, 0.5, 1, 1.0 / 3, 1e-6, 12345.678, 1 << 40, 1<<57 + 1<<10} {
		mean := fixedOf(f).float()
		if got := fixedOf(mean).float(); got != mean || math.Abs(mean-f) > 1e-18 {
			t.Errorf("%v became %v and %v", f, mean, got)
		}
	}
	for _, f := range []float64{-1, math.NaN(), math.Inf(1), 1 << 63} {
		if got := fixedOf(f); got != (fixed{}) {
			t.Errorf("%v became %v", f, got)
		}
	}
}

// Present and past use count one half each, as a part of the claim: exactly for small amounts, and
// without an overflow for the largest.
func TestTheShareCountsThePast(t *testing.T) {
	for _, test := range []struct {
		used uint64
		was  fixed
		den  uint64
		want float64
	}{
		{4, fixed{2, 0}, 6, 0.5},
		{0, fixed{0, 1 << 63}, 1, 0.25}, // half a GPU of one
		{1 << 62, fixed{1 << 62, 0}, 1 << 62, 1},
		{math.MaxInt64, fixed{math.MaxInt64, math.MaxUint64}, math.MaxInt64, 1},
		{3, fixed{}, 3, 0.5},
	} {
		f := halfway(test.used, test.was, test.den)
		if got := float64(f.num) / float64(f.den); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%d now and %v before, of %d: %v, want %v", test.used, test.was, test.den, got, test.want)
		}
	}
}
