package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type eventsCmd struct {
	List   eventsListCmd   `cmd:"" default:"withargs" help:"Tell the recent events."`
	Config eventsConfigCmd `cmd:"" help:"Show and change the settings of the events."`

	Requests   eventsRequestsCmd `cmd:"" help:"Print the events for resource managers: new jobs, tasks that got a node, and groups whose queue has no room."`
	Historians historiansCmd     `cmd:"" help:"List and remove the historians for which events are held back."`
}

// Help is the detail of the help text.
func (eventsCmd) Help() string {
	return example("plimsoll events --object wordcount", "plimsoll events -f", "plimsoll events config",
		"plimsoll events requests") +
		"\n\nWithout a command, the flags are those of list."
}

type eventsListCmd struct {
	Object string  `help:"Only events about this job (its tasks included), task, node or queue. ID~UID is one job that had the id." placeholder:"ID"`
	Start  *uint64 `help:"Id of the first event to print." placeholder:"ID"`
	Count  *uint64 `short:"n" help:"Most events to print: the latest, or the first ones from --start; 0 prints all. Default: 100, and all with --since." placeholder:"N"`
	sinceFlag
	Type   []string `help:"Only events about objects of a kind: job, task, node, queue, user or group." placeholder:"TYPE"`
	Words  string   `help:"Words of the table: plain, or those of YuniKorn's events." enum:"plain,yunikorn" default:"plain"`
	Follow bool     `short:"f" help:"Keep printing new events."`
	formatFlag
}

// usualEvents is the number of events that are printed unless the command line says otherwise.
const usualEvents = 100

// Help is the detail of the help text.
func (eventsListCmd) Help() string {
	return example("plimsoll events --object wordcount", "plimsoll events --since 10m --type node",
		"plimsoll events -f -o json") +
		"\n\nWith -f, JSON and YAML are printed as one object a line. An object that is not known is not " +
		"refused then: its events may come."
}

// Run prints events.
func (cmd *eventsListCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	filter, count, err := cmd.criteria(a.now())
	if err != nil {
		return err
	}
	object, err := parseLifetime("--object", cmd.Object, "")
	switch {
	case err != nil:
		return err
	case !object.uid.IsZero() && cmd.Follow:
		return plimsoll.Invalid("--follow", "cannot be used beside %s; give the id alone", cmd.Object)
	case !object.uid.IsZero():
		records, err := lifetimeEvents(ctx, c, filter, object, count)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			if _, err := c.FindJob(ctx, client.JobName{UID: object.uid.Text()}); err != nil {
				return err
			}
		}
		return cmd.printAll(a, records)
	}
	if err := cmd.checkStart(ctx, c); err != nil {
		return err
	}
	if cmd.Start == nil && count > 0 {
		if filter.Start, err = latest(ctx, c, filter, count); err != nil {
			return err
		}
	}
	if cmd.Follow {
		return cmd.follow(ctx, a, c, filter)
	}
	records, err := readEvents(ctx, c, filter, count)
	if err != nil {
		return err
	}
	if len(records) == 0 && cmd.Object != "" {
		if err := checkObject(ctx, c, cmd.Object); err != nil {
			return err
		}
	}
	return cmd.printAll(a, records)
}

func (cmd *eventsListCmd) printAll(a *app, records []client.EventRecord) error {
	views := make([]eventView, len(records))
	for i := range records {
		views[i] = viewEvent(&records[i])
	}
	return cmd.print(a, views, func(o *output) {
		rows := make([][]string, len(records))
		for i := range records {
			rows[i] = cmd.row(&records[i])
		}
		columns(o, cmd.header(), rows)
	})
}

// criteria returns the filter of the flags, and the most events to print; 0: all.
func (cmd *eventsListCmd) criteria(now time.Time) (filter client.EventFilter, count uint64, err error) {
	filter = client.EventFilter{Object: cmd.Object, Start: cmd.Start}
	if filter.Since, err = cmd.since(now); err != nil {
		return filter, 0, err
	}
	for _, word := range cmd.Type {
		t, ok := plimsoll.ParseEventSubject(word)
		if !ok || t == plimsoll.SubjectNone {
			return filter, 0, plimsoll.Invalid(
				"--type", "%q is no type of events; %s", word, plimsoll.Suggest(word, eventTypeWords()),
			)
		}
		filter.Types = append(filter.Types, t)
	}
	switch {
	case cmd.Count != nil:
		count = *cmd.Count
	case filter.Since.IsZero():
		count = usualEvents
	}
	return filter, count, nil
}

// eventTypeWords returns the values of --type.
func eventTypeWords() []string {
	var words []string
	for s := plimsoll.SubjectJob; s.Known(); s++ {
		words = append(words, s.String())
	}
	return words
}

// latest returns the id of the first of the last count events that the filter chooses. nil means
// that there are no more than count. Unless the filter chooses all events it must read all of its
// events that the server holds.
func latest(ctx context.Context, c *client.Client, filter client.EventFilter, count uint64) (*uint64, error) {
	if filter.Object != "" || !filter.Since.IsZero() || len(filter.Types) > 0 {
		all, err := readEvents(ctx, c, filter, 0)
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

// checkStart refuses an id behind that of the next event. It is of other ids: those of a store that
// was replaced, say.
func (cmd *eventsListCmd) checkStart(ctx context.Context, c *client.Client) error {
	if cmd.Start == nil {
		return nil
	}
	page, err := c.Events(ctx, client.EventFilter{Count: 1})
	if err == nil && *cmd.Start > page.Highest+1 {
		err = plimsoll.Invalid("--start", "is %d, and the newest event has the id %d; leave it out for the latest events",
			*cmd.Start, page.Highest)
	}
	return err
}

// readEvents reads pages until it has count events or there are no more; 0: all.
func readEvents(
	ctx context.Context, c *client.Client, filter client.EventFilter, count uint64,
) ([]client.EventRecord, error) {
	var records []client.EventRecord
	for {
		if count > 0 {
			filter.Count = count - uint64(len(records))
		}
		page, err := c.Events(ctx, filter)
		if err != nil {
			return nil, err
		}
		records = append(records, page.Records...)
		enough := count > 0 && uint64(len(records)) >= count
		if enough || page.Next > page.Highest || filter.Start != nil && page.Next <= *filter.Start {
			return records, nil
		}
		filter.Start = &page.Next
	}
}

func (cmd *eventsListCmd) follow(ctx context.Context, a *app, c *client.Client, filter client.EventFilter) error {
	usual := []string{"10000", "2006-01-02T15:04:05.000Z", "queue"}
	if cmd.Words == wordsOfYuniKorn {
		usual = []string{
			"10000", "2006-01-02T15:04:05.000Z", "QUEUE", "REMOVE", "ALLOC_NODEREMOVED", "wordcount-4nioh4",
			"wordcount-4nioh4.map.10", "cpu 1, memory 512Mi",
		}
	}
	table := newGrowingTable(a.out, cmd.header(), append(usual, make([]string, len(cmd.header())-len(usual))...))
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
			table.print(cmd.row(&r))
		}
		if err := a.out.failure(); err != nil {
			return err
		}
	}
	return nil
}

// wordsOfYuniKorn is the value of --words for the words of YuniKorn's event design.
const wordsOfYuniKorn = "yunikorn"

func (cmd *eventsListCmd) header() []string {
	if cmd.Words == wordsOfYuniKorn {
		return []string{"ID", "TIME", "TYPE", "CHANGE", "DETAIL", "OBJECT", "REFERENCE", "RESOURCES", "MESSAGE"}
	}
	return []string{"ID", "TIME", "TYPE", "EVENT"}
}

func (cmd *eventsListCmd) row(r *client.EventRecord) []string {
	e := &r.Event
	id, at := fmt.Sprint(r.ID), time.Unix(0, e.Time).UTC().Format("2006-01-02T15:04:05.000Z")
	if cmd.Words != wordsOfYuniKorn {
		return []string{id, at, e.Subject().String(), e.Sentence()}
	}
	resources := ""
	if len(e.Resources) > 0 {
		resources = listed(e.Resources)
	}
	return []string{
		id, at, e.Type.String(), e.Change.String(), e.Detail.String(), e.Object, e.Reference, resources, e.Message,
	}
}
