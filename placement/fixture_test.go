package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

const gib = int64(1 << 30)

// plain returns a server of 4 cores, 8Gi of memory and 100Gi of disk, changed as wished.
func plain(id string, change ...func(*placement.Server)) placement.Server {
	s := placement.NewServer(id, plimsoll.Resources{"cpu": 4000, "memory": 8 * gib, "disk": 100 * gib})
	for _, c := range change {
		c(&s)
	}
	return s
}

// fleetWith returns a fleet of servers, in the slots in which they are given.
func fleetWith(servers ...placement.Server) *placement.Fleet {
	f := placement.NewFleet(placement.NewNames())
	for i := range servers {
		f.Add(&servers[i])
	}
	return f
}

// fleetOf returns a fleet of n plain servers n0, n1 and so on, each changed as wished.
func fleetOf(n int, change ...func(int, *placement.Server)) *placement.Fleet {
	servers := make([]placement.Server, n)
	for i := range servers {
		servers[i] = plain(fmt.Sprintf("n%d", i))
		for _, c := range change {
			c(i, &servers[i])
		}
	}
	return fleetWith(servers...)
}

// labelled gives every server a label, dealt out in turn.
func labelled(key string, values ...string) func(int, *placement.Server) {
	return func(i int, s *placement.Server) {
		if v := values[i%len(values)]; v != "" {
			s.Labels = map[string]string{key: v}
		}
	}
}

// asks returns a request for so many thousandths of a core.
func asks(milli int64, change ...func(*placement.Request)) *placement.Request {
	r := &placement.Request{Owner: "alice", Job: "j", Group: "g", Resources: plimsoll.Resources{"cpu": milli}}
	for _, c := range change {
		c(r)
	}
	return r
}

// failer has the methods that this package's tests use of testing.T and of rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

func prepare(t failer, c *placement.Chain, f *placement.Fleet, r *placement.Request) *placement.Prepared {
	t.Helper()
	p, err := c.Prepare(f, r)
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	t.Cleanup(p.Release)
	return p
}

// chainOf returns a chain of stages in a pipe, with settings that are changed as wished.
func chainOf(t failer, e placement.Expression, change ...func(*placement.Settings)) *placement.Chain {
	t.Helper()
	return chainWith(t, e, placement.Stages(), change...)
}

func chainWith(
	t failer, e placement.Expression, stages []placement.Stage, change ...func(*placement.Settings),
) *placement.Chain {
	t.Helper()
	settings := placement.DefaultSettings()
	for _, c := range change {
		c(&settings)
	}
	c, err := placement.NewChain(e, stages, nil, settings)
	if err != nil {
		t.Fatalf("chain: %v", err)
	}
	return c
}

func stagesNamed(names ...string) placement.Expression {
	e := placement.Expression{Op: "pipe"}
	for _, name := range names {
		e.List = append(e.List, placement.Named(name))
	}
	return e
}

func newPlacer(f *placement.Fleet, seed uint64) *placement.Placer {
	return placement.NewPlacer(f, rand.NewPCG(seed, seed))
}

// watched returns the default chain with one more filter in front, and the ids of the servers that
// this one was asked about, in order.
func watched(t failer, change ...func(*placement.Settings)) (*placement.Chain, *[]string) {
	seen := &[]string{}
	watch := placement.Stage{Name: "watch", Keep: func(
		v *placement.View,
	) bool {
		*seen = append(*seen, v.ID())
		return true
	}}
	e := placement.DefaultExpression()
	e.List = append([]placement.Expression{placement.Named("watch")}, e.List...)
	return chainWith(t, e, append(placement.Stages(), watch), change...), seen
}

// survivors returns the ids of the servers that a chain of one stage keeps, in the order in which
// they come out. A score notes them. The stage gets all servers in the order of the fleet.
func survivors(
	t failer, f *placement.Fleet, r *placement.Request, stage string, change ...func(*placement.Settings),
) []string {
	t.Helper()
	var out []string
	note := placement.Stage{Name: "note", Scores: true, Batch: func(b *placement.Batch, set []int32) []int32 {
		out = nil
		for _, i := range set {
			out = append(out, b.At(i).ID())
		}
		return set
	}}
	c := chainWith(
		t, stagesNamed("load-instances", "calculate-tickets", "calculate-unreserved", stage, "note"),
		append(placement.Stages(), note), change...,
	)
	newPlacer(f, 1).Explain(prepare(t, c, f, r), 0)
	return out
}

// reasons returns why a stage of the default chain drops servers: text by server.
func reasons(
	t failer, f *placement.Fleet, r *placement.Request, stage string, change ...func(*placement.Settings),
) map[string]string {
	t.Helper()
	out := map[string]string{}
	c := chainOf(t, placement.DefaultExpression(), change...)
	p := prepare(t, c, f, r)
	pl := newPlacer(f, 1)
	for slot := range int32(f.Len()) {
		for _, v := range pl.ExplainServer(p, slot, 0) {
			if v.Stage == stage && v.Why != "" {
				out[f.ID(slot)] = v.Why
			}
		}
	}
	return out
}

// wantError fails unless an error says just what is wanted.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("error\n%v, want\n%s", err, want)
	}
}

// slotOf places a request with the default chain and returns the slot.
func slotOf(t failer, f *placement.Fleet, r *placement.Request, seed uint64) int32 {
	t.Helper()
	return newPlacer(f, seed).Place(prepare(t, placement.Default(), f, r), 0).Slot
}
