package coordinator

import "sync"

// Bounds of a keyList.
const (
	maxListedKeys     = 65_536
	maxListedKeyBytes = 4 << 20
)

// keyList holds keys of records for the archiver, such as the ids of jobs that have ended. When it
// is full all are dropped.
type keyList struct {
	wake chan struct{} // capacity 1; full while there may be keys

	mu struct {
		sync.Mutex
		keys    []string
		bytes   int  // of keys
		dropped bool // keys were dropped since lost was called
	}
}

func newKeyList() *keyList { return &keyList{wake: make(chan struct{}, 1)} }

func (l *keyList) add(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.keys) >= maxListedKeys || l.mu.bytes+len(key) > maxListedKeyBytes {
		l.mu.keys, l.mu.bytes, l.mu.dropped = nil, 0, true
	}
	l.mu.keys = append(l.mu.keys, key)
	l.mu.bytes += len(key)
	select {
	case l.wake <- struct{}{}:
	default: // the archiver knows that there are some
	}
}

// putBack puts back what take has returned.
func (l *keyList) putBack(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.keys = append(keys[:len(keys):len(keys)], l.mu.keys...)
	for _, key := range keys {
		l.mu.bytes += len(key)
	}
}

// take removes at most n keys and returns them.
func (l *keyList) take(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, len(l.mu.keys))
	keys := l.mu.keys[:n:n]
	if l.mu.keys = l.mu.keys[n:]; len(l.mu.keys) == 0 {
		l.mu.keys = nil
	}
	for _, key := range keys {
		l.mu.bytes -= len(key)
	}
	return keys
}

func (l *keyList) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.keys)
}

// lost reports whether keys were dropped since the last call.
func (l *keyList) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped := l.mu.dropped
	l.mu.dropped = false
	return dropped
}
