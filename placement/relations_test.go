package placement_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// A number tells a request that waits for near, far, spread or volumes when to try again. The
// number changes with every instance that could matter, the first one too, and stays otherwise.
func TestRelationsChangeWhenItIsTimeToLookAgain(t *testing.T) {
	near := func(s plimsoll.Selector) *placement.Request {
		return asks(1, func(r *placement.Request) { r.Constraints.Near = []plimsoll.Selector{s} })
	}
	spread := asks(1, func(r *placement.Request) { r.Constraints.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 1}} })
	cordoned := plain("n0", func(s *placement.Server) {
		s.Labels, s.Reserved = map[string]string{"rack": "r1"}, "cordoned"
	})
	for _, test := range []struct {
		name      string
		r         *placement.Request
		bind      bool // an instance that comes matters
		cordon    bool // a server that closes matters
		elsewhere bool // what the loader says of others matters
	}{
		{"nothing", asks(1), false, false, false},
		{
			"preferences", asks(1, func(r *placement.Request) { r.Preferences.Near = []plimsoll.Selector{{Job: "j"}} }),
			false, false, false,
		},
		{"near a job", near(plimsoll.Selector{Job: "j"}), true, false, false},
		{"near a label", near(plimsoll.Selector{Label: "app=db"}), true, false, false},
		{"near a task", near(plimsoll.Selector{Task: "x"}), true, false, true},
		{"near another job", near(plimsoll.Selector{Job: "k"}), false, false, false},
		{"spread", spread, true, true, false},
		{
			"volumes", asks(1, func(r *placement.Request) { r.Constraints.VolumesFrom = []string{"x"} }), false, false,
			false,
		},
	} {
		f := fleetOf(3, labelled("rack", "r1", "r2", "r3"))
		p := prepare(t, placement.Default(), f, test.r)
		kind := f.Kind(&placement.Instance{Job: "j", Group: "g", Labels: map[string]string{"app": "db"}})
		changes := func(what string, want bool, do func()) {
			before := p.Relations()
			do()
			if got := p.Relations() != before; got != want {
				t.Errorf("%s: %s changes it: %t, want %t", test.name, what, got, want)
			}
		}
		changes("the first instance", test.bind, func() { f.Bind(0, kind) })
		changes("a second", test.bind, func() { f.Bind(1, kind) })
		changes("one that goes", test.bind, func() { f.Unbind(0, kind) })
		changes("the last that goes", test.bind, func() { f.Unbind(1, kind) })
		changes("a server that closes", test.cordon, func() { f.Add(&cordoned) })
		changes("a server that goes", test.cordon, func() { f.Remove(2) })
		changes("something elsewhere", test.elsewhere, f.Moved)
		changes("nothing", false, func() { newPlacer(f, 1).Place(p, 0) })
	}
}

// A request that waits for volumes is told to try again when the volumes have moved, and not
// whenever any instance comes or goes.
func TestVolumesThatMove(t *testing.T) {
	f := fleetOf(3)
	at := map[string]string{}
	f.Loader.Volumes = func(id string) (string, error) { return at[id], nil }
	p := prepare(
		t, placement.Default(), f,
		asks(1, func(r *placement.Request) { r.Constraints.VolumesFrom = []string{"x", "y"} }),
	)
	for i, step := range []struct {
		x, y string
		want bool
	}{
		{"n0", "", false},
		{"n0", "n1", false},
		{"n0", "n0", true},
		{"n0", "n0", false},
		{"n1", "n0", true},
		{"n1", "n1", true},
		{"", "n1", true},
	} {
		relations, distant := p.Relations(), p.Distant()
		at["x"], at["y"] = step.x, step.y
		f.Moved()
		if got := p.Relations() != relations; got != step.want || got != (p.Distant() != distant) {
			t.Errorf("step %d: changed: %t, want %t", i, got, step.want)
		}
	}
}
