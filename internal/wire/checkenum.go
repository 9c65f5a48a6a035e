package wire

import (
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
)

// CheckEnums fails for an enumeration number that this version does not know. It also fails for a
// list with an unspecified number, by which a filter would choose nothing or be turned off. The
// error has CodeInvalid and the path of the field in the JSON form of the message.
//
// A single field with an unspecified number cannot be told from a missing one. Each method decides
// whether such a field may be missing.
func CheckEnums(m proto.Message) error {
	bad := checkEnums(m.ProtoReflect())
	if bad == nil {
		return nil
	}
	known := strings.Join(valueNames(bad.enum), ", ")
	return plimsoll.Invalid(bad.path, "%d is not known; possible are %s", bad.number, known)
}

// badEnum is a number that is not known. Its path grows from the inside while the check returns, so
// that a message without one costs no strings.
type badEnum struct {
	path   string
	number protoreflect.EnumNumber
	enum   protoreflect.EnumDescriptor
}

// below puts a part before the path.
func (b *badEnum) below(part string) *badEnum {
	if b != nil && (b.path == "" || strings.HasPrefix(b.path, "[")) {
		b.path = part + b.path
	} else if b != nil {
		b.path = joinPath(part, b.path)
	}
	return b
}

func checkEnums(m protoreflect.Message) *badEnum {
	for _, f := range enumFields(m.Descriptor()) {
		if !m.Has(f) {
			continue
		}
		if bad := checkFieldEnums(f, m.Get(f)); bad != nil {
			return bad.below(f.JSONName())
		}
	}
	return nil
}

func checkFieldEnums(f protoreflect.FieldDescriptor, v protoreflect.Value) (bad *badEnum) {
	switch {
	case f.IsMap():
		v.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
			bad = checkValueEnums(f.MapValue(), v, 1)
			bad.below(plimsoll.Shorten(key.String()))
			return bad == nil
		})
	case f.IsList():
		for i := 0; i < v.List().Len() && bad == nil; i++ {
			if bad = checkValueEnums(f, v.List().Get(i), 1); bad != nil {
				bad.below(fmt.Sprintf("[%d]", i))
			}
		}
	default:
		bad = checkValueEnums(f, v, 0)
	}
	return bad
}

// checkValueEnums checks one value. An enumeration number must be known and at least least.
func checkValueEnums(f protoreflect.FieldDescriptor, v protoreflect.Value, least protoreflect.EnumNumber) *badEnum {
	if f.Message() != nil {
		return checkEnums(v.Message())
	}
	if n := v.Enum(); n < least || f.Enum().Values().ByNumber(n) == nil {
		return &badEnum{number: n, enum: f.Enum()}
	}
	return nil
}

// enumFieldsOf has the answers of enumFields by the full name of the message. It is as large as the
// API has messages.
var enumFieldsOf sync.Map

// enumFields returns the fields of a message that are enumerations, or that have some below them.
func enumFields(m protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	if known, ok := enumFieldsOf.Load(m.FullName()); ok {
		return known.([]protoreflect.FieldDescriptor) //nolint:forcetypeassert // only the line below stores
	}
	var found []protoreflect.FieldDescriptor
	for i := range m.Fields().Len() {
		if f := m.Fields().Get(i); hasEnums(f, map[protoreflect.FullName]bool{}) {
			found = append(found, f)
		}
	}
	enumFieldsOf.Store(m.FullName(), found)
	return found
}

// hasEnums reports whether a field is an enumeration or has one below it. seen holds the messages
// that were looked at.
func hasEnums(f protoreflect.FieldDescriptor, seen map[protoreflect.FullName]bool) bool {
	if f.IsMap() {
		f = f.MapValue()
	}
	m := f.Message()
	if m == nil || seen[m.FullName()] {
		return f.Enum() != nil
	}
	seen[m.FullName()] = true
	for i := range m.Fields().Len() {
		if hasEnums(m.Fields().Get(i), seen) {
			return true
		}
	}
	return false
}
