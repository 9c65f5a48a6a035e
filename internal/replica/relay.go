package replica

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

const (
	// maxDepth bounds the relays between the leader and a gateway.
	maxDepth = 4
	// maxUnready bounds the ids that the refusal of a relay without a leader names. A circle of
	// more relays is refused as well, but not named.
	maxUnready = 16
	// relayTimeout is the time after which a relay that waits for its parent's acknowledgement
	// suspects the link.
	relayTimeout = 3 * time.Second
)

// Relay lets other gateways follow a Follower's copy, as they would follow the leader:
//
//	relay, err := replica.NewRelay(follower, replica.RelayConfig{})
//	...
//	mux.Handle(relay.Handler())
//	go follower.Run(ctx)
//
// The messages of the follower's stream go down in the same order. The streams below end with the
// follower's own stream, and are refused until it has another. A sync from below is acknowledged
// after a barrier of the follower that began when the sync had arrived; readers of the relay and of
// all below it share these barriers. Commands go up, and each reply goes back to its stream.
type Relay struct {
	follower *Follower
	source   *Source
}

// RelayConfig holds the settings of a Relay. Zero values stand for the defaults of SourceConfig.
type RelayConfig struct {
	RetainBytes int
	MaxReplies  int
	// MaxGateways bounds the streams of all gateways below, also of those behind further relays. It
	// must not exceed the leader's.
	MaxGateways   int
	MaxSnapshots  int
	SnapshotBytes int
	// Events are the callbacks of the relay.
	Events SourceEvents
}

// NewRelay makes the relay of a follower. It is called at most once for a follower, before
// Follower.Run.
func NewRelay(f *Follower, config RelayConfig) (*Relay, error) {
	r := &Relay{follower: f}
	settings := SourceConfig{
		RetainBytes: config.RetainBytes, MaxReplies: config.MaxReplies, MaxGateways: config.MaxGateways,
		MaxSnapshots: config.MaxSnapshots, SnapshotBytes: config.SnapshotBytes, Version: f.config.Version,
		Confirm: r.confirm, Admit: r.admits, Events: config.Events,
	}
	if err := settings.validateBounds(); err != nil {
		return nil, err
	}
	r.source = newSource(settings)
	r.source.relay = r
	r.source.mu.unready = []string{f.config.Gateway}
	r.source.mu.closed = r.notReady()
	f.relay = r
	return r, nil
}

// Handler returns the handler of the replication streams of the gateways below, and its path.
func (r *Relay) Handler() (path string, _ http.Handler) { return NewHandler(r.source, r.exec) }

// Stats returns the numbers of the relay; zeros for nil.
func (r *Relay) Stats() Stats {
	if r == nil {
		return Stats{}
	}
	return r.source.Stats()
}

// notReady is the error for a gateway that comes while the relay follows no leader.
func (r *Relay) notReady() error {
	return plimsoll.Errorf(plimsoll.CodeUnavailable,
		"gateway %s, which this one follows, is not connected to its own leader; try again", r.follower.config.Gateway)
}

// begin serves streams from a copy that has just become live on a stream of the follower. path has
// the ids of the relays above.
func (r *Relay) begin(latest *Snapshot, resumed bool, path []string, stream uint64) {
	s := r.source
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest.Store(latest)
	if !resumed || s.mu.log.revision() != latest.revision {
		s.mu.log = batchLog{limit: s.mu.log.limit, base: latest.revision}
	}
	s.mu.closed, s.mu.unready, s.mu.above = nil, nil, stream
	s.mu.path = append(slices.Clip(path), r.follower.config.Gateway)
}

// suspend ends the streams and refuses others until begin. unready has the ids of the relays above
// that have no leader either.
func (r *Relay) suspend(unready []string) {
	s := r.source
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = r.notReady()
	s.mu.unready = append([]string{r.follower.config.Gateway}, unready[:min(len(unready), maxUnready-1)]...)
	for st := range s.mu.streams {
		st.endFor(endSource, s.mu.closed)
	}
}

// confirm returns nil after an acknowledgement of a sync that the follower has sent since.
func (r *Relay) confirm(ctx context.Context) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, relayTimeout)
		_, err := r.follower.Barrier(bounded)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

// exec passes a command up.
func (r *Relay) exec(ctx context.Context, gateway string, command *pb.Command, respond func(*pb.Reply)) {
	above, _ := ctx.Value(aboveKey{}).(uint64) // NewHandler's handler has set it
	r.follower.pass(above, gateway, command, respond)
}

// aboveKey is the context key of stream.above.
type aboveKey struct{}

// holds returns the filter of the follower's copy; nil for everything.
func (r *Relay) holds() *filter {
	if r == nil {
		return nil
	}
	return r.follower.filter
}

// admits returns the error for a gateway for which the stream above has no room.
func (r *Relay) admits() error {
	if r.follower.unannounced() < r.source.config.MaxGateways {
		return nil
	}
	return plimsoll.Errorf(plimsoll.CodeExhausted, "too many gateways come and go at this relay; connect again later")
}

// checkPath returns the error for a gateway that asks to follow the last relay of a path.
func checkPath(path []string, gateway string) error {
	if i := slices.Index(path, gateway); i >= 0 {
		return circle(append(slices.Clone(path[i:]), gateway))
	}
	if len(path) > maxDepth {
		return plimsoll.Errorf(plimsoll.CodeConflict,
			"%d relays (%s) stand between the leader and this gateway, and there may be %d; let it follow one further up",
			len(path), strings.Join(path, ", "), maxDepth)
	}
	return nil
}

// circle is the error for relays that would follow one another. Each of ids is followed by the
// next.
func circle(ids []string) error {
	return plimsoll.Errorf(plimsoll.CodeConflict,
		"gateways follow one another in a circle (%s): give one of them the address of the coordinator, and each an id of its own",
		strings.Join(ids, ", followed by "))
}

// unready returns the message for a gateway that a relay without a leader refuses; nil if the
// refusal has another cause.
func (s *Source) unready() *pb.ReplicateResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.unready) == 0 {
		return nil
	}
	return &pb.ReplicateResponse{
		Kind: &pb.ReplicateResponse_Unready{Unready: &pb.ReplicateUnready{Path: s.mu.unready}},
	}
}

// behind counts the streams of one gateway behind a relay.
type behind struct {
	streams int // that have begun and not ended
	known   int // of these, streams that were reported. Invariant: 0 <= known <= streams
}

// downstream notes that a stream of a gateway behind a relay has begun or ended. One for which
// there is no room is not reported yet: the gateway's commands are refused until there is.
func (s *Source) downstream(st *stream, d *pb.ReplicateDownstream) error {
	gateway := d.GetGateway()
	if err := validateGateway("downstream.gateway", gateway); err != nil {
		return err
	}
	b := st.below[gateway]
	switch {
	case d.GetGone() && b.streams == 0:
		return plimsoll.Invalid("downstream.gateway", "%q was not announced on this stream", gateway)
	case d.GetGone():
		s.left(st, gateway, nil)
		return nil
	case st.behind >= s.config.MaxGateways: // a relay announces no more
		return plimsoll.Errorf(plimsoll.CodeExhausted,
			"%d gateways are behind this relay already; let some follow another", s.config.MaxGateways)
	}
	if st.below == nil {
		st.below = map[string]behind{}
	}
	b.streams++
	st.below[gateway] = b
	st.behind++
	_ = s.introduce(st, gateway) // the next command tries again, and is refused with the error
	return nil
}

// introduce reports the streams of a gateway behind a relay that are not known yet. The error says
// that there is no room.
func (s *Source) introduce(st *stream, gateway string) error {
	for b := st.below[gateway]; b.known < b.streams; {
		if err := s.reserve(); err != nil {
			return err
		}
		b.known++
		st.below[gateway] = b
		s.connected(st, gateway, false)
	}
	return nil
}

// left notes the end of a stream of a gateway behind a relay.
func (s *Source) left(st *stream, gateway string, err error) {
	b := st.below[gateway]
	if b.known > 0 {
		s.disconnected(st, gateway, err)
		s.unreserve()
		b.known--
	}
	st.behind--
	if b.streams--; b.streams == 0 {
		delete(st.below, gateway)
		return
	}
	st.below[gateway] = b
}

// reserve takes room for a stream behind a relay; unreserve gives it back, once the stream's end
// was reported. So what a relay has announced never exceeds its parent's bound.
func (s *Source) reserve() error {
	if err := s.hasRoom(); err != nil || s.relay == nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.full(); err != nil {
		return err
	}
	s.mu.behind++
	return nil
}

func (s *Source) unreserve() {
	if s.relay == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.behind--
}

// hasRoom returns the error of SourceConfig.Admit.
func (s *Source) hasRoom() error {
	if s.config.Admit == nil {
		return nil
	}
	return s.config.Admit()
}

// full returns the error for one stream more than the bound. The caller holds mu.
func (s *Source) full() error {
	if len(s.mu.streams)+s.mu.behind < s.config.MaxGateways {
		return nil
	}
	return plimsoll.Errorf(plimsoll.CodeExhausted,
		"%d gateways follow this process already; let this one follow another", s.config.MaxGateways)
}

// maxGatewayID bounds the bytes of a gateway's id, as plimsoll.ValidateID does. A longer one is not
// repeated in an error.
const maxGatewayID = 128

func validateGateway(field, id string) error {
	if len(id) > maxGatewayID {
		return plimsoll.Invalid(field, "has %d bytes; the id of a gateway has at most %d", len(id), maxGatewayID)
	}
	return plimsoll.ValidateID(field, id)
}

// connected and disconnected report a stream of a gateway, at st or behind the relay there. A relay
// passes the news up.
func (s *Source) connected(st *stream, gateway string, resumed bool) {
	if s.relay != nil {
		s.relay.follower.announce(st.above, &pb.ReplicateDownstream{Gateway: gateway})
	}
	if f := s.config.Events.Connected; f != nil {
		f(gateway, resumed)
	}
}

func (s *Source) disconnected(st *stream, gateway string, err error) {
	if s.relay != nil {
		s.relay.follower.announce(st.above, &pb.ReplicateDownstream{Gateway: gateway, Gone: true})
	}
	if f := s.config.Events.Disconnected; f != nil {
		f(gateway, err)
	}
}
