package nodeqos

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// maxMeasuring is the number of measurements of one user-defined metric that run at once. Each
// metric has its own slots: slow answers for one metric must not make another one go missing.
const maxMeasuring = 8

// gauges hold the last values of the user-defined metrics. They are measured in the background; the
// loop reads the values that are there.
type gauges struct {
	mu struct {
		sync.Mutex
		tasks  []Task
		values map[string]*gauge // by metric
	}
}

// gauge is the last measurement of one metric.
type gauge struct {
	began   time.Time // start of the measurement. Invariant: no reading is older
	node    reading
	tasks   map[qos.Key]reading
	trouble string // last error; empty: none
}

// reading is one value, in the metric's finest unit.
type reading struct {
	value int64
	at    time.Time
	told  bool // the task has this metric. Invariant: true for a node's
	known bool
}

func newGauges() *gauges {
	g := &gauges{}
	g.mu.values = map[string]*gauge{}
	return g
}

// setTasks sets the tasks that are measured.
func (g *gauges) setTasks(tasks []Task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.tasks = tasks
}

func (g *gauges) trouble(metric string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.mu.values[metric]; m != nil {
		return m.trouble
	}
	return ""
}

// collect measures one metric at its interval until ctx ends.
func (l *Loop) collect(ctx context.Context, m *Metric) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			l.measureAll(ctx, m)
			timer.Reset(m.every())
		}
	}
}

// measureAll measures one metric once: of the node, or of each task.
func (l *Loop) measureAll(ctx context.Context, m *Metric) {
	began := l.deps.Now()
	if !m.PerTask {
		r, err := l.measureTask(ctx, m, nil)
		l.gauges.put(m.Name, &gauge{began: began, node: r, trouble: textOf(err)})
		return
	}
	l.gauges.mu.Lock()
	tasks := l.gauges.mu.tasks
	l.gauges.mu.Unlock()
	readings, errs := make([]reading, len(tasks)), make([]error, len(tasks))
	slots := make(chan struct{}, maxMeasuring)
	var work sync.WaitGroup
	for i := range tasks {
		if tasks[i].Started == 0 {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{} // a slot is free at the latest when a measurement times out
		work.Go(func() {
			defer func() { <-slots }()
			readings[i], errs[i] = l.measureTask(ctx, m, &tasks[i])
		})
	}
	work.Wait()
	next := &gauge{began: began, tasks: make(map[qos.Key]reading, len(tasks))}
	for i := range tasks {
		if readings[i].told {
			next.tasks[tasks[i].Key()] = readings[i]
		}
		if errs[i] != nil {
			next.trouble = fmt.Sprintf("task %s: %v", tasks[i].ID, errs[i])
		}
	}
	l.gauges.put(m.Name, next)
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (g *gauges) put(metric string, next *gauge) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.values[metric] = next
}

func (l *Loop) measureTask(ctx context.Context, m *Metric, t *Task) (reading, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout())
	defer cancel()
	value, told, err := m.Measure(ctx, t)
	r := reading{told: told, at: l.deps.Now()}
	if err != nil {
		r.told = true
		return r, err
	}
	if !told {
		return r, nil
	}
	r.value, err = fixed(value, &m.Metric)
	r.known = err == nil
	return r, err
}

// fixed converts a value to the metric's finest unit.
func fixed(value float64, m *qos.Metric) (int64, error) {
	unit := m.Scale
	if unit <= 0 {
		unit = plimsoll.LineScale
	}
	scaled := value * float64(unit)
	switch {
	case math.IsNaN(value), math.IsInf(value, 0), value < 0:
		return 0, fmt.Errorf("its value is %v, which cannot be held against a line; it must be a number from 0", value)
	case scaled > float64(plimsoll.MaxLine):
		return 0, fmt.Errorf("its value is %v, which is more than any line", value)
	}
	return int64(math.Round(scaled)), nil
}

// fill enters the values into a snapshot, with their times. A value that is too old is missing. Of
// a metric of tasks, only the tasks that have it count. If all of those fail, the metric is
// missing. A stopping or frozen task may fail.
func (g *gauges) fill(snap *qos.Snapshot, now time.Time, metrics []Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range metrics {
		m := &metrics[i]
		v := g.mu.values[m.Name]
		if v == nil {
			continue
		}
		snap.Times[m.Name] = snap.At - int64(now.Sub(v.began))
		if m.PerTask {
			v.fillTasks(snap, now, m)
		} else if v.node.known && m.fresh(v.node.at, now) {
			snap.Values[m.Name] = v.node.value
		}
	}
}

// fresh reports whether a measurement is not older than two intervals and the timeout.
func (m *Metric) fresh(at, now time.Time) bool { return now.Sub(at) <= 2*m.every()+m.timeout() }

func (v *gauge) fillTasks(snap *qos.Snapshot, now time.Time, m *Metric) {
	all, silent, known := int64(0), 0, 0
	for i := range snap.Tasks {
		t := &snap.Tasks[i]
		r := v.tasks[t.Key()]
		switch {
		case t.Gone || !r.told:
			continue
		case !r.known || !m.fresh(r.at, now):
			if !t.Stopping && !t.Frozen() { // such a task cannot answer, and its last value is void
				silent++
			}
			continue
		}
		known++
		if t.Values == nil {
			t.Values = map[string]int64{}
		}
		t.Values[m.Name] = r.value
		if m.Sum {
			all = min(all+r.value, plimsoll.MaxLine)
		} else {
			all = max(all, r.value)
		}
	}
	if known > 0 || silent == 0 {
		snap.Values[m.Name] = all
	}
}
