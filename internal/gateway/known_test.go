package gateway

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A job that waits for a resource that no node has is answered with those that nodes have now.
func TestAMissingResourceIsAnsweredWithThoseThatNodesHave(t *testing.T) {
	f := cluster()
	root := plimsoll.QueueStatus{Path: "root", Max: plimsoll.Resources{"cpu": 8000, "nvidia.com/gpu": 4}}
	f.put(
		putSpec(
			specNamed("w"),
		), putStatus(plimsoll.JobStatus{ID: "w", State: plimsoll.JobAccepted, Groups: []plimsoll.GroupStatus{
			{Name: "map", Wait: plimsoll.WaitCause{Code: plimsoll.WaitNoResource, Resource: "gpu", Asked: 1}},
		}}),
		wire.Mutation{Kind: wire.KindQueueStatus, Key: "root", Value: wire.AppendQueueStatus(nil, &root)},
	)
	s := directly(newGateway(t, Config{}, f))
	const want = "no node has gpu (known: cpu, disk, memory, nvidia.com/gpu; did you mean nvidia.com/gpu?)"
	sentence := func(m *pb.JobStatus) string {
		status := wire.JobStatusFromProto(m)
		return status.Groups[0].Wait.String()
	}
	if got := sentence(must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "w"}).GetJob().GetStatus()); got != want {
		t.Errorf("get: %q, want %q", got, want)
	}
	list := must(t, s.jobs.ListJobs, &pb.ListJobsRequest{After: "c"}).GetJobs()
	if got := sentence(list[0]); got != want {
		t.Errorf("list: %q, want %q", got, want)
	}
}
