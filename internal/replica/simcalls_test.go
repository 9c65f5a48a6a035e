package replica

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// simKeys is the number of jobs that a simulation writes.
const simKeys = 48

// simCalls is the history of the calls in a simulation, as its clients see them.
type simCalls struct {
	only    bool // nothing else is checked
	clock   int64
	history []porcupine.Operation
	unknown []porcupine.Operation // writes that were not answered
}

func (c *simCalls) tick() int64 {
	c.clock++
	return c.clock
}

// read notes a read that was answered with a snapshot of all jobs: a read of each.
func (c *simCalls) read(began int64, s *Snapshot) {
	ended := c.tick()
	for i := range simKeys {
		key := fmt.Sprint("job", i)
		value, _ := s.Get(wire.KindJobStatus, key)
		c.history = append(c.history, porcupine.Operation{
			Input: registerOp{key: key}, Output: string(value), Call: began, Return: ended,
		})
	}
}

func (c *simCalls) write(w simWriter) {
	c.history = append(c.history, porcupine.Operation{Input: w.op, Call: w.began, Return: c.tick()})
}

// unanswered notes a write that was not answered.
func (c *simCalls) unanswered(w simWriter) {
	c.unknown = append(c.unknown, porcupine.Operation{Input: w.op, Call: w.began})
}

// check asks porcupine. Its search is exponential, so it may come to no end in time. No two writes
// have the same value, so a write without an answer takes its effect before the first read of its
// value ends. One whose value nobody has read is left out: what is in order with it is in order
// without.
func (c *simCalls) check(gateways []*simGateway) porcupine.CheckResult {
	seen := map[string]int64{}
	for _, op := range c.history {
		value, isRead := op.Output.(string)
		if first, is := seen[value]; isRead && (!is || op.Return < first) {
			seen[value] = op.Return
		}
	}
	for _, g := range gateways {
		for _, w := range g.writers {
			c.unanswered(w)
		}
	}
	history := slices.Clone(c.history)
	for _, op := range c.unknown {
		if first, is := seen[op.Input.(registerOp).value]; is {
			op.Return = first
			history = append(history, op)
		}
	}
	return porcupine.CheckOperationsTimeout(registers, withoutImplied(history), 2*time.Second)
}

// withoutImplied leaves out reads that cannot make a history wrong: those during which another call
// began and ended that read or wrote the same value. They are in order right behind it. Porcupine
// would try each order of all reads that wait for one round.
func withoutImplied(history []porcupine.Operation) (kept []porcupine.Operation) {
	value := func(op porcupine.Operation) string {
		if read, is := op.Output.(string); is {
			return read
		}
		return op.Input.(registerOp).value
	}
	slices.SortFunc(history, func(a, b porcupine.Operation) int {
		return cmp.Or(cmp.Compare(a.Return, b.Return), cmp.Compare(b.Call, a.Call))
	})
	latest := map[[2]string]int64{} // key and value → latest beginning of the calls that ended so far
	for _, op := range history {
		of := [2]string{op.Input.(registerOp).key, value(op)}
		began, is := latest[of]
		if !is || op.Call > began {
			latest[of] = op.Call
		} else if !op.Input.(registerOp).write {
			continue
		}
		kept = append(kept, op)
	}
	return kept
}

// A simulation that finds nothing proves something only if it finds each of these faults. Those
// that callers can notice are also found by the history of calls alone.
func TestSimulationCatchesMutants(t *testing.T) {
	first := testrun.Seed(t)
	for _, test := range []struct {
		mutant  mutant
		callers bool // porcupine finds it, with all other checks off
	}{
		{replyTooEarly, false}, // the reply is overtaken within a step; every read is behind a sync
		{publishTooLate, true},
		{ackTooEarly, false}, // one batch is late, until the next comes: few reads fall between
		{joinsInFlight, true},
		{noSync, true},
		{noParent, true},
		{answersForMore, true},
		{keepsStreams, false},      // the streams below soon break
		{keepsTasksThatAre, false}, // the calls are about jobs
	} {
		t.Run(string(test.mutant), func(t *testing.T) {
			catches(t, first, test.mutant, false)
			if test.callers {
				catches(t, first, test.mutant, true)
			}
		})
	}
}

// catches wants one of many simulations to find a fault.
func catches(t *testing.T, first uint64, m mutant, only bool) {
	t.Helper()
	const most = 200
	for i := range uint64(most) {
		if w := simulateCalls(first+i, m, only); w.failure != "" {
			t.Logf("after %d runs: %s", i+1, strings.SplitN(w.failure, "\n", 2)[0])
			return
		}
	}
	t.Errorf("%d simulations did not notice; by the history of calls alone: %v", most, only)
}
