package gateway

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
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
	return 48 + len(ev.Object) + len(ev.Reference) + len(ev.Message) + 24*len(ev.Resources)
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

// eventSource gives package rest the events of a read.
type eventSource struct{ g *Gateway }

// Events implements rest.Source.
func (s eventSource) Events(ctx context.Context, c plimsoll.Consistency) (rest.State, error) {
	v, err := s.g.viewAt(ctx, c)
	if err != nil {
		return rest.State{}, err
	}
	events := heldEvents{v.Events(), ctx}
	return rest.State{Events: events, InstanceUUID: v.InstanceUUID(), Version: v.Version(), Age: v.age}, nil
}

// heldEvents are events that are charged to the request for whose answer they are read.
type heldEvents struct {
	rest.Events
	request context.Context //nolint:containedctx // the value lives as long as the request
}

// Batch implements rest.Events.
func (e heldEvents) Batch(start, count uint64, yield func(uint64, *plimsoll.Event) bool) error {
	var full error
	err := e.Events.Batch(start, count, func(id uint64, ev *plimsoll.Event) bool {
		if full = holding(e.request, eventBytes(ev)); full != nil {
			return false
		}
		return yield(id, ev)
	})
	if full != nil {
		return full
	}
	return err //nolint:wrapcheck // heldEvents stands in for the events
}
