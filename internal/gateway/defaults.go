package gateway

import (
	"math"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// leastCPU is the request of a group that asks for nothing and is not marked as best-effort.
// Without it any number of the group's tasks would fit on any node.
const leastCPU = 100 // milli-cores

// complete sets the defaults of the fields that a user's job leaves out. Defaults are set here
// alone, and so the job is stored and shown with them: the engine and the Go library add none. The
// queue is no such field: the engine chooses it by the placement rules.
func complete(spec *pb.JobSpec) {
	for _, m := range spec.GetGroups() {
		if m.Count == 0 && len(m.GetIndexes()) > 0 {
			m.Count = int32(min(len(m.GetIndexes()), math.MaxInt32))
		}
		if m.Count == 0 {
			m.Count = plimsoll.DefaultCount
		}
		if g := wire.GroupSpecFromProto(m); g.Worth() != plimsoll.ClassBestEffort && asksForNothing(g.Resources) {
			m.Resources = wire.ResourcesToProto(plimsoll.Resources{plimsoll.CPU: leastCPU})
		}
	}
}

func asksForNothing(r plimsoll.Resources) bool {
	for _, amount := range r {
		if amount != 0 {
			return false
		}
	}
	return true
}
