package coordinator

import "github.com/prometheus/client_golang/prometheus"

// requestMetrics counts the events for resource managers, in all terms of this process.
type requestMetrics struct {
	managers prometheus.Gauge
	events   *prometheus.CounterVec

	kept, acknowledged, dropped prometheus.Counter // of events, by outcome
}

func newRequestMetrics() *requestMetrics {
	m := &requestMetrics{
		managers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "plimsoll_coordinator_request_managers", Help: "Resource managers that are registered.",
		}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_coordinator_request_events_total",
			Help: "Events for resource managers: kept for one, acknowledged by it, or dropped before that.",
		}, []string{"outcome"}),
	}
	m.kept, m.acknowledged = m.events.WithLabelValues("kept"), m.events.WithLabelValues("acknowledged")
	m.dropped = m.events.WithLabelValues("dropped")
	return m
}

// requestsDropped counts events that were dropped before their manager had acknowledged them.
func (m *metrics) requestsDropped(n int) {
	m.requests.dropped.Add(float64(n))
	m.events.notStored.Add(uint64(n))
}
