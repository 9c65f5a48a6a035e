package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// racks returns servers of 4 cores in racks of two, the last of which is cordoned.
func racks(n int) *Fleet {
	f := NewFleet(NewNames())
	for i := range n {
		s := NewServer(fmt.Sprintf("s%d", i), plimsoll.Resources{plimsoll.CPU: 4000, plimsoll.Memory: 8 << 30})
		s.Labels = map[string]string{"rack": fmt.Sprintf("r%d", i/2)}
		if i == n-1 {
			s.Reserved = "cordoned"
		}
		f.Add(&s)
	}
	return f
}

func cores(n int64) Request {
	return Request{Owner: "alice", Job: "j", Group: "g", Resources: plimsoll.Resources{plimsoll.CPU: n}}
}

// A trial deducts what it places: it ends when the fleet is full, says where each instance goes,
// what is left there, and why the next one finds no server.
func TestATrialDeductsWhatItPlaces(t *testing.T) {
	f := racks(3)
	tried, err := NewPlacer(f, rand.NewPCG(1, 1)).Try(Default(), []Ask{{Request: cores(1500), Count: 10}}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := &tried[0]
	if len(got.Placed) != 4 || got.Stopped || got.Why == nil {
		t.Fatalf("placed %v, stopped %t, why %v", got.Placed, got.Stopped, got.Why)
	}
	left := map[string]int64{"s0": 4000, "s1": 4000}
	for i, p := range got.Placed {
		left[p.Server] -= 1500
		if n := got.Free(i)[plimsoll.CPU]; n != left[p.Server] {
			t.Errorf("placement %d leaves %d on %s, want %d", i, n, p.Server, left[p.Server])
		}
	}
	if s := got.Why.Summary(); !strings.Contains(s, "1 of 3 nodes: cordoned") ||
		!strings.Contains(s, "2 of 3 nodes: not enough cpu") {
		t.Errorf("the fifth is refused because: %s", s)
	}
}

// The asks of one trial see each other.
func TestTheAsksOfATrialShareTheRoom(t *testing.T) {
	tried, err := NewPlacer(racks(2), rand.NewPCG(1, 1)).Try(
		Default(), []Ask{{Request: cores(3000), Count: 1}, {Request: cores(3000), Count: 1}}, 0, 0,
	)
	if err != nil || len(tried[0].Placed) != 1 || len(tried[1].Placed) != 0 {
		t.Errorf("%v %+v", err, tried)
	}
}

// The bound on work ends a trial before it is known what the others do.
func TestATrialIsBounded(t *testing.T) {
	tried, err := NewPlacer(racks(40), rand.NewPCG(1, 1)).Try(
		Default(), []Ask{{Request: cores(1), Count: 1000}}, 0, 500,
	)
	if n := len(tried[0].Placed); err != nil || !tried[0].Stopped || tried[0].Why != nil || n == 0 || n > 20 {
		t.Errorf("%v, %d placed, %+v", err, n, tried[0].Stopped)
	}
}

// A bad request is refused, and one that cannot be booked is too.
func TestATrialRefusesWhatItCannotDo(t *testing.T) {
	pl := NewPlacer(racks(2), rand.NewPCG(1, 1))
	bad := cores(1)
	bad.Constraints.Where = "node.nothing"
	if _, err := pl.Try(
		Default(), []Ask{{Request: cores(1)}, {Request: bad}}, 0, 0,
	); err == nil || !strings.HasPrefix(err.Error(), "asks[1].constraints.where") {
		t.Errorf("a bad expression: %v", err)
	}
	pl.fleet.Loader.Instances = func(string) ([]Instance, error) { return nil, nil }
	if _, err := pl.Try(Default(), []Ask{{Request: cores(1)}}, 0, 0); err == nil ||
		!strings.Contains(err.Error(), "give its servers their instances") {
		t.Errorf("a fleet that loads instances: %v", err)
	}
}

// picture is all of a fleet that a placement or somebody who waits could notice.
func picture(f *Fleet) string {
	var b strings.Builder
	for i := range f.rows {
		r := f.rows[i]
		fmt.Fprintf(
			&b, "%s %v %d %d %d %v %v\n", f.ids[i], r.free, r.class, r.count, r.uncapped, f.loads[i].used,
			f.loads[i].last,
		)
		fmt.Fprintf(&b, " owners %v", r.owners)
		for _, t := range f.loads[i].tags {
			fmt.Fprintf(&b, " %q=%d", f.tags.info[t.tag].name, t.n)
		}
	}
	for _, name := range sortedKeys(f.tags.index) {
		info := &f.tags.info[f.tags.index[name]]
		fmt.Fprintf(&b, "%q refs %d version %d\n", name, info.refs, info.version)
		for _, c := range info.counters {
			counts := slices.Clone(c.counts)
			for len(counts) > 0 && counts[len(counts)-1] == 0 {
				counts = counts[:len(counts)-1]
			}
			fmt.Fprintf(&b, " by %d: refs %d, %v\n", c.domain, c.refs, counts)
		}
	}
	for i := range f.domains {
		fmt.Fprintf(&b, "%+v\n", f.domains[i])
	}
	for _, c := range f.classes {
		fmt.Fprintf(&b, "class of %d\n", c.servers)
	}
	fmt.Fprintf(
		&b, "%d moves, %d dead, epoch %d, names %v, %d servers", f.moves, f.dead, f.epoch, f.Names.names, f.servers,
	)
	return b.String()
}

// After any trial the fleet is as it was: its bookings, the versions that waiting requests compare,
// and the names of resources and labels.
func TestATrialLeavesTheFleetAsItWas(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 7))
		f := racks(20)
		spread := cores(500)
		spread.Constraints.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 2}}
		waits, err := Default().Prepare(f, &spread)
		if err != nil {
			t.Fatal(err)
		}
		kind := f.Kind(
			&Instance{
				Owner: "alice", Job: "j", Group: "g", Labels: map[string]string{"app": "db"},
				Resources: spread.Resources,
			},
		)
		for range rng.IntN(30) {
			f.Bind(int32(rng.IntN(20)), kind)
		}
		before, relations := picture(f), waits.Relations()
		var asks []Ask
		for range 1 + rng.IntN(3) {
			r := cores(int64(rng.IntN(2000)))
			r.Owner, r.Job = []string{"alice", "bob"}[rng.IntN(2)], []string{"j", "k"}[rng.IntN(2)]
			if rng.IntN(2) == 0 {
				r.Constraints.Spread = []plimsoll.Spread{
					{By: []string{"rack", "zone", SpreadByNode}[rng.IntN(3)], MaxSkew: 1},
				}
				r.Preferences.Far = []plimsoll.Selector{{Label: "app=db"}}
			}
			if rng.IntN(4) == 0 {
				r.Resources["gpu"] = 1
			}
			asks = append(asks, Ask{Request: r, Labels: map[string]string{"app": "db"}, Count: rng.IntN(50)})
		}
		if _, err := NewPlacer(f, rand.NewPCG(seed, 1)).Try(Default(), asks, 0, rng.IntN(3000)); err != nil {
			t.Fatal(err)
		}
		if after := picture(f); after != before || waits.Relations() != relations {
			t.Fatalf("seed %d: the fleet was\n%s\nand is\n%s", seed, before, after)
		}
	}
}
