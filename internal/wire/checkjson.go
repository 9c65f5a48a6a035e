package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
)

// CheckJSON fails for a field, or a word of an enumeration, that m's type does not have. It also
// fails for a field that is written as zero where zero stands for a default. The error has
// CodeInvalid, the path of the field, such as spec.groups[0].cuont, and the nearest name.
//
// CheckJSON is meant for JSON that people write. It allocates next to nothing. Malformed JSON, and
// a value of a wrong type, are left to the decoder.
func CheckJSON(data []byte, m proto.Message) error {
	if !json.Valid(data) {
		return nil
	}
	c := jsonCheck{data: data}
	return c.message(m.ProtoReflect().Descriptor(), "")
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
	return c.object(func(name string) error {
		f := d.Fields().ByJSONName(name)
		if f == nil {
			f = d.Fields().ByTextName(name)
		}
		at := joinPath(path, shortened(name))
		if f == nil {
			return plimsoll.Invalid(at, "unknown field; %s", suggestField(name, d))
		}
		return c.field(f, joinPath(path, f.JSONName()))
	})
}

// field checks the value of a field.
func (c *jsonCheck) field(f protoreflect.FieldDescriptor, path string) error {
	switch {
	case f.IsMap():
		return c.object(func(key string) error { return c.single(f.MapValue(), joinPath(path, shortened(key))) })
	case !f.IsList():
		return c.single(f, path)
	case f.Kind() != protoreflect.MessageKind && f.Kind() != protoreflect.EnumKind:
		c.skip() // a million texts cost no path each
		return nil
	}
	i := -1
	return c.list(func() error {
		i++
		return c.single(f, fmt.Sprintf("%s[%d]", path, i))
	})
}

// single checks a value that is neither a list nor a map.
func (c *jsonCheck) single(f protoreflect.FieldDescriptor, path string) error {
	if f.Kind() == protoreflect.MessageKind {
		return c.message(f.Message(), path)
	}
	raw := c.skip()
	switch reason, has := notZero[f.FullName()]; {
	case has && isZero(raw):
		return plimsoll.Invalid(path, "%s", reason)
	case f.Kind() != protoreflect.EnumKind || raw[0] != '"':
		return nil // CheckEnums checks the number of an enumeration
	}
	word := unquoted(raw)
	if f.Enum().Values().ByName(protoreflect.Name(word)) == nil {
		return plimsoll.Invalid(path, "%q is not known; %s", shortened(word), suggestValue(word, f.Enum()))
	}
	return nil
}

// isZero reports whether a number, or a text that stands for one, is zero however it is written.
func isZero(raw []byte) bool {
	number := string(raw)
	if raw[0] == '"' {
		number = unquoted(raw)
	}
	n, err := strconv.ParseFloat(number, 64)
	return err == nil && n == 0
}

// object calls do at each value of an object; do must move the cursor past the value. Any other
// JSON value is skipped.
func (c *jsonCheck) object(do func(name string) error) error {
	if c.next() != '{' {
		c.skip()
		return nil
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

// list calls do at each element of a list; do must move the cursor past the element. Any other JSON
// value is skipped.
func (c *jsonCheck) list(do func() error) error {
	if c.next() != '[' {
		c.skip()
		return nil
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
	_ = json.Unmarshal(raw, &text) // the decoder refuses any other value
	return text
}

// shortened bounds a name for an error.
func shortened(name string) string {
	if len(name) > 64 {
		return strings.ToValidUTF8(name[:64], "") + "…"
	}
	return name
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func suggestField(name string, d protoreflect.MessageDescriptor) string {
	names := make([]string, d.Fields().Len())
	for i := range names {
		names[i] = d.Fields().Get(i).JSONName()
	}
	if len(names) == 0 {
		return "there are no fields here"
	}
	return plimsoll.Suggest(name, names)
}

// suggestValue suggests a value of an enumeration. It also matches a word without the common
// prefix: Running suggests JOB_STATE_RUNNING.
func suggestValue(word string, d protoreflect.EnumDescriptor) string {
	names := valueNames(d)
	before := strings.TrimSuffix(string(d.Values().ByNumber(0).Name()), "UNSPECIFIED")
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = strings.TrimPrefix(name, before)
	}
	if i := slices.Index(short, plimsoll.Nearest(word, short)); i >= 0 {
		return fmt.Sprintf("did you mean %q?", names[i])
	}
	return plimsoll.Suggest(word, names)
}

// valueNames returns the names of all values except the unspecified one.
func valueNames(d protoreflect.EnumDescriptor) []string {
	var names []string
	for i := range d.Values().Len() {
		if v := d.Values().Get(i); v.Number() != 0 {
			names = append(names, string(v.Name()))
		}
	}
	return names
}
