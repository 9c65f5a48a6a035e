package replica

import (
	"slices"
	"sort"
)

// entryOverhead is the cost of an entry of the log beside its bytes.
const entryOverhead = 64

// batchLog holds the newest encoded batches. Every stream reads it through a cursor of its own, so
// a slow stream holds up no other. A position counts batches: batch n lies between the positions n
// and n+1.
type batchLog struct {
	limit int    // bound on the bytes kept; the newest batch is always kept
	base  uint64 // revision of the batch before the oldest entry
	first uint64 // position of the oldest entry

	entries []logEntry // entries[:head] were dropped
	head    int
	bytes   int
}

type logEntry struct {
	revision uint64
	data     []byte
}

// end returns the position behind the newest batch.
func (l *batchLog) end() uint64 { return l.first + uint64(len(l.entries)-l.head) }

// revision returns the revision of the newest batch.
func (l *batchLog) revision() uint64 {
	if l.head == len(l.entries) {
		return l.base
	}
	return l.entries[len(l.entries)-1].revision
}

// add appends a batch and drops the oldest ones beyond the limit.
func (l *batchLog) add(revision uint64, data []byte) {
	l.entries = append(l.entries, logEntry{revision, data})
	l.bytes += len(data) + entryOverhead
	for l.bytes > l.limit && len(l.entries)-l.head > 1 {
		oldest := &l.entries[l.head]
		l.bytes -= len(oldest.data) + entryOverhead
		l.base = oldest.revision
		*oldest = logEntry{}
		l.head++
		l.first++
	}
	if l.head > 64 && l.head > len(l.entries)/2 {
		l.entries = slices.Delete(l.entries, 0, l.head)
		l.head = 0
	}
}

// at returns the batch behind a position below end. ok is false if the log no longer holds it.
func (l *batchLog) at(position uint64) (data []byte, ok bool) {
	if position < l.first {
		return nil, false
	}
	return l.entries[l.head+int(position-l.first)].data, true
}

// after returns the position behind the batch with exactly this revision. ok is false if the log no
// longer holds all batches behind it.
func (l *batchLog) after(revision uint64) (position uint64, ok bool) {
	if revision == l.base {
		return l.first, true
	}
	live := l.entries[l.head:]
	i := sort.Search(len(live), func(i int) bool { return live[i].revision >= revision })
	if i == len(live) || live[i].revision != revision {
		return 0, false
	}
	return l.first + uint64(i) + 1, true
}

// bytesAfter returns the bytes of the batches behind a position that the log holds.
func (l *batchLog) bytesAfter(position uint64) (bytes int) {
	for _, e := range l.entries[l.head+int(position-l.first):] {
		bytes += len(e.data) + entryOverhead
	}
	return bytes
}

// behind returns the revision of the batch in front of a position, and the bytes of those behind
// it. The revision is 0 if the log no longer holds that batch.
func (l *batchLog) behind(position uint64) (revision uint64, bytes int) {
	switch {
	case position < l.first:
		return 0, l.bytes
	case position == l.first:
		revision = l.base
	default:
		revision = l.entries[l.head+int(position-l.first)-1].revision
	}
	return revision, l.bytesAfter(position)
}
