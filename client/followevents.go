package client

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// streamEvents sends events of a watch until it is over. It reports false if the gateway does not
// know the call.
func (c *Client) streamEvents(ctx context.Context, filter EventFilter, yield func(EventRecord, error) bool) bool {
	req := &pb.WatchEventsRequest{
		Start: filter.Start, Object: filter.Object, Since: filter.since(), Types: filter.types(),
	}
	for r := c.newRetry(); ; {
		over, err := c.eventsOnce(ctx, req, r, yield)
		if over {
			return true
		}
		if plimsoll.CodeOf(err) == plimsoll.CodeUnimplemented {
			return false
		}
		if err := r.wait(ctx, err); err != nil {
			yield(EventRecord{}, err)
			return true
		}
	}
}

// eventsOnce reads one stream, and notes in req where the next one goes on. over reports that the
// caller wants no more.
func (c *Client) eventsOnce(
	ctx context.Context, req *pb.WatchEventsRequest, r *retry, yield func(EventRecord, error) bool,
) (over bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.watches.WatchEvents(ctx, connect.NewRequest(req))
	if err != nil {
		return false, wire.FromReadError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing was written, and Err has the stream's error
	for stream.Receive() {
		r.reset()
		m := stream.Msg()
		if len(m.GetIds()) != len(m.GetEvents()) {
			return false, plimsoll.Errorf(plimsoll.CodeCorrupt, "the server sent %d events with %d ids",
				len(m.GetEvents()), len(m.GetIds()))
		}
		for i, id := range m.GetIds() {
			if !yield(EventRecord{ID: id, Event: wire.EventFromProto(m.GetEvents()[i])}, nil) {
				return true, nil
			}
		}
		next := m.GetNext()
		req.Start, req.InstanceUuid = &next, m.GetInstanceUuid()
	}
	if err := stream.Err(); err != nil {
		return false, wire.FromReadError(ctx, err)
	}
	return false, plimsoll.Errorf(plimsoll.CodeUnavailable, "the server ended the watch of events")
}
