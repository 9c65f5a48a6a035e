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
	RetainBytes   int
	MaxReplies    int
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
		Confirm: r.confirm, Events: config.Events,
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
		st.end(s.mu.closed)
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
	if r == nil || r.follower.unannounced() < r.source.config.MaxGateways {
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

// downstream notes that a stream of a gateway behind a relay has begun or ended.
func (s *Source) downstream(st *stream, d *pb.ReplicateDownstream) error {
	gateway := d.GetGateway()
	switch {
	case gateway == "":
		return plimsoll.Invalid("downstream.gateway", "is empty; give the gateway's id")
	case d.GetGone() && st.below[gateway] == 0:
		return plimsoll.Invalid("downstream.gateway", "%q was not announced on this stream", gateway)
	case d.GetGone():
		if st.below[gateway]--; st.below[gateway] == 0 {
			delete(st.below, gateway)
		}
		s.disconnected(st, gateway, nil)
		return nil
	case len(st.below) >= s.config.MaxGateways && st.below[gateway] == 0:
		return plimsoll.Errorf(
			plimsoll.CodeExhausted, "%d gateways are behind this relay already; let some follow another",
			s.config.MaxGateways,
		)
	}
	if st.below == nil {
		st.below = map[string]int{}
	}
	st.below[gateway]++
	s.connected(st, gateway, false)
	return nil
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
