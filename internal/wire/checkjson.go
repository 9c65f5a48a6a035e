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

// CheckJSON fails for a field, or a word of an enumeration, that a message of this type does not
// have, and for a field that is written as zero where zero stands for a default. The error is of
// CodeInvalid and has the path of the field, such as spec.groups[0].cuont, and the nearest name.
//
// It is for JSON that people write. It allocates next to nothing. What is no JSON, or of another
// type than the field, it leaves to the decoder.
func CheckJSON(data []byte, m proto.Message) error {
	if !json.Valid(data) {
		return nil
	}
	c := jsonCheck{data: data}
	return c.message(m.ProtoReflect().Descriptor(), "")
}

// notZero are fields for which a zero is a default that nobody means who writes it.
var notZero = map[protoreflect.FullName]string{
	"plimsoll.v1.GroupSpec.count": "is 0; give 1 or more, or leave it out for one task",
}

// jsonCheck goes over valid JSON.
type jsonCheck struct {
	data []byte
	at   int // Invariant: what is before it was looked at
}

// message checks an object that stands for a message.
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

// single checks a value that is no list and no map.
func (c *jsonCheck) single(f protoreflect.FieldDescriptor, path string) error {
	if f.Kind() == protoreflect.MessageKind {
		return c.message(f.Message(), path)
	}
	raw := c.skip()
	switch reason, has := notZero[f.FullName()]; {
	case has && isZero(raw):
		return plimsoll.Invalid(path, "%s", reason)
	case f.Kind() != protoreflect.EnumKind || raw[0] != '"':
		return nil // a number of an enumeration is looked at by CheckEnums
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

// object calls do at each value, which do must pass. What is no object is passed over.
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

// list calls do at each element, which do must pass. What is no list is passed over.
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

// next is the next byte that is no space.
func (c *jsonCheck) next() byte {
	for strings.IndexByte(" \t\r\n", c.data[c.at]) >= 0 {
		c.at++
	}
	return c.data[c.at]
}

// skip passes a value and returns it as it is written.
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

// text goes from the quote that begins a text to the one that ends it.
func (c *jsonCheck) text() {
	for c.at++; c.data[c.at] != '"'; c.at++ {
		if c.data[c.at] == '\\' {
			c.at++
		}
	}
}

// unquoted is the text that a value stands for; empty if it is none.
func unquoted(raw []byte) (text string) {
	_ = json.Unmarshal(raw, &text) // what is no text is told by the decoder
	return text
}

// shortened is a name as an error shows it.
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

// suggestValue knows a value also without the prefix that all have: Running is JOB_STATE_RUNNING.
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

// valueNames are the names of all values but that which stands for none.
func valueNames(d protoreflect.EnumDescriptor) []string {
	var names []string
	for i := range d.Values().Len() {
		if v := d.Values().Get(i); v.Number() != 0 {
			names = append(names, string(v.Name()))
		}
	}
	return names
}
