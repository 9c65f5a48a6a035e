package qos

import (
	"math"
	"math/bits"
)

// mulDiv returns a*b/c, rounded toward zero, for a, b >= 0 and c > 0. A result that does not fit is
// MaxInt64.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// plus returns a+b, and the outermost number on that side if the sum is beyond it. Measured values
// may be absurd, but a sum of them must not wrap around.
func plus(a, b int64) int64 {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return -math.MaxInt64
	}
	return sum
}

// compareRatios compares a/b with c/d, for a, c >= 0 and b, d > 0, without rounding.
func compareRatios(a, b, c, d int64) int {
	hi1, lo1 := bits.Mul64(uint64(a), uint64(d))
	hi2, lo2 := bits.Mul64(uint64(c), uint64(b))
	switch {
	case hi1 != hi2:
		return sign(hi1 < hi2)
	case lo1 != lo2:
		return sign(lo1 < lo2)
	}
	return 0
}

func sign(less bool) int {
	if less {
		return -1
	}
	return 1
}
