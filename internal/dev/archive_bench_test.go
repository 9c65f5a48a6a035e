package dev_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	archivedJobs  = 1_000_000
	archivedStart = int64(1_700_000_000_000_000_000)
	archivedEvery = int64(200_000) // nanoseconds between two submits
)

// archivedJob returns an ended job as a busy cell has them: 200 owners and one who is rare, four
// queues, two labels, 3 in 100 fail.
func archivedJob(i int) archive.Job {
	submitted := archivedStart + int64(i)*archivedEvery
	id := fmt.Sprintf("pipeline-%d-%08d", i%7, i)
	node := fmt.Sprintf("node-%04d", i%1000)
	spec := plimsoll.JobSpec{
		ID: id, Owner: fmt.Sprintf("owner%d", i*7919%200), Queue: fmt.Sprintf("root.team%d.batch", i%4),
		Labels: map[string]string{"app": fmt.Sprintf("app%d", i*31%50), "zone": fmt.Sprintf("z%d", i%3)},
		Groups: []plimsoll.GroupSpec{{
			Name: "work", Count: 1, Command: []string{"process", "--input", fmt.Sprintf("/data/part-%d", i)},
			Resources: plimsoll.Resources{"cpu": 1000, "memory": 4 << 30},
		}},
	}
	if i%10_000 == 77 {
		spec.Owner = "rare"
	}
	status := plimsoll.JobStatus{
		ID: id, Owner: spec.Owner, Queue: spec.Queue, State: plimsoll.JobCompleted, Submitted: submitted,
		Started: submitted + 1e9, Finished: submitted + 1e9 + int64(i*104729%30_000)*1e6, Revision: uint64(i),
		Groups: []plimsoll.GroupStatus{{Name: "work", Count: 1, Counts: plimsoll.TaskCounts{Succeeded: 1}}},
		UID:    plimsoll.MakeUID(submitted, uint64(i/50)),
	}
	task := plimsoll.Task{
		Job: id, Group: "work", Attempt: 1, State: plimsoll.TaskFinished, Result: plimsoll.ResultSucceeded, Node: node,
		Created: submitted, Bound: submitted + 1e6, Started: submitted + 1e9, Finished: status.Finished,
	}
	head := archive.Head{
		UID: status.UID, ID: id, Owner: spec.Owner, Queue: spec.Queue, Labels: spec.Labels, Finished: status.Finished,
		Tasks: 1,
	}
	if i%33 == 5 {
		status.State, status.Groups[0].Counts = plimsoll.JobFailed, plimsoll.TaskCounts{Failed: 1}
		task.Result, task.ExitCode, head.Failed = plimsoll.ResultFailed, 1, 1
	}
	head.State, head.Result = status.State, status.Result()
	record := archive.TaskRecord{
		Key: wire.TaskKey(id, "work", 0), State: task.State, Result: task.Result, Value: wire.AppendTask(nil, &task),
	}
	return archive.Job{
		Head: head, Spec: wire.AppendJobSpec(nil, &spec), Status: wire.AppendJobStatus(nil, &status),
		Records: func(yield func(archive.TaskRecord) bool) { yield(record) },
	}
}

// fillArchive makes an archive in a file and returns its id. It is one of a later leader, so that
// a new store takes it in with coordinator.Archive.Accept.
func fillArchive(b *testing.B, path string) string {
	b.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	w, err := sqlite.OpenWriter(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	mark, err := w.Fence(b.Context(), 1_000_000)
	for n := 0; err == nil && n < archivedJobs; n += archive.MaxWriteJobs {
		jobs := make([]archive.Job, min(archive.MaxWriteJobs, archivedJobs-n))
		for i := range jobs {
			jobs[i] = archivedJob(n + i)
		}
		_, err = w.Write(b.Context(), mark.Epoch, jobs, nil)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		b.Fatal(err)
	}
	return mark.ID
}

// archiving returns the configuration of a process with an archive.
func archiving(data, accept string) dev.Config {
	cfg := dev.Config{Data: data, Listen: "127.0.0.1:0", NoAgent: true}
	cfg.Archive.Accept = accept
	return cfg
}

// untilChecked waits until a new leader has checked its archive: the id of an ended job can be
// taken again only then.
func untilChecked(b *testing.B, c *client.Client) {
	b.Helper()
	spec := plimsoll.JobSpec{ID: "probe", Owner: "ann", Queue: "root.batch", Groups: []plimsoll.GroupSpec{
		{Name: "work", Count: 1, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 10}},
	}}
	_, err := c.SubmitJob(b.Context(), spec)
	if err == nil {
		_, err = c.KillJob(b.Context(), spec.ID, "it is to end")
	}
	if err != nil {
		b.Fatal(err)
	}
	for {
		_, err := c.ReplaceJob(b.Context(), spec)
		if err == nil {
			return
		}
		if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
			b.Fatal(err)
		}
	}
}

// runDev starts a process and returns a client of it, and a function that ends it.
func runDev(b *testing.B, cfg dev.Config) (c *client.Client, stop func()) {
	b.Helper()
	d, err := dev.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	if err := d.Ready(ctx); err != nil {
		b.Error(err)
	}
	c, err = client.New(client.Config{Server: d.URL()})
	if err != nil {
		b.Fatal(err)
	}
	return c, func() {
		c.Close()
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
}

// untilArchived waits until a job of the archive is answered.
func untilArchived(b *testing.B, c *client.Client, id string) {
	b.Helper()
	for {
		_, err := c.FindJob(b.Context(), client.JobName{ID: id})
		if err == nil {
			return
		}
		if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
			b.Fatal(err)
		}
	}
}

// quantiles calls a function again and again, and reports the median and the slowest of a hundred.
func quantiles(b *testing.B, call func(i int) error) {
	b.Helper()
	var took []float64
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		if err := call(i); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began).Seconds()*1000)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "p50-ms")
	b.ReportMetric(took[len(took)*99/100], "p99-ms")
}

// BenchmarkMillionEnded asks a gateway about 1,000,000 jobs that have ended, and starts a leader
// beside them. The archive is made once.
func BenchmarkMillionEnded(b *testing.B) {
	if testing.Short() {
		b.Skip("it makes an archive of 1,000,000 jobs, which takes most of a minute")
	}
	full := shortBenchDir(b)
	began := time.Now()
	id := fillArchive(b, dev.ArchivePath(filepath.Join(full, "store")))
	b.Logf("the archive was made in %s", time.Since(began).Round(time.Second))
	c, stop := runDev(b, archiving(full, id))
	untilArchived(b, c, archivedJob(0).ID)
	get := func(b *testing.B) {
		quantiles(b, func(i int) error {
			want := archivedJob(i * 7919 % archivedJobs)
			got, err := c.FindJob(b.Context(), client.JobName{ID: want.ID})
			if err == nil && (got.Status.UID != want.UID || !got.Archived) {
				err = fmt.Errorf("got %s", got.Status.UID)
			}
			return err
		})
	}
	b.Run("get/beside-check", get)
	untilChecked(b, c)
	b.Run("get/checked", get)
	benchPages(b, c)
	stop()
	benchCheck(b, dev.ArchivePath(filepath.Join(full, "store")))
	benchStart(b, full)
}

// benchPages asks for pages of 100 of lists with criteria.
func benchPages(b *testing.B, c *client.Client) {
	b.Helper()
	middle := archivedStart + archivedJobs/2*archivedEvery
	for _, list := range []struct {
		name   string
		filter client.JobFilter
	}{
		{"owner-since", client.JobFilter{Owner: "owner7", Since: middle}},
		{"rare-owner", client.JobFilter{Owner: "rare"}},
		{"queue-failed", client.JobFilter{Queue: "root.team1", Results: []plimsoll.TaskResult{plimsoll.ResultFailed}}},
		{"labels-queue-failed", client.JobFilter{
			Labels: []string{"app=app7", "zone"}, Queue: "root.team1.batch",
			Results: []plimsoll.TaskResult{plimsoll.ResultFailed},
		}},
		{"label-by-end", client.JobFilter{Labels: []string{"app=app7"}, Sort: client.SortFinished}},
	} {
		list.filter.Scope, list.filter.PageSize = client.ScopeEnded, 100
		b.Run("page/"+list.name, func(b *testing.B) {
			next, jobs := "", 0
			quantiles(b, func(int) error { // page after page, and from the first again
				page, err := c.JobPage(b.Context(), list.filter, next)
				next, jobs = page.Next, max(jobs, len(page.Jobs))
				return err
			})
			b.ReportMetric(float64(jobs), "jobs")
		})
	}
}

// benchCheck reads the whole archive, as a new leader does beside its work.
func benchCheck(b *testing.B, path string) {
	b.Helper()
	b.Run("check", func(b *testing.B) {
		w, err := sqlite.OpenWriter(b.Context(), path)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if err := w.Check(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s")
	})
}

// benchStart starts a leader and a gateway without an archive, with an empty one and with a full
// one, by turns.
func benchStart(b *testing.B, full string) {
	b.Helper()
	b.Run("start", func(b *testing.B) {
		const starts = 15
		plain, empty := shortBenchDir(b), shortBenchDir(b)
		none := archiving(plain, "")
		none.Archive.None = true
		configs := []struct {
			name string
			cfg  dev.Config
		}{{"none", none}, {"empty", archiving(empty, "")}, {"full", archiving(full, "")}}
		for range b.N {
			var took [3][]float64
			var archived []float64
			for range starts {
				for k, start := range configs {
					began := time.Now()
					c, stop := runDev(b, start.cfg)
					if _, err := c.Queues(b.Context()); err != nil {
						b.Fatal(err)
					}
					took[k] = append(took[k], time.Since(began).Seconds()*1000)
					if start.name == "full" {
						untilArchived(b, c, archivedJob(77).ID)
						archived = append(archived, time.Since(began).Seconds()*1000)
					}
					stop()
				}
			}
			for k, start := range configs {
				slices.Sort(took[k])
				b.ReportMetric(took[k][starts/2], start.name+"-ms")
			}
			slices.Sort(archived)
			b.ReportMetric(archived[starts/2], "archived-ms")
			b.ReportMetric(took[2][starts/2]/took[0][starts/2], "x")
		}
		b.ReportMetric(0, "ns/op") // it is left out
	})
}

// shortBenchDir is a directory whose name is short enough for sockets.
func shortBenchDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	return filepath.Join(dir, "data")
}

// keptJobs is how many ended jobs a leader keeps by default.
const keptJobs = 10_000

// BenchmarkEndedMemory measures the memory of a leader with its gateway when 100,000 jobs have been
// archived, and when 300,000 have. By the first, the ring of events and the outcomes of commands
// have come to their bounds.
func BenchmarkEndedMemory(b *testing.B) {
	if testing.Short() {
		b.Skip("it submits 300,000 jobs, which takes some minutes")
	}
	const first, last = 100_000, 300_000
	for range b.N {
		c, stop := runDev(b, archiving(shortBenchDir(b), ""))
		endJobs(b, c, 0, first)
		heap, resident := heldMemory(b, c)
		b.Logf("after %d jobs: %.1f MB of heap, %.1f MB resident", first, heap/1e6, resident/1e6)
		endJobs(b, c, first, last)
		more, residentMore := heldMemory(b, c)
		stop()
		b.ReportMetric(heap/1e6, "MB-of-100000")
		b.ReportMetric(more/1e6, "MB-of-300000")
		b.ReportMetric(more/heap, "x")
		b.ReportMetric(resident/1e6, "rss-MB-of-100000")
		b.ReportMetric(residentMore/1e6, "rss-MB-of-300000")
	}
	b.ReportMetric(0, "ns/op") // it is left out
}

// endJobs submits jobs and kills them, from 64 submitters.
func endJobs(b *testing.B, c *client.Client, from, to int64) {
	b.Helper()
	next := atomic.Int64{}
	next.Store(from)
	g, ctx := errgroup.WithContext(b.Context())
	for range 64 {
		g.Go(func() error {
			for i := next.Add(1); i <= to; i = next.Add(1) {
				id := fmt.Sprintf("ended-%07d", i)
				_, err := c.SubmitJob(ctx, plimsoll.JobSpec{
					ID: id, Owner: fmt.Sprintf("owner%d", i%200), Queue: "root.batch",
					Labels: map[string]string{"app": fmt.Sprintf("app%d", i%50)},
					Groups: []plimsoll.GroupSpec{{
						Name: "work", Count: 1, Command: []string{"sleep", "60"},
						Resources: plimsoll.Resources{"cpu": 10},
					}},
				})
				if err == nil {
					_, err = c.KillJob(ctx, id, "it is to end")
				}
				if err != nil {
					return fmt.Errorf("job %s: %w", id, err)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

// heldMemory waits until all but the newest jobs have left the active store. It returns the bytes
// of the heap that are in use, and the resident bytes of the process.
func heldMemory(b *testing.B, c *client.Client) (heap, resident float64) {
	b.Helper()
	for active := int64(math.MaxInt64); active > keptJobs; {
		page, err := c.JobPage(b.Context(), client.JobFilter{Count: true, PageSize: 1}, "")
		if err != nil {
			b.Fatal(err)
		}
		active = page.Total
	}
	runtime.GC()
	runtime.GC() // finalizers of the first have run
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(after, &resident); err != nil {
		b.Fatal(err)
	}
	return float64(m.HeapAlloc), resident * 1024
}
