package gateway

import (
	"github.com/prometheus/client_golang/prometheus"
)

// ofArchive returns the metrics of reads of the archive and of pinned lists.
func ofArchive(g *Gateway) []prometheus.Collector {
	return []prometheus.Collector{
		g.archived.seconds,
		gauge("plimsoll_gateway_archive_up", "1 unless the last read of the archive failed.", func() float64 {
			if g.archived.failing.Load() {
				return 0
			}
			return 1
		}),
		gauge("plimsoll_gateway_pins", "States that are kept for the next pages of lists.", func() float64 {
			n, _ := g.pins.stats(g.replica.Latest())
			return float64(n)
		}),
		gauge("plimsoll_gateway_pins_bytes", "Bytes that pinned states keep from being dropped.", func() float64 {
			_, bytes := g.pins.stats(g.replica.Latest())
			return float64(bytes)
		}),
	}
}

func archiveSeconds() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "plimsoll_gateway_archive_read_seconds",
		Help:    "Time of reads of the archive, with their wait for a turn.",
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5},
	})
}
