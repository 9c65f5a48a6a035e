package gateway

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// addKnown completes the status of a job for each group that waits for a resource that no node has:
// it adds the names that nodes have now, those of the root queue. The record does not hold these
// names, because they change with the nodes.
func addKnown(s *replica.Snapshot, status *pb.JobStatus) error {
	var known []string
	for _, g := range status.GetGroups() {
		if g.GetWaitCode() != pb.WaitCode_WAIT_CODE_NO_RESOURCE {
			continue
		}
		if known == nil {
			root, err := load[pb.QueueStatus](s, wire.KindQueueStatus, plimsoll.RootQueue)
			if err != nil {
				return err
			}
			known = slices.Clone(plimsoll.StandardResources[:])
			for name := range root.GetMax().GetAmounts() {
				known = append(known, name)
			}
		}
		g.WaitKnown = plimsoll.KnownResources(g.GetWaitResource(), known)
	}
	return nil
}
