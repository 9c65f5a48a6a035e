package nodeqos

import (
	"context"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/qos"
)

// Metric is a user-defined metric: what can be done about it, and how it is measured.
type Metric struct {
	qos.Metric
	// Measure returns the value now, in the metric's unit. task is nil unless PerTask. ok is false for a task that does not tell this metric.
	Measure func(ctx context.Context, task *Task) (value float64, ok bool, err error)
	PerTask bool          // it is measured for each task; the node's value is their largest, or with Sum all of them together
	Sum     bool          // only with PerTask
	Every   time.Duration // between two measurements; 0: DefaultEvery
	Timeout time.Duration // of one measurement; 0: DefaultTimeout
}

// MetricNames returns the names of the metrics in order, as a node announces them.
func MetricNames(metrics []Metric) []string {
	names := make([]string, len(metrics))
	for i := range metrics {
		names[i] = metrics[i].Name
	}
	slices.Sort(names)
	return names
}
