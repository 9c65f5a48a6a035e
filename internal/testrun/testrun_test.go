package testrun

import (
	"flag"
	"testing"

	"pgregory.net/rapid"
)

// A soak run is the longest, also with -short.
func TestCountFollowsTheRun(t *testing.T) {
	usual := 2
	if testing.Short() {
		usual = 1
	}
	for _, c := range []struct {
		soak string
		want int
	}{{"", usual}, {"1", 3}} {
		t.Setenv(soakVariable, c.soak)
		if got := Count(1, 2, 3); got != c.want {
			t.Errorf("Count(1, 2, 3) with %s=%q is %d, want %d", soakVariable, c.soak, got, c.want)
		}
	}
}

func TestSeedIsGivenOrOne(t *testing.T) {
	for text, want := range map[string]uint64{"": 1, "0": 0, "77": 77} {
		t.Setenv(seedVariable, text)
		if got := Seed(t); got != want {
			t.Errorf("Seed with %s=%q is %d, want %d", seedVariable, text, got, want)
		}
	}
	if _, err := readSeed("x"); err == nil {
		t.Error("a seed that is no number is taken")
	}
}

// Rapid draws as often as the run asks for, and from its seed.
func TestCheckSetsRapid(t *testing.T) {
	drawn := 0
	Check(t, func(*rapid.T) { drawn++ })
	if want := Count(20, 100, 10_000); drawn < want {
		t.Errorf("%d draws, want %d", drawn, want)
	}
	if got := flag.Lookup("rapid.seed").Value.String(); got == "0" {
		t.Error("rapid draws from a seed of its own")
	}
}
