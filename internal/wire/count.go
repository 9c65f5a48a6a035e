package wire

import (
	"reflect"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/plimsoll-dev/plimsoll"
)

// Allocations of the decoder in bytes, the garbage of growing slices and maps included. The tests
// compare them with the decoder. A slice that grows by a quarter at a time costs five times its
// last size.
const (
	growth        = 5
	pointerBytes  = 8
	stringBytes   = 16 // the header of a string or a slice; also the rounding of an allocation
	mapBytes      = 96 // and eight times its key and value: the smallest map has room for eight
	mapEntryBytes = 64 // an entry after the first, and four times its key and value
	unknownGrowth = 5

	// maxDepth bounds the nesting of messages. The deepest message is a tree of queues.
	maxDepth = 100
)

// Footprint returns the approximate bytes that decoding data into a message like m allocates, and
// never less than the size of the decoded message. It decodes and allocates nothing, and stops with
// an error once the sum exceeds most. Unknown fields and repeated occurrences of a field count like
// all others. Malformed data is left to the decoder.
func Footprint(data []byte, m proto.Message, most int) (int, error) {
	c := counter{most: most}
	c.message(data, layoutOf(m.ProtoReflect().Descriptor()), 0)
	return c.sum, c.err
}

// counter adds up the cost of a message. Invariant: err is set once sum exceeds most.
type counter struct {
	sum, most int
	err       error
}

func (c *counter) add(n int) bool {
	if c.sum += n; c.sum > c.most {
		c.err = tooMuch(c.most)
		return false
	}
	return true
}

func tooMuch(most int) error {
	return plimsoll.Invalid(
		"message", "has so many elements that it would take more than %d bytes decoded; send fewer at once", most,
	)
}

func tooDeep() error {
	return plimsoll.Invalid("message", "is nested more than %d deep; no message needs that", maxDepth)
}

// message counts the fields of a message; the caller has counted its struct. It returns false when
// counting must stop: the sum is too large, or the bytes are malformed.
func (c *counter) message(data []byte, of *layout, depth int) bool {
	if depth > maxDepth {
		c.err = tooDeep()
		return false
	}
	var before *fieldLayout
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		f := of.field(number)
		if f != nil && f != before && f.first > 0 && !c.add(f.first) {
			return false
		}
		before = f
		var ok bool
		if data, ok = c.value(data, number, kind, f, depth); !ok {
			return false
		}
	}
	return true
}

// value counts the value of a field, and returns the bytes behind it. f is nil for an unknown
// field.
func (c *counter) value(
	data []byte, number protowire.Number, kind protowire.Type, f *fieldLayout, depth int,
) (rest []byte, ok bool) {
	if kind != protowire.BytesType {
		n := protowire.ConsumeFieldValue(number, kind, data)
		if n < 0 {
			return nil, false
		}
		if f == nil || kind != f.kind {
			return data[n:], c.add((n + protowire.SizeTag(number)) * unknownGrowth)
		}
		return data[n:], c.add(f.each)
	}
	content, n := protowire.ConsumeBytes(data)
	if n < 0 {
		return nil, false
	}
	rest = data[n:]
	switch {
	case f == nil:
		return rest, c.add((n + protowire.SizeTag(number)) * unknownGrowth)
	case f.message != nil:
		return rest, c.add(f.each) && c.message(content, f.message, depth+1)
	case f.kind != protowire.BytesType: // packed
		return rest, c.add(stringBytes + elements(content, f.kind)*f.packed)
	}
	return rest, c.add(f.each + len(content) + stringBytes)
}

// elements returns the count of the numbers that are packed in b.
func elements(b []byte, kind protowire.Type) int {
	switch kind {
	case protowire.Fixed32Type:
		return len(b) / 4
	case protowire.Fixed64Type:
		return len(b) / 8
	}
	n := 0
	for _, v := range b {
		if v < 0x80 {
			n++
		}
	}
	return n
}

// layout is the cost of the elements of a message type, in bytes.
type layout struct {
	size   int            // size of its struct
	fields []*fieldLayout // fields with small numbers, by number
	others map[protowire.Number]*fieldLayout

	once   sync.Once
	object int // memo of largestObject
}

// fieldLayout is the cost of a field, in bytes.
type fieldLayout struct {
	kind    protowire.Type // wire type of its values
	each    int            // for each occurrence
	first   int            // in addition, if the field before it was another
	packed  int            // for each element of a packed list
	message *layout        // layout of its values; nil if they are no messages
}

const denseFields = 64

func (l *layout) field(number protowire.Number) *fieldLayout {
	if int(number) < len(l.fields) {
		return l.fields[number]
	}
	return l.others[number]
}

// layoutTable holds the layouts of the message types that were counted. The number of message types
// bounds it.
type layoutTable struct {
	byName sync.Map // protoreflect.FullName to *layout, complete
	making sync.Mutex
}

var layouts layoutTable //nolint:gochecknoglobals // a memo of a pure function

func layoutOf(d protoreflect.MessageDescriptor) *layout {
	if known, ok := layouts.byName.Load(d.FullName()); ok {
		return known.(*layout)
	}
	layouts.making.Lock()
	defer layouts.making.Unlock()
	made := map[protoreflect.FullName]*layout{}
	l := makeLayout(d, made)
	for name, l := range made {
		layouts.byName.LoadOrStore(name, l)
	}
	return l
}

func makeLayout(d protoreflect.MessageDescriptor, made map[protoreflect.FullName]*layout) *layout {
	if l := made[d.FullName()]; l != nil {
		return l
	}
	l := &layout{size: structSize(d), others: map[protowire.Number]*fieldLayout{}}
	made[d.FullName()] = l
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := makeField(fd, made)
		if number := fd.Number(); number < denseFields {
			l.fields = append(l.fields, make([]*fieldLayout, max(0, int(number)+1-len(l.fields)))...)
			l.fields[number] = f
		} else {
			l.others[number] = f
		}
	}
	return l
}

func makeField(fd protoreflect.FieldDescriptor, made map[protoreflect.FullName]*layout) *fieldLayout {
	f := &fieldLayout{kind: wireTypes[fd.Kind()]}
	inPlace := valueBytes(fd)
	switch {
	case fd.IsMap():
		f.message = makeLayout(fd.Message(), made)
		entry := valueBytes(fd.MapKey()) + valueBytes(fd.MapValue())
		f.each = mapEntryBytes + 4*entry
		f.first = mapBytes - mapEntryBytes + 4*entry
		return f
	case fd.Message() != nil:
		f.message = makeLayout(fd.Message(), made)
		f.each = f.message.size + stringBytes
	}
	switch {
	case fd.IsList():
		f.each += inPlace * growth
		f.packed = inPlace * 2
	case fd.ContainingOneof() != nil, fd.HasPresence():
		f.each += inPlace + stringBytes
	}
	return f
}

// valueBytes returns the bytes of a value in its struct, slice or map.
func valueBytes(fd protoreflect.FieldDescriptor) int {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return stringBytes
	case protoreflect.BytesKind:
		return stringBytes + pointerBytes
	case protoreflect.BoolKind:
		return 1
	case protoreflect.EnumKind, protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind,
		protoreflect.Sfixed32Kind,
		protoreflect.Fixed32Kind, protoreflect.FloatKind:
		return 4
	}
	return pointerBytes
}

// structSize returns the size of a message's struct. A map entry has no struct, but the messages
// among its values have.
func structSize(d protoreflect.MessageDescriptor) int {
	if d.IsMapEntry() {
		return 0
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return 512 // a message without generated code is decoded in another way
	}
	size := int(reflect.TypeOf(t.Zero().Interface()).Elem().Size())
	return size + size/8
}

// wireTypes are the wire types of values, by the kind of their field.
var wireTypes = [...]protowire.Type{
	protoreflect.BoolKind: protowire.VarintType, protoreflect.EnumKind: protowire.VarintType,
	protoreflect.Int32Kind: protowire.VarintType, protoreflect.Sint32Kind: protowire.VarintType,
	protoreflect.Uint32Kind: protowire.VarintType,
	protoreflect.Int64Kind:  protowire.VarintType, protoreflect.Sint64Kind: protowire.VarintType,
	protoreflect.Uint64Kind:   protowire.VarintType,
	protoreflect.Sfixed32Kind: protowire.Fixed32Type, protoreflect.Fixed32Kind: protowire.Fixed32Type,
	protoreflect.FloatKind:    protowire.Fixed32Type,
	protoreflect.Sfixed64Kind: protowire.Fixed64Type, protoreflect.Fixed64Kind: protowire.Fixed64Type,
	protoreflect.DoubleKind: protowire.Fixed64Type,
	protoreflect.StringKind: protowire.BytesType, protoreflect.BytesKind: protowire.BytesType,
	protoreflect.MessageKind: protowire.BytesType,
	protoreflect.GroupKind:   protowire.StartGroupType,
}

// largestStruct returns the size of the largest struct among a message and all messages that it can
// hold.
func largestStruct(l *layout) int {
	seen := []*layout{l}
	largest := 0
	for i := 0; i < len(seen); i++ {
		largest = max(largest, seen[i].size)
		for f := range allFields(seen[i]) {
			if f.message != nil && !slices.Contains(seen, f.message) {
				seen = append(seen, f.message)
			}
		}
	}
	return largest
}

func allFields(l *layout) func(yield func(*fieldLayout) bool) {
	return func(yield func(*fieldLayout) bool) {
		for _, f := range l.fields {
			if f != nil && !yield(f) {
				return
			}
		}
		for _, f := range l.others {
			if !yield(f) {
				return
			}
		}
	}
}
