package coordinator

import (
	"context"
	"fmt"

	"github.com/google/uuid"

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
	nextEvent uint64        // id of the next event
	ids       wire.EventIDs // what the ids of the events count
	newIDs    bool          // the store does not have ids yet
	counts    counter

	historians replica.Historians
}

// A batch has room for the records of KindEventIDs and KindCounts beside what the engine may put
// in.
const (
	ownRecords    = 2
	eventIDsBytes = 64 // the most that the record of KindEventIDs takes
)

// load reads the store into a working state and into the replicated tables. Events keep their ids,
// and the InstanceUUID, if all of them follow each other. If some are missing, those in front of
// the gap are left out, and the InstanceUUID is a new one. Events of an earlier InstanceUUID, which
// await their deletion, are left out too.
//
// The tables of a copy become the leader's: records that the state has too need no new memory and
// no new index.
func (c *Coordinator) load(ctx context.Context, limits store.Limits, from stored, epoch uint64) (*loaded, error) {
	records := replica.Replace(from.copied)
	l := &loaded{tables: records.Tables(), historians: replica.Historians{}}
	cfg := c.cfg.State
	cfg.Archive = c.cfg.Archive.Open != nil
	if cfg.Limits = state.Limits(limits); cfg.Limits.Ops > 0 {
		cfg.Limits.Ops -= ownRecords
	}
	if cfg.Limits.Bytes > 0 {
		cfg.Limits.Bytes -= eventIDsBytes + wire.CountsBytes
	}
	loader := state.NewLoader(cfg, c.cfg.Queues)
	revision, last, err := from.read(ctx, func(kind wire.Kind, key string, value []byte) (err error) {
		switch kind {
		case wire.KindEventIDs:
			l.ids, err = wire.DecodeEventIDs(value)
			return err
		case wire.KindCounts:
			l.counts.samples, err = wire.DecodeCounts(value)
			return err
		case wire.KindEventSettings: // records come before events, for which the ring must have room
			settings, err := wire.DecodeEventSettings(value)
			if err != nil {
				return err
			}
			l.tables.BoundEvents(&settings)
		case wire.KindHistorian: // the same; the ids are known, as records come in the order of their kinds
			if err := l.historians.Follow([]wire.Mutation{{Kind: kind, Key: key, Value: value}}); err != nil {
				return fmt.Errorf("read a registered historian: %w", err)
			}
			l.tables.HoldEvents(l.historians.LackedFrom(l.ids.Instance))
		}
		return loadRecord(loader, kind, key, value)
	}, func(revision uint64, chunk wire.EventChunk) error { return l.addEvents(epoch, revision, chunk) })
	if err != nil {
		return nil, fmt.Errorf("load the active state: %w", err)
	}
	if len(l.events.runs) == 0 { // all events are lost, or there were none
		l.ids.Instance, l.nextEvent = "", l.ids.First
	}
	if l.newIDs = l.ids.Instance == ""; l.newIDs {
		l.ids.Instance = uuid.NewString()
	}
	l.revision, l.time = revision, max(last, c.cfg.Now())
	if l.state, err = loader.End(l.time); err != nil {
		return nil, fmt.Errorf("load the active state: %w", err)
	}
	l.state.SetEpoch(epoch)
	if err := l.fill(records, epoch); err != nil {
		return nil, fmt.Errorf("load the active state: %w", err)
	}
	totals := l.state.Totals()
	l.counts.begin(&totals, last)
	return l, nil
}

// fill gives the tables the records of the state.
func (l *loaded) fill(records *replica.Replacement, epoch uint64) error {
	part := engine.Batch{Revision: l.revision, Time: l.time}
	enc := encoder{epoch: epoch, ids: l.ids}
	err := l.state.All(&part.Changes, func() error { return records.Put(enc.encode(&part).Mutations) })
	if err != nil {
		return err
	}
	enc.newIDs = true // with the historians, which hold events of these ids back
	rest := enc.encode(&part).Mutations
	if data := wire.AppendCounts(nil, l.counts.samples); len(data) > 0 {
		rest = append(rest, wire.Mutation{Kind: wire.KindCounts, Value: data})
	}
	if err := records.Put(rest); err != nil {
		return err
	}
	return records.Complete(plimsoll.Version{Epoch: epoch, Revision: l.revision}, l.time)
}

// addEvents takes over a stored chunk of events.
func (l *loaded) addEvents(epoch, revision uint64, chunk wire.EventChunk) error {
	if chunk.FirstID < l.ids.First {
		return nil // of an earlier instance
	}
	if len(l.events.runs) > 0 && chunk.FirstID != l.nextEvent {
		l.ids = wire.EventIDs{First: chunk.FirstID}
	}
	l.nextEvent, chunk.Data = chunk.FirstID, append([]byte(nil), chunk.Data...)
	if err := l.tables.Apply(&wire.Batch{Epoch: epoch, Revision: revision, Events: chunk}); err != nil {
		return fmt.Errorf("load the events of revision %d: %w", revision, err)
	}
	l.nextEvent += chunk.Count
	l.events.add(revision, &chunk)
	return nil
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
	case wire.KindQueuePast:
		decode := func(data []byte) (state.QueuePast, error) { return decodeQueuePast(key, data) }
		err = decoded(decode, value, l.QueuePast)
	case wire.KindArchive:
		err = decoded(wire.DecodeArchiveStatus, value, l.Archive)
	case wire.KindEventSettings:
		err = decoded(wire.DecodeEventSettings, value, l.EventSettings)
	case wire.KindHistorian:
		err = decoded(wire.DecodeHistorian, value, l.Historian)
	case wire.KindQueueConfig:
		err = decoded(wire.DecodeQueueConfig, value, l.QueueConfig)
	case wire.KindImport:
		return plimsoll.Errorf(plimsoll.CodeCorrupt,
			"an import into the store did not end; run plimsoll store import again with the same file")
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
