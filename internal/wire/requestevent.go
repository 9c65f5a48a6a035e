package wire

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// RequestEventToProto converts an event for a resource manager. The caller sets its number and its
// revision.
func RequestEventToProto(e *plimsoll.RequestEvent) *pb.RequestEvent {
	return &pb.RequestEvent{Cause: pb.RequestCause(e.Cause), Owner: text(e.Owner), Event: EventToProto(&e.Event)}
}

// RequestEventFromProto converts an event for a resource manager. A cause of a newer version
// becomes CauseNone.
func RequestEventFromProto(m *pb.RequestEvent) plimsoll.RequestEvent {
	return plimsoll.RequestEvent{
		Cause: EnumFromProto[plimsoll.RequestCause](m.GetCause()), Owner: m.GetOwner(),
		Event: EventFromProto(m.GetEvent()),
	}
}
