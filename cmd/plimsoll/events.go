package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/client"
)

type eventsCmd struct {
	Object string  `help:"Only events about this job (its tasks included), task, node or queue." placeholder:"ID"`
	Start  *uint64 `help:"Id of the first event to print." placeholder:"ID"`
	Count  uint64  `short:"n" help:"Most events to print: the latest, or the first ones from --start; 0 prints all." default:"100"`
	Follow bool    `short:"f" help:"Keep printing new events."`
	formatFlag
}

// Help is the detail of the help text.
func (eventsCmd) Help() string {
	return example("plimsoll events --object wordcount", "plimsoll events -f -o json") +
		"\n\nWith -f, JSON and YAML are printed as one object a line. An object that is not known is not " +
		"refused then: its events may come."
}

// Run prints events.
func (cmd *eventsCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	filter := client.EventFilter{Object: cmd.Object, Start: cmd.Start}
	if cmd.Start == nil && cmd.Count > 0 {
		if filter.Start, err = latest(ctx, c, cmd.Object, cmd.Count); err != nil {
			return err
		}
	}
	if cmd.Follow {
		return cmd.follow(ctx, a, c, filter)
	}
	records, err := cmd.read(ctx, c, filter)
	if err != nil {
		return err
	}
	if len(records) == 0 && cmd.Object != "" {
		if err := checkObject(ctx, c, cmd.Object); err != nil {
			return err
		}
	}
	views := make([]eventView, len(records))
	for i := range records {
		views[i] = viewEvent(&records[i])
	}
	return cmd.print(a, views, func(o *output) {
		rows := make([][]string, len(records))
		for i := range records {
			rows[i] = eventRow(&records[i])
		}
		columns(o, eventHeader, rows)
	})
}

// latest returns the id of the first of the last count events, of all or of one object. nil means
// that there are no more than count. For one object it must read all events that the server holds.
func latest(ctx context.Context, c *client.Client, object string, count uint64) (*uint64, error) {
	if object != "" {
		all, err := (&eventsCmd{}).read(ctx, c, client.EventFilter{Object: object})
		if err != nil || uint64(len(all)) <= count {
			return nil, err
		}
		return &all[uint64(len(all))-count].ID, nil
	}
	page, err := c.Events(ctx, client.EventFilter{Count: 1})
	if err != nil || page.Highest < count {
		return nil, err
	}
	start := max(page.Highest-count+1, page.Lowest)
	return &start, nil
}

// read prints pages until enough events are printed or there are no more.
func (cmd *eventsCmd) read(
	ctx context.Context, c *client.Client, filter client.EventFilter,
) ([]client.EventRecord, error) {
	var records []client.EventRecord
	for {
		if cmd.Count > 0 {
			filter.Count = cmd.Count - uint64(len(records))
		}
		page, err := c.Events(ctx, filter)
		if err != nil {
			return nil, err
		}
		records = append(records, page.Records...)
		enough := cmd.Count > 0 && uint64(len(records)) >= cmd.Count
		if enough || page.Next > page.Highest || filter.Start != nil && page.Next <= *filter.Start {
			return records, nil
		}
		filter.Start = &page.Next
	}
}

func (cmd *eventsCmd) follow(ctx context.Context, a *app, c *client.Client, filter client.EventFilter) error {
	table := newGrowingTable(a.out, eventHeader, []string{
		"10000", "2006-01-02T15:04:05.000Z", "QUEUE", "REMOVE", "ALLOC_NODEREMOVED", "wordcount-4nioh4",
		"wordcount-4nioh4.map.10", "cpu 1, memory 512Mi",
	})
	if cmd.Output == "table" {
		table.print(table.header)
	}
	for r, err := range c.FollowEvents(ctx, filter, 0) {
		if canceled(err) && ctx.Err() != nil {
			return nil // an interrupt is the normal end of following
		}
		if err != nil {
			return err
		}
		if cmd.Output != "table" {
			line, err := json.Marshal(viewEvent(&r)) // a line of JSON is also YAML
			if err != nil {
				return fmt.Errorf("print an event: %w", err)
			}
			a.out.records(append(line, '\n'))
		} else {
			table.print(eventRow(&r))
		}
		if err := a.out.failure(); err != nil {
			return err
		}
	}
	return nil
}

var eventHeader = []string{
	"ID", "TIME", "TYPE", "CHANGE", "DETAIL", "OBJECT", "REFERENCE", "RESOURCES", "MESSAGE",
}

func eventRow(r *client.EventRecord) []string {
	e := &r.Event
	resources := ""
	if len(e.Resources) > 0 {
		resources = listed(e.Resources)
	}
	return []string{
		fmt.Sprint(r.ID), time.Unix(0, e.Time).UTC().Format("2006-01-02T15:04:05.000Z"), e.Type.String(),
		e.Change.String(),
		e.Detail.String(), e.Object, e.Reference, resources, e.Message,
	}
}
