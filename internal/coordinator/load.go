package coordinator

import (
	"context"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// loaded is the result of a load, from which a new leader starts.
type loaded struct {
	state     *state.State
	tables    *replica.Tables
	revision  uint64
	time      int64
	events    eventLog
	nextEvent uint64 // id of the next event
	instance  string // InstanceUUID of the events; empty: the leader makes a new one
}

// eventIDsBytes is the most that the record of KindEventIDs takes. A batch has room for it beside
// what the engine may put in.
const eventIDsBytes = 64

// load reads the store into a working state and into the replicated tables. Events keep their ids,
// and the InstanceUUID, if all of them follow each other. If some are missing, those in front of
// the gap are left out, and the InstanceUUID is a new one.
func (c *Coordinator) load(ctx context.Context, st store.Store, epoch uint64) (*loaded, error) {
	l := &loaded{tables: replica.NewTables(c.cfg.EventCapacity)}
	cfg := c.cfg.State
	cfg.Archive = c.cfg.Archive.Open != nil
	if cfg.Limits = state.Limits(st.Limits()); cfg.Limits.Ops > 0 {
		cfg.Limits.Ops--
	}
	if cfg.Limits.Bytes > 0 {
		cfg.Limits.Bytes -= eventIDsBytes
	}
	loader := state.NewLoader(cfg, c.cfg.Queues)
	revision, last, err := st.Load(ctx, func(kind wire.Kind, key string, value []byte) (err error) {
		if kind == wire.KindEventIDs {
			l.instance, err = wire.DecodeEventIDs(value)
			return err
		}
		return loadRecord(loader, kind, key, value)
	}, func(revision uint64, chunk wire.EventChunk) error {
		if len(l.events.chunks) > 0 && chunk.FirstID != l.nextEvent {
			l.instance = ""
		}
		l.nextEvent, chunk.Data = chunk.FirstID, append([]byte(nil), chunk.Data...)
		if err := l.tables.Apply(&wire.Batch{Epoch: epoch, Revision: revision, Events: chunk}); err != nil {
			return err
		}
		l.nextEvent += chunk.Count
		l.events.add(revision, chunk.Count)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load the active state: %w", err)
	}
	if len(l.events.chunks) == 0 {
		l.instance = "" // all events are lost, or there were none
	}
	l.revision, l.time = revision, max(last, c.cfg.Now())
	if l.state, err = loader.End(l.time); err != nil {
		return nil, fmt.Errorf("load the active state: %w", err)
	}
	l.state.SetEpoch(epoch)
	first := engine.Batch{Revision: revision, Time: l.time}
	l.state.All(&first.Changes)
	enc := encoder{epoch: epoch}
	if err := l.tables.Apply(enc.encode(&first)); err != nil {
		return nil, fmt.Errorf("load the active state: %w", err)
	}
	return l, nil
}

func loadRecord(l *state.Loader, kind wire.Kind, key string, value []byte) error {
	var err error
	switch kind {
	case wire.KindJobSpec:
		err = decoded(wire.DecodeJobSpec, value, l.JobSpec)
	case wire.KindJobStatus:
		err = decoded(wire.DecodeJobStatus, value, l.JobStatus)
	case wire.KindTask:
		err = decoded(wire.DecodeTask, value, l.Task)
	case wire.KindNode:
		err = decoded(wire.DecodeNode, value, l.Node)
	case wire.KindPolicy:
		err = decoded(wire.DecodePolicy, value, l.Policy)
	case wire.KindOutcome:
		err = decoded(func(data []byte) (state.Outcome, error) { return decodeOutcome(key, data) }, value, l.Outcome)
	case wire.KindArchive:
		err = decoded(wire.DecodeArchiveStatus, value, l.Archive)
	case wire.KindQueueConfig:
		err = decoded(wire.DecodeQueueConfig, value, l.QueueConfig)
	default:
		return plimsoll.Errorf(
			plimsoll.CodeCorrupt, "the store holds a record of kind %d, which this version does not know", kind,
		)
	}
	if err != nil {
		return plimsoll.Errorf(plimsoll.CodeCorrupt, "the record %q of kind %d cannot be read: %v", key, kind, err)
	}
	return nil
}

func decoded[T any](decode func([]byte) (T, error), value []byte, take func(T)) error {
	v, err := decode(value)
	if err == nil {
		take(v)
	}
	return err
}

// eventLog counts the events of each stored chunk, so that old chunks can be deleted.
type eventLog struct {
	chunks []eventChunk
	total  uint64
}

type eventChunk struct{ revision, count uint64 }

func (l *eventLog) add(revision, count uint64) {
	l.chunks = append(l.chunks, eventChunk{revision, count})
	l.total += count
}

// trim drops the oldest chunks as long as at least capacity events are left. It returns the
// revision below which the store may delete chunks too. ok is false while fewer than a quarter of
// capacity could be dropped.
func (l *eventLog) trim(capacity uint64) (keep uint64, ok bool) {
	if l.total < capacity+capacity/4 {
		return 0, false
	}
	n := 0
	for l.total-l.chunks[n].count >= capacity {
		l.total -= l.chunks[n].count
		n++
	}
	l.chunks = append([]eventChunk(nil), l.chunks[n:]...)
	if len(l.chunks) == 0 {
		return 0, false
	}
	return l.chunks[0].revision, n > 0
}
