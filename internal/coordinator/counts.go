package coordinator

import (
	"math"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// counter samples how many jobs run and how many tasks hold resources, for each beginning of a
// minute. It needs no timer: what a turn finds when it begins has held since the turn before. So a
// cell in which nothing changes stores nothing.
type counter struct {
	samples wire.Counts
	minute  int64 // of the last turn; 0: there was none
	jobs    int32 // after the last turn
	tasks   int32
}

// begin sets what there was when the last turn was committed, at a time in Unix nanoseconds.
func (c *counter) begin(of *state.Totals, at int64) {
	c.minute, c.jobs, c.tasks = wire.MinuteOf(at), runningJobs(of), heldTasks(of)
}

// turn takes over what there is after a turn. It reports whether that added a sample.
func (c *counter) turn(of *state.Totals, at int64) (added bool) {
	if now := wire.MinuteOf(at); c.minute != 0 && now > c.minute {
		added = c.samples.Add(wire.Count{Minute: c.minute + 1, Jobs: c.jobs, Tasks: c.tasks}, now)
	}
	c.begin(of, at)
	return added
}

// runningJobs counts those that YuniKorn calls running.
func runningJobs(t *state.Totals) int32 {
	return sampled(t.Jobs[plimsoll.JobStarting] + t.Jobs[plimsoll.JobRunning])
}

func heldTasks(t *state.Totals) int32 {
	n := int64(0)
	for s := range t.Tasks {
		if plimsoll.TaskState(s).OnNode() {
			n += t.Tasks[s]
		}
	}
	return sampled(n)
}

func sampled(n int64) int32 { return int32(min(n, math.MaxInt32)) }
