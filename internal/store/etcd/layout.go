package etcd

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// formatVersion is raised by each change of the layout below that an older binary would misread.
const formatVersion = 1

// The keys behind the prefix:
//
//	m                          meta, the store's own record
//	l/LEASE                    a process that leads or waits; the value is its address
//	r KIND KEY                 a record
//	e REVISION                 a chunk of events
//	c REVISION                 the keys that a transaction changed
//	p LENGTH OWNER ID NUMBER   a part of the value of the key OWNER
//
// Numbers are big-endian. The value of a record or chunk begins with a byte that tells whether the
// rest is the value, or refers to its parts.
const (
	metaKey       = "m"
	leadersPrefix = "l/"
	recordPrefix  = "r"
	chunkPrefix   = "e"
	changesPrefix = "c"
	partPrefix    = "p"
)

// The first byte of a value.
const (
	whole   byte = 0 // the value follows
	inParts byte = 1 // a partsRef follows
)

// Bounds of one request, from etcd's defaults of --max-txn-ops and --max-request-bytes.
const (
	levelOps     = 128          // operations on one level; those of a nested level come out of the rest
	nestedOps    = levelOps / 2 // operations of a nested transaction, and nested transactions
	totalOps     = nestedOps * nestedOps
	ownOps       = 16      // the most operations beside those of the batches
	requestBytes = 1250000 // of keys and values with opBytes for each; a request may have 1,572,864
	opBytes      = 24      // the most that the encoding of an operation takes beside its key and value
)

// The limits of a batch. Larger batches are possible than requests, because of the parts.
const (
	MaxOps   = totalOps - ownOps
	MaxBytes = 16 << 20
)

// meta is the store's own record. Every transaction that changes something writes it.
type meta struct {
	format   uint32
	commits  uint64 // number of metas written so far, with this one
	epoch    uint64 // epoch of the last leader
	revision uint64 // revision of the last batch
	time     int64  // time of the last batch
	barrier  bool   // it was written by settle, and nothing with it
}

const metaSize = 37

// encode returns the empty string for a meta that was never written.
func (m meta) encode() string {
	if m == (meta{}) {
		return ""
	}
	b := make([]byte, 0, metaSize)
	b = binary.BigEndian.AppendUint32(b, m.format)
	b = binary.BigEndian.AppendUint64(b, m.commits)
	b = binary.BigEndian.AppendUint64(b, m.epoch)
	b = binary.BigEndian.AppendUint64(b, m.revision)
	b = binary.BigEndian.AppendUint64(b, uint64(m.time))
	if m.barrier {
		return string(append(b, 1))
	}
	return string(append(b, 0))
}

// next returns a meta like m for the next transaction.
func (m meta) next() meta {
	m.format, m.barrier = formatVersion, false
	m.commits++
	return m
}

func decodeMeta(b []byte) (meta, error) {
	if len(b) < 4 {
		return meta{}, plimsoll.Errorf(plimsoll.CodeCorrupt, "the store's own record in etcd has %d bytes", len(b))
	}
	m := meta{format: binary.BigEndian.Uint32(b)}
	if m.format != formatVersion {
		return m, plimsoll.Errorf(plimsoll.CodeConflict,
			"the store in etcd has the format %d, and this version knows %d; use the newer plimsoll that wrote it",
			m.format, formatVersion)
	}
	if len(b) != metaSize {
		return meta{}, plimsoll.Errorf(
			plimsoll.CodeCorrupt, "the store's own record in etcd has %d bytes, not %d", len(b), metaSize,
		)
	}
	m.commits = binary.BigEndian.Uint64(b[4:])
	m.epoch = binary.BigEndian.Uint64(b[12:])
	m.revision = binary.BigEndian.Uint64(b[20:])
	m.time = int64(binary.BigEndian.Uint64(b[28:]))
	m.barrier = b[36] == 1
	return m, nil
}

// recordKey returns the key of a record, without the prefix of the store.
func recordKey(kind wire.Kind, key string) string {
	return recordPrefix + string([]byte{byte(kind)}) + key
}

// revisionKey returns the key of a chunk or of a list of changes.
func revisionKey(prefix string, revision uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte(prefix), revision))
}

// revisionOf is the inverse of revisionKey.
func revisionOf(prefix, key string) (uint64, error) {
	rest, found := strings.CutPrefix(key, prefix)
	if !found || len(rest) != 8 {
		return 0, plimsoll.Errorf(plimsoll.CodeCorrupt, "the key %q in etcd has no revision", key)
	}
	return binary.BigEndian.Uint64([]byte(rest)), nil
}

// chunkHeader is the size of the fields before the data in a chunk's value: first id and count.
const chunkHeader = 16

func encodeChunk(c *wire.EventChunk) string {
	b := make([]byte, 0, 1+chunkHeader+len(c.Data))
	b = append(b, whole)
	b = binary.BigEndian.AppendUint64(b, c.FirstID)
	b = binary.BigEndian.AppendUint64(b, c.Count)
	return string(append(b, c.Data...))
}

func decodeChunk(key string, value []byte) (revision uint64, c wire.EventChunk, err error) {
	if revision, err = revisionOf(chunkPrefix, key); err != nil {
		return 0, c, err
	}
	if len(value) < chunkHeader {
		return 0, c, plimsoll.Errorf(
			plimsoll.CodeCorrupt, "the chunk of revision %d in etcd has %d bytes", revision, len(value),
		)
	}
	return revision, wire.EventChunk{
		FirstID: binary.BigEndian.Uint64(value),
		Count:   binary.BigEndian.Uint64(value[8:]),
		Data:    value[chunkHeader:],
	}, nil
}

// decodeRecordKey splits a key that begins with recordPrefix.
func decodeRecordKey(key string) (wire.Kind, string, error) {
	if len(key) < 2 || key[0] != recordPrefix[0] {
		return 0, "", plimsoll.Errorf(plimsoll.CodeCorrupt, "the key %q in etcd is not that of a record", key)
	}
	kind := wire.Kind(key[1])
	if !validKind(kind) {
		return 0, "", plimsoll.Errorf(plimsoll.CodeConflict,
			"the store in etcd holds a record of the unknown kind %d; use the newer plimsoll that wrote it", kind)
	}
	return kind, key[2:], nil
}

func validKind(k wire.Kind) bool { return k > 0 && k < wire.NumKinds }

// checkBatch refuses a batch that the layout cannot hold.
func checkBatch(batch *wire.Batch) error {
	least := 0 // bytes of a request in which all values are in parts
	for i := range batch.Mutations {
		if m := &batch.Mutations[i]; !m.Ephemeral && (!validKind(m.Kind) || len(m.Key) > math.MaxUint16-2) {
			return plimsoll.Invalid(
				"batch", "mutation %d of revision %d has kind %d and a key of %d bytes, which cannot be stored",
				i, batch.Revision, m.Kind, len(m.Key),
			)
		}
		if m := &batch.Mutations[i]; !m.Ephemeral {
			least += opBytes + maxPrefix + len(m.Key) + min(len(m.Value), partsSize)
		}
	}
	if err := (store.Limits{Ops: MaxOps, Bytes: MaxBytes}).Check(batch); err != nil {
		return err
	}
	if least > requestBytes {
		return plimsoll.Invalid(
			"batch", "revision %d has keys of %d bytes, and one request to etcd takes %d; split it", batch.Revision,
			least, requestBytes,
		)
	}
	return nil
}

// partID tells the parts of one value from those of another value of the same key.
type partID struct {
	epoch, number uint64
}

// partsRef is the value of a key whose value is in parts.
type partsRef struct {
	id    partID
	bytes uint64 // of all parts together
}

const (
	partIDSize = 16
	partsSize  = 1 + partIDSize + 8
)

func (r partsRef) encode() string {
	b := append(make([]byte, 0, partsSize), inParts)
	b = binary.BigEndian.AppendUint64(b, r.id.epoch)
	b = binary.BigEndian.AppendUint64(b, r.id.number)
	return string(binary.BigEndian.AppendUint64(b, r.bytes))
}

// decodeParts returns the reference in a value; found is false if the value is whole.
func decodeParts(key string, value []byte) (ref partsRef, found bool, err error) {
	switch {
	case len(value) > 0 && value[0] == whole:
		return ref, false, nil
	case len(value) == partsSize && value[0] == inParts:
		return partsRef{
			id:    partID{binary.BigEndian.Uint64(value[1:]), binary.BigEndian.Uint64(value[9:])},
			bytes: binary.BigEndian.Uint64(value[17:]),
		}, true, nil
	}
	return ref, false, plimsoll.Errorf(plimsoll.CodeCorrupt, "the value of %q in etcd has an unknown form", key)
}

// partsKey returns the prefix of the keys of the parts of one value.
func partsKey(owner string, id partID) string {
	b := binary.BigEndian.AppendUint16([]byte(partPrefix), uint16(len(owner)))
	b = append(b, owner...)
	b = binary.BigEndian.AppendUint64(b, id.epoch)
	return string(binary.BigEndian.AppendUint64(b, id.number))
}

func partKey(owner string, id partID, number uint32) string {
	return string(binary.BigEndian.AppendUint32([]byte(partsKey(owner, id)), number))
}

// decodePartKey returns whose part a key holds.
func decodePartKey(key string) (owner string, id partID, err error) {
	const fixed = len(partPrefix) + 2 + partIDSize + 4
	if len(key) < fixed || len(key) != fixed+int(binary.BigEndian.Uint16([]byte(key[1:3]))) {
		return "", id, fmt.Errorf("the key %q in etcd is not that of a part", key)
	}
	owner, rest := key[3:len(key)-partIDSize-4], key[len(key)-partIDSize-4:]
	id.epoch, id.number = binary.BigEndian.Uint64([]byte(rest)), binary.BigEndian.Uint64([]byte(rest[8:]))
	return owner, id, nil
}
