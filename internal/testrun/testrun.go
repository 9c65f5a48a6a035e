// Package testrun gives a randomized or long test its seed and its length.
//
//	rng := rand.New(rand.NewPCG(testrun.Seed(t), 0))
//	for range testrun.Count(500, 10_000, 500_000) {
//		step(rng)
//	}
//
// A run of the tests is one of three, each with a length of its own:
//
//   - quick, with go test -short, as make quick has it: every test, and of what is long a taste;
//   - the usual one, as make test has it;
//   - soak, with PLIMSOLL_SOAK set, as make soak has it: the full counts.
//
// The seed is PLIMSOLL_SEED, and 1 without it. So two runs of the same code draw the same, and go
// test, which knows the variables that a test has read, may keep the result. make test and make
// soak take the seed from the commit.
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

// Quick reports whether tests are to be short. Soak goes before it.
func Quick() bool { return testing.Short() && !Soak() }

// Count returns the one of three counts that this run asks for.
func Count(quick, usual, soak int) int {
	switch {
	case Soak():
		return soak
	case Quick():
		return quick
	}
	return usual
}

// Seed returns the seed of the run, and logs how to draw the same again: the log of a test that
// fails is printed.
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

// Check is rapid.Check with the seed and the length of the run: 100 draws, a fifth of them if it is
// quick, and 10,000 if it is soak. Flags of rapid on the command line go before, so that the ones
// which it prints replay a failure.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	seed := Seed(t)
	if err := setRapid(seed); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, property)
}

// rapidSet guards the flags of rapid: they are variables of the process, and tests run side by
// side.
var rapidSet struct {
	sync.Once
	err error
}

func setRapid(seed uint64) error {
	rapidSet.Do(func() {
		given := map[string]bool{}
		flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
		for name, value := range map[string]uint64{
			"rapid.seed":   max(seed, 1),                    // for rapid 0 is any
			"rapid.checks": uint64(Count(100, 100, 10_000)), // with -short rapid takes a fifth
		} {
			if !given[name] {
				rapidSet.err = errors.Join(rapidSet.err, flag.Set(name, strconv.FormatUint(value, 10)))
			}
		}
	})
	return rapidSet.err
}
