package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// chartEvents are the events of a job with five tasks. One succeeds, one is tried again on another
// node, and one is given up while it waits. One waits, and one runs.
func chartEvents(start time.Time) (events []client.HistoryEvent) {
	add := func(after time.Duration, e plimsoll.Event) {
		e.Time = start.Add(after).UnixNano()
		events = append(events, client.HistoryEvent{
			InstanceUUID: "one", EventRecord: client.EventRecord{ID: uint64(len(events)), Event: e},
		})
	}
	app := func(
		after time.Duration, change plimsoll.ChangeType, detail plimsoll.ChangeDetail, task int, message string,
	) {
		add(after, plimsoll.Event{
			Type: plimsoll.EventApp, Change: change, Detail: detail, Object: "etl", Message: message,
			Reference: fmt.Sprint("etl.map.", task),
		})
	}
	bound := func(after time.Duration, task int, node string) {
		app(after, plimsoll.ChangeAdd, plimsoll.AppAlloc, task, "")
		add(after, plimsoll.Event{
			Type: plimsoll.EventNode, Change: plimsoll.ChangeAdd, Detail: plimsoll.NodeAlloc, Object: node,
			Reference: fmt.Sprint("etl.map.", task),
		})
	}
	add(0, plimsoll.Event{Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Object: "etl"})
	for task := range 5 {
		app(0, plimsoll.ChangeAdd, plimsoll.AppRequest, task, "")
	}
	bound(10*time.Second, 0, "n1")
	bound(20*time.Second, 1, "n1")
	app(30*time.Second, plimsoll.ChangeRemove, plimsoll.AllocCancel, 1, "failed")
	app(40*time.Second, plimsoll.ChangeRemove, plimsoll.AllocCancel, 0, "succeeded")
	app(40*time.Second, plimsoll.ChangeRemove, plimsoll.AppRequest, 0, "succeeded")
	bound(50*time.Second, 1, "n2")
	app(60*time.Second, plimsoll.ChangeRemove, plimsoll.RequestCancel, 2, "")
	app(90*time.Second, plimsoll.ChangeRemove, plimsoll.AllocCancel, 1, "succeeded")
	app(90*time.Second, plimsoll.ChangeRemove, plimsoll.AppRequest, 1, "succeeded")
	bound(100*time.Second, 4, "n3")
	return events
}

// The picture of a job: as wide as it may be, in a narrow terminal, with fewer tasks, and
// of a job of one instant.
func TestThePictureOfAJob(t *testing.T) {
	start := testNow.Add(-2 * time.Minute)
	for name, c := range map[string]struct {
		width int
		most  int
		end   int // of the events; 0: all
	}{
		"history-chart":        {},
		"history-chart-wide":   {width: 160},
		"history-chart-narrow": {width: 60},
		"history-chart-some":   {width: 100, most: 2},
		"history-chart-begun":  {width: 80, end: 3},
	} {
		events := chartEvents(start)
		now := testNow
		if c.end > 0 {
			events, now = events[:c.end], start
		}
		p := &page{width: c.width}
		newChart(events).draw(p, now, c.most)
		golden(t, name, p.text(0))
	}
}
