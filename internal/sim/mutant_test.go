package sim

import (
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// A simulation that finds nothing proves something only if it finds the faults that it is there
// for. These are built into the store; those in the other packages are in scripts/mutants.txt.
func TestFaultsOfTheStoreAreFound(t *testing.T) {
	if testrun.Quick() {
		t.Skip("it takes some twenty histories")
	}
	for _, test := range []struct {
		name   string
		faults storeFaults
		kinds  []string // of the leader that show it
	}{
		{"no fencing", storeFaults{noFencing: true}, []string{stoppedLate, killedLate}},
		{"no lease check before an acknowledgement", storeFaults{noLease: true}, []string{stopped, stoppedAnew}},
		{
			"a transaction without an answer is sent again",
			storeFaults{sendsAgain: true},
			[]string{stoppedLate, killedLate},
		},
		{"two commits reordered", storeFaults{reorders: true}, []string{killed, killedBehind}},
	} {
		t.Run(test.name, func(t *testing.T) {
			const most = 40
			seed := testrun.Seed(t)
			for i := range uint64(most) {
				r := simulate(t, plan{
					seed: seed + i, kinds: slices.Repeat(chosen(test.kinds), 4), pause: densePause, faults: test.faults,
				})
				if len(r.problems) > 0 {
					t.Logf("after %d histories: %v", i+1, r.problems[0])
					return
				}
			}
			t.Errorf("%d histories did not show it", most)
		})
	}
}

// chosen returns the failovers with some names.
func chosen(names []string) (kinds []failover) {
	for _, kind := range failovers {
		if slices.Contains(names, kind.name) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
