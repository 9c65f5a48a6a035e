// Package testrun gives a randomized or long test its seed and its length, and a test with timers a
// clock of its own.
//
//	rng := rand.New(rand.NewPCG(testrun.Seed(t), 0))
//	for range testrun.Count(500, 10_000, 500_000) {
//		step(rng)
//	}
//
// The length of a test depends on the kind of run:
//
//   - quick, with go test -short, as in make quick: every test, and a sample of the long ones;
//   - usual, as in make test;
//   - soak, with PLIMSOLL_SOAK set, as in make soak: the full counts.
//
// The seed is PLIMSOLL_SEED, or 1 without it. Two runs of the same code therefore draw the same
// values. So go test, which knows the variables that a test has read, may keep the result. make
// test and make soak take the seed from the commit.
//
// No other package reads these variables. Its callers are tests.
package testrun

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

const (
	soakVariable = "PLIMSOLL_SOAK"
	seedVariable = "PLIMSOLL_SEED"
)

// Soak reports whether tests run with their full counts.
func Soak() bool { return os.Getenv(soakVariable) != "" }

// Quick reports whether tests should be short. Soak takes precedence.
func Quick() bool { return testing.Short() && !Soak() }

// Count returns the count for this kind of run.
func Count(quick, usual, soak int) int {
	switch {
	case Soak():
		return soak
	case Quick():
		return quick
	}
	return usual
}

// Seed returns the seed of the run. It logs how to draw the same values again, because the log of
// a failed test is printed.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, err := readSeed(os.Getenv(seedVariable))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("replay with %s=%d", seedVariable, seed)
	return seed
}

func readSeed(text string) (uint64, error) {
	if text == "" {
		return 1, nil
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s=%q is not a number: %w", seedVariable, text, err)
	}
	return seed, nil
}

// Check is rapid.Check with the seed and the length of the run: 100 draws, a fifth of them in a
// quick run, and 10,000 in a soak run. Flags of rapid on the command line take precedence, so that
// the flags that it prints replay a failure.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	seed := Seed(t)
	if err := setRapid(seed); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, property)
}

// rapidSet guards the flags of rapid, which are variables of the process. Tests run concurrently.
var rapidSet struct {
	sync.Once
	err error
}

func setRapid(seed uint64) error {
	rapidSet.Do(func() {
		given := map[string]bool{}
		flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
		for name, value := range map[string]uint64{
			"rapid.seed":   max(seed, 1),                    // rapid takes 0 as a random seed
			"rapid.checks": uint64(Count(100, 100, 10_000)), // with -short rapid takes a fifth
		} {
			if !given[name] {
				rapidSet.err = errors.Join(rapidSet.err, flag.Set(name, strconv.FormatUint(value, 10)))
			}
		}
	})
	return rapidSet.err
}
