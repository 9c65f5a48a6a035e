package replica

import (
	"sync"

	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// KindEvents is the kind of a watch of the ring of events, with an empty key. No record has it.
const KindEvents wire.Kind = 0

// watches signals the watchers of a key when its record changes. A signal carries no record: the
// watcher reads a snapshot, which is published before the signal.
type watches struct {
	mu struct {
		sync.Mutex
		byKey map[change]map[chan struct{}]struct{}
	}
}

func (ws *watches) add(kind wire.Kind, key string) (changed <-chan struct{}, cancel func()) {
	w := make(chan struct{}, 1)
	at := change{kind, key}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.mu.byKey == nil {
		ws.mu.byKey = map[change]map[chan struct{}]struct{}{}
	}
	if ws.mu.byKey[at] == nil {
		ws.mu.byKey[at] = map[chan struct{}]struct{}{}
	}
	ws.mu.byKey[at][w] = struct{}{}
	return w, func() { ws.remove(at, w) }
}

func (ws *watches) remove(at change, w chan struct{}) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.mu.byKey[at], w)
	if len(ws.mu.byKey[at]) == 0 {
		delete(ws.mu.byKey, at)
	}
}

// signal signals the watchers of changed keys.
func (ws *watches) signal(changes []change) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.mu.byKey) == 0 {
		return
	}
	for _, at := range changes {
		for w := range ws.mu.byKey[at] {
			notify(w)
		}
	}
}

// signalAll signals every watcher.
func (ws *watches) signalAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, set := range ws.mu.byKey {
		for w := range set {
			notify(w)
		}
	}
}
