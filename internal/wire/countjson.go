package wire

import (
	"google.golang.org/protobuf/proto"
)

// Allocations of decoding JSON in bytes, beside the message. The tests compare them with the
// decoder.
const (
	jsonObjectBytes = 32  // for each object: the set of its fields that were seen
	jsonNameBytes   = 112 // for each name, with the entry of a map
	jsonValueBytes  = 128 // for each list and each element: the token, the entry of a list
	jsonTextGrowth  = 3   // for each byte of a text: the token, the unquoted text, the field
)

// FootprintJSON is Footprint for the JSON form of a message. It ignores the names of fields: each
// object counts as the largest message that m's type can hold.
func FootprintJSON(data []byte, m proto.Message, most int) (int, error) {
	c := counter{most: most}
	object := layoutOf(m.ProtoReflect().Descriptor()).largestObject()
	depth, text := 0, false
	for i := 0; i < len(data); i++ {
		n := 0
		switch b := data[i]; {
		case text && b == '\\':
			i++
			n = 2 * jsonTextGrowth
		case b == '"':
			text = !text
		case text:
			n = jsonTextGrowth
		case b == '{' || b == '[':
			if depth++; depth > 2*maxDepth { // a list and its objects are two levels
				return c.sum, tooDeep()
			}
			n = jsonValueBytes
			if b == '{' {
				n = object
			}
		case b == '}' || b == ']':
			depth--
		case b == ',':
			n = jsonValueBytes
		case b == ':':
			n = jsonNameBytes
		}
		if !c.add(n) {
			break
		}
	}
	return c.sum, c.err
}

// largestObject returns the highest cost of an object of the message.
func (l *layout) largestObject() int {
	l.once.Do(func() { l.object = largestStruct(l) + jsonObjectBytes })
	return l.object
}
