package replica

import "github.com/prometheus/client_golang/prometheus"

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
}

// Stats returns the numbers of the source.
func (s *Source) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.mu.transfers
	stats := Stats{
		Gateways: len(s.mu.streams), SnapshotsSending: t.sending, SnapshotsWaiting: len(t.waiting),
		Snapshots: t.begun, SnapshotsShared: t.joined, SnapshotsRefused: t.refused,
		PartsEncoded: t.fresh.Load(), PartsReused: t.reused.Load(),
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
		"snapshots_shared_total", "Of these, gateways that joined a snapshot that was on its way.",
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
}

// NewCollector returns the metrics of a source or a relay. Their names begin with prefix.
func NewCollector(prefix string, stats func() Stats) prometheus.Collector {
	c := &collector{stats: stats}
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
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	stats := c.stats()
	for i, one := range series {
		to <- prometheus.MustNewConstMetric(c.descs[i], one.kind, one.value(&stats))
	}
}
