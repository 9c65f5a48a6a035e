package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// chart is a picture of the tasks of a job over time, made of their events.
type chart struct {
	rows  []*chartRow
	index map[string]*chartRow
	first int64 // Unix nanoseconds
	last  int64
}

// chartRow is a task.
type chartRow struct {
	task   string
	asked  int64 // when it was asked for; Unix nanoseconds
	ended  int64 // when its last attempt ended; 0: it has not
	result string
	runs   []chartRun
}

// chartRun is a time on a node.
type chartRun struct {
	from, until int64 // until 0: it goes on
	node        string
}

// newChart makes a chart of events in their order.
func newChart(events []client.HistoryEvent) *chart {
	c := &chart{index: map[string]*chartRow{}}
	for i := range events {
		c.apply(&events[i].Event)
	}
	return c
}

func (c *chart) apply(e *plimsoll.Event) {
	if c.first == 0 {
		c.first = e.Time
	}
	c.last = max(c.last, e.Time)
	switch {
	case e.Type == plimsoll.EventNode && e.Detail == plimsoll.NodeAlloc && e.Change == plimsoll.ChangeAdd:
		c.row(e.Reference, e.Time).run(e.Time, e.Object)
	case e.Type == plimsoll.EventApp && e.Reference != "":
		c.applyTask(c.row(e.Reference, e.Time), e)
	}
}

// applyTask applies an event of a job about one of its tasks.
func (c *chart) applyTask(row *chartRow, e *plimsoll.Event) {
	switch {
	case e.Change == plimsoll.ChangeAdd && e.Detail == plimsoll.AppRequest:
		row.ended = 0
	case e.Change == plimsoll.ChangeAdd && e.Detail == plimsoll.AppAlloc:
		row.run(e.Time, "")
	case e.Change == plimsoll.ChangeRemove:
		if n := len(row.runs); n > 0 && row.runs[n-1].until == 0 {
			row.runs[n-1].until = e.Time
		}
		if e.Detail == plimsoll.AppRequest || e.Detail == plimsoll.RequestCancel {
			row.ended, row.result = e.Time, e.Message
		}
	}
}

// run notes that the task is on a node since an instant. The node and the job tell it both.
func (r *chartRow) run(at int64, node string) {
	n := len(r.runs)
	if n == 0 || r.runs[n-1].until != 0 {
		r.runs, n = append(r.runs, chartRun{from: at}), n+1
	}
	if node != "" {
		r.runs[n-1].node = node
	}
}

func (c *chart) row(task string, at int64) *chartRow {
	row := c.index[task]
	if row == nil {
		row = &chartRow{task: task, asked: at}
		c.index[task] = row
		c.rows = append(c.rows, row)
	}
	return row
}

// minChart is the least width of a bar in cells.
const minChart = 16

// draw writes at most so many tasks; 0: all.
func (c *chart) draw(p *page, now time.Time, most int) {
	until := c.last
	for _, row := range c.rows {
		if row.ended == 0 {
			until = max(until, now.UnixNano()) // something goes on
		}
	}
	shown := c.rows
	if most > 0 && len(shown) > most {
		shown = shown[:most]
	}
	width := 40
	if p.width > 0 {
		width = max(minChart, min(60, p.width-50))
	}
	columns := []column{
		{title: "TASK"},
		{title: chartTitle(c.first, until, width)},
		{title: "WAITED", drop: 2},
		{title: "RAN", drop: 1},
		{title: "NODE", drop: 3},
	}
	var rows [][]cell
	for _, row := range shown {
		waited, ran, node := row.spans(until)
		rows = append(rows, []cell{
			{row.task, plain},
			{row.bar(c.first, until, width), notice},
			{span(waited), plain},
			{span(ran), plain},
			{node, plain},
		})
	}
	p.table(columns, rows)
	if left := len(c.rows) - len(shown); left > 0 {
		p.line(cell{fmt.Sprintf("… %s more; --tasks 0 shows all", plural(left, "task")), faint})
	}
}

// chartTitle has the two ends of the time.
func chartTitle(first, until int64, width int) string {
	const layout = "15:04:05"
	from, to := time.Unix(0, first).UTC().Format(layout), time.Unix(0, until).UTC().Format(layout)
	return from + strings.Repeat(" ", max(1, width-len(from)-len(to))) + to
}

// spans returns how long a task waited for its first node, how long it was on nodes, and the last
// of them.
func (r *chartRow) spans(until int64) (waited, ran time.Duration, node string) {
	end := r.end(until)
	if len(r.runs) == 0 {
		return time.Duration(end - r.asked), 0, ""
	}
	for i := range r.runs {
		ran += time.Duration(runEnd(&r.runs[i], end) - r.runs[i].from)
	}
	return time.Duration(r.runs[0].from - r.asked), ran, r.runs[len(r.runs)-1].node
}

func (r *chartRow) end(until int64) int64 {
	if r.ended != 0 {
		return r.ended
	}
	return until
}

func runEnd(run *chartRun, end int64) int64 {
	if run.until != 0 {
		return run.until
	}
	return end
}

// bar draws a task's time in cells: ░ it waits, █ it is on a node, × an attempt ends and is not the
// last.
func (r *chartRow) bar(first, until int64, width int) string {
	bar := []rune(strings.Repeat(" ", width))
	at := func(t int64) int {
		if until == first {
			return 0
		}
		return min(width-1, int(float64(t-first)/float64(until-first)*float64(width)))
	}
	end := r.end(until)
	for i := at(r.asked); i <= at(end); i++ {
		bar[i] = '░'
	}
	for i := range r.runs {
		run := &r.runs[i]
		for j := at(run.from); j <= at(runEnd(run, end)); j++ {
			bar[j] = '█'
		}
	}
	for i := range r.runs[:max(0, len(r.runs)-1)] {
		bar[at(runEnd(&r.runs[i], end))] = '×'
	}
	return string(bar)
}
