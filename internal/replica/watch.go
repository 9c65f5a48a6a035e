package replica

import (
	"sync"

	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// watches signals the watchers of a key when its record changes. A signal carries no data: the
// watcher reads a snapshot, which is published before the signal.
type watches struct {
	mu struct {
		sync.Mutex
		byKey map[change]map[*watcher]struct{}
	}
}

type watcher struct {
	changed chan struct{}
}

func (w *watcher) signal() {
	select {
	case w.changed <- struct{}{}:
	default: // a signal is there already, and stands for both
	}
}

func (ws *watches) add(kind wire.Kind, key string) (changed <-chan struct{}, cancel func()) {
	w := &watcher{changed: make(chan struct{}, 1)}
	at := change{kind, key}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.mu.byKey == nil {
		ws.mu.byKey = map[change]map[*watcher]struct{}{}
	}
	if ws.mu.byKey[at] == nil {
		ws.mu.byKey[at] = map[*watcher]struct{}{}
	}
	ws.mu.byKey[at][w] = struct{}{}
	return w.changed, func() { ws.remove(at, w) }
}

func (ws *watches) remove(at change, w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.mu.byKey[at], w)
	if len(ws.mu.byKey[at]) == 0 {
		delete(ws.mu.byKey, at)
	}
}

func (ws *watches) signal(changes []change) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.mu.byKey) == 0 {
		return
	}
	for _, at := range changes {
		for w := range ws.mu.byKey[at] {
			w.signal()
		}
	}
}

func (ws *watches) signalAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, set := range ws.mu.byKey {
		for w := range set {
			w.signal()
		}
	}
}
