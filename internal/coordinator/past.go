package coordinator

import (
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// appendQueuePast encodes the record of a queue's past use.
func appendQueuePast(dst []byte, p *state.QueuePast) []byte {
	return appendStored(dst, &pb.QueuePast{Time: p.Time, Mean: p.Mean})
}

// decodeQueuePast decodes a record that appendQueuePast has made.
func decodeQueuePast(path string, data []byte) (p state.QueuePast, err error) {
	var m pb.QueuePast
	if err := proto.Unmarshal(data, &m); err != nil {
		return p, plimsoll.Errorf(plimsoll.CodeCorrupt, "decode the past of a queue: %v", err)
	}
	return state.QueuePast{Path: path, Time: m.GetTime(), Mean: m.GetMean()}, nil
}
