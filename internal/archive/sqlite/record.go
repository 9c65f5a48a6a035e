package sqlite

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

const headFormat = 1

// row has the facts in the head of a job's row.
type row struct {
	archive.Head
	results    uint64 // set of the results of its tasks
	generation uint64 // how often the archive had been accepted by an older store when it was written
	bytes      uint64 // its part of Mark.Bytes, without attempts
	body       uint32 // checksum of specification and status
}

// encodeRow packs the facts. The checksum covers the uid and the id too, so that a row
// is not taken for another's.
func encodeRow(r *row) []byte {
	data := make([]byte, 0, 96)
	data = append(data, headFormat, byte(r.State), byte(r.Result))
	for _, n := range []uint64{
		uint64(r.Finished), uint64(r.Tasks), uint64(r.Failed), r.results, r.generation, r.bytes, uint64(r.body),
	} {
		data = binary.AppendUvarint(data, n)
	}
	data = appendText(appendText(data, r.Owner), r.Queue)
	data = binary.AppendUvarint(data, uint64(len(r.Labels)))
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		data = appendText(appendText(data, key), r.Labels[key])
	}
	return binary.BigEndian.AppendUint32(data, rowSum(data, r.UID, r.ID))
}

func rowSum(data []byte, uid plimsoll.UID, id string) uint32 {
	sum := crc32.Update(crc32.Checksum(data, castagnoli), castagnoli, uid[:])
	return crc32.Update(sum, castagnoli, []byte(id))
}

func appendText(data []byte, text string) []byte {
	return append(binary.AppendUvarint(data, uint64(len(text))), text...)
}

// decodeRow reads the head of the row with a uid and an id.
func decodeRow(uid plimsoll.UID, id string, data []byte) (*row, error) {
	if len(data) < 4 || binary.BigEndian.Uint32(data[len(data)-4:]) != rowSum(data[:len(data)-4], uid, id) {
		return nil, errDamaged
	}
	data = data[:len(data)-4]
	if len(data) < 3 {
		return nil, errDamaged
	}
	if data[0] != headFormat {
		return nil, fmt.Errorf("job %s was written in format %d, which is unknown", uid, data[0])
	}
	r := &row{Head: archive.Head{
		UID: uid, ID: id, State: plimsoll.JobState(data[1]), Result: plimsoll.TaskResult(data[2]),
	}}
	d := decoder{data: data[3:]}
	r.Finished, r.Tasks, r.Failed = int64(d.number()), int32(d.number()), int32(d.number())
	r.results, r.generation, r.bytes, r.body = d.number(), d.number(), d.number(), uint32(d.number())
	r.Owner, r.Queue = string(d.bytes()), string(d.bytes())
	if n := d.number(); n > uint64(len(d.data)) { // before memory is taken for them
		return nil, errDamaged
	} else if n > 0 {
		r.Labels = make(map[string]string, n)
		for range n {
			key := string(d.bytes())
			r.Labels[key] = string(d.bytes())
		}
	}
	if d.failed {
		return nil, errDamaged
	}
	return r, nil
}

// decoder reads numbers and texts. After a failure it gives zeroes.
type decoder struct {
	data   []byte
	failed bool
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.data)
	if n <= 0 {
		d.data, d.failed = nil, true
		return 0
	}
	d.data = d.data[n:]
	return v
}

// bytes returns a part of the data, not a copy.
func (d *decoder) bytes() []byte {
	n := d.number()
	if n > uint64(len(d.data)) {
		d.data, d.failed = nil, true
		return nil
	}
	part := d.data[:n:n]
	d.data = d.data[n:]
	return part
}

// appendTask packs a task behind others.
func appendTask(data []byte, r *archive.TaskRecord) []byte {
	data = append(data, byte(r.State), byte(r.Result))
	data = appendText(data, r.Key)
	data = binary.AppendUvarint(data, uint64(len(r.Value)))
	return append(data, r.Value...)
}

// eachTask calls task for each packed task until it returns false. The values are parts of data.
func eachTask(data []byte, task func(archive.TaskRecord) bool) error {
	d := decoder{data: data}
	for len(d.data) > 0 {
		if len(d.data) < 2 {
			return errDamaged
		}
		r := archive.TaskRecord{State: plimsoll.TaskState(d.data[0]), Result: plimsoll.TaskResult(d.data[1])}
		d.data = d.data[2:]
		r.Key, r.Value = string(d.bytes()), d.bytes()
		if d.failed {
			return errDamaged
		}
		if !task(r) {
			return nil
		}
	}
	return nil
}

// recent is a job of a Write whose words are not yet in their lists.
type recent struct {
	entry
	words []word // sorted
}

// encodeRecent packs the jobs of a Write.
func encodeRecent(jobs []recent) []byte {
	var data []byte
	for _, j := range jobs {
		for _, n := range []uint64{j.submitted, j.revision, j.finished} {
			data = binary.BigEndian.AppendUint64(data, n)
		}
		data = binary.AppendUvarint(data, uint64(len(j.words)))
		for _, w := range j.words {
			data = binary.BigEndian.AppendUint64(data, uint64(w))
		}
	}
	return sqlitefile.Sealed(data)
}

// eachRecent calls job for each job of a Write, with its packed words.
func eachRecent(data []byte, job func(e entry, words []byte)) error {
	data, ok := sqlitefile.Unsealed(data)
	if !ok {
		return errDamaged
	}
	for len(data) > 0 {
		if len(data) < 24 {
			return errDamaged
		}
		e := entry{
			binary.BigEndian.Uint64(data), binary.BigEndian.Uint64(data[8:]), binary.BigEndian.Uint64(data[16:]),
		}
		n, used := binary.Uvarint(data[24:])
		data = data[24:]
		if used <= 0 || n > uint64(len(data)-used)/wordBytes {
			return errDamaged
		}
		job(e, data[used:used+int(n)*wordBytes])
		data = data[used+int(n)*wordBytes:]
	}
	return nil
}

const wordBytes = 8

// wordAt returns a packed word.
func wordAt(words []byte, i int) word { return word(binary.BigEndian.Uint64(words[i*wordBytes:])) }
