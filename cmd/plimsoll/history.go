package main

import (
	"context"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type historyCmd struct {
	Job    historyJobCmd    `cmd:"" help:"Tell what became of a job and its tasks, with a picture."`
	Task   historyTaskCmd   `cmd:"" help:"Print the events of a task."`
	Node   historyNodeCmd   `cmd:"" help:"Print the events of a node."`
	Queue  historyQueueCmd  `cmd:"" help:"Print the events of a queue."`
	Jobs   historyJobsCmd   `cmd:"" help:"List all jobs that the history knows, the newest first."`
	Status historyStatusCmd `cmd:"" help:"Show since when the history knows, and what it lacks."`
	Export historyExportCmd `cmd:"" help:"Write events, jobs or usage to a file."`
}

// Help is the detail of the help text.
func (historyCmd) Help() string {
	return historyHelp + "\n\n" + example("plimsoll history job wordcount", "plimsoll history node n1 --since 1d",
		"plimsoll --server 127.0.0.1:9086 history status")
}

const historyHelp = "A historian answers these commands, and so does dev. Where the historian is a process of its own, " +
	"give its address by --server."

// spanFlags choose a span of time, and how much of it is printed.
type spanFlags struct {
	sinceFlag
	untilFlag
	Count uint64 `short:"n" help:"Most events to print: the latest; 0 prints all." default:"100" placeholder:"N"`
	formatFlag
}

// filter adds the span to a filter.
func (f *spanFlags) filter(a *app, filter client.TimelineFilter) (client.TimelineFilter, error) {
	since, err := f.since(a.now())
	if err != nil {
		return filter, err
	}
	until, err := f.until(a.now())
	if err != nil {
		return filter, err
	}
	filter.Since, filter.Until = unixNano(since), unixNano(until)
	if filter.Until != 0 && filter.Until <= filter.Since {
		return filter, plimsoll.Invalid("--until", "is not after --since; exchange them")
	}
	return filter, nil
}

// unixNano returns an instant in Unix nanoseconds; 0 for the zero time.
func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// maxTimeline bounds the events that a command reads for one timeline.
const maxTimeline = 1_000_000

// readTimeline reads the events of a filter.
func readTimeline(ctx context.Context, c *client.Client, filter client.TimelineFilter) ([]client.HistoryEvent, error) {
	var events []client.HistoryEvent
	for e, err := range c.Timeline(ctx, filter) {
		if err != nil {
			return nil, err
		}
		if events = append(events, e); len(events) > maxTimeline {
			return nil, plimsoll.Errorf(plimsoll.CodeExhausted,
				"there are more than %d events; choose a shorter time by --since and --until", maxTimeline)
		}
	}
	return events, nil
}

// tell prints events, with a picture above them.
func (f *spanFlags) tell(a *app, events []client.HistoryEvent, picture func(p *page)) error {
	left := 0
	if f.Count > 0 && uint64(len(events)) > f.Count {
		left = len(events) - int(f.Count)
	}
	shown := events[left:]
	views := make([]historyEventView, len(shown))
	for i := range shown {
		views[i] = viewHistoryEvent(&shown[i])
	}
	return f.print(a, views, func(o *output) {
		if picture != nil {
			p := a.page()
			picture(p)
			o.paint(p.text(0))
			if len(shown) > 0 {
				o.printf("\n")
			}
		}
		rows := make([][]string, len(shown))
		for i := range shown {
			e := &shown[i].Event
			rows[i] = []string{eventTime(e.Time), e.Subject().String(), e.Sentence()}
		}
		if left > 0 {
			o.printf("%d earlier events are left out; -n 0 prints all.\n", left)
		}
		columns(o, []string{"TIME", "TYPE", "EVENT"}, rows)
	})
}

func eventTime(nanos int64) string {
	return time.Unix(0, nanos).UTC().Format("2006-01-02T15:04:05.000Z")
}

// historyEventView is an event of the history in JSON.
type historyEventView struct {
	Instance string `json:"instance"`
	eventView
}

func viewHistoryEvent(e *client.HistoryEvent) historyEventView {
	return historyEventView{e.InstanceUUID, viewEvent(&e.EventRecord)}
}

type historyTaskCmd struct {
	ID string `arg:"" help:"Id of the task."`
	spanFlags
}

// Help is the detail of the help text.
func (historyTaskCmd) Help() string { return example("plimsoll history task wordcount.map.3") }

// Run tells what became of a task.
func (cmd *historyTaskCmd) Run(ctx context.Context, a *app) error {
	picture := func(p *page, events []client.HistoryEvent) { newChart(events).draw(p, a.now(), 1) }
	return cmd.run(ctx, a, client.TimelineFilter{Task: cmd.ID}, "task", cmd.ID, picture)
}

type historyNodeCmd struct {
	ID string `arg:"" help:"Id of the node."`
	spanFlags
}

// Help is the detail of the help text.
func (historyNodeCmd) Help() string { return example("plimsoll history node n1 --since 1d") }

// Run tells what became of a node.
func (cmd *historyNodeCmd) Run(ctx context.Context, a *app) error {
	return cmd.run(ctx, a, client.TimelineFilter{Node: cmd.ID}, "node", cmd.ID, nil)
}

type historyQueueCmd struct {
	Path string `arg:"" help:"Full path of the queue."`
	spanFlags
}

// Help is the detail of the help text.
func (historyQueueCmd) Help() string { return example("plimsoll history queue root.batch --since 1d") }

// Run tells what became of a queue.
func (cmd *historyQueueCmd) Run(ctx context.Context, a *app) error {
	return cmd.run(ctx, a, client.TimelineFilter{Queue: cmd.Path}, "queue", cmd.Path, nil)
}

// run prints the timeline of an object. One without events is not known.
func (f *spanFlags) run(
	ctx context.Context, a *app, filter client.TimelineFilter, kind, id string,
	picture func(*page, []client.HistoryEvent),
) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if filter, err = f.filter(a, filter); err != nil {
		return err
	}
	events, err := readTimeline(ctx, c, filter)
	unknown := plimsoll.CodeOf(err) == plimsoll.CodeNotFound
	if err != nil && !unknown {
		return err
	}
	if unknown || len(events) == 0 && filter.Since == 0 && filter.Until == 0 {
		return plimsoll.Errorf(plimsoll.CodeNotFound,
			"the history has no event of a %s %q; plimsoll history status says since when it knows", kind, id)
	}
	if picture == nil {
		return f.tell(a, events, nil)
	}
	return f.tell(a, events, func(p *page) { picture(p, events) })
}

type historyStatusCmd struct{ formatFlag }

// Help is the detail of the help text.
func (historyStatusCmd) Help() string {
	return example("plimsoll history status", "plimsoll history status -o json")
}

// Run shows what the history has.
func (cmd *historyStatusCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	s, err := c.HistoryStatus(ctx)
	if err != nil {
		return err
	}
	return cmd.print(a, viewHistoryStatus(&s), func(o *output) {
		now := a.now()
		when := func(nanos int64) string {
			if nanos == 0 {
				return "nothing yet"
			}
			return fmt.Sprintf("%s (%s)", eventTime(nanos), ago(now, nanos))
		}
		fields(o,
			[2]string{"trouble", s.Trouble},
			[2]string{"knows since", when(s.Since)},
			[2]string{"newest event", when(s.Newest)},
			[2]string{"oldest event", when(s.Oldest)},
			[2]string{"events", fmt.Sprint(s.Events)},
			[2]string{"jobs", fmt.Sprint(s.Jobs)},
			[2]string{"size", humanAmount(plimsoll.Disk, s.Bytes)},
			[2]string{"next event", fmt.Sprint(s.Next)},
			[2]string{"instance", s.InstanceUUID},
			[2]string{"registered", registeredAs(&s)},
		)
		if s.Registered != nil && len(s.Registered.Historians) > 0 {
			o.printf("\n")
			historianTable(o, now, s.Registered)
		}
		if len(s.Gaps) == 0 {
			return
		}
		rows := make([][]string, len(s.Gaps))
		for i := range s.Gaps {
			rows[i] = gapRow(&s.Gaps[i])
		}
		o.printf("\nEvents are missing:\n")
		columns(o, []string{"FROM", "TO", "EVENTS", "WHY"}, rows)
	})
}

// registeredAs says under which name events are held back for a historian; empty: under none.
func registeredAs(s *client.HistoryStatus) string {
	if s.Name != "" && s.Unregistered != "" {
		return fmt.Sprintf("not as %s: %s", s.Name, s.Unregistered)
	}
	return s.Name
}

func gapRow(g *client.HistoryGap) []string {
	from, missing := "the beginning", "unknown"
	if g.From != 0 {
		from = eventTime(g.From)
	}
	if g.Next > g.First {
		missing = fmt.Sprint(g.Next - g.First)
	}
	return []string{from, eventTime(g.To), missing, g.Reason}
}

type historyStatusView struct {
	Instance string           `json:"instance"`
	Next     uint64           `json:"next"`
	Since    *string          `json:"since"`
	Newest   *string          `json:"newest"`
	Oldest   *string          `json:"oldest"`
	Events   uint64           `json:"events"`
	Jobs     uint64           `json:"jobs"`
	Bytes    int64            `json:"bytes"`
	Gaps     []historyGapView `json:"gaps"`
	Trouble  *string          `json:"trouble"` // null: events are taken in

	Name         *string         `json:"name"`         // null: its history was not opened yet
	Unregistered *string         `json:"unregistered"` // null: events are held back for it
	Historians   []historianView `json:"historians"`   // null: the gateway could not be asked
}

type historyGapView struct {
	Instance string  `json:"instance"`
	First    uint64  `json:"first"`
	Next     uint64  `json:"next"`
	From     *string `json:"from"` // null: the beginning
	To       *string `json:"to"`
	Reason   string  `json:"reason"`
}

func viewHistoryStatus(s *client.HistoryStatus) historyStatusView {
	v := historyStatusView{
		Instance: s.InstanceUUID, Next: s.Next, Since: stamp(s.Since), Newest: stamp(s.Newest), Oldest: stamp(s.Oldest),
		Events: s.Events, Jobs: s.Jobs, Bytes: s.Bytes, Gaps: []historyGapView{}, Trouble: nullIfEmpty(s.Trouble),
		Name: nullIfEmpty(s.Name), Unregistered: nullIfEmpty(s.Unregistered),
	}
	if s.Registered != nil {
		v.Historians = viewHistorians(s.Registered)
	}
	for i := range s.Gaps {
		g := &s.Gaps[i]
		v.Gaps = append(v.Gaps, historyGapView{
			g.InstanceUUID, g.First, g.Next, stamp(g.From), stamp(g.To), g.Reason,
		})
	}
	return v
}
