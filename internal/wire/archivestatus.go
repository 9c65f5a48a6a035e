package wire

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// ArchiveStatusToProto converts the status of the archive.
func ArchiveStatusToProto(s *plimsoll.ArchiveStatus) *pb.ArchiveStatus {
	return &pb.ArchiveStatus{
		Mode: pb.ArchiveMode(s.Mode), Id: text(s.ID), Sequence: s.Sequence, Trouble: text(s.Trouble),
	}
}

// ArchiveStatusFromProto converts the status of the archive.
func ArchiveStatusFromProto(m *pb.ArchiveStatus) plimsoll.ArchiveStatus {
	return plimsoll.ArchiveStatus{
		Mode: EnumFromProto[plimsoll.ArchiveMode](m.GetMode()), ID: m.GetId(), Sequence: m.GetSequence(),
		Trouble: m.GetTrouble(),
	}
}

// AppendArchiveStatus encodes the status of the archive.
func AppendArchiveStatus(dst []byte, s *plimsoll.ArchiveStatus) []byte {
	return appendMessage(dst, ArchiveStatusToProto(s))
}

// DecodeArchiveStatus decodes the status of the archive.
func DecodeArchiveStatus(data []byte) (plimsoll.ArchiveStatus, error) {
	var m pb.ArchiveStatus
	if err := decodeMessage("archive status", data, &m); err != nil {
		return plimsoll.ArchiveStatus{}, err
	}
	if err := checkEnum[plimsoll.ArchiveMode]("mode", m.GetMode()); err != nil {
		return plimsoll.ArchiveStatus{}, corrupt("archive status", err)
	}
	return ArchiveStatusFromProto(&m), nil
}
