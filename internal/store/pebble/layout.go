package pebble

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// formatVersion is the version of this package's files: the layout below and the witness. It is
// raised by each change that an older binary would misread.
const formatVersion = 1

// The first byte of a key. The values between these are kinds of record, followed by the record's
// key.
const (
	prefixMeta  byte = 0x00 // the whole key; its value is an encoded meta
	prefixChunk byte = 0xE0 // followed by the revision, big-endian
)

var metaKey = []byte{prefixMeta}

// meta is the first record of every batch, except those that only trim.
type meta struct {
	format   uint32
	commits  uint64 // number of metas written so far, with this one; each batch adds one
	epoch    uint64 // epoch of the last leader
	revision uint64 // revision of the last batch
	time     int64  // time of the last batch
}

const metaSize = 36

func (m meta) encode() []byte {
	b := make([]byte, 0, metaSize)
	b = binary.BigEndian.AppendUint32(b, m.format)
	b = binary.BigEndian.AppendUint64(b, m.commits)
	b = binary.BigEndian.AppendUint64(b, m.epoch)
	b = binary.BigEndian.AppendUint64(b, m.revision)
	return binary.BigEndian.AppendUint64(b, uint64(m.time))
}

// decodeMeta checks the format before the length, so that a newer format is distinguished from
// damage.
func decodeMeta(b []byte) (meta, error) {
	if len(b) < 4 {
		return meta{}, fmt.Errorf("the store's own record has %d bytes", len(b))
	}
	m := meta{format: binary.BigEndian.Uint32(b)}
	if m.format != formatVersion {
		return m, nil
	}
	if len(b) != metaSize {
		return meta{}, fmt.Errorf("the store's own record has %d bytes, not %d", len(b), metaSize)
	}
	m.commits = binary.BigEndian.Uint64(b[4:])
	m.epoch = binary.BigEndian.Uint64(b[12:])
	m.revision = binary.BigEndian.Uint64(b[20:])
	m.time = int64(binary.BigEndian.Uint64(b[28:]))
	return m, nil
}

const chunkKeySize = 9

func appendChunkKey(dst []byte, revision uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, prefixChunk), revision)
}

// chunkHeader is the size of the fields before the data in a chunk's value: first id and count.
const chunkHeader = 16

func decodeChunk(key, value []byte) (revision uint64, chunk wire.EventChunk, err error) {
	if len(key) != chunkKeySize || len(value) < chunkHeader {
		return 0, chunk, fmt.Errorf(
			"the event chunk %x has a key of %d bytes and a value of %d", key, len(key), len(value),
		)
	}
	return binary.BigEndian.Uint64(key[1:]), wire.EventChunk{
		FirstID: binary.BigEndian.Uint64(value),
		Count:   binary.BigEndian.Uint64(value[8:]),
		Data:    value[chunkHeader:],
	}, nil
}

func validKind(k wire.Kind) bool { return k > 0 && k < wire.NumKinds }

// checkKinds refuses a batch that the layout cannot hold.
func checkKinds(batch *wire.Batch) error {
	for i := range batch.Mutations {
		if m := &batch.Mutations[i]; !m.Ephemeral && (!validKind(m.Kind) || len(m.Key) > math.MaxUint16) {
			return plimsoll.Invalid("batch", "mutation %d of revision %d has kind %d and a key of %d bytes, which cannot be stored",
				i, batch.Revision, m.Kind, len(m.Key))
		}
	}
	return nil
}
