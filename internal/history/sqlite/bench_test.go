package sqlite_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

const (
	benchStart  = int64(1_700_000_000_000_000_000) / 3600e9 * 3600e9
	benchRate   = 50_000 // events a second
	benchOwners = 200
	benchNodes  = 1000
	benchFold   = 100_000 // events between two folds
)

// load makes batches of a busy cell: jobs of some tasks, each of which is wanted, bound and ended,
// 200 owners with a queue each, 1,000 nodes.
type load struct {
	tasks   int
	job     int64 // lives up to now
	next    uint64
	encoder ring.Encoder
	now     int64
	open    []*history.Job // jobs that run
	events  int            // since the last fold
	fold    []byte

	objects map[history.Object]bool
	jobs    map[int64]*history.Job
	sums    map[int64]*history.Sums
}

func newLoad(tasks int) *load {
	return &load{tasks: tasks, now: benchStart, fold: make([]byte, 2<<20)}
}

var benchResources = plimsoll.Resources{plimsoll.CPU: 1000, plimsoll.Memory: 2 << 30}

func (l *load) add(
	kind plimsoll.EventType, change plimsoll.ChangeType, detail plimsoll.ChangeDetail, object, reference string,
	resources plimsoll.Resources, life int64,
) {
	ev := plimsoll.Event{
		Type: kind, Change: change, Detail: detail, Time: l.now, Object: object, Reference: reference,
		Resources: resources,
	}
	l.encoder.Append(&ev)
	history.Objects(&ev, func(o history.Object) {
		if o.Kind == history.KindJob {
			o.Life = life
		}
		l.objects[o] = true
	})
}

func benchQueue(owner int64) string { return fmt.Sprintf("root.team%d.batch", owner%20) }

// begin adds the events of a job that is taken in and bound.
func (l *load) begin() {
	l.job++
	owner := l.job * 7919 % benchOwners
	j := &history.Job{
		Life: l.job, ID: fmt.Sprintf("pipeline-%d-%08d", l.job%7, l.job), UID: plimsoll.MakeUID(l.now, uint64(l.job)),
		Owner: fmt.Sprintf("owner%d", owner), Queue: benchQueue(owner), Submitted: l.now, State: plimsoll.AppStarting,
		Labels: map[string]string{"app": fmt.Sprintf("app%d", l.job*31%50), "zone": fmt.Sprintf("z%d", l.job%3)},
	}
	l.jobs[j.Life] = j
	l.open = append(l.open, j)
	l.add(plimsoll.EventApp, plimsoll.ChangeAdd, 0, j.ID, "", nil, j.Life)
	l.add(plimsoll.EventQueue, plimsoll.ChangeAdd, plimsoll.QueueApp, j.Queue, j.ID, nil, j.Life)
	l.add(plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppNew, j.ID, "", nil, j.Life)
	for i := range l.tasks {
		task := plimsoll.TaskID(j.ID, "main", int32(i))
		l.add(plimsoll.EventApp, plimsoll.ChangeAdd, plimsoll.AppRequest, j.ID, task, benchResources, j.Life)
	}
	for i := range l.tasks {
		task := plimsoll.TaskID(j.ID, "main", int32(i))
		l.add(plimsoll.EventNode, plimsoll.ChangeAdd, plimsoll.NodeAlloc, l.node(j, i), task, benchResources, j.Life)
		l.add(plimsoll.EventApp, plimsoll.ChangeAdd, plimsoll.AppAlloc, j.ID, task, benchResources, j.Life)
		l.add(plimsoll.EventApp, plimsoll.ChangeRemove, plimsoll.AppRequest, j.ID, task, benchResources, j.Life)
	}
	l.add(plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppStarting, j.ID, "", nil, j.Life)
}

func (l *load) node(j *history.Job, task int) string {
	rng := rand.New(rand.NewPCG(uint64(j.Life), uint64(task)))
	return fmt.Sprintf("node-%05d", rng.IntN(benchNodes))
}

// end adds the events of the end of the job that began first.
func (l *load) end() {
	j := l.open[0]
	l.open = l.open[1:]
	sums := &history.Sums{Used: map[string]history.Amount{}}
	for i := range l.tasks {
		task := plimsoll.TaskID(j.ID, "main", int32(i))
		l.add(plimsoll.EventNode, plimsoll.ChangeRemove, plimsoll.NodeAlloc, l.node(j, i), task, benchResources, j.Life)
		l.add(plimsoll.EventApp, plimsoll.ChangeRemove, plimsoll.AllocCancel, j.ID, task, benchResources, j.Life)
		sums.Started++
		sums.Ended++
		sums.Waits.Note(int64(i) * 1e7)
	}
	for name, units := range benchResources {
		sums.Used[name] = history.AmountOf(units*int64(l.tasks), l.now-j.Submitted)
	}
	l.add(plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppCompleted, j.ID, "", nil, j.Life)
	ended := *j
	ended.State, ended.Ended = plimsoll.AppCompleted, l.now
	l.jobs[j.Life], l.sums[j.Life] = &ended, sums
}

// batch returns the next 10,000 events, which take a time in nanoseconds.
func (l *load) batch(step int64) *history.Batch {
	l.objects, l.jobs, l.sums = map[history.Object]bool{}, map[int64]*history.Job{}, map[int64]*history.Sums{}
	from, to := l.now, l.now+step
	turn := step / int64(benchRate/5/(6*l.tasks+6)+1) // for each job that begins
	for l.encoder.Len() < benchRate/5-9*l.tasks {
		l.now += turn
		if l.encoder.Len() == 0 {
			from = l.now
		}
		l.begin()
		if len(l.open) > 20_000/l.tasks {
			l.end()
		}
	}
	b := &history.Batch{Instance: "bench", First: l.next, Count: uint64(l.encoder.Len()), From: from, To: l.now}
	b.Data = l.encoder.Finish(nil)
	for o := range l.objects {
		b.Objects = append(b.Objects, o)
	}
	for life, j := range l.jobs {
		b.Jobs = append(b.Jobs, *j)
		if sums := l.sums[life]; sums != nil {
			b.Rollups = append(b.Rollups, history.Rollup{
				Hour: l.now / 3600e9 * 3600, Sums: *sums,
				Group: history.Group{
					Life: life, Owner: j.Owner, Queue: j.Queue, Labels: history.EncodeLabels(j.Labels),
				},
			})
		}
	}
	l.next += b.Count
	l.now = max(l.now, to)
	if l.events += int(b.Count); l.events >= benchFold {
		b.Fold, l.events = l.fold, 0
	}
	return b
}

// BenchmarkIngest takes events in, with one fsync for each 10,000. An operation is one event. The
// time does not have the making of the batches, but has a fold of 2 MiB for each 100,000 events.
func BenchmarkIngest(b *testing.B) {
	for _, tasks := range []int{100, 30, 1} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "events.db")
			w, err := sqlite.OpenWriter(b.Context(), path)
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close() //nolint:errcheck // the figures are there
			l := newLoad(tasks)
			b.StopTimer()
			n := 0
			for n < b.N {
				batch := l.batch(200e6)
				b.StartTimer()
				if err := w.Write(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				n += int(batch.Count)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
			if info, err := os.Stat(path); err == nil {
				b.ReportMetric(float64(info.Size())/float64(n), "bytes/event")
			}
		})
	}
}

// benchEvents is the number of events in the history that is read.
func benchEvents(b *testing.B) int {
	b.Helper()
	text := os.Getenv("PLIMSOLL_HISTORY_EVENTS")
	if text == "" {
		return 5_000_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// filled returns the path of a history with benchEvents events, all of one day. It is made once, in
// a directory that stays if PLIMSOLL_HISTORY_DIR names one.
func filled(b *testing.B, tasks int) (path string, l *load) {
	b.Helper()
	count := benchEvents(b)
	directory := os.Getenv("PLIMSOLL_HISTORY_DIR")
	if directory == "" {
		directory = b.TempDir()
	}
	path = filepath.Join(directory, fmt.Sprintf("events-%d-%d.db", count, tasks))
	w, err := sqlite.OpenWriter(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	at, err := w.Position(b.Context())
	l = newLoad(tasks)
	made := int(at.Next) < count
	for err == nil && int(l.next) < count {
		batch := l.batch(20 * 3600e9 / int64(count/9000+1))
		if made {
			err = w.Write(b.Context(), batch)
		}
	}
	if err := errors.Join(err, w.Close()); err != nil {
		b.Fatal(err)
	}
	return path, l
}

// BenchmarkHistory answers questions about a full history. p99 is of the calls of one run.
func BenchmarkHistory(b *testing.B) {
	for _, tasks := range []int{100, 1} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) { askHistory(b, tasks) })
	}
}

func askHistory(b *testing.B, tasks int) {
	begun := time.Now()
	path, l := filled(b, tasks)
	took := time.Since(begun).Seconds()
	b.Run("build", func(b *testing.B) {
		b.ReportMetric(took, "s")
		b.ReportMetric(float64(l.next), "events")
		b.ReportMetric(float64(l.job), "jobs")
		if info, err := os.Stat(path); err == nil {
			b.ReportMetric(float64(info.Size())/float64(l.next), "bytes/event")
		}
	})
	r := sqlite.OpenReader(path)
	defer r.Close() //nolint:errcheck // the figures are there
	jobID := func(i int) string {
		n := int64(i)*7919%(l.job-int64(len(l.open))) + 1
		return fmt.Sprintf("pipeline-%d-%08d", n%7, n)
	}
	usage := func(q history.UsageQuery) func(i int) (int, error) {
		return func(int) (int, error) {
			q.From, q.Until = benchStart/1e9, benchStart/1e9+24*3600
			rows, _, err := r.Usage(b.Context(), q)
			return len(rows), err
		}
	}
	for _, c := range []struct {
		name string
		ask  func(i int) (rows int, err error)
	}{
		{"timeline-of-a-job", func(i int) (int, error) {
			page, err := r.Timeline(b.Context(), history.TimelineQuery{
				Object: history.Object{Kind: history.KindJob, ID: jobID(i)},
			})
			return len(page.Rows), err
		}},
		{"timeline-of-a-task", func(i int) (int, error) {
			page, err := r.Timeline(b.Context(), history.TimelineQuery{
				Object: history.Object{Kind: history.KindJob, ID: jobID(i)},
				Task:   plimsoll.TaskID(jobID(i), "main", 0),
			})
			return len(page.Rows), err
		}},
		{"page-of-a-node", func(i int) (int, error) {
			page, err := r.Timeline(b.Context(), history.TimelineQuery{
				Object: history.Object{Kind: history.KindNode, ID: fmt.Sprintf("node-%05d", i%benchNodes)},
				From:   benchStart + int64(i%20)*3600e9, Limit: 100,
			})
			return len(page.Rows), err
		}},
		{"usage/by=owner", usage(history.UsageQuery{By: []history.Dimension{history.ByOwner}})},
		{"usage/by=owner,hour", usage(history.UsageQuery{
			By: []history.Dimension{history.ByOwner, history.ByHour},
		})},
		{"usage/by=label", usage(history.UsageQuery{By: []history.Dimension{"label:app"}})},
		{"usage/one-owner", usage(history.UsageQuery{Owner: "owner7"})},
		{"usage/one-job", usage(history.UsageQuery{Job: jobID(77)})},
		{"jobs/of-an-owner", func(i int) (int, error) {
			page, err := r.Jobs(b.Context(), history.JobQuery{
				Owner: fmt.Sprintf("owner%d", i%benchOwners), Limit: 100,
			})
			return len(page.Rows), err
		}},
		{"jobs/of-an-hour", func(i int) (int, error) {
			from := benchStart + int64(i%20)*3600e9
			page, err := r.Jobs(b.Context(), history.JobQuery{From: from, Until: from + 3600e9, Limit: 100})
			return len(page.Rows), err
		}},
		{"at", func(i int) (int, error) {
			_, replay, err := r.At(b.Context(), benchStart+int64(i*7919%20)*3600e9+1800e9)
			n := 0
			if err == nil {
				err = replay(func(e history.Events) error { n += int(e.Count); return nil })
			}
			return n, err
		}},
	} {
		b.Run(c.name, func(b *testing.B) { measure(b, c.ask) })
	}
}

func measure(b *testing.B, ask func(i int) (int, error)) {
	var took []time.Duration
	rows := 0
	for i := 0; b.Loop(); i++ {
		begun := time.Now()
		n, err := ask(i)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begun))
		rows = n
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(rows), "rows")
}
