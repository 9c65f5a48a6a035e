package coordinator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// metrics holds the metrics of the coordinator. It is a prometheus.Collector of all of them.
type metrics struct {
	turns      prometheus.Counter
	commands   *prometheus.CounterVec
	placements prometheus.Counter
	events     *eventCounts
	eventList  []prometheus.Collector // the counters of events
	commits    prometheus.Histogram
	depth      prometheus.Gauge
	inbox      prometheus.GaugeFunc
	cut        prometheus.Counter
	inboxBytes prometheus.GaugeFunc
	refused    *prometheus.CounterVec
	revision   prometheus.GaugeFunc
	terms      termMetrics
	streams    prometheus.Collector // of the replication to gateways
	cell       *cellMetrics
	archive    *archiveMetrics
	requests   *requestMetrics
	store      []prometheus.Collector

	inboxRefused    *prometheus.CounterVec
	messagesRefused prometheus.Counter
}

func newMetrics(s *status, revision func() uint64) *metrics {
	m := &metrics{
		turns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_coordinator_turns_total", Help: "Turns of the engine that were finished.",
		}),
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_coordinator_commands_total",
			Help: "Commands answered, by kind and by the code of the answer.",
		}, []string{"command", "code"}),
		placements: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_coordinator_placements_total", Help: "Tasks that were bound to a node.",
		}),
		events: new(eventCounts),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "plimsoll_coordinator_commit_seconds",
			Help:    "Time from the end of a turn to its batch being durable.",
			Buckets: []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 3, 10},
		}),
		depth: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "plimsoll_coordinator_pipeline_depth", Help: "Turns that are being made or on their way to the disk.",
		}),
		inbox: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "plimsoll_coordinator_inbox_length", Help: "Commands that wait for a turn.",
		}, func() float64 { return float64(s.waiting().commands) }),
		inboxBytes: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "plimsoll_coordinator_inbox_bytes", Help: "Bytes that the commands take that wait for a turn.",
		}, func() float64 { return float64(s.waiting().bytes) }),
		inboxRefused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_coordinator_inbox_refused_total",
			Help: "Commands refused because the inbox was full, by its bound: commands or bytes.",
		}, []string{"bound"}),
		messagesRefused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_coordinator_messages_refused_total",
			Help: "Messages of gateways that were over the bounds, or none at all.",
		}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_coordinator_streams_cut_total",
			Help: "Gateways that were cut off because they did not read their streams.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_coordinator_refused_total",
			Help: "Connections refused because there were too many, by the bound.",
		}, []string{"bound"}),
		revision: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "plimsoll_coordinator_revision",
			Help: "Revision of a leader's records, or of a standby's copy of them; 0: it has none.",
		}, func() float64 { return float64(revision()) }),
		terms:   termMetrics{s},
		cell:    newCellMetrics(s),
		archive: newArchiveMetrics(s),

		requests: newRequestMetrics(),
		streams:  replica.NewCollector("plimsoll_coordinator_replication_", s.replication),
	}
	m.eventList = m.events.all()
	// Shown as 0 before they count, so that rates are right.
	for _, bound := range []string{boundCommands, boundBytes} {
		m.inboxRefused.WithLabelValues(bound)
	}
	for _, bound := range transport.ConnectionBounds() {
		m.refused.WithLabelValues(bound)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	all := append([]prometheus.Collector{
		m.turns, m.commands, m.placements, m.commits, m.depth, m.inbox, m.cut, m.inboxBytes, m.inboxRefused,
		m.messagesRefused, m.refused, m.revision, m.terms, m.streams, m.cell, m.archive,
		m.requests.managers, m.requests.events,
	}, m.eventList...)
	return append(all, m.store...)
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

// refuse counts a connection that was refused at a bound.
func (m *metrics) refuse(bound string) { m.refused.WithLabelValues(bound).Inc() }

// answered counts the answer to a command.
func (m *metrics) answered(command string, err error) {
	code := "ok"
	if err != nil {
		code = plimsoll.CodeOf(err).String()
	}
	m.commands.WithLabelValues(command, code).Inc()
}

// waited counts the events of a turn that is stored, or cannot be.
func (m *metrics) waited(c *commit, err error) {
	switch {
	case c.batch == nil:
	case err == nil:
		m.events.stored.Add(c.batch.Events.Count)
	default:
		m.events.notStored.Add(c.batch.Events.Count)
	}
}

// finished counts a turn that is durable and published.
func (m *metrics) finished(c *commit) {
	m.turns.Inc()
	if c.batch == nil {
		return
	}
	m.commits.Observe(time.Since(c.began).Seconds())
	m.events.processed.Add(c.batch.Events.Count)
	bound := 0
	for i := range c.turn.batch.Changes.Tasks {
		if t := &c.turn.batch.Changes.Tasks[i]; t.State == plimsoll.TaskBound && t.Bound == c.batch.Time {
			bound++
			m.cell.bound(t)
		}
	}
	m.placements.Add(float64(bound))
}

// termMetrics is a prometheus.Collector of the role of a coordinator and the history of its terms.
type termMetrics struct{ status *status }

var (
	roleDesc = prometheus.NewDesc(
		"plimsoll_coordinator_role", "1 for the present role, 0 for the others.", []string{"role"}, nil,
	)
	epochDesc = prometheus.NewDesc(
		"plimsoll_coordinator_epoch", "Epoch of the last term of this process.", nil, nil,
	)
	termsDesc = prometheus.NewDesc(
		"plimsoll_coordinator_terms_total", "Terms in which this process led.", nil, nil,
	)
	depositionsDesc = prometheus.NewDesc(
		"plimsoll_coordinator_depositions_total",
		"Terms that ended, or did not begin, because another process led, or could.", nil, nil,
	)
	failuresDesc = prometheus.NewDesc(
		"plimsoll_coordinator_failures_total", "Terms that failed, or could not begin.", nil, nil,
	)
	failedDesc = prometheus.NewDesc(
		"plimsoll_coordinator_last_failure_timestamp_seconds", "When the last of them failed; 0: none did.", nil, nil,
	)
)

// Describe implements prometheus.Collector.
func (m termMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		roleDesc, epochDesc, termsDesc, depositionsDesc, failuresDesc, failedDesc,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m termMetrics) Collect(to chan<- prometheus.Metric) {
	now := m.status.get()
	for _, r := range roles {
		value := 0.0
		if r == now.role {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(roleDesc, prometheus.GaugeValue, value, string(r))
	}
	failed := 0.0
	if now.failures > 0 {
		failed = float64(now.lastFailed.UnixNano()) / 1e9
	}
	to <- prometheus.MustNewConstMetric(epochDesc, prometheus.GaugeValue, float64(now.epoch))
	to <- prometheus.MustNewConstMetric(termsDesc, prometheus.CounterValue, float64(now.terms))
	to <- prometheus.MustNewConstMetric(depositionsDesc, prometheus.CounterValue, float64(now.depositions))
	to <- prometheus.MustNewConstMetric(failuresDesc, prometheus.CounterValue, float64(now.failures))
	to <- prometheus.MustNewConstMetric(failedDesc, prometheus.GaugeValue, failed)
}
