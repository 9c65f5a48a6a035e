package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	keepAlives = 4 // within one TTL; so two may be lost
	// driftShare is the part of a TTL by which the clocks of this machine and of etcd's leader may
	// differ within one TTL, and more: clocks of healthy machines drift by less than 1 in 1,000.
	driftShare = 10
)

// boottime reads CLOCK_BOOTTIME, which goes on while the machine is suspended. Go's own monotonic
// clock does not.
func boottime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("read CLOCK_BOOTTIME: " + err.Error()) // every Linux that Go supports has it
	}
	return time.Duration(t.Nano())
}

// lease is a lease of etcd that is kept alive until it is released or lost.
//
// etcd counts a TTL anew when it handles a keep-alive. That is after the keep-alive was sent. So
// the lease is alive for a TTL after the sending of each keep-alive that was answered. A lease
// whose process was paused is lost as soon as the process looks at the clock.
type lease struct {
	client *clientv3.Client
	id     clientv3.LeaseID
	until  atomic.Int64  // BOOTTIME until which it is certainly alive; Invariant: it never goes back
	lost   chan struct{} // closed when it may be dead
	once   sync.Once     // closes lost
	idle   chan *stream  // has the one of which each keep-alive was answered, if there is one

	end   context.CancelFunc
	group sync.WaitGroup
}

// grant returns a new lease, which release must end.
func grant(ctx context.Context, client *clientv3.Client, cfg Config) (*lease, error) {
	sent := boottime()
	call, cancel := context.WithTimeout(ctx, cfg.callTimeout())
	defer cancel()
	granted, err := client.Grant(call, int64(cfg.TTL/time.Second))
	if err != nil {
		return nil, cfg.unreachable("get a lease from etcd", errors.Join(err, ctx.Err()))
	}
	l := &lease{client: client, id: granted.ID, lost: make(chan struct{}), idle: make(chan *stream, 1)}
	l.renewed(sent, granted.TTL)
	background, end := context.WithCancel(context.Background())
	l.end = end
	l.group.Go(func() { l.keep(background, cfg.TTL) })
	return l, nil
}

// renewed takes over the answer to a request that was sent at an instant.
func (l *lease) renewed(sent time.Duration, seconds int64) {
	ttl := time.Duration(seconds) * time.Second
	until := int64(sent + ttl - ttl/driftShare)
	for old := l.until.Load(); old < until && !l.until.CompareAndSwap(old, until); old = l.until.Load() {
	}
}

// keep sends keep-alives until the lease is lost or ctx ends. It does not wait for an answer before
// it sends the next one: a member of etcd may hang, and the next one goes to another.
func (l *lease) keep(ctx context.Context, ttl time.Duration) {
	var sent sync.WaitGroup
	defer sent.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // and with it each stream
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		left := l.left()
		if left <= 0 {
			l.lose()
			return
		}
		timer.Reset(min(ttl/keepAlives, left))
		select {
		case <-ctx.Done():
			return
		case <-l.lost:
			return
		case <-timer.C:
		}
		sent.Go(func() { l.renew(ctx, ttl) })
	}
}

// stream takes keep-alives at one member of etcd.
type stream struct {
	etcdserverpb.Lease_LeaseKeepAliveClient // nil: not opened yet

	end context.CancelFunc
}

// renew sends one keep-alive, on a stream that waits for no answer. A user of etcd shows the
// password for each new stream, so streams are used again. An error is not told: the next
// keep-alive is sent all the same, and the lease is lost if none is answered.
func (l *lease) renew(ctx context.Context, timeout time.Duration) {
	var s *stream
	select {
	case s = <-l.idle:
	default:
		s = &stream{}
		ctx, s.end = context.WithCancel(ctx)
	}
	late := time.AfterFunc(timeout, s.end)
	err := l.exchange(ctx, s)
	if inTime := late.Stop(); err != nil || !inTime {
		s.end()
		return
	}
	select {
	case l.idle <- s:
	default: // another one waits already
		s.end()
	}
}

// exchange sends a keep-alive and takes its answer.
func (l *lease) exchange(ctx context.Context, s *stream) error {
	if s.Lease_LeaseKeepAliveClient == nil {
		opened, err := clientv3.RetryLeaseClient(l.client).LeaseKeepAlive(ctx)
		if err != nil {
			return err
		}
		s.Lease_LeaseKeepAliveClient = opened
	}
	sent := boottime()
	if err := s.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(l.id)}); err != nil {
		return err
	}
	answer, err := s.Recv()
	switch {
	case err != nil:
		return err
	case answer.GetTTL() <= 0: // etcd does not have it any more
		l.lose()
	default:
		l.renewed(sent, answer.GetTTL())
	}
	return nil
}

// left returns for how long the lease is certainly alive.
func (l *lease) left() time.Duration { return time.Duration(l.until.Load()) - boottime() }

// alive reports whether the lease is alive at this instant.
func (l *lease) alive() bool {
	select {
	case <-l.lost:
		return false
	default:
		return l.left() > 0
	}
}

func (l *lease) lose() { l.once.Do(func() { close(l.lost) }) }

// release gives the lease back, so that its keys are gone at once. A lease that is gone is no
// error.
func (l *lease) release(timeout time.Duration) error {
	l.end()
	l.group.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if _, err := l.client.Revoke(ctx, l.id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return &plimsoll.Error{
			Code: plimsoll.CodeUnavailable, Op: "give the lease back to etcd", Err: err,
			Msg: "another process leads when it has run out",
		}
	}
	return nil
}

// errLost is the reason for which a leader ends.
func errLost(epoch uint64) error {
	return plimsoll.Errorf(
		plimsoll.CodeStale, "epoch %d leads no longer: its lease in etcd has run out or was ended", epoch,
	)
}

// guarded returns ctx with an end when the lease is lost.
func (l *lease) guarded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	l.group.Go(func() {
		select {
		case <-l.lost:
			cancel(fmt.Errorf("the lease %x is lost", int64(l.id)))
		case <-stop:
		case <-ctx.Done():
		}
	})
	var once sync.Once
	return ctx, func() { once.Do(func() { close(stop) }); cancel(nil) }
}
