package sim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The times of a lease and of the calls to the store.
const (
	leaseTTL    = time.Second
	leaseDrift  = leaseTTL / 10 // by which clocks may differ within a TTL
	keepAlive   = leaseTTL / 4
	callTimeout = leaseTTL / 2
)

// storeLimits are small, so that a job of some tasks is taken in by several turns.
var storeLimits = store.Limits{Ops: 40, Bytes: 64 << 10}

// wire between a process and the quorum: what may happen to a request.
type storeLink struct {
	dice *dice

	mu struct {
		sync.Mutex
		up, down bool                          // requests, answers are lost
		late     bool                          // a request that is given up arrives later
		unknown  int                           // so many answers are lost
		crash    func(stored bool) (lost bool) // called around the next transaction; nil: it is not
	}
}

func (l *storeLink) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *storeLink) heal() {
	l.set(func() { l.mu.up, l.mu.down, l.mu.late, l.mu.unknown, l.mu.crash = false, false, false, 0, nil })
}

// session is a process that has the store open: the client's side of the store. It keeps the
// contract of package store as package store/etcd does. It counts the time of its lease from the
// sending of each keep-alive. It has one transaction under way at a time, and a barrier for one
// without an answer.
type session struct {
	quorum  *quorum
	process *process
	link    *storeLink
	address string
	loading func() // called in the middle of a load

	deposed chan struct{}
	once    sync.Once    // closes deposed
	until   atomic.Int64 // boottime until which the lease is alive, Unix nanoseconds; 0: there is none

	ctx   context.Context //nolint:containedctx // ends with Close
	end   context.CancelFunc
	group sync.WaitGroup
	ran   bool // the goroutines of a leader run

	mu struct {
		sync.Mutex
		wake    chan struct{} // capacity 1
		waiting []*item
		epoch   uint64
		last    uint64 // revision of the last batch that was taken in
		failed  error  // nothing is taken in any more
		closed  bool
	}
	meta meta // after the last transaction; belongs to Lead, then to the writer
}

// item waits for its transaction.
type item struct {
	batch *wire.Batch // nil: a trim
	trim  uint64
	done  chan struct{}
	err   error
}

// Wait implements store.Pending.
func (i *item) Wait() error {
	<-i.done
	return i.err
}

func newSession(q *quorum, p *process, link *storeLink, address string) *session {
	s := &session{quorum: q, process: p, link: link, address: address, deposed: make(chan struct{})}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.mu.wake = make(chan struct{}, 1)
	return s
}

var (
	_ store.Store      = (*session)(nil)
	_ store.KindLoader = (*session)(nil)
)

func errUnreached() error {
	return plimsoll.Errorf(plimsoll.CodeUnavailable, "the store did not answer within %s", callTimeout)
}

// exchange sends a request, which f executes, and returns its answer. With an error the outcome is
// not known: f was called, was not, or will be.
func exchange[T any](ctx context.Context, s *session, f func() T) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.process.runs(ctx); err != nil {
		return answer, err
	}
	there, back, lost := s.link.draw()
	answered := make(chan T, 1)
	if !lost {
		go func() { // the request is on its way, whatever becomes of its sender
			sleep(context.Background(), there)
			found := f()
			if !s.link.losesAnswer() {
				sleep(context.Background(), back)
				answered <- found
			}
		}()
	}
	select {
	case answer = <-answered:
	case <-ctx.Done():
		return answer, errUnreached()
	case <-s.process.killed():
		return answer, errKilled
	}
	return answer, s.process.runs(context.WithoutCancel(ctx))
}

// draw returns how long a request and its answer take, and whether the request is lost.
func (l *storeLink) draw() (there, back time.Duration, lost bool) {
	there = l.dice.between(50*time.Microsecond, 2*time.Millisecond)
	back = l.dice.between(50*time.Microsecond, 2*time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.late && l.dice.intN(3) == 0 {
		there += l.dice.between(callTimeout, 3*leaseTTL)
	}
	return there, back, l.mu.up
}

// losesAnswer reports whether an answer is lost.
func (l *storeLink) losesAnswer() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.unknown > 0 {
		l.mu.unknown--
		return true
	}
	return l.mu.down
}

// alive reports whether the lease is certainly alive.
func (s *session) alive() bool {
	return s.quorum.faults.noLease || s.process.boottime().UnixNano() < s.until.Load()
}

func (s *session) lose() { s.once.Do(func() { close(s.deposed) }) }

func (s *session) errLost() error {
	return plimsoll.Errorf(plimsoll.CodeStale, "%s does not lead any more", s.address)
}

// Limits implements store.Store.
func (s *session) Limits() store.Limits { return storeLimits }

// Lead implements store.Store.
func (s *session) Lead(ctx context.Context, waiting func(leader string)) (uint64, error) {
	for {
		sent := s.process.boottime()
		c, err := exchange(ctx, s, func() campaign { return s.quorum.campaign(s, leaseTTL) })
		if err != nil {
			return 0, errors.Join(err, ctx.Err())
		}
		if c.won {
			s.until.Store(sent.Add(leaseTTL - leaseDrift).UnixNano())
			s.meta = c.meta
			s.mu.Lock()
			s.mu.epoch, s.mu.last = c.meta.epoch, c.meta.revision
			s.mu.Unlock()
			if !s.ran {
				s.ran = true
				s.group.Go(s.keep)
				s.group.Go(s.guard)
				s.group.Go(s.write)
			}
			return c.meta.epoch, nil
		}
		if waiting != nil {
			waiting(c.holder)
		}
		timer := time.NewTimer(time.Until(c.ends) + time.Millisecond)
		select {
		case <-c.changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := s.process.runs(ctx); err != nil {
			return 0, err
		}
	}
}

// keep keeps the lease alive.
func (s *session) keep() {
	for s.ctx.Err() == nil {
		sleep(s.ctx, keepAlive)
		sent := s.process.boottime()
		kept, err := exchange(s.ctx, s, func() bool { return s.quorum.renew(s, leaseTTL) })
		if err != nil {
			continue
		}
		if !kept {
			if !s.quorum.faults.noLease {
				s.lose()
				return
			}
			continue
		}
		s.until.Store(max(s.until.Load(), sent.Add(leaseTTL-leaseDrift).UnixNano()))
	}
}

// guard ends the leadership when the lease may be dead.
func (s *session) guard() {
	for s.ctx.Err() == nil {
		if !s.alive() {
			s.lose()
			s.fail(s.errLost())
			return
		}
		left := time.Unix(0, s.until.Load()).Sub(s.process.boottime())
		sleep(s.ctx, min(max(left, time.Millisecond), keepAlive))
		if s.process.runs(s.ctx) != nil {
			return
		}
	}
}

func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.failed == nil {
		s.mu.failed = err
	}
	s.notify()
}

func (s *session) notify() {
	select {
	case s.mu.wake <- struct{}{}:
	default:
	}
}

// Deposed implements store.Store.
func (s *session) Deposed() <-chan struct{} { return s.deposed }

// Confirm implements store.Store.
func (s *session) Confirm(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	failed := s.mu.failed
	s.mu.Unlock()
	switch {
	case s.quorum.faults.noLease:
		return nil
	case failed != nil:
		return failed
	case !s.alive():
		return s.errLost()
	}
	return nil
}

// Commit implements store.Store.
func (s *session) Commit(b *wire.Batch) (store.Pending, error) {
	if err := storeLimits.Check(b); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.failed != nil:
		return nil, s.mu.failed
	case s.mu.closed || !s.alive() || b.Epoch != s.mu.epoch:
		return nil, s.errLost()
	case b.Revision <= s.mu.last:
		return nil, plimsoll.Invalid("batch", "revision %d is not after %d", b.Revision, s.mu.last)
	}
	s.mu.last = b.Revision
	return s.add(&item{batch: b, done: make(chan struct{})}), nil
}

// add lets an item wait for its transaction. The caller holds mu.
func (s *session) add(i *item) *item {
	s.mu.waiting = append(s.mu.waiting, i)
	s.notify()
	return i
}

// TrimEvents implements store.Store.
func (s *session) TrimEvents(keep uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.failed != nil {
		return s.mu.failed
	}
	s.add(&item{trim: keep, done: make(chan struct{})})
	return nil
}

// take takes all items that wait. ok is false when there will be no more.
func (s *session) take() (group []*item, ok bool) {
	for {
		s.mu.Lock()
		group, s.mu.waiting = s.mu.waiting, nil
		failed, closed := s.mu.failed, s.mu.closed
		s.mu.Unlock()
		if failed != nil {
			for _, i := range group {
				i.err = failed
				close(i.done)
			}
			return nil, false
		}
		if len(group) > 0 {
			return group, true
		}
		if closed {
			return nil, false
		}
		<-s.mu.wake
	}
}

// write makes the transactions, one at a time.
func (s *session) write() {
	for {
		group, ok := s.take()
		if !ok {
			return
		}
		if s.quorum.faults.reorders {
			s.scatter(group)
			continue
		}
		err := s.transact(group)
		if err != nil {
			s.fail(err)
		}
		for _, i := range group {
			i.err = err
			close(i.done)
		}
	}
}

// after is the record behind a group.
func (m meta) after(group []*item) meta {
	m.serial++
	m.barrier = false
	for _, i := range group {
		if i.batch != nil {
			m.revision, m.time, m.epoch = i.batch.Revision, i.batch.Time, i.batch.Epoch
		}
	}
	return m
}

// transact stores a group, or returns an error, with which the term ends.
func (s *session) transact(group []*item) error {
	for {
		before, after := s.meta, s.meta.after(group)
		f, err := s.request(before, after, group)
		switch {
		case err == nil && f.applied:
			s.meta = after
			return nil
		case err == nil && !f.holds:
			s.lose()
			return s.errLost()
		case err == nil:
			return plimsoll.Errorf(plimsoll.CodeConflict, "the store's record is %+v, not %+v", f.meta, before)
		case s.quorum.faults.sendsAgain && s.alive() && s.process.runs(s.ctx) == nil:
			continue
		}
		if applied, err := s.settle(before, after); err != nil || applied {
			return err
		}
	}
}

func (s *session) request(before, after meta, group []*item) (finding, error) {
	return exchange(s.ctx, s, func() finding {
		s.quorum.waitDisk(s.ctx)
		if s.link.crashes(false) {
			return finding{}
		}
		found := s.quorum.transact(s, before, after, group)
		s.link.crashes(true)
		return found
	})
}

// settle finds out whether a transaction without an answer was applied. A barrier, which compares
// the same, sees to it that it is not applied later.
func (s *session) settle(before, after meta) (applied bool, err error) {
	barrier := before
	barrier.serial++
	barrier.barrier = true
	for s.alive() && s.process.runs(s.ctx) == nil {
		f, err := s.request(before, barrier, nil)
		switch {
		case err != nil:
			sleep(s.ctx, 10*time.Millisecond)
			continue
		case f.applied || f.holds && f.meta == barrier:
			s.meta = barrier
			return false, nil
		case f.meta == after:
			s.meta = after
			return true, nil
		}
		s.lose()
		return false, s.errLost()
	}
	s.lose()
	return false, plimsoll.Errorf(plimsoll.CodeOutcomeUnknown, "revision %d was stored or not", after.revision)
}

// scatter stores each item by a transaction of its own, all at the same time (a mutant).
func (s *session) scatter(group []*item) {
	for _, i := range group {
		before, after := s.meta, s.meta.after([]*item{i})
		s.meta = after
		s.group.Go(func() {
			f, err := s.request(before, after, []*item{i})
			if err == nil && !f.holds {
				err = s.errLost()
			}
			if err != nil {
				s.fail(err)
			}
			i.err = err
			close(i.done)
		})
	}
}

// read reads the content at one instant. A load takes some time, in which the process may end.
func (s *session) read(ctx context.Context) (c content, err error) {
	if c, err = exchange(ctx, s, s.quorum.read); err != nil {
		return c, err
	}
	if s.loading != nil {
		s.loading()
	}
	sleep(ctx, s.link.dice.between(time.Millisecond, 30*time.Millisecond))
	return c, s.process.runs(ctx)
}

// Load implements store.Store.
func (s *session) Load(
	ctx context.Context, record func(wire.Kind, string, []byte) error, events func(uint64, wire.EventChunk) error,
) (uint64, int64, error) {
	c, err := s.read(ctx)
	if err != nil {
		return 0, 0, err
	}
	for kind := range wire.Kind(wire.NumKinds) {
		if err := c.each(kind, func(key string, value []byte) error { return record(kind, key, value) }); err != nil {
			return 0, 0, err
		}
	}
	return c.meta.revision, c.meta.time, c.eachChunk(0, events)
}

func (c *content) each(kind wire.Kind, record func(string, []byte) error) error {
	for _, key := range slices.Sorted(maps.Keys(c.records[kind])) {
		if err := record(key, c.records[kind][key]); err != nil {
			return err
		}
	}
	return nil
}

func (c *content) eachChunk(since uint64, events func(uint64, wire.EventChunk) error) error {
	for _, revision := range slices.Sorted(maps.Keys(c.chunks)) {
		if revision <= since {
			continue
		}
		if err := events(revision, c.chunks[revision]); err != nil {
			return err
		}
	}
	return nil
}

// LoadSince implements store.Store.
func (s *session) LoadSince(
	ctx context.Context, since uint64, record func(wire.Kind, string, []byte) error,
	events func(uint64, wire.EventChunk) error,
) (uint64, int64, error) {
	c, err := s.read(ctx)
	if err != nil {
		return 0, 0, err
	}
	if since < c.oldest || since > c.meta.revision {
		return 0, 0, plimsoll.Errorf(plimsoll.CodeNotFound, "the changes since %d are not known", since)
	}
	type name struct {
		kind wire.Kind
		key  string
	}
	told := map[name]bool{}
	for _, change := range slices.Backward(c.history) {
		n := name{change.kind, change.key}
		if change.revision <= since || told[n] {
			continue
		}
		told[n] = true
		if err := record(n.kind, n.key, c.records[n.kind][n.key]); err != nil {
			return 0, 0, err
		}
	}
	return c.meta.revision, c.meta.time, c.eachChunk(since, events)
}

// LoadKind implements store.KindLoader.
func (s *session) LoadKind(ctx context.Context, kind wire.Kind, record func(string, []byte) error) error {
	c, err := s.read(ctx)
	if err != nil {
		return err
	}
	return c.each(kind, record)
}

// Close implements store.Store.
func (s *session) Close() error {
	s.mu.Lock()
	closed := s.mu.closed
	s.mu.closed = true
	s.notify()
	s.mu.Unlock()
	if closed {
		return nil
	}
	if !s.process.isKilled() && s.ran && s.alive() {
		// If the request is lost, the lease ends by itself.
		_, _ = exchange(context.Background(), s, func() bool { return s.quorum.resign(s) })
	}
	s.end()
	s.group.Wait()
	return nil
}
