package replica

import (
	"fmt"
	"iter"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Snapshot is an immutable view of all records at one revision. Any number of goroutines may read
// it without a lock, for as long as they like. Callers must not change the bytes that it returns.
type Snapshot struct {
	epoch    uint64
	revision uint64
	time     int64
	leader   string
	instance string
	kinds    [wire.NumKinds]*informer.Snapshot[record]
	events   ring.View
	bytes    int64
	written  int64
	lacking  int
	origin   *origin
}

// origin tells the snapshots of one Tables from those of others.
type origin struct{ _ byte }

// Epoch is the epoch of the leader that made the last batch.
func (s *Snapshot) Epoch() uint64 { return s.epoch }

// Revision is the revision of the last batch that the snapshot holds.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Version is the epoch and revision of the last batch.
func (s *Snapshot) Version() plimsoll.Version {
	return plimsoll.Version{Epoch: s.epoch, Revision: s.revision}
}

// Holds reports whether the snapshot holds a change of the history that it belongs to.
func (s *Snapshot) Holds(c *Change) bool { return s.Version().Holds(c.version()) }

// Identity tells the states of snapshots apart: those with the same one hold the same records. It
// keeps no record in memory. The zero value is of no snapshot.
type Identity struct {
	origin  *origin
	version plimsoll.Version
}

// Identity returns the identity of the snapshot's state.
func (s *Snapshot) Identity() Identity { return Identity{s.origin, s.Version()} }

// Before reports whether the state is an earlier one of the same tables.
func (i Identity) Before(other Identity) bool {
	return i.origin == other.origin && (i.version.Epoch < other.version.Epoch ||
		i.version.Epoch == other.version.Epoch && i.version.Revision < other.version.Revision)
}

// Time is the time of the last batch in Unix nanoseconds.
func (s *Snapshot) Time() int64 { return s.time }

// InstanceUUID names the numbering of events. It stays for as long as ids go on without a
// gap, also from one leader to the next. Ids of different ones cannot be compared.
func (s *Snapshot) InstanceUUID() string { return s.instance }

// Bytes is the total size of all keys and values.
func (s *Snapshot) Bytes() int64 { return s.bytes }

// JobsLacking returns the number of jobs whose status may have a group that waits for a resource
// that no node has, as wire.NoResourceIn sees it.
func (s *Snapshot) JobsLacking() int { return s.lacking }

// WrittenSince returns the bytes that a reader keeps in memory by an earlier snapshot of the same
// tables: those of the records that were replaced or deleted since, with some for each change. same
// is false for a snapshot of other tables, all of which it may keep.
func (s *Snapshot) WrittenSince(earlier *Snapshot) (bytes int64, same bool) {
	if s == nil || s.origin != earlier.origin {
		return 0, false
	}
	return s.written - earlier.written, true
}

// Events is the ring of recent events.
func (s *Snapshot) Events() ring.View { return s.events }

// EventSettings returns the settings of the events.
func (s *Snapshot) EventSettings() (plimsoll.EventSettings, error) {
	data, has := s.Get(wire.KindEventSettings, "")
	if !has {
		return plimsoll.DefaultEventSettings(), nil
	}
	settings, err := wire.DecodeEventSettings(data)
	if err != nil {
		return settings, fmt.Errorf("read the settings of the events: %w", err)
	}
	return settings, nil
}

// Counts returns the samples of the numbers of running jobs and tasks.
func (s *Snapshot) Counts() (wire.Counts, error) {
	data, has := s.Get(wire.KindCounts, "")
	if !has {
		return nil, nil
	}
	counts, err := wire.DecodeCounts(data)
	if err != nil {
		return nil, fmt.Errorf("read how many jobs and tasks there were: %w", err)
	}
	return counts, nil
}

// Get returns one encoded record.
func (s *Snapshot) Get(kind wire.Kind, key string) ([]byte, bool) {
	r, ok := s.kinds[kind].Get(key)
	return r.value, ok
}

// Table names the content of a kind. It is the same in two snapshots of the same tables if no
// record of the kind was changed in between. It keeps that content in memory.
type Table struct{ of *informer.Snapshot[record] }

// Table returns the content of a kind, to be compared.
func (s *Snapshot) Table(kind wire.Kind) Table { return Table{s.kinds[kind]} }

// Len returns the number of records of a kind.
func (s *Snapshot) Len(kind wire.Kind) int { return s.kinds[kind].Len() }

// Scan yields, in key order, the records of a kind whose keys begin with prefix and are greater
// than after. An empty after stands for the beginning.
func (s *Snapshot) Scan(kind wire.Kind, prefix, after string) iter.Seq2[string, []byte] {
	return values(s.kinds[kind].Range(prefix, after))
}

// NodeOf returns the node to which a task is bound; empty: none, or there is no such task.
func (s *Snapshot) NodeOf(taskKey string) string {
	r, _ := s.kinds[wire.KindTask].Get(taskKey)
	return r.node.String()
}

// values yields the encoded records without what else is known of them.
func values(records iter.Seq2[string, record]) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		records(func(key string, r record) bool { return yield(key, r.value) })
	}
}
