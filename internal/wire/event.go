package wire

import (
	"math"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// EventToProto converts an event.
func EventToProto(e *plimsoll.Event) *pb.Event {
	return &pb.Event{
		Type:      int32(e.Type),
		Change:    int32(e.Change),
		Detail:    int32(e.Detail),
		Time:      e.Time,
		Object:    text(e.Object),
		Reference: text(e.Reference),
		Resources: resourcesToProto(e.Resources),
		Message:   text(e.Message),
		Head:      headToProto(e.Head),
	}
}

// EventFromProto converts an event. A number that does not fit its type becomes zero.
func EventFromProto(m *pb.Event) plimsoll.Event {
	e := plimsoll.Event{
		Time:      m.GetTime(),
		Object:    m.GetObject(),
		Reference: m.GetReference(),
		Resources: resourcesFromProto(m.GetResources()),
		Message:   m.GetMessage(),
		Head:      headFromProto(m.GetHead()),
	}
	if n := m.GetType(); n >= 0 && n <= math.MaxUint8 {
		e.Type = plimsoll.EventType(n)
	}
	if n := m.GetChange(); n >= 0 && n <= math.MaxUint8 {
		e.Change = plimsoll.ChangeType(n)
	}
	if d := m.GetDetail(); d >= 0 && d <= math.MaxUint16 {
		e.Detail = plimsoll.ChangeDetail(d)
	}
	return e
}

// headToProto converts the head of a job; nil: there is none.
func headToProto(h *plimsoll.JobHead) *pb.JobHead {
	if h == nil {
		return nil
	}
	return &pb.JobHead{Uid: h.UID.Text(), Owner: text(h.Owner), Labels: textMapToProto(h.Labels)}
}

func headFromProto(m *pb.JobHead) *plimsoll.JobHead {
	if m == nil {
		return nil
	}
	return &plimsoll.JobHead{UID: UIDFromText(m.GetUid()), Owner: m.GetOwner(), Labels: textMapFromProto(m.GetLabels())}
}
