package placement_test

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Ratios are the same if the original writes them the same: toFixed(2), which rounds the exact
// value of the number, and up if it is just between two.
func TestRatiosAreRoundedAsTheOriginalDoes(t *testing.T) {
	for _, test := range []struct {
		class, server float64
		why           string
	}{
		{2.675, 2.67, ""}, // exactly 2.67499…
		{2.675, 2.68, "over-provisions cpu by 2.68, asked is 2.67"},
		{1.005, 1, ""},
		{1.255, 1.25, ""},
		{0.125, 0.13, ""}, // exactly between
		{0.375, 0.38, ""},
		{2.625, 2.62, "over-provisions cpu by 2.62, asked is 2.63"},
		{4.001, 4, ""},
		{4.01, 4, "over-provisions cpu by 4.00, asked is 4.01"},
		{0.004, 0, "does not over-provision cpu, asked is 0.00"},
		{0, 0.004, "over-provisions cpu by 0.00, which is not asked for"},
	} {
		ratios := func(r float64) map[string]float64 {
			if r == 0 {
				return nil
			}
			return map[string]float64{"cpu": r}
		}
		f := fleetOf(1, func(_ int, s *placement.Server) { s.Overprovision = ratios(test.server) })
		r := asks(1, func(r *placement.Request) { r.Constraints.Class = ratios(test.class) })
		if why := reasons(t, f, r, "overprovision-ratios")["n0"]; why != test.why {
			t.Errorf("%v asked, the server has %v: %q, want %q", test.class, test.server, why, test.why)
		}
	}
}

// The same for many ratios, against arithmetic without rounding: the two decimals are those whose
// distance from the ratio is least, of two equal ones the larger.
func TestTwoDecimalsAreTheNearest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		ratio := rng.Float64() * plimsoll.MaxRatio
		switch i % 4 {
		case 1:
			ratio = float64(rng.IntN(8000)) / 8
		case 2:
			ratio = float64(rng.IntN(1_000_000)) / 1000
		case 3:
			ratio = rng.Float64() / 10
		}
		exact := new(big.Rat).SetFloat64(ratio)
		twice := exact.Mul(exact, big.NewRat(200, 1)) // floor((2x + 1) / 2) is the nearest, up at a tie
		twice.Add(twice, big.NewRat(1, 1))
		want := new(big.Int).Div(twice.Num(), new(big.Int).Mul(twice.Denom(), big.NewInt(2))).Int64()
		if got := placement.Hundredths(ratio); got != want {
			t.Fatalf("%v: %d hundredths, want %d", ratio, got, want)
		}
	}
}
