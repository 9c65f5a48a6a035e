package coordinator

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// commit is a turn whose batch is on its way to the disk. batch is nil if the turn changed nothing.
type commit struct {
	turn    *turn
	batch   *wire.Batch
	pending store.Pending
}

// beginCommits encodes turns and begins to write them. The channel to finishCommits has room for every turn there is.
func (c *Coordinator) beginCommits(epoch uint64, l *loaded, made <-chan *turn, begun chan<- *commit) error {
	defer close(begun)
	enc := encoder{epoch: epoch, nextEvent: l.next}
	for t := range made {
		next := &commit{turn: t}
		if t.batch.Revision != 0 {
			next.batch = enc.encode(&t.batch)
			var err error
			if next.pending, err = c.store.Commit(next.batch); err != nil {
				return fmt.Errorf("commit revision %d: %w", next.batch.Revision, err)
			}
			if err := c.trimEvents(&l.events, next.batch); err != nil {
				return err
			}
		}
		begun <- next
	}
	return nil
}

// finishCommits waits for the disk, then publishes and replies, in the order of the turns.
func (c *Coordinator) finishCommits(source *replica.Source, begun <-chan *commit, fresh chan<- *turn) error {
	var failed error
	for next := range begun {
		if next.batch != nil {
			if err := next.pending.Wait(); err != nil && failed == nil {
				failed = fmt.Errorf("commit revision %d: %w", next.batch.Revision, err)
			}
			if failed != nil {
				continue // nothing after a failed commit may be seen
			}
			source.Publish(next.batch)
		}
		if failed != nil {
			continue
		}
		for i, respond := range next.turn.respond {
			if respond != nil {
				respond(encodeReply(&next.turn.batch.Replies[i], next.turn.revision))
			}
		}
		fresh <- next.turn
	}
	return failed
}

// trimEvents lets the store forget events that are older than the ring keeps.
func (c *Coordinator) trimEvents(events *eventLog, b *wire.Batch) error {
	if b.Events.Count == 0 {
		return nil
	}
	events.add(b.Revision, b.Events.Count)
	if keep, ok := events.trim(uint64(c.cfg.EventCapacity)); ok {
		if err := c.store.TrimEvents(keep); err != nil {
			return fmt.Errorf("trim the stored events: %w", err)
		}
	}
	return nil
}
