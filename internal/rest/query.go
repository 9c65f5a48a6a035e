package rest

import (
	"errors"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"

	"github.com/plimsoll-dev/plimsoll"
)

// query is the parsed query of the batch endpoint.
type query struct {
	count    uint64 // 1 or more
	start    uint64
	hasStart bool // false: the answer begins at the lowest id

	consistency plimsoll.Consistency
}

// parseQuery reads count, start and consistency from a raw query string. A missing count means
// limit; a larger one is cut to limit, as the design allows.
func parseQuery(raw string, limit uint64) (query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return query{}, plimsoll.Invalid("query", "cannot be taken apart; write for example ?count=100&start=0")
	}
	if err := checkNames(values); err != nil {
		return query{}, err
	}
	q := query{count: limit}
	if text := values.Get("count"); text != "" {
		n, err := parseNumber("count", text, 1)
		if err != nil {
			return query{}, err
		}
		q.count = min(n, limit)
	}
	if text := values.Get("start"); text != "" {
		if q.start, err = parseNumber("start", text, 0); err != nil {
			return query{}, err
		}
		q.hasStart = true
	}
	if q.consistency, err = plimsoll.ParseConsistency(values.Get("consistency")); err != nil {
		return query{}, err //nolint:wrapcheck // it names the parameter
	}
	return q, nil
}

// checkNames returns an error for a parameter whose name is nearly a known one. Others are
// ignored, as in the design.
func checkNames(values url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		meant := plimsoll.Nearest(name, []string{"count", "start", "consistency"})
		if meant != "" && name != meant {
			return plimsoll.Invalid(shorten(name), "is no parameter; did you mean %q?", meant)
		}
	}
	return nil
}

func parseNumber(name, text string, least uint64) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, plimsoll.Invalid(
			name, "%q is too large; give a whole number from %d to %d", shorten(text), least, uint64(math.MaxUint64),
		)
	}
	if err != nil {
		return 0, plimsoll.Invalid(
			name, "%q is not a whole number; give one of %d or more, such as %s=100", shorten(text), least, name,
		)
	}
	if n < least {
		return 0, plimsoll.Invalid(name, "is %d; give a whole number of %d or more, or leave it out", n, least)
	}
	return n, nil
}

func shorten(text string) string {
	if len(text) > 40 {
		return text[:40] + "..."
	}
	return text
}
