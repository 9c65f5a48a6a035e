package gateway

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// metricsTimeout bounds the time of an answer of /metrics. Only a few are under way at a time.
const metricsTimeout = 10 * time.Second

// metrics are the gateway's series at /metrics.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	refusals *prometheus.CounterVec
	cut      prometheus.Counter
	closed   prometheus.Counter
	barrier  prometheus.Histogram
	reads    *prometheus.CounterVec
	ages     prometheus.Histogram
	wentBack prometheus.Counter
	watches  *prometheus.GaugeVec

	// users and agents count the streams that are sent changes of the copy.
	users, agents atomic.Int64

	watchCuts                  *prometheus.CounterVec
	watchChanges, watchEncoded prometheus.Counter
}

func newMetrics(g *Gateway) *metrics {
	m := &metrics{
		registry: g.cfg.Registry,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_gateway_requests_total", Help: "Requests answered, by RPC and by the code of the answer.",
		}, []string{"rpc", "code"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_gateway_refused_total",
			Help: "Requests, streams and connections refused because there were too many or they were too large, by the bound.",
		}, []string{"bound"}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_gateway_streams_cut_total",
			Help: "Streams that were cut because their callers did not read them.",
		}),
		closed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_gateway_connections_closed_total",
			Help: "Connections without a whole request that were closed to make room for others.",
		}),
		barrier: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "plimsoll_gateway_barrier_seconds",
			Help:    "Time that reads waited for the proof that the copy is fresh.",
			Buckets: []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 3, 10},
		}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_gateway_reads_total",
			Help: "Reads answered from this gateway's copy, by their consistency.",
		}, []string{"consistency"}),
		ages: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "plimsoll_gateway_read_age_seconds",
			Help:    "Age of the copy in answers to reads that are not strict.",
			Buckets: []float64{.001, .005, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
		wentBack: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_gateway_reads_went_back_total",
			Help: "Reads refused because they would have shown less than an earlier one of this gateway; it must stay 0.",
		}),
		watches: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "plimsoll_gateway_streams_open", Help: "Watches and logs under way, by RPC.",
		}, []string{"rpc"}),
		watchCuts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_gateway_watches_cut_total", Help: "Watches of users that the gateway ended, by reason.",
		}, []string{"reason"}),
		watchChanges: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_gateway_watch_changes_total", Help: "Objects and changes sent to watches of users.",
		}),
		watchEncoded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_gateway_watch_encoded_total",
			Help: "Changes prepared for watches of users, once for all of them.",
		}),
	}
	for _, reason := range cutReasons() {
		m.watchCuts.WithLabelValues(reason) // shown as 0 before it counts, so that rates are right
	}
	for _, bound := range append(transport.ConnectionBounds(), ownBounds()...) {
		m.refusals.WithLabelValues(bound) // shown as 0 before it counts, so that rates are right
	}
	m.registry.MustRegister(m.requests, m.refusals, m.cut, m.closed, m.barrier, m.reads, m.ages, m.wentBack,
		m.watches)
	for f := plimsoll.FreshnessStrict; f.Known(); f++ {
		m.reads.WithLabelValues(f.String()) // as above
	}
	m.registry.MustRegister(m.watchCuts, m.watchChanges, m.watchEncoded)
	m.registry.MustRegister(gauges(g)...)
	m.registry.MustRegister(ofCopy(g.replica)...)
	m.registry.MustRegister(m.subscribers(g)...)
	m.registry.MustRegister(g.replica.Collectors()...)
	m.registry.MustRegister(ofRendered(&g.rendered)...)
	m.registry.MustRegister(ofAnswers(&g.answers)...)
	m.registry.MustRegister(replica.NewCollector("plimsoll_gateway_relay_", g.cfg.Relay.Stats))
	m.registry.MustRegister(ofAccess(g.cfg.Access)...)
	m.registry.MustRegister(ofArchive(g)...)
	return m
}

// gauges returns the metrics that are read from the gateway when they are asked for.
func gauges(g *Gateway) []prometheus.Collector {
	return []prometheus.Collector{
		gauge("plimsoll_gateway_user_connections", "Connections of users.", func() float64 {
			users, _ := g.connections.Count()
			return float64(users)
		}),
		gauge("plimsoll_gateway_agent_connections", "Connections of agents.", func() float64 {
			_, agents := g.connections.Count()
			return float64(agents)
		}),
		gauge("plimsoll_gateway_connected", "1 if this gateway follows a leader.", func() float64 {
			if g.replica.Connected() {
				return 1
			}
			return 0
		}),
		gauge(
			"plimsoll_gateway_nodes_heard", "Nodes whose heartbeats come here.",
			func() float64 { return float64(g.nodes.count()) },
		),
		gauge("plimsoll_gateway_user_bytes", "Bytes that the requests of users under way take.", func() float64 {
			return float64(g.budgets.users.used.Load())
		}),
		gauge("plimsoll_gateway_agent_bytes", "Bytes that the requests of agents under way take.", func() float64 {
			return float64(g.budgets.agents.used.Load())
		}),
		gauge(
			"plimsoll_gateway_watch_lag_changes", "Most changes that a watch of a user is behind.", func() float64 {
				if c := g.replica.Changes(); c != nil {
					return float64(g.watchers.lag(c))
				}
				return 0
			},
		),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
}

// ofAccess returns the collectors of a transport.Access. A gateway without a TCP listener has none.
func ofAccess(access *transport.Access) []prometheus.Collector {
	flag := func(name, help string, set func() bool) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if access != nil && set() {
				return 1
			}
			return 0
		})
	}
	return []prometheus.Collector{
		flag(
			"plimsoll_gateway_no_token", "1 if callers are answered without a token, by --no-token.",
			func() bool { return access.NoToken() },
		),
		flag(
			"plimsoll_gateway_open_ws", "1 if GET under /ws/v1 is answered without a token, by --open-ws.",
			func() bool { return len(access.Open()) > 0 },
		),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "plimsoll_gateway_unauthenticated_total", Help: "Requests refused because no token allowed them.",
		}, func() float64 {
			if access == nil {
				return 0
			}
			return float64(access.Refused())
		}),
	}
}

// count counts an answer.
func (m *metrics) count(rpc, code string) { m.requests.WithLabelValues(rpc, code).Inc() }

// refused counts a request, stream or connection for which there was no room.
func (m *metrics) refused(bound string) { m.refusals.WithLabelValues(bound).Inc() }

// watchCut counts a watch that the gateway ended.
func (m *metrics) watchCut(reason string) { m.watchCuts.WithLabelValues(reason).Inc() }

// watching counts a stream that begins. The caller calls ended at the stream's end.
func (m *metrics) watching(rpc string) (ended func()) {
	open := m.watches.WithLabelValues(rpc)
	open.Inc()
	var of *atomic.Int64
	switch rpc {
	case "ReadLogs", "FetchOutputs", "WatchNodeQOS", "FollowRequestEvents": // an agent's, or the leader's
		return open.Dec
	case "WatchAssignments":
		of = &m.agents
	default:
		of = &m.users
	}
	of.Add(1)
	return func() {
		of.Add(-1)
		open.Dec()
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}
