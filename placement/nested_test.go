package placement_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll/placement"
)

// A filter in a definition, or in a pipe in a pipe, is asked as rarely as one of the chain itself:
// once for each class of servers.
func TestPipesInPipesCostNothing(t *testing.T) {
	for name, chain := range map[string]placement.Expression{
		"written out": stagesNamed("running", "watch", "score-random"),
		"pipe in pipe": placement.Pipe(
			placement.Pipe(placement.Named("running"), placement.Pipe(placement.Named("watch"))),
		),
		"definition": stagesNamed("usable"),
	} {
		asked := 0
		watch := placement.Stage{Name: "watch", ByClass: true, Keep: func(
			*placement.View,
		) bool {
			asked++
			return true
		}}
		random := placement.Stage{
			Name: "score-random", Scores: true, Batch: func(_ *placement.Batch, set []int32) []int32 { return set },
		}
		c, err := placement.NewChain(chain, []placement.Stage{placement.Stages()[1], watch, random},
			map[string]placement.Expression{"usable": stagesNamed("running", "watch")}, placement.DefaultSettings())
		if err != nil {
			t.Fatal(err)
		}
		f := fleetOf(500)
		if newPlacer(f, 1).Place(prepare(t, c, f, asks(1)), 0).Slot < 0 {
			t.Errorf("%s: no server was chosen", name)
		}
		if asked != 1 {
			t.Errorf("%s: 500 servers that are alike were asked about %d times, want once", name, asked)
		}
	}
}
