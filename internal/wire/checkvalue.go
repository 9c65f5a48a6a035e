package wire

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
)

// notExpected returns the error for a value of the wrong kind. An empty path is the whole body.
func notExpected(path string, raw []byte, wanted string) error {
	if path == "" {
		return plimsoll.Invalid("", "the body is %s; %s is expected, such as {}", shown(raw), wanted)
	}
	return plimsoll.Invalid(path, "is %s; %s is expected", shown(raw), wanted)
}

// shown returns a value for an error.
func shown(raw []byte) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	}
	return plimsoll.Shorten(string(raw))
}

// faultOf returns what is wrong with the JSON of a field's value or of one element of its list;
// empty: nothing. The field is no message.
func faultOf(raw []byte, f protoreflect.FieldDescriptor) string {
	if f.Kind() == protoreflect.EnumKind {
		return faultOfWord(raw, f.Enum())
	}
	var wanted string
	var ok bool
	switch f.Kind() {
	case protoreflect.StringKind:
		wanted, ok = "a text in quotes", raw[0] == '"'
	case protoreflect.BytesKind:
		wanted, ok = "a text in base64", raw[0] == '"'
	case protoreflect.BoolKind:
		wanted, ok = "true or false", raw[0] == 't' || raw[0] == 'f'
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		wanted, ok = "a number", isNumber(raw)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		wanted, ok = wholeNumber(raw, 0, math.MaxUint32)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		wanted, ok = wholeNumber(raw, 0, math.MaxUint64)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		wanted, ok = wholeNumber(raw, math.MinInt32, math.MaxInt32)
	default:
		wanted, ok = wholeNumber(raw, math.MinInt64, math.MaxInt64)
	}
	switch reason, has := notZero[f.FullName()]; {
	case !ok:
		return "is " + shown(raw) + "; " + wanted + " is expected"
	case has && isZero(raw):
		return reason
	}
	return ""
}

// faultOfWord is faultOf for an enumeration. CheckEnums checks its numbers.
func faultOfWord(raw []byte, d protoreflect.EnumDescriptor) string {
	if raw[0] != '"' {
		if _, ok := wholeNumber(raw, math.MinInt32, math.MaxInt32); ok {
			return ""
		}
		return "is " + shown(raw) + "; " + suggestValue("", d)
	}
	word := unquoted(raw)
	if d.Values().ByName(protoreflect.Name(word)) != nil {
		return ""
	}
	return fmt.Sprintf("%q is not known; %s", plimsoll.Shorten(word), suggestValue(word, d))
}

// numberIn returns the number of a JSON value, which may stand in quotes. It reports false if there
// is none.
func numberIn(raw []byte) (n float64, ok bool) {
	if n, ok = digitsIn(raw); ok {
		return n, true
	}
	text := string(raw)
	if raw[0] == '"' {
		text = unquoted(raw)
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// digitsIn is numberIn, without an allocation, for a number that is only digits. It reports false
// for others, and for one that a float64 might round.
func digitsIn(raw []byte) (n float64, ok bool) {
	if len(raw) > 15 {
		return 0, false
	}
	for _, digit := range raw {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		n = 10*n + float64(digit-'0')
	}
	return n, true
}

func isNumber(raw []byte) bool {
	_, ok := numberIn(raw)
	return ok
}

// isZero reports whether a number is zero however it is written.
func isZero(raw []byte) bool {
	n, ok := numberIn(raw)
	return ok && n == 0
}

// wholeNumber reports whether a value is a whole number of a range, whose name it returns. It may
// take a number that is just beyond the range, or whose fraction is tiny; the decoder does not.
func wholeNumber(raw []byte, least, most float64) (wanted string, ok bool) {
	n, ok := numberIn(raw)
	if ok && n == math.Trunc(n) && n >= least && n <= most {
		return "", true
	}
	return fmt.Sprintf("a whole number from %.0f to %s", least, highest(most)), false
}

// highest returns the digits of the highest number of a type, which a float64 rounds up.
func highest(most float64) string {
	switch most {
	case math.MaxInt64:
		return strconv.FormatInt(math.MaxInt64, 10)
	case math.MaxUint64:
		return strconv.FormatUint(math.MaxUint64, 10)
	}
	return fmt.Sprintf("%.0f", most)
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
