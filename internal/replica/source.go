package replica

import (
	"cmp"
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

	DefaultMaxGateways   = 1024
	DefaultMaxSnapshots  = 4
	DefaultSnapshotBytes = 64 << 20
)

// SourceConfig holds the settings of a Source. Zero values stand for the defaults.
type SourceConfig struct {
	Epoch  uint64 // the leader's epoch; above 0
	Leader string // names this leader's process
	// InstanceUUID names the numbering of events: ids go on for as long as it stays. Default:
	// Leader.
	InstanceUUID string
	// RetainBytes bounds the encoded batches that are kept for gateways behind the leader; default
	// DefaultRetainBytes.
	RetainBytes int
	// MaxReplies bounds the unsent replies of one stream; default DefaultMaxReplies. A gateway with
	// more is cut off.
	MaxReplies int
	// MaxGateways bounds the streams, and those of the gateways behind each of them; default
	// DefaultMaxGateways. One more is refused.
	MaxGateways int
	// MaxSnapshots bounds the streams that are sent a snapshot at a time; default
	// DefaultMaxSnapshots. The others wait in their order.
	MaxSnapshots int
	// SnapshotBytes bounds the encoded parts of the newest snapshot that are kept for further
	// streams; default DefaultSnapshotBytes. A part that is no longer kept is encoded again.
	SnapshotBytes int
	// Version is the version of this program, which a refusal of another one names; default: the
	// one that the Go tool wrote into it.
	Version string
	// Confirm returns nil if this process led at an instant after the call began. A goroutine of
	// the stream calls it for each acknowledgement of a sync, one call at a time. Nil: this process
	// always leads.
	Confirm func(ctx context.Context) error
	// Admit returns the error for a stream while there is no room to report it to Connected. Its
	// Disconnected always has room. Admit must not block. Nil: there is always room.
	Admit func() error
	// Lineage is the copy of an earlier leader's state that this process has kept, led on to the
	// tables. Nil: nothing, and each gateway begins with a snapshot.
	Lineage *Lineage
	// Events are the callbacks of the source.
	Events SourceEvents
}

// SourceEvents are the callbacks of a Source. A nil function is not called. None may block.
type SourceEvents struct {
	// Connected and Disconnected are called for each stream of a gateway, also for those of
	// gateways behind a relay. They are called in front of the stream's first command and behind
	// its last.
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
	case c.Leader == "":
		return plimsoll.Invalid("leader", "is empty; give each leader's process its own")
	}
	return c.validateBounds()
}

func (c *SourceConfig) validateBounds() error {
	for _, n := range []int{
		c.RetainBytes, c.MaxReplies, c.MaxGateways, c.MaxSnapshots, c.SnapshotBytes,
	} {
		if n < 0 {
			return plimsoll.Invalid("replication", "a bound is negative; give 0 for the default, or more")
		}
	}
	return nil
}

func (c *SourceConfig) setDefaults() {
	c.RetainBytes = orDefault(c.RetainBytes, DefaultRetainBytes)
	c.MaxReplies = orDefault(c.MaxReplies, DefaultMaxReplies)
	c.MaxGateways = orDefault(c.MaxGateways, DefaultMaxGateways)
	c.MaxSnapshots = orDefault(c.MaxSnapshots, DefaultMaxSnapshots)
	c.SnapshotBytes = orDefault(c.SnapshotBytes, DefaultSnapshotBytes)
	if c.Version == "" {
		c.Version = builtVersion()
	}
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// Source is the leader's end of replication: the published tables and batches, and the streams that
// carry them. A Relay has one too.
type Source struct {
	config SourceConfig
	relay  *Relay                   // nil at the leader
	tables *Tables                  // belongs to the publishing goroutine; nil at a relay
	latest atomic.Pointer[Snapshot] // Invariant, under mu: its revision is the one at the end of the log

	mu struct {
		sync.Mutex
		log       batchLog
		recent    decoded
		transfers transfers
		streams   map[*stream]struct{}
		ended     [numStreamEnds]uint64
		drain     chan struct{} // capacity 1: a stream has come further; nil: Drain was not called
		behind    int           // at a relay: streams further below that it has announced
		closed    error         // why no stream is served; nil: they are
		above     uint64        // at a relay: number of the follower's stream from which this one is fed
		path      []string      // ids of the relays from the leader's to this one; empty at the leader
		unready   []string      // at a relay that is closed: its id, and those above it that are not ready either
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
		tables = NewTables()
	}
	tables.epoch, tables.leader = config.Epoch, config.Leader
	tables.instance = cmp.Or(config.InstanceUUID, config.Leader)
	s := newSource(config)
	s.tables = tables
	s.latest.Store(tables.Snapshot())
	s.mu.log.base = s.latest.Load().Version()
	config.Lineage.continueIn(s)
	return s, nil
}

func newSource(config SourceConfig) *Source {
	config.setDefaults()
	s := &Source{config: config}
	s.mu.log.limit = config.RetainBytes
	s.mu.streams = map[*stream]struct{}{}
	s.mu.transfers = transfers{
		log: &s.mu.log, latest: s.latest.Load, most: config.MaxSnapshots, mostWaiting: config.MaxGateways,
		limit: config.SnapshotBytes,
	}
	return s
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
	s.append(s.tables.Snapshot(), data)
}

// append makes an encoded batch visible, with the snapshot that holds it.
func (s *Source) append(latest *Snapshot, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest.Store(latest)
	s.mu.log.add(latest.Version(), data)
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
		st.endFor(endSource, err)
	}
}

// open registers a stream whose first message is hello.
func (s *Source) open(st *stream, hello *pb.ReplicateHello) error {
	if err := s.hasRoom(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed != nil {
		return s.mu.closed
	}
	if err := s.admits(hello); err != nil {
		return err
	}
	st.session = session{
		log: &s.mu.log, transfers: &s.mu.transfers, maxReplies: s.config.MaxReplies, proof: s.config.Confirm != nil,
		relayed: s.relay != nil, holds: s.relay.holds(), recent: &s.mu.recent, version: s.config.Version,
		onAdmit: func() { notify(st.wake) },
	}
	if err := st.session.hello(hello, s.latest.Load()); err != nil {
		return err
	}
	st.session.welcome.Path = s.mu.path
	st.above = s.mu.above
	s.mu.streams[st] = struct{}{}
	return nil
}

// admits returns the error for a gateway that may not follow this source. The caller holds mu.
func (s *Source) admits(hello *pb.ReplicateHello) error {
	if hello == nil {
		return nil // the session refuses it
	}
	if err := checkPath(s.mu.path, hello.Gateway); err != nil {
		return err
	}
	if len(hello.Standby) > maxStandby {
		return plimsoll.Invalid(
			"hello.standby", "has %d bytes; an address has at most %d", len(hello.Standby), maxStandby,
		)
	}
	return s.full()
}

// remove removes a stream and reports whether it was the gateway's last.
func (s *Source) remove(st *stream) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.streams, st)
	s.drains()
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
