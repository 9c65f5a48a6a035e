package client

import (
	"context"
	"iter"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ResourceManager names a program that follows the events of the jobs of an owner.
type ResourceManager struct {
	Name  string // unique among those of the same owner
	Owner string // of the jobs; empty: of all owners
}

// RequestEventRecord is an event for a resource manager.
type RequestEventRecord struct {
	Sequence uint64 // number of the event in the manager's store
	Revision uint64 // of the change that the event tells
	plimsoll.RequestEvent
}

// WaitingGroup is a group of a job with tasks that wait.
type WaitingGroup struct {
	Job, Owner string
	Group      plimsoll.GroupStatus
}

// RequestNews is one message for a resource manager.
type RequestNews struct {
	Store  string // names the store of the events at the leader
	Events []RequestEventRecord
	// Lost is how many events in front of these were dropped, because the store was full.
	// LostUnknown says that all of them were lost that were not acknowledged in another store, for
	// example because the leader has changed.
	Lost        uint64
	LostUnknown bool
	// Waiting are groups that wait, read at Revision. All have been sent with WaitingEnd: no other
	// group waits. They come at the beginning of a stream, and after a loss.
	Waiting    []WaitingGroup
	WaitingEnd bool
	Revision   uint64
}

// FollowRequestEvents registers a resource manager and sends what happens to the jobs of its owner.
// An event that was not acknowledged is sent again by a later call, until the leader changes or
// drops it; the news say so. A manager keeps up with the truth by Waiting, which is complete
// whatever was lost:
//
//	for news, err := range c.FollowRequestEvents(ctx, me) {
//		...
//		if n := len(news.Events); n > 0 {
//			_, err := c.AcknowledgeRequestEvents(ctx, me, news.Store, news.Events[n-1].Sequence)
//			... // CodeStale: the leader has changed, and the news to come say so
//		}
//	}
//
// After a break the following goes on, if the server is away for less than the retry budget. An
// event that was sent is not sent again then. It ends with its context or after the first error
// that no retry mends: CodeConflict if the events are off, or if another stream of the same manager
// has begun.
func (c *Client) FollowRequestEvents(ctx context.Context, m ResourceManager) iter.Seq2[RequestNews, error] {
	return func(yield func(RequestNews, error) bool) {
		f := requestFollow{c: c, of: m, retry: c.newRetry()}
		for {
			over, err := f.once(ctx, yield)
			if over {
				return
			}
			if plimsoll.CodeOf(err) == plimsoll.CodeStale { // the leader has forgotten the manager
				err = &plimsoll.Error{Code: plimsoll.CodeUnavailable, Err: err}
			}
			if err := f.retry.wait(ctx, err); err != nil {
				yield(RequestNews{}, err)
				return
			}
		}
	}
}

// requestFollow is the state of a FollowRequestEvents between its streams.
type requestFollow struct {
	c     *Client
	of    ResourceManager
	retry *retry
	store string // of the last message; empty: there was none
	last  uint64 // number of the last event in it
}

// once reads one stream. over reports that the caller wants no more.
func (f *requestFollow) once(ctx context.Context, yield func(RequestNews, error) bool) (over bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.c.requests.FollowRequestEvents(ctx, connect.NewRequest(&pb.FollowRequestEventsRequest{
		Manager: f.of.Name, Owner: f.of.Owner,
	}))
	if err != nil {
		return false, f.retry.readError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing was written, and Err has the stream's error
	for stream.Receive() {
		news := f.news(stream.Msg())
		if news.WaitingEnd || len(news.Events) > 0 { // the stream has got further than its beginning
			f.retry.reset()
		}
		if !yield(news, nil) {
			return true, nil
		}
	}
	if err := stream.Err(); err != nil {
		return false, f.retry.readError(ctx, err)
	}
	return false, plimsoll.Errorf(plimsoll.CodeUnavailable, "the server ended the stream of events")
}

// news reads a message, without the events that an earlier stream has sent.
func (f *requestFollow) news(m *pb.FollowRequestEventsResponse) RequestNews {
	n := requestNewsFromProto(m)
	if n.Store == "" { // a message with groups alone
		n.Store = f.store
		return n
	}
	if n.LostUnknown = f.store != "" && f.store != n.Store; f.store != n.Store {
		f.store, f.last = n.Store, 0
	}
	if len(n.Events) == 0 {
		return n
	}
	if first := n.Events[0].Sequence; first <= f.last {
		n.Events = n.Events[min(f.last-first+1, uint64(len(n.Events))):]
		n.Lost = 0
	} else {
		n.Lost = min(n.Lost, first-1-f.last)
	}
	if k := len(n.Events); k > 0 {
		f.last = n.Events[k-1].Sequence
	}
	return n
}

func requestNewsFromProto(m *pb.FollowRequestEventsResponse) RequestNews {
	n := RequestNews{
		Store: m.GetStore(), Lost: m.GetLost(), WaitingEnd: m.GetWaitingEnd(), Revision: m.GetRevision(),
	}
	for _, e := range m.GetEvents() {
		n.Events = append(n.Events, RequestEventRecord{
			Sequence: e.GetSequence(), Revision: e.GetRevision(), RequestEvent: wire.RequestEventFromProto(e),
		})
	}
	for _, g := range m.GetWaiting() {
		n.Waiting = append(n.Waiting, WaitingGroup{
			Job: g.GetJob(), Owner: g.GetOwner(), Group: wire.GroupStatusFromProto(g.GetGroup()),
		})
	}
	return n
}

// AcknowledgeRequestEvents lets the leader forget the events of a store up to a number, and returns
// how many it still keeps. It may be repeated. CodeStale says that the store is gone.
func (c *Client) AcknowledgeRequestEvents(
	ctx context.Context, m ResourceManager, store string, sequence uint64,
) (kept uint64, err error) {
	req := &pb.AcknowledgeRequestEventsRequest{Manager: m.Name, Owner: m.Owner, Store: store, Sequence: sequence}
	res, err := change(ctx, c, c.requests.AcknowledgeRequestEvents, req)
	return res.GetKept(), err
}
