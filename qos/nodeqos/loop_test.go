package nodeqos

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// fakeTree makes the files of a cgroup v2 subtree with one group, as the kernel would.
func fakeTree(t testing.TB, group string) *cgroup.Subtree {
	t.Helper()
	root := t.TempDir()
	for dir, files := range map[string]map[string]string{
		".": {"cgroup.controllers": "cpu memory"}, "n1": nil,
		filepath.Join("n1", group): {
			"cpu.max": "100000 100000\n", "cpu.weight": "100\n", "cpu.idle": "0\n",
			"cpu.stat": "usage_usec 1500\nthrottled_usec 0\n", "memory.current": "4096\n",
			"memory.stat": "inactive_file 0\nactive_file 0\n", "cgroup.freeze": "0\n",
			"cgroup.events": "populated 1\nfrozen 1\n", "cpu.max.burst": "0\n",
		},
	} {
		writeFile(t, filepath.Join(root, dir, "cgroup.procs"), "")
		writeFile(t, filepath.Join(root, dir, "cgroup.subtree_control"), "")
		for name, text := range files {
			writeFile(t, filepath.Join(root, dir, name), text)
		}
	}
	h, err := cgroup.Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Subtree("n1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// direct is a metric whose value the test sets, with immediate effect.
func direct(level *atomic.Int64) Metric {
	return Metric{Metric: qos.Metric{
		Name: "direct", Throttleable: true, ThrottleQuantified: true, Evictable: true,
		Usage: func(*qos.View) (int64, bool) { return level.Load(), true },
		Throttle: func(t *qos.Task, by qos.Throttling) ([]qos.QuotaChange, int64) {
			changes, _ := qos.ThrottleCPU(t, by)
			return changes, plimsoll.LineScale
		},
	}}
}

// running is a loop that runs by itself.
type running struct {
	*Loop
	mu      sync.Mutex
	samples []time.Time
	reports int
	tasks   []Task
	pause   atomic.Int64 // how long the next sample takes
	stop    context.CancelFunc
	ended   chan error
}

func run(t testing.TB, cfg Config, tasks ...Task) *running {
	t.Helper()
	r := &running{tasks: tasks, ended: make(chan error, 1)}
	l, err := New(cfg, Deps{
		Tasks: func() []Task {
			time.Sleep(time.Duration(r.pause.Swap(0)))
			r.mu.Lock()
			defer r.mu.Unlock()
			r.samples = append(r.samples, time.Now())
			return r.tasks
		},
		Evict: func(ctx context.Context, _ string, _ int32, _ time.Duration, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		},
		Report: func(plimsoll.NodeReport) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reports++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Loop = l
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.ended <- l.Run(ctx) }()
	return r
}

func (r *running) end(t testing.TB) {
	t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

func (r *running) count() (samples, reports int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.samples), r.reports
}

// There is a sample at once and then one an interval, and one report at the start; Resend makes
// another.
func TestRunSamplesAtItsInterval(t *testing.T) {
	tree, proc := fakeTree(t, "a-1"), fakeProc(t)
	dir := t.TempDir()
	testrun.Bubble(t, func(t *testing.T) {
		start := time.Now()
		r := run(
			t, Config{Dir: dir, Proc: proc, Subtree: tree},
			Task{ID: "a", Attempt: 1, Group: "a-1", Started: 1, Class: plimsoll.ClassBestEffort},
		)
		time.Sleep(4500 * time.Millisecond)
		synctest.Wait()
		for i, at := range r.samples {
			if want := start.Add(time.Duration(i) * time.Second); !at.Equal(want) {
				t.Errorf("sample %d at %v, want %v", i, at.Sub(start), want.Sub(start))
			}
		}
		if samples, reports := r.count(); samples != 5 || reports != 1 {
			t.Errorf("%d samples, %d reports", samples, reports)
		}
		r.Resend()
		synctest.Wait()
		if _, reports := r.count(); reports != 2 {
			t.Errorf("%d reports", reports)
		}
		if err := r.Run(t.Context()); plimsoll.CodeOf(err) != plimsoll.CodeConflict {
			t.Errorf("a second Run: %v", err)
		}
		r.end(t)
		ctx, stop := context.WithCancel(t.Context())
		r.stop = stop
		go func() { r.ended <- r.Run(ctx) }() // a Loop can be run again
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if samples, _ := r.count(); samples != 7 {
			t.Errorf("%d samples after it was run again", samples)
		}
		r.end(t)
	})
}

// A watcher gets the state at once and then the newest state at each interval. It ends with the
// watcher's own error, which is returned, or with its context.
func TestWatch(t *testing.T) {
	tree, proc := fakeTree(t, "a-1"), fakeProc(t)
	dir := t.TempDir()
	testrun.Bubble(t, func(t *testing.T) {
		var level atomic.Int64
		cfg := Config{Dir: dir, Proc: proc, Subtree: tree, Metrics: []Metric{direct(&level)}, Node: "n1"}
		r := run(
			t, cfg,
			Task{
				ID: "a", Attempt: 1, Group: "a-1", Started: 1, Class: plimsoll.ClassBestEffort,
				Resources: plimsoll.Resources{plimsoll.CPU: 1000},
			},
		)
		r.SetPolicies(policies(throttleByFifth, plimsoll.Rule{Metric: "direct"}))
		synctest.Wait()
		enough := errors.New("enough")
		var seen []*pb.NodeQOSStatus
		start := time.Now()
		level.Store(10_500)
		err := r.Watch(t.Context(), 2*time.Second, func(s *pb.NodeQOSStatus) error {
			if seen = append(seen, s); len(seen) == 3 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || len(seen) != 3 || time.Since(start) != 4*time.Second {
			t.Fatalf("%v after %d in %v", err, len(seen), time.Since(start))
		}
		if seen[0].GetSequence() != 1 || seen[1].GetSequence() != 3 || seen[2].GetSequence() != 5 {
			t.Errorf("samples %d, %d, %d", seen[0].GetSequence(), seen[1].GetSequence(), seen[2].GetSequence())
		}
		line, task := seen[1].GetLines()[0], seen[1].GetTasks()[0]
		if seen[1].GetNode() != "n1" || !line.GetTriggered() || line.GetGap() != 500 || line.GetUsage() != 10_500 ||
			line.GetScale() != 1000 {
			t.Errorf("the line is %v", line)
		}
		if task.GetRung() != "throttle" || task.GetOriginalQuotaNanocores() != qos.Core ||
			task.GetQuotaNanocores() >= qos.Core || len(task.GetAllowed()) != 1 {
			t.Errorf("the task is %v", task)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = r.Watch(ctx, time.Minute, func(*pb.NodeQOSStatus) error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("watching ended with %v", err)
		}
		r.end(t)
	})
}

// Samples that were missed because one took too long are not made up for by many at once.
func TestMissedSamplesAreNotMadeUpFor(t *testing.T) {
	proc, dir := fakeProc(t), t.TempDir()
	testrun.Bubble(t, func(t *testing.T) {
		r := run(t, Config{Dir: dir, Proc: proc})
		synctest.Wait()
		r.pause.Store(int64(10 * time.Second))
		time.Sleep(11 * time.Second)
		synctest.Wait()
		before, _ := r.count()
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		if after, _ := r.count(); after > before {
			t.Errorf("%d samples after a pause, %d more at once", before, after-before)
		}
		r.end(t)
	})
}

// Metrics are measured at their own intervals. A measurement that hangs is given up in time, and
// delays neither the loop nor other metrics. The metric is missing once its last value is too old.
func TestAMetricThatHangsIsMissing(t *testing.T) {
	proc, dir := fakeProc(t), t.TempDir()
	testrun.Bubble(t, func(t *testing.T) {
		var asked, hangs atomic.Int64
		gauge := func(name string, measure func(ctx context.Context) (float64, error)) Metric {
			return Metric{Metric: qos.Metric{Name: name}, Every: 2 * time.Second, Measure: func(
				ctx context.Context, _ *Task,
			) (float64, bool, error) {
				v, err := measure(ctx)
				return v, true, err
			}}
		}
		r := run(t, Config{Dir: dir, Proc: proc, Metrics: []Metric{
			gauge("hanging", func(ctx context.Context) (float64, error) {
				if hangs.Load() == 0 {
					return 7, nil
				}
				<-ctx.Done()
				return 0, ctx.Err()
			}),
			gauge("steady", func(context.Context) (float64, error) { return float64(asked.Add(1)), nil }),
		}})
		value := func(name string) (int64, bool) {
			r.state.Lock()
			defer r.state.Unlock()
			v, ok := r.state.snapshot.Values[name]
			return v, ok
		}
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		if v, ok := value("hanging"); !ok || v != 7000 {
			t.Errorf("%d, %v", v, ok)
		}
		hangs.Store(1)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if v, ok := value("hanging"); ok {
			t.Errorf("it says nothing any more, and has the value %d", v)
		}
		if v, ok := value("steady"); !ok || v < 11_000 || v > 12_000 {
			t.Errorf("the other one: %d, %v", v, ok)
		}
		if samples, _ := r.count(); samples != 24 {
			t.Errorf("%d samples", samples)
		}
		if trouble := r.gauges.trouble("hanging"); trouble != context.DeadlineExceeded.Error() {
			t.Errorf("its trouble is %q", trouble)
		}
		r.end(t)
	})
}

// An impossible configuration is refused before anything is started, with the field and the fix.
func TestBadConfigurationIsRefused(t *testing.T) {
	deps := Deps{
		Tasks: func() []Task { return nil }, Report: func(plimsoll.NodeReport) {},
		Evict: func(context.Context, string, int32, time.Duration, string) error { return nil },
	}
	for field, c := range map[string]Config{
		"dir":                    {},
		"interval":               {Dir: "d", Interval: time.Millisecond},
		"extended.cpuReserve":    {Dir: "d", Extended: ExtendedConfig{CPUReserve: 101}},
		"extended.memoryReserve": {Dir: "d", Extended: ExtendedConfig{MemoryReserve: -1}},
		"extended.halfLife":      {Dir: "d", Extended: ExtendedConfig{HalfLife: -1}},
		"extended.warmUp":        {Dir: "d", Extended: ExtendedConfig{WarmUp: -1}},
		"metrics":                {Dir: "d", Metrics: make([]Metric, plimsoll.MaxMetrics+1)},
		"metric":                 {Dir: "d", Metrics: []Metric{{Metric: qos.Metric{Name: "a"}}}},
	} {
		var e *plimsoll.Error
		if _, err := New(c, deps); !errors.As(err, &e) || e.Code != plimsoll.CodeInvalid || e.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	if _, err := New(Config{Dir: "d"}, Deps{}); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("without dependencies: %v", err)
	}
}
