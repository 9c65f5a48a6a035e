package rest

import (
	"math"
	"math/bits"

	"github.com/plimsoll-dev/plimsoll"
)

// amounts are resources with YuniKorn's names: cpu is vcore.
type amounts map[string]int64

// amountsOf returns resources with YuniKorn's names. It is nil for none.
func amountsOf(r plimsoll.Resources) amounts {
	if len(r) == 0 {
		return nil
	}
	a := make(amounts, len(r))
	a.add(r, 1)
	return a
}

// usedOf returns the resources that are used of a whole: zero where nothing is.
func usedOf(r plimsoll.Resources, whole amounts) amounts {
	a := make(amounts, len(whole))
	for name := range whole {
		a[name] = 0
	}
	a.add(r, 1)
	return a
}

// add adds resources, each so many times. A sum above the largest number stays there.
func (a amounts) add(r plimsoll.Resources, times int64) {
	for name, n := range r {
		name = yunikornName(name)
		a[name] = plus(a[name], multiplied(n, times))
	}
}

// yunikornName returns YuniKorn's name of a resource.
func yunikornName(name string) string {
	if name == plimsoll.CPU {
		return vcore
	}
	return name
}

// minus returns what is left of amounts, at least zero of each.
func (a amounts) minus(used amounts) amounts {
	left := make(amounts, len(a))
	for name, n := range a {
		left[name] = max(n-used[name], 0)
	}
	return left
}

// percentages returns how much of the whole is used, in percent, rounded down. A resource of which
// there is nothing is left out.
func percentages(used, whole amounts) amounts {
	p := make(amounts, len(whole))
	for name, n := range whole {
		if n > 0 {
			p[name] = percentage(used[name], n)
		}
	}
	return p
}

func percentage(used, whole int64) int64 {
	if used <= math.MaxInt64/100 {
		return used * 100 / whole
	}
	return used / max(whole/100, 1)
}

// multiplied returns the product of two numbers that are not negative, at most the largest number.
func multiplied(n, times int64) int64 {
	if n < 0 || times < 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(n), uint64(times))
	if high > 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}

// plus returns the sum of two numbers that are not negative, at most the largest number.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
