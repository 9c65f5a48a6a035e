package nodeqos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// NewRegistry validates metrics, and returns a registry of them and the built-in metrics.
func NewRegistry(metrics []Metric) (*qos.Registry, error) {
	var rows []qos.Metric
	sorters := map[string]*qos.Sorter{}
	for i := range metrics {
		m := &metrics[i]
		if err := m.Validate(); err != nil {
			return nil, err
		}
		if !m.OnlySort {
			rows = append(rows, m.Metric)
			continue
		}
		if sorters[m.Name] != nil {
			return nil, plimsoll.Invalid("metric", "%s: its order is given twice; remove one", m.Name)
		}
		sorters[m.Name] = m.Sort
	}
	registry, err := qos.NewRegistrySorted(sorters, rows...)
	if err != nil {
		return nil, fmt.Errorf("register the node's metrics: %w", err)
	}
	return registry, nil
}

// Metric is a user-defined metric, with its attributes, its measurement and its actions.
//
//	requests := nodeqos.Metric{
//		Metric: qos.Metric{
//			Name: "requests", Unit: "requests/s", ActionPriority: 7, Sort: &byRequests,
//			Throttleable: true, ThrottleQuantified: true, Limit: &qos.Limit{},
//			Evictable: true, EvictQuantified: true,
//		},
//		PerTask: true, Sum: true, Every: time.Second,
//		Measure: func(ctx context.Context, task *nodeqos.Task) (float64, bool, error) { … },
//		Actions: nodeqos.Actions{Throttle: setLimit, Restore: setLimit, Evict: disconnect},
//	}
type Metric struct {
	qos.Metric
	Actions  Actions // the program's own ways to act on a task
	OnlySort bool    // the sorter of the built-in metric Name is replaced; Sort is the only other field set
	// Measure returns the value now, in the metric's unit. task is nil unless PerTask. ok is false
	// for a task that does not have the metric. Measure is called in the background, for several
	// tasks at once, and must end with ctx. nil: Metric.Usage computes the value from the snapshot.
	Measure func(ctx context.Context, task *Task) (value float64, ok bool, err error)
	// PerTask measures each task. The node's value is then the largest value or, with Sum, the sum.
	PerTask bool
	Sum     bool          // only with PerTask
	Every   time.Duration // between two measurements; 0: DefaultEvery
	Timeout time.Duration // of one measurement; 0: DefaultTimeout, or Every if that is less
}

// Bounds and defaults of measurements.
const (
	DefaultEvery   = 5 * time.Second
	DefaultTimeout = 2 * time.Second
	MinEvery       = 100 * time.Millisecond
	MaxEvery       = time.Hour
)

func (m *Metric) every() time.Duration {
	if m.Every == 0 {
		return DefaultEvery
	}
	return m.Every
}

func (m *Metric) timeout() time.Duration {
	if m.Timeout == 0 {
		return min(DefaultTimeout, m.every())
	}
	return m.Timeout
}

// Validate returns an error if the metric cannot be measured as it says.
func (m *Metric) Validate() error {
	switch {
	case m.OnlySort && m.Sort == nil:
		return plimsoll.Invalid("metric", "%s: OnlySort needs Sort", m.Name)
	case m.OnlySort:
		return nil
	case m.Measure == nil && m.Usage == nil:
		return plimsoll.Invalid("metric", "%s cannot be measured; give a command or a prometheus endpoint", m.Name)
	case m.Every != 0 && (m.Every < MinEvery || m.Every > MaxEvery):
		return plimsoll.Invalid("metric", "%s: every is %v; give %v to %v", m.Name, m.Every, MinEvery, MaxEvery)
	case m.Timeout < 0 || m.Timeout > m.every():
		return plimsoll.Invalid(
			"metric", "%s: timeout is %v; give a duration above 0 and up to every, %v", m.Name, m.Timeout, m.every(),
		)
	case m.Sum && !m.PerTask:
		return plimsoll.Invalid(
			"metric", "%s: only values of tasks can be summed up; give perTask: true", m.Name,
		)
	case m.EvictQuantified && m.Release == nil && m.Dimension == "" && !(m.PerTask && m.Sum):
		return plimsoll.Invalid(
			"metric",
			"%s: the release of a task that is evicted is not known; evictQuantified needs perTask: true and aggregate: sum",
			m.Name,
		)
	case m.ThrottleQuantified && m.Throttle == nil && m.ownDimension() && !(m.PerTask && m.Sum) &&
		(m.Limit == nil || m.Limit.Throttle == nil):
		return plimsoll.Invalid("metric", "%s: the release of a task that is throttled is not known; "+
			"throttleQuantified needs perTask: true and aggregate: sum", m.Name)
	}
	return m.validateActions()
}

func (m *Metric) ownDimension() bool { return m.Dimension == "" || m.Dimension == m.Name }

// MetricNames returns the sorted names of the metrics, as a node announces them.
func MetricNames(metrics []Metric) []string {
	names := make([]string, 0, len(metrics))
	for i := range metrics {
		if !metrics[i].OnlySort {
			names = append(names, metrics[i].Name)
		}
	}
	slices.Sort(names)
	return names
}
