package wire

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// HistorianToProto converts a registered historian.
func HistorianToProto(h *plimsoll.Historian) *pb.Historian {
	return &pb.Historian{Name: text(h.Name), InstanceUuid: text(h.InstanceUUID), Next: h.Next, Heard: h.Heard}
}

// HistorianFromProto converts a registered historian.
func HistorianFromProto(m *pb.Historian) plimsoll.Historian {
	return plimsoll.Historian{
		Name: m.GetName(), InstanceUUID: m.GetInstanceUuid(), Next: m.GetNext(), Heard: m.GetHeard(),
	}
}

// AppendHistorian encodes a registered historian.
func AppendHistorian(dst []byte, h *plimsoll.Historian) []byte {
	return appendMessage(dst, HistorianToProto(h))
}

// DecodeHistorian decodes a registered historian.
func DecodeHistorian(data []byte) (plimsoll.Historian, error) {
	var m pb.Historian
	if err := decodeMessage("historian", data, &m); err != nil {
		return plimsoll.Historian{}, err
	}
	return HistorianFromProto(&m), nil
}
