package sqlite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

func randomEntry(rng *rand.Rand) entry {
	if rng.IntN(10) == 0 {
		return entry{rng.Uint64(), rng.Uint64(), rng.Uint64()}
	}
	return entry{rng.Uint64N(1000), rng.Uint64N(3), rng.Uint64N(1000)}
}

// A block comes back as it was, whatever its numbers, and keys sort as the entries do.
func TestBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 5))
	for range 200 {
		var entries []entry
		for range rng.IntN(200) {
			entries = append(entries, randomEntry(rng))
		}
		for o := range numOrders {
			slices.SortFunc(entries, o.compare)
			back, err := decodeBlock(encodeBlock(entries), nil)
			if err != nil || !slices.Equal(back, entries) {
				t.Fatalf("%v comes back as %v, %v", entries, back, err)
			}
			for i := 1; i < len(entries); i++ {
				a, b := entries[i-1], entries[i]
				if bytes.Compare(o.key(a), o.key(b)) != o.compare(a, b) {
					t.Fatalf("order %d: the keys of %v and %v sort otherwise", o, a, b)
				}
			}
		}
	}
}

// Nothing lies between an entry and the one before it, also where a number has its least or
// greatest value.
func TestBefore(t *testing.T) {
	for _, revision := range []uint64{0, 1, 7, math.MaxUint64} {
		for _, submitted := range []uint64{1, 2} {
			e := entry{submitted: submitted, revision: revision, finished: 5}
			for o := range numOrders {
				for _, down := range []bool{false, true} {
					before := direction{o, down}.before(e)
					if (direction{o, down}).compare(before, e) >= 0 || (direction{o, !down}).before(before) != e {
						t.Errorf("order %d, down %v: before %v comes %v", o, down, e, before)
					}
				}
			}
		}
	}
}

var everyHead = row{
	Head: archive.Head{
		UID: plimsoll.MakeUID(1, 2), ID: "id", Owner: "owner", Queue: "root.q",
		Labels: map[string]string{"a": "", "": "b"}, State: plimsoll.JobFailed, Result: plimsoll.ResultLost,
		Finished: 3, Tasks: 4, Failed: 5,
	},
	results: 6, generation: 7, bytes: 8, body: 9,
}

// Every field of a head comes back, and any other bytes are refused without a panic.
func FuzzRow(f *testing.F) {
	fields := reflect.ValueOf(everyHead.Head)
	for i := range fields.NumField() {
		if fields.Field(i).IsZero() {
			f.Errorf("%s has no value in this test", fields.Type().Field(i).Name)
		}
	}
	good := encodeRow(&everyHead)
	if back, err := decodeRow(everyHead.UID, everyHead.ID, good); err != nil || !reflect.DeepEqual(*back, everyHead) {
		f.Errorf("%+v comes back as %+v, %v", everyHead, back, err)
	}
	if _, err := decodeRow(plimsoll.MakeUID(1, 3), everyHead.ID, good); err == nil {
		f.Error("a row is taken for that of another job")
	}
	f.Add(good)
	f.Add(sqlitefile.Sealed(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		withSum := slices.Concat(data, []byte{0, 0, 0, 0})
		sum := rowSum(data, everyHead.UID, everyHead.ID)
		withSum[len(data)], withSum[len(data)+1] = byte(sum>>24), byte(sum>>16)
		withSum[len(data)+2], withSum[len(data)+3] = byte(sum>>8), byte(sum)
		if r, err := decodeRow(everyHead.UID, everyHead.ID, withSum); err == nil {
			again, err := decodeRow(r.UID, r.ID, encodeRow(r))
			if err != nil || !reflect.DeepEqual(r, again) {
				t.Errorf("%+v comes back as %+v, %v", r, again, err)
			}
		}
	})
}

// A row that says it has more labels than bytes is damaged, and takes no memory for them.
func TestRowWithTooManyLabels(t *testing.T) {
	plain := everyHead
	plain.Labels = nil
	data := encodeRow(&plain)
	data = binary.AppendUvarint(data[:len(data)-sqlitefile.ChecksumBytes-1], 1<<40)
	data = binary.BigEndian.AppendUint32(data, rowSum(data, plain.UID, plain.ID))
	if r, err := decodeRow(plain.UID, plain.ID, data); !errors.Is(err, errDamaged) {
		t.Errorf("the row is read as %+v, %v", r, err)
	}
}

// Any bytes of a block, of recent jobs or of tasks are read or refused.
func FuzzContents(f *testing.F) {
	f.Add(encodeBlock([]entry{{1, 2, 3}, {4, 5, 6}}))
	f.Add(encodeRecent([]recent{{entry{1, 2, 3}, []word{4, 5}}}))
	f.Add(appendTask(nil, &archive.TaskRecord{Key: "k", Value: []byte("v")}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if back, err := decodeBlock(sqlitefile.Sealed(slices.Clone(data)), nil); err == nil && len(back) > len(data) {
			t.Errorf("%d entries in %d bytes", len(back), len(data))
		}
		words := 0
		err := eachRecent(sqlitefile.Sealed(slices.Clone(data)), func(_ entry, w []byte) { words += len(w) })
		if err == nil && words > len(data) {
			t.Errorf("%d bytes of words in %d bytes", words, len(data))
		}
		bytes := 0
		err = eachTask(data, func(r archive.TaskRecord) bool {
			bytes += len(r.Key) + len(r.Value)
			return true
		})
		if err == nil && bytes > len(data) {
			t.Errorf("%d bytes of tasks in %d bytes", bytes, len(data))
		}
	})
}
