package replica

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// The reasons for which a stream to the leader ended, as plimsoll_gateway_link_ends_total names
// them.
const (
	linkSilent   = "silent"   // the leader has not answered in time
	linkLost     = "lost"     // nothing came for so long that the link counts as lost
	linkReplaced = "replaced" // a new connection was answered sooner
	linkUnready  = "unready"  // the relay above has no leader
	linkBehind   = "behind"   // the leader ended it: this gateway was too slow
	linkRefused  = "refused"  // the leader refuses this gateway, or a message of one side
	linkBroken   = "broken"   // the connection could not be made or broke, or the leader has stopped
)

func linkEnds() []string {
	return []string{linkSilent, linkLost, linkReplaced, linkUnready, linkBehind, linkRefused, linkBroken}
}

// linkEnd returns the reason that an error stands for.
func linkEnd(err error) string {
	switch {
	case errors.Is(err, errSilent):
		return linkSilent
	case errors.Is(err, errLost):
		return linkLost
	case errors.Is(err, errReplaced):
		return linkReplaced
	case unreadyPath(err) != nil:
		return linkUnready
	}
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeExhausted:
		return linkBehind
	case plimsoll.CodeUnavailable, plimsoll.CodeInternal:
		return linkBroken
	default:
		return linkRefused
	}
}

// followerMetrics are the numbers of a Follower. began belongs to the receiving goroutine.
type followerMetrics struct {
	syncs   prometheus.Histogram
	resumed prometheus.Counter
	ends    *prometheus.CounterVec
	loads   prometheus.Histogram
	loaded  prometheus.Counter
	stage   atomic.Int32 // loadNone, loadWaiting or loadReceiving

	began time.Time // of the snapshot under way: the instant of its welcome
}

// The stages of a snapshot from the leader.
const (
	loadNone int32 = iota
	loadWaiting
	loadReceiving
)

func newFollowerMetrics() *followerMetrics {
	m := &followerMetrics{
		syncs: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plimsoll_gateway_sync_seconds",
			Help: "Round trips of syncs: from sending one to its acknowledgement.",
			Buckets: []float64{
				.00005, .0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 3, 10,
			},
		}),
		resumed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_gateway_links_resumed_total",
			Help: "Streams to the leader that went on where the copy was, without a snapshot.",
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_gateway_link_ends_total",
			Help: "Streams to the leader that ended or could not be opened, by reason.",
		}, []string{"reason"}),
		loads: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "plimsoll_gateway_snapshot_load_seconds",
			Help:    "Loads of a snapshot from the leader: from its welcome, with the wait for a turn, to the copy.",
			Buckets: []float64{.001, .005, .02, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
		loaded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_gateway_snapshot_loaded_bytes_total",
			Help: "Bytes of the records and events in snapshots from the leader.",
		}),
	}
	for _, reason := range linkEnds() {
		m.ends.WithLabelValues(reason) // shown as 0 before it counts, so that rates are right
	}
	return m
}

// received counts a message that the mirror has accepted.
func (m *followerMetrics) received(response *pb.ReplicateResponse, e *effect) {
	switch kind := response.GetKind().(type) {
	case *pb.ReplicateResponse_Welcome:
		if kind.Welcome.GetResumed() {
			m.resumed.Inc()
			return
		}
		m.began = time.Now()
		m.stage.Store(loadWaiting)
	case *pb.ReplicateResponse_Snapshot:
		m.stage.Store(loadReceiving)
		bytes := 0
		for _, r := range kind.Snapshot.GetRecords() {
			bytes += len(r.GetKey()) + len(r.GetValue())
		}
		for _, events := range kind.Snapshot.GetEvents() {
			bytes += len(events.GetData())
		}
		m.loaded.Add(float64(bytes))
	case *pb.ReplicateResponse_SnapshotEnd:
		if e.live {
			m.stage.Store(loadNone)
			m.loads.Observe(time.Since(m.began).Seconds())
		}
	}
}

// ended counts the end of a stream, or an attempt to open one that failed.
func (m *followerMetrics) ended(err error) {
	m.stage.Store(loadNone)
	m.ends.WithLabelValues(linkEnd(err)).Inc()
}

// Collectors returns the metrics of the follower. Their names begin with plimsoll_gateway_.
func (f *Follower) Collectors() []prometheus.Collector {
	m := f.metrics
	stage := func(name, help string, at int32) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if m.stage.Load() == at {
				return 1
			}
			return 0
		})
	}
	return []prometheus.Collector{
		m.syncs, m.resumed, m.ends, m.loads, m.loaded,
		stage("plimsoll_gateway_snapshot_waiting", "1 while the gateway waits for its turn to be sent a snapshot.",
			loadWaiting),
		stage("plimsoll_gateway_snapshot_loading", "1 while the gateway is sent a snapshot.", loadReceiving),
	}
}
