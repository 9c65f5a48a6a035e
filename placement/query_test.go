package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// anyServer draws a record of which a request may like everything or nothing.
func anyServer(t *rapid.T, id string) placement.Server {
	s := placement.NewServer(
		id, plimsoll.Resources{"cpu": 8000, "memory": rapid.Int64Range(0, 8).Draw(t, "memory") << 30},
	)
	s.Setup = rapid.IntRange(0, 9).Draw(t, "setup") > 0
	s.Status = rapid.SampledFrom([]string{"running", "running", "running", "unknown", ""}).Draw(t, "status")
	s.Reserved = rapid.SampledFrom([]string{"", "", "", "cordoned"}).Draw(t, "reserved")
	s.Fault = rapid.SampledFrom([]string{"", "", "", "", "", "its disk is gone"}).Draw(t, "fault")
	s.Headnode = rapid.IntRange(0, 5).Draw(t, "headnode") == 0
	s.Reservoir = rapid.Bool().Draw(t, "reservoir")
	s.Traits = rapid.SampledFrom([]map[string]plimsoll.Trait{
		nil,
		{},
		{"ssd": {Flag: true}},
		{"ssd": {}},
		{"ssd": {Flag: true}, "tier": {Words: []string{"gold"}}},
		{"tier": {Words: []string{"gold", "tin"}}},
	}).Draw(t, "traits")
	s.Networks = rapid.SampledFrom([]map[string]bool{nil, {}, {"a": true}, {"a": false, "b": true}}).Draw(t, "networks")
	s.Release = rapid.SampledFrom([]string{"", "6.5", "7.0"}).Draw(t, "release")
	s.Platform = rapid.SampledFrom([]string{"", "20250101T000000Z", "20260101T000000Z"}).Draw(t, "platform")
	s.Overprovision = rapid.SampledFrom(
		[]map[string]float64{nil, {"cpu": 4}, {"cpu": 4.001}, {"cpu": 4, "memory": -1}},
	).Draw(t, "overprovision")
	s.Labels = map[string]string{"rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack")}
	return s
}

// anyRequest draws what may be asked of the servers of anyServer.
func anyRequest(t *rapid.T) placement.Request {
	r := placement.Request{
		Owner:     rapid.SampledFrom([]string{"alice", "bob"}).Draw(t, "owner"),
		Resources: plimsoll.Resources{"cpu": 500, "memory": rapid.Int64Range(0, 4).Draw(t, "asked") << 30},
		AnyClass:  rapid.Bool().Draw(t, "any class"),
	}
	c := &r.Constraints
	c.Traits = rapid.SampledFrom(
		[]map[string]plimsoll.Trait{nil, nil, {"ssd": {Flag: true}}, {"tier": {Words: []string{"gold"}}}},
	).Draw(t, "asked traits")
	c.Networks = rapid.SampledFrom([][][]string{nil, nil, {}, {{"a"}}, {{"a", "b"}}, {{}}}).Draw(t, "asked networks")
	c.Platform = rapid.SampledFrom([]plimsoll.PlatformRange{
		{}, {}, {Min: map[string]string{"": "20250601T000000Z"}}, {Max: map[string]string{"7.0": "20250601T000000Z"}},
	}).Draw(t, "asked platform")
	c.Nodes = rapid.SampledFrom([][]string{nil, nil, {"n?"}, {"*1", "*2"}}).Draw(t, "asked nodes")
	c.Reservoir = rapid.SampledFrom(
		[]plimsoll.ReservoirUse{0, 0, plimsoll.ReservoirNever, plimsoll.ReservoirOnly},
	).Draw(t, "asked reservoir")
	c.Class = rapid.SampledFrom([]map[string]float64{nil, {"cpu": 4}}).Draw(t, "class")
	return r
}

// chains are those whose queries are told apart: the default, one that asks little, and one with
// alternatives.
func chains(t *rapid.T) *placement.Chain {
	settings := placement.DefaultSettings()
	settings.Headnodes = rapid.Bool().Draw(t, "headnodes")
	some := placement.Pipe(
		placement.Named("traits"), placement.Named("load-instances"), placement.Named("calculate-unreserved"),
		placement.Named("min-memory"),
	)
	either := placement.Pipe(
		placement.Named("setup"), placement.Or(placement.Named("traits"), placement.Named("networks")),
		placement.Named("running"),
	)
	e := rapid.SampledFrom([]placement.Expression{placement.DefaultExpression(), some, either}).Draw(t, "chain")
	c, err := placement.NewChain(e, placement.Stages(), nil, settings)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A server that the query leaves out is one that the chain refuses: so no source that heeds the
// query loses a server.
func TestTheQueryLosesNoServer(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		request, chain := anyRequest(t), chains(t)
		for i := range 10 {
			s := anyServer(t, fmt.Sprint("n", i))
			f := placement.NewFleet(placement.NewNames())
			f.Add(&s)
			p, err := chain.Prepare(f, &request)
			if err != nil {
				t.Fatal(err)
			}
			pl := placement.NewPlacer(f, rand.NewPCG(1, 2))
			left := pl.Evaluate(p, []int32{0}, 1, 1).Survivors
			if !p.Query().Matches(&s) && len(left) > 0 {
				t.Fatalf("the query %+v refuses %+v, and the chain does not", p.Query(), s)
			}
		}
	})
}

// The query says all that the filters by record say together, but for where, volumes-from and
// faults.
func TestTheQuerySaysWhatTheFiltersSay(t *testing.T) {
	e := placement.Expression{Op: "pipe"}
	for _, name := range []string{
		"setup", "running", "reserved", "networks", "platform-versions", "traits", "headnode", "overprovision-ratios",
		"names", "reservoir-use",
	} {
		e.List = append(e.List, placement.Named(name))
	}
	chain, err := placement.NewChain(e, placement.Stages(), nil, placement.DefaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	testrun.Check(t, func(t *rapid.T) {
		request, s := anyRequest(t), anyServer(t, "n1")
		f := placement.NewFleet(placement.NewNames())
		f.Add(&s)
		p, err := chain.Prepare(f, &request)
		if err != nil {
			t.Fatal(err)
		}
		left := placement.NewPlacer(f, rand.NewPCG(1, 2)).Evaluate(p, []int32{0}, 1, 1).Survivors
		if s.Fault == "" && p.Query().Matches(&s) != (len(left) == 1) {
			t.Fatalf("the query %+v and the chain disagree about %+v", p.Query(), s)
		}
	})
}

// A filter that replaces one of the package's own is not pushed down. Neither are the alternatives
// after it.
func TestOnlyTheFiltersOfThePackageArePushedDown(t *testing.T) {
	stages := placement.Stages()
	for i := range stages {
		if stages[i].Name == "setup" {
			stages[i].Keep = func(*placement.View) bool { return true }
		}
	}
	e := placement.Pipe(
		placement.Named("setup"), placement.Named("running"),
		placement.Or(placement.Named("reserved"), placement.Named("identity")), placement.Named("traits"),
	)
	c, err := placement.NewChain(e, stages, nil, placement.DefaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Prepare(placement.NewFleet(placement.NewNames()), &placement.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(placement.Query{Running: true}, p.Query()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A request that is spread wants to see every server, because what runs on the others counts too.
func TestASpreadRequestAsksForAllServers(t *testing.T) {
	r := placement.Request{Job: "web", Group: "front"}
	r.Constraints.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 1}}
	p, err := placement.Default().Prepare(placement.NewFleet(placement.NewNames()), &r)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(placement.Query{}, p.Query()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
