package storetest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// disk is the plainest store: a Model that several callers may open. With a fault it breaks one
// rule.
type disk struct {
	mu      sync.Mutex
	model   Model
	epoch   uint64
	fault   string
	leader  *memStore
	changed *sync.Cond // the leader has changed, or a context has ended
	history []changed  // the last 30
}

type changed struct {
	before, revision uint64
	keys             []wire.Mutation
}

type memStore struct {
	disk    *disk
	epoch   uint64
	closed  bool
	deposed chan struct{}
}

func (s *memStore) Limits() store.Limits { return store.Limits{Ops: 20, Bytes: 1 << 20} }

func (s *memStore) gone() error {
	if s.closed {
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "closed")
	}
	return nil
}

func (s *memStore) Lead(ctx context.Context, waiting func(string)) (uint64, error) {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if err := s.gone(); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() {
		s.disk.mu.Lock()
		defer s.disk.mu.Unlock()
		s.disk.changed.Broadcast()
	})
	defer stop()
	if other := s.disk.leader; other != nil && other != s && waiting != nil && s.disk.fault != "no waiting" {
		waiting("")
	}
	for s.disk.leader != nil && s.disk.leader != s && ctx.Err() == nil && s.disk.fault != "no waiting" {
		s.disk.changed.Wait()
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if s.disk.fault != "same epoch" {
		s.disk.epoch++
	}
	s.epoch, s.disk.leader, s.deposed = s.disk.epoch, s, make(chan struct{})
	return s.epoch, nil
}

func (s *memStore) depose() error {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if s.disk.leader == s {
		s.disk.leader = nil
		s.disk.changed.Broadcast()
	}
	close(s.deposed)
	return nil
}

func (s *memStore) Load(
	ctx context.Context, record func(wire.Kind, string, []byte) error, events func(uint64, wire.EventChunk) error,
) (uint64, int64, error) {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if err := s.gone(); err != nil {
		return 0, 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	c := s.disk.model.Content()
	for _, r := range c.Records {
		if err := record(r.Kind, r.Key, []byte(r.Value)); err != nil {
			return 0, 0, err
		}
	}
	for _, e := range c.Chunks {
		if err := events(
			e.Revision, wire.EventChunk{FirstID: e.FirstID, Count: e.Count, Data: []byte(e.Data)},
		); err != nil {
			return 0, 0, err
		}
	}
	if s.disk.fault == "no time" {
		c.Time = 0
	}
	return c.Revision, c.Time, nil
}

func (s *memStore) Deposed() <-chan struct{} {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	return s.deposed
}

func (s *memStore) LoadSince(
	_ context.Context, since uint64, record func(wire.Kind, string, []byte) error,
	events func(uint64, wire.EventChunk) error,
) (uint64, int64, error) {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	c := s.disk.model.Content()
	known := since == c.Revision
	for _, h := range s.disk.history {
		known = known || h.before <= since && since < h.revision
	}
	if !known && (s.disk.fault != "knows the future" || since <= c.Revision) {
		return 0, 0, plimsoll.Errorf(plimsoll.CodeNotFound, "not known")
	}
	for _, h := range s.disk.history {
		for _, m := range h.keys {
			if err := record(m.Kind, m.Key, c.value(m)); err != nil && h.revision > since {
				return 0, 0, err
			}
		}
	}
	for _, e := range c.Chunks {
		if e.Revision <= since && s.disk.fault != "old chunks" {
			continue
		}
		if err := events(
			e.Revision, wire.EventChunk{FirstID: e.FirstID, Count: e.Count, Data: []byte(e.Data)},
		); err != nil {
			return 0, 0, err
		}
	}
	return c.Revision, c.Time, nil
}

// value returns the value of a mutation's key.
func (c Content) value(m wire.Mutation) []byte {
	for _, r := range c.Records {
		if r.Kind == m.Kind && r.Key == m.Key {
			return []byte(r.Value)
		}
	}
	return nil
}

// note keeps the keys of a batch.
func (d *disk) note(b *wire.Batch) {
	h := changed{before: d.model.Content().Revision, revision: b.Revision}
	for _, m := range b.Mutations {
		if !m.Ephemeral && (d.fault != "forgets changed deletes" || m.Value != nil) {
			h.keys = append(h.keys, m)
		}
	}
	if d.history = append(d.history, h); len(d.history) > 30 {
		d.history = d.history[1:]
	}
}

func (s *memStore) Commit(b *wire.Batch) (store.Pending, error) {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if err := s.gone(); err != nil {
		return nil, err
	}
	if (s.epoch == 0 || b.Epoch != s.epoch || s.disk.leader != s) && s.disk.fault != "no fence" {
		return nil, plimsoll.Errorf(plimsoll.CodeStale, "stale")
	}
	if b.Revision <= s.disk.model.Content().Revision && s.disk.fault != "old revision" {
		return nil, plimsoll.Invalid("batch", "old revision")
	}
	if err := s.Limits().Check(b); err != nil && s.disk.fault != "no limits" {
		return nil, err
	}
	b = s.disk.spoil(b)
	s.disk.note(b)
	s.disk.model.Apply(b)
	return durable{}, nil
}

// spoil returns the batch in the form that a store with the fault would store.
func (d *disk) spoil(b *wire.Batch) *wire.Batch {
	c := *b
	c.Mutations = nil
	for _, m := range b.Mutations {
		switch {
		case d.fault == "ephemeral stored":
			m.Ephemeral = false
		case d.fault == "no deletes" && m.Value == nil:
			continue
		case d.fault == "empty is delete" && len(m.Value) == 0:
			m.Value = nil
		}
		c.Mutations = append(c.Mutations, m)
	}
	if d.fault == "no events" {
		c.Events = wire.EventChunk{}
	}
	return &c
}

func (s *memStore) Confirm(ctx context.Context) error {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if err := s.gone(); err != nil {
		return err
	}
	if s.disk.leader != s && s.disk.fault != "confirms the deposed" {
		return plimsoll.Errorf(plimsoll.CodeStale, "stale")
	}
	return ctx.Err()
}

func (s *memStore) TrimEvents(keep uint64) error {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if s.disk.fault == "trims one too many" && keep > 0 {
		keep++
	}
	s.disk.model.Trim(keep)
	return s.gone()
}

func (s *memStore) Close() error {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	s.closed = true
	if s.disk.leader == s {
		s.disk.leader = nil
		s.disk.changed.Broadcast()
	}
	if s.disk.fault == "forgets" {
		s.disk.model = Model{}
	}
	return nil
}

type durable struct{}

func (durable) Wait() error { return nil }

func memHarness(fault string) func(*testing.T) Harness {
	return func(*testing.T) Harness {
		d := &disk{fault: fault}
		d.changed = sync.NewCond(&d.mu)
		h := Harness{
			Openers: ManyOpeners, Open: func() (store.Store, error) { return &memStore{disk: d}, nil },
			Depose: func(s store.Store) error { return s.(*memStore).depose() }, KnowsChanges: fault != "undeclared",
		}
		if fault == "undeclared" {
			h.Openers = OpenersUndeclared
		}
		return h
	}
}

func TestReferenceStorePasses(t *testing.T) { Run(t, memHarness("")) }

const faultVariable = "STORETEST_FAULT"

// TestFaultyStore is run by TestSuiteFindsFaults in a process of its own.
func TestFaultyStore(t *testing.T) {
	fault, ok := os.LookupEnv(faultVariable)
	if !ok {
		t.Skip("runs only inside of TestSuiteFindsFaults")
	}
	Run(t, memHarness(fault))
}

func TestSuiteFindsFaults(t *testing.T) {
	for _, tc := range []struct{ fault, pattern, says string }{
		{"undeclared", "", "does not declare Openers"},
		{"", "/nothing_has_this_name", "ran no case"},
		{"same epoch", "", "came after"},
		{"no fence", "", "want an error of code stale"},
		{"old revision", "", "want an error of code invalid"},
		{"no limits", "", "want an error of code invalid"},
		{"ephemeral stored", "", "the store holds something else"},
		{"no deletes", "", "the store holds something else"},
		{"empty is delete", "", "the store holds something else"},
		{"no events", "", "the store holds something else"},
		{"trims one too many", "", "the store holds something else"},
		{"no time", "", "the store holds something else"},
		{"forgets", "", "the store holds something else"},
		{"no waiting", "", "led beside the first"},
		{"confirms the deposed", "", "want code stale"},
		{"knows the future", "", "a standby that was at revision 8 holds something else"},
		{"forgets changed deletes", "", "a standby that was at revision"},
		{"old chunks", "", "is given to who holds"},
	} {
		t.Run(tc.fault+tc.pattern, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestFaultyStore$"+tc.pattern)
			cmd.Env = append(os.Environ(), faultVariable+"="+tc.fault)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), tc.says) {
				t.Errorf("the suite ended with %v and does not say %q:\n%s", err, tc.says, out)
			}
		})
	}
}
