package wire

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// ConsistencyToProto returns the consistency of a request; nil for the zero value.
func ConsistencyToProto(c plimsoll.Consistency) *pb.Consistency {
	if c == (plimsoll.Consistency{}) {
		return nil
	}
	return &pb.Consistency{Level: pb.Freshness(c.Level), Epoch: c.Epoch, Revision: c.Revision}
}

// ConsistencyFromProto is the inverse of ConsistencyToProto. A level that this version does not
// know stays unknown, so that no read is answered with less than it asks for.
func ConsistencyFromProto(m *pb.Consistency) plimsoll.Consistency {
	level := uint64(m.GetLevel())
	return plimsoll.Consistency{
		Level: plimsoll.Freshness(enum(&field{v: level})), Epoch: m.GetEpoch(), Revision: m.GetRevision(),
	}
}
