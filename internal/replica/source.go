package replica

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Defaults of SourceConfig.
const (
	DefaultRetainBytes = 64 << 20
	DefaultMaxReplies  = 16_384
)

// SourceConfig holds the settings of a Source. Zero values stand for the defaults.
type SourceConfig struct {
	Epoch        uint64 // the leader's epoch; above 0
	InstanceUUID string // names this leader's process
	// RetainBytes bounds the encoded batches that are kept for gateways behind the leader; default
	// DefaultRetainBytes.
	RetainBytes int
	// EventCapacity is the size of the event ring if NewSource makes the tables; default
	// ring.DefaultCapacity.
	EventCapacity int
	// MaxReplies bounds the unsent replies of one stream; default DefaultMaxReplies. A gateway with
	// more is cut off.
	MaxReplies int
	// Confirm returns nil if this process led at an instant after the call began. A goroutine of
	// the stream calls it for each acknowledgement of a sync, one call at a time. Nil: this process
	// always leads.
	Confirm func(ctx context.Context) error
	// Events are the callbacks of the source.
	Events SourceEvents
}

// SourceEvents are the callbacks of a Source. A nil function is not called. None may block.
type SourceEvents struct {
	Connected    func(gateway string, resumed bool)
	Disconnected func(gateway string, err error) // err is nil if the gateway ended the stream
	Unread       func(gateway string)            // a gateway was cut off because it does not read its stream
	Refused      func(err error)                 // a message was too large or malformed; its stream ends
}

// Validate reports the first field that is wrong.
func (c *SourceConfig) Validate() error {
	switch {
	case c.Epoch == 0:
		return plimsoll.Invalid("epoch", "is 0; a leader's epoch starts at 1")
	case c.InstanceUUID == "":
		return plimsoll.Invalid("instanceUUID", "is empty; give each leader's process its own")
	case c.RetainBytes < 0 || c.EventCapacity < 0 || c.MaxReplies < 0:
		return plimsoll.Invalid("replication", "a bound is negative; give 0 for the default, or more")
	}
	return nil
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// Source is the leader's end of replication: the published tables and batches, and the streams that
// carry them.
type Source struct {
	config SourceConfig
	tables *Tables                  // belongs to the publishing goroutine
	latest atomic.Pointer[Snapshot] // Invariant, under mu: its revision is the one at the end of the log

	mu struct {
		sync.Mutex
		log     batchLog
		streams map[*stream]struct{}
		closed  error
	}
}

// NewSource makes the source of a new leader. tables hold the records of the store and belong to
// the source from then on; nil stands for empty tables. The caller loads and publishes from one
// goroutine at a time.
func NewSource(config SourceConfig, tables *Tables) (*Source, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure replication: %w", err)
	}
	if tables == nil {
		tables = NewTables(config.EventCapacity)
	}
	config.MaxReplies = orDefault(config.MaxReplies, DefaultMaxReplies)
	tables.epoch, tables.instance = config.Epoch, config.InstanceUUID
	s := &Source{config: config, tables: tables}
	s.latest.Store(tables.Snapshot())
	s.mu.log = batchLog{limit: orDefault(config.RetainBytes, DefaultRetainBytes), base: tables.revision}
	s.mu.streams = map[*stream]struct{}{}
	return s, nil
}

// Snapshot returns the snapshot after the last published batch.
func (s *Source) Snapshot() *Snapshot { return s.latest.Load() }

// Publish makes a durable batch visible. When it returns, the batch is in every stream, in front of
// every reply and acknowledgement that follows. It never waits for a gateway.
//
// One goroutine at a time calls Publish, in the order of revisions. Publish keeps the batch's
// bytes, which must not change afterwards. It panics for a batch of another epoch and for one that
// is not newer than the last, unless it is empty. It panics too if an index contradicts the
// records. These are broken invariants.
func (s *Source) Publish(b *wire.Batch) {
	if len(b.Mutations) == 0 && b.Events.Count == 0 && b.Revision == s.tables.revision {
		return
	}
	if b.Epoch != s.config.Epoch || b.Revision <= s.tables.revision {
		panic(
			fmt.Sprintf(
				"replica: batch %d of epoch %d was published after %d of epoch %d", b.Revision, b.Epoch,
				s.tables.revision, s.config.Epoch,
			),
		)
	}
	data := wire.AppendBatch(make([]byte, 0, batchSize(b)), b)
	if err := s.tables.Apply(b); err != nil {
		panic(fmt.Sprintf("replica: %v", err))
	}
	latest := s.tables.Snapshot()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest.Store(latest)
	s.mu.log.add(b.Revision, data)
	for st := range s.mu.streams {
		notify(st.wake)
	}
}

// batchSize estimates the size of a batch's encoding, and rarely falls below it.
func batchSize(b *wire.Batch) int {
	size := 64 + len(b.Events.Data)
	for i := range b.Mutations {
		size += wire.SizeMutation(&b.Mutations[i]) + 6
	}
	return size
}

// Close ends every stream with err, and each later one too: this process no longer leads.
func (s *Source) Close(err error) {
	if err == nil {
		err = plimsoll.Errorf(plimsoll.CodeUnavailable, "this process is no longer the leader; connect again")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = err
	for st := range s.mu.streams {
		st.end(err)
	}
}

// open registers a stream whose first message is hello.
func (s *Source) open(st *stream, hello *pb.ReplicateHello) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed != nil {
		return s.mu.closed
	}
	st.session = session{log: &s.mu.log, maxReplies: s.config.MaxReplies, proof: s.config.Confirm != nil}
	if err := st.session.hello(hello, s.latest.Load()); err != nil {
		return err
	}
	s.mu.streams[st] = struct{}{}
	return nil
}

// remove removes a stream and reports whether it was the gateway's last.
func (s *Source) remove(st *stream) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.streams, st)
	st.session.end(errStreamEnded)
	st.control = nil
	for other := range s.mu.streams {
		if other.gateway == st.gateway {
			return false
		}
	}
	return true
}

// errStreamEnded is the error for a gateway whose stream ends through no fault of either side.
var errStreamEnded = plimsoll.Errorf(plimsoll.CodeUnavailable, "the leader ends the stream; connect again")

// notify puts a signal into a channel of capacity one.
func notify(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // a signal is there already; its receiver sees every change
	}
}
