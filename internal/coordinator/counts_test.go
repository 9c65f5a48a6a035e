package coordinator

import (
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A sample has what there was when its minute began, and is stored with the next change. Turns
// within a minute, and minutes in which nothing changes, store none.
func TestCountsAreThoseWhenAMinuteBegan(t *testing.T) {
	enc := encoder{epoch: 1}
	stored := 0
	turn := func(after time.Duration, jobs, tasks int64) {
		b := engine.Batch{Revision: 1, Time: int64(1000*time.Minute + after)}
		b.Totals.Jobs[plimsoll.JobStarting], b.Totals.Jobs[plimsoll.JobRunning] = 1, jobs-1
		b.Totals.Jobs[plimsoll.JobAccepted] = 7
		b.Totals.Tasks[plimsoll.TaskBound], b.Totals.Tasks[plimsoll.TaskPending] = tasks, 9
		for _, m := range enc.encode(&b).Mutations {
			if m.Kind == wire.KindCounts {
				stored++
			}
		}
	}
	turn(10*time.Second, 1, 1)
	turn(20*time.Second, 2, 5)
	turn(70*time.Second, 3, 6)               // minute 1001 began with 2 jobs
	turn(80*time.Second, 2, 5)               // the same as before
	turn(130*time.Second, 9, 9)              // so minute 1002 has no sample of its own
	turn(10*time.Minute+time.Second, 1, 1)   // 1003 began with 9 jobs
	turn(10*time.Minute+2*time.Second, 8, 8) // within 1010
	turn(12*time.Minute, 8, 9)               // 1011
	want := wire.Counts{
		{Minute: 1001, Jobs: 2, Tasks: 5}, {Minute: 1003, Jobs: 9, Tasks: 9}, {Minute: 1011, Jobs: 8, Tasks: 8},
	}
	if !slices.Equal(enc.counts.samples, want) || stored != len(want) {
		t.Errorf("%d were stored; got %v, want %v", stored, enc.counts.samples, want)
	}
}

// The next leader goes on with the samples of the one before. The minutes in between had the state
// that it loads.
func TestCountsGoOnWithTheNextLeader(t *testing.T) {
	fs := vfs.NewMem()
	clock := newClock()
	l := lead(t, Config{Now: clock.read}, openStore(t, fs, store.Limits{}))
	l.must(register("n", 1))
	l.must(submit(job("a", 2)))
	l.settle()
	clock.now.Add(int64(5 * time.Minute))
	l.must(kill("a"))
	l.settle()
	before, err := l.Latest().Counts()
	if err != nil || len(before) == 0 {
		t.Fatalf("%v, %v", before, err)
	}
	l.stop()
	clock.now.Add(int64(10 * time.Minute))
	again := reload(t, fs, Config{Now: clock.read})
	after, err := again.source.Snapshot().Counts()
	if err != nil || !slices.Equal(before, after) || !slices.Equal(again.counts.samples, before) {
		t.Errorf("before %v, after %v, %v", before, after, err)
	}
	totals := again.engine.State().Totals()
	if again.counts.jobs != runningJobs(&totals) || again.counts.tasks != heldTasks(&totals) ||
		again.counts.minute == 0 {
		t.Errorf("the counter begins with %+v", again.counts)
	}
}
