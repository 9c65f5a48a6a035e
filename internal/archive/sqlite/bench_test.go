package sqlite_test

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
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

// benchJob returns a job as a busy cell has them: 5,000 a second, 200 owners and one with few jobs,
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
		j.State, j.Result, j.Failed, failed = plimsoll.JobFailed, plimsoll.ResultFailed, 1, tasks/2
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
// when it does not. b.N counts jobs.
func BenchmarkWrite(b *testing.B) {
	for _, shape := range []struct {
		tasks, round int
		unique       bool // each job has a label with a value of its own
	}{{1, 50, false}, {1, 50, true}, {1, 512, false}, {100, 5, false}, {100, 100, false}} {
		b.Run(fmt.Sprintf("tasks=%d/round=%d/unique=%v", shape.tasks, shape.round, shape.unique), func(b *testing.B) {
			w, err := sqlite.OpenWriter(b.Context(), filepath.Join(b.TempDir(), "jobs.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close() //nolint:errcheck // the figures are there
			if _, err := w.Fence(b.Context(), 1); err != nil {
				b.Fatal(err)
			}
			jobs := make([]archive.Job, 5000)
			for i := range jobs {
				jobs[i] = benchJob(i, shape.tasks)
			}
			b.ResetTimer()
			before := cpu()
			round := make([]archive.Job, 0, shape.round)
			for n := 0; n < b.N; n += len(round) {
				round = round[:0]
				for i := n; i < min(n+shape.round, b.N); i++ { // the same jobs again, with other uids and ids
					j := jobs[i%len(jobs)]
					j.UID = plimsoll.MakeUID(benchStart+int64(i)*200_000, uint64(i/50))
					j.ID, j.Finished = "pipeline-"+strconv.Itoa(i), j.Finished-jobs[i%len(jobs)].UID.Submitted()+j.UID.Submitted()
					if shape.unique {
						j.Labels = map[string]string{"app": "app", "run": j.ID}
					}
					round = append(round, j)
				}
				if _, err := w.Write(b.Context(), 1, round, nil); err != nil {
					b.Fatal(err)
				}
			}
			seconds := b.Elapsed().Seconds()
			b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/job")
			b.ReportMetric(float64(b.N)/seconds, "jobs/s")
			b.ReportMetric(float64(b.N*shape.tasks)/seconds, "tasks/s")
		})
	}
}

// filled returns the path of an archive with benchJobs jobs. It is made once for all benchmarks,
// in a directory that stays if PLIMSOLL_ARCHIVE_DIR names one.
func filled(b *testing.B) string {
	b.Helper()
	count := benchJobs(b)
	directory := os.Getenv("PLIMSOLL_ARCHIVE_DIR")
	if directory == "" {
		directory = b.TempDir()
	}
	path := filepath.Join(directory, fmt.Sprintf("jobs-%d.db", count))
	w, err := sqlite.OpenWriter(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	mark, err := w.Fence(b.Context(), 1)
	for n := int(mark.Jobs); err == nil && n < count; n += 500 {
		jobs := make([]archive.Job, min(500, count-n))
		for i := range jobs {
			jobs[i] = benchJob(n+i, 1)
		}
		_, err = w.Write(b.Context(), 1, jobs, nil)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		b.Fatal(err)
	}
	return path
}

// BenchmarkRead answers questions about a full archive. p99 is of the calls of one run.
func BenchmarkRead(b *testing.B) {
	path := filled(b)
	count := benchJobs(b)
	middle := benchStart + int64(count)*100_000
	r := sqlite.OpenReader(path)
	defer r.Close() //nolint:errcheck // the figures are there
	get := func(i int) error {
		n := i * 7919 % count
		job, err := r.Job(b.Context(), benchJob(n, 1).ID, plimsoll.UID{})
		if err == nil && job.UID != benchJob(n, 1).UID {
			err = errors.New("it is another job")
		}
		return err
	}
	b.Run("job", func(b *testing.B) { measure(b, get) })
	queries := []struct {
		name string
		q    archive.JobQuery
		full bool // a page of 100 is there
	}{
		{"all", archive.JobQuery{}, true},
		{"rare-owner", archive.JobQuery{Owner: "rare"}, false},
		{"common-queue", archive.JobQuery{Queue: "root.team1"}, true},
		{"label", archive.JobQuery{Labels: []string{"app=app7"}}, true},
		{"failed", archive.JobQuery{Results: []plimsoll.TaskResult{plimsoll.ResultFailed}}, true},
		{"since", archive.JobQuery{FinishedFrom: middle}, true},
		{"label-queue-failed", archive.JobQuery{
			Labels: []string{"zone=z1", "app"}, Queue: "root.team1.batch", Failed: true,
		}, false},
		{"owner-since", archive.JobQuery{Owner: "owner7", FinishedFrom: middle}, true},
		{"nothing", archive.JobQuery{Owner: "owner7", Labels: []string{"app=app8"}}, false},
	}
	for _, c := range queries {
		for name, order := range map[string]archive.Sort{
			"submitted": archive.SortSubmitted, "finished": archive.SortFinished, "id": archive.SortID,
		} {
			for _, ascending := range []bool{false, true} {
				b.Run(fmt.Sprintf("page/%s/by=%s/ascending=%v", c.name, name, ascending), func(b *testing.B) {
					q := c.q
					q.Sort, q.Ascending, q.Limit = order, ascending, 100
					items, partial := 0, false
					measure(b, func(int) error {
						page, err := r.Jobs(b.Context(), q)
						items, partial = len(page.Items), page.Partial
						return err
					})
					b.ReportMetric(float64(items), "jobs")
					if partial {
						b.ReportMetric(1, "partial")
					}
				})
			}
		}
	}
	b.Run("count", func(b *testing.B) {
		measure(b, func(int) error {
			_, _, err := r.Count(b.Context(), archive.JobQuery{Queue: "root.team1"}, 1_000_000)
			return err
		})
	})
}

// measure runs a call b.N times and reports the slowest of a hundred.
func measure(b *testing.B, call func(i int) error) {
	b.Helper()
	var times []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		if err := call(i); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	b.ReportMetric(times[len(times)*99/100].Seconds()*1000, "p99-ms")
}

// BenchmarkOpen opens a full archive, and an empty one, as a leader does at its start.
func BenchmarkOpen(b *testing.B) {
	for name, path := range map[string]string{"full": filled(b), "empty": filepath.Join(b.TempDir(), "jobs.db")} {
		b.Run(name, func(b *testing.B) {
			measure(b, func(int) error {
				w, err := sqlite.OpenWriter(b.Context(), path)
				if err != nil {
					return err
				}
				_, err = w.Fence(b.Context(), 1)
				return errors.Join(err, w.Close())
			})
		})
	}
}
