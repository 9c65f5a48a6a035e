package gateway

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// leastCPU is what a group gets that asks for nothing and does not say that it is best-effort: else
// any number of its tasks would fit on any node.
const leastCPU = 100 // milli-cores

// complete fills in what a user's job leaves out. It is done here and nowhere else, so that the job
// is stored and shown with it: the engine and the Go library add nothing.
func complete(spec *pb.JobSpec) {
	if spec.Queue == "" {
		spec.Queue = plimsoll.DefaultQueue
	}
	for _, m := range spec.GetGroups() {
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
