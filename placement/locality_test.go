package placement_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// neighbours returns a fleet: n0 has a database of bob's, n1 a web server of alice's, n2 both, n3
// nothing.
func neighbours() *placement.Fleet {
	db := placement.Instance{Owner: "bob", Job: "data", Labels: map[string]string{"app": "db"}}
	web := placement.Instance{Owner: "alice", Job: "site", Labels: map[string]string{"app": "web"}}
	named := func(in placement.Instance, id string) placement.Instance { in.ID = id; return in }
	on := func(id string, list ...placement.Instance) placement.Server {
		return plain(id, func(s *placement.Server) { s.Instances = list })
	}
	return fleetWith(
		on("n0", named(db, "db0")), on("n1", named(web, "web1")), on("n2", named(db, "db2"), named(web, "web2")),
		on("n3"),
	)
}

// "hard-filter-locality-hints": far drops servers with any of the instances, near keeps those with
// all of them.
func TestHardLocality(t *testing.T) {
	type selectors = []plimsoll.Selector
	db, web, site := plimsoll.Selector{Label: "app=db"}, plimsoll.Selector{
		Label: "app=web",
	}, plimsoll.Selector{Job: "site"}
	for _, test := range []struct {
		name      string
		near, far selectors
		ownOnly   bool
		want      []string
	}{
		{"near", selectors{db}, nil, false, []string{"n0", "n2"}},
		{"near all of several", selectors{db, site}, nil, false, []string{"n2"}},
		{"far", nil, selectors{db}, false, []string{"n1", "n3"}},
		{"far from any of several", nil, selectors{db, web}, false, []string{"n3"}},
		{"near and far", selectors{db}, selectors{site}, false, []string{"n0"}},
		{"near what it is far from", selectors{db}, selectors{db}, false, nil},
		{"near one", selectors{{Task: "web1"}}, nil, false, []string{"n1"}},
		{"near two that are apart", selectors{{Task: "web1"}, {Task: "db0"}}, nil, false, nil},
		{"near what is nowhere", selectors{{Task: "gone"}}, nil, false, nil},
		{
			"far from what is nowhere", nil,
			selectors{{Task: "gone"}, {Job: "gone"}, {Label: "app=gone"}},
			false,
			[]string{"n0", "n1", "n2", "n3"},
		},
		{"near one of somebody else", selectors{{Task: "db0"}}, nil, true, nil},
		{"near two, of which the second is somebody else's", selectors{{Task: "web2"}, {Task: "db2"}}, nil, true, nil},
		{"the same two, whoever owns them", selectors{{Task: "web2"}, {Task: "db2"}}, nil, false, []string{"n2"}},
		{
			"far from one of somebody else", nil,
			selectors{{Task: "db0"}, {Task: "web1"}},
			true,
			[]string{"n0", "n2", "n3"},
		},
	} {
		r := asks(1, func(r *placement.Request) {
			r.Constraints.Near, r.Constraints.Far, r.OwnOnly = test.near, test.far, test.ownOnly
		})
		if got := survivors(t, neighbours(), r, "locality"); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	r := asks(1, func(r *placement.Request) { r.Constraints.Near, r.Constraints.Far = selectors{db}, selectors{web} })
	got := reasons(t, neighbours(), r, "locality")
	if got["n1"] != "holds instances that it must be far from" ||
		got["n3"] != "does not hold the instances that it must be near" || len(got) != 3 {
		t.Errorf("%q", got)
	}
}

// "soft-filter-locality-hints": a preference drops servers unless it would drop all; far goes
// before near. It works beside a hard constraint. Without any of them, servers with instances of
// the owner give way to others.
func TestSoftLocality(t *testing.T) {
	type selectors = []plimsoll.Selector
	db, web := plimsoll.Selector{Label: "app=db"}, plimsoll.Selector{Label: "app=web"}
	for _, test := range []struct {
		name                         string
		near, far, hardNear, hardFar selectors
		want                         []string
	}{
		{"near any of several", selectors{db, web}, nil, nil, nil, []string{"n0", "n1", "n2"}},
		{"near", selectors{db}, nil, nil, nil, []string{"n0", "n2"}},
		{"far", nil, selectors{db}, nil, nil, []string{"n1", "n3"}},
		{"far goes before near", selectors{web}, selectors{db}, nil, nil, []string{"n1"}},
		{"near among those that are far leaves none", selectors{db}, selectors{db}, nil, nil, []string{"n1", "n3"}},
		{"near what is nowhere", selectors{{Job: "gone"}}, nil, nil, nil, []string{"n0", "n1", "n2", "n3"}},
		{"soft near beside hard far", selectors{web}, nil, nil, selectors{db}, []string{"n0", "n1", "n2", "n3"}},
		{"nothing said: away from the owner's", nil, nil, nil, nil, []string{"n0", "n3"}},
		{"hard ones only: the owner does not matter", nil, nil, selectors{db}, nil, []string{"n0", "n1", "n2", "n3"}},
	} {
		r := asks(1, func(r *placement.Request) {
			r.Preferences.Near, r.Preferences.Far = test.near, test.far
			r.Constraints.Near, r.Constraints.Far = test.hardNear, test.hardFar
		})
		want := test.want
		if test.name == "soft near beside hard far" {
			want = []string{"n1", "n2"} // the hard filter is not in this chain
		}
		if got := survivors(t, neighbours(), r, "soft-locality"); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", test.name, got, want)
		}
	}
	both := asks(
		1, func(r *placement.Request) { r.Preferences.Near, r.Constraints.Far = selectors{web}, selectors{db} },
	)
	for seed := range uint64(10) {
		if slot := slotOf(t, neighbours(), both, seed); slot != 1 {
			t.Fatalf("slot %d, want the one that has web and no db", slot)
		}
	}
	off := func(s *placement.Settings) { s.OwnerSpread = false }
	if got := survivors(t, neighbours(), asks(1), "soft-locality", off); len(got) != 4 {
		t.Errorf("%v stay with owner spread off, want all", got)
	}
	everywhere := fleetOf(3)
	kind := everywhere.Kind(&placement.Instance{Owner: "alice"})
	for slot := range int32(3) {
		everywhere.Bind(slot, kind)
	}
	if got := survivors(t, everywhere, asks(1), "soft-locality"); len(got) != 3 {
		t.Errorf("%v stay where the owner is everywhere, want all", got)
	}
}

// "hard-filter-large-servers": 15 % of the servers, those with the most free memory, are reserved
// for large instances, if there are enough.
func TestLargeServersAreKept(t *testing.T) {
	for _, test := range []struct{ servers, dropped int }{
		{1, 0}, {6, 0}, {7, 1}, {13, 1}, {14, 2}, {20, 3}, {50, 7}, {300, 45},
	} {
		f := fleetOf(
			test.servers, func(i int, s *placement.Server) { s.Capacity["memory"] = int64(i*7%test.servers+1) * gib },
		)
		got := survivors(t, f, asks(1), "large-servers")
		if len(got) != test.servers-test.dropped {
			t.Errorf("%d of %d stay, want all but %d", len(got), test.servers, test.dropped)
		}
		last := int64(test.servers-test.dropped) * gib
		for _, id := range got {
			if free := f.Free(f.Slot(id), placement.IndexMemory); test.dropped > 0 && free > last {
				t.Errorf("%d servers: %s with %d stays, and comes behind one with less", test.servers, id, free)
			} else if test.dropped > 0 && test.servers <= 256 { // more stay as they stand
				last = free
			}
		}
	}
}

// Of many servers the same ones are dropped as a sort would drop, of equal ones those that stand
// first, whatever the amounts are.
func TestLargeServersAmongMany(t *testing.T) {
	for _, kinds := range []int64{1, 2, 7, 300, 1 << 40} {
		f := fleetOf(1000, func(i int, s *placement.Server) {
			s.Capacity["memory"] = 1 + int64(i)*7919%1009*7907%kinds*(plimsoll.MaxAmount/max(kinds, 1009)/8000)
		})
		order := make([]int32, f.Len())
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortStableFunc(order, func(a, b int32) int {
			return cmp.Compare(f.Free(b, placement.IndexMemory), f.Free(a, placement.IndexMemory))
		})
		want := slices.Sorted(slices.Values(order[150:]))
		var got []int32
		for _, id := range survivors(t, f, asks(1), "large-servers") {
			got = append(got, f.Slot(id))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d kinds of memory: %d stay, want %d, or others", kinds, len(got), len(want))
		}
	}
}
