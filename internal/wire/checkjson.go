package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
)

// CheckJSON fails for JSON from which no message of m's type can be made, and for these mistakes: a
// field, or a word of an enumeration, that the type does not have; a field that is written as zero
// where zero stands for a default. The error has CodeInvalid, the path of the field, such as
// spec.groups[0].cuont, and the fix, such as the nearest name.
//
// CheckJSON is meant for JSON that people write. It allocates next to nothing. Rare faults are left
// to the decoder: half a character of two, a key of a map that comes twice, bytes that are no
// base64.
func CheckJSON(data []byte, m proto.Message) error {
	if err := checkSyntax(data); err != nil {
		return err
	}
	c := jsonCheck{data: data}
	return c.message(m.ProtoReflect().Descriptor(), "")
}

// checkSyntax fails unless the data is one JSON value.
func checkSyntax(data []byte) error {
	if len(data) == 0 {
		return plimsoll.Invalid("", "the body is empty; write {} for a message without fields")
	}
	if json.Valid(data) {
		return nil
	}
	var none json.RawMessage
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(data, &none), &syntax) {
		return plimsoll.Invalid("", "the body is not JSON; write an object, such as {}")
	}
	if strings.HasPrefix(syntax.Error(), "unexpected end") {
		return plimsoll.Invalid("", "the body is not JSON: it ends too early, %s; close each quote, bracket and brace",
			placeIn(data, len(data)))
	}
	wrong := max(0, int(syntax.Offset)-1) // Offset counts the byte that is wrong
	letter, _ := utf8.DecodeRune(data[wrong:])
	return plimsoll.Invalid("", "the body is not JSON: there is a wrong %q %s; names and texts stand in double quotes, "+
		"and no comma stands before a closing brace or bracket", letter, placeIn(data, wrong))
}

// placeIn names the line and column of a byte, counted from 1.
func placeIn(data []byte, at int) string {
	before := data[:at]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	return fmt.Sprintf("at line %d, column %d", bytes.Count(before, []byte{'\n'})+1, utf8.RuneCount(line)+1)
}

// notZero holds the errors for fields in which an explicit zero is surely a mistake, because zero
// stands for another default.
var notZero = map[protoreflect.FullName]string{
	"plimsoll.v1.GroupSpec.count": "is 0; give 1 or more, or leave it out for one task",
}

// jsonCheck is a cursor over valid JSON.
type jsonCheck struct {
	data []byte
	at   int // Invariant: data[:at] has been checked
}

// message checks the object of a message.
func (c *jsonCheck) message(d protoreflect.MessageDescriptor, path string) error {
	var seen, chosen uint64 // sets of the first 64 fields and oneofs
	return c.object(path, func(name string) error {
		f := d.Fields().ByJSONName(name)
		if f == nil {
			f = d.Fields().ByTextName(name)
		}
		if f == nil {
			return plimsoll.Invalid(joinPath(path, plimsoll.Shorten(name)), "unknown field; %s", suggestField(name, d))
		}
		at := joinPath(path, f.JSONName())
		if !addTo(&seen, f.Index()) {
			return plimsoll.Invalid(at, "comes twice; give it once")
		}
		if c.next() == 'n' { // null stands for a field that is left out
			c.skip()
			return nil
		}
		if one := f.ContainingOneof(); one != nil && !addTo(&chosen, one.Index()) {
			return plimsoll.Invalid(at, "comes with another field that excludes it; give only one of %s", fieldsOf(one))
		}
		return c.field(f, at)
	})
}

// addTo adds a number to a set, and reports whether it may be new.
func addTo(set *uint64, n int) bool {
	bit := uint64(1) << n // 0 from 64 on
	if *set&bit != 0 {
		return false
	}
	*set |= bit
	return true
}

// fieldsOf lists the fields of a oneof.
func fieldsOf(one protoreflect.OneofDescriptor) string {
	names := make([]string, one.Fields().Len())
	for i := range names {
		names[i] = one.Fields().Get(i).JSONName()
	}
	return strings.Join(names, ", ")
}

// field checks the value of a field.
func (c *jsonCheck) field(f protoreflect.FieldDescriptor, path string) error {
	switch {
	case f.IsMap():
		return c.object(path, func(key string) error {
			return c.single(f.MapValue(), joinPath(path, plimsoll.Shorten(key)))
		})
	case !f.IsList():
		return c.single(f, path)
	}
	element := func(i int) string { return fmt.Sprintf("%s[%d]", path, i) }
	i := -1
	return c.list(path, func() error {
		i++
		if f.Kind() == protoreflect.MessageKind {
			return c.message(f.Message(), element(i))
		}
		if fault := faultOf(c.skip(), f); fault != "" { // a million texts cost no path each
			return plimsoll.Invalid(element(i), "%s", fault)
		}
		return nil
	})
}

// single checks a value that is neither a list nor a map.
func (c *jsonCheck) single(f protoreflect.FieldDescriptor, path string) error {
	if f.Kind() == protoreflect.MessageKind {
		return c.message(f.Message(), path)
	}
	if fault := faultOf(c.skip(), f); fault != "" {
		return plimsoll.Invalid(path, "%s", fault)
	}
	return nil
}

// object calls do at each value of an object; do must move the cursor past the value. It fails for
// any other JSON value.
func (c *jsonCheck) object(path string, do func(name string) error) error {
	if c.next() != '{' {
		return notExpected(path, c.skip(), "an object in braces")
	}
	for c.at++; c.next() != '}'; {
		name := unquoted(c.skip())
		c.next() // the colon
		c.at++
		c.next()
		if err := do(name); err != nil {
			return err
		}
		if c.next() == ',' {
			c.at++
		}
	}
	c.at++
	return nil
}

// list calls do at each element of a list; do must move the cursor past the element. It fails for
// any other JSON value.
func (c *jsonCheck) list(path string, do func() error) error {
	if c.next() != '[' {
		return notExpected(path, c.skip(), "a list in brackets")
	}
	for c.at++; c.next() != ']'; {
		if err := do(); err != nil {
			return err
		}
		if c.next() == ',' {
			c.at++
		}
	}
	c.at++
	return nil
}

// next skips white space and returns the next byte.
func (c *jsonCheck) next() byte {
	for strings.IndexByte(" \t\r\n", c.data[c.at]) >= 0 {
		c.at++
	}
	return c.data[c.at]
}

// skip moves the cursor past a value and returns its text.
func (c *jsonCheck) skip() []byte {
	c.next()
	from, depth := c.at, 0
	for ; c.at < len(c.data); c.at++ {
		switch c.data[c.at] {
		case '"':
			c.text()
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return c.data[from:c.at]
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return c.data[from:c.at]
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			c.at++
			break
		}
	}
	return c.data[from:c.at]
}

// text moves the cursor from the opening quote of a string to the closing one.
func (c *jsonCheck) text() {
	for c.at++; c.data[c.at] != '"'; c.at++ {
		if c.data[c.at] == '\\' {
			c.at++
		}
	}
}

// unquoted returns the text of a JSON string; empty for any other value.
func unquoted(raw []byte) (text string) {
	if raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	_ = json.Unmarshal(raw, &text) // any other value stays empty
	return text
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
