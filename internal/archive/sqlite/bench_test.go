package sqlite_test

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
)

// benchJobs is the number of jobs in the archive of a benchmark.
func benchJobs(b *testing.B) int {
	b.Helper()
	text := os.Getenv("PLIMSOLL_ARCHIVE_JOBS")
	if text == "" {
		return 100_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

const benchStart = int64(1_700_000_000_000_000_000)

// benchJob returns a job as a busy cell has them: 5,000 a second, 200 owners and one who is rare,
// four queues, two labels, 3 in 100 fail.
func benchJob(i, tasks int) archive.Job {
	submitted := benchStart + int64(i)*200_000
	j := archive.Job{Head: archive.Head{
		UID: plimsoll.MakeUID(submitted, uint64(i/50)), ID: fmt.Sprintf("pipeline-%d-%08d", i%7, i),
		Owner: fmt.Sprintf("owner%d", i*7919%200), Queue: fmt.Sprintf("root.team%d.batch", i%4),
		Labels: map[string]string{"app": fmt.Sprintf("app%d", i*31%50), "zone": fmt.Sprintf("z%d", i%3)},
		State:  plimsoll.JobCompleted, Result: plimsoll.ResultSucceeded,
		Finished: submitted + int64(i*104729%30_000)*int64(time.Millisecond), Tasks: int32(tasks),
	}}
	if i%10_000 == 77 {
		j.Owner = "rare"
	}
	failed := -1
	if i%33 == 5 {
		j.State, j.Result, j.Head.Failed, failed = plimsoll.JobFailed, plimsoll.ResultFailed, 1, tasks/2
	}
	j.Spec, j.Status = benchBytes[:320], benchBytes[320:500]
	j.Records = records(j.ID, tasks, failed)
	return j
}

var benchBytes = func() []byte {
	data := make([]byte, 800)
	for i := range data {
		data[i] = byte(i * i * 31)
	}
	return data
}()

func records(id string, tasks, failed int) iter.Seq[archive.TaskRecord] {
	keys := make([]string, tasks)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s\x00group\x00%08d", id, i)
	}
	return func(yield func(archive.TaskRecord) bool) {
		for i, key := range keys {
			r := archive.TaskRecord{
				Key: key, State: plimsoll.TaskFinished, Result: plimsoll.ResultSucceeded, Value: benchBytes[500:740],
			}
			if i == failed {
				r.Result = plimsoll.ResultFailed
			}
			if !yield(r) {
				return
			}
		}
	}
}

func cpu() time.Duration {
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// BenchmarkWrite writes jobs in rounds as a leader does: small ones when it keeps up, full ones
// when it does not. b.N is in jobs.
func BenchmarkWrite(b *testing.B) {
	for _, shape := range []struct{ tasks, round int }{{1, 50}, {1, 512}, {100, 5}, {100, 100}} {
		b.Run(fmt.Sprintf("tasks=%d/round=%d", shape.tasks, shape.round), func(b *testing.B) {
			w, err := sqlite.OpenWriter(b.Context(), filepath.Join(b.TempDir(), "jobs.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close() //nolint:errcheck // the figures are there
			if _, err := w.Fence(b.Context(), 1); err != nil {
				b.Fatal(err)
			}
			jobs := make([]archive.Job, b.N)
			for i := range jobs {
				jobs[i] = benchJob(i, shape.tasks)
			}
			b.ResetTimer()
			before := cpu()
			for rest := jobs; len(rest) > 0; {
				n := min(shape.round, len(rest))
				if _, err := w.Write(b.Context(), 1, rest[:n], nil); err != nil {
					b.Fatal(err)
				}
				rest = rest[n:]
			}
			seconds := b.Elapsed().Seconds()
			b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/job")
			b.ReportMetric(float64(b.N)/seconds, "jobs/s")
			b.ReportMetric(float64(b.N*shape.tasks)/seconds, "tasks/s")
		})
	}
}
