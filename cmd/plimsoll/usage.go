package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type usageCmd struct {
	By []string `help:"Columns to group by: owner, queue, job, hour, day, or label:KEY. Separate several by commas." default:"owner" placeholder:"WORD"`
	usageFilterFlags
	Limit  int32  `help:"Most rows to print, those with the largest use of CPU; 0 prints all." default:"50" placeholder:"N"`
	Output string `short:"o" help:"How to print: ${enum}." enum:"table,json,yaml,csv" default:"table"`
}

// usageFilterFlags choose usage.
type usageFilterFlags struct {
	Since    string   `help:"From this time on (usage: from its hour): a time ago, such as 2h or 7d, or an instant, such as 2026-11-23." default:"1d" placeholder:"TIME"`
	Until    string   `help:"Up to the hour of this time, in the same forms. Default: now." placeholder:"TIME"`
	Owner    string   `help:"Only of jobs of this owner." placeholder:"NAME"`
	Queue    string   `short:"q" help:"Only of jobs of this queue and of those below it." placeholder:"PATH"`
	Job      string   `help:"Only of jobs with this id." placeholder:"ID"`
	Label    []string `short:"l" help:"Only of jobs with this label; several must all be there." placeholder:"NAME=VALUE"`
	TimeZone string   `help:"Time zone of days, such as Europe/Berlin." default:"UTC" placeholder:"ZONE"`
}

// Help is the detail of the help text.
func (usageCmd) Help() string {
	return "Usage is the resources that tasks held, multiplied by the time: an hour of a task with cpu 2 is two CPU-hours. It is counted by " +
		"hours, so --since and --until mean the whole hours they are in. What runs is counted up to a minute ago. WAIT is " +
		"from the request of a task to its first node: half of them waited no longer than P50, 95 of a hundred no " +
		"longer than P95.\n\n" + historyHelp + "\n\n" +
		example("plimsoll usage --by owner --since 7d", "plimsoll usage --by day,queue --since 30d -o csv",
			"plimsoll usage --by label:team --owner ann")
}

// filter returns the filter of the flags.
func (f *usageFilterFlags) filter(a *app) (client.UsageFilter, error) {
	filter := client.UsageFilter{
		Owner: f.Owner, Queue: f.Queue, Job: f.Job, Labels: f.Label, TimeZone: f.TimeZone,
	}
	since, err := instant("--since", f.Since, a.now())
	if err != nil {
		return filter, err
	}
	until, err := instant("--until", f.Until, a.now())
	filter.Since, filter.Until = max(0, unixNano(since)), unixNano(until)
	if err == nil && filter.Until != 0 && filter.Until <= filter.Since {
		err = plimsoll.Invalid("--until", "is not after --since; exchange them")
	}
	return filter, err
}

// Run prints who used how much.
func (cmd *usageCmd) Run(ctx context.Context, a *app) error {
	if cmd.Limit < 0 {
		return plimsoll.Invalid("--limit", "is negative; give a number above zero, or 0 for all")
	}
	filter, err := cmd.filter(a)
	if err != nil {
		return err
	}
	filter.By, filter.Limit = cmd.By, cmd.Limit
	c, err := a.client()
	if err != nil {
		return err
	}
	u, err := c.Usage(ctx, filter)
	if err != nil {
		return err
	}
	if cmd.Output == "csv" {
		if _, err := exportCSV(&recordWriter{a.out}, usageRows(filter.By, &u)); err != nil {
			return err
		}
	} else {
		views := make([]usageView, len(u.Rows))
		for i := range u.Rows {
			views[i] = viewUsage(filter.By, &u.Rows[i])
		}
		if err := (formatFlag{cmd.Output}).print(a, views, func(o *output) {
			p := a.page()
			usageTable(p, filter.By, u.Rows)
			o.paint(p.text(0))
		}); err != nil {
			return err
		}
	}
	if u.More {
		a.notes.printf("There are more rows; --limit 0 prints all.\n")
	}
	if u.KnownSince > filter.Since {
		a.notes.printf("The history knows since %s; what was before is not counted.\n", eventTime(u.KnownSince))
	}
	return nil
}

// hoursOf returns a use in hours of cores, GiB or pieces.
func hoursOf(resource string, unitSeconds float64) float64 {
	switch resource {
	case plimsoll.CPU, plimsoll.ExtCPU:
		return unitSeconds / 1000 / 3600
	case plimsoll.Memory, plimsoll.ExtMemory, plimsoll.Disk:
		return unitSeconds / (1 << 30) / 3600
	}
	return unitSeconds / 3600
}

// hoursTitle returns the title of the column with the hours of a resource.
func hoursTitle(resource string) string {
	switch resource {
	case plimsoll.Memory, plimsoll.ExtMemory, plimsoll.Disk:
		return strings.ToUpper(resource) + " GIB-HOURS"
	}
	return strings.ToUpper(resource) + "-HOURS"
}

// hoursText formats hours for people.
func hoursText(hours float64) string {
	switch {
	case hours == 0:
		return "0"
	case hours < 0.001:
		return "<0.001"
	case hours < 10:
		return strconv.FormatFloat(hours, 'f', 3, 64)
	}
	return strconv.FormatFloat(hours, 'f', 1, 64)
}

// usedNames returns the resources of rows: CPU and memory first.
func usedNames(rows []client.UsageRow) []string {
	names := map[string]bool{plimsoll.CPU: true, plimsoll.Memory: true}
	for i := range rows {
		for name := range rows[i].Used {
			names[name] = true
		}
	}
	delete(names, plimsoll.CPU)
	delete(names, plimsoll.Memory)
	return append([]string{plimsoll.CPU, plimsoll.Memory}, slices.Sorted(maps.Keys(names))...)
}

// usageBar is the width of the bar column in cells.
const usageBar = 20

// usageTable writes rows with a bar of their share in the CPU of all.
func usageTable(p *page, by []string, rows []client.UsageRow) {
	names := usedNames(rows)
	titles := []column{}
	for _, word := range by {
		titles = append(titles, column{title: strings.ToUpper(word)})
	}
	for i, name := range names {
		titles = append(titles, column{title: hoursTitle(name), drop: i})
	}
	titles = append(titles, column{title: "STARTED", drop: 11}, column{title: "FAILED", drop: 12},
		column{title: "WAIT P50", drop: 13}, column{title: "P95", drop: 14}, column{title: "SHARE OF CPU", drop: 20})
	total, most := 0.0, 0.0
	for i := range rows {
		total += rows[i].Used[plimsoll.CPU]
		most = max(most, rows[i].Used[plimsoll.CPU])
	}
	var lines [][]cell
	for i := range rows {
		r := &rows[i]
		var line []cell
		for _, key := range r.Keys {
			if key == "" {
				key = "(none)"
			}
			line = append(line, cell{key, plain})
		}
		for _, name := range names {
			line = append(line, cell{hoursText(hoursOf(name, r.Used[name])), plain})
		}
		p50, p95 := "", ""
		if r.Waits.Count > 0 {
			p50, p95 = span(r.Waits.P50), span(r.Waits.P95)
		}
		lines = append(lines, append(line, cell{fmt.Sprint(r.Started), plain}, cell{fmt.Sprint(r.Failed), plain},
			cell{p50, plain}, cell{p95, plain}, cell{shareBar(r.Used[plimsoll.CPU], most, total), plain}))
	}
	p.table(titles, lines)
}

// shareBar draws a value beside the largest one, with its share in all.
func shareBar(value, most, total float64) string {
	if total == 0 {
		return ""
	}
	full := int(value/most*usageBar + 0.5)
	return fmt.Sprintf("%-*s %.0f%%", usageBar, strings.Repeat("█", full), value/total*100)
}

// usageView is a row in JSON. Hours are of cores, GiB or pieces.
type usageView struct {
	Keys    map[string]string  `json:"keys"`
	Hours   map[string]float64 `json:"hours"`
	Started uint64             `json:"started"`
	Ended   uint64             `json:"ended"`
	Failed  uint64             `json:"failed"`
	Waits   waitsView          `json:"waits"`
}

// waitsView has seconds.
type waitsView struct {
	Count   uint64  `json:"count"`
	Mean    float64 `json:"mean"`
	P50     float64 `json:"p50"`
	P95     float64 `json:"p95"`
	Longest float64 `json:"longest"`
}

func viewUsage(by []string, r *client.UsageRow) usageView {
	v := usageView{
		Keys: map[string]string{}, Hours: map[string]float64{}, Started: r.Started, Ended: r.Ended, Failed: r.Failed,
		Waits: waitsView{
			r.Waits.Count, r.Waits.Mean.Seconds(), r.Waits.P50.Seconds(), r.Waits.P95.Seconds(),
			r.Waits.Longest.Seconds(),
		},
	}
	for i, key := range r.Keys[:min(len(by), len(r.Keys))] {
		v.Keys[by[i]] = key
	}
	for name, used := range r.Used {
		v.Hours[name] = hoursOf(name, used)
	}
	return v
}
