package wire

import (
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// AppendBatch encodes a batch as the message Batch of replication.proto. It keeps the difference
// between a put of an empty value and a delete.
func AppendBatch(dst []byte, b *Batch) []byte {
	dst = appendVarint(dst, 1, b.Epoch)
	dst = appendVarint(dst, 2, b.Revision)
	dst = appendVarint(dst, 3, uint64(b.Time))
	for i := range b.Mutations {
		m := &b.Mutations[i]
		dst = AppendMutation(appendHeader(dst, 4, SizeMutation(m)), m)
	}
	if e := &b.Events; e.FirstID != 0 || e.Count != 0 || len(e.Data) > 0 {
		dst = appendHeader(dst, 5, sizeVarint(1, e.FirstID)+sizeVarint(2, e.Count)+sizeLen(3, len(e.Data)))
		dst = appendVarint(dst, 1, e.FirstID)
		dst = appendVarint(dst, 2, e.Count)
		dst = appendBytes(dst, 3, e.Data)
	}
	return dst
}

// AppendMutation encodes one mutation as the message Mutation of replication.proto.
func AppendMutation(dst []byte, m *Mutation) []byte {
	dst = appendVarint(dst, 1, uint64(m.Kind))
	dst = appendText(dst, 2, m.Key)
	dst = appendBytes(dst, 3, m.Value)
	dst = appendBool(dst, 4, m.Value == nil)
	dst = appendBool(dst, 5, m.Ephemeral)
	return appendText(dst, 6, m.Node)
}

// SizeMutation returns the number of bytes that AppendMutation writes.
func SizeMutation(m *Mutation) int {
	return sizeVarint(1, uint64(m.Kind)) + sizeText(2, m.Key) + sizeLen(3, len(m.Value)) + sizeBool(4, m.Value == nil) +
		sizeBool(5, m.Ephemeral) + sizeText(6, m.Node)
}

// DecodeBatch decodes a batch. Its values and events alias data, which must not be changed
// afterwards. An unknown kind of record, and a delete with a value, are errors.
func DecodeBatch(data []byte) (Batch, error) {
	b, err := decodeBatch(data)
	if err != nil {
		return Batch{}, corrupt("batch", err)
	}
	return b, nil
}

func decodeBatch(data []byte) (b Batch, err error) {
	count, names, err := measureBatch(data)
	if err != nil {
		return b, err
	}
	if count > 0 {
		b.Mutations = make([]Mutation, 0, count)
	}
	// One allocation holds all keys and nodes: they live as long as the values, which alias data.
	var arena strings.Builder
	arena.Grow(names)
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return b, err
		}
		data = rest
		switch f.tag {
		case 1<<3 | varintType:
			b.Epoch = f.v
		case 2<<3 | varintType:
			b.Revision = f.v
		case 3<<3 | varintType:
			b.Time = int64(f.v)
		case 4<<3 | bytesType:
			m, err := decodeMutation(f.b, &arena)
			if err != nil {
				return b, err
			}
			b.Mutations = append(b.Mutations, m)
		case 5<<3 | bytesType:
			if err := decodeEventChunk(&b.Events, f.b); err != nil {
				return b, err
			}
		}
	}
	return b, nil
}

// measureBatch counts the mutations of a batch and the bytes of their keys and nodes.
func measureBatch(data []byte) (count, names int, err error) {
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return 0, 0, err
		}
		data = rest
		if f.tag != 4<<3|bytesType {
			continue
		}
		count++
		for inner := f.b; len(inner) > 0; {
			if f, inner, err = nextField(inner); err != nil {
				return 0, 0, err
			}
			if f.tag == 2<<3|bytesType || f.tag == 6<<3|bytesType {
				names += len(f.b)
			}
		}
	}
	return count, names, nil
}

// DecodeMutation decodes one mutation. Its value aliases data.
func DecodeMutation(data []byte) (Mutation, error) {
	var arena strings.Builder
	m, err := decodeMutation(data, &arena)
	if err != nil {
		return Mutation{}, corrupt("mutation", err)
	}
	return m, nil
}

func decodeMutation(data []byte, arena *strings.Builder) (m Mutation, err error) {
	deleted := false
	m.Value = []byte{}
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return m, err
		}
		data = rest
		switch f.tag {
		case 1<<3 | varintType:
			m.Kind = Kind(enum(&f))
		case 2<<3 | bytesType:
			m.Key, err = addText(arena, f.b)
		case 3<<3 | bytesType:
			m.Value = f.b
		case 4<<3 | varintType:
			deleted = f.v != 0
		case 5<<3 | varintType:
			m.Ephemeral = f.v != 0
		case 6<<3 | bytesType:
			m.Node, err = addText(arena, f.b)
		}
		if err != nil {
			return m, err
		}
	}
	if m.Kind == 0 || m.Kind >= NumKinds {
		return m, plimsoll.Errorf(
			plimsoll.CodeCorrupt,
			"a mutation is of a kind that this version does not know; a newer one may have written it",
		)
	}
	if deleted && len(m.Value) > 0 {
		return m, plimsoll.Errorf(plimsoll.CodeCorrupt, "a mutation deletes a record and has a value for it")
	}
	if deleted {
		m.Value = nil
	}
	return m, nil
}

func addText(arena *strings.Builder, b []byte) (string, error) {
	if err := checkText(b); err != nil {
		return "", err
	}
	start := arena.Len()
	arena.Write(b)
	return arena.String()[start:], nil
}

// decodeEventChunk merges data into c, as protobuf does with a message that occurs twice.
func decodeEventChunk(c *EventChunk, data []byte) error {
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return err
		}
		data = rest
		switch f.tag {
		case 1<<3 | varintType:
			c.FirstID = f.v
		case 2<<3 | varintType:
			c.Count = f.v
		case 3<<3 | bytesType:
			c.Data = f.b
		}
	}
	return nil
}
