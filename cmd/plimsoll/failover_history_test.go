package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll/client"
)

// epochsRise: no two terms have the same epoch, and those of one process rise.
func (c *failoverCluster) epochsRise() {
	led, of := regexp.MustCompile(`msg=leading epoch=(\d+)`), map[uint64]string{}
	for _, name := range coordinatorNames {
		before := uint64(0)
		for _, d := range c.begun[name] {
			for _, words := range led.FindAllStringSubmatch(d.stderr(), -1) {
				epoch, err := strconv.ParseUint(words[1], 10, 64)
				if err != nil || epoch <= before || of[epoch] != "" {
					c.t.Errorf("%s leads with epoch %s after %d; %q led with it too: %v",
						name, words[1], before, of[epoch], err)
				}
				before, of[epoch] = epoch, name
			}
		}
	}
	c.t.Logf("%d terms led", len(of))
}

// recorded waits until the historian has all events. It has each of them once, as the leader has
// it, and those of each acknowledged job.
func (c *failoverCluster) recorded(acked map[string]bool) {
	c.t.Helper()
	history := c.clientOf("unix:" + c.path("historian"))
	c.await("all events are in the history", func(ctx context.Context) error {
		page, err := c.asked.Events(ctx, client.EventFilter{Count: 1})
		if err != nil {
			return err
		}
		status, err := history.HistoryStatus(ctx)
		if err == nil && status.Next != page.Highest+1 {
			err = fmt.Errorf("the newest event is %d, and the history goes on with %d", page.Highest, status.Next)
		}
		if len(status.Gaps) > 0 {
			c.t.Fatalf("the history has gaps: %+v", status.Gaps)
		}
		return err
	})
	var kept []client.EventRecord
	jobs := map[string]bool{}
	for e, err := range history.Timeline(c.t.Context(), client.TimelineFilter{}) {
		if err != nil {
			c.t.Fatal(err)
		}
		kept = append(kept, e.EventRecord)
		jobs[e.Event.Object] = true
	}
	slices.SortStableFunc(kept, func(a, b client.EventRecord) int { return int(a.ID - b.ID) })
	for i := range kept {
		if kept[i].ID != uint64(i) {
			c.t.Fatalf("event %d of the history has the id %d", i, kept[i].ID)
		}
	}
	for id := range acked {
		if !jobs[id] {
			c.t.Errorf("the history has no event of the job %s, which was acknowledged", id)
		}
	}
	compared := 0
	for page, err := range c.eventPages() {
		if err != nil {
			c.t.Fatal(err)
		}
		for _, e := range page.Records {
			if e.ID >= uint64(len(kept)) {
				break // it came after the history was read: a job has expired
			}
			if diff := cmp.Diff(e, kept[e.ID]); diff != "" {
				c.t.Fatalf("event %d: -leader +history:\n%s", e.ID, diff)
			}
			compared++
		}
	}
	c.t.Logf("%d events are in the history; %d of them were compared with those of the leader", len(kept), compared)
}

// eventPages reads the events that the leader still has.
func (c *failoverCluster) eventPages() func(yield func(client.EventPage, error) bool) {
	return func(yield func(client.EventPage, error) bool) {
		start := uint64(0)
		for {
			page, err := c.asked.Events(c.t.Context(), client.EventFilter{Start: &start})
			if !yield(page, err) || err != nil || len(page.Records) == 0 {
				return
			}
			start = page.Next
		}
	}
}
