package cgroup

import (
	"bytes"
	"math"
)

// The parsers of this file read kernel files without allocating. Text that is malformed, cut short
// or too large is not ok: an unknown value is better than a wrong one.

// ParseFirst reads the digits at the start of b, and returns the rest of b.
func ParseFirst(b []byte) (n int64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		d := int64(b[i] - '0')
		if n > (math.MaxInt64-d)/10 {
			return 0, b, false
		}
		n = n*10 + d
	}
	return n, b[i:], i > 0
}

// ParseNumber reads a file with one line of one number that is not negative. A line without its end
// is not ok, because it may be cut short.
func ParseNumber(b []byte) (n int64, ok bool) {
	n, rest, ok := ParseFirst(b)
	return n, ok && len(rest) == 1 && rest[0] == '\n'
}

// signed is ParseNumber for files that may hold a negative number.
func signed(b []byte) (n int64, ok bool) {
	if len(b) > 0 && b[0] == '-' {
		n, ok = ParseNumber(b[1:])
		return -n, ok
	}
	return ParseNumber(b)
}

// ParseKey finds the line "key number" and returns the number. The key includes its separator where
// that is not a space, such as ":".
func ParseKey(b []byte, key string) (n int64, ok bool) {
	for {
		i := bytes.Index(b, []byte(key))
		if i < 0 {
			return 0, false
		}
		rest := b[i+len(key):]
		if (i == 0 || b[i-1] == '\n') && len(rest) > 0 && rest[0] == ' ' {
			n, rest, ok = ParseFirst(bytes.TrimLeft(rest, " "))
			return n, ok && len(rest) > 0 && (rest[0] == '\n' || rest[0] == ' ')
		}
		b = rest
	}
}

// ParsePressure reads a file of pressure stall information. Old kernels have no line "full" for the
// cpu, which is then zero.
func ParsePressure(b []byte) (p Pressure, ok bool) {
	if p.Some, ok = parseStall(b, "some avg10="); !ok {
		return Pressure{}, false
	}
	i := bytes.IndexByte(b, '\n')
	if i < 0 || i+1 == len(b) {
		return p, i >= 0
	}
	if p.Full, ok = parseStall(b[i+1:], "full avg10="); !ok {
		return Pressure{}, false
	}
	return p, true
}

// parseStall reads a line "some avg10=1.23 avg60=0.00 avg300=0.00 total=4567" at the start of b.
func parseStall(b []byte, prefix string) (s Stall, ok bool) {
	if i := bytes.IndexByte(b, '\n'); i < 0 {
		return Stall{}, false // cut short
	} else {
		b = b[:i]
	}
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return Stall{}, false
	}
	if s.Avg10, b, ok = ParseFixed(b[len(prefix):], 2); !ok || s.Avg10 > 100_00 {
		return Stall{}, false
	}
	const total = " total="
	i := bytes.Index(b, []byte(total))
	if i < 0 {
		return Stall{}, false
	}
	s.TotalMicros, b, ok = ParseFirst(b[i+len(total):])
	return s, ok && len(b) == 0
}

// ParseFixed reads a number such as 12.34 at the start of b, as an integer in units of 10^-digits.
// The kernel writes two digits.
func ParseFixed(b []byte, digits int) (n int64, rest []byte, ok bool) {
	n, rest, ok = ParseFirst(b)
	if !ok || len(rest) < 3 || rest[0] != '.' || n > math.MaxInt32 {
		return 0, b, false
	}
	rest = rest[1:]
	for range digits {
		n *= 10
		if len(rest) > 0 && '0' <= rest[0] && rest[0] <= '9' {
			n += int64(rest[0] - '0')
			rest = rest[1:]
		}
	}
	return n, rest, true
}
