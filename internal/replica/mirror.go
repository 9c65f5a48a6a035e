package replica

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// mirror is the gateway's copy as a pure step function: it consumes the messages of a stream, one
// at a time, and returns the effect of each. Its tables outlive a stream.
type mirror struct {
	historyBytes int

	tables *Tables   // the copy; nil until the first snapshot is complete
	latest *Snapshot // newest snapshot of tables; nil while tables is nil
	// history holds the changes behind an earlier snapshot; nil while tables is nil. Invariant: it
	// is at the version of tables.
	history *History

	phase  phase    // of the current stream: phaseHello, phaseSnapshot or phaseLive
	epoch  uint64   // of the current stream's leader
	path   []string // ids of the relays between that leader and this gateway
	staged *Replacement
	refill bool // a snapshot could not replace the copy; the next one fills new tables

	changes []change // reused for each batch
}

// effect holds the consequences of one message. The owner publishes the history and then the
// snapshot, then signals the watchers, then releases the round or the call.
type effect struct {
	connected bool      // the leader has answered on this stream
	live      bool      // the copy can be read from now on; every watcher is signalled
	snapshot  *Snapshot // to publish; nil: none
	batch     []byte    // the encoded batch that made the snapshot; nil: none
	history   *Changes  // to publish before the snapshot; nil if snapshot is nil
	changes   []change  // whose watchers are to be signalled; valid until the next step
	ack       uint64    // id of the round to release; 0: none
	reply     *pb.Reply // answer to a call; nil: none
	closing   bool      // the leader hands leadership over
}

// open begins a new stream and returns its first message.
func (m *mirror) open(gateway string) *pb.ReplicateRequest {
	m.phase, m.staged = phaseHello, nil
	hello := &pb.ReplicateHello{Gateway: gateway}
	if m.latest != nil {
		hello.Epoch, hello.Revision = m.latest.epoch, m.latest.revision
	}
	return &pb.ReplicateRequest{Kind: &pb.ReplicateRequest_Hello{Hello: hello}}
}

// step consumes one message. After an error the stream must be ended; the copy is as it was before
// the message.
func (m *mirror) step(response *pb.ReplicateResponse) (effect, error) {
	switch kind := response.GetKind().(type) {
	case *pb.ReplicateResponse_Welcome:
		return m.welcome(kind.Welcome)
	case *pb.ReplicateResponse_Snapshot:
		return effect{}, m.part(kind.Snapshot)
	case *pb.ReplicateResponse_SnapshotEnd:
		return m.end(kind.SnapshotEnd)
	case *pb.ReplicateResponse_Batch:
		return m.batch(kind.Batch)
	case *pb.ReplicateResponse_SyncAck:
		return m.acknowledge(kind.SyncAck)
	case *pb.ReplicateResponse_Reply:
		return effect{reply: kind.Reply}, m.expect(phaseLive, "a reply")
	case *pb.ReplicateResponse_Closing:
		return effect{closing: true}, m.expect(phaseLive, "the announcement of its end")
	}
	return effect{}, plimsoll.Errorf(
		plimsoll.CodeCorrupt, "the leader sent a message that this gateway does not know; run the same version on both",
	)
}

func (m *mirror) expect(phase phase, what string) error {
	if m.phase != phase {
		return plimsoll.Errorf(plimsoll.CodeCorrupt, "the leader sent %s out of order", what)
	}
	return nil
}

func (m *mirror) welcome(w *pb.ReplicateWelcome) (effect, error) {
	if err := m.expect(phaseHello, "a welcome"); err != nil {
		return effect{}, err
	}
	if m.latest != nil {
		if w.Epoch < m.latest.epoch {
			return effect{}, plimsoll.Errorf(
				plimsoll.CodeStale, "the leader is of epoch %d, older than %d, which this gateway has seen", w.Epoch,
				m.latest.epoch,
			)
		}
		if w.Epoch == m.latest.epoch && w.LeaderUuid != m.latest.leader {
			return effect{}, plimsoll.Errorf(plimsoll.CodeStale,
				"two leaders of epoch %d; restart this gateway if the store was restored from a backup", w.Epoch)
		}
	}
	m.epoch, m.path = w.Epoch, w.Path
	if w.Resumed {
		if m.latest == nil || m.latest.epoch != w.Epoch {
			return effect{}, plimsoll.Errorf(
				plimsoll.CodeCorrupt, "the leader resumes a copy that this gateway does not have",
			)
		}
		m.phase = phaseLive
		return effect{connected: true, live: true}, nil
	}
	m.phase = phaseSnapshot
	was := m.tables
	if m.refill {
		was = nil
	}
	m.staged = Replace(was)
	staged := m.staged.Tables()
	staged.leader, staged.instance = w.LeaderUuid, cmp.Or(w.InstanceUuid, w.LeaderUuid)
	return effect{connected: true}, nil
}

func (m *mirror) part(part *pb.ReplicateSnapshot) error {
	if err := m.expect(phaseSnapshot, "a part of a snapshot"); err != nil {
		return err
	}
	puts := make([]wire.Mutation, 0, len(part.Records))
	for _, r := range part.Records {
		mutation := wire.Mutation{Kind: wire.Kind(r.Kind), Key: r.Key, Value: r.Value, Node: r.Node}
		if r.Kind <= 0 || r.Kind >= wire.NumKinds || r.Deleted {
			return plimsoll.Errorf(
				plimsoll.CodeCorrupt, "the snapshot has a record of an unknown kind %d; run the same version on both",
				r.Kind,
			)
		}
		if mutation.Value == nil {
			mutation.Value = []byte{}
		}
		puts = append(puts, mutation)
	}
	if err := m.staged.Put(puts); err != nil {
		return fmt.Errorf("take a part of the snapshot; run the same version on both: %w", err)
	}
	for _, e := range part.Events {
		m.staged.Tables().events.Append(e.FirstId, e.Count, e.Data)
	}
	return nil
}

func (m *mirror) end(end *pb.ReplicateSnapshotEnd) (effect, error) {
	if err := m.expect(phaseSnapshot, "the end of a snapshot"); err != nil {
		return effect{}, err
	}
	if m.latest != nil && m.latest.epoch == m.epoch && end.Revision < m.latest.revision {
		return effect{}, plimsoll.Errorf(plimsoll.CodeStale, "the leader's snapshot is of revision %d, older than %d of the same epoch, which this gateway has seen",
			end.Revision, m.latest.revision)
	}
	at := plimsoll.Version{Epoch: m.epoch, Revision: end.Revision}
	if err := m.staged.Complete(at, end.Time); err != nil {
		m.refill = true
		return effect{}, fmt.Errorf("take the snapshot: %w", err)
	}
	m.refill = false
	was := m.latest
	m.tables, m.staged, m.phase = m.staged.Tables(), nil, phaseLive
	m.latest = m.tables.Snapshot()
	if m.history == nil {
		m.history = NewHistory(m.historyBytes)
	}
	m.history.Follow(was, m.latest)
	return effect{live: true, snapshot: m.latest, history: m.history.View()}, nil
}

func (m *mirror) batch(data []byte) (effect, error) {
	if err := m.expect(phaseLive, "a batch"); err != nil {
		return effect{}, err
	}
	batch, err := wire.DecodeBatch(data)
	if err != nil {
		return effect{}, fmt.Errorf("decode the batch after revision %d: %w", m.latest.revision, err)
	}
	if batch.Epoch != m.epoch || batch.Revision <= m.latest.revision {
		return effect{}, plimsoll.Errorf(
			plimsoll.CodeStale, "the leader sent batch %d of epoch %d behind batch %d of epoch %d",
			batch.Revision, batch.Epoch, m.latest.revision, m.epoch,
		)
	}
	for i := range batch.Mutations {
		// A long-lived record must not keep the bytes of its whole batch in memory.
		mutation := &batch.Mutations[i]
		mutation.Key = strings.Clone(mutation.Key)
		mutation.Value = bytes.Clone(mutation.Value)
	}
	if m.changes, err = m.history.apply(m.tables, &batch, m.changes[:0]); err != nil {
		return effect{}, err
	}
	if batch.Events.Count > 0 || m.tables.instance != m.latest.instance {
		m.changes = append(m.changes, change{kind: KindEvents})
	}
	m.latest = m.tables.Snapshot()
	return effect{snapshot: m.latest, batch: data, history: m.history.View(), changes: m.changes}, nil
}

func (m *mirror) acknowledge(ack *pb.ReplicateSyncAck) (effect, error) {
	if err := m.expect(phaseLive, "an acknowledgement"); err != nil {
		return effect{}, err
	}
	if ack.Epoch != m.epoch || ack.Revision > m.latest.revision {
		return effect{}, plimsoll.Errorf(plimsoll.CodeCorrupt, "the leader acknowledged revision %d of epoch %d before it sent it; this copy is at %d of %d",
			ack.Revision, ack.Epoch, m.latest.revision, m.epoch)
	}
	return effect{ack: ack.Id}, nil
}
