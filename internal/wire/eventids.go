package wire

import pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"

// EventIDs says what the ids of events count.
type EventIDs struct {
	Instance string // the InstanceUUID
	First    uint64 // id of its first event; those below are of an earlier instance
}

// AppendEventIDs encodes what the ids of events count.
func AppendEventIDs(dst []byte, ids EventIDs) []byte {
	return appendMessage(dst, &pb.EventIDs{InstanceUuid: text(ids.Instance), FirstId: ids.First})
}

// DecodeEventIDs decodes what the ids of events count.
func DecodeEventIDs(data []byte) (EventIDs, error) {
	var m pb.EventIDs
	if err := decodeMessage("event ids", data, &m); err != nil {
		return EventIDs{}, err
	}
	return EventIDs{Instance: m.GetInstanceUuid(), First: m.GetFirstId()}, nil
}
