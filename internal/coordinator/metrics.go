package coordinator

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
)

// metrics are what /metrics shows of the coordinator. It is a prometheus.Collector of them all.
type metrics struct {
	turns      prometheus.Counter
	commands   *prometheus.CounterVec
	placements prometheus.Counter
	events     prometheus.Counter
	commits    prometheus.Histogram
	depth      prometheus.Gauge
	inbox      prometheus.GaugeFunc
}

func newMetrics(c *Coordinator) *metrics {
	return &metrics{
		turns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_coordinator_turns_total", Help: "Turns of the engine that were finished.",
		}),
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_coordinator_commands_total", Help: "Commands answered, by kind and by the code of the answer.",
		}, []string{"command", "code"}),
		placements: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_coordinator_placements_total", Help: "Tasks that were bound to a node.",
		}),
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_coordinator_events_total", Help: "Events that were committed.",
		}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plimsoll_coordinator_commit_seconds", Help: "Time from the end of a turn to its batch being durable.",
			Buckets: []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 3, 10},
		}),
		depth: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "plimsoll_coordinator_pipeline_depth", Help: "Turns that are being made or on their way to the disk.",
		}),
		inbox: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "plimsoll_coordinator_inbox_length", Help: "Commands that wait for a turn.",
		}, func() float64 { return float64(c.waiting()) }),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.turns, m.commands, m.placements, m.events, m.commits, m.depth, m.inbox}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
}

// answered notes the answer to a command.
func (m *metrics) answered(command string, err error) {
	code := "ok"
	if err != nil {
		code = plimsoll.CodeOf(err).String()
	}
	m.commands.WithLabelValues(command, code).Inc()
}

// finished notes a turn that can be seen.
func (m *metrics) finished(c *commit) {
	m.turns.Inc()
	if c.batch == nil {
		return
	}
	m.commits.Observe(time.Since(c.began).Seconds())
	m.events.Add(float64(c.batch.Events.Count))
	bound := 0
	for i := range c.turn.batch.Changes.Tasks {
		if t := &c.turn.batch.Changes.Tasks[i]; t.State == plimsoll.TaskBound && t.Bound == c.batch.Time {
			bound++
		}
	}
	m.placements.Add(float64(bound))
}

// routes is the table of all that a leader serves.
func (t *term) routes() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(t.metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle(replica.NewHandler(t.source, t.exec))
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("/healthz", t.health)
	return mux
}

// healthReport is what /healthz answers.
type healthReport struct {
	Status   string `json:"status"` // ok or unavailable
	Reason   string `json:"reason,omitempty"`
	Epoch    uint64 `json:"epoch"`
	Revision uint64 `json:"revision"`
	Instance string `json:"instance"`
}

// health answers 200 if this process leads.
func (t *term) health(w http.ResponseWriter, r *http.Request) {
	latest := t.source.Snapshot()
	report, status := healthReport{Status: "ok", Epoch: t.epoch, Revision: latest.Revision(), Instance: latest.InstanceUUID()}, http.StatusOK
	if err := t.store.Confirm(r.Context()); err != nil {
		report.Status, report.Reason, status = "unavailable", err.Error(), http.StatusServiceUnavailable
	}
	body, err := json.Marshal(report)
	if err != nil {
		panic(err) // a broken invariant: strings and numbers have a JSON form
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller went away; there is nobody to tell
}
