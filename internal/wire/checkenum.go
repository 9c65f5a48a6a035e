package wire

import (
	"fmt"
	"strings"

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
func CheckEnums(m proto.Message) error { return checkEnums(m.ProtoReflect(), "") }

func checkEnums(m protoreflect.Message, path string) error {
	var err error
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Enum() == nil && f.Message() == nil {
			return true
		}
		err = checkFieldEnums(f, v, joinPath(path, f.JSONName()))
		return err == nil
	})
	return err
}

func checkFieldEnums(f protoreflect.FieldDescriptor, v protoreflect.Value, path string) (err error) {
	switch {
	case f.IsMap():
		if f.MapValue().Enum() == nil && f.MapValue().Message() == nil {
			return nil
		}
		v.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
			err = checkValueEnums(f.MapValue(), v, joinPath(path, shortened(key.String())), 1)
			return err == nil
		})
	case f.IsList():
		for i := 0; i < v.List().Len() && err == nil; i++ {
			err = checkValueEnums(f, v.List().Get(i), fmt.Sprintf("%s[%d]", path, i), 1)
		}
	default:
		err = checkValueEnums(f, v, path, 0)
	}
	return err
}

// checkValueEnums checks one value. An enumeration number must be known and at least least.
func checkValueEnums(
	f protoreflect.FieldDescriptor, v protoreflect.Value, path string, least protoreflect.EnumNumber,
) error {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return checkEnums(v.Message(), path)
	case protoreflect.EnumKind:
		if n := v.Enum(); n < least || f.Enum().Values().ByNumber(n) == nil {
			return plimsoll.Invalid(
				path, "%d is not known; possible are %s", n, strings.Join(valueNames(f.Enum()), ", "),
			)
		}
	}
	return nil
}
