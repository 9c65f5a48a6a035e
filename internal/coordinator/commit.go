package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// commit is a turn whose batch is being written. batch is nil if the turn changed nothing; then
// pending is a proof of leadership if the turn has replies, and nil otherwise.
type commit struct {
	turn    *turn
	batch   *wire.Batch
	pending store.Pending
	began   time.Time
}

// waitFor returns the thing for which a turn's replies wait, for errors.
func (c *commit) waitFor() string {
	if c.batch == nil {
		return "answer a turn that changed nothing"
	}
	return fmt.Sprintf("commit revision %d", c.batch.Revision)
}

// beginCommits encodes turns and begins their commits, until made is closed. Sending to begun never
// blocks: the channel has room for all turns.
func (t *term) beginCommits(made <-chan *turn, begun chan<- *commit) error {
	enc := encoder{epoch: t.epoch, nextEvent: t.nextEvent, ids: t.ids, newIDs: t.newIDs, counts: t.counts}
	for m := range made {
		next := &commit{turn: m}
		if m.batch.Revision != 0 {
			next.batch, next.began = enc.encode(&m.batch), time.Now()
			counts, events := t.metrics.events, next.batch.Events.Count
			counts.created.Add(events)
			var err error
			if next.pending, err = t.store.Commit(next.batch); err != nil {
				counts.notChanneled.Add(events)
				return fmt.Errorf("commit revision %d: %w", next.batch.Revision, err)
			}
			counts.channeled.Add(events)
		} else if len(m.requests) > 0 {
			next.pending = t.proofs.begin()
		}
		news := newsOf(&m.batch.Changes)
		begun <- next // from here on the turn may be used again
		if next.batch != nil {
			if err := t.trimEvents(next.batch, &news, enc.ids.Instance); err != nil {
				return err
			}
		}
	}
	return nil
}

// finishCommits waits for each commit, then publishes and replies, in the order of the turns. At
// the first failure it calls lose, which ends the term. After that it only waits for the rest.
func (t *term) finishCommits(begun <-chan *commit, fresh chan<- *turn, lose context.CancelFunc) error {
	var failed error
	for next := range begun {
		if next.pending != nil {
			err := next.pending.Wait()
			t.metrics.waited(next, err)
			if err != nil && failed == nil {
				failed = fmt.Errorf("%s: %w", next.waitFor(), err)
				lose()
			}
		}
		if failed != nil {
			continue // nothing after a failed commit may be seen, and no reply to an empty turn either
		}
		if next.batch != nil {
			t.publish(next.batch)
			t.archiver.note(&next.turn.batch)
			t.requests.take(&next.turn.batch)
		}
		if next.turn.copy != nil {
			t.questions.published(next.turn.copy, t.source.Snapshot())
		}
		t.totals.set(next.turn.batch.Totals)
		t.metrics.finished(next)
		for i, asked := range next.turn.requests {
			if reply := &next.turn.batch.Replies[i]; asked.respond != nil {
				t.metrics.answered(asked.command.name, reply.Err)
				asked.respond(encodeReply(asked.command, reply, next.turn.revision))
			}
		}
		t.metrics.depth.Dec()
		fresh <- next.turn
	}
	return failed
}

// publish makes a batch visible, and counts the events that went although a historian lacked them.
func (t *term) publish(b *wire.Batch) {
	t.source.Publish(replicated(b))
	unread := t.source.Snapshot().Events().Unread()
	t.metrics.events.unread.Add(unread - t.unread)
	t.unread = unread
}

// eventNews is the part of a turn that trimEvents needs.
type eventNews struct {
	settings plimsoll.EventSettings
	set      bool // the settings have changed
	anew     bool // the events of before are of another InstanceUUID
	held     bool // a historian was registered, has come further, or is gone
}

func newsOf(c *state.Changes) eventNews {
	news := eventNews{
		set: c.EventSettings != nil, anew: c.EventsAnew, held: len(c.Historians)+len(c.DeletedHistorians) > 0,
	}
	if news.set {
		news.settings = *c.EventSettings
	}
	return news
}

// trimEvents lets the store delete events that the ring does not show any more. instance is the one
// of the newest events.
func (t *term) trimEvents(b *wire.Batch, news *eventNews, instance string) error {
	if news.set {
		t.eventSettings = news.settings
	}
	if news.held {
		if err := t.historians.Follow(b.Mutations); err != nil {
			return fmt.Errorf("note the historians: %w", err)
		}
	}
	if b.Events.Count == 0 && !news.set && !news.held {
		return nil
	}
	had := t.events.total.count
	if news.anew {
		t.events = eventLog{}
	}
	if b.Events.Count > 0 {
		t.events.add(b.Revision, &b.Events)
		had += b.Events.Count
	}
	keep, ok := t.events.trim(&t.eventSettings, t.historians.LackedFrom(instance), b.Time)
	if news.anew {
		keep, ok = max(keep, b.Revision), true
	}
	if !ok {
		return nil
	}
	if err := t.store.TrimEvents(keep); err != nil {
		return fmt.Errorf("trim the stored events: %w", err)
	}
	t.metrics.events.collected.Add(had - t.events.total.count)
	return nil
}
