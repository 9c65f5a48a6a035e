package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// MaxWaitingBytes bounds the batches that wait for a transaction. Commit waits while there are
// more; one batch is always taken.
const MaxWaitingBytes = 64 << 20

// term is one leadership. Its writer makes the transactions, one at a time.
type term struct {
	store *Store
	place *place
	epoch uint64

	end   context.CancelFunc // ends guard and compact
	group sync.WaitGroup

	mu struct {
		sync.Mutex
		wake    *sync.Cond // an item was added or taken, or one of the fields below was set
		waiting []*item
		bytes   int    // of waiting
		busy    bool   // a transaction is under way
		epoch   uint64 // the last one that Lead returned
		last    uint64 // revision of the last batch that was taken in
		newest  *item  // the last one that was taken in; nil: none was
		ending  bool   // the writer ends when nothing waits, and nothing is taken in any more
		failed  error  // nothing is taken in any more
	}

	// The fields below belong to the writer.
	meta    meta // Invariant: as stored, after the last transaction that succeeded
	changes changes
	parts   parts
	seen    revisions
}

// item waits for its transaction: a batch, a trim or a higher epoch.
type item struct {
	batch *wire.Batch // nil: none
	trim  uint64      // chunks of revisions below it are removed
	raise bool        // the epoch is raised
	ops   int
	bytes int
	done  chan struct{} // closed when err is set
	err   error
}

// Wait implements store.Pending.
func (i *item) Wait() error {
	<-i.done
	return i.err
}

var _ store.Pending = (*item)(nil)

// newTerm begins a leadership with the store's own record as rise has left it.
func (s *Store) newTerm(ctx context.Context, p *place, last meta) (*term, error) {
	t := &term{store: s, place: p, epoch: last.epoch, meta: last}
	t.mu.wake = sync.NewCond(&t.mu)
	t.mu.epoch, t.mu.last = last.epoch, last.revision
	if err := t.recover(ctx); err != nil {
		return nil, err
	}
	background, end := context.WithCancel(context.Background())
	t.end = end
	t.group.Go(t.write)
	t.group.Go(func() { s.guard(background, p) })
	t.group.Go(func() { t.compact(background) })
	t.group.Go(func() {
		select {
		case <-p.lease.lost:
			t.fail(errLost(t.epoch))
		case <-background.Done():
		}
	})
	return t, nil
}

// recover reads what the writer must know, and removes what former leaders have left.
func (t *term) recover(ctx context.Context) error {
	if err := t.changes.recover(ctx, t.store); err != nil {
		return err
	}
	return t.recoverParts(ctx)
}

// leads reports whether the leadership goes on.
func (t *term) leads() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.failed == nil && !t.mu.ending && t.place.lease.alive()
}

// fail ends the term; cause is told to each later call.
func (t *term) fail(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.failed == nil {
		t.mu.failed = cause
	}
	t.mu.wake.Broadcast()
}

func (t *term) commit(batch *wire.Batch) (store.Pending, error) {
	ops, bytes := store.Measure(batch)
	i := &item{batch: batch, ops: ops, bytes: bytes + ops*opBytes, done: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.closed() == nil && len(t.mu.waiting) > 0 && t.mu.bytes+i.bytes > MaxWaitingBytes {
		t.mu.wake.Wait()
	}
	switch {
	case t.closed() != nil:
		return nil, t.closed()
	case !t.place.lease.alive():
		return nil, errLost(t.epoch)
	case batch.Epoch != t.mu.epoch:
		return nil, plimsoll.Errorf(
			plimsoll.CodeStale, "revision %d comes from the leader of epoch %d, and epoch %d leads", batch.Revision,
			batch.Epoch, t.mu.epoch,
		)
	case batch.Revision <= t.mu.last:
		return nil, plimsoll.Invalid("batch", "revision %d is not after %d, which is stored", batch.Revision, t.mu.last)
	}
	if err := checkBatch(batch); err != nil {
		return nil, err
	}
	t.mu.last = batch.Revision
	t.add(i)
	return i, nil
}

// closed returns the reason for which nothing is taken in, or nil. The caller holds mu.
func (t *term) closed() error {
	if t.mu.failed == nil && t.mu.ending {
		return t.store.errClosed()
	}
	return t.mu.failed
}

// add appends an item. The caller holds mu.
func (t *term) add(i *item) {
	t.mu.waiting, t.mu.newest = append(t.mu.waiting, i), i
	t.mu.bytes += i.bytes
	t.mu.wake.Broadcast()
}

func (t *term) trim(keep uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.closed(); err != nil {
		return err
	}
	if keep > 0 {
		t.add(&item{trim: keep, ops: 1, bytes: opBytes, done: make(chan struct{})})
	}
	return nil
}

// raise makes the epoch of a leader higher.
func (t *term) raise() (uint64, error) {
	i := &item{raise: true, done: make(chan struct{})}
	t.mu.Lock()
	if err := t.closed(); err != nil {
		t.mu.Unlock()
		return 0, err
	}
	t.mu.epoch++
	epoch := t.mu.epoch
	t.add(i)
	t.mu.Unlock()
	if err := i.Wait(); err != nil {
		return 0, err
	}
	return epoch, nil
}

// settled returns when all that was taken in before is stored or has failed, or when ctx ends. The
// items are written in their order.
func (t *term) settled(ctx context.Context) error {
	t.mu.Lock()
	newest := t.mu.newest
	t.mu.Unlock()
	if newest == nil {
		return nil
	}
	select {
	case <-newest.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// resign ends the term after all that was taken in, and lets another process lead.
func (t *term) resign() error {
	t.mu.Lock()
	t.mu.ending = true
	t.mu.wake.Broadcast()
	t.mu.Unlock()
	_ = t.settled(context.Background()) // its error is that of the context
	t.end()
	t.group.Wait()
	return t.place.lease.release(t.store.cfg.callTimeout())
}

// write makes transactions until the term ends or fails.
func (t *term) write() {
	ctx, cancel := t.place.lease.guarded(context.Background())
	defer cancel()
	for {
		group, ended := t.take()
		if ended {
			return
		}
		err := t.failure()
		if err == nil {
			err = t.store.transact(ctx, t, group)
		}
		if err != nil {
			t.fail(err)
		}
		t.mu.Lock()
		t.mu.busy = false
		t.mu.wake.Broadcast()
		t.mu.Unlock()
		for _, i := range group {
			i.err = err
			close(i.done)
		}
	}
}

func (t *term) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.failed
}

// take waits for items and returns those of the next transaction, in their order. The term has
// ended if there are none.
func (t *term) take() (group []*item, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.mu.waiting) == 0 {
		if t.mu.ending {
			return nil, true
		}
		t.mu.wake.Wait()
	}
	n := mergeable(t.mu.waiting)
	group = t.mu.waiting[:n:n]
	t.mu.waiting = t.mu.waiting[n:]
	for _, i := range group {
		t.mu.bytes -= i.bytes
	}
	t.mu.busy = true
	t.mu.wake.Broadcast()
	return group, false
}

// mergeable returns how many items from the first on are written in one transaction.
func mergeable(waiting []*item) int {
	ops, bytes, trim, least := 0, 0, uint64(0), uint64(0)
	for n, i := range waiting {
		ops += i.ops
		bytes += i.bytes
		trim = max(trim, i.trim)
		if i.batch != nil && i.batch.Events.Count > 0 {
			ops++
			if least == 0 {
				least = i.batch.Revision
			}
		}
		switch {
		case n == 0:
		case i.raise || waiting[n-1].raise:
			return n
		case ops > MaxOps || bytes > requestBytes-MaxChangesBytes/changesShare:
			return n
		case least > 0 && least < trim: // one transaction cannot put a chunk and remove it
			return n
		}
	}
	return len(waiting)
}

// compact lets etcd forget the revisions that are older than the retention, until ctx ends. Every
// transaction makes a revision, which etcd keeps otherwise for ever.
func (t *term) compact(ctx context.Context) {
	every := t.store.cfg.Retention
	if every <= 0 {
		return
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		t.compactNow(ctx)
	}
}

// compactNow compacts once. An error is told, and the next time comes all the same.
func (t *term) compactNow(ctx context.Context) {
	err := t.compactOnce(ctx)
	if err == nil || ctx.Err() != nil {
		return
	}
	t.store.cfg.Logger.Warn("etcd's history was not compacted; it is tried again later", "error", err)
	if t.store.cfg.CompactionFailed != nil {
		t.store.cfg.CompactionFailed(err)
	}
}

// compactOnce lets etcd forget what was replaced before the call before this one.
func (t *term) compactOnce(ctx context.Context) error {
	old := t.seen.turn()
	if old == 0 {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	if _, err := t.store.client.Compact(call, old); err != nil && !isCompacted(err) {
		return t.store.unreachable("compact etcd's history", err)
	}
	return nil
}

const compactTimeout = 30 * time.Second

// revisions keeps revisions of etcd from one compaction to the next.
type revisions struct {
	mu        sync.Mutex
	last, old int64
}

func (r *revisions) note(h int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = max(r.last, h)
}

// turn returns the last revision that was known at the call before; 0: none.
func (r *revisions) turn() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.old
	r.old = r.last
	return old
}

// metaIs is the comparison that keeps the order: it is true while the store's own record is as a
// transaction left it.
func (s *Store) metaIs(m meta) clientv3.Cmp {
	key := s.key(metaKey)
	if value := m.encode(); value != "" {
		return clientv3.Compare(clientv3.Value(key), "=", value)
	}
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}
