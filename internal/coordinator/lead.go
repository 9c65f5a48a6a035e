package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
)

// pauses are the pauses between terms.
type pauses struct {
	standby  time.Duration    // pause between two attempts of a standby to open the store
	deposed  time.Duration    // longest pause of a leader that was deposed; it is random
	handover time.Duration    // pause of a leader that was asked to step down, so that another one leads
	failure  plimsoll.Backoff // pauses after terms that failed; half of each is random
	stable   time.Duration    // a term that led for so long starts the pauses anew
}

var defaultPauses = pauses{
	standby: 500 * time.Millisecond, deposed: 100 * time.Millisecond, handover: 3 * time.Second,
	failure: plimsoll.Backoff{First: 2 * time.Second, Longest: 30 * time.Second},
	stable:  time.Minute,
}

// leadLoop makes term after term, until ctx ends or one fails for good.
func (c *Coordinator) leadLoop(ctx context.Context) error {
	defer c.copied.take()
	for failures := 0; ; {
		led, err := c.lead(ctx)
		switch {
		case ctx.Err() != nil:
			if errors.Is(err, ctx.Err()) || errors.Is(err, errDeposed) || errors.Is(err, errSteppedDown) {
				return nil // ctx ended before the term led, or another process leads already
			}
			return err
		case errors.Is(err, errDeposed):
			failures = 0
			c.status.deposed()
			c.cfg.Events.Deposed(c.lastEpoch, err)
			sleep(ctx, time.Duration(rand.Int64N(int64(c.pauses.deposed))))
			continue
		case errors.Is(err, errSteppedDown):
			failures = 0
			c.status.steppedDown()
			c.cfg.Events.SteppedDown(c.status.get().epoch)
			c.copied.follow(ctx, "")
			sleep(ctx, c.pauses.handover)
			continue
		case led == 0 && plimsoll.CodeOf(err) == plimsoll.CodeAlreadyRunning:
			c.status.setQueuesReplaced() // as in waits
			if c.status.standby(err) {
				c.cfg.Events.Standby(err)
			}
			c.copied.follow(ctx, "")
			sleep(ctx, c.pauses.standby)
			continue
		case noSpace(err) && c.cfg.OpenReadOnly != nil:
			failures = 0
			c.metrics.depth.Set(0)
			c.status.failed(err, 0, time.Now())
			if err := c.serveReadOnly(ctx, err); err != nil {
				return err
			}
			continue
		case led == 0 && permanent(err):
			return err
		case led >= c.pauses.stable:
			failures = 0
		}
		failures++
		pause := c.pauses.failure.Jittered(failures, rand.Int64N)
		c.status.failed(err, pause, time.Now())
		c.cfg.Events.Failed(err, pause)
		sleep(ctx, pause)
	}
}

// permanent reports whether an error of opening or loading a store stays until the store or the
// configuration is changed.
func permanent(err error) bool {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeCorrupt, plimsoll.CodeConflict, plimsoll.CodeDenied, plimsoll.CodeInvalid:
		return true
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// lead runs one term. It returns for how long the term led, and why it ended: nil if ctx ended. led
// is 0 if the term could not begin.
func (c *Coordinator) lead(ctx context.Context) (led time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	st, err := c.openStore(ctx)
	if err != nil {
		return 0, err
	}
	defer func() {
		if closeErr := st.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("close the store: %w", closeErr))
		}
	}()
	t, err := c.begin(ctx, st)
	if err != nil {
		return 0, err
	}
	c.status.leading(t)
	c.cfg.Events.Leading(t.epoch, t.revision, c.cfg.Listen)
	began := time.Now()
	err = t.run(ctx)
	t.reads.end()
	c.status.starting()
	c.metrics.depth.Set(0)
	return max(time.Since(began), 1), err
}

// begin waits until it is the leader, and loads the store into a new term. With errDeposed it was
// the leader, but may not be any more: the process may have stood still while it loaded.
func (c *Coordinator) begin(ctx context.Context, st store.Store) (*term, error) {
	c.status.joining()
	waits := func(leader string) { c.waits(ctx, leader) }
	epoch, err := st.Lead(ctx, waits)
	for err == nil && epoch <= c.lastEpoch { // a read-only term could not store its epoch
		epoch, err = st.Lead(ctx, waits)
	}
	if err != nil {
		return nil, fmt.Errorf("become the leader: %w", err)
	}
	if c.lastEpoch > 0 && epoch > c.lastEpoch+1 {
		c.status.setQueuesReplaced() // another process may have led; its tree is newer than this one's file
	}
	c.status.loading()
	t, err := c.takeOver(ctx, st, epoch)
	if err == nil {
		err = st.Confirm(ctx)
	}
	if err != nil {
		return nil, ended(st, err)
	}
	return t, nil
}

// takeOver makes the term of a process that has become the leader. A fault of its copy alone does
// not keep it from leading: it loads everything then.
func (c *Coordinator) takeOver(ctx context.Context, st store.Store, epoch uint64) (*term, error) {
	whole := stored{read: st.Load}
	from, warm := afterCopy(ctx, st, c.copied.take(), epoch)
	if !warm {
		from = whole
	}
	t, err := c.enter(ctx, st, from, epoch)
	if err != nil && warm && ctx.Err() == nil && st.Confirm(ctx) == nil {
		c.cfg.Events.CopyUnused(err)
		t, err = c.enter(ctx, st, whole, epoch)
	}
	if err != nil {
		return nil, err
	}
	if c.cfg.Archive.Open != nil {
		t.archiver = newArchiver(&c.cfg, t)
	}
	t.watch = newDiskWatch(&c.cfg, t.inbox)
	if err := t.watch.first(t.engine.State()); err != nil {
		return nil, err
	}
	if c.cfg.ReplaceQueues && !c.status.queuesReplaced() {
		t.inbox.push(c.replaceQueues(&c.cfg.Queues, c.replacedQueues))
	}
	return t, nil
}

// waits notes that another process leads, at an address that may not be known.
func (c *Coordinator) waits(ctx context.Context, leader string) {
	c.copied.follow(ctx, leader)
	c.status.setQueuesReplaced() // the leader's tree is newer than this process's file
	err := plimsoll.Errorf(plimsoll.CodeAlreadyRunning, "another coordinator leads")
	if leader != "" {
		err = plimsoll.Errorf(plimsoll.CodeAlreadyRunning, "the coordinator at %s leads", leader)
	}
	if c.status.waits(leader) {
		c.cfg.Events.Standby(err)
	}
}

// enter loads the store into a new term with an epoch.
func (c *Coordinator) enter(ctx context.Context, st store.Store, from stored, epoch uint64) (*term, error) {
	c.lastEpoch = max(c.lastEpoch, epoch)
	l, err := c.load(ctx, st.Limits(), from, epoch)
	if err != nil {
		return nil, err
	}
	t := &term{
		epoch: epoch, now: newTermClock(c.cfg.Now, sinceNow(), l.time).now,
		store: st, metrics: c.metrics, commands: c.commands, proofs: newProofs(st.Confirm),
		address: c.cfg.Advertise, began: c.cfg.Now(), leaving: make(chan struct{}, 1),
		inbox:    newInbox(c.cfg.MaxInbox, c.cfg.MaxInboxBytes),
		revision: l.revision, events: l.events, nextEvent: l.nextEvent, ids: l.ids, newIDs: l.newIDs,
		eventSettings: l.state.EventSettings(), historians: l.historians,
		unread: l.tables.Snapshot().Events().Unread(),
		counts: l.counts, queuesRefused: c.cfg.Events.QueueConfigRefused,
	}
	t.requests = newRequestStore(&t.eventSettings, c.metrics)
	t.workers, t.questions = c.cfg.Workers, newQuestions(c.cfg.MaxQuestions, t.inbox.notify, c.metrics)
	t.source, err = replica.NewSource(replica.SourceConfig{
		Epoch: epoch, Leader: uuid.NewString(), InstanceUUID: l.ids.Instance,
		Confirm: st.Confirm, Version: c.cfg.Version, Admit: t.inbox.admit,
		Events: replica.SourceEvents{
			Connected: t.inbox.gatewayConnected, Disconnected: t.inbox.gatewayDisconnected,
			Unread:  c.gatewayUnread,
			Refused: func(error) { t.metrics.messagesRefused.Inc() },
		},
	}, l.tables)
	if err != nil {
		return nil, fmt.Errorf("make the replication source: %w", err)
	}
	t.engine = engine.New(engine.Config{Seed: c.cfg.Seed}, l.state, l.revision, l.time)
	t.totals.set(l.state.Totals())
	_, t.replication = replica.NewHandler(t.source, t.exec)
	return t, nil
}

// gatewayUnread counts and reports a gateway that was cut off.
func (c *Coordinator) gatewayUnread(gateway string) {
	c.metrics.cut.Inc()
	c.cfg.Events.GatewayUnread(gateway)
}
