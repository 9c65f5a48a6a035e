package placement_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// The code that is found with few looks is that of the explanation, which looks at every server,
// and the witness proves it. A guess changes neither.
func TestRefusalHasTheCodeOfTheExplanation(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		f, r := booked(drawServers(t)), drawRequest(t)
		drawSpread(t, r)
		p := prepare(t, chainOf(t, placement.DefaultExpression(), drawSettings(t)), f, r)
		pl := newPlacer(f, 1)
		x := pl.Explain(p, testNow)
		if x.Open == 0 || f.Len() == 0 {
			return
		}
		want, _ := x.Refusal(r.Resources)
		guess := rapid.Int32Range(-1, int32(f.Len())).Draw(t, "guess")
		code, witness := pl.Refusal(p, testNow, guess)
		if code != want {
			t.Fatalf("with the guess %d it is %v, but the explanation says %v: %+v", guess, code, want, x)
		}
		if code == plimsoll.WaitNotEligible {
			if witness != -1 {
				t.Fatalf("slot %d is no witness of %v", witness, code)
			}
			return
		}
		if eligible, fits := pl.Suits(p, witness, testNow); !eligible || fits != (code == plimsoll.WaitNoNode) {
			t.Fatalf("slot %d is a witness of %v, but is for it %t and large enough %t", witness, code, eligible, fits)
		}
	})
}
