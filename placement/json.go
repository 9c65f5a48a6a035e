package placement

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// reader takes JSON values apart, and keeps the first problem.
type reader struct{ err error }

func (r *reader) fail(at, format string, args ...any) {
	if r.err == nil {
		r.err = plimsoll.Invalid(at, format, args...)
	}
}

// read is a value that is read from what stands at a place.
type read func(at string, raw json.RawMessage)

// member is a field of an object that may be given.
type member struct {
	name string
	read read
}

// what names the kind of a value, for errors.
func what(raw json.RawMessage) string {
	switch raw := bytes.TrimSpace(raw); {
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

// first returns the byte that tells the kind of a value.
func first(raw json.RawMessage) byte {
	if raw = bytes.TrimSpace(raw); len(raw) > 0 {
		return raw[0]
	}
	return 0
}

func within(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// object reads an object whose fields are known. A field that is null is as one that is not given.
func (r *reader) object(at string, raw json.RawMessage, known ...member) {
	values := r.values(at, raw)
	for _, m := range known {
		if value, ok := values[m.name]; ok && first(value) != 'n' {
			m.read(within(at, m.name), value)
		}
		delete(values, m.name)
	}
	if len(values) == 0 {
		return
	}
	names := make([]string, len(known))
	for i, m := range known {
		names[i] = m.name
	}
	r.fail(within(at, sortedKeys(values)[0]), "is not a field that is known here; there are %s", strings.Join(names, ", "))
}

// values returns the fields of an object; of two with the same name the last.
func (r *reader) values(at string, raw json.RawMessage) map[string]json.RawMessage {
	var values map[string]json.RawMessage
	if first(raw) != '{' || json.Unmarshal(raw, &values) != nil {
		r.fail(at, "is %s; write an object", what(raw))
	}
	return values
}

// pairs reads an object whose names are free.
func (r *reader) pairs(at string, raw json.RawMessage, each func(name, at string, raw json.RawMessage)) {
	values := r.values(at, raw)
	for _, name := range sortedKeys(values) {
		each(name, within(at, name), values[name])
	}
}

// list reads a list.
func (r *reader) list(at string, raw json.RawMessage, each read) {
	var values []json.RawMessage
	if first(raw) != '[' || json.Unmarshal(raw, &values) != nil {
		r.fail(at, "is %s; write a list", what(raw))
		return
	}
	for i, value := range values {
		each(fmt.Sprintf("%s[%d]", at, i), value)
	}
}

func (r *reader) text(into *string) read {
	return func(at string, raw json.RawMessage) {
		if first(raw) != '"' || json.Unmarshal(raw, into) != nil {
			r.fail(at, "is %s; write a text in quotes", what(raw))
		}
	}
}

func (r *reader) texts(into *[]string) read {
	return func(at string, raw json.RawMessage) {
		*into = []string{}
		r.list(at, raw, func(at string, raw json.RawMessage) {
			var s string
			r.text(&s)(at, raw)
			*into = append(*into, s)
		})
	}
}

func (r *reader) flag(into *bool) read {
	return func(at string, raw json.RawMessage) {
		if json.Unmarshal(raw, into) != nil {
			r.fail(at, "is %s; write true or false", what(raw))
		}
	}
}

func (r *reader) number(into *float64) read {
	return func(at string, raw json.RawMessage) {
		v, err := strconv.ParseFloat(string(bytes.TrimSpace(raw)), 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			r.fail(at, "is too large a number")
		case err != nil || first(raw) == 'n':
			r.fail(at, "is %s; write a number", what(raw))
		}
		*into = v
	}
}

func (r *reader) ratios(into *map[string]float64) read {
	return func(at string, raw json.RawMessage) {
		out := map[string]float64{}
		r.pairs(at, raw, func(name, at string, raw json.RawMessage) {
			var v float64
			r.number(&v)(at, raw)
			out[name] = v
		})
		if len(out) > plimsoll.MaxRatios {
			r.fail(at, "has %d entries; at most %d are possible", len(out), plimsoll.MaxRatios)
		}
		*into = out
	}
}

// amounts reads amounts of resources as a job file has them: 2 and "500m" of cpu, "8Gi" of memory. A number without a suffix means the
// same with quotes and without.
func (r *reader) amounts(into *plimsoll.Resources) read {
	return func(at string, raw json.RawMessage) {
		out := plimsoll.Resources{}
		r.pairs(at, raw, func(name, at string, raw json.RawMessage) {
			text := string(bytes.TrimSpace(raw))
			switch c := first(raw); {
			case c == '"':
				r.text(&text)(at, raw)
			case c != '-' && (c < '0' || c > '9'):
				r.fail(at, `is %s; write an amount, such as 2 or "8Gi"`, what(raw))
				return
			}
			v, err := plimsoll.ParseQuantity(name, text)
			if err != nil {
				r.fail(at, "%s", err)
			}
			out[name] = v
		})
		*into = out
	}
}

func (r *reader) textMap(into *map[string]string) read {
	return func(at string, raw json.RawMessage) {
		out := map[string]string{}
		r.pairs(at, raw, func(name, at string, raw json.RawMessage) {
			var s string
			r.text(&s)(at, raw)
			out[name] = s
		})
		*into = out
	}
}

// traits reads an object of true, false, a word or a list of words.
func (r *reader) traits(into *map[string]plimsoll.Trait) read {
	return func(at string, raw json.RawMessage) {
		out := map[string]plimsoll.Trait{}
		r.pairs(at, raw, func(name, at string, raw json.RawMessage) {
			var t plimsoll.Trait
			switch first(raw) {
			case 't', 'f':
				r.flag(&t.Flag)(at, raw)
			case '"':
				t.Words = make([]string, 1)
				r.text(&t.Words[0])(at, raw)
			case '[':
				r.texts(&t.Words)(at, raw)
			default:
				r.fail(at, "is %s; write true, false, a word or a list of words", what(raw))
			}
			if len(t.Words) > plimsoll.MaxTraitWords {
				r.fail(at, "has %d words; at most %d are possible", len(t.Words), plimsoll.MaxTraitWords)
			}
			out[name] = t
		})
		*into = out
	}
}

// moment reads Unix seconds, or an instant as RFC 3339 writes it.
func (r *reader) moment(into *int64) read {
	return func(at string, raw json.RawMessage) {
		if first(raw) != '"' {
			v, err := strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 64)
			if err != nil || v < 0 {
				r.fail(at, "is %s; write whole seconds since 1970, or an instant such as %q", shown(raw), time.RFC3339[:19]+"Z")
			}
			*into = v
			return
		}
		var text string
		r.text(&text)(at, raw)
		when, err := time.Parse(time.RFC3339, text)
		if err != nil || when.Unix() < 0 {
			r.fail(at, `%q is not an instant after 1970; write for example "2026-01-31T08:00:00Z"`, shorten(text))
			return
		}
		*into = when.Unix()
	}
}

// shown is a number as it was written, and otherwise the kind of the value.
func shown(raw json.RawMessage) string {
	if c := first(raw); c == '-' || c >= '0' && c <= '9' {
		return shorten(string(bytes.TrimSpace(raw)))
	}
	return what(raw)
}

// shorten keeps an error on one line.
func shorten(text string) string {
	if len(text) > 64 {
		return strings.ToValidUTF8(text[:64], "") + "…"
	}
	return text
}

// document checks that data is JSON, and says where it is not.
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
	return raw, nil
}

// notJSON is an error at a byte of a document.
func notJSON(data []byte, offset int, problem string) error {
	before := data[:min(max(offset-1, 0), len(data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return plimsoll.Invalid("", "line %d, column %d: %s", line, column, problem)
}
