package wire

import (
	"google.golang.org/protobuf/proto"
)

// What decoding JSON allocates beside the message; the tests hold it against the decoder.
const (
	jsonObjectBytes = 32  // for each object: which of its fields were seen
	jsonNameBytes   = 112 // for each name, with the entry of a map
	jsonValueBytes  = 128 // for each list and each element: the token, the entry of a list
	jsonTextGrowth  = 3   // for each byte of a text: the token, what is made of it, the field
)

// FootprintJSON is Footprint for the JSON form of a message. Which field a value belongs to is not
// looked at: each object counts as the largest message that the type can hold.
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
			if depth++; depth > 2*maxDepth { // a list and its objects are two
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

// largestObject is what an object costs at most.
func (l *layout) largestObject() int {
	l.once.Do(func() { l.object = largestStruct(l) + jsonObjectBytes })
	return l.object
}
