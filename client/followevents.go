package client

import (
	"context"
	"iter"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// FollowEventPages reads events from an id on and then new ones as they happen, in the pages in
// which they arrive. start counts in instance; if ids have begun anew since, or if instance is
// empty, the first page has the oldest event that is still there. Missing events show in the ids
// and the InstanceUUID of a page. Lowest and Highest are not set.
//
// After a break the reading goes on where it was, if the server is away for less than the retry
// budget. It ends with its context or after the first error that no retry mends.
func (c *Client) FollowEventPages(ctx context.Context, instance string, start uint64) iter.Seq2[EventPage, error] {
	return func(yield func(EventPage, error) bool) {
		req := &pb.WatchEventsRequest{}
		if instance != "" {
			req.InstanceUuid, req.Start = instance, &start
		}
		if err := c.watchEvents(ctx, req, func(p EventPage) bool { return yield(p, nil) }); err != nil {
			yield(EventPage{}, err)
		}
	}
}

// streamEvents sends events of a watch until it is over. It reports false if the gateway does not
// know the call.
func (c *Client) streamEvents(ctx context.Context, filter EventFilter, yield func(EventRecord, error) bool) bool {
	req := &pb.WatchEventsRequest{
		Start: filter.Start, Object: filter.Object, Since: filter.since(), Types: filter.types(),
	}
	err := c.watchEvents(ctx, req, func(p EventPage) bool {
		for _, r := range p.Records {
			if !yield(r, nil) {
				return false
			}
		}
		return true
	})
	if plimsoll.CodeOf(err) == plimsoll.CodeUnimplemented {
		return false
	}
	if err != nil {
		yield(EventRecord{}, err)
	}
	return true
}

// watchEvents runs a watch of events through its breaks. It returns nil once the caller wants no
// more.
func (c *Client) watchEvents(ctx context.Context, req *pb.WatchEventsRequest, yield func(EventPage) bool) error {
	for r := c.newRetry(); ; {
		over, err := c.eventsOnce(ctx, req, r, yield)
		if over {
			return nil
		}
		if err := r.wait(ctx, err); err != nil {
			return err
		}
	}
}

// eventsOnce reads one stream, and notes in req where the next one goes on. over reports that the
// caller wants no more.
func (c *Client) eventsOnce(
	ctx context.Context, req *pb.WatchEventsRequest, r *retry, yield func(EventPage) bool,
) (over bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.watches.WatchEvents(ctx, connect.NewRequest(req))
	if err != nil {
		return false, r.readError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing was written, and Err has the stream's error
	for stream.Receive() {
		r.reset()
		m := stream.Msg()
		if len(m.GetIds()) != len(m.GetEvents()) {
			return false, plimsoll.Errorf(plimsoll.CodeCorrupt, "the server sent %d events with %d ids",
				len(m.GetEvents()), len(m.GetIds()))
		}
		page := EventPage{
			InstanceUUID: m.GetInstanceUuid(), Next: m.GetNext(), Records: make([]EventRecord, len(m.GetIds())),
		}
		for i, id := range m.GetIds() {
			page.Records[i] = EventRecord{ID: id, Event: wire.EventFromProto(m.GetEvents()[i])}
		}
		if !yield(page) {
			return true, nil
		}
		req.Start, req.InstanceUuid = &page.Next, page.InstanceUUID
	}
	if err := stream.Err(); err != nil {
		return false, r.readError(ctx, err)
	}
	return false, plimsoll.Errorf(plimsoll.CodeUnavailable, "the server ended the watch of events")
}
