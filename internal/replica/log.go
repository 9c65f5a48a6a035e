package replica

import (
	"slices"
	"sort"

	"github.com/plimsoll-dev/plimsoll"
)

// entryOverhead is the cost of an entry of the log beside its bytes.
const entryOverhead = 64

// batchLog holds the newest encoded batches. Every stream reads it through a cursor of its own, so
// a slow stream holds up no other. A position counts batches: batch n lies between the positions n
// and n+1.
//
// A log may begin with batches of earlier leaders. Behind those of each are the ones that lead
// every copy of it on to the next leader (Lineage).
type batchLog struct {
	limit int              // bound on the bytes kept; the newest batch is always kept
	base  plimsoll.Version // of the batch before the oldest entry
	first uint64           // position of the oldest entry

	former []formerLeader // those before the leader of the newest entry, in the order of epochs

	entries []logEntry // entries[:head] were dropped
	head    int
	bytes   int
}

type logEntry struct {
	version plimsoll.Version
	data    []byte
}

// formerLeader is a leader from whose copies the log leads on.
type formerLeader struct {
	epoch  uint64
	leader string // names its process
	last   uint64 // highest revision that a copy of it can have
}

// end returns the position behind the newest batch.
func (l *batchLog) end() uint64 { return l.first + uint64(len(l.entries)-l.head) }

// version returns the version of the newest batch.
func (l *batchLog) version() plimsoll.Version {
	if l.head == len(l.entries) {
		return l.base
	}
	return l.entries[len(l.entries)-1].version
}

// revision returns the revision of the newest batch.
func (l *batchLog) revision() uint64 { return l.version().Revision }

// add appends a batch and drops the oldest ones beyond the limit.
func (l *batchLog) add(version plimsoll.Version, data []byte) {
	l.entries = append(l.entries, logEntry{version, data})
	l.bytes += len(data) + entryOverhead
	for l.bytes > l.limit && len(l.entries)-l.head > 1 {
		oldest := &l.entries[l.head]
		l.bytes -= len(oldest.data) + entryOverhead
		l.base = oldest.version
		*oldest = logEntry{}
		l.head++
		l.first++
	}
	if l.head > 64 && l.head > len(l.entries)/2 {
		l.entries = slices.Delete(l.entries, 0, l.head)
		l.head = 0
	}
	for len(l.former) > 0 && l.former[0].epoch < l.base.Epoch {
		l.former = l.former[1:]
	}
}

// at returns the batch behind a position below end. ok is false if the log no longer holds it.
func (l *batchLog) at(position uint64) (data []byte, ok bool) {
	if position < l.first {
		return nil, false
	}
	return l.entries[l.head+int(position-l.first)].data, true
}

// after returns the position behind the batch of exactly this version. ok is false if the log no
// longer holds all batches behind it.
func (l *batchLog) after(version plimsoll.Version) (position uint64, ok bool) {
	live := l.entries[l.head:]
	i := l.behindVersion(version)
	if i == 0 && version != l.base || i > 0 && live[i-1].version != version {
		return 0, false
	}
	return l.first + uint64(i), true
}

// behindVersion returns the number of entries that are not newer than a version.
func (l *batchLog) behindVersion(version plimsoll.Version) int {
	live := l.entries[l.head:]
	return sort.Search(len(live), func(i int) bool { return version.Before(live[i].version) })
}

// leadsOn returns the position from which the copy of a former leader is led on to the newest
// version. ok is false if the log does not go back so far, or has not followed that leader.
//
// The copy may hold batches that the log never had: their leader ended while it sent them. They lie
// in front of the batches that lead on, which set all that may differ.
func (l *batchLog) leadsOn(version plimsoll.Version, leader string) (position uint64, ok bool) {
	if version.Before(l.base) {
		return 0, false
	}
	for _, f := range l.former {
		if f.epoch == version.Epoch && f.leader == leader && version.Revision <= f.last {
			return l.first + uint64(l.behindVersion(version)), true
		}
	}
	return 0, false
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
		revision = l.base.Revision
	default:
		revision = l.entries[l.head+int(position-l.first)-1].version.Revision
	}
	return revision, l.bytesAfter(position)
}
