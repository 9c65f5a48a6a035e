package config

import (
	"math"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// guarantees reads the resources of a queue.
func (d *queueDecoder) guarantees(guaranteed, most *plimsoll.Resources) func(v *value, path string) {
	return func(v *value, path string) {
		d.fields(v, path,
			field{"guaranteed", stated(func(v *value, path string) { *guaranteed = d.amounts(v, path, false) })},
			field{"max", stated(func(v *value, path string) { *most = d.amounts(v, path, true) })},
		)
	}
}

// amounts reads amounts under YuniKorn's names. Of a maximum, an amount that is larger than
// plimsoll.MaxAmount is that: no cluster has more.
func (d *queueDecoder) amounts(v *value, path string, maximum bool) plimsoll.Resources {
	r := plimsoll.Resources{}
	d.pairs(v, path, func(e entry, at string) {
		name := d.resource(e, at, func(name string) bool { _, is := r[name]; return is })
		if name == "" {
			return
		}
		d.lines[path+"."+name] = e.line
		r[name] = d.amount(name, e.value, at, maximum)
	})
	if len(r) == 0 {
		return nil
	}
	return r
}

// resource returns the resource that a name of YuniKorn's stands for: vcore is cpu, and
// ephemeral-storage is disk. It is empty if the name is wrong or the resource has been stated.
func (d *queueDecoder) resource(e entry, at string, stated func(name string) bool) string {
	name := e.name
	switch name {
	case "vcore":
		name = plimsoll.CPU
	case "ephemeral-storage":
		name = plimsoll.Disk
	default:
		if meant := misnamed(name); meant != "" {
			d.problem(e.line, at, "unknown resource; did you mean %q?", meant)
			return ""
		}
	}
	if stated(name) {
		d.problem(e.line, at, "%s stands twice, under two names; remove one", name)
		return ""
	}
	return name
}

// amount reads an amount as YuniKorn does: digits and a suffix, with spaces between them. Decimals
// are possible too.
func (d *queueDecoder) amount(resource string, v *value, at string, maximum bool) int64 {
	if v.kind != scalarKind {
		d.problem(v.line, at, "is %s; an amount is expected, such as 500m of vcore or 64Mi of memory", v.kindName())
		return 0
	}
	text := strings.TrimSpace(v.text)
	digits := strings.TrimRight(text, "kmKMGTPEi")
	suffix := text[len(digits):]
	number := strings.TrimSpace(digits)
	switch {
	case strings.HasPrefix(number, "-") && isNumber(number[1:]):
		d.problem(v.line, at, "quantity %q is negative; give zero or more", plimsoll.Shorten(v.text))
		return 0
	case !isNumber(number):
		d.problem(v.line, at, "quantity %q cannot be read; write digits and a unit, such as 2, 500m of vcore or 64Mi of memory",
			plimsoll.Shorten(v.text))
		return 0
	case suffix == "m" && resource != plimsoll.CPU:
		d.problem(v.line, at, "quantity %q counts in thousandths, which only vcore has; write whole units", plimsoll.Shorten(v.text))
		return 0
	case suffix == "K" || suffix == "mi" || suffix == "ki":
		d.problem(v.line, at, "quantity %q has no possible unit; write k, M, G, T, P, E or Ki, Mi, Gi, Ti, Pi, Ei", plimsoll.Shorten(v.text))
		return 0
	}
	n, err := plimsoll.ParseQuantity(resource, number+suffix)
	if err != nil && maximum && suffix == "" && isCount(resource, number) {
		return plimsoll.MaxAmount
	}
	if err != nil {
		d.problem(v.line, at, "%s", err)
	}
	return n
}

// isCount reports whether a number of units is one that YuniKorn can hold.
func isCount(resource, number string) bool {
	n, err := strconv.ParseInt(number, 10, 64)
	return err == nil && (resource != plimsoll.CPU || n <= math.MaxInt64/1000)
}

// isNumber accepts digits, also with a decimal point between them.
func isNumber(s string) bool {
	whole, fraction, point := strings.Cut(s, ".")
	return isDigits(whole) && (!point || isDigits(fraction))
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// count reads a number of jobs or tasks. One that is larger than any cluster has is the largest.
func (d *queueDecoder) count(into *int32) func(v *value, path string) {
	return func(v *value, path string) {
		n, err := strconv.ParseUint(v.text, 10, 64)
		if v.kind != scalarKind || v.quoted || err != nil {
			d.problem(v.line, path, "is %s; a whole number is expected, 0 for no limit", v.kindName())
			return
		}
		*into = int32(min(n, math.MaxInt32))
	}
}

// truth reads a boolean in any spelling of YAML.
func (d *queueDecoder) truth(into *bool) func(v *value, path string) {
	return func(v *value, path string) {
		switch v.text {
		case "true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
			*into = true
		case "false", "False", "FALSE", "n", "N", "no", "No", "NO", "off", "Off", "OFF":
			*into = false
		default:
			d.problem(v.line, path, "is %s; true or false is expected", v.kindName())
		}
	}
}
