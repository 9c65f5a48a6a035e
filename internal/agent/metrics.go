package agent

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/plimsoll-dev/plimsoll"
)

// metrics are the agent's values on /metrics. It is a prometheus.Collector of them all.
type metrics struct {
	events  *prometheus.CounterVec // the loop's events
	nodeOut *nodeOutbox
	watch   *qosHandler // has the loop, once it runs
	logs    *logSlots
	kept    *keptMetrics
}

func newMetrics(out *nodeOutbox, watch *qosHandler, logs *logSlots, kept *keptMetrics) *metrics {
	m := &metrics{nodeOut: out, watch: watch, logs: logs, kept: kept}
	m.events = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "plimsoll_agent_qos_events_total",
		Help: "What the QoS loop has done and seen, by kind: throttled, evicting, failed and so on.",
	}, []string{"kind"})
	for kind := plimsoll.QOSRuleTriggered; kind.Known(); kind++ {
		// Shown as 0 before the first event, so that rates are right.
		m.events.WithLabelValues(kind.String())
	}
	return m
}

// report counts the loop's events, and passes the report on.
func (m *metrics) report(r plimsoll.NodeReport) {
	for i := range r.Events {
		m.events.WithLabelValues(r.Events[i].Kind.String()).Inc()
	}
	m.nodeOut.add(r)
}

// figure is one value of the loop.
type figure struct {
	desc   *prometheus.Desc
	value  float64
	labels []string
}

func described(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("plimsoll_agent_"+name, help, labels, nil)
}

var ( // values that each scrape reads from the loop
	sampleSeconds = described(
		"qos_sample_seconds", "Time that the last sample took, with all that was done about it at once.",
	)
	sampleTime    = described("qos_sample_timestamp_seconds", "When the last sample was taken.")
	schedulingOff = described("qos_scheduling_disabled", "1 if the node takes no new tasks.")
	tasksSeen     = described("qos_tasks", "Attempts that the loop watches.")
	tasksHeld     = described(
		"qos_tasks_held", "Attempts from which something was taken, by the rung of the ladder that they are on.",
		"rung",
	)
	lineUsage     = described("qos_line_usage", "Use of a rule's metric, in the metric's unit.", "rule", "metric")
	lineWaterline = described("qos_line_waterline", "Waterline of a rule, in the metric's unit.", "rule", "metric")
	lineTriggered = described("qos_line_triggered", "1 if a rule is triggered.", "rule", "metric")
	offered       = described("qos_offered", "What is lent of an extended resource: cores, or bytes.", "resource")
	eventsWaiting = described("qos_events_waiting", "Events that no gateway has taken yet.")

	allDescribed = []*prometheus.Desc{
		sampleSeconds, sampleTime, schedulingOff, tasksSeen, tasksHeld, lineUsage, lineWaterline, lineTriggered,
		offered, eventsWaiting,
	}
)

const (
	milliPerCore   = 1000
	nanosPerSecond = 1e9
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	m.events.Describe(to)
	for _, c := range append(m.logs.all(), m.kept.all()...) {
		c.Describe(to)
	}
	for _, d := range allDescribed {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	m.events.Collect(to)
	for _, c := range append(m.logs.all(), m.kept.all()...) {
		c.Collect(to)
	}
	for _, f := range append(m.figures(), figure{eventsWaiting, float64(m.nodeOut.waiting()), nil}) {
		to <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, f.value, f.labels...)
	}
}

// figures reads the loop's values; nil: the loop does not run yet.
func (m *metrics) figures() []figure {
	loop := m.watch.loop.Load()
	if loop == nil {
		return nil
	}
	status := (*loop).Status()
	all := []figure{
		{sampleSeconds, (*loop).Took().Seconds(), nil},
		{sampleTime, float64(status.GetAt()) / nanosPerSecond, nil},
		{schedulingOff, truth(status.GetSchedulingDisabled()), nil},
		{tasksSeen, float64(len(status.GetTasks())), nil},
	}
	held := map[string]float64{}
	for _, t := range status.GetTasks() {
		if t.GetRung() != "" {
			held[t.GetRung()]++
		}
	}
	for _, rung := range sortedKeys(held) {
		all = append(all, figure{tasksHeld, held[rung], []string{rung}})
	}
	for _, l := range status.GetLines() {
		labels, scale := []string{l.GetRule(), l.GetMetric()}, float64(max(l.GetScale(), 1))
		all = append(
			all, figure{lineWaterline, float64(l.GetWaterline()) / scale, labels},
			figure{lineTriggered, truth(l.GetTriggered()), labels},
		)
		if !l.GetMissing() {
			all = append(all, figure{lineUsage, float64(l.GetUsage()) / scale, labels})
		}
	}
	amounts := status.GetExtended().GetAmounts()
	for _, name := range sortedKeys(amounts) {
		amount := float64(amounts[name])
		if name == plimsoll.ExtCPU {
			amount /= milliPerCore
		}
		all = append(all, figure{offered, amount, []string{name}})
	}
	return all
}

func truth(so bool) float64 {
	if so {
		return 1
	}
	return 0
}

func (m *metrics) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}
