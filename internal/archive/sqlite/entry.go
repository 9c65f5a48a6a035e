package sqlite

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

// entry is a job in a list of the index. Numbers are unsigned, as they sort.
type entry struct {
	submitted, revision uint64 // the uid
	finished            uint64
}

func entryOf(uid plimsoll.UID, finished int64) entry {
	return entry{uint64(uid.Submitted()), uid.Revision(), uint64(finished)}
}

func (e entry) uid() plimsoll.UID { return plimsoll.MakeUID(int64(e.submitted), e.revision) }

// order is the order of a list: every word has one list of each.
type order int

const (
	bySubmit order = iota
	byFinish

	numOrders
)

func (o order) compare(a, b entry) int {
	if o == byFinish && a.finished != b.finished {
		return cmp.Compare(a.finished, b.finished)
	}
	if a.submitted != b.submitted {
		return cmp.Compare(a.submitted, b.submitted)
	}
	return cmp.Compare(a.revision, b.revision)
}

// time returns the time of an entry that comes first in the order.
func (o order) time(e entry) uint64 {
	if o == byFinish {
		return e.finished
	}
	return e.submitted
}

// key returns bytes that sort as the entries do.
func (o order) key(e entry) []byte {
	key := make([]byte, 0, 24)
	if o == byFinish {
		key = binary.BigEndian.AppendUint64(key, e.finished)
	}
	key = binary.BigEndian.AppendUint64(key, e.submitted)
	return binary.BigEndian.AppendUint64(key, e.revision)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("its content is damaged")

// encodeBlock packs entries: each as the differences from the one before. About 11 bytes each.
func encodeBlock(entries []entry) []byte {
	data := make([]byte, 0, len(entries)*14+8)
	var last entry
	for _, e := range entries {
		data = binary.AppendVarint(data, int64(e.submitted-last.submitted))
		data = binary.AppendVarint(data, int64(e.revision-last.revision))
		data = binary.AppendVarint(data, int64(e.finished-e.submitted))
		last = e
	}
	return sqlitefile.Sealed(data)
}

// decodeBlock appends the entries of a block to into.
func decodeBlock(data []byte, into []entry) ([]entry, error) {
	data, ok := sqlitefile.Unsealed(data)
	if !ok {
		return into, errDamaged
	}
	var last entry
	for len(data) > 0 {
		var numbers [3]int64
		for i := range numbers {
			v, n := binary.Varint(data)
			if n <= 0 {
				return into, errDamaged
			}
			numbers[i], data = v, data[n:]
		}
		last.submitted += uint64(numbers[0])
		last.revision += uint64(numbers[1])
		last.finished = last.submitted + uint64(numbers[2])
		into = append(into, last)
	}
	return into, nil
}

// word is a property that jobs are found by: the beginning of the SHA-256 of its text. A list can
// hold jobs with another property by accident, so the jobs that are found are compared again.
type word int64

func wordOf(kind, text string) word {
	sum := sha256.Sum256([]byte(kind + ":" + text))
	return word(binary.BigEndian.Uint64(sum[:8]))
}

var (
	wordGood   = wordOf("good", "")   // jobs that are Good
	wordBad    = wordOf("bad", "")    // all others
	wordFailed = wordOf("failed", "") // jobs with a task that ended without success
)

func ownerWord(owner string) word                    { return wordOf("owner", owner) }
func queueWord(queue string) word                    { return wordOf("queue", queue) }
func labelWord(label string) word                    { return wordOf("label", label) }
func stateWord(state plimsoll.JobState) word         { return wordOf("state", string(rune(state))) }
func resultWord(result plimsoll.TaskResult) word     { return wordOf("result", string(rune(result))) }
func taskResultWord(result plimsoll.TaskResult) word { return wordOf("task", string(rune(result))) }

// wordsOf returns the words of a job, each once: results are those of its tasks, as a set of bits.
// known keeps words for the jobs that share them.
func wordsOf(h *archive.Head, results uint64, known map[string]word) []word {
	remember := func(kind, text string) word {
		w, ok := known[kind+text]
		if !ok {
			w = wordOf(kind, text)
			known[kind+text] = w
		}
		return w
	}
	words := make([]word, 0, 8+2*len(h.Labels))
	words = append(words, remember("owner", h.Owner))
	if h.Good() { // as most jobs are: words for their state and result would be in nearly all lists
		words = append(words, wordGood)
	} else {
		words = append(words, wordBad, stateWord(h.State), resultWord(h.Result))
	}
	if h.Failed > 0 {
		words = append(words, wordFailed)
	}
	for i := 0; i < len(h.Queue); {
		next := strings.IndexByte(h.Queue[i:], '.')
		if next < 0 {
			break
		}
		i += next
		if above := h.Queue[:i]; hasQueueWord(above) {
			words = append(words, remember("queue", above))
		}
		i++
	}
	words = append(words, remember("queue", h.Queue))
	for result := range uint64(64) {
		if results&(1<<result) != 0 && plimsoll.TaskResult(result) != plimsoll.ResultSucceeded {
			words = append(words, remember("task", string(rune(result))))
		}
	}
	for key, value := range h.Labels { // the words are sorted below
		words = append(words, remember("label", key), remember("label", key+"="+value))
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// signature returns a set of bits for words. A job that has some words has all bits of these.
func signature(words []word) (bits uint64) {
	for _, w := range words {
		bits |= 1<<(uint64(w)&63) | 1<<(uint64(w)>>6&63)
	}
	return bits
}

// hasQueueWord reports whether the jobs below a queue are in a list: those of a root are not.
func hasQueueWord(queue string) bool { return strings.Contains(queue, ".") }

// resultBit returns the bit of a task's result in a set of them.
func resultBit(result plimsoll.TaskResult) uint64 { return 1 << min(result, 63) }
