package sim

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// A simulation that finds nothing proves something only if it finds the faults that it is there for.
// These are built into the store; those in the other packages are in scripts/mutants.txt.
func TestFaultsOfTheStoreAreFound(t *testing.T) {
	for _, test := range []struct {
		name   string
		faults storeFaults
		kinds  []string // parts of the names of failovers that show it
	}{
		{"no fencing", storeFaults{noFencing: true}, []string{"late requests"}},
		{"no lease check before an acknowledgement", storeFaults{noLease: true}, []string{"stop", "cut from the store"}},
		{"a transaction without an answer is sent again", storeFaults{sendsAgain: true}, []string{"late requests"}},
		{"two commits reordered", storeFaults{reorders: true}, []string{"kill", "late requests"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			const most = 12
			seed := testrun.Seed(t)
			for i := range uint64(most) {
				r := simulate(t, plan{
					seed: seed + i, kinds: chosen(test.kinds), pause: densePause, faults: test.faults,
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

// chosen returns the failovers whose names contain one of some words.
func chosen(words []string) (kinds []failover) {
	for _, kind := range failovers {
		for _, word := range words {
			if strings.Contains(kind.name, word) {
				kinds = append(kinds, kind)
				break
			}
		}
	}
	return kinds
}
