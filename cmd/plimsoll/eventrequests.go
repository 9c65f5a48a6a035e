package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type eventsRequestsCmd struct {
	Owner   string `help:"Owner of the jobs. Default: all owners." placeholder:"NAME"`
	Manager string `help:"Name of the resource manager. The leader keeps events for it until they are printed. Give each program its own name." default:"cli" placeholder:"NAME"`
	Follow  bool   `short:"f" help:"Keep printing new events."`
	formatFlag
}

// Help is the detail of the help text.
func (eventsRequestsCmd) Help() string {
	return example("plimsoll events requests", "plimsoll events requests -f --owner ada -o json") +
		"\n\nPrints the events that were not printed before, then the groups that wait now. " +
		"The first call registers the name, and the leader keeps events from then on. It forgets a name " +
		"that is not used for ten minutes. JSON and YAML are printed as one object a line. The events " +
		"are made only while service.event.requestEventsEnabled is true: see plimsoll events config."
}

// leaderChanged reports whether an acknowledgement failed because of a change of the leader. The
// events are sent again, or the news say that they are lost.
func leaderChanged(err error) bool {
	code := plimsoll.CodeOf(err)
	return code == plimsoll.CodeStale || code == plimsoll.CodeOutcomeUnknown
}

// The kinds of lines that are printed beside the causes of events.
const (
	requestWaits = "waits"
	requestsLost = "lost"
)

// requestView is a line for a resource manager: an event, a group that waits, or a loss.
type requestView struct {
	Cause     string             `json:"cause"` // of the event; waits; lost
	Sequence  uint64             `json:"sequence,omitempty"`
	Revision  uint64             `json:"revision,omitempty"`
	Time      *string            `json:"time,omitempty"`
	Owner     string             `json:"owner,omitempty"`
	Job       string             `json:"job,omitempty"`
	Task      string             `json:"task,omitempty"`
	Resources plimsoll.Resources `json:"resources,omitempty"`
	Message   string             `json:"message"`
	Group     *groupView         `json:"group,omitempty"` // that waits
	Lost      uint64             `json:"lost,omitempty"`  // number of events; 0: not known
}

// Run prints the events for resource managers.
func (cmd *eventsRequestsCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	header := []string{"TIME", "CAUSE", "OWNER", "JOB", "TASK", "MESSAGE"}
	table := newGrowingTable(a.out, header, []string{
		"2006-01-02T15:04:05.123456789Z", "queue_full", "alice", "etl-nightly", "etl-nightly.map.10", "",
	})
	if cmd.Output == "table" {
		table.print(table.header)
	}
	me := client.ResourceManager{Name: cmd.Manager, Owner: cmd.Owner}
	for news, err := range c.FollowRequestEvents(ctx, me) {
		if canceled(err) && ctx.Err() != nil {
			return nil // an interrupt is the normal end of following
		}
		if err != nil {
			return err
		}
		for _, v := range requestViews(&news) {
			if cmd.Output == "table" {
				table.print(v.row())
				continue
			}
			line, err := json.Marshal(v) // a line of JSON is also YAML
			if err != nil {
				return fmt.Errorf("print an event: %w", err)
			}
			a.out.records(append(line, '\n'))
		}
		if err := a.out.failure(); err != nil {
			return err
		}
		if n := len(news.Events); n > 0 { // they are printed
			_, err := c.AcknowledgeRequestEvents(ctx, me, news.Store, news.Events[n-1].Sequence)
			if err != nil && !leaderChanged(err) {
				return err
			}
		}
		if news.WaitingEnd && !cmd.Follow {
			return nil
		}
	}
	return nil
}

// requestViews returns the lines of a message, in the order in which they are printed.
func requestViews(news *client.RequestNews) []requestView {
	var views []requestView
	if news.LostUnknown {
		views = append(views, requestView{
			Cause: requestsLost, Message: "the leader's store of events is new: earlier events that were not acknowledged are lost",
		})
	}
	if news.Lost > 0 {
		views = append(views, requestView{
			Cause: requestsLost, Lost: news.Lost,
			Message: plural(int(news.Lost), "event") + " dropped, because more were kept than there is room for",
		})
	}
	for i := range news.Events {
		e := &news.Events[i]
		views = append(views, requestView{
			Cause: e.Cause.String(), Sequence: e.Sequence, Revision: e.Revision, Time: stamp(e.Event.Time),
			Owner: e.Owner, Job: e.Event.Reference, Task: e.Event.Object,
			Resources: amounts(e.Event.Resources), Message: e.Event.Message,
		})
	}
	for i := range news.Waiting {
		w := &news.Waiting[i]
		group := viewGroup(&w.Group)
		views = append(views, requestView{
			Cause: requestWaits, Revision: news.Revision, Owner: w.Owner, Job: w.Job, Message: group.WaitReason,
			Group: &group,
		})
	}
	return views
}

// row returns the line as one of a table.
func (v *requestView) row() []string {
	task, at := v.Task, ""
	if v.Group != nil {
		task = fmt.Sprintf("%s.%s (%d)", v.Job, v.Group.Name, v.Group.Counts.Pending)
	}
	if v.Time != nil {
		at = *v.Time
	}
	return []string{at, v.Cause, v.Owner, v.Job, task, v.Message}
}
