package coordinator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

// archiveMetrics is a prometheus.Collector of the archive. A process that does not lead, or has no
// archive, shows the counters alone.
type archiveMetrics struct {
	status  *status
	up      prometheus.Gauge
	jobs    prometheus.Gauge
	bytes   prometheus.Gauge
	written prometheus.Counter
	seconds prometheus.Histogram
	errors  prometheus.Counter
	removed prometheus.Counter

	attemptsDropped prometheus.Counter
}

var (
	archiveWaitingDesc = prometheus.NewDesc(
		"plimsoll_archive_jobs_waiting", "Jobs that have ended and are not in the archive yet.", nil, nil,
	)
	archiveBoundDesc = prometheus.NewDesc(
		"plimsoll_archive_jobs_waiting_limit", "The number of them at which submits are refused.", nil, nil,
	)
	archiveLagDesc = prometheus.NewDesc(
		"plimsoll_archive_lag_seconds", "Time since the first of them has ended; 0: none waits.", nil, nil,
	)
)

func newArchiveMetrics(s *status) *archiveMetrics {
	return &archiveMetrics{
		status: s,
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "plimsoll_archive_up", Help: "1 while the archive takes jobs, 0 while it does not.",
		}),
		jobs: prometheus.NewGauge(prometheus.GaugeOpts{Name: "plimsoll_archive_jobs", Help: "Jobs in the archive."}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "plimsoll_archive_bytes", Help: "Bytes of the jobs in the archive, as its retention counts them.",
		}),
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_archive_written_total", Help: "Jobs that were put into the archive.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plimsoll_archive_write_seconds", Help: "Time of a write of up to 512 jobs.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10},
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_archive_errors_total", Help: "Errors of the archive, each followed by another try.",
		}),
		removed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_archive_trimmed_total", Help: "Jobs that the retention has removed from the archive.",
		}),
		attemptsDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_archive_attempts_dropped_total",
			Help: "Attempts that gave way to later ones of their task because the archive did not take them in time.",
		}),
	}
}

// counters returns the metrics that have values without a term.
func (m *archiveMetrics) counters() []prometheus.Collector {
	return []prometheus.Collector{m.written, m.seconds, m.errors, m.removed, m.attemptsDropped}
}

// Describe implements prometheus.Collector.
func (m *archiveMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range append(m.counters(), m.up, m.jobs, m.bytes) {
		c.Describe(to)
	}
	for _, d := range []*prometheus.Desc{archiveWaitingDesc, archiveBoundDesc, archiveLagDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *archiveMetrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.counters() {
		c.Collect(to)
	}
	t := m.status.get().term
	if t == nil || t.archiver == nil {
		return
	}
	for _, c := range []prometheus.Collector{m.up, m.jobs, m.bytes} {
		c.Collect(to)
	}
	now, lag := t.totals.get(), 0.0
	if now.ToArchive > 0 {
		lag = max(0, time.Duration(t.now()-now.OldestToArchive).Seconds())
	}
	for _, v := range []struct {
		desc  *prometheus.Desc
		value float64
	}{
		{archiveWaitingDesc, float64(now.ToArchive)},
		{archiveBoundDesc, float64(t.archiver.most)},
		{archiveLagDesc, lag},
	} {
		to <- prometheus.MustNewConstMetric(v.desc, prometheus.GaugeValue, v.value)
	}
}

func (m *archiveMetrics) setUp(up bool) {
	m.up.Set(0)
	if up {
		m.up.Set(1)
	}
}

func (m *archiveMetrics) failed() { m.errors.Inc() }

// reached sets the numbers of jobs and bytes in the archive.
func (m *archiveMetrics) reached(mark *archive.Mark) {
	m.jobs.Set(float64(mark.Jobs))
	m.bytes.Set(float64(mark.Bytes))
}

// wrote counts a write that began at a time, with the marks before and after it.
func (m *archiveMetrics) wrote(began time.Time, before, after *archive.Mark) {
	m.seconds.Observe(time.Since(began).Seconds())
	m.written.Add(float64(max(0, after.Jobs-before.Jobs)))
	m.reached(after)
}

func (m *archiveMetrics) trimmed(jobs int) { m.removed.Add(float64(jobs)) }
