package coordinator

import "sync"

// Bounds of the list of jobs that have ended.
const (
	maxEndedJobs  = 65_536
	maxEndedBytes = 4 << 20 // of their ids
)

// endedList holds ids of jobs that have ended, for the archiver. When it is full it is dropped, and
// the archiver looks at all jobs instead.
type endedList struct {
	wake chan struct{} // capacity 1; full while there may be ids

	mu struct {
		sync.Mutex
		ids     []string
		bytes   int  // of ids
		dropped bool // ids were dropped since lost was called
	}
}

func newEndedList() *endedList { return &endedList{wake: make(chan struct{}, 1)} }

func (l *endedList) add(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.ids) >= maxEndedJobs || l.mu.bytes+len(id) > maxEndedBytes {
		l.mu.ids, l.mu.bytes, l.mu.dropped = nil, 0, true
	}
	l.mu.ids = append(l.mu.ids, id)
	l.mu.bytes += len(id)
	select {
	case l.wake <- struct{}{}:
	default: // the archiver knows that there are some
	}
}

// putBack puts back what take has returned.
func (l *endedList) putBack(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.ids = append(ids[:len(ids):len(ids)], l.mu.ids...)
	for _, id := range ids {
		l.mu.bytes += len(id)
	}
}

// take removes at most n ids and returns them.
func (l *endedList) take(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, len(l.mu.ids))
	ids := l.mu.ids[:n:n]
	if l.mu.ids = l.mu.ids[n:]; len(l.mu.ids) == 0 {
		l.mu.ids = nil
	}
	for _, id := range ids {
		l.mu.bytes -= len(id)
	}
	return ids
}

func (l *endedList) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.ids)
}

// lost reports whether ids were dropped since the last call.
func (l *endedList) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped := l.mu.dropped
	l.mu.dropped = false
	return dropped
}
