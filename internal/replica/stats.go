package replica

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Stats are the numbers of a source for its metrics.
type Stats struct {
	Gateways         int    // streams
	SnapshotsSending int    // streams that are sent a snapshot in their turn
	SnapshotsWaiting int    // streams that wait for their turn
	SnapshotBytes    int    // encoded parts of a snapshot that are kept
	Snapshots        uint64 // streams that were admitted for a snapshot
	SnapshotsShared  uint64 // of these, streams that joined one that was under way
	SnapshotsRefused uint64 // streams for which there was no place to wait
	PartsEncoded     uint64 // parts of snapshots that were encoded
	PartsReused      uint64 // parts of snapshots that were sent once more

	Ended [numStreamEnds]uint64 // streams that have ended, by reason
}

// maxStandby bounds the bytes of the address of a coordinator that stands by.
const maxStandby = 256

// Standby is a coordinator that stands by and follows a source.
type Standby struct {
	Address     string
	Revision    uint64 // of the newest batch that it was sent; 0: it is being sent a snapshot
	BehindBytes int    // bytes of the batches that it was not sent yet
}

// Standbys returns the coordinators that stand by and follow the source, by address.
func (s *Source) Standbys() []Standby {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Standby
	for st := range s.mu.streams {
		if st.standby == "" {
			continue
		}
		one := Standby{Address: st.standby}
		if st.session.phase == phaseLive {
			one.Revision, one.BehindBytes = s.mu.log.behind(st.session.cursor)
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Standby) int { return strings.Compare(a.Address, b.Address) })
	return list
}

// streamEnd is the reason for which a stream of a source has ended.
type streamEnd uint8

const (
	endGateway streamEnd = iota + 1 // the gateway ended it in good order
	endBroken                       // the connection broke, or a message was refused
	endSource                       // this process leads no more, or this relay has no leader
	endBehind                       // the log no longer has the gateway's next batch
	endReplies                      // too many replies wait for the gateway
	endUnread                       // the gateway does not read
	endProof                        // this process could not prove that it leads
	numStreamEnds
)

// streamEndNames are the values of the label reason.
var streamEndNames = [numStreamEnds]string{
	endGateway: "gateway", endBroken: "broken", endSource: "source", endBehind: "behind", endReplies: "replies",
	endUnread: "unread", endProof: "proof",
}

// countEnd counts the end of a stream, which handler.run has returned.
func (s *Source) countEnd(st *stream, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reason := st.session.reason
	switch {
	case reason != 0:
	case err == nil:
		reason = endGateway
	default:
		reason = endBroken
	}
	s.mu.ended[reason]++
}

// Stats returns the numbers of the source.
func (s *Source) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.mu.transfers
	stats := Stats{
		Gateways: len(s.mu.streams), SnapshotsSending: t.sending, SnapshotsWaiting: len(t.waiting),
		Snapshots: t.begun, SnapshotsShared: t.joined, SnapshotsRefused: t.refused,
		PartsEncoded: t.fresh.Load(), PartsReused: t.reused.Load(), Ended: s.mu.ended,
	}
	if t.shared != nil {
		stats.SnapshotBytes = t.shared.bytes()
	}
	return stats
}

// series are the metrics of Stats. Their names follow a prefix.
var series = []struct {
	name, help string
	kind       prometheus.ValueType
	value      func(*Stats) float64
}{
	{
		"streams", "Replication streams of gateways.", prometheus.GaugeValue,
		func(s *Stats) float64 { return float64(s.Gateways) },
	},
	{
		"snapshots_sending", "Gateways that are sent a snapshot in their turn.", prometheus.GaugeValue,
		func(s *Stats) float64 { return float64(s.SnapshotsSending) },
	},
	{
		"snapshots_waiting", "Gateways that wait for their turn to be sent a snapshot.", prometheus.GaugeValue,
		func(s *Stats) float64 { return float64(s.SnapshotsWaiting) },
	},
	{
		"snapshot_bytes", "Bytes of encoded parts of a snapshot that are kept for further gateways.",
		prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.SnapshotBytes) },
	},
	{
		"snapshots_total", "Gateways that were admitted for a snapshot.", prometheus.CounterValue,
		func(s *Stats) float64 { return float64(s.Snapshots) },
	},
	{
		"snapshots_shared_total", "Gateways that joined a snapshot that was already being sent.",
		prometheus.CounterValue, func(s *Stats) float64 { return float64(s.SnapshotsShared) },
	},
	{
		"snapshots_refused_total", "Gateways that were refused because too many waited for a snapshot.",
		prometheus.CounterValue, func(s *Stats) float64 { return float64(s.SnapshotsRefused) },
	},
	{
		"snapshot_parts_encoded_total", "Parts of snapshots that were encoded.", prometheus.CounterValue,
		func(s *Stats) float64 { return float64(s.PartsEncoded) },
	},
	{
		"snapshot_parts_reused_total", "Parts of snapshots that were sent once more without being encoded.",
		prometheus.CounterValue, func(s *Stats) float64 { return float64(s.PartsReused) },
	},
}

// collector is a prometheus.Collector of the stats of a source.
type collector struct {
	stats func() Stats
	descs []*prometheus.Desc // as series
	ended *prometheus.Desc
}

// NewCollector returns the metrics of a source or a relay. Their names begin with prefix.
func NewCollector(prefix string, stats func() Stats) prometheus.Collector {
	c := &collector{stats: stats, ended: prometheus.NewDesc(
		prefix+"streams_ended_total", "Replication streams that have ended, by reason.", []string{"reason"}, nil,
	)}
	for _, one := range series {
		c.descs = append(c.descs, prometheus.NewDesc(prefix+one.name, one.help, nil, nil))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		to <- desc
	}
	to <- c.ended
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	stats := c.stats()
	for i, one := range series {
		to <- prometheus.MustNewConstMetric(c.descs[i], one.kind, one.value(&stats))
	}
	for reason := endGateway; reason < numStreamEnds; reason++ {
		to <- prometheus.MustNewConstMetric(
			c.ended, prometheus.CounterValue, float64(stats.Ended[reason]), streamEndNames[reason],
		)
	}
}
