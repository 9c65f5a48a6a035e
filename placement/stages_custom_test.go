package placement_test

import (
	"math/rand/v2"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// customServer is a server with gpus, of which something is used.
type customServer struct {
	id             string
	cpu, gpu       int64
	usedCPU, usedG int64
}

// With the default chain, custom resources stay usable: what is told in each sentence is the server
// that is chosen.
func TestCustomResourcesStayUsable(t *testing.T) {
	plain := customServer{id: "plain", cpu: 16}
	tests := []struct {
		sentence string
		cpu, gpu int64
		servers  []customServer
		want     string
	}{
		{
			"Who asks for no gpu goes where there is none.", 4, 0,
			[]customServer{{id: "gpus", cpu: 16, gpu: 4}, plain},
			"plain",
		},
		{
			"Where all servers have gpus, who asks for none goes where they are in use.", 4, 0,
			[]customServer{{id: "free", cpu: 16, gpu: 4}, {id: "used", cpu: 16, gpu: 4, usedCPU: 4, usedG: 4}},
			"used",
		},
		{
			"Who asks for much cpu beside one gpu goes where there is much cpu for each gpu.", 8, 1,
			[]customServer{{id: "gpus", cpu: 16, gpu: 8}, {id: "cpus", cpu: 16, gpu: 2}},
			"cpus",
		},
		{
			"Who asks for little cpu beside two gpus goes where gpus are already stranded.", 1, 2,
			[]customServer{{id: "even", cpu: 16, gpu: 4}, {id: "stranded", cpu: 16, gpu: 4, usedCPU: 12}},
			"stranded",
		},
	}
	for _, tt := range tests {
		for seed := range uint64(20) {
			f := placement.NewFleet(placement.NewNames())
			for _, s := range tt.servers {
				server := placement.NewServer(
					s.id, plimsoll.Resources{"cpu": s.cpu * 1000, "memory": 64 << 30, "gpu": s.gpu},
				)
				slot := f.Add(&server)
				f.Bind(
					slot,
					f.Kind(&placement.Instance{
						Owner: "somebody", Resources: plimsoll.Resources{"cpu": s.usedCPU * 1000, "gpu": s.usedG},
					}),
				)
			}
			p, err := placement.Default().Prepare(
				f,
				&placement.Request{
					Resources: plimsoll.Resources{"cpu": tt.cpu * 1000, "memory": 1 << 30, "gpu": tt.gpu},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.ID(placement.NewPlacer(f, rand.NewPCG(seed, 1)).Place(p, 1).Slot); got != tt.want {
				t.Errorf("%s\n  seed %d: got %s", tt.sentence, seed, got)
			}
		}
	}
}

// A request for a custom resource leaves servers of which there are few to those that can use only
// them.
func TestRareServersAreLeft(t *testing.T) {
	f := placement.NewFleet(placement.NewNames())
	for _, id := range []string{"rare", "a", "b", "c", "d"} {
		s := placement.NewServer(id, plimsoll.Resources{"cpu": 16000, "memory": 64 << 30, "gpu": 4})
		s.Labels = map[string]string{"gpu": map[bool]string{true: "new", false: "old"}[id == "rare"]}
		f.Add(&s)
	}
	settings := placement.DefaultSettings()
	settings.Weights = placement.Weights{UnreservedCustom: 1}
	chain, err := placement.NewChain(placement.DefaultExpression(), placement.Stages(), nil, settings)
	if err != nil {
		t.Fatal(err)
	}
	p, err := chain.Prepare(
		f, &placement.Request{Resources: plimsoll.Resources{"cpu": 1000, "memory": 1 << 30, "gpu": 1}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		if got := f.ID(placement.NewPlacer(f, rand.NewPCG(seed, 1)).Place(p, 1).Slot); got == "rare" {
			t.Errorf("seed %d: chose the only server of its kind", seed)
		}
	}
}

// Instances with custom resources are packed although the owner has instances there; instances
// without are spread.
func TestOwnersOfCustomResourcesArePacked(t *testing.T) {
	for asked, want := range map[int64]string{1: "used", 0: "empty"} {
		f := placement.NewFleet(placement.NewNames())
		for _, id := range []string{"used", "empty"} {
			s := placement.NewServer(id, plimsoll.Resources{"cpu": 16000, "memory": 64 << 30, "gpu": 4})
			f.Add(&s)
		}
		f.Bind(
			f.Slot("used"),
			f.Kind(&placement.Instance{
				Owner: "o", Resources: plimsoll.Resources{"cpu": 4000, "memory": 16 << 30, "gpu": 1},
			}),
		)
		p, err := placement.Default().Prepare(
			f,
			&placement.Request{
				Owner: "o", Resources: plimsoll.Resources{"cpu": 4000, "memory": 16 << 30, "gpu": asked},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.ID(placement.NewPlacer(f, rand.NewPCG(1, 1)).Place(p, 1).Slot); got != want {
			t.Errorf("asking for %d gpus: got %s, want %s", asked, got, want)
		}
	}
}
