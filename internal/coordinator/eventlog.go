package coordinator

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// eventLog counts the stored events in runs of chunks, so that old chunks can be deleted.
type eventLog struct {
	runs  []eventRun
	total eventRun // sums over runs
}

// eventRun is one stored chunk of events, or several small ones that follow each other.
type eventRun struct {
	revision uint64 // of its first chunk
	count    uint64
	bytes    uint64 // of the chunks in their packed form
	next     uint64 // id behind its newest event
	newest   int64  // time of its newest chunk, in Unix nanoseconds
}

// runsOfLog is about the number of runs in which a log of many small chunks is counted.
const runsOfLog = 4096

func (l *eventLog) add(revision uint64, chunk *wire.EventChunk) {
	at, _ := ring.Chunk{Data: chunk.Data}.Time() // a malformed chunk is found when it is read
	next := eventRun{revision, chunk.Count, uint64(len(chunk.Data)), chunk.FirstID + chunk.Count, at}
	l.total.count += next.count
	l.total.bytes += next.bytes
	if n := len(l.runs); n > 0 && l.runs[n-1].count+next.count <= l.total.count/runsOfLog {
		last := &l.runs[n-1]
		last.count, last.bytes, last.next, last.newest = last.count+next.count, last.bytes+next.bytes, next.next, at
		return
	}
	l.runs = append(l.runs, next)
}

// trim drops the oldest runs that no ring with the settings shows. The newest one stays: it keeps
// the id of the next event. trim returns the revision below which the store may delete chunks too.
// ok is false while less than a fifth of the stored events is beyond a bound. The events from the
// id lacked on are held back for a historian.
func (l *eventLog) trim(s *plimsoll.EventSettings, lacked uint64, now int64) (keep uint64, ok bool) {
	most, mostBytes := uint64(s.RingBufferCapacity), uint64(max(s.RingBufferBytes, 0))
	oldest := now - int64(s.RingBufferAge)
	slack := int64(s.RingBufferAge) / 4
	held := uint64(max(s.RingBufferHeldBytes, 0))
	if most == 0 {
		held = 0
	}
	switch {
	case len(l.runs) < 2:
		return 0, false
	case l.runs[0].next > lacked && l.total.bytes < held+held/4:
		return 0, false
	case l.total.count >= most+most/4:
	case mostBytes > 0 && l.total.bytes >= mostBytes+mostBytes/4:
	case s.RingBufferAge > 0 && l.runs[0].newest < oldest-slack:
	default:
		return 0, false
	}
	n := 0
	for ; n < len(l.runs)-1; n++ {
		first := &l.runs[n]
		if l.total.count-first.count < most && (mostBytes == 0 || l.total.bytes-first.bytes < mostBytes) &&
			(s.RingBufferAge == 0 || first.newest >= oldest) {
			break
		}
		if first.next > lacked && l.total.bytes-first.bytes < held {
			break
		}
		l.total.count -= first.count
		l.total.bytes -= first.bytes
	}
	if n == 0 {
		return 0, false
	}
	l.runs = append([]eventRun(nil), l.runs[n:]...)
	return l.runs[0].revision, true
}
