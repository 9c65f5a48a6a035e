package gateway

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// eventService serves EventService.
type eventService struct{ g *Gateway }

// ListEvents answers with recent events from start on, in order. A start below the oldest event
// stands for the oldest: lowest_id shows how many are gone. next never decreases.
func (s eventService) ListEvents(
	ctx context.Context, req *connect.Request[pb.ListEventsRequest],
) (*connect.Response[pb.ListEventsResponse], error) {
	v, err := s.g.view(ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	limit := uint64(s.g.cfg.PageSize)
	if count := req.Msg.GetCount(); count > 0 {
		limit = min(limit, count)
	}
	recent := v.Events()
	low, high, ok := recent.Range()
	resp := &pb.ListEventsResponse{
		InstanceUuid: v.InstanceUUID(), LowestId: low, HighestId: high, Next: req.Msg.GetStart(),
		Revision: v.Revision(), Epoch: v.Epoch(), AgeNanos: int64(v.age),
	}
	start := max(req.Msg.GetStart(), low)
	if !ok || start > high {
		return connect.NewResponse(resp), nil
	}
	wanted := eventCriteria{object: req.Msg.GetObject(), since: req.Msg.GetSince(), types: req.Msg.GetTypes()}
	looked, texts := 0, 0
	var full error
	err = recent.Batch(start, high-start+1, func(id uint64, ev *plimsoll.Event) bool {
		resp.Next = id + 1
		if wanted.meets(ev) {
			n := eventBytes(ev)
			if full = holding(ctx, n); full != nil {
				return false
			}
			texts += n
			resp.Ids = append(resp.Ids, id)
			resp.Events = append(resp.Events, wire.EventToProto(ev))
		}
		looked++
		return uint64(len(resp.Ids)) < limit && texts <= pageBytes && (looked%lookEvery != 0 || ctx.Err() == nil)
	})
	if full != nil {
		return nil, full
	}
	if err != nil {
		return nil, plimsoll.Errorf(plimsoll.CodeCorrupt, "the events from %d on cannot be decoded: %v", start, err)
	}
	if gone := callerGone(ctx); gone != nil {
		return nil, gone
	}
	return connect.NewResponse(resp), nil
}

// eventBytes returns the approximate encoded size of an event.
func eventBytes(ev *plimsoll.Event) int {
	return 48 + len(ev.Object) + len(ev.Reference) + len(ev.Message) + ev.Head.Size() + 24*len(ev.Resources)
}

// eventCriteria are the criteria of a list or watch of events. A zero field does not restrict.
type eventCriteria struct {
	object string
	since  int64 // Unix nanoseconds
	types  []pb.EventSubject
}

// meets reports whether an event meets all criteria.
func (c *eventCriteria) meets(ev *plimsoll.Event) bool {
	return ev.Time >= c.since && (len(c.types) == 0 || slices.Contains(c.types, pb.EventSubject(ev.Subject()))) &&
		(c.object == "" || concerns(ev, c.object))
}

// concerns reports whether an event's subject or reference is the object or, if the object is a
// job, one of its tasks.
func concerns(ev *plimsoll.Event, object string) bool {
	return isOrBelow(ev.Object, object) || isOrBelow(ev.Reference, object)
}

// isOrBelow reports whether an id names an object or a part of it. An empty object matches every
// id.
func isOrBelow[T ~string | ~[]byte](id T, object string) bool {
	n := len(object)
	return n == 0 || len(id) >= n && string(id[:n]) == object && (len(id) == n || id[n] == '.')
}

// eventSource gives package rest the events of this gateway's copy.
type eventSource struct{ g *Gateway }

// Events implements rest.Source.
func (s eventSource) Events(ctx context.Context, c plimsoll.Consistency) (rest.State, error) {
	v, err := s.g.viewAt(ctx, c)
	if err != nil {
		return rest.State{}, err
	}
	return eventState(ctx, v.Snapshot, v.age), nil
}

// Follow implements rest.Source.
func (s eventSource) Follow(ctx context.Context) (changed <-chan struct{}, latest func() rest.State, cancel func()) {
	changed, cancel = s.g.replica.Watch(replica.KindEvents, "")
	return changed, func() rest.State { return eventState(ctx, s.g.replica.Latest(), 0) }, cancel
}

// eventState is the state of a snapshot, which is charged to the request of ctx.
func eventState(ctx context.Context, of *replica.Snapshot, age time.Duration) rest.State {
	state := rest.State{
		Events: of.Events(), Records: of, InstanceUUID: of.InstanceUUID(), Version: of.Version(), Age: age,
	}
	if c, ok := ctx.Value(chargeKey{}).(*charge); ok {
		state.Hold, state.Release = c.hold, c.release
	}
	return state
}

// eventStreams bounds the streams of events under /ws/v1: all of them, and those of callers at one
// address of another machine.
type eventStreams struct {
	most, mostOfPeer int

	mu struct {
		sync.Mutex
		open  int
		peers map[netip.Addr]int // of other machines
	}
}

// enter takes a place for a stream.
func (e *eventStreams) enter(peer netip.Addr) (leave func(), bound string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.open >= e.most {
		return nil, boundEventStreams, plimsoll.Errorf(plimsoll.CodeExhausted,
			"this gateway has %d streams of events, as many as it may (--max-event-streams); "+
				"try again later, or ask another gateway", e.most)
	}
	if peer.IsValid() && e.mu.peers[peer] >= e.mostOfPeer {
		return nil, boundPeerEventStreams, plimsoll.Errorf(plimsoll.CodeExhausted,
			"%v has %d streams of events here, as many as one address may have (--max-peer-event-streams); "+
				"end some, or ask another gateway", peer, e.mostOfPeer)
	}
	if e.mu.peers == nil {
		e.mu.peers = map[netip.Addr]int{}
	}
	e.mu.open++
	if peer.IsValid() {
		e.mu.peers[peer]++
	}
	return func() { e.leave(peer) }, "", nil
}

func (e *eventStreams) leave(peer netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.open--
	if !peer.IsValid() {
		return
	}
	if e.mu.peers[peer]--; e.mu.peers[peer] == 0 {
		delete(e.mu.peers, peer)
	}
}

// enterEventStream implements rest.Config.EnterStream.
func (g *Gateway) enterEventStream(r *http.Request) (leave func(), err error) {
	peer := transport.PeerOf(r.Context()).IP
	if peer.IsLoopback() {
		peer = netip.Addr{} // callers on this machine share the bound on all
	}
	leavePlace, bound, err := g.eventStreams.enter(peer)
	if err != nil {
		g.metrics.refused(bound)
		return nil, err
	}
	done, err := transport.KeepStream(r.Context())
	if err != nil {
		leavePlace()
		return nil, err //nolint:wrapcheck // it names the bound
	}
	ended := g.metrics.watching(rest.StreamPath)
	return func() {
		ended()
		done()
		leavePlace()
	}, nil
}

// eventStreamCut counts a stream of events that was ended because of its reader.
func (g *Gateway) eventStreamCut(why rest.Cut) {
	switch why {
	case rest.CutSlow:
		g.metrics.watchCuts.WithLabelValues(cutSlow).Inc()
	case rest.CutBehind:
		g.metrics.watchCuts.WithLabelValues(cutBehind).Inc()
	case rest.CutNoRoom:
		g.metrics.watchCuts.WithLabelValues(cutNoRoom).Inc()
	}
}
