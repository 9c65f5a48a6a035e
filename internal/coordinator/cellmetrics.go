package coordinator

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// lastTotals holds the totals of the state after the last turn that is durable.
type lastTotals struct {
	mu struct {
		sync.Mutex
		totals state.Totals
	}
}

func (l *lastTotals) set(t state.Totals) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.totals = t
}

func (l *lastTotals) get() state.Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.totals
}

// cellMetrics is a prometheus.Collector of the jobs, tasks, nodes and queues of the cell. A turn
// costs it a copy of the totals. A scrape reads one record of the published snapshot for each
// queue. A process that does not lead shows nothing of the cell, so that sums over all coordinators
// are right.
type cellMetrics struct {
	status *status
	waits  prometheus.Histogram
}

// shownQueues is the number of leaves that have series of their own: the first ones in the order of
// their paths. The others are one sum at the queue otherQueues.
const shownQueues = 500

// otherQueues is no path of a queue: those begin with the root.
const otherQueues = "other"

var (
	jobsDesc  = prometheus.NewDesc("plimsoll_jobs", "Jobs in the active state, by state.", []string{"state"}, nil)
	tasksDesc = prometheus.NewDesc("plimsoll_tasks", "Tasks of these jobs, by state.", []string{"state"}, nil)
	nodesDesc = prometheus.NewDesc("plimsoll_nodes", "Nodes, by state.", []string{"state"}, nil)
	endsDesc  = prometheus.NewDesc(
		"plimsoll_task_ends_total", "Attempts of tasks that have ended in this term, by result.", []string{"result"},
		nil,
	)
	queuePendingDesc = prometheus.NewDesc(
		"plimsoll_queue_pending", "Tasks that wait for a node, by leaf queue.", []string{"queue"}, nil,
	)
	queueRunningDesc = prometheus.NewDesc(
		"plimsoll_queue_running", "Tasks that hold resources, by leaf queue.", []string{"queue"}, nil,
	)
	queueJobsDesc = prometheus.NewDesc(
		"plimsoll_queue_jobs_waiting", "Jobs whose tasks may not be placed yet, by leaf queue.", []string{"queue"}, nil,
	)
)

func newCellMetrics(s *status) *cellMetrics {
	return &cellMetrics{status: s, waits: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "plimsoll_task_wait_seconds",
		Help:    "Time from the creation of tasks to their first binding to a node.",
		Buckets: []float64{.01, .05, .25, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600},
	})}
}

// bound observes the wait of a task that was bound to a node. Waits before further attempts do not
// count: they are mostly the delays that retries ask for.
func (m *cellMetrics) bound(t *plimsoll.Task) {
	if t.Attempt == 1 {
		m.waits.Observe(time.Duration(t.Bound - t.Created).Seconds())
	}
}

// Describe implements prometheus.Collector.
func (m *cellMetrics) Describe(to chan<- *prometheus.Desc) {
	m.waits.Describe(to)
	for _, d := range []*prometheus.Desc{
		jobsDesc, tasksDesc, nodesDesc, endsDesc, queuePendingDesc, queueRunningDesc, queueJobsDesc,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *cellMetrics) Collect(to chan<- prometheus.Metric) {
	m.waits.Collect(to)
	t := m.status.get().term
	if t == nil {
		return
	}
	now := t.totals.get()
	gauge := func(desc *prometheus.Desc, n int64, label string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), label)
	}
	for s := plimsoll.JobNew; s.Known(); s++ {
		gauge(jobsDesc, now.Jobs[s], s.String())
	}
	for s := plimsoll.TaskPending; s.Known(); s++ {
		gauge(tasksDesc, now.Tasks[s], s.String())
	}
	for c := state.NodeNotReady; int(c) < state.NumNodeConditions; c++ {
		gauge(nodesDesc, now.Nodes[c], c.String())
	}
	for r := plimsoll.ResultSucceeded; r.Known(); r++ {
		to <- prometheus.MustNewConstMetric(endsDesc, prometheus.CounterValue, float64(now.Ends[r]), r.String())
	}
	depths, err := queueDepths(t.source.Snapshot())
	if err != nil {
		to <- prometheus.NewInvalidMetric(queuePendingDesc, err)
		return
	}
	for _, q := range depths {
		gauge(queuePendingDesc, q.pending, q.path)
		gauge(queueRunningDesc, q.running, q.path)
		gauge(queueJobsDesc, q.jobsWaiting, q.path)
	}
}

// queueDepth has the values of a leaf in the metrics.
type queueDepth struct {
	path                          string
	pending, running, jobsWaiting int64
}

// queueDepths returns the leaves in the order of their paths, at most shownQueues, and behind them
// the sum of the others, if there are any.
func queueDepths(snapshot *replica.Snapshot) (depths []queueDepth, err error) {
	for path, record := range snapshot.Scan(wire.KindQueueStatus, "", "") {
		q, err := wire.DecodeQueueStatus(record)
		if err != nil {
			return nil, fmt.Errorf("read queue %s: %w", path, err)
		}
		if !q.Leaf {
			continue
		}
		switch n := len(depths); {
		case n < shownQueues:
			depths = append(depths, queueDepth{path: q.Path})
		case n == shownQueues:
			depths = append(depths, queueDepth{path: otherQueues})
		}
		d := &depths[len(depths)-1]
		d.pending += int64(q.Waiting)
		d.running += int64(q.Running)
		d.jobsWaiting += int64(q.JobsWaiting)
	}
	return depths, nil
}
