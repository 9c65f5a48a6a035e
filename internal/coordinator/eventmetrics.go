package coordinator

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// eventCounts counts the events of all terms of this process at the steps of their way. A step that
// fails ends the term. Then the changes of these events have not happened either, as far as anybody
// was told.
type eventCounts struct {
	created      atomic.Uint64 // made by turns
	channeled    atomic.Uint64 // handed to the store
	notChanneled atomic.Uint64 // not taken by the store
	stored       atomic.Uint64 // on disk
	notStored    atomic.Uint64 // taken by the store but not known to be on disk, or dropped for a manager
	processed    atomic.Uint64 // published to readers and gateways
	collected    atomic.Uint64 // removed from the store, as the ring has room for the newer ones only
	unread       atomic.Uint64 // hidden by the ring although a registered historian lacked them
}

// notStoredHelp tells of both stores. In YuniKorn the metric counts events for which the shim's has
// no room.
const notStoredHelp = "Events that the store took but failed to write, and those for resource managers that " +
	"were dropped because too many were kept."

// all returns the counters with YuniKorn's names, and the one of ours.
func (c *eventCounts) all() []prometheus.Collector {
	const yunikorn = "yunikorn_event_total_"
	var list []prometheus.Collector
	for _, m := range []struct {
		name, help string
		count      *atomic.Uint64
	}{
		{yunikorn + "created", "Events that were made.", &c.created},
		{yunikorn + "channeled", "Events that were handed to the store.", &c.channeled},
		{yunikorn + "not_channeled", "Events that the store did not take.", &c.notChanneled},
		{yunikorn + "stored", "Events that were written to the disk.", &c.stored},
		{yunikorn + "not_stored", notStoredHelp, &c.notStored},
		{yunikorn + "processed", "Events that were published.", &c.processed},
		{yunikorn + "collected", "Events that were removed from the store, as they were too old.", &c.collected},
		{
			"plimsoll_coordinator_events_unread_total",
			"Events that were dropped although a registered historian lacked them.", &c.unread,
		},
		{"plimsoll_coordinator_events_total", "Events that were committed.", &c.processed},
	} {
		list = append(list, prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: m.name, Help: m.help}, func() float64 { return float64(m.count.Load()) },
		))
	}
	return list
}
