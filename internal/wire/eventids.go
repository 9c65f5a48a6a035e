package wire

import pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"

// AppendEventIDs encodes the InstanceUUID of the events.
func AppendEventIDs(dst []byte, instance string) []byte {
	return appendMessage(dst, &pb.EventIDs{InstanceUuid: instance})
}

// DecodeEventIDs decodes the InstanceUUID of the events.
func DecodeEventIDs(data []byte) (instance string, err error) {
	var m pb.EventIDs
	if err := decodeMessage("ids of events", data, &m); err != nil {
		return "", err
	}
	return m.GetInstanceUuid(), nil
}
