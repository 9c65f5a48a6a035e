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

// parseQuery reads count, start and consistency from a raw query string. A missing count is as
// large as possible: the answer is cut to RESTResponseSize, as the design allows.
func parseQuery(raw string) (query, error) {
	q := query{count: math.MaxUint64}
	values, err := parseValues(raw, "count", "start", "consistency")
	if err != nil {
		return query{}, err
	}
	if text := values.Get("count"); text != "" {
		if q.count, err = parseNumber("count", text, 1); err != nil {
			return query{}, err
		}
	}
	if q.start, q.hasStart, err = parseStart(values); err != nil {
		return query{}, err
	}
	if q.consistency, err = plimsoll.ParseConsistency(values.Get("consistency")); err != nil {
		return query{}, err //nolint:wrapcheck // it names the parameter
	}
	return q, nil
}

// streamQuery is the parsed query of the stream.
type streamQuery struct {
	count    uint64 // events of before the request
	start    uint64
	hasStart bool
	instance string // the InstanceUUID that start is of; empty: the present one
	document bool   // a document of count events, instead of a stream

	consistency plimsoll.Consistency
}

// The forms of a stream.
const (
	formLines = "ndjson"
	formArray = "json"
)

// parseStreamQuery reads count, start, instance, format and consistency.
func parseStreamQuery(raw string) (q streamQuery, err error) {
	values, err := parseValues(raw, "count", "start", "instance", "format", "consistency")
	if err != nil {
		return q, err
	}
	text := values.Get("count")
	if text != "" {
		if q.count, err = parseNumber("count", text, 0); err != nil {
			return q, err
		}
	}
	if q.start, q.hasStart, err = parseStart(values); err != nil {
		return q, err
	}
	switch format := values.Get("format"); {
	case format == formArray && q.count == 0:
		return q, plimsoll.Invalid("count", "is needed with format=json, because an array has an end; give 1 or more")
	case format == formArray:
		q.document = true
	case format != "" && format != formLines:
		return q, plimsoll.Invalid(
			"format", "%q is not known; give %s or %s", plimsoll.Shorten(format), formLines, formArray,
		)
	case q.hasStart && text != "":
		return q, plimsoll.Invalid("count", "cannot be given with start, which says where a stream begins; leave one out")
	}
	if q.instance = values.Get("instance"); q.instance != "" && !q.hasStart {
		return q, plimsoll.Invalid("instance", "says of which InstanceUUID start is; give start too, or leave it out")
	}
	q.consistency, err = plimsoll.ParseConsistency(values.Get("consistency"))
	return q, err //nolint:wrapcheck // it names the parameter
}

// begin returns the id of the first event to send, and how many that were wanted are no longer
// kept. If the wanted ones are of another InstanceUUID it is that of the oldest event.
func (q *streamQuery) begin(state *State) (next, missed uint64, err error) {
	low := lowest(state)
	switch {
	case q.instance != "" && q.instance != state.InstanceUUID:
		return low, 0, nil
	case !q.hasStart:
		return max(low, state.Next()-min(q.count, state.Next())), 0, nil
	case q.start > state.Next():
		return 0, 0, plimsoll.Invalid("start", "is %d, and the next event has the id %d; "+
			"if your ids are those of another InstanceUUID, give it as instance", q.start, state.Next())
	case q.start < low:
		return low, low - q.start, nil
	}
	return q.start, 0, nil
}

// parseValues takes a query apart. It refuses a parameter whose name is nearly a known one. Others
// are ignored, as in the design.
func parseValues(raw string, known ...string) (url.Values, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, plimsoll.Invalid("query", "cannot be taken apart; write for example ?count=100&start=0")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if meant := plimsoll.Nearest(name, known); meant != "" && name != meant {
			return nil, plimsoll.Invalid(plimsoll.Shorten(name), "is no parameter; did you mean %q?", meant)
		}
	}
	return values, nil
}

// parseStart reads the parameter start, if it is there.
func parseStart(values url.Values) (start uint64, has bool, err error) {
	text := values.Get("start")
	if text == "" {
		return 0, false, nil
	}
	start, err = parseNumber("start", text, 0)
	return start, true, err
}

func parseNumber(name, text string, least uint64) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, plimsoll.Invalid(
			name, "%q is too large; give a whole number from %d to %d",
			plimsoll.Shorten(text), least, uint64(math.MaxUint64),
		)
	}
	if err != nil {
		return 0, plimsoll.Invalid(
			name, "%q is not a whole number; give one of %d or more, such as %s=100",
			plimsoll.Shorten(text), least, name,
		)
	}
	if n < least {
		return 0, plimsoll.Invalid(name, "is %d; give a whole number of %d or more, or leave it out", n, least)
	}
	return n, nil
}
