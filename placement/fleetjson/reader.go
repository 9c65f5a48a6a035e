package fleetjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll"
)

// reader takes JSON values apart, and keeps the first error. It reads documents that were checked
// to be JSON, in one pass for each level, since a fleet may have millions of instances.
type reader struct {
	err     error
	path    []step            // path of the current value
	words   map[string]string // texts read so far, so that equal texts are kept once
	amount  map[string]int64  // amounts read so far, by name and text
	scratch []byte
}

// step is a name, or a place in a list.
type step struct {
	name  string
	index int // index of an item; -1 with a name
}

func newReader() *reader { return &reader{words: map[string]string{}, amount: map[string]int64{}} }

// maxKept bounds the texts and the amounts that a reader keeps.
const maxKept = 4096

// fail records an error about the current value, unless there is an earlier one.
func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = plimsoll.Invalid(r.at(), format, args...)
	}
}

// at returns the path of the current value as text.
func (r *reader) at() string {
	at := ""
	for i, s := range r.path {
		switch {
		case s.name == "" && s.index >= 0:
			at += fmt.Sprintf("[%d]", s.index)
		case i == 0:
			at += s.name
		default:
			at += "." + s.name
		}
	}
	return at
}

// read reads a value.
type read func(raw json.RawMessage)

// member is a known field of an object.
type member struct {
	name string
	read read
}

// what returns the kind of a value, for errors.
func what(raw json.RawMessage) string {
	switch {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "a list"
	case raw[0] == '"':
		return "a text"
	case raw[0] == 't', raw[0] == 'f', raw[0] == 'n':
		return string(raw)
	}
	return "a number"
}

// first returns the first byte of a value, which tells its kind.
func first(raw json.RawMessage) byte {
	if len(raw) > 0 {
		return raw[0]
	}
	return 0
}

// object reads an object with known fields. A field that is null counts as absent.
func (r *reader) object(raw json.RawMessage, known ...member) {
	given := uint64(0)
	r.pairs(raw, func(name string, value json.RawMessage) {
		i := slices.IndexFunc(known, func(m member) bool { return m.name == name })
		switch {
		case i < 0:
			names := make([]string, len(known))
			for i, m := range known {
				names[i] = m.name
			}
			r.fail("is not a field that is known here; there are %s", strings.Join(names, ", "))
			return
		case given&(1<<i) != 0:
			r.fail("is given twice; give it once")
		}
		given |= 1 << i
		if first(value) != 'n' {
			known[i].read(value)
		}
	})
}

// pairs reads an object with any names.
func (r *reader) pairs(raw json.RawMessage, each func(name string, raw json.RawMessage)) {
	if first(raw) != '{' {
		r.fail("is %s; write an object", what(raw))
		return
	}
	for i := skip(raw, 1); raw[i] != '}'; {
		end := valueEnd(raw, i)
		name := r.unquote(raw[i:end])
		i = skip(raw, skip(raw, end)+1) // past the colon
		end = valueEnd(raw, i)
		r.path = append(r.path, step{name, -1})
		each(name, raw[i:end])
		r.path = r.path[:len(r.path)-1]
		if i = skip(raw, end); raw[i] == ',' {
			i = skip(raw, i+1)
		}
	}
}

// list reads a list.
func (r *reader) list(raw json.RawMessage, each read) {
	if first(raw) != '[' {
		r.fail("is %s; write a list", what(raw))
		return
	}
	n := 0
	for value := range items(raw) {
		r.path = append(r.path, step{index: n})
		each(value)
		r.path = r.path[:len(r.path)-1]
		n++
	}
}

// items returns the values of a list.
func items(raw json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		for i := skip(raw, 1); raw[i] != ']'; {
			end := valueEnd(raw, i)
			if !yield(raw[i:end]) {
				return
			}
			if i = skip(raw, end); raw[i] == ',' {
				i = skip(raw, i+1)
			}
		}
	}
}

// skip returns the index after the white space at i.
func skip(raw json.RawMessage, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\r' || raw[i] == '\n') {
		i++
	}
	return i
}

// valueEnd returns the index after the value that begins at i.
func valueEnd(raw json.RawMessage, i int) int {
	depth := 0
	for ; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			} else if depth < 0 {
				return i // the bracket after a number, true, false or null
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// unquote returns a text without its quotes.
func (r *reader) unquote(raw json.RawMessage) string {
	inner := raw[1 : len(raw)-1]
	if known, ok := r.words[string(inner)]; ok {
		return known
	}
	var out string
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		out = string(inner)
	} else if json.Unmarshal(raw, &out) != nil {
		r.fail("is not a text")
	}
	if len(r.words) < maxKept {
		r.words[string(inner)] = out
	}
	return out
}

func (r *reader) text(into *string) read {
	return func(raw json.RawMessage) {
		if first(raw) != '"' {
			r.fail("is %s; write a text in quotes", what(raw))
			return
		}
		*into = r.unquote(raw)
	}
}

func (r *reader) texts(into *[]string) read {
	return func(raw json.RawMessage) {
		*into = []string{}
		r.list(raw, func(raw json.RawMessage) {
			var s string
			r.text(&s)(raw)
			*into = append(*into, s)
		})
	}
}

func (r *reader) flag(into *bool) read {
	return func(raw json.RawMessage) {
		if c := first(raw); c != 't' && c != 'f' {
			r.fail("is %s; write true or false", what(raw))
		}
		*into = first(raw) == 't'
	}
}

func (r *reader) number(into *float64) read {
	return func(raw json.RawMessage) {
		v, err := strconv.ParseFloat(string(raw), 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			r.fail("is too large a number")
		case err != nil || first(raw) == 'n':
			r.fail("is %s; write a number", what(raw))
		}
		*into = v
	}
}

func (r *reader) ratios(into *map[string]float64) read {
	return func(raw json.RawMessage) {
		out := map[string]float64{}
		r.pairs(raw, func(name string, raw json.RawMessage) {
			var v float64
			r.number(&v)(raw)
			out[name] = v
		})
		if len(out) > plimsoll.MaxRatios {
			r.fail("has %d entries; at most %d are possible", len(out), plimsoll.MaxRatios)
		}
		*into = out
	}
}

// amounts reads amounts of resources as in a job file: 2 and "500m" of cpu, "8Gi" of memory. A
// number without a suffix means the same with and without quotes.
func (r *reader) amounts(into *plimsoll.Resources) read {
	return func(raw json.RawMessage) {
		out := plimsoll.Resources{}
		r.pairs(raw, func(name string, raw json.RawMessage) {
			out[name] = r.quantity(name, raw)
		})
		if len(out) > plimsoll.MaxResourceNames {
			r.fail("has %d names; at most %d are possible", len(out), plimsoll.MaxResourceNames)
		}
		*into = out
	}
}

// quantity reads the amount of one resource.
func (r *reader) quantity(name string, raw json.RawMessage) int64 {
	r.scratch = append(append(append(r.scratch[:0], name...), 0), raw...)
	if v, ok := r.amount[string(r.scratch)]; ok {
		return v
	}
	text := string(raw)
	switch c := first(raw); {
	case c == '"':
		text = r.unquote(raw)
	case c != '-' && (c < '0' || c > '9'):
		r.fail(`is %s; write an amount, such as 2 or "8Gi"`, what(raw))
		return 0
	}
	v, err := plimsoll.ParseQuantity(name, text)
	if err == nil {
		err = plimsoll.ValidateResourceName(name)
	}
	if err != nil {
		r.fail("%s", err)
		return 0
	}
	if len(r.amount) < maxKept {
		r.amount[string(r.scratch)] = v
	}
	return v
}

func (r *reader) textMap(into *map[string]string) read {
	return func(raw json.RawMessage) {
		out := map[string]string{}
		r.pairs(raw, func(name string, raw json.RawMessage) {
			var s string
			r.text(&s)(raw)
			out[name] = s
		})
		*into = out
	}
}

// traits reads an object of true, false, a word or a list of words.
func (r *reader) traits(into *map[string]plimsoll.Trait) read {
	return func(raw json.RawMessage) {
		out := map[string]plimsoll.Trait{}
		r.pairs(raw, func(name string, raw json.RawMessage) {
			var t plimsoll.Trait
			switch first(raw) {
			case 't', 'f':
				r.flag(&t.Flag)(raw)
			case '"':
				t.Words = make([]string, 1)
				r.text(&t.Words[0])(raw)
			case '[':
				r.texts(&t.Words)(raw)
			default:
				r.fail("is %s; write true, false, a word or a list of words", what(raw))
			}
			if len(t.Words) > plimsoll.MaxTraitWords {
				r.fail("has %d words; at most %d are possible", len(t.Words), plimsoll.MaxTraitWords)
			}
			out[name] = t
		})
		*into = out
	}
}

// moment reads Unix seconds, or a time in RFC 3339.
func (r *reader) moment(into *int64) read {
	return func(raw json.RawMessage) {
		if first(raw) != '"' {
			v, err := strconv.ParseInt(string(raw), 10, 64)
			if err != nil || v < 0 {
				r.fail(
					"is %s; write whole seconds since 1970, or an instant such as %q", shown(raw),
					time.RFC3339[:19]+"Z",
				)
			}
			*into = v
			return
		}
		var text string
		r.text(&text)(raw)
		when, err := time.Parse(time.RFC3339, text)
		if err != nil || when.Unix() < 0 {
			r.fail(`%q is not an instant after 1970; write for example "2026-01-31T08:00:00Z"`, plimsoll.Shorten(text))
			return
		}
		*into = when.Unix()
	}
}

// most reads a bound, a whole number.
func (r *reader) most(into *int32) read {
	return func(raw json.RawMessage) {
		v, err := strconv.ParseInt(string(raw), 10, 32)
		if err != nil || v < 0 {
			r.fail("is %s; write a whole number, or 0 for no bound", shown(raw))
			return
		}
		*into = int32(v)
	}
}

// shown returns a number as it was written, and the kind of any other value.
func shown(raw json.RawMessage) string {
	if c := first(raw); c == '-' || c >= '0' && c <= '9' {
		return plimsoll.Shorten(string(raw))
	}
	return what(raw)
}

// document checks that data is JSON, and otherwise returns an error with the place of the mistake.
func document(data []byte) (json.RawMessage, error) {
	var raw json.RawMessage
	err := json.Unmarshal(data, &raw)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return nil, notJSON(data, int(syntax.Offset), syntax.Error())
	}
	if err != nil {
		return nil, plimsoll.Invalid("", "cannot be read as JSON: %s", err)
	}
	return bytes.TrimSpace(raw), nil
}

// notJSON returns an error about a byte of a document.
func notJSON(data []byte, offset int, problem string) error {
	before := data[:min(max(offset-1, 0), len(data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return plimsoll.Invalid("", "line %d, column %d: %s", line, column, problem)
}
