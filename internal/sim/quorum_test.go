package sim

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// quorum is the store's side of the store: what etcd is to package store/etcd. It executes one
// request after another. A session sends them, over a link that may lose, delay and repeat nothing.
type quorum struct {
	faults storeFaults

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when the place is free or has another holder
	stall   chan struct{} // closed when the disk goes on; nil: it is not stalled

	holder  *session  // who has the leader's place
	expires time.Time // of the holder's lease

	meta    meta
	records map[wire.Kind]map[string][]byte
	chunks  map[uint64]wire.EventChunk
	history []storedChange
	oldest  uint64 // changes of revisions up to it are forgotten

	events []wire.EventChunk // all that were ever stored, in their order, for the checks
}

// meta is the store's own record. Each transaction compares it and writes another one.
type meta struct {
	serial   uint64 // of the transaction
	epoch    uint64
	revision uint64
	time     int64
	barrier  bool // it stores nothing
}

type storedChange struct {
	revision uint64
	kind     wire.Kind
	key      string
}

// storeFaults are faults that are built into the store on purpose (mutants).
type storeFaults struct {
	noFencing  bool // a transaction compares nothing
	noLease    bool // a leader never asks its lease
	sendsAgain bool // a transaction without an answer is sent again, and does not compare the one before
	reorders   bool // many transactions are under way at a time, and do not compare the one before
}

func newQuorum(faults storeFaults) *quorum {
	q := &quorum{
		faults: faults, changed: make(chan struct{}), chunks: map[uint64]wire.EventChunk{},
		records: map[wire.Kind]map[string][]byte{},
	}
	for kind := range wire.Kind(wire.NumKinds) {
		q.records[kind] = map[string][]byte{}
	}
	return q
}

// held reports whether a session has the place. The caller holds mu.
func (q *quorum) held(s *session) bool {
	q.expire()
	return q.holder == s
}

// expire frees the place if its lease has ended. The caller holds mu.
func (q *quorum) expire() {
	if q.holder != nil && !time.Now().Before(q.expires) {
		q.free()
	}
}

func (q *quorum) free() {
	q.holder = nil
	close(q.changed)
	q.changed = make(chan struct{})
}

// waitDisk waits while the disk is stalled.
func (q *quorum) waitDisk(ctx context.Context) {
	for {
		q.mu.Lock()
		stall := q.stall
		q.mu.Unlock()
		if stall == nil {
			return
		}
		select {
		case <-stall:
		case <-ctx.Done():
			return
		}
	}
}

// stalls stalls the disk until the returned function is called.
func (q *quorum) stalls() (goOn func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stall = make(chan struct{})
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		close(q.stall)
		q.stall = nil
	}
}

// campaign is the answer to a session that wants the place: its own record, or the holder.
type campaign struct {
	won     bool
	meta    meta
	holder  string        // address
	changed chan struct{} // closed when the place is free
	ends    time.Time     // of the holder's lease
}

// campaign gives the place to a session if it is free, with a higher epoch.
func (q *quorum) campaign(s *session, ttl time.Duration) campaign {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire()
	if q.holder != nil && q.holder != s {
		return campaign{holder: q.holder.address, changed: q.changed, ends: q.expires}
	}
	q.holder, q.expires = s, time.Now().Add(ttl)
	q.meta.serial++
	q.meta.epoch++
	return campaign{won: true, meta: q.meta}
}

// renew renews the lease of a session.
func (q *quorum) renew(s *session, ttl time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.held(s) {
		return false
	}
	q.expires = time.Now().Add(ttl)
	return true
}

// resign gives up the place of a session.
func (q *quorum) resign(s *session) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.held(s) {
		return false
	}
	q.free()
	return true
}

// finding is the answer to a transaction: what it compared, as it found it.
type finding struct {
	applied bool
	holds   bool // the session has the place
	meta    meta
}

// transact executes a transaction: if the session has the place and the store's own record is the
// one before, it stores the batches and the record after.
func (q *quorum) transact(s *session, before, after meta, group []*item) finding {
	q.mu.Lock()
	defer q.mu.Unlock()
	holds, follows := q.held(s), q.meta == before
	if q.faults.reorders || q.faults.sendsAgain {
		follows = true
	}
	if !(holds && follows) && !q.faults.noFencing {
		return finding{false, holds, q.meta}
	}
	for _, i := range group {
		q.store(i)
	}
	q.meta = after
	return finding{true, holds, q.meta}
}

// store stores a batch or a trim. The caller holds mu.
func (q *quorum) store(i *item) {
	if i.batch == nil {
		maps.DeleteFunc(q.chunks, func(revision uint64, _ wire.EventChunk) bool { return revision < i.trim })
		return
	}
	b := i.batch
	for n := range b.Mutations {
		switch m := &b.Mutations[n]; {
		case m.Ephemeral:
			continue
		case m.Value == nil:
			delete(q.records[m.Kind], m.Key)
		default:
			q.records[m.Kind][m.Key] = bytes.Clone(m.Value)
		}
		q.history = append(q.history, storedChange{b.Revision, b.Mutations[n].Kind, b.Mutations[n].Key})
	}
	if b.Events.Count > 0 {
		chunk := b.Events
		chunk.Data = bytes.Clone(chunk.Data)
		q.chunks[b.Revision] = chunk
		q.events = append(q.events, chunk)
	}
}

// content is the state at one instant.
type content struct {
	meta    meta
	records map[wire.Kind]map[string][]byte
	chunks  map[uint64]wire.EventChunk
	history []storedChange
	oldest  uint64
}

func (q *quorum) read() content {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := content{
		meta: q.meta, records: map[wire.Kind]map[string][]byte{}, chunks: maps.Clone(q.chunks), oldest: q.oldest,
	}
	for kind, records := range q.records {
		c.records[kind] = maps.Clone(records)
	}
	c.history = slices.Clone(q.history)
	return c
}

// restore puts an earlier content back, as a restore from a backup does. The epoch stays above all.
func (q *quorum) restore(c content) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.records, q.chunks, q.history, q.oldest = c.records, c.chunks, nil, c.meta.revision
	c.meta.serial, c.meta.epoch = q.meta.serial+1, q.meta.epoch
	q.meta = c.meta
}

// forget makes the store forget its changes, as a compaction does.
func (q *quorum) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.history, q.oldest = nil, q.meta.revision
}
