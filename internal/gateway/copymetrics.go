package gateway

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// labelled is gauge for one value of a label.
func labelled(name, help, label, is string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{label: is}}, value,
	)
}

// objectNames are the values of the label kind for objects, by the kind of their first record.
var objectNames = [wire.NumKinds]string{
	wire.KindJobStatus: "job", wire.KindTask: "task", wire.KindNode: "node", wire.KindQueueStatus: "queue",
	wire.KindPolicy: "policy",
}

// ofCopy returns the collectors of the gateway's copy and of its history.
func ofCopy(r Replica) []prometheus.Collector {
	ofLatest := func(name, help string, value func(*replica.Snapshot) float64) prometheus.Collector {
		return gauge(name, help, func() float64 {
			if s := r.Latest(); s != nil {
				return value(s)
			}
			return 0
		})
	}
	all := []prometheus.Collector{
		ofLatest("plimsoll_gateway_replica_revision", "Revision of this gateway's copy.",
			func(s *replica.Snapshot) float64 { return float64(s.Revision()) }),
		ofLatest("plimsoll_gateway_replica_epoch", "Epoch of the leader that this gateway's copy is of.",
			func(s *replica.Snapshot) float64 { return float64(s.Epoch()) }),
		ofLatest("plimsoll_gateway_copy_bytes", "Bytes of the encoded records of this gateway's copy.",
			func(s *replica.Snapshot) float64 { return float64(s.Bytes()) }),
		gauge("plimsoll_gateway_copy_age_seconds",
			"Time since which this gateway's copy was known to be complete; NaN before it was. Reading it asks "+
				"for a new proof.",
			func() float64 {
				_, age, err := r.Recent()
				if err != nil {
					return math.NaN()
				}
				return age.Seconds()
			}),
		gauge("plimsoll_gateway_watch_history_bytes", "Memory of the changes kept for watches.", func() float64 {
			if c := r.Changes(); c != nil {
				return float64(c.Bytes())
			}
			return 0
		}),
	}
	for _, kind := range replica.HistoryKinds() {
		all = append(all, ofObjects(r, kind)...)
	}
	return all
}

// ofObjects returns the collectors of one kind of object.
func ofObjects(r Replica, kind wire.Kind) []prometheus.Collector {
	ofHistory := func(name, help string, value func(*replica.Changes) float64) prometheus.Collector {
		return labelled(name, help, "kind", objectNames[kind], func() float64 {
			if c := r.Changes(); c != nil {
				return value(c)
			}
			return 0
		})
	}
	return []prometheus.Collector{
		labelled("plimsoll_gateway_copy_objects", "Objects of this gateway's copy, by kind.",
			"kind", objectNames[kind], func() float64 {
				if s := r.Latest(); s != nil {
					return float64(s.Len(kind))
				}
				return 0
			}),
		ofHistory("plimsoll_gateway_watch_history_changes", "Changes kept for watches, by the kind of the object.",
			func(c *replica.Changes) float64 { return float64(c.Len(kind)) }),
		ofHistory("plimsoll_gateway_watch_history_oldest_revision",
			"Oldest revision from which a watch can resume, by the kind of the object.",
			func(c *replica.Changes) float64 { return float64(c.Base(kind)) }),
	}
}

// subscribers returns the collectors of the streams that are sent the changes of the copy.
func (m *metrics) subscribers(g *Gateway) []prometheus.Collector {
	of := func(kind string, value func() float64) prometheus.Collector {
		return labelled(
			"plimsoll_gateway_subscribers", "Streams that are sent the changes of this gateway's copy, by kind.",
			"kind", kind, value,
		)
	}
	return []prometheus.Collector{
		of("user", func() float64 { return float64(m.users.Load()) }),
		of("agent", func() float64 { return float64(m.agents.Load()) }),
		of("gateway", func() float64 { return float64(g.cfg.Relay.Stats().Gateways) }),
	}
}

// ofRendered returns the collectors of the cache of records in JSON.
func ofRendered(c *jsonCache) []prometheus.Collector {
	counter := func(name, help string, value func(jsonCacheStats) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 {
			return float64(value(c.stats()))
		})
	}
	return []prometheus.Collector{
		gauge("plimsoll_gateway_json_cache_bytes", "Bytes of the cache of records in JSON.", func() float64 {
			return float64(c.stats().size)
		}),
		counter("plimsoll_gateway_json_cache_hits_total", "Records whose JSON was in the cache.",
			func(s jsonCacheStats) uint64 { return s.hits }),
		counter("plimsoll_gateway_json_cache_misses_total", "Records that were rendered as JSON for an answer.",
			func(s jsonCacheStats) uint64 { return s.misses }),
		counter("plimsoll_gateway_json_cache_evicted_total", "Records in JSON that gave way to others in the cache.",
			func(s jsonCacheStats) uint64 { return s.evicted }),
	}
}

// ofAnswers returns the collectors of the cache of whole answers.
func ofAnswers(c *answerCache) []prometheus.Collector {
	counter := func(name, help string, value func(answerCacheStats) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 {
			return float64(value(c.stats()))
		})
	}
	return []prometheus.Collector{
		gauge("plimsoll_gateway_answer_cache_bytes", "Bytes of the cache of whole answers.", func() float64 {
			return float64(c.stats().size)
		}),
		counter("plimsoll_gateway_answer_cache_hits_total", "Reads that got the answer of another reader.",
			func(s answerCacheStats) uint64 { return s.hits }),
		counter("plimsoll_gateway_answer_cache_misses_total", "Reads whose answers were put together from records.",
			func(s answerCacheStats) uint64 { return s.misses }),
		counter("plimsoll_gateway_answer_cache_evicted_total", "Questions that gave way to others in the cache of answers.",
			func(s answerCacheStats) uint64 { return s.evicted }),
	}
}
