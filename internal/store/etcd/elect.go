package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/plimsoll-dev/plimsoll"
)

// place is the place of a process in the line of those that want to lead.
type place struct {
	lease   *lease
	key     string // under the lease, with the prefix of the store
	created int64  // creation revision of the key, which no other key ever has
}

// holds is the comparison that fences: it is true while the place is held.
func (p *place) holds() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(p.key), "=", p.created)
}

// stand takes a place at the end of the line.
func (s *Store) stand(ctx context.Context) (*place, error) {
	l, err := grant(ctx, s.client, s.cfg)
	if err != nil {
		return nil, err
	}
	p := &place{lease: l, key: fmt.Sprintf("%s%s%016x", s.cfg.Prefix, leadersPrefix, int64(l.id))}
	call, cancel := context.WithTimeout(ctx, s.cfg.callTimeout())
	defer cancel()
	put, err := s.client.Put(call, p.key, s.cfg.Advertise, clientv3.WithLease(l.id))
	if err != nil {
		return nil, errors.Join(
			s.unreachable("stand by in etcd", errors.Join(err, ctx.Err())), l.release(s.cfg.callTimeout()),
		)
	}
	p.created = put.Header.Revision // nobody else writes this key
	return p, nil
}

// wait returns when the place is the first in the line. It returns errPlaceLost if its lease is
// lost before. While the lease is alive, an etcd that does not answer is asked again.
func (s *Store) wait(ctx context.Context, p *place, waiting func(leader string)) error {
	guarded, cancel := p.lease.guarded(ctx)
	var guard sync.WaitGroup
	defer guard.Wait()
	defer cancel()
	guard.Go(func() { s.guard(guarded, p) }) // a place whose key is gone would never be the first
	told, last := false, ""
	tell := func(first Leader) bool {
		if first.Term == p.created {
			return false
		}
		if waiting != nil && (!told || last != first.Address) {
			told, last = true, first.Address
			waiting(first.Address)
		}
		return true
	}
	for {
		err := followLine(guarded, s.cfg, s.client, tell)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !p.lease.alive():
			return errPlaceLost
		}
		pause(guarded, retryPause)
	}
}

var errPlaceLost = errors.New("the place in the line is lost")

// rise raises the epoch for a place that is the first in the line. It returns the store's own
// record as it is then.
//
// Only this process writes the record now: every other one compares its own place in the same
// transaction. A transaction that failed without an answer may still come. Then it finds another
// record than it compares, or the next one does and reads it again.
func (s *Store) rise(ctx context.Context, p *place) (meta, error) {
	guarded, cancel := p.lease.guarded(ctx)
	defer cancel()
	for {
		next, risen, err := s.tryRise(guarded, p)
		switch {
		case risen:
			return next, nil
		case ctx.Err() != nil:
			return meta{}, ctx.Err()
		case !p.lease.alive():
			return meta{}, errPlaceLost
		case plimsoll.CodeOf(err) == plimsoll.CodeConflict || plimsoll.CodeOf(err) == plimsoll.CodeCorrupt:
			return meta{}, err
		case err != nil:
			s.cfg.Logger.Warn("etcd did not raise the epoch; it is tried again", "error", err)
			pause(guarded, retryPause)
		}
	}
}

func (s *Store) tryRise(ctx context.Context, p *place) (next meta, risen bool, err error) {
	last, err := s.readMeta(ctx, 0)
	if err != nil {
		return next, false, err
	}
	next = last.value.next()
	next.epoch++
	call, cancel := context.WithTimeout(ctx, s.cfg.callTimeout())
	defer cancel()
	answer, err := s.client.Txn(call).If(p.holds(), s.metaIs(last.value)).
		Then(clientv3.OpPut(s.key(metaKey), next.encode())).
		Else(clientv3.OpGet(p.key, clientv3.WithCountOnly())).Commit()
	if err != nil {
		return next, false, s.unreachable("raise the epoch in etcd", err)
	}
	if !answer.Succeeded && answer.Responses[0].GetResponseRange().GetCount() == 0 {
		p.lease.lose()
	}
	return next, answer.Succeeded, nil
}

const retryPause = 50 * time.Millisecond

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// guard watches the key of a leader, and reads it once in a TTL. It lets the lease be lost when the
// key is gone: then another process leads although the lease may not have run out.
func (s *Store) guard(ctx context.Context, p *place) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, s.cfg.callTimeout())
		got, err := s.client.Get(call, p.key, clientv3.WithKeysOnly())
		cancel()
		switch {
		case err != nil:
			pause(ctx, retryPause)
			continue
		case len(got.Kvs) == 0 || got.Kvs[0].CreateRevision != p.created:
			p.lease.lose()
			return
		}
		watch, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.cfg.TTL) // as in followLine
		answer := <-s.client.Watch(
			watch, p.key, clientv3.WithRev(got.Header.Revision+1), clientv3.WithFilterPut(),
		)
		silent := watch.Err() != nil
		cancel()
		if len(answer.Events) > 0 {
			p.lease.lose()
			return
		}
		if !silent {
			pause(ctx, retryPause) // the watch has failed
		}
	}
}
