package replica

import (
	"bytes"
	"fmt"
	"iter"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ledOnBytes is the size of a batch that leads copies on, about: a larger difference is cut.
const ledOnBytes = 4 << 20

// Lineage is a copy of an earlier leader's state, with the recent batches that made it. A process
// that stood by makes it a part of its own log. So copies of earlier leaders are led on to this
// one, without a snapshot.
//
//	lineage := relay.Lineage() // Follower.Run has ended
//	lineage.LeadOn(tables.Snapshot(), changed, chunks)
//	source, err := NewSource(SourceConfig{Epoch: epoch, Lineage: lineage}, tables)
//
// The leader may have ended while it sent its last batches. Some gateways hold more of them than
// the copy does. Each of these batches was stored. So the store tells which records they changed,
// and LeadOn sets all of those. It sets the records that are not stored as well.
type Lineage struct {
	copied *Snapshot
	log    batchLog
}

// Copied returns the copy; nil for nil.
func (l *Lineage) Copied() *Snapshot {
	if l == nil {
		return nil
	}
	return l.copied
}

// Lineage returns the follower's copy and the relay's log of it; nil if there is none. It is called
// after Follower.Run has ended, and the relay is not used any more.
func (r *Relay) Lineage() *Lineage {
	s := r.source
	s.mu.Lock()
	defer s.mu.Unlock()
	copied := s.latest.Load()
	if copied == nil {
		return nil
	}
	return &Lineage{copied: copied, log: s.mu.log}
}

// derivedKinds are the kinds of which the store does not tell each change.
var derivedKinds = [wire.NumKinds]bool{
	wire.KindJobStatus: true, wire.KindNodeStatus: true, wire.KindQueueConfig: true, wire.KindQueueStatus: true,
	wire.KindArchive: true, wire.KindEventIDs: true, wire.KindEventSettings: true, wire.KindCounts: true,
}

// LeadOn leads the lineage on to the state with which a new leader begins, which has epoch as its
// epoch. changed yields the records that were stored since the copy or deleted, and chunks the
// events, by revision. It costs a look at each record, and the bytes of the difference.
func (l *Lineage) LeadOn(
	next *Snapshot, epoch uint64, changed iter.Seq2[wire.Kind, string], chunks iter.Seq2[uint64, wire.EventChunk],
) {
	for revision, chunk := range chunks {
		l.add(&wire.Batch{Epoch: l.copied.epoch, Revision: revision, Time: l.copied.time, Events: chunk})
	}
	final := wire.Batch{Epoch: epoch, Revision: next.revision, Time: next.time}
	size := 0
	set := func(kind wire.Kind, key string) {
		if size > ledOnBytes {
			l.add(&final)
			final.Mutations, size = nil, 0
		}
		m := wire.Mutation{Kind: kind, Key: key}
		if value, has := next.Get(kind, key); has {
			m.Value = value
			if kind == wire.KindTask {
				m.Node = next.NodeOf(key)
			}
		}
		final.Mutations = append(final.Mutations, m)
		size += wire.SizeMutation(&m)
	}
	for kind, key := range changed {
		if !derivedKinds[kind] {
			set(kind, key)
		}
	}
	for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
		differences(l.copied, next, kind, set)
	}
	l.add(&final)
	l.log.former = append(l.log.former, formerLeader{
		epoch: l.copied.epoch, leader: l.copied.leader, last: next.revision,
	})
}

func (l *Lineage) add(b *wire.Batch) {
	l.log.add(
		plimsoll.Version{Epoch: b.Epoch, Revision: b.Revision}, wire.AppendBatch(make([]byte, 0, batchSize(b)), b),
	)
}

// differences calls set for each key of a kind whose records differ in two snapshots. Of a derived
// kind it does so for each that may differ in a copy which is newer than the first one.
func differences(was, is *Snapshot, kind wire.Kind, set func(kind wire.Kind, key string)) {
	for key, value := range is.Scan(kind, "", "") {
		old, had := was.Get(kind, key)
		same := had && bytes.Equal(old, value)
		if !same || derivedKinds[kind] && !(kind == wire.KindJobStatus && settled(value)) {
			set(kind, key)
		}
	}
	for key := range was.Scan(kind, "", "") {
		if _, has := is.Get(kind, key); !has {
			set(kind, key)
		}
	}
}

// settled reports whether the status of a job does not change any more.
func settled(status []byte) bool {
	_, _, state, ok := wire.PeekJob(status)
	return ok && state.Ended()
}

// continueIn makes the lineage the log of a source that begins where it was led on to. Any other
// lineage, and nil, leave the source as it is.
func (l *Lineage) continueIn(s *Source) {
	if l == nil || l.log.version() != s.mu.log.base || l.copied.instance != s.latest.Load().instance {
		return
	}
	l.log.limit = s.mu.log.limit
	s.mu.log = l.log
}

// ledOn is the batches that lead a copy on from one leader to another. They count together: between
// them the copy may lack records of which it has the events.
type ledOn struct {
	from           plimsoll.Version // of the copy
	former, leader string           // name the processes of both leaders
	instance       string           // of the events of the new leader
	batches        []wire.Batch
	entries        []logEntry
}

// take takes a batch. epoch is that of the new leader.
func (l *ledOn) take(data []byte, epoch uint64) error {
	last := l.from
	if len(l.entries) > 0 {
		last = l.entries[len(l.entries)-1].version
	}
	batch, err := wire.DecodeBatch(data)
	if err != nil {
		return fmt.Errorf("decode the batch after %s: %w", last, err)
	}
	version := plimsoll.Version{Epoch: batch.Epoch, Revision: batch.Revision}
	if version.Before(last) || version == l.from || batch.Epoch > epoch {
		return plimsoll.Errorf(
			plimsoll.CodeStale, "the leader of epoch %d sent batch %s behind %s", epoch, version, last,
		)
	}
	detach(&batch)
	l.batches = append(l.batches, batch)
	l.entries = append(l.entries, logEntry{version, data})
	return nil
}

// extend appends the batches to the log of a relay, if that is at the version of the copy. The
// leaders between both are not known, and so copies of theirs cannot be led on.
func (l *ledOn) extend(log *batchLog) {
	if log.version() != l.from {
		return
	}
	last := l.entries[len(l.entries)-1].version
	for _, e := range l.entries {
		if e.version.Epoch != l.from.Epoch && e.version.Epoch != last.Epoch {
			return
		}
	}
	for _, e := range l.entries {
		log.add(e.version, e.data)
	}
	log.former = append(log.former, formerLeader{epoch: l.from.Epoch, leader: l.former, last: last.Revision})
}

// takeLedOn takes a batch that leads the copy on. After an error the next stream begins with a
// snapshot, so that it does not end in the same way.
func (m *mirror) takeLedOn(data []byte) error {
	err := m.led.take(data, m.epoch)
	if err != nil {
		m.tables, m.led = nil, nil
	}
	return err
}

// leadOn makes the copy that of the new leader. After an error the copy is spoilt, and the next
// stream begins with a snapshot.
func (m *mirror) leadOn(end *pb.ReplicateSnapshotEnd) (effect, error) {
	tables, led := m.tables, m.led
	m.tables, m.led = nil, nil
	to := plimsoll.Version{Epoch: m.epoch, Revision: end.Revision}
	if n := len(led.entries); n == 0 || led.entries[n-1].version != to {
		return effect{}, plimsoll.Errorf(
			plimsoll.CodeCorrupt, "the leader led the copy of %s on, and not to %s", led.from, to,
		)
	}
	for i := range led.batches {
		if err := m.history.leadOn(tables, &led.batches[i]); err != nil {
			return effect{}, fmt.Errorf("lead the copy on from %s to %s: %w", led.from, to, err)
		}
	}
	if tables.instance != led.instance {
		return effect{}, plimsoll.Errorf(plimsoll.CodeCorrupt, "the leader led the copy of %s on to events of %q, and has those of %q", led.from,
			tables.instance, led.instance)
	}
	led.batches = nil
	tables.leader = led.leader
	m.tables, m.phase = tables, phaseLive
	m.latest = m.tables.Snapshot()
	return effect{live: true, led: led, snapshot: m.latest, history: m.history.View()}, nil
}
