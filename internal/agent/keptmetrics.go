package agent

import "github.com/prometheus/client_golang/prometheus"

// The bounds by which logs are removed, in the metrics: their age, or the bytes of all.
const (
	keptAge  = "age"
	keptRoom = "room"
)

// keptMetrics are the metrics of the logs and files of ended attempts.
type keptMetrics struct {
	bytes, limit, attempts   prometheus.Gauge
	removed, removedAttempts *prometheus.CounterVec
}

func newKeptMetrics(limit int64) *keptMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "plimsoll_agent_kept_" + name, Help: help})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "plimsoll_agent_kept_" + name, Help: help}, []string{"bound"},
		)
		for _, bound := range []string{keptAge, keptRoom} {
			c.WithLabelValues(bound) // 0 is served from the start, so that rates are right
		}
		return c
	}
	m := &keptMetrics{
		bytes:    gauge("bytes", "Disk of the logs and files of attempts that have ended, as their bound counts it."),
		limit:    gauge("bytes_limit", "The bound on it."),
		attempts: gauge("attempts", "Attempts that have ended and whose logs are kept."),
		removed: counter(
			"removed_bytes_total", "Disk of the logs and files that were removed, by the bound: age or room.",
		),
		removedAttempts: counter("removed_total", "Attempts whose logs were removed, by the bound: age or room."),
	}
	m.limit.Set(float64(limit))
	return m
}

func (m *keptMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.bytes, m.limit, m.attempts, m.removed, m.removedAttempts}
}

// gone counts an attempt whose logs were removed.
func (m *keptMetrics) gone(bound string, bytes int64) {
	m.removed.WithLabelValues(bound).Add(float64(bytes))
	m.removedAttempts.WithLabelValues(bound).Inc()
}
