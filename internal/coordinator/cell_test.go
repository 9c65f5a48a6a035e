package coordinator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// shared is the content of a store in memory that several processes open: members. One of them
// leads, and a test ends its leadership with depose.
type shared struct {
	mu       sync.Mutex
	changed  chan struct{} // closed, and replaced, when leadership changes
	epoch    uint64
	leader   *member // nil: nobody leads
	records  map[wire.Kind]map[string][]byte
	chunks   map[uint64]wire.EventChunk
	revision uint64
	time     int64
	history  []storedChange
	oldest   uint64 // changes of revisions up to it are forgotten
}

type storedChange struct {
	revision uint64
	kind     wire.Kind
	key      string
}

func newShared() *shared {
	s := &shared{
		changed: make(chan struct{}), chunks: map[uint64]wire.EventChunk{}, records: map[wire.Kind]map[string][]byte{},
	}
	for kind := range wire.Kind(wire.NumKinds) {
		s.records[kind] = map[string][]byte{}
	}
	return s
}

// open returns an Open for a process with an address. Each opening is a new member.
func (s *shared) open(address string) Open {
	return func(context.Context) (store.Store, error) { return s.member(address), nil }
}

func (s *shared) member(address string) *member {
	return &member{shared: s, address: address, deposed: make(chan struct{}), slow: make(chan struct{})}
}

// depose ends the leadership of the present leader, and returns the member.
func (s *shared) depose() *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.leader
	close(m.deposed)
	s.resign(m)
	return m
}

// resign lets another member lead. The caller holds mu.
func (s *shared) resign(m *member) {
	if s.leader == m {
		s.leader = nil
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// forget makes the store forget its changes, as a compaction does.
func (s *shared) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history, s.oldest = nil, s.revision
}

// member is a process that has the store open.
type member struct {
	*shared
	address string
	epoch   uint64
	deposed chan struct{}
	slow    chan struct{} // a Confirm waits for it while slowed is true
	slowed  bool          // guarded by shared.mu
	loads   int           // calls of Load; guarded by shared.mu
}

func (m *member) Limits() store.Limits { return store.Limits{Ops: 50_000, Bytes: 16 << 20} }

func (m *member) Lead(ctx context.Context, waiting func(string)) (uint64, error) {
	for {
		m.mu.Lock()
		leader, changed := m.leader, m.changed
		if leader == nil || leader == m {
			m.leader = m
			m.shared.epoch++
			m.epoch = m.shared.epoch
			m.mu.Unlock()
			return m.epoch, ctx.Err()
		}
		m.mu.Unlock()
		if waiting != nil {
			waiting(leader.address)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-changed:
		}
	}
}

func (m *member) Deposed() <-chan struct{} { return m.deposed }

// leads returns a CodeStale error unless the member leads. The caller holds mu.
func (m *member) leads() error {
	if m.leader != m {
		return plimsoll.Errorf(plimsoll.CodeStale, "%s does not lead", m.address)
	}
	return nil
}

func (m *member) Load(
	_ context.Context, record func(wire.Kind, string, []byte) error, events func(uint64, wire.EventChunk) error,
) (uint64, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads++
	for kind := range wire.Kind(wire.NumKinds) {
		if err := m.each(kind, record); err != nil {
			return 0, 0, err
		}
	}
	return m.revision, m.time, m.eachChunk(0, events)
}

func (m *member) each(kind wire.Kind, record func(wire.Kind, string, []byte) error) error {
	for _, key := range slices.Sorted(maps.Keys(m.records[kind])) {
		if err := record(kind, key, m.records[kind][key]); err != nil {
			return err
		}
	}
	return nil
}

func (m *member) eachChunk(since uint64, events func(uint64, wire.EventChunk) error) error {
	for _, revision := range slices.Sorted(maps.Keys(m.chunks)) {
		if revision <= since {
			continue
		}
		if err := events(revision, m.chunks[revision]); err != nil {
			return err
		}
	}
	return nil
}

func (m *member) LoadSince(
	_ context.Context, since uint64, record func(wire.Kind, string, []byte) error,
	events func(uint64, wire.EventChunk) error,
) (uint64, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if since < m.oldest || since > m.revision {
		return 0, 0, plimsoll.Errorf(plimsoll.CodeNotFound, "the changes since %d are not known", since)
	}
	type name struct {
		kind wire.Kind
		key  string
	}
	told := map[name]bool{}
	for _, c := range slices.Backward(m.history) {
		if c.revision <= since || told[name{c.kind, c.key}] {
			continue
		}
		told[name{c.kind, c.key}] = true
		if err := record(c.kind, c.key, m.records[c.kind][c.key]); err != nil {
			return 0, 0, err
		}
	}
	return m.revision, m.time, m.eachChunk(since, events)
}

func (m *member) LoadKind(_ context.Context, kind wire.Kind, record func(string, []byte) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.each(kind, func(_ wire.Kind, key string, value []byte) error { return record(key, value) })
}

func (m *member) Commit(b *wire.Batch) (store.Pending, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.leads(); err != nil {
		return nil, err
	}
	if b.Epoch != m.epoch || b.Revision <= m.revision {
		return nil, errors.New("a batch out of order")
	}
	m.revision, m.time = b.Revision, b.Time
	for i := range b.Mutations {
		switch mutation := &b.Mutations[i]; {
		case mutation.Ephemeral:
			continue
		case mutation.Value == nil:
			delete(m.records[mutation.Kind], mutation.Key)
		default:
			m.records[mutation.Kind][mutation.Key] = slices.Clone(mutation.Value)
		}
		m.history = append(m.history, storedChange{b.Revision, b.Mutations[i].Kind, b.Mutations[i].Key})
	}
	if b.Events.Count > 0 {
		chunk := b.Events
		chunk.Data = slices.Clone(chunk.Data)
		m.chunks[b.Revision] = chunk
	}
	return durable{}, nil
}

type durable struct{}

func (durable) Wait() error { return nil }

// Confirm waits while the member is slowed, as one that has lost its network does. It fails when
// the member is deposed.
func (m *member) Confirm(ctx context.Context) error {
	m.mu.Lock()
	slowed := m.slowed
	m.mu.Unlock()
	if slowed {
		select {
		case <-m.slow:
		case <-m.deposed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leads()
}

// slowDown lets proofs of the present leader wait until it is deposed or the returned function is
// called.
func (s *shared) slowDown() (hurry func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.leader
	m.slowed = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		m.slowed = false
		close(m.slow)
	}
}

func (m *member) TrimEvents(keep uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.chunks, func(revision uint64, _ wire.EventChunk) bool { return revision < keep })
	return nil
}

func (m *member) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resign(m)
	return nil
}
