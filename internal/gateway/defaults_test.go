package gateway

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A group that asks for nothing gets a tenth of a processor, and never memory: the leader is sent
// it, the job is stored and answered with it, and a dry run tries it. One that is best-effort, or
// asks for anything, is left as it is.
func TestGroupWithoutResourcesGetsCPU(t *testing.T) {
	tenth := plimsoll.Resources{plimsoll.CPU: 100}
	cases := map[string]struct {
		class plimsoll.Class
		asks  plimsoll.Resources
		want  plimsoll.Resources
	}{
		"nothing":              {want: tenth},
		"zeros":                {asks: plimsoll.Resources{plimsoll.CPU: 0, plimsoll.Memory: 0}, want: tenth},
		"nothing, guaranteed":  {class: plimsoll.ClassGuaranteed, want: tenth},
		"nothing, best-effort": {class: plimsoll.ClassBestEffort},
		"memory alone": {
			asks: plimsoll.Resources{plimsoll.Memory: 1 << 20}, want: plimsoll.Resources{plimsoll.Memory: 1 << 20},
		},
		"lent processors alone": {
			asks: plimsoll.Resources{plimsoll.ExtCPU: 500}, want: plimsoll.Resources{plimsoll.ExtCPU: 500},
		},
		"a custom resource only": {asks: plimsoll.Resources{"gpu": 1}, want: plimsoll.Resources{"gpu": 1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.answer = accept(f)
			s := directly(newGateway(t, Config{}, f))
			spec := func() *pb.JobSpec {
				spec := specNamed("new")
				spec.Groups[0].Resources, spec.Groups[0].Class = c.asks, c.class
				return wire.JobSpecToProto(&spec)
			}
			must(t, s.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: spec()})
			must(t, s.jobs.PlaceJob, &pb.PlaceJobRequest{Spec: spec()})
			stored := must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "new"}).GetJob().GetSpec()
			sent := f.sent()
			for where, got := range map[string]*pb.JobSpec{
				"sent to the leader": sent[0].GetSubmitJob().GetSpec(), "stored": stored,
				"tried": sent[1].GetPlaceJob().GetSpec(),
			} {
				if d := cmp.Diff(
					c.want, wire.ResourcesFromProto(got.GetGroups()[0].GetResources()),
				); d != "" && len(c.want) > 0 {
					t.Errorf("%s, -want +got:\n%s", where, d)
				} else if len(c.want) == 0 && !asksForNothing(wire.ResourcesFromProto(got.GetGroups()[0].GetResources())) {
					t.Errorf("%s: it got something", where)
				}
			}
		})
	}
}
