package plimsoll

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// quantitySuffixes are Kubernetes' suffixes. Each multiplies by base to the power of exponent.
var quantitySuffixes = []struct {
	suffix   string
	base     int64
	exponent int64
}{
	{"Ki", 1024, 1},
	{"Mi", 1024, 2},
	{"Gi", 1024, 3},
	{"Ti", 1024, 4},
	{"Pi", 1024, 5},
	{"Ei", 1024, 6},
	{"n", 1000, -3},
	{"u", 1000, -2},
	{"m", 1000, -1},
	{"k", 1000, 1},
	{"M", 1000, 2},
	{"G", 1000, 3},
	{"T", 1000, 4},
	{"P", 1000, 5},
	{"E", 1000, 6},
	{"", 1000, 0},
}

// ParseQuantity reads a quantity in Kubernetes' notation (500m, 64Mi, 2G, 1.5, 1e3). The result is
// in the unit of the resource: milli-cores for cpu, bytes for memory and disk, a count otherwise.
// A fraction of the unit is rounded up, as in Kubernetes. A negative, unreadable or absurdly large
// quantity is an error that says how to write one.
func ParseQuantity(resource, text string) (int64, error) {
	s := strings.TrimSpace(text)
	if s == "" {
		return 0, fmt.Errorf("quantity is empty; write for example %s", quantityExample(resource))
	}
	number, multiplier, ok := splitQuantity(s)
	if !ok {
		return 0, fmt.Errorf("quantity %q cannot be read; write for example %s", text, quantityExample(resource))
	}
	if number.Sign() < 0 {
		return 0, fmt.Errorf("quantity %q is negative; give zero or more", text)
	}
	value := number.Mul(number, multiplier)
	if resource == CPU || resource == ExtCPU {
		value.Mul(value, big.NewRat(1000, 1))
	}
	rounded := new(big.Int).Add(value.Num(), new(big.Int).Sub(value.Denom(), big.NewInt(1)))
	rounded.Quo(rounded, value.Denom())
	if rounded.Cmp(big.NewInt(MaxAmount)) > 0 {
		return 0, fmt.Errorf(
			"quantity %q is absurdly large; the largest possible is %s", text, FormatQuantity(resource, MaxAmount),
		)
	}
	return rounded.Int64(), nil
}

func splitQuantity(s string) (number, multiplier *big.Rat, ok bool) {
	if len(s) > 64 {
		return nil, nil, false
	}
	for _, x := range quantitySuffixes {
		digits, found := strings.CutSuffix(s, x.suffix)
		if !found || !isDecimal(digits, x.suffix == "") {
			continue
		}
		n, good := new(big.Rat).SetString(digits)
		if !good {
			return nil, nil, false
		}
		power := new(big.Int).Exp(big.NewInt(x.base), big.NewInt(max(x.exponent, -x.exponent)), nil)
		m := new(big.Rat).SetInt(power)
		if x.exponent < 0 {
			m.Inv(m)
		}
		return n, m, true
	}
	return nil, nil, false
}

// isDecimal accepts [+-]digits[.digits]. Without a suffix, e[+-]digits with a small exponent may
// follow. Other forms that big.Rat knows are refused.
func isDecimal(s string, exponentAllowed bool) bool {
	s = strings.TrimLeft(s, "+-") // big.Rat refuses a second sign
	mantissa, exponent, hasExponent := strings.Cut(strings.ToLower(s), "e")
	if hasExponent {
		if !exponentAllowed {
			return false
		}
		if e, err := strconv.Atoi(exponent); err != nil || e > 99 || e < -99 {
			return false
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	return whole+fraction != "" && allDigits(whole) && allDigits(fraction)
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

func quantityExample(resource string) string {
	switch resource {
	case CPU, ExtCPU:
		return "500m or 2"
	case Memory, Disk, ExtMemory:
		return "64Mi or 2G"
	}
	return "1"
}

// FormatQuantity prints an amount the way ParseQuantity reads it, exactly: binary suffixes for
// memory and disk where they divide the amount, milli for parts of a core.
func FormatQuantity(resource string, amount int64) string {
	switch resource {
	case CPU, ExtCPU:
		if amount%1000 == 0 {
			return strconv.FormatInt(amount/1000, 10)
		}
		return strconv.FormatInt(amount, 10) + "m"
	case Memory, Disk, ExtMemory:
		suffixes := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
		i := 0
		for amount != 0 && amount%1024 == 0 && i < len(suffixes)-1 {
			amount, i = amount/1024, i+1
		}
		return strconv.FormatInt(amount, 10) + suffixes[i]
	}
	return strconv.FormatInt(amount, 10)
}

// LineScale is the precision of a waterline: a thousandth of its unit.
const LineScale = 1000

// ParseLine reads a waterline: a quantity in Kubernetes' notation, in 1/scale of the metric's
// unit, rounded to the nearest. A percent sign may follow. A negative, unreadable or absurdly
// large waterline is an error that says how to write one.
func ParseLine(text string, scale int64) (int64, error) {
	s := strings.TrimSuffix(strings.TrimSpace(text), "%")
	number, multiplier, ok := splitQuantity(s)
	if !ok {
		return 0, fmt.Errorf("%q cannot be read; write a quantity such as 65, 3500m or 48Gi", text)
	}
	if number.Sign() < 0 {
		return 0, fmt.Errorf("%q is negative; give a line above zero", text)
	}
	value := number.Mul(number, multiplier)
	value.Mul(value, big.NewRat(scale, 1)).Add(value, big.NewRat(1, 2))
	rounded := new(big.Int).Quo(value.Num(), value.Denom())
	if !rounded.IsInt64() || rounded.Int64() > MaxLine {
		return 0, fmt.Errorf("%q is absurdly large", text)
	}
	return rounded.Int64(), nil
}

// MaxLine is the largest waterline in the finest unit of its metric.
const MaxLine = int64(1) << 60
