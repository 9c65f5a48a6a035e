package placement

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// SameRatio reports whether two over-provisioning ratios are equal when written with two decimals.
func SameRatio(a, b float64) bool { return a == b || a > 0 && b > 0 && hundredths(a) == hundredths(b) }

// effectiveRatio returns the ratio to calculate with, rounded to two decimals unless that is 0. So
// servers whose ratios are written alike offer alike.
func effectiveRatio(ratio float64) float64 {
	if n := hundredths(ratio); n > 0 {
		return float64(n) / 100
	}
	return ratio
}

// hundredths returns a ratio in hundredths, rounded as toFixed(2) of JavaScript does: by its exact
// value, and up if it is exactly between two. The exact value of 2.675 is below 2.675, so the
// result is 267.
func hundredths(ratio float64) int64 {
	if eighths := ratio * 8; eighths == math.Trunc(eighths) && math.Mod(eighths, 2) != 0 {
		return int64(math.Ceil(ratio * 100)) // only an odd number of eighths is exactly between two
	}
	n, err := strconv.ParseInt(strings.Replace(strconv.FormatFloat(ratio, 'f', 2, 64), ".", "", 1), 10, 64)
	if err != nil {
		return 0 // too large for a ratio, or not a number
	}
	return n
}

// written returns a ratio with two decimals.
func written(ratio float64) string {
	n := hundredths(ratio)
	return fmt.Sprintf("%d.%02d", n/100, n%100)
}

// ratioProblem says where two sets of ratios differ when written with two decimals. A ratio that is
// written 0.00 differs from none, as in the original.
func ratioProblem(class, server map[string]float64) string {
	if len(class)+len(server) == 0 {
		return ""
	}
	for _, set := range [...]map[string]float64{class, server} {
		for _, name := range sortedKeys(set) {
			switch a, b := class[name], server[name]; {
			case SameRatio(a, b):
			case !(b > 0):
				return fmt.Sprintf("does not over-provision %s, asked is %s", name, written(a))
			case !(a > 0):
				return fmt.Sprintf("over-provisions %s by %s, which is not asked for", name, written(b))
			default:
				return fmt.Sprintf("over-provisions %s by %s, asked is %s", name, written(b), written(a))
			}
		}
	}
	return ""
}
