package placement_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// lazyFleet returns n plain servers whose instances are loaded: two on each, of 1 core and of 1Gi.
// loads counts the calls by server.
func lazyFleet(n int, change ...func(int, *placement.Server)) (f *placement.Fleet, loads map[string]int) {
	f, loads = fleetOf(n, change...), map[string]int{}
	f.Loader.Within = time.Second
	f.Loader.Instances = func(id string) ([]placement.Instance, error) {
		loads[id]++
		return []placement.Instance{
			{ID: id + "-0", Owner: "bob", Job: "j", Resources: plimsoll.Resources{"cpu": 1000}},
			{
				ID: id + "-1", Owner: "bob", Labels: map[string]string{"app": "db"},
				Resources: plimsoll.Resources{"memory": gib},
			},
		}, nil
	}
	return f, loads
}

// "dapi would filter servers in batches, and pull in the vmapi information for (e.g.) 50% of the
// batch size" (RFD 60, phase 3): only servers that the filters by record leave are asked what runs
// on them, and only those of batches that are needed.
func TestOnlyServersThatAreLeftAreLoaded(t *testing.T) {
	f, loads := lazyFleet(300, func(i int, s *placement.Server) {
		if i%2 == 0 {
			s.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
		}
	})
	choice := newPlacer(f, 1).Place(prepare(t, placement.Default(), f, asks(1000)), 0)
	if choice.Slot%2 != 1 || choice.Looked != 50 || choice.Loads != len(loads) || len(loads) == 0 || len(loads) > 40 {
		t.Errorf("%+v, %d loaded, want about half of one batch", choice, len(loads))
	}
	for id, n := range loads {
		if n != 1 || f.Slot(id)%2 != 1 {
			t.Errorf("%s was loaded %d times", id, n)
		}
	}
}

// "getVm() is needed by the hard-filter-volumes-from plugin, which is early in the plugin chain"
// (RFD 60, phase 2).
//
// "if present, it cuts down number of servers to just one": one server is loaded.
func TestVolumesFromCutsDownToOneServer(t *testing.T) {
	f, loads := lazyFleet(200)
	asked := map[string]int{}
	f.Loader.Instance = func(id string) (string, string, error) {
		asked[id]++
		return strings.TrimSuffix(id, "-1"), "bob", nil
	}
	r := asks(1, func(r *placement.Request) { r.Constraints.VolumesFrom = []string{"n117-1"} })
	choice := newPlacer(f, 1).Place(prepare(t, placement.Default(), f, r), 0)
	if choice.Slot != 117 || !maps.Equal(loads, map[string]int{"n117": 1}) || asked["n117-1"] != 1 {
		t.Errorf("%+v, loaded %v, asked %v", choice, loads, asked)
	}
}

// "hard-filter-volumes-from": the node that holds the volumes of all the instances; otherwise none,
// and why.
func TestVolumesFrom(t *testing.T) {
	f := fleetOf(3)
	where := map[string]string{"a": "n1", "b": "n1", "c": "n2", "gone": "n77"}
	f.Loader.Instance = func(id string) (string, string, error) {
		if id == "broken" {
			return "", "", errors.New("connection refused")
		}
		return where[id], "bob", nil
	}
	for _, test := range []struct {
		ids  []string
		want int32
		why  string
	}{
		{[]string{"a"}, 1, "does not hold the volumes of a"},
		{[]string{"a", "b"}, 1, "does not hold the volumes of a, b"},
		{[]string{"a", "c"}, -1, "does not hold the volumes of a, c, which are on different servers"},
		{[]string{"nowhere"}, -1, "instance nowhere, whose volumes are asked for, is not on any server"},
		{[]string{"a", "gone"}, -1, "instance gone, whose volumes are asked for, is not on any server"},
		{[]string{"broken"}, -1, "look up instance broken: connection refused"},
	} {
		r := asks(1, func(r *placement.Request) { r.Constraints.VolumesFrom = test.ids })
		if choice := newPlacer(f, 1).Place(prepare(t, placement.Default(), f, r), 0); choice.Slot != test.want {
			t.Errorf("%v: %+v, want %d", test.ids, choice, test.want)
		}
		if got := reasons(t, f, r, "volumes-from"); got["n0"] != test.why {
			t.Errorf("%v: %q, want %q", test.ids, got["n0"], test.why)
		}
	}
	// The volumes may be where the instance no longer is.
	f.Loader.Volumes = func(id string) (string, error) {
		if id == "broken" {
			return "", errors.New("timed out")
		}
		return "n2", nil
	}
	r := asks(1, func(r *placement.Request) { r.Constraints.VolumesFrom = []string{"a"} })
	if choice := newPlacer(f, 1).Place(prepare(t, placement.Default(), f, r), 0); choice.Slot != 2 {
		t.Errorf("%+v, want 2, which holds the volumes", choice)
	}
	r.Constraints.VolumesFrom = []string{"broken"}
	if got := reasons(t, f, r, "volumes-from"); got["n0"] != "look up the volumes of broken: timed out" {
		t.Errorf("%q", got)
	}
}

// "load-server-vms.js must support a null getServerVms()" (RFD 60, phase 2): without a loader the
// fleet holds what runs already.
func TestWithoutALoaderTheFleetHoldsTheInstances(t *testing.T) {
	full := plain("n0", func(s *placement.Server) {
		s.Instances = []placement.Instance{{ID: "a", Resources: plimsoll.Resources{"cpu": 3500}}}
	})
	f := fleetWith(full, plain("n1"))
	for seed := range uint64(10) {
		if choice := newPlacer(f, seed).Place(
			prepare(t, placement.Default(), f, asks(1000)), 0,
		); choice.Slot != 1 || choice.Loads != 0 {
			t.Fatalf("%+v", choice)
		}
	}
}

// A server whose instances cannot be loaded is left out with the error, and the others go on: one
// that fails, one whose answer makes no sense, and those for which a loader of many gives no
// answer.
func TestServersThatCannotBeLoadedAreLeftOut(t *testing.T) {
	bad := placement.Instance{ID: "x", Resources: plimsoll.Resources{"cpu": -5}}
	late := placement.Instance{ID: "y", Modified: -1}
	answer := func(id string) placement.Loaded {
		switch id {
		case "n0":
			return placement.Loaded{Err: errors.New("connection refused")}
		case "n1":
			return placement.Loaded{Instances: []placement.Instance{{ID: "ok"}, bad}}
		case "n2":
			return placement.Loaded{Instances: []placement.Instance{late}}
		}
		return placement.Loaded{}
	}
	want := map[string]string{
		"n0": "its instances could not be loaded: connection refused",
		"n1": "its instances could not be loaded: instances.x.resources.cpu: is negative",
		"n2": "its instances could not be loaded: instances.y.modified: is negative; give Unix seconds",
	}
	one, many, few := fleetOf(5), fleetOf(5), fleetOf(5)
	one.Loader.Within = time.Second
	one.Loader.Instances = func(id string) ([]placement.Instance, error) { a := answer(id); return a.Instances, a.Err }
	many.Loader.Within = time.Second
	many.Loader.Batch = func(ids []string) (out []placement.Loaded) {
		for _, id := range ids {
			out = append(out, answer(id))
		}
		return append(out, placement.Loaded{Err: errors.New("more than was asked for")})
	}
	few.Loader.Within = time.Second
	few.Loader.Batch = func(ids []string) (out []placement.Loaded) {
		for _, id := range ids[:len(ids)-1] {
			out = append(out, answer(id))
		}
		return out
	}
	for name, f := range map[string]*placement.Fleet{"one by one": one, "many at once": many, "fewer than asked": few} {
		p := prepare(t, placement.Default(), f, asks(1))
		before := f.Dump()
		pl := newPlacer(f, 1)
		x := pl.Explain(p, 0)
		got := map[string]string{}
		for _, step := range x.Steps {
			for _, reason := range step.Reasons {
				if step.Stage == "load-instances" {
					got[reason.Examples[0]] = reason.Text
				}
			}
		}
		mine := maps.Clone(want)
		fit := 2
		if name == "fewer than asked" {
			mine["n4"], fit = "its instances could not be loaded: the loader gave no answer for it", 1
		}
		for id, text := range mine {
			if !strings.HasPrefix(got[id], text) || len(got) != len(mine) || x.Fit != fit || x.Eligible != 5 {
				t.Errorf("%s: %s: %q, want %q; %d fit of %d", name, id, got[id], text, x.Fit, x.Eligible)
			}
		}
		for seed := range uint64(20) {
			choice := newPlacer(f, seed).Place(p, 0)
			// there the last that was drawn has no answer
			if choice.Slot < 3 && (choice.Slot >= 0 || name != "fewer than asked") {
				t.Errorf("%s: %+v", name, choice)
			}
		}
		if after := f.Dump(); after != before {
			t.Errorf("%s: the fleet was changed from\n%s\nto\n%s", name, before, after)
		}
	}
	verdicts := newPlacer(one, 1).ExplainServer(prepare(t, placement.Default(), one, asks(1)), 0, 0)
	if i := slices.IndexFunc(
		verdicts, func(v placement.Verdict) bool { return v.Stage == "load-instances" },
	); verdicts[i].Why != want["n0"] {
		t.Errorf("%+v", verdicts[i])
	}
}

// "to reduce memory usage, after each batch is run, cnapi should delete the 'vms' attribute on the
// batched server objects" (RFD 60, phase 3): at no time more is held than runs on the servers of
// one batch, and nothing after a placement.
func TestInstancesAreReleasedAfterEachBatch(t *testing.T) {
	f, loads := lazyFleet(500)
	before := f.Dump()
	pl := newPlacer(f, 1)
	choice := pl.Place(prepare(t, placement.Default(), f, asks(3500)), 0) // has a core too little everywhere
	if choice.Slot != -1 || choice.Batches != 10 || choice.Loads != 500 || len(loads) != 500 || choice.Peak != 100 {
		t.Fatalf("%+v, want ten batches of fifty servers with two instances each", choice)
	}
	for id, n := range loads {
		if n != 1 {
			t.Fatalf("%s was loaded %d times", id, n)
		}
	}
	pl.Place(prepare(t, placement.Default(), f, asks(1)), 0)
	pl.Explain(prepare(t, placement.Default(), f, asks(1)), 0)
	pl.ExplainServer(prepare(t, placement.Default(), f, asks(1)), 7, 0)
	if got := len(f.TagNames()); got > 1 { // alice, who asks
		t.Errorf("%q are kept", f.TagNames())
	}
	for slot := range int32(500) {
		if f.Count(slot) != 0 || f.Free(slot, placement.IndexCPU) != 4000 {
			t.Fatalf("slot %d still holds %d instances", slot, f.Count(slot))
		}
	}
	if before == f.Dump() {
		t.Error("the requests that are prepared leave no trace: the test compares nothing")
	}
}

// A loader that panics does not spoil the fleet for those who go on after it.
func TestLoaderThatPanics(t *testing.T) {
	f, _ := lazyFleet(3)
	load := f.Loader.Instances
	f.Loader.Within = time.Second
	f.Loader.Instances = func(id string) ([]placement.Instance, error) {
		if id == "n1" {
			panic("broken")
		}
		return load(id)
	}
	pl, p := newPlacer(f, 1), prepare(t, placement.Default(), f, asks(3000))
	before := f.Dump()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		pl.Place(p, 0)
	}()
	f.Loader.Within = time.Second
	f.Loader.Instances = load
	if after := f.Dump(); after != before {
		t.Errorf("the fleet was changed from\n%s\nto\n%s", before, after)
	}
	if choice := pl.Place(p, 0); choice.Slot < 0 || choice.Loads != 3 {
		t.Errorf("%+v, want a server with 3 cores left", choice)
	}
}

// A chain that loads in both alternatives of an or counts what runs on a server once.
func TestLoadedTwiceCountsOnce(t *testing.T) {
	f, loads := lazyFleet(2)
	if err := f.AddTicket(
		placement.Ticket{
			ID: "new", Server: "n0", Instance: &placement.Instance{Resources: plimsoll.Resources{"cpu": 1000}},
		},
	); err != nil {
		t.Fatal(err)
	}
	load := stagesNamed("load-instances", "calculate-tickets", "calculate-unreserved", "min-cpu")
	never := placement.Stage{Name: "never", Keep: func(*placement.View) bool { return false }}
	first := placement.Pipe(append(slices.Clone(load.List), placement.Named("never"))...)
	c := chainWith(t, placement.Pipe(placement.Or(first, load), load), append(placement.Stages(), never))
	for milli, want := range map[int64]int{1500: 2, 2500: 1, 3500: 0} {
		clear(loads)
		if x := newPlacer(f, 1).Explain(prepare(t, c, f, asks(milli)), 0); x.Steps[len(x.Steps)-1].Remaining != want {
			t.Errorf("%d: %+v, want %d", milli, x.Steps[len(x.Steps)-1], want)
		}
		if !maps.Equal(loads, map[string]int{"n0": 1, "n1": 1}) {
			t.Errorf("%d: loaded %v", milli, loads)
		}
	}
}

// "calculate-ticketed-vms": what is on its way to a server counts as if it ran there, until it is
// there or will never be; of two placements at once the second sees the first.
func TestTickets(t *testing.T) {
	ticket := func(server string, milli int64) placement.Ticket {
		return placement.Ticket{
			ID: "new", Server: server,
			Instance: &placement.Instance{
				ID: "new", Owner: "bob", Job: "j", Resources: plimsoll.Resources{"cpu": milli},
			},
		}
	}
	loaded, _ := lazyFleet(1)
	loaded.Loader.Within = time.Second
	loaded.Loader.Instances = func(string) ([]placement.Instance, error) { return nil, nil }
	for name, f := range map[string]*placement.Fleet{"held": fleetOf(1), "loaded": loaded} {
		fits := func(milli int64) bool {
			return newPlacer(f, 1).Place(prepare(t, placement.Default(), f, asks(milli)), 0).Slot == 0
		}
		if err := f.AddTicket(ticket("n0", 3000)); err != nil || fits(2000) || !fits(1000) {
			t.Errorf("%s: a ticket of 3 of 4 cores: %v", name, err)
		}
		if err := f.AddTicket(ticket("n0", 1000)); err != nil || !fits(3000) || fits(3500) {
			t.Errorf("%s: a ticket that is given again takes the place of the one before: %v", name, err)
		}
		far := asks(1, func(r *placement.Request) { r.Constraints.Far = []plimsoll.Selector{{Job: "j"}} })
		byID := asks(1, func(r *placement.Request) { r.Constraints.Far = []plimsoll.Selector{{Task: "new"}} })
		for _, r := range []*placement.Request{far, byID} {
			if choice := newPlacer(f, 1).Place(prepare(t, placement.Default(), f, r), 0); choice.Slot != -1 {
				t.Errorf("%s: %+v beside a ticket that it must be far from", name, choice)
			}
		}
		f.DropTicket("new")
		f.DropTicket("new")
		if !fits(4000) {
			t.Errorf("%s: a ticket that was dropped still counts", name)
		}
		if err := f.AddTicket(placement.Ticket{ID: "unknown", Server: "n0"}); err != nil || fits(1) {
			t.Errorf("%s: nothing else goes where something of unknown size is on its way to: %v", name, err)
		}
		x := newPlacer(f, 1).Explain(prepare(t, placement.Default(), f, asks(1)), 0)
		if x.Fit != 0 || x.Eligible != 1 ||
			x.Summary() != "1 of 1 nodes: an instance of unknown size is on its way to it" {
			t.Errorf("%s: %d fit, %s", name, x.Fit, x.Summary())
		}
		f.DropTicket("unknown")
		if !fits(4000) {
			t.Errorf("%s: it is closed although the ticket is dropped", name)
		}
	}
}

// An instance that is there and has a ticket still counts once, whichever is told first.
func TestTicketOfAnInstanceThatIsThereCountsNothing(t *testing.T) {
	in := placement.Instance{ID: "a", Owner: "bob", Resources: plimsoll.Resources{"cpu": 3000}}
	with, without := plain("n0", func(s *placement.Server) { s.Instances = []placement.Instance{in} }), plain("n0")
	for name, do := range map[string]func(f *placement.Fleet) error{
		"ticket first": func(f *placement.Fleet) error {
			f.Add(&without)
			err := f.AddTicket(placement.Ticket{ID: "a", Server: "n0", Instance: &in})
			f.Add(&with)
			return err
		},
		"unknown size first": func(f *placement.Fleet) error {
			f.Add(&without)
			err := f.AddTicket(placement.Ticket{ID: "a", Server: "n0"})
			f.Add(&with)
			return err
		},
		"instance first": func(f *placement.Fleet) error {
			f.Add(&with)
			return f.AddTicket(placement.Ticket{ID: "a", Server: "n0", Instance: &in})
		},
		"loaded": func(f *placement.Fleet) error {
			f.Add(&without)
			f.Loader.Within = time.Second
			f.Loader.Instances = func(string) ([]placement.Instance, error) { return []placement.Instance{in}, nil }
			return f.AddTicket(placement.Ticket{ID: "a", Server: "n0", Instance: &in})
		},
	} {
		f := placement.NewFleet(placement.NewNames())
		if err := do(f); err != nil {
			t.Fatal(err)
		}
		for milli, want := range map[int64]int32{1000: 0, 1001: -1} {
			if choice := newPlacer(f, 1).Place(
				prepare(t, placement.Default(), f, asks(milli)), 0,
			); choice.Slot != want {
				t.Errorf("%s: %d of 1000 that are left: %+v", name, milli, choice)
			}
		}
		f.DropTicket("a")
		if choice := newPlacer(f, 1).Place(prepare(t, placement.Default(), f, asks(1001)), 0); choice.Slot != -1 {
			t.Errorf("%s: the instance went with its ticket", name)
		}
	}
}

// Tickets that make no sense are refused and change nothing.
func TestTicketErrors(t *testing.T) {
	f := fleetOf(1)
	before := f.Dump()
	for _, test := range []struct {
		ticket placement.Ticket
		want   string
	}{
		{placement.Ticket{ID: "a", Server: "n7"}, `ticket.server: there is no server "n7"`},
		{placement.Ticket{Server: "n0"}, "ticket.id: is empty; give the id of the instance to be"},
		{
			placement.Ticket{ID: "a", Server: "n0", Instance: &placement.Instance{ID: "a", Modified: -1}},
			"instances.a.modified: is negative; give Unix seconds",
		},
	} {
		wantError(t, f.AddTicket(test.ticket), test.want)
	}
	if f.Dump() != before {
		t.Error("the fleet was changed")
	}
}

// One failed instance is one failure, however often it is told; two in a day make a server sick,
// until an instance runs well there or the day is over.
func TestSickServers(t *testing.T) {
	const day = 24 * 60 * 60
	fail := func(at ...int64) func(*placement.Server) {
		return func(s *placement.Server) {
			for i, at := range at {
				s.Instances = append(
					s.Instances, placement.Instance{ID: fmt.Sprint(s.ID, i), Failed: at < 0, Modified: max(at, -at)},
				)
			}
		}
	}
	for _, test := range []struct {
		times []int64 // negative: failed
		now   int64
		sick  bool
	}{
		{[]int64{-day}, day + 1, false},
		{[]int64{-day, -day - 1}, day + 2, true},
		{[]int64{-day - 1, -day}, 2*day - 1, true},
		{[]int64{-day - 1, -day}, 2 * day, false}, // the older of the two is a day ago
		{[]int64{-day, day + 1, -day - 2}, day + 3, false},
		{[]int64{-day, day - 1, -day - 2}, day + 3, true}, // only the newest two count
		{[]int64{day, day}, day + 1, false},
	} {
		f := fleetWith(plain("n0", fail(test.times...)))
		for range 3 {
			s := plain("n0", fail(test.times...))
			f.Add(&s)
			if got := newPlacer(f, 1).Place(
				prepare(t, placement.Default(), f, asks(1)), test.now,
			).Slot < 0; got != test.sick {
				t.Errorf("%v at %d: sick %t, want %t", test.times, test.now, got, test.sick)
			}
		}
	}
}

// A hanging loader is bounded, or refused: this package cannot give a call up, so a fleet whose
// loader does not say its bound takes no request. Loaders of package remote bound each call, and
// say so.
func TestALoaderThatNobodyBoundsIsRefused(t *testing.T) {
	never := make(chan struct{})
	for name, l := range map[string]placement.Loader{
		"one by one": {Instances: func(string) ([]placement.Instance, error) { <-never; return nil, nil }},
		"at once":    {Batch: func([]string) []placement.Loaded { <-never; return nil }},
	} {
		f := fleetOf(3)
		f.Loader = l
		before := f.Dump()
		_, err := placement.Default().Prepare(f, asks(1))
		wantError(t, err, "loader.within: is not set, so a call that hangs would never end; "+
			"bound the calls with a Pool of package remote, or set the time within which they answer")
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || f.Dump() != before {
			t.Errorf("%s: its code is %s, or the fleet was changed", name, plimsoll.CodeOf(err))
		}
	}
}
