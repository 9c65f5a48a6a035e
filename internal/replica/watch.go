package replica

import (
	"sync"

	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// AnyKey is the key of a watch of all objects of a kind. No object has it.
const AnyKey = "*"

// KindEvents is the kind of a watch of the ring of events, with AnyKey. No record has it, and its
// signals are no positions.
const KindEvents wire.Kind = 0

// watches signals the watchers of a key when its record changes. A signal carries no record: the
// watcher reads a snapshot or the history, which are published before the signal.
type watches struct {
	mu struct {
		sync.Mutex
		byKey map[change]map[*watcher]struct{}
	}
}

type watcher struct {
	changed chan uint64
}

// signal tells a watcher of changes behind a position of the history.
func (w *watcher) signal(position uint64) {
	select {
	case w.changed <- position:
	default: // an earlier position is there already, and stands for both
	}
}

func (ws *watches) add(kind wire.Kind, key string) (changed <-chan uint64, cancel func()) {
	w := &watcher{changed: make(chan uint64, 1)}
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

// signal signals the watchers of changed keys. begins holds, for each kind of object, the position
// before the changes.
func (ws *watches) signal(changes []change, begins *[wire.NumKinds]uint64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.mu.byKey) == 0 {
		return
	}
	for _, at := range changes {
		object, _ := objectKind(at.kind)
		for w := range ws.mu.byKey[at] {
			w.signal(begins[object])
		}
	}
}

// signalAll signals every watcher. ends holds the position behind the newest change of each kind.
func (ws *watches) signalAll(ends *[wire.NumKinds]uint64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for at, set := range ws.mu.byKey {
		object, _ := objectKind(at.kind)
		for w := range set {
			w.signal(ends[object])
		}
	}
}
