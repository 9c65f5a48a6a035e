package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Store is an open store, made by Open.
type Store struct {
	cfg     Config
	client  *clientv3.Client
	members *members

	closing context.Context //nolint:containedctx // ends with Close, and with it each call that waits
	close   context.CancelFunc
	closed  sync.Once
	failure error // of Close

	lead  sync.Mutex     // held during Lead
	calls sync.WaitGroup // loads and leads under way

	mu struct {
		sync.Mutex
		term *term // last leadership that Lead gained; nil before
		shut bool  // Close was called
	}
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.KindLoader = (*Store)(nil)
)

// Open connects to etcd and checks the versions of its members. It changes nothing there.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	client, err := dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	members, err := watchMembers(cfg, client, probePause)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s := &Store{cfg: cfg, client: client, members: members}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

func (s *Store) key(rest string) string { return s.cfg.Prefix + rest }

func (s *Store) unreachable(op string, err error) error { return s.cfg.unreachable(op, err) }

// begin begins a call that must end before Close does. The returned context ends with Close too.
func (s *Store) begin(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.shut {
		return nil, nil, s.errClosed()
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	s.calls.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel)
	return ctx, func() { stop(); cancel(); s.calls.Done() }, nil
}

func (s *Store) errClosed() error {
	return plimsoll.Errorf(plimsoll.CodeUnavailable, "the store in etcd is closed")
}

// Limits implements store.Store.
func (s *Store) Limits() store.Limits { return store.Limits{Ops: MaxOps, Bytes: MaxBytes} }

// term returns the present leadership, or nil.
func (s *Store) term() *term {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.term
}

// Lead implements store.Store. A leader that calls it again stays the leader, with a higher epoch.
func (s *Store) Lead(ctx context.Context, waiting func(leader string)) (uint64, error) {
	s.lead.Lock()
	defer s.lead.Unlock()
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	if t := s.term(); t != nil {
		if t.leads() {
			return t.raise()
		}
		s.setTerm(nil)
		if err := t.resign(); err != nil {
			s.cfg.Logger.Warn("the former leadership in etcd was not given up", "error", err)
		}
	}
	for {
		t, err := s.gain(ctx, waiting)
		if errors.Is(err, errPlaceLost) {
			s.cfg.Logger.Warn("this process has lost its place in the line of those that wait to lead; it stands again")
			continue
		}
		if err != nil && s.closing.Err() != nil {
			return 0, s.errClosed()
		}
		if err != nil {
			return 0, err
		}
		s.setTerm(t)
		return t.epoch, nil
	}
}

func (s *Store) setTerm(t *term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.term = t
}

// gain waits for its turn and becomes the leader. It returns errPlaceLost if its lease is lost
// before.
func (s *Store) gain(ctx context.Context, waiting func(leader string)) (_ *term, err error) {
	p, err := s.stand(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		if failed := p.lease.release(s.cfg.callTimeout()); failed != nil {
			s.cfg.Logger.Warn("a place in the line was not given up", "error", failed)
		}
	}()
	if err := s.wait(ctx, p, waiting); err != nil {
		return nil, err
	}
	last, err := s.rise(ctx, p)
	if err != nil {
		return nil, err
	}
	return s.newTerm(ctx, p, last)
}

// Deposed implements store.Store.
func (s *Store) Deposed() <-chan struct{} {
	if t := s.term(); t != nil {
		return t.place.lease.lost
	}
	return nil
}

// Commit implements store.Store. While MaxWaitingBytes of batches wait, it waits too.
func (s *Store) Commit(batch *wire.Batch) (store.Pending, error) {
	s.mu.Lock()
	t, shut := s.mu.term, s.mu.shut
	s.mu.Unlock()
	if shut {
		return nil, s.errClosed()
	}
	if t == nil {
		return nil, plimsoll.Errorf(
			plimsoll.CodeStale, "revision %d comes from the leader of epoch %d, and this process does not lead",
			batch.Revision, batch.Epoch,
		)
	}
	return t.commit(batch)
}

// Confirm implements store.Store. It does not ask etcd: while the lease is certainly alive, nobody
// else can lead.
func (s *Store) Confirm(ctx context.Context) error {
	s.mu.Lock()
	t, shut := s.mu.term, s.mu.shut
	s.mu.Unlock()
	switch {
	case shut:
		return s.errClosed()
	case t == nil:
		return plimsoll.Errorf(plimsoll.CodeStale, "the store in etcd is open, but its caller does not lead")
	case !t.place.lease.alive():
		t.place.lease.lose()
		return errLost(t.epoch)
	}
	return ctx.Err()
}

// TrimEvents implements store.Store. It returns at once: the chunks are removed with the next
// transaction, which Load and LoadSince await.
func (s *Store) TrimEvents(keep uint64) error {
	s.mu.Lock()
	t, shut := s.mu.term, s.mu.shut
	s.mu.Unlock()
	if shut {
		return s.errClosed()
	}
	if t == nil {
		return plimsoll.Errorf(
			plimsoll.CodeStale, "events below revision %d were not removed: this process does not lead", keep,
		)
	}
	return t.trim(keep)
}

// Close implements store.Store. It gives up the leadership, so that another process leads at once.
func (s *Store) Close() error {
	s.closed.Do(func() {
		s.mu.Lock()
		s.mu.shut = true
		s.mu.Unlock()
		s.close()
		s.calls.Wait()
		if t := s.term(); t != nil { // Lead may have gained it meanwhile
			s.failure = t.resign()
		}
		s.members.close()
		if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			s.failure = errors.Join(s.failure, fmt.Errorf("close the connection to etcd: %w", err))
		}
	})
	return s.failure
}
