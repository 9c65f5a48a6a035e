package gateway

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// WatchEvents sends recent events from start on, and then each new one. A watch that is read slowly
// passes over events that are no longer kept: the ids show the gap.
func (s watchService) WatchEvents(
	ctx context.Context, req *connect.Request[pb.WatchEventsRequest],
	stream *connect.ServerStream[pb.WatchEventsResponse],
) error {
	changed, cancel := s.g.replica.Watch(replica.KindEvents, "")
	defer cancel()
	defer s.g.metrics.watching("WatchEvents")()
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return err
	}
	wanted := eventCriteria{object: req.Msg.GetObject(), since: req.Msg.GetSince(), types: req.Msg.GetTypes()}
	w := eventWatch{wanted: wanted, instance: snapshot.InstanceUUID(), send: stream.Send}
	w.charge, _ = ctx.Value(chargeKey{}).(*charge)
	if asked := req.Msg.GetInstanceUuid(); asked == "" || asked == w.instance {
		w.next = req.Msg.GetStart()
	}
	for {
		if err := w.sendBehind(ctx, snapshot); err != nil {
			return err
		}
		if err := pause(ctx, watchPause); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return callerGone(ctx)
		case <-changed:
		}
		snapshot = s.g.replica.Latest()
	}
}

// eventWatch is the sent state of one watch of events.
type eventWatch struct {
	wanted   eventCriteria
	send     func(*pb.WatchEventsResponse) error
	charge   *charge
	instance string // of the events that were looked at last
	next     uint64 // id of the next event to look at
}

// sendBehind sends the events of a snapshot that were not looked at yet.
func (w *eventWatch) sendBehind(ctx context.Context, snapshot *replica.Snapshot) error {
	if instance := snapshot.InstanceUUID(); instance != w.instance {
		w.instance, w.next = instance, 0
	}
	view := snapshot.Events()
	low, high, ok := view.Range()
	for ok && max(w.next, low) <= high {
		if ctx.Err() != nil {
			return callerGone(ctx)
		}
		w.next = max(w.next, low)
		m, size, err := w.collect(view, high)
		if err != nil {
			return err
		}
		if len(m.Ids) == 0 {
			continue
		}
		if err := w.flush(m, size); err != nil {
			return err
		}
	}
	return nil
}

// collect returns a message with the next events, and its approximate size.
func (w *eventWatch) collect(view interface {
	Batch(start, count uint64, yield func(uint64, *plimsoll.Event) bool) error
}, high uint64,
) (m *pb.WatchEventsResponse, size int, err error) {
	m = &pb.WatchEventsResponse{InstanceUuid: w.instance}
	start, looked := w.next, 0
	err = view.Batch(start, high-start+1, func(id uint64, ev *plimsoll.Event) bool {
		w.next = id + 1
		if w.wanted.meets(ev) {
			size += eventBytes(ev)
			m.Ids = append(m.Ids, id)
			m.Events = append(m.Events, wire.EventToProto(ev))
		}
		looked++
		return size < watchMessageBytes && looked < 16*lookEvery
	})
	if err != nil {
		return nil, 0, plimsoll.Errorf(plimsoll.CodeCorrupt, "the events from %d on cannot be decoded: %v", start, err)
	}
	if w.next == start {
		w.next = high + 1 // the ring holds none of them
	}
	m.Next = w.next
	return m, size, nil
}

func (w *eventWatch) flush(m *pb.WatchEventsResponse, size int) error {
	if w.charge != nil {
		held := answerBytes*len(m.Ids) + 4*size
		if err := w.charge.hold(held); err != nil {
			return err
		}
		defer w.charge.release(held)
	}
	return w.send(m)
}
