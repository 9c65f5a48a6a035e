package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Leader is the process that leads, or is about to.
type Leader struct {
	Address string // its Config.Advertise
	// Term is higher for each later leader; 0: nobody leads. A process that leads again has
	// another one.
	Term int64
}

// Leaders tells who leads, to those that call the leader. FindLeaders opens it. Its methods may be
// called from any goroutine, but nothing after Close.
//
//	leaders, err := etcd.FindLeaders(ctx, cfg)
//	...
//	defer leaders.Close()
//	leader, err := leaders.Leader(ctx)
type Leaders struct {
	cfg     Config
	client  *clientv3.Client
	members *members
}

// FindLeaders connects to etcd. It uses neither TTL nor Advertise.
func FindLeaders(ctx context.Context, cfg Config) (*Leaders, error) {
	cfg = cfg.withDefaults()
	client, err := dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	members, err := watchMembers(cfg, client, probePauseIdle)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &Leaders{cfg: cfg, client: client, members: members}, nil
}

// Leader returns the present leader, as etcd knows it at an instant after the call began.
func (l *Leaders) Leader(ctx context.Context) (Leader, error) {
	first, _, err := firstInLine(ctx, l.cfg, l.client)
	return first, err
}

// Close ends the connections.
func (l *Leaders) Close() error {
	l.members.close()
	if err := l.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close the connection to etcd: %w", err)
	}
	return nil
}

// firstInLine reads who is the first, and at which revision.
func firstInLine(ctx context.Context, cfg Config, client *clientv3.Client) (Leader, int64, error) {
	call, cancel := context.WithTimeout(ctx, cfg.callTimeout())
	defer cancel()
	got, err := client.Get(call, cfg.Prefix+leadersPrefix, clientv3.WithFirstCreate()...)
	if err != nil {
		return Leader{}, 0, cfg.unreachable("ask etcd who leads", errors.Join(err, ctx.Err()))
	}
	if len(got.Kvs) == 0 {
		return Leader{}, got.Header.Revision, nil
	}
	return Leader{Address: string(got.Kvs[0].Value), Term: got.Kvs[0].CreateRevision}, got.Header.Revision, nil
}

// followLine calls f with the first in the line, now and after each change of the line, until f
// returns false. It asks once in a TTL at least, of another member each time. It returns an error
// if ctx ends or etcd does not answer.
func followLine(ctx context.Context, cfg Config, client *clientv3.Client, f func(Leader) bool) error {
	for {
		first, revision, err := firstInLine(ctx, cfg, client)
		if err != nil {
			return err
		}
		if !f(first) {
			return nil
		}
		// A member whose disk hangs keeps the connection and the watch alive, and tells nothing.
		watch, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), cfg.TTL)
		changes := client.Watch(watch, cfg.Prefix+leadersPrefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1))
		answer := <-changes
		silent := watch.Err() != nil
		cancel()
		if len(answer.Events) == 0 && !silent { // the watch has failed
			pause(ctx, retryPause)
		}
	}
}
