package placement_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// spreadPart is a part of a fleet: servers of racks, with so many instances of the group on each.
func spreadPart(t *testing.T, prefix string, racks []string, group ...int) (*placement.Placer, *placement.Prepared) {
	t.Helper()
	f := placement.NewFleet(placement.NewNames())
	for i, rack := range racks {
		s := placement.NewServer(fmt.Sprint(prefix, i), plimsoll.Resources{"cpu": 1000})
		s.Labels = map[string]string{"rack": rack}
		if rack == "closed" {
			s.Status = "unknown"
		}
		for k := range group[i] {
			s.Instances = append(
				s.Instances, placement.Instance{ID: fmt.Sprint(s.ID, ".", k), Job: "web", Group: "front"},
			)
		}
		s.Instances = append(s.Instances, placement.Instance{ID: s.ID + ".other", Job: "web", Group: "back"})
		f.Add(&s)
	}
	r := spreadRequest()
	p, err := placement.Default().Prepare(f, &r)
	if err != nil {
		t.Fatal(err)
	}
	return placement.NewPlacer(f, nil), p
}

func spreadRequest() placement.Request {
	r := placement.Request{Job: "web", Group: "front"}
	r.Constraints.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 1}, {By: placement.SpreadByNode, MaxSkew: 1}}
	return r
}

// The tallies of the parts of a fleet make the counts of the whole: a rack that lies in both is
// counted once, and one whose servers are all closed does not count, though its instances are
// there. Of empty servers a part names one.
func TestTalliesOfPartsMakeTheCountsOfTheWhole(t *testing.T) {
	first, p := spreadPart(t, "a", []string{"r1", "r2", "closed"}, 1, 2, 3)
	tallies := first.Spreads(p, 0)
	want := []placement.SpreadTally{
		{"r1": {Instances: 1, Counts: true}, "r2": {Instances: 2, Counts: true}, "closed": {Instances: 3}},
		{"a0": {Instances: 1, Counts: true}, "a1": {Instances: 2, Counts: true}, "a2": {Instances: 3}},
	}
	if d := cmp.Diff(want, tallies); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	second, q := spreadPart(t, "b", []string{"r2", "r1", "r1"}, 4, 0, 0)
	others := second.Spreads(q, 0)
	if len(others) != 2 || len(others[1]) != 2 {
		t.Errorf("one of two empty servers is enough: %v", others)
	}
	sums := []placement.GroupSpread{
		{Instances: map[string]int32{"r1": 1, "r2": 6, "closed": 3}, Fewest: 1},
		{Instances: map[string]int32{"a0": 1, "a1": 2, "a2": 3, "b0": 4}},
	}
	if d := cmp.Diff(sums, placement.MergeSpreads(tallies, others)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A fleet that is told how the group is spread goes by that, and by nothing that it holds itself.
func TestASpreadThatIsGivenCounts(t *testing.T) {
	f := placement.NewFleet(placement.NewNames())
	for _, rack := range []string{"r1", "r2"} {
		s := placement.NewServer(rack, plimsoll.Resources{"cpu": 1000})
		s.Labels = map[string]string{"rack": rack}
		f.Add(&s)
	}
	given := []placement.GroupSpread{{Instances: map[string]int32{"r1": 4, "r2": 3}, Fewest: 3}, {}}
	f.Loader.Spreads = func(*placement.Request) ([]placement.GroupSpread, error) { return given, nil }
	r := spreadRequest()
	p, err := placement.Default().Prepare(f, &r)
	if err != nil {
		t.Fatal(err)
	}
	placer := placement.NewPlacer(f, nil)
	if placer.Keeps(p, 0, 0) || !placer.Keeps(p, 1, 0) {
		t.Error("r1 has one more than r2 and takes another, or r2 does not")
	}
	given = given[:1]
	if _, err := placement.Default().Prepare(f, &r); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("one count for two spreads: %v", err)
	}
}
