package evaluator

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
)

// metrics are the figures of /metrics.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	refused  *prometheus.CounterVec
}

func newMetrics(s *source) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_evaluator_calls_total",
			Help: "Calls that were worked on, by call and by the code of their error; ok: none.",
		}, []string{"call", "code"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_evaluator_refused_total",
			Help: "Calls and connections that were refused because there were too many, by the bound.",
		}, []string{"bound"}),
	}
	m.refused.WithLabelValues("calls") // shown as 0 before it counts, so that rates are right
	m.registry.MustRegister(
		m.calls, m.refused, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "plimsoll_evaluator_loads_total", Help: "Servers whose instances were loaded.",
		}, func() float64 { return float64(s.loads.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "plimsoll_evaluator_servers", Help: "Servers in the document that was read last.",
		}, func() float64 {
			if p := s.last.Load(); p != nil {
				return float64(len(p.Servers))
			}
			return 0
		}),
	)
	return m
}

func (m *metrics) refuse(bound string) { m.refused.WithLabelValues(bound).Inc() }

func (m *metrics) count(call string, err error) {
	code := "ok"
	if err != nil {
		code = plimsoll.CodeOf(err).String()
	}
	m.calls.WithLabelValues(call, code).Inc()
}

// counted wraps an evaluator so that its calls are counted.
func (m *metrics) counted(e remote.PartEvaluator) remote.PartEvaluator { return counted{e, m} }

type counted struct {
	remote.PartEvaluator
	metrics *metrics
}

// Evaluate implements remote.Evaluator.
func (c counted) Evaluate(ctx context.Context, b *remote.Batch) (*remote.Evaluation, error) {
	e, err := c.PartEvaluator.Evaluate(ctx, b)
	c.metrics.count("evaluate", err)
	return e, err
}

// ListServers implements remote.PartEvaluator.
func (c counted) ListServers(ctx context.Context, q placement.Query) ([]placement.Server, error) {
	list, err := c.PartEvaluator.ListServers(ctx, q)
	c.metrics.count("list", err)
	return list, err
}

// CountSpread implements remote.PartEvaluator.
func (c counted) CountSpread(ctx context.Context, q *remote.SpreadQuestion) ([]placement.SpreadTally, error) {
	list, err := c.PartEvaluator.CountSpread(ctx, q)
	c.metrics.count("count", err)
	return list, err
}

// Capacity implements remote.PartEvaluator.
func (c counted) Capacity(ctx context.Context, q *remote.CapacityQuestion) ([]remote.Capacity, error) {
	list, err := c.PartEvaluator.Capacity(ctx, q)
	c.metrics.count("capacity", err)
	return list, err
}
