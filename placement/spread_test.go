package placement_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// member is an instance of the group that asks spreads.
func member(f *placement.Fleet) *placement.Kind {
	return f.Kind(&placement.Instance{Owner: "alice", Job: "j", Group: "g"})
}

func spreadBy(key string, skew int32) func(*placement.Request) {
	return func(r *placement.Request) { r.Constraints.Spread = []plimsoll.Spread{{By: key, MaxSkew: skew}} }
}

// A hard spread keeps a server if its value would then have at most maxSkew more of the group than
// the value with the fewest.
func TestHardSpread(t *testing.T) {
	for _, test := range []struct {
		name  string
		racks []string // of the servers n0, n1, …; empty: no label
		on    []int    // instances of the group on each
		skew  int32
		want  []string
	}{
		{"empty", []string{"a", "b"}, []int{0, 0}, 1, []string{"n0", "n1"}},
		{"one ahead", []string{"a", "b"}, []int{1, 0}, 1, []string{"n1"}},
		{"one ahead, two allowed", []string{"a", "b"}, []int{1, 0}, 2, []string{"n0", "n1"}},
		{"even", []string{"a", "b"}, []int{3, 3}, 1, []string{"n0", "n1"}},
		{"the rack counts, not the server", []string{"a", "a", "b"}, []int{2, 0, 1}, 1, []string{"n2"}},
		{"a server without the label", []string{"a", "", "b"}, []int{0, 0, 0}, 1, []string{"n0", "n2"}},
		{"instances without the label do not count", []string{"a", "", "b"}, []int{1, 9, 1}, 1, []string{"n0", "n2"}},
		{"no server with the label", []string{"", ""}, []int{0, 0}, 1, nil},
		{"one rack", []string{"a", "a"}, []int{7, 0}, 1, []string{"n0", "n1"}},
	} {
		f := fleetOf(len(test.racks), labelled("rack", test.racks...))
		kind := member(f)
		for slot, n := range test.on {
			for range n {
				f.Bind(int32(slot), kind)
			}
		}
		if got := survivors(t, f, asks(1, spreadBy("rack", test.skew)), "spread"); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// The reason of a drop is told: the server has no such label, or its value has too many.
func TestWhySpreadDrops(t *testing.T) {
	f := fleetOf(3, labelled("rack", "a", "b", ""))
	f.Bind(0, member(f))
	got := reasons(t, f, asks(1, spreadBy("rack", 1)), "spread")
	const why = "too many of the group in its rack: rack b has the fewest, 0"
	if got["n0"] != why || got["n2"] != "has no rack" || len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// A new rack has none of the group and takes the next ones. A rack without an open server does not
// hold the others back, nor does a removed one. When all are down no server fits, and the counts
// stay right.
func TestSpreadFollowsTheFleet(t *testing.T) {
	f := fleetOf(2, labelled("rack", "a", "b"))
	kind := member(f)
	for slot := range int32(2) {
		f.Bind(slot, kind)
		f.Bind(slot, kind)
	}
	p := prepare(t, placement.Default(), f, asks(1, spreadBy("rack", 1)))
	pl := newPlacer(f, 1)
	fits := func(want ...string) {
		t.Helper()
		var got []string
		for slot := range int32(f.Len()) {
			if pl.Keeps(p, slot, 0) {
				got = append(got, f.ID(slot))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v fit, want %v", got, want)
		}
	}
	put := func(id, rack, reserved string) int32 {
		s := plain(id, func(s *placement.Server) { s.Labels, s.Reserved = map[string]string{"rack": rack}, reserved })
		return f.Add(&s)
	}
	fits("n0", "n1")
	put("new", "c", "")
	fits("new")
	put("new", "c", "cordoned")
	fits("n0", "n1")
	put("new", "c", "")
	fits("new")
	put("new", "a", "") // moved to another rack
	fits("n0", "n1", "new")
	f.Bind(f.Slot("new"), kind)
	fits("n1")
	put("new", "c", "") // and back, with what runs on it
	fits("new")
	put("n0", "a", "draining")
	put("n1", "b", "draining")
	put("new", "c", "draining")
	fits()
	f.Remove(f.Slot("new"))
	put("n0", "a", "")
	fits("n0")
}

// A spread by node counts servers: the group goes to the one that has none as long as there is one.
func TestSpreadByNode(t *testing.T) {
	f := fleetOf(3)
	kind := member(f)
	pl, p := newPlacer(f, 1), prepare(t, placement.Default(), f, asks(1, spreadBy(placement.SpreadByNode, 1)))
	for round := range 3 {
		seen := map[int32]bool{}
		for range 3 {
			slot := pl.Place(p, 0).Slot
			if slot < 0 || seen[slot] {
				t.Fatalf("round %d: slot %d, and %v have it", round, slot, seen)
			}
			seen[slot] = true
			f.Bind(slot, kind)
		}
	}
}

// Several spreads hold at once: within two racks in two rows.
func TestSeveralSpreads(t *testing.T) {
	f := fleetOf(4, func(i int, s *placement.Server) {
		s.Labels = map[string]string{"rack": fmt.Sprint("r", i), "row": fmt.Sprint("w", i/2)}
	})
	kind := member(f)
	f.Bind(0, kind)
	r := asks(1, func(r *placement.Request) {
		r.Constraints.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 1}, {By: "row", MaxSkew: 1}}
	})
	if got := survivors(t, f, r, "spread"); !slices.Equal(got, []string{"n2", "n3"}) {
		t.Errorf("%v, want the two of the other row", got)
	}
}

// Only instances of the group count: not those of another group of the job, nor those of another
// job.
func TestSpreadCountsTheGroupOnly(t *testing.T) {
	f := fleetOf(2, labelled("rack", "a", "b"))
	f.Bind(0, f.Kind(&placement.Instance{Owner: "alice", Job: "j", Group: "other"}))
	f.Bind(0, f.Kind(&placement.Instance{Owner: "alice", Job: "other", Group: "g"}))
	if got := survivors(t, f, asks(1, spreadBy("rack", 1)), "spread"); len(got) != 2 {
		t.Errorf("%v, want both", got)
	}
}

// A preferred spread drops nothing and goes where the fewest are; servers without the label come
// last.
func TestPreferredSpreadOnlyOrders(t *testing.T) {
	f := fleetOf(4, labelled("rack", "a", "b", "c", ""))
	kind := member(f)
	f.Bind(0, kind)
	f.Bind(1, kind)
	f.Bind(1, kind)
	prefer := func(r *placement.Request) { r.Preferences.Spread = []plimsoll.Spread{{By: "rack"}} }
	c := chainOf(t, stagesNamed("load-instances", "calculate-unreserved", "score-spread"))
	for _, want := range []int32{2, 0, 1, 3} { // each is closed once it was chosen
		p := prepare(t, c, f, asks(1, prefer))
		for seed := range uint64(10) {
			if slot := newPlacer(f, seed).Place(p, 0).Slot; slot != want {
				t.Fatalf("slot %d, want %d", slot, want)
			}
		}
		f.Remove(want)
	}
}

// A fleet keeps nothing of labels that nobody spreads by and of jobs that are gone: after
// thousands of jobs, each with a spread and selectors of its own, there are as many tags and labels
// as after ten.
func TestNothingIsKeptOfJobsThatAreGone(t *testing.T) {
	f := fleetOf(20, labelled("rack", "a", "b"))
	pl := newPlacer(f, 1)
	job := func(i int) {
		id := fmt.Sprint("job", i)
		r := &placement.Request{
			Owner: fmt.Sprint("owner", i), Job: id, Group: "g", Resources: plimsoll.Resources{"cpu": 1},
		}
		r.Constraints.Spread = []plimsoll.Spread{{By: fmt.Sprint("label", i), MaxSkew: 1}, {By: "node", MaxSkew: 1}}
		r.Constraints.Far = []plimsoll.Selector{{Job: fmt.Sprint("foe", i)}, {Label: fmt.Sprint("a=", i)}, {Task: "x"}}
		r.Preferences.Near = []plimsoll.Selector{{Job: fmt.Sprint("friend", i)}}
		p, err := placement.Default().Prepare(f, r)
		if err != nil {
			t.Fatal(err)
		}
		kind := f.Kind(
			&placement.Instance{
				ID: id, Owner: r.Owner, Job: id, Group: "g", Labels: map[string]string{"job": id},
				Resources: r.Resources,
			},
		)
		pl.Place(p, 0)
		f.Bind(3, kind)
		f.Unbind(3, kind)
		f.Forget(kind)
		p.Release()
	}
	for i := range 10 {
		job(i)
	}
	tags, domains := f.TagSpace(), f.Domains()
	for i := range testrun.Count(1_000, 5_000, 10_000) {
		job(i)
	}
	if f.TagSpace() != tags || f.Domains() != domains || len(f.TagNames()) != 0 {
		t.Errorf(
			"%d tags and %d labels, and %d and %d before; %q", f.TagSpace(), f.Domains(), tags, domains, f.TagNames(),
		)
	}
}

// A fleet that loads its instances cannot count those of a group on all servers, and says so.
func TestSpreadNeedsAFleetThatHoldsItsInstances(t *testing.T) {
	f := placement.NewFleet(placement.NewNames())
	f.Loader.Within = time.Second
	f.Loader.Instances = func(string) ([]placement.Instance, error) { return nil, nil }
	r := &placement.Request{Constraints: plimsoll.Constraints{Spread: []plimsoll.Spread{{By: "rack", MaxSkew: 1}}}}
	if _, err := placement.Default().Prepare(f, r); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("got %v", err)
	}
}
