package placement_test

import (
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// A server whose record bounds its instances takes so many and no more, whatever they ask for, and
// one more when one has gone. One without a bound takes on. The words of the filter name the bound.
func TestServerTakesAtMostItsMaxTasks(t *testing.T) {
	for name, change := range map[string]func(*placement.Settings){
		"the default chain":      func(*placement.Settings) {},
		"a chain with its bound": func(s *placement.Settings) { s.MaxInstances = 5 },
	} {
		t.Run(name, func(t *testing.T) {
			f := fleetOf(0)
			bounded := plain("bounded")
			c := chainOf(t, placement.DefaultExpression(), change)
			// before any bound is known
			p := prepare(t, c, f, &placement.Request{Owner: "alice", Resources: plimsoll.Resources{}})
			bounded.MaxTasks = 3
			slot := f.Add(&bounded)
			pl := newPlacer(f, 1)
			kind := f.Kind(&placement.Instance{ID: "i", Owner: "alice"})
			for i := range 3 {
				if got := pl.Place(p, 0).Slot; got != slot {
					t.Fatalf("instance %d goes to slot %d, want %d", i, got, slot)
				}
				f.Bind(slot, kind)
			}
			x := pl.Explain(p, 0)
			if pl.Place(p, 0).Slot >= 0 ||
				!strings.Contains(x.Summary(), "1 of 1 nodes: has as many instances as it takes, 3") {
				t.Errorf("with three instances: %s", x.Summary())
			}
			if code, _ := pl.Refusal(p, 0, -1); code != plimsoll.WaitNoNode {
				t.Errorf("the code is %s, want one that a task that ends changes", code)
			}
			f.Unbind(slot, kind)
			if got := pl.Place(p, 0).Slot; got != slot {
				t.Error("it takes none although one has gone")
			}
			f.Bind(slot, kind)
			bounded.MaxTasks = 4
			f.Put(slot, &bounded)
			if got := pl.Place(p, 0).Slot; got != slot {
				t.Error("it takes none although its record allows one more")
			}
			bounded.MaxTasks = 2
			f.Put(slot, &bounded)
			if got := pl.Place(p, 0).Slot; got >= 0 {
				t.Error("it takes one more although its record allows fewer than it has")
			}
		})
	}
}

// Instances that are loaded for a batch count as those that are booked.
func TestLoadedInstancesCountAgainstMaxTasks(t *testing.T) {
	f := fleetOf(2, func(i int, s *placement.Server) { s.MaxTasks = int32(1 + i) })
	f.Loader.Within = time.Second
	f.Loader.Batch = func(ids []string) []placement.Loaded {
		out := make([]placement.Loaded, len(ids))
		for i := range out {
			out[i].Instances = []placement.Instance{{ID: "i" + ids[i]}}
		}
		return out
	}
	p := prepare(t, chainOf(t, placement.DefaultExpression()), f, asks(1))
	pl := newPlacer(f, 1)
	for range 3 { // what was loaded is forgotten in between
		if got := pl.Place(p, 0).Slot; got != 1 {
			t.Errorf("the instance goes to slot %d, want the only one with room for it", got)
		}
	}
}
