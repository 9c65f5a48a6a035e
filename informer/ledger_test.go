package informer_test

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll/informer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// row is an object of the tests. Its revision grows with each change of any row.
type row struct {
	name     string
	revision uint64
	owner    string
}

func rowKey(r *row) (string, error) { return r.name, nil }
func sameRow(a, b *row) bool        { return a.revision == b.revision }

// ledger is a Source with a history, whose faults a test makes.
type ledger struct {
	mu      sync.Mutex
	rows    map[string]*row
	version informer.Version
	past    uint64 // revisions of the epochs before
	history []informer.Message[*row]
	keep    int           // steps of history that are kept
	changed chan struct{} // closed at each change of the ledger
	streams map[*ledgerStream]struct{}
	opened  []informer.Version // of all calls of Open
	closed  int

	parts      int   // a snapshot has so many parts besides its end
	refuse     error // Open returns it, once
	snapshots  bool  // a resume begins with a snapshot too
	cutsInList bool  // the next snapshot breaks before its end
}

func newLedger(names ...string) *ledger {
	l := &ledger{
		rows: map[string]*row{}, keep: 1000, changed: make(chan struct{}), streams: map[*ledgerStream]struct{}{},
		version: informer.Version{Epoch: 1},
	}
	for _, name := range names {
		l.put(name)
	}
	return l
}

// step makes one step of changes: "a" creates or changes the row a, "-a" deletes it.
func (l *ledger) step(changes ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version.Revision++
	m := informer.Message[*row]{Kind: informer.Changed, Version: l.version}
	for _, c := range changes {
		if name, isDeleted := strings.CutPrefix(c, "-"); isDeleted {
			m.Deleted = append(m.Deleted, informer.Deletion[*row]{Key: name, Object: l.rows[name]})
			delete(l.rows, name)
			continue
		}
		r := &row{name: c, revision: l.past + l.version.Revision}
		l.rows[c] = r
		m.Objects = append(m.Objects, r)
	}
	l.say(m)
}

func (l *ledger) put(name string)    { l.step(name) }
func (l *ledger) remove(name string) { l.step("-" + name) }

// again makes a step in which a row is as it was.
func (l *ledger) again(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version.Revision++
	l.say(informer.Message[*row]{Kind: informer.Changed, Version: l.version, Objects: []*row{l.rows[name]}})
}

// bookmark raises the version without a change.
func (l *ledger) bookmark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version.Revision++
	l.say(informer.Message[*row]{Kind: informer.Bookmark, Version: l.version})
}

// say appends a message to the history. The caller holds mu.
func (l *ledger) say(m informer.Message[*row]) {
	l.history = append(l.history, m)
	if extra := len(l.history) - l.keep; extra > 0 {
		l.history = slices.Clone(l.history[extra:])
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// forget drops the history.
func (l *ledger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = nil
}

// elect begins another epoch, as after a change of leaders.
func (l *ledger) elect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.past += l.version.Revision
	l.version = informer.Version{Epoch: l.version.Epoch + 1}
	l.history = nil
}

// cut ends all streams with an error.
func (l *ledger) cut(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.streams {
		if s.err == nil {
			s.err = err
			close(s.cut)
		}
	}
}

// now returns the rows and the version.
func (l *ledger) now() (map[string]*row, informer.Version) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.rows), l.version
}

func (l *ledger) has(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rows[name] != nil
}

func (l *ledger) opens() []informer.Version {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.opened)
}

func (l *ledger) set(change func(l *ledger)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

func (l *ledger) Open(ctx context.Context, from informer.Version) (informer.Stream[*row], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened = append(l.opened, from)
	if err := l.refuse; err != nil {
		l.refuse = nil
		return nil, err
	}
	s := &ledgerStream{
		ledger: l, at: from, done: ctx.Done(), ctx: ctx.Err, cut: make(chan struct{}), ended: make(chan struct{}),
	}
	switch {
	case from.IsZero() || l.snapshots:
		s.list()
	case !l.reaches(from):
		return nil, informer.ErrHistoryTooShort
	}
	l.streams[s] = struct{}{}
	return s, nil
}

// reaches reports whether the history holds all after a version. The caller holds mu.
func (l *ledger) reaches(from informer.Version) bool {
	if from == l.version {
		return true
	}
	return from.Epoch == l.version.Epoch && len(l.history) > 0 && l.history[0].Version.Revision <= from.Revision+1
}

// ledgerStream is a stream of a ledger.
type ledgerStream struct {
	ledger *ledger
	first  []informer.Message[*row] // the rest of the snapshot
	at     informer.Version
	done   <-chan struct{}
	ctx    func() error
	cut    chan struct{}
	err    error // after cut; guarded by the ledger's lock
	ended  chan struct{}
	once   sync.Once
}

// list makes the messages of a snapshot. The caller holds the ledger's lock.
func (s *ledgerStream) list() {
	l := s.ledger
	names := slices.Sorted(maps.Keys(l.rows))
	rows := make([]*row, len(names))
	for i, name := range names {
		rows[i] = l.rows[name]
	}
	for i := range l.parts {
		n := len(rows) / (l.parts - i + 1)
		s.first = append(s.first, informer.Message[*row]{Kind: informer.SnapshotPart, Objects: rows[:n]})
		rows = rows[n:]
	}
	if l.cutsInList {
		l.cutsInList = false
		s.err = io.ErrUnexpectedEOF
		close(s.cut)
		return
	}
	s.first = append(s.first, informer.Message[*row]{Kind: informer.SnapshotEnd, Objects: rows, Version: l.version})
	s.at = l.version
}

func (s *ledgerStream) Next() (informer.Message[*row], error) {
	for {
		m, changed, err := s.next()
		if err != nil || changed == nil {
			return m, err
		}
		select {
		case <-changed:
		case <-s.cut:
		case <-s.ended:
			return m, io.ErrClosedPipe
		case <-s.done:
			return m, s.ctx()
		}
	}
}

// next returns a message, an error, or the channel to wait on.
func (s *ledgerStream) next() (m informer.Message[*row], changed <-chan struct{}, err error) {
	l := s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(s.first) > 0 {
		m = s.first[0]
		s.first = s.first[1:]
		return m, nil, nil
	}
	if s.err != nil {
		return m, nil, s.err
	}
	if s.at == l.version {
		return m, l.changed, nil
	}
	if !l.reaches(s.at) {
		return m, nil, informer.ErrHistoryTooShort
	}
	i, _ := slices.BinarySearchFunc(l.history, s.at, func(m informer.Message[*row], at informer.Version) int {
		if m.Version.Compare(at) <= 0 {
			return -1
		}
		return 1
	})
	m = l.history[i]
	s.at = m.Version
	m.Objects, m.Deleted = slices.Clone(m.Objects), slices.Clone(m.Deleted)
	return m, nil, nil
}

func (s *ledgerStream) Close() error {
	s.once.Do(func() {
		close(s.ended)
		s.ledger.mu.Lock()
		defer s.ledger.mu.Unlock()
		delete(s.ledger.streams, s)
		s.ledger.closed++
	})
	return nil
}
