package coordinator

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	lifeNodes   = 1000
	lifeDrivers = 32
	lifeTasks   = 32 // tasks that a driver has under way; at least one job
)

// lives is a leader on a real disk, whose jobs run through their whole lives: submitted, bound,
// running, finished. Its commands come as a gateway sends them, but without the network.
type lives struct {
	*leader
	reader archive.Reader // nil: ended jobs are forgotten
	ended  int64          // jobs that have ended up to now
}

// startLives starts a leader with some nodes.
func startLives(b *testing.B, archived bool) *lives {
	b.Helper()
	dir := b.TempDir()
	st, err := pebble.Open(pebble.Config{Dir: filepath.Join(dir, "store")})
	if err != nil {
		b.Fatal(err)
	}
	var cfg Config
	l := &lives{}
	if archived {
		path := filepath.Join(dir, "jobs.db")
		cfg.Archive = Archive{
			Open: func(ctx context.Context) (archive.Writer, error) { return sqlite.OpenWriter(ctx, path) },
			Read: func() archive.Reader { return sqlite.OpenReader(path) },
		}
		l.reader = sqlite.OpenReader(path)
	}
	l.leader = lead(b, cfg, st)
	b.Cleanup(func() {
		l.stop()
		if l.reader != nil {
			if err := l.reader.Close(); err != nil {
				b.Error(err)
			}
		}
	})
	for i := range lifeNodes {
		l.must(register(fmt.Sprintf("node-%04d", i), 1))
	}
	return l
}

// ask sends commands and waits for their replies.
func (l *lives) ask(commands []*pb.Command) error {
	var replies sync.WaitGroup
	var failed atomic.Pointer[error]
	replies.Add(len(commands))
	for _, cmd := range commands {
		l.term.exec(context.Background(), "gw", cmd, func(r *pb.Reply) {
			if err := wire.ErrorFromProto(r.GetError()); err != nil {
				failed.Store(&err)
			}
			replies.Done()
		})
	}
	replies.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// live runs jobs through their lives. first is the number of the first one.
func (l *lives) live(first int64, jobs, tasks int) error {
	commands := make([]*pb.Command, jobs)
	for i := range commands {
		commands[i] = submit(lifeSpec(first+int64(i), tasks))
	}
	if err := l.ask(commands); err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	byNode := map[string][]*pb.TaskReport{}
	for i := range jobs {
		id := lifeID(first + int64(i))
		for t := range int32(tasks) {
			report := &pb.TaskReport{Task: plimsoll.TaskID(id, "work", t), Attempt: 1}
			node := l.nodeOf(id, wire.TaskKey(id, "work", t))
			byNode[node] = append(byNode[node], report)
		}
	}
	for _, st := range []pb.TaskState{pb.TaskState_TASK_STATE_RUNNING, pb.TaskState_TASK_STATE_FINISHED} {
		commands = commands[:0]
		for node, reports := range byNode {
			for _, report := range reports {
				report.State, report.At = st, time.Now().UnixNano()
				if st == pb.TaskState_TASK_STATE_FINISHED {
					report.Result = pb.TaskResult_TASK_RESULT_SUCCEEDED
				}
			}
			commands = append(commands, reportTasks(node, reports...))
		}
		if err := l.ask(commands); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// nodeOf waits until a gateway sees that a task of a job is bound.
func (l *lives) nodeOf(job, key string) string {
	changed, cancel := l.Watch(wire.KindJobStatus, job)
	defer cancel()
	for {
		if node := l.Latest().NodeOf(key); node != "" {
			return node
		}
		<-changed // the status of a job counts its bound tasks
	}
}

func lifeID(i int64) string { return fmt.Sprintf("pipeline-%d-%08d", i%7, i) }

// lifeSpec is a job as a busy cell has them: 200 owners, four queues, two labels.
func lifeSpec(i int64, tasks int) *plimsoll.JobSpec {
	return &plimsoll.JobSpec{
		ID: lifeID(i), Owner: fmt.Sprintf("owner%d", i*7919%200), Queue: "root.batch",
		Labels: map[string]string{"app": fmt.Sprintf("app%d", i*31%50), "zone": fmt.Sprintf("z%d", i%3)},
		Groups: []plimsoll.GroupSpec{{
			Name: "work", Count: int32(tasks), Command: []string{"process", "--input", fmt.Sprintf("/data/part-%d", i)},
			Resources: plimsoll.Resources{"cpu": 10, "memory": 1 << 20},
		}},
	}
}

// measured has the figures of one round of lives.
type measured struct {
	jobs, archived float64   // jobs that ended, and that were in the archive, a second
	processor      float64   // microseconds a job, until all were in the archive
	lives          []float64 // milliseconds from the submit of a block until it had ended
}

// round lets jobs live, from several drivers at once; with a rate, that many a second.
func (l *lives) round(b *testing.B, jobs, tasks int, rate float64) measured {
	b.Helper()
	began, before := time.Now(), processTime()
	block := max(1, lifeTasks/tasks)
	var next atomic.Int64
	var drivers sync.WaitGroup
	took := make([][]float64, lifeDrivers)
	for d := range took {
		drivers.Go(func() {
			for {
				i := int(next.Add(int64(block))) - block
				if i >= jobs {
					return
				}
				if rate > 0 {
					time.Sleep(time.Until(began.Add(time.Duration(float64(i) / rate * 1e9))))
				}
				start := time.Now()
				if err := l.live(l.ended+int64(i), min(block, jobs-i), tasks); err != nil {
					b.Error(err)
					return
				}
				took[d] = append(took[d], milliseconds(time.Since(start)))
			}
		})
	}
	drivers.Wait()
	if b.Failed() {
		b.FailNow()
	}
	l.ended += int64(jobs)
	m := measured{jobs: float64(jobs) / time.Since(began).Seconds(), lives: slices.Concat(took...)}
	for l.reader != nil && !l.allArchived(b) {
		time.Sleep(5 * time.Millisecond) // asking at once would cost what is measured
	}
	m.archived = float64(jobs) / time.Since(began).Seconds()
	m.processor = float64((processTime() - before).Nanoseconds()) / 1000 / float64(jobs)
	return m
}

func (l *lives) allArchived(b *testing.B) bool {
	b.Helper()
	mark, err := l.reader.Mark(b.Context())
	if err != nil && plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		b.Fatal(err)
	}
	return mark.Jobs >= l.ended
}

// processTime returns the processor time of this process up to now.
func processTime() time.Duration {
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// BenchmarkArchiving lets jobs live on a leader that forgets them and on one with an archive, by
// turns. So a drift of the machine is the same for both. Medians of the rounds count. At full speed
// the leader, its drivers and a follower use all of the machine. The archive then slows down the
// engine by its share of the processor. At a rate there is room for it.
func BenchmarkArchiving(b *testing.B) {
	for _, load := range []struct {
		name         string
		tasks        int
		jobs, rounds int
		rate         float64 // jobs a second; 0: as fast as it goes
	}{
		{"jobs-of-1/full", 1, 20_000, 10, 0},
		{"jobs-of-1/rate=5000", 1, 20_000, 5, 5000},
		{"jobs-of-100/full", 100, 1000, 10, 0},
		{"jobs-of-100/rate=200", 100, 1000, 3, 200},
	} {
		b.Run(load.name, func(b *testing.B) {
			rounds := load.rounds
			if testing.Short() {
				rounds = 2
			}
			leaders := []*lives{startLives(b, false), startLives(b, true)}
			for range b.N {
				var figures [2]struct{ jobs, archived, processor, lives []float64 }
				for range rounds {
					for i, l := range leaders {
						m, f := l.round(b, load.jobs, load.tasks, load.rate), &figures[i]
						f.jobs, f.archived = append(f.jobs, m.jobs), append(f.archived, m.archived)
						f.processor, f.lives = append(f.processor, m.processor), append(f.lives, m.lives...)
					}
				}
				without, with := &figures[0], &figures[1]
				b.ReportMetric(median(without.jobs), "jobs/s-without")
				b.ReportMetric(median(with.jobs), "jobs/s")
				b.ReportMetric(median(with.jobs)/median(without.jobs), "x-jobs/s")
				b.ReportMetric(median(with.archived), "archived-jobs/s")
				b.ReportMetric(median(with.archived)*float64(load.tasks), "archived-tasks/s")
				b.ReportMetric(median(with.processor), "cpu-us/job")
				b.ReportMetric(median(with.processor)-median(without.processor), "cpu-us/job-more")
				b.ReportMetric(median(without.lives), "life-ms-without")
				b.ReportMetric(median(with.lives), "life-ms")
				b.ReportMetric(with.lives[len(with.lives)*99/100], "life-p99-ms")
				b.ReportMetric(without.lives[len(without.lives)*99/100], "life-p99-ms-without")
			}
			b.ReportMetric(0, "ns/op") // it is left out
		})
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
