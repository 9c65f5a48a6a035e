package agent

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// endedAt is the status of an attempt that ended at a second.
func endedAt(id string, attempt int32, second int64, result plimsoll.TaskResult) executor.Status {
	return executor.Status{
		Task: id, Attempt: attempt, State: plimsoll.TaskFinished, Result: result, Started: 1,
		Finished: second * int64(time.Second),
	}
}

// end has attempts end that are no longer assigned.
func (b *book) end(list ...executor.Status) {
	b.Helper()
	b.attempts(list, false)
	b.settle(time.Unix(0, 1))
	b.ack()
	b.settle(time.Unix(0, 1))
}

// sweep sweeps at a second, and checks which directories are left.
func (b *book) sweep(k *keeper, second int64, want ...string) {
	b.Helper()
	if err := k.sweep(b.Context(), time.Unix(second, 0)); err != nil {
		b.Fatal(err)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, b.dirs()); diff != "" {
		b.Errorf("directories that are kept (-want +got):\n%s", diff)
	}
}

const (
	succeeded = plimsoll.ResultSucceeded
	failed    = plimsoll.ResultFailed
)

func TestWhichLogsAreKept(t *testing.T) {
	held := []executor.Status{
		endedAt("j.g.0", 1, 10, succeeded), endedAt("j.g.1", 1, 20, failed), endedAt("j.g.1", 2, 30, succeeded),
		endedAt("j.g.2", 1, 40, plimsoll.ResultOutOfMemory), endedAt("j.g.5", 1, 50, succeeded),
		live("j.g.3", 1, plimsoll.TaskRunning), endedAt("j.g.4", 1, 5, succeeded),
	}
	// j.g.3 runs, and the coordinator does not know the end of j.g.4 yet. So both stay, whatever
	// the bounds.
	assigned := []assignmentOf{task("j.g.3", 1, plimsoll.TaskRunning), task("j.g.4", 1, plimsoll.TaskRunning)}
	always := []string{"j.g.3/1", "j.g.4/1"}
	all := []string{"j.g.0/1", "j.g.1/1", "j.g.1/2", "j.g.2/1", "j.g.5/1"}
	const each = 200 << 10 // a little more than the bytes of an attempt with its task's directory
	day := LogBounds{Bytes: 1 << 30, Age: 24 * time.Hour, FailedAge: 48 * time.Hour}
	tests := []struct {
		name   string
		bounds LogBounds
		most   int
		second int64 // of the sweep
		keep   []string
	}{
		{"within the bounds all stay", day, 100, 60, all},
		{
			"over the bytes the oldest that succeeded go first",
			LogBounds{4 * each, time.Hour, time.Hour},
			100, 60,
			all[1:],
		},
		{
			"then the next that succeeded",
			LogBounds{3 * each, time.Hour, time.Hour},
			100, 60,
			[]string{"j.g.1/1", "j.g.2/1", "j.g.5/1"},
		},
		{
			"failed ones go when no other is left, the oldest first",
			LogBounds{each, time.Hour, time.Hour},
			100, 60,
			[]string{"j.g.2/1"},
		},
		{
			"by age those that succeeded go", day, 100, 20 + 24*3600,
			[]string{"j.g.1/1", "j.g.1/2", "j.g.2/1", "j.g.5/1"},
		},
		{"and the failed ones later", day, 100, 30 + 48*3600, []string{"j.g.2/1"}},
		{"half of the uids stay free", day, 3, 60, []string{"j.g.1/1", "j.g.2/1", "j.g.5/1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBook(t)
			for _, a := range held {
				b.keep(attemptKey{a.Task, a.Attempt}, 160<<10)
			}
			b.hold(held...)
			b.list(assigned...)
			b.end()
			k := newKeeper(b.ledger, test.bounds, test.most)
			for range 2 { // the second time changes nothing
				b.sweep(k, test.second, append(slices.Clone(test.keep), always...)...)
			}
			if _, err := os.Stat(filepath.Join(b.root, "j.g.0")); !slices.Contains(test.keep, "j.g.0/1") && err == nil {
				t.Error("the last attempt of a task was removed, but not the task's own directory")
			}
			if err := emptyDir(t.Context(), b.trash); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(b.trash); err != nil || len(left) != 0 {
				t.Errorf("left in the trash: %v, error %v", left, err)
			}
		})
	}
}

// An attempt that is larger than all may be together goes alone, and not with all that are older.
func TestALargeAttemptTakesNoOthersWithIt(t *testing.T) {
	b := newBook(t)
	b.hold()
	b.list()
	b.keep(attemptKey{"j.g.0", 1}, 1)
	b.keep(attemptKey{"j.g.1", 1}, 4<<20)
	b.keep(attemptKey{"j.g.2", 1}, 1)
	b.end(endedAt("j.g.0", 1, 1, succeeded), endedAt("j.g.1", 1, 2, failed), endedAt("j.g.2", 1, 3, succeeded))
	k := newKeeper(b.ledger, LogBounds{1 << 20, time.Hour, time.Hour}, math.MaxInt)
	b.sweep(k, 4, "j.g.0/1", "j.g.2/1")
}

// The metrics count the logs that are kept, and those that went for their age or for want of room.
func TestMetricsOfKeptLogs(t *testing.T) {
	b := newBook(t)
	b.hold()
	b.list()
	for i, size := range []int{1, 4 << 20, 1, 1} {
		b.keep(attemptKey{fmt.Sprintf("j.g.%d", i), 1}, size)
	}
	b.end(
		endedAt("j.g.0", 1, 1, succeeded), endedAt("j.g.1", 1, 100, failed), endedAt("j.g.2", 1, 100, succeeded),
		endedAt("j.g.3", 1, 101, succeeded),
	)
	k := newKeeper(b.ledger, LogBounds{1 << 20, 20 * time.Second, time.Hour}, 1)
	b.sweep(k, 110, "j.g.3/1") // 0 is too old, 1 too large, and 2 one too many
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(k.metrics.all()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			name = strings.TrimPrefix(name, "plimsoll_agent_kept_")
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	if values["removed_bytes_total room"] < 4<<20 || values["removed_bytes_total age"] < float64(AttemptBytes) ||
		values["bytes"] < float64(AttemptBytes) || values["bytes"] > 1<<20 {
		t.Errorf("bytes: %v", values)
	}
	for _, name := range []string{"bytes", "removed_bytes_total room", "removed_bytes_total age"} {
		delete(values, name)
	}
	want := map[string]float64{"bytes_limit": 1 << 20, "attempts": 1, "removed_total age": 1, "removed_total room": 2}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLogsWaitForAcknowledgementAndConnection(t *testing.T) {
	b := newBook(t)
	b.keep(attemptKey{"j.g.0", 1}, 1)
	b.hold(endedAt("j.g.0", 1, 1, failed))
	b.list()
	k := newKeeper(b.ledger, LogBounds{1, 1, 1}, 0)
	b.settle(time.Unix(0, 1))
	b.sweep(k, 1e6, "j.g.0/1") // not acknowledged
	b.ack()
	b.settle(time.Unix(0, 1))
	b.disconnect()
	b.sweep(k, 1e6, "j.g.0/1")
	b.list(task("j.g.0", 1, plimsoll.TaskRunning))
	b.sweep(k, 1e6, "j.g.0/1") // still assigned
	b.list()
	b.ack()
	b.sweep(k, 1e6)
}

// A new agent finds what an earlier one has kept, with the ends, and goes on with the same order.
func TestARestartFindsTheLogsThatAreKept(t *testing.T) {
	b := newBook(t)
	b.hold()
	b.list()
	for i, result := range []plimsoll.TaskResult{succeeded, failed, succeeded} {
		s := endedAt(fmt.Sprintf("j.g.%d", i), 1, int64(i+1), result)
		key := attemptKey{s.Task, 1}
		b.keep(key, 160<<10)
		if err := writeMark(b.attemptDir(key), &plimsoll.TaskReport{
			Task: s.Task, Attempt: 1, State: plimsoll.TaskFinished, Result: s.Result, At: s.Finished,
		}); err != nil {
			t.Fatal(err)
		}
	}
	b.keep(attemptKey{"j.g.3", 1}, 1) // an agent that was killed has left no mark: it counts as failed, and as new
	dirs, err := scanDirs(b.root, b.trouble)
	if err != nil {
		t.Fatal(err)
	}
	b.ledger = newLedger("n1", filepath.Dir(b.root), b.out, func(Trouble) {})
	b.restore(dirs, nil)
	b.hold()
	b.list()
	b.settle(time.Unix(0, 1))
	k := newKeeper(b.ledger, LogBounds{500 << 10, time.Hour, 1e5 * time.Hour}, math.MaxInt)
	b.sweep(k, 4, "j.g.1/1", "j.g.2/1", "j.g.3/1")
	b.sweep(k, 4000, "j.g.1/1", "j.g.3/1")
}

// The work at an end does not grow with the attempts that are kept.
func TestAnEndCostsTheSameWithManyLogsKept(t *testing.T) {
	allocations := func(kept int) float64 {
		b, k := keptBook(t, kept)
		next := 0
		return testing.AllocsPerRun(20, func() {
			endOne(b, k, next)
			next++
		})
	}
	few, many := allocations(10), allocations(5000)
	if many > 2*few {
		t.Errorf("an end with 5,000 attempts kept makes %.0f allocations, with 10 it is %.0f", many, few)
	}
}

// BenchmarkEnd is the end of an attempt beside 10,000 that are kept. It includes a sweep and the
// list of live tasks after it.
func BenchmarkEnd(b *testing.B) {
	for _, kept := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("kept=%d", kept), func(b *testing.B) {
			book, k := keptBook(b, kept)
			next := 0
			for b.Loop() {
				endOne(book, k, next)
				next++
			}
		})
	}
}

// keptBook is a ledger with attempts that are kept.
func keptBook(t testing.TB, kept int) (*ledger, *keeper) {
	t.Helper()
	dir := t.TempDir()
	out, _, err := openOutbox(filepath.Join(dir, "reports"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.close() }) // nothing of the test is on the disk
	l := newLedger("n1", dir, out, func(Trouble) {})
	l.beginAttempts()
	l.attempts(nil, true)
	l.beginList()
	l.assign(nil, nil, true)
	k := newKeeper(l, LogBounds{1 << 40, time.Hour, time.Hour}, math.MaxInt)
	for i := range kept {
		l.mu.entries[plimsoll.TaskID("kept", "g", int32(i))] = []*entry{{
			attempt: 1, phase: phaseEnded, acked: true, onDisk: true, kept: true,
		}}
		k.push(&keptAttempt{key: attemptKey{plimsoll.TaskID("kept", "g", int32(i)), 1}, at: int64(i), bytes: 1})
	}
	return l, k
}

// endOne has one attempt end.
func endOne(l *ledger, k *keeper, i int) {
	l.attempts([]executor.Status{endedAt(plimsoll.TaskID("j", "g", int32(i)), 1, 1, succeeded)}, false)
	l.settle(time.Unix(0, 1))
	reports := l.out.next(10)
	l.out.ack(reports)
	l.acknowledged(reports)
	for _, o := range l.settle(time.Unix(0, 1)) {
		l.done(&o, executor.Status{}, nil, time.Unix(0, 1))
	}
	_ = k.sweep(context.Background(), time.Unix(2, 0)) // nothing is over a bound
	l.liveTasks()
}

// Removing a task's many files takes long, and delays no other work.
func TestASweepWaitsForNoRemoval(t *testing.T) {
	b := newBook(t)
	last := filepath.Join(b.trash, "7")
	if err := os.MkdirAll(filepath.Join(last, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	before, err := discardedBefore(b.trash)
	if err != nil || before != 7 {
		t.Fatalf("the last number is %d, %v", before, err)
	}
	b.mu.discarded = before
	b.keep(attemptKey{"j.g.0", 1}, 1)
	b.hold()
	b.list()
	b.end(endedAt("j.g.0", 1, 1, failed))
	b.sweep(newKeeper(b.ledger, LogBounds{1, 1, 1}, 0), 2)
	if _, err := os.Stat(last); err != nil {
		t.Errorf("the sweep has removed what was put away: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := emptyDir(ctx, b.trash); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(b.trash); err != nil || len(left) < 2 {
		t.Errorf("an agent that stops goes on removing: left is %v, %v", left, err)
	}
}
