package placement_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Names are interned in the order in which they come, the usual ones first, and refused beyond the
// maximum.
func TestNames(t *testing.T) {
	n := placement.NewNames()
	a, set := n.Amounts(plimsoll.Resources{"nvidia.com/gpu": 2, "memory": 0, "cpu": 5})
	if a[placement.IndexCPU] != 5 || a[3] != 2 || set != 1<<placement.IndexCPU|1<<placement.IndexMemory|1<<3 || n.Name(3) != "nvidia.com/gpu" || n.Index("nvidia.com/gpu") != 3 {
		t.Fatalf("amounts %v, set %b", a, set)
	}
	if r := n.Resources(&a); len(r) != 2 {
		t.Errorf("%v: amounts of zero are left out", r)
	}
	if r := n.Masked(&a, set); len(r) != 3 || r["memory"] != 0 {
		t.Errorf("%v: amounts of zero in the mask are not left out", r)
	}
	many := plimsoll.Resources{}
	for i := range plimsoll.MaxResourceNames - 4 {
		many[fmt.Sprintf("r%d", i)] = 1
	}
	if err := n.Check("f", many); err != nil {
		t.Errorf("%d names: %v", n.Len()+len(many), err)
	}
	many["one-more"] = 1
	if err := n.Check("f", many); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("%d names: %v", n.Len()+len(many), err)
	}
	if n.Len() != 4 || n.Index("r0") != -1 {
		t.Error("Check took names in")
	}
}

// When no names are left for its resources, a server is kept with that fault. An instance is
// counted by the known names, and a request is refused.
func TestMoreNamesThanThereIsRoomFor(t *testing.T) {
	all := plimsoll.Resources{"cpu": 1000}
	for i := range plimsoll.MaxResourceNames - 3 {
		all[fmt.Sprintf("r%02d", i)] = 1
	}
	f := fleetWith(
		plain("n0", func(s *placement.Server) { s.Capacity = all }),
		plain("n1", func(s *placement.Server) { s.Capacity["more"] = 1 }),
	)
	got := reasons(t, f, asks(1), "invalid-servers")
	if want := "its record cannot be used: capacity: brings the cluster over 16 different resource names; use those that exist"; got["n1"] != want {
		t.Errorf("%q, want %q", got["n1"], want)
	}
	f.Bind(0, f.Kind(&placement.Instance{Resources: plimsoll.Resources{"cpu": 400, "more": 5}}))
	if f.Free(0, placement.IndexCPU) != 600 {
		t.Errorf("%d of cpu are free, want 600", f.Free(0, placement.IndexCPU))
	}
	if _, err := placement.Default().Prepare(
		f, asks(1, func(r *placement.Request) { r.Resources["more"] = 1 }),
	); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("%v", err)
	}
}

// A second server with an id that is taken is there with that fault, and does not take the place of
// the first; when it goes, the first is still found.
func TestTwoServersWithOneID(t *testing.T) {
	f := fleetOf(1)
	s := plain("n0")
	f.Put(1, &s)
	if f.Servers() != 2 || f.Slot("n0") != 0 || f.Open(1) {
		t.Errorf("%d servers, n0 in slot %d, the second is open: %t", f.Servers(), f.Slot("n0"), f.Open(1))
	}
	p := prepare(t, placement.Default(), f, asks(1))
	for _, v := range newPlacer(f, 1).ExplainServer(p, 1, 0) {
		if want := `its record cannot be used: another server has the id "n0"; give each its own`; v.Stage == "invalid-servers" && v.Why != want {
			t.Errorf("%q, want %q", v.Why, want)
		}
	}
	f.Remove(1)
	if f.Servers() != 1 || f.Slot("n0") != 0 {
		t.Errorf("%d servers, n0 in slot %d", f.Servers(), f.Slot("n0"))
	}
	nameless := plain("")
	f.Put(1, &nameless)
	if f.Open(1) || len(reasons(t, f, asks(1), "invalid-servers")) != 1 {
		t.Error("a server without an id is open")
	}
	f.Remove(1)
	f.Remove(1) // nothing is there
	if f.Servers() != 1 {
		t.Errorf("%d servers", f.Servers())
	}
}

// A removed server leaves the counts of spreads, together with its instances.
func TestRemovedServersLeaveSpreads(t *testing.T) {
	f := fleetOf(3, labelled("rack", "a", "a", "b"))
	kind := member(f)
	for slot := range int32(3) {
		f.Bind(slot, kind)
	}
	p := prepare(t, placement.Default(), f, asks(1, spreadBy("rack", 1)))
	f.Remove(0)
	if low := newPlacer(f, 1).Lowest(p, 0); p.In(0, 1) != 1 || p.In(0, 2) != 1 || low != 1 {
		t.Errorf("%d in rack a and %d in rack b, the fewest %d; want 1 of each", p.In(0, 1), p.In(0, 2), low)
	}
}

// Requests that cannot be meant are refused with the field.
func TestRequestErrors(t *testing.T) {
	for _, test := range []struct {
		change func(*placement.Request)
		want   string
	}{
		{func(r *placement.Request) { r.Resources["cpu"] = -1 }, "resources.cpu: is negative (-1); give zero or more"},
		{func(
			r *placement.Request,
		) {
			r.Needs = plimsoll.Resources{"cpu": -1}
		}, "needs.cpu: is negative (-1); give zero or more"},
		{func(r *placement.Request) {
			r.Constraints.Far = make(
				[]plimsoll.Selector, 65,
			)
		}, "constraints.far: has 65 entries; at most 64 are possible"},
		{spreadBy("", 1), "constraints.spread[0]: needs a label to spread by and a maxSkew of 1 or more"},
		{spreadBy("rack", 0), "constraints.spread[0]: needs a label to spread by and a maxSkew of 1 or more"},
		{func(r *placement.Request) {
			r.Constraints.Class = map[string]float64{
				"cpu": 0,
			}
		}, "constraints.class.cpu: is 0; give a ratio above 0, at most 1000"},
	} {
		f := fleetOf(1)
		before := f.Dump()
		_, err := placement.Default().Prepare(f, asks(1, test.change))
		wantError(t, err, test.want)
		if f.Dump() != before {
			t.Errorf("%s: the fleet was changed", test.want)
		}
	}
}
