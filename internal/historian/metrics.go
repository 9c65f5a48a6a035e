package historian

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// metrics are the figures of /metrics.
type metrics struct {
	registry *prometheus.Registry // nil: they are in that of the caller

	up, bytes, foldBytes  prometheus.Gauge
	registered            prometheus.Gauge
	behind, behindSeconds prometheus.Gauge
	events, lost, gaps    prometheus.Counter
	writeErrors           prometheus.Counter
	unknownJobs           prometheus.Counter
	unexpected            prometheus.Counter
	calls                 *prometheus.CounterVec
	refused               *prometheus.CounterVec

	follows atomic.Bool // events have arrived
}

// The bounds that plimsoll_historian_refused_total names, beside those of connections.
const boundQuestions = "questions"

func newMetrics(into prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "plimsoll_historian_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "plimsoll_historian_" + name, Help: help})
	}
	m := &metrics{
		up:            gauge("up", "1 while events are taken in; 0: the history cannot be written."),
		registered:    gauge("registered", "1 while the historian is registered, so that events are held back."),
		bytes:         gauge("bytes", "Bytes of the history."),
		foldBytes:     gauge("fold_bytes", "Memory of the cluster as the historian's events tell it."),
		behind:        gauge("behind_events", "Events that the gateway has and the history has not."),
		behindSeconds: gauge("behind_seconds", "Age of the oldest of them; 0: there are none."),
		events:        counter("events_total", "Events that were written."),
		gaps:          counter("gaps_total", "Gaps: ranges of events that could not be had."),
		lost:          counter("lost_events_total", "Events in gaps, as far as their number is known."),
		writeErrors:   counter("write_errors_total", "Failures to open or write the history."),
		unknownJobs:   counter("unknown_jobs_total", "Jobs whose owner and labels could not be learned."),
		unexpected:    counter("unexpected_events_total", "Events that do not fit to those before them."),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_historian_calls_total",
			Help: "Questions that were answered, by call and by the code of their error; ok: none.",
		}, []string{"call", "code"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_historian_refused_total",
			Help: "Questions and connections that were refused because there were too many, by the bound.",
		}, []string{"bound"}),
	}
	m.refused.WithLabelValues(boundQuestions) // shown as 0 before it counts, so that rates are right
	if into == nil {
		m.registry = prometheus.NewRegistry()
		m.registry.MustRegister(collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		into = m.registry
	}
	into.MustRegister(m.up, m.registered, m.bytes, m.foldBytes, m.behind, m.behindSeconds, m.events, m.gaps, m.lost,
		m.writeErrors, m.unknownJobs, m.unexpected, m.calls, m.refused)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

func (m *metrics) refuse(bound string) { m.refused.WithLabelValues(bound).Inc() }

func (m *metrics) setUp(up bool) {
	if up {
		m.up.Set(1)
		return
	}
	m.up.Set(0)
}

func (m *metrics) setRegistered(registered bool) {
	if registered {
		m.registered.Set(1)
		return
	}
	m.registered.Set(0)
}

// following notes that events arrive, and reports whether they did before.
func (m *metrics) following() bool { return m.follows.Swap(true) }

// measured notes the distance to the newest event. page begins at the position.
func (m *metrics) measured(now time.Time, at history.Position, page *client.EventPage) {
	if len(page.Records) == 0 || page.Highest < at.Next {
		m.behind.Set(0)
		m.behindSeconds.Set(0)
		return
	}
	m.behind.Set(float64(page.Highest - at.Next + 1))
	m.behindSeconds.Set(max(0, now.Sub(time.Unix(0, page.Records[0].Event.Time)).Seconds()))
}

// gap notes events that could not be had.
func (m *metrics) gap(g *history.Gap) {
	m.gaps.Inc()
	m.lost.Add(float64(g.Next - g.First))
}

// wrote notes a batch that was written.
func (m *metrics) wrote(b *history.Batch, unexpected int) {
	m.events.Add(float64(b.Count))
	m.foldBytes.Set(float64(b.FoldBytes))
	m.unexpected.Add(float64(unexpected))
}

// count counts an answer.
func (m *metrics) count(call string, err error) {
	code := "ok"
	if err != nil {
		code = plimsoll.CodeOf(err).String()
	}
	m.calls.WithLabelValues(call, code).Inc()
}
