package wire

import (
	"errors"
	"math"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
)

// The wire types in the tags of fields. A tag is number<<3 | type.
const (
	varintType = uint64(protowire.VarintType)
	bytesType  = uint64(protowire.BytesType)
)

// text returns s as valid text for a proto3 string field, with U+FFFD in place of bytes that are
// not UTF-8.
func text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func appendVarint(dst []byte, number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendVarint(dst, number<<3|varintType), v)
}

func appendInt32(dst []byte, number uint64, v int32) []byte {
	return appendVarint(dst, number, uint64(int64(v))) // a negative number takes ten bytes, as in protobuf
}

func appendBool(dst []byte, number uint64, v bool) []byte {
	if !v {
		return dst
	}
	return appendVarint(dst, number, 1)
}

func appendText(dst []byte, number uint64, s string) []byte {
	if s == "" {
		return dst
	}
	return protowire.AppendString(protowire.AppendVarint(dst, number<<3|bytesType), text(s))
}

func appendBytes(dst []byte, number uint64, b []byte) []byte {
	if len(b) == 0 {
		return dst
	}
	return protowire.AppendBytes(protowire.AppendVarint(dst, number<<3|bytesType), b)
}

// appendHeader begins an embedded message of a known size.
func appendHeader(dst []byte, number uint64, size int) []byte {
	return protowire.AppendVarint(protowire.AppendVarint(dst, number<<3|bytesType), uint64(size))
}

func sizeVarint(number, v uint64) int {
	if v == 0 {
		return 0
	}
	return protowire.SizeVarint(number<<3) + protowire.SizeVarint(v)
}

func sizeInt32(number uint64, v int32) int { return sizeVarint(number, uint64(int64(v))) }

func sizeBool(number uint64, v bool) int {
	if !v {
		return 0
	}
	return sizeVarint(number, 1)
}

func sizeLen(number uint64, n int) int {
	if n == 0 {
		return 0
	}
	return sizeMessage(number, n)
}

func sizeText(number uint64, s string) int { return sizeLen(number, len(text(s))) }

// sizeMessage returns the size of an embedded message, which is written even if it is empty.
func sizeMessage(number uint64, size int) int {
	return protowire.SizeVarint(number<<3) + protowire.SizeBytes(size)
}

// field is one field of an encoded message. tag holds its number and wire type; v is set for a
// varint, b for bytes.
type field struct {
	tag uint64
	v   uint64
	b   []byte
}

var errFieldNumber = errors.New("a field has a number that is not possible")

// nextField reads the first field of data and returns the rest. Most tags, and many numbers, are
// one byte, for which it has a fast path.
func nextField(data []byte) (f field, rest []byte, err error) {
	if len(data) > 1 && data[0] >= 1<<3 && data[0] < 0x80 {
		f.tag = uint64(data[0])
		data = data[1:]
	} else {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return field{}, nil, protowire.ParseError(n)
		}
		if number > protowire.MaxValidNumber {
			return field{}, nil, errFieldNumber
		}
		f.tag = uint64(number)<<3 | uint64(kind)
		data = data[n:]
	}
	var n int
	switch f.tag & 7 {
	case varintType:
		if len(data) > 0 && data[0] < 0x80 {
			f.v, n = uint64(data[0]), 1
		} else {
			f.v, n = protowire.ConsumeVarint(data)
		}
	case bytesType:
		f.b, n = protowire.ConsumeBytes(data)
	default:
		n = protowire.ConsumeFieldValue(protowire.Number(f.tag>>3), protowire.Type(f.tag&7), data)
	}
	if n < 0 {
		return field{}, nil, protowire.ParseError(n)
	}
	return f, data[n:], nil
}

// checkText fails for text that is not UTF-8.
func checkText(b []byte) error {
	if !utf8.Valid(b) {
		return plimsoll.Errorf(plimsoll.CodeCorrupt, "it holds text that is not UTF-8")
	}
	return nil
}

// enum reads an enumeration number. A number beyond uint8 becomes the highest, which no enumeration
// has. The last of several occurrences counts, so the number is checked only after all fields are
// read.
func enum(f *field) uint8 { return enumOf(int32(f.v)) }

// enumOf is enum for a number.
func enumOf(n int32) uint8 {
	if n >= 0 && n <= math.MaxUint8 {
		return uint8(n)
	}
	return math.MaxUint8
}

// Enumeration is an enumeration of package plimsoll. It has the numbers of the proto files, with
// zero for an unset value.
type Enumeration interface {
	~uint8
	Known() bool
}

// Known reports whether n is zero or a number that this version knows.
func Known[T Enumeration, N ~uint8 | ~int32](n N) bool {
	return n == 0 || n > 0 && uint32(n) <= math.MaxUint8 && T(n).Known()
}

// checkEnum fails for a number that this version does not know.
func checkEnum[T Enumeration, N ~uint8 | ~int32](what string, n N) error {
	if !Known[T](n) {
		return plimsoll.Errorf(
			plimsoll.CodeCorrupt, "its %s is not known to this version; a newer one may have written it", what,
		)
	}
	return nil
}

// EnumsFromProto converts values of an enumeration. Those that this version does not know are left
// out.
func EnumsFromProto[T Enumeration, N ~int32](ns []N) []T {
	var values []T
	for _, n := range ns {
		if Known[T](n) {
			values = append(values, T(n))
		}
	}
	return values
}

// EnumFromProto converts the value of an enumeration. A number that this version does not know
// becomes zero.
func EnumFromProto[T Enumeration, N ~int32](n N) T {
	if !Known[T](n) {
		return 0
	}
	return T(n)
}

func corrupt(what string, err error) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeCorrupt, Op: "decode " + what, Msg: "the stored or received bytes are malformed", Err: err,
	}
}

// appendMessage encodes through the generated code, which fails only for text that is not UTF-8 and
// for more than 2 GiB. ToProto has replaced such text, so a failure is a broken invariant.
func appendMessage(dst []byte, m proto.Message) []byte {
	out, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(dst, m)
	if err != nil {
		panic("wire: encode " + string(m.ProtoReflect().Descriptor().Name()) + ": " + err.Error())
	}
	return out
}

func decodeMessage(what string, data []byte, m proto.Message) error {
	if err := proto.Unmarshal(data, m); err != nil {
		return corrupt(what, err)
	}
	return nil
}
