package engine_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// seeds returns a fixed seed and the seed of the run; in a quick run only the latter.
func seeds(t *testing.T) []uint64 {
	t.Helper()
	seed := testrun.Seed(t)
	if testrun.Quick() {
		return []uint64{seed}
	}
	return slices.Compact([]uint64{1, seed})
}

// Random commands, reports, silences, lost gateways and crashes. After every step no node is over
// its capacity, no queue is over its maximum, and every total is the sum of its parts. No task
// waits that could be placed, and every reason is true. At random moments a load gives the same
// state.
//
// The test takes a third of the time of this package's tests. All totals are computed anew after
// every step, so a wrong total is found at the step that made it wrong. A quick run is too short to
// reach every case.
func TestRandomStepsKeepInvariantsAndReload(t *testing.T) {
	for _, seed := range seeds(t) {
		for _, limits := range []state.Limits{{}, {Ops: 40, Bytes: 1 << 20}} {
			t.Run(fmt.Sprintf("seed=%d/ops=%d", seed, limits.Ops), func(t *testing.T) {
				w := newWorld(t, seed, limits)
				steps := testrun.Count(500, 6_000, 500_000)
				for i := 0; i < steps || i < 3*steps && !testrun.Quick() && w.untested() != ""; i++ {
					w.step()
					if i%500 == 0 {
						w.compare(i)
					}
					if w.rng.IntN(300) == 0 { // at any moment, also in the middle of large work
						w.restart(seed + uint64(i))
					}
				}
				if why := w.untested(); why != "" && !testrun.Quick() {
					t.Fatal("the test tests little: " + why)
				}
			})
		}
	}
}

// untested names the cases that the random commands have hardly reached; empty if there are none.
func (w *world) untested() string {
	full := 0
	for _, n := range w.full {
		full += n
	}
	switch {
	case w.acks < 100:
		return fmt.Sprintf("only %d submits were acknowledged", w.acks)
	case w.placed < 1000:
		return fmt.Sprintf("only %d tasks were bound", w.placed)
	case w.tracked < 200:
		return fmt.Sprintf("only %d times a limit of a user or group held", w.tracked)
	case w.lacking < 1000:
		return fmt.Sprintf("only %d times a group lacked a resource", w.lacking)
	case w.behind < 10:
		return fmt.Sprintf("only %d times a group was held back by another job", w.behind)
	case w.dynamic < 100:
		return fmt.Sprintf("only %d times a turn left a dynamic queue", w.dynamic)
	case full < 20 || w.full[state.TasksBound] == 0 || w.full[state.BytesBound] == 0:
		return fmt.Sprintf("bounds were reached only so often: %v", w.full)
	}
	return ""
}

// The same with chains that look at owners and at the tasks on a node, and with a chain without
// filters for room.
func TestRandomStepsWithOtherChains(t *testing.T) {
	for name, change := range map[string]func(*placement.Settings){
		"owners": func(c *placement.Settings) { c.OwnerRules = map[string]string{"bob": `node.labels.rack == "r2"`} },
		"use": func(c *placement.Settings) {
			c.OwnerRules = map[string]string{"bob": "node.instances > 2 && node.free.cpu > 500"}
		},
		"capness":   func(c *placement.Settings) { c.Capness, c.MaxInstances = true, 5 },
		"all":       func(c *placement.Settings) { c.All, c.LargeServers, c.OwnerSpread = true, false, false },
		"one-batch": func(c *placement.Settings) { c.Batch = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOf(t, testrun.Seed(t), state.Limits{}, change)
			for i := range testrun.Count(100, 1_000, 50_000) {
				w.step()
				if w.rng.IntN(300) == 0 {
					w.restart(uint64(i))
				}
			}
		})
	}
}

// compare compares a loaded state with the live one, once no large work is left. Until then some
// tasks that are to be created or stopped differ.
func (w *world) compare(step int) {
	w.t.Helper()
	for w.turn() {
	}
	reloaded, err := w.records.load(w.cfg, w.now)
	if err != nil {
		w.t.Fatalf("step %d: %v", step, err)
	}
	if err := reloaded.Check(); err != nil {
		w.t.Fatalf("step %d, reloaded: %v", step, err)
	}
	live, err := dump(w.engine.State())
	if err != nil {
		w.t.Fatal(err)
	}
	again, err := dump(reloaded)
	if err != nil {
		w.t.Fatal(err)
	}
	if live != again {
		w.t.Fatalf(
			"step %d: the reloaded state (other) differs from the live one:\n%s", step, firstDifference(live, again),
		)
	}
}

// The same seed and the same inputs give the same batches.
func TestSameSeedSameBatches(t *testing.T) {
	run := func() string {
		w := newWorld(t, 7, state.Limits{})
		w.log = &bytes.Buffer{}
		for i := range testrun.Count(500, 2_000, 20_000) {
			w.step()
			if i%500 == 250 {
				w.restart(uint64(i)) // records come in any order
			}
		}
		return w.log.String()
	}
	if a, b := run(), run(); a != b {
		t.Fatal("two runs differ:\n" + firstDifference(a, b))
	}
}
