package agent

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

const (
	maxLogStreams = 64 // most logs of one node that are read at once
	// logStreamFiles is the number of descriptors for one log reader: two logs, and a part of a
	// connection.
	logStreamFiles = 4
	// logShare bounds log readers to one in eight of the process's descriptors.
	logShare = 8

	boundLogs = "logs" // in the metric of refusals

	logPollQuiet = 500 * time.Millisecond // interval of checks for new output after a pause
	quietPolls   = 50                     // checks without new output before the pause begins
)

// logSlots bounds the number of logs of a node that are read at once, and counts refusals.
type logSlots struct {
	most    int64
	taken   atomic.Int64
	refused *prometheus.CounterVec
	open    prometheus.GaugeFunc
	cut     prometheus.Counter
}

func newLogSlots() *logSlots {
	s := &logSlots{most: int64(max(min(maxLogStreams, transport.OpenFiles()/logShare/logStreamFiles), 1))}
	s.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "plimsoll_agent_refused_total",
		Help: "Readers of logs and connections that were refused because there were too many, by the bound.",
	}, []string{"bound"})
	for _, bound := range append(transport.ConnectionBounds(), boundLogs) {
		s.refused.WithLabelValues(bound) // 0 is served from the start, so that rates are right
	}
	s.open = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "plimsoll_agent_logs_open", Help: "Logs that are being read or followed.",
	}, func() float64 { return float64(s.taken.Load()) })
	s.cut = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "plimsoll_agent_streams_cut_total",
		Help: "Streams that were cut because their callers did not read them.",
	})
	return s
}

func (s *logSlots) all() []prometheus.Collector {
	return []prometheus.Collector{s.refused, s.open, s.cut}
}

// acquire takes a slot; release gives it back.
func (s *logSlots) acquire(node string) error {
	if s.taken.Add(1) > s.most {
		s.release()
		s.refuse(boundLogs)
		return plimsoll.Errorf(
			plimsoll.CodeExhausted,
			"%d logs of node %q are being read, as many as may; end one of them, or try again later", s.most, node,
		)
	}
	return nil
}

// refuse counts a refusal.
func (s *logSlots) refuse(bound string) { s.refused.WithLabelValues(bound).Inc() }

func (s *logSlots) release() { s.taken.Add(-1) }
