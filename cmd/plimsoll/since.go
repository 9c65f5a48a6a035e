package main

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/plimsoll-dev/plimsoll"
)

// sinceFlag is embedded in commands that look back in time.
type sinceFlag struct {
	Since string `help:"Only what happened in the time given, such as 10m, 2h or 7d, or after an instant, such as 2026-11-23 or 2026-11-23T10:00:00Z." placeholder:"TIME"`
}

// since returns the instant that the flag names; zero: the flag was not given.
func (f sinceFlag) since(now time.Time) (time.Time, error) {
	return instant("--since", f.Since, now)
}

// untilFlag is embedded in commands that look at a span of time.
type untilFlag struct {
	Until string `help:"Only what happened before then, in the same forms." placeholder:"TIME"`
}

// until is the same for the end of the span.
func (f untilFlag) until(now time.Time) (time.Time, error) { return instant("--until", f.Until, now) }

// firstInstant and lastInstant bound instants. Unix nanoseconds have 64 bits, and zero stands for
// none.
var firstInstant, lastInstant = time.Unix(0, 1), time.Unix(0, math.MaxInt64)

// instant reads a time that a flag or argument names: a time ago, or an instant; zero: none.
func instant(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, ok := parseAge(text); ok {
		if at := now.Add(-ago); at.After(firstInstant) {
			return at, nil
		}
		return firstInstant, nil // nothing is older
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04Z07:00", "2006-01-02T15:04", time.DateTime,
		"2006-01-02 15:04", time.DateOnly,
	} {
		at, err := time.ParseInLocation(layout, text, now.Location())
		switch {
		case err != nil:
		case at.Before(firstInstant) || at.After(lastInstant):
			return time.Time{}, plimsoll.Invalid(name, "%q is not between 1970 and 2262", text)
		default:
			return at, nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if clock, err := time.Parse(layout, text); err == nil {
			return lastTime(clock, now), nil
		}
	}
	return time.Time{}, plimsoll.Invalid(
		name, "%.80q is not a time; write for example 10m, 2h, 7d, 09:30, 2026-11-23 or 2026-11-23T10:00:00Z", text,
	)
}

// lastTime returns the last instant at which a clock showed a time of day.
func lastTime(clock, now time.Time) time.Time {
	at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, now.Location())
	if at.After(now) {
		at = at.AddDate(0, 0, -1)
	}
	return at
}

// age returns how long ago the instant is that the flag names: at least 1 ns; 0: the flag was not
// given.
func (f sinceFlag) age(now time.Time) (time.Duration, error) {
	at, err := f.since(now)
	if err != nil || at.IsZero() {
		return 0, err
	}
	return max(now.Sub(at), 1), nil
}

// maxAge is the longest time ago that parseAge takes: that a time.Duration holds.
const maxAge = 100_000 * 24 * time.Hour

// parseAge reads a duration of at least zero, which may begin with a number of days: 7d, 1d12h.
func parseAge(text string) (time.Duration, bool) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 31)
	if err != nil || n > uint64(maxAge/(24*time.Hour)) {
		return 0, false
	}
	age := time.Duration(n) * 24 * time.Hour
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 || more > maxAge-age {
			return 0, false
		}
		age += more
	}
	return age, true
}

// readDuration reads what Go reads, and durations that begin with days.
func readDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	if d, ok := parseAge(text); ok {
		return d, nil
	}
	return 0, fmt.Errorf("expected a duration such as 90s, 1h30m or 7d, not %q", text)
}

// durations lets each flag with a duration take days too.
func durations() kong.Option {
	read := func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
			return err
		}
		d, err := readDuration(text)
		if err != nil {
			return err
		}
		target.Set(reflect.ValueOf(d))
		return nil
	}
	return kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(read))
}
