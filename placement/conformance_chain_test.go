package placement_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/triton"
)

func tritonOrder(vm, pkg, img json.RawMessage, bare bool) triton.Order {
	return triton.Order{VM: vm, Package: pkg, Image: img, Bare: bare}
}

// checkChain runs the whole chain and compares what every stage left.
func (f *conformanceFile) checkChain(t *testing.T, c *conformanceCase) []string {
	in := &c.Input
	r := newRig(t, in.Defaults)
	r.add(t, in.Servers, false)
	r.lazy(&in.External)
	r.tickets(t, in.Tickets)
	var e placement.Expression
	if err := json.Unmarshal(f.Chains[in.Chain], &e); err != nil {
		t.Fatal(err)
	}
	request := r.order(t, in.VM, in.Pkg, in.Img, false)
	got := r.run(t, e, request, c.now(), in.Random)

	var faults []string
	steps := c.Expect.Steps[1:]
	if len(steps) != len(got.Steps) {
		faults = append(faults, fmt.Sprintf("%d stages ran, want %d", len(got.Steps), len(steps)))
	}
	for i := range min(len(steps), len(got.Steps)) {
		faults = append(faults, unlike(got.Steps[i].Stage, got.Steps[i].Kept, steps[i].Remaining, false)...)
	}
	want := ""
	if c.Expect.Server != nil {
		want = *c.Expect.Server
	}
	if got.Chosen != want {
		faults = append(faults, fmt.Sprintf("chosen: got %q, want %q", got.Chosen, want))
	}
	if score, ok := c.Expect.Score.(float64); ok && !near(got.Score, score) {
		faults = append(faults, fmt.Sprintf("score: got %v, want %v", got.Score, score))
	}
	if found := r.place(t, e, request, c.now()).Slot >= 0; found != (want != "") {
		faults = append(faults, fmt.Sprintf("drawn in batches it finds one: %t, want %t", found, want != ""))
	}
	return faults
}

// place runs a chain as it is meant to be, in batches that are drawn.
func (r *rig) place(t *testing.T, e placement.Expression, request *placement.Request, now int64) placement.Choice {
	t.Helper()
	chain, err := placement.NewChain(e, r.stages, nil, r.settings)
	if err != nil {
		t.Fatal(err)
	}
	p, err := chain.Prepare(r.fleet, request)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	return placement.NewPlacer(r.fleet, rand.NewPCG(1, uint64(len(r.ids)))).Place(p, now)
}

// checkCapacity asks what is left on every server.
func checkCapacity(t *testing.T, c *conformanceCase) []string {
	in := &c.Input
	r := newRig(t, in.Defaults)
	if err := r.profile.Override(in.Defaults); err != nil {
		t.Fatal(err)
	}
	r.add(t, in.Servers, false)
	chain, err := placement.CapacityChain(r.stages)
	if err != nil {
		t.Fatal(err)
	}
	var slots []int32
	for _, id := range r.ids {
		slots = append(slots, r.fleet.Slot(id))
	}
	list, err := placement.NewPlacer(r.fleet, rand.NewPCG(1, 2)).Capacities(chain, slots, 0)
	if err != nil {
		t.Fatal(err)
	}
	var faults []string
	for _, got := range list {
		want, counted := c.Expect.Capacities[got.Server]
		if (got.Why == "") != counted {
			faults = append(faults, fmt.Sprintf("%s: got %q, want counted %t", got.Server, got.Why, counted))
		}
		for _, v := range []struct {
			field, name string
			unit        int64
		}{{"cpu", plimsoll.CPU, 10}, {"ram", plimsoll.Memory, mebi}, {"disk", plimsoll.Disk, mebi}} {
			if counted && float64(got.Free[v.name]/v.unit) != want[v.field] {
				faults = append(
					faults,
					fmt.Sprintf(
						"%s of %s: got %d, want %v", v.field, got.Server, got.Free[v.name]/v.unit, want[v.field],
					),
				)
			}
		}
	}
	return faults
}

// checkDispatch runs a chain of stubs.
func checkDispatch(t *testing.T, c *conformanceCase) []string {
	r := newRig(t, nil)
	r.stages = nil
	for _, raw := range c.Input.Servers {
		var id string
		if err := json.Unmarshal(raw, &id); err != nil {
			t.Fatal(err)
		}
		s := placement.NewServer(id, plimsoll.Resources{})
		r.fleet.Add(&s)
	}
	var raw any
	if err := json.Unmarshal(c.Input.Expr, &raw); err != nil {
		t.Fatal(err)
	}
	e, err := placement.ParseExpression(r.stubs(raw))
	if err != nil {
		t.Fatal(err)
	}
	got := r.run(t, e, &placement.Request{}, 0, nil)
	want := ""
	if c.Expect.Server != nil {
		want = *c.Expect.Server
	}
	var faults []string
	if got.Chosen != want {
		faults = append(faults, fmt.Sprintf("chosen: got %q, want %q", got.Chosen, want))
	}
	if len(got.Steps) != len(c.Expect.Called) {
		return append(faults, fmt.Sprintf("%d stubs were called, want %d", len(got.Steps), len(c.Expect.Called)))
	}
	for i, call := range c.Expect.Called {
		faults = append(faults, unlike("called", []string{got.Steps[i].Stage}, []string{call.Stub}, true)...)
		faults = append(faults, unlike(call.Stub, got.Steps[i].Given, call.Given, true)...)
		faults = append(faults, unlike(call.Stub, got.Steps[i].Kept, c.Expect.Steps[i+1].Remaining, true)...)
	}
	return faults
}

// stubs makes stages of the stubs of an expression and puts their names in their place.
func (r *rig) stubs(raw any) any {
	switch v := raw.(type) {
	case []any:
		for i := range v {
			v[i] = r.stubs(v[i])
		}
	case map[string]any:
		keep, some := v["keep"].([]any)
		r.stages = append(r.stages, placement.Stage{
			Name: v["stub"].(string),
			Keep: func(s *placement.View) bool { return !some || slices.Contains(keep, any(s.ID())) },
		})
		return v["stub"]
	}
	return raw
}

// checkScorer gives a score stage servers that stand in a known order, in known groups or at known
// distances.
func checkScorer(t *testing.T, c *conformanceCase) []string {
	f := placement.NewFleet(placement.NewNames())
	settings, stage := placement.DefaultSettings(), ""
	n, w := 0, c.Input.Weight
	add := func(change func(*placement.Server)) {
		s := placement.NewServer(fmt.Sprint("s", n), plimsoll.Resources{})
		change(&s)
		f.Add(&s)
		n++
	}
	switch c.Fn {
	case "linear": // by what is free, the least first
		stage, settings.Weights = "score-unreserved-memory", placement.Weights{UnreservedMemory: w}
		for i := range c.Input.Servers {
			add(func(s *placement.Server) { s.Capacity[plimsoll.Memory] = int64(i) })
		}
	case "linearBuckets": // by what is free of a custom resource, servers with as much in one group
		stage, settings.Weights = "score-unreserved-custom", placement.Weights{UnreservedCustom: w}
		for i, raw := range c.Input.Servers {
			var group []json.RawMessage
			if err := json.Unmarshal(raw, &group); err != nil {
				t.Fatal(err)
			}
			for range group {
				add(func(s *placement.Server) { s.Capacity["gpu"] = int64(1 + i) })
			}
		}
	case "normalize": // by the time of the platform
		stage, settings.Weights = "score-current-platform", placement.Weights{CurrentPlatform: w}
		for _, raw := range c.Input.Servers {
			var pair []any
			if err := json.Unmarshal(raw, &pair); err != nil {
				t.Fatal(err)
			}
			at := time.Date(2020, 1, 1, 0, 0, int(60*pair[1].(float64)), 0, time.UTC)
			add(func(s *placement.Server) { s.Platform = at.Format("20060102T150405Z") })
		}
	default:
		t.Fatalf("%q is not the name of a scorer", c.Fn)
	}
	r := rig{fleet: f, settings: settings, stages: placement.Stages()}
	chain := placement.Pipe(
		placement.Named("load-instances"), placement.Named("calculate-unreserved"), placement.Named(stage),
	)
	got := r.run(t, chain, &placement.Request{}, 0, nil)
	var faults []string
	for i, want := range c.Expect.Scores {
		if score := 1 + got.Scores[fmt.Sprint("s", i)]; !near(score, want) {
			faults = append(faults, fmt.Sprintf("score %d: got %v, want %v", i, score, want))
		}
	}
	return faults
}
