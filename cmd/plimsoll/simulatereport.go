package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/simulate"
)

// printReports prints the tables for people, one below the other.
func printReports(o *output, reports []*simulate.Report) {
	first := reports[0]
	o.printf("%s: %d tasks of %d jobs on %d nodes\n", oneLine(first.Workload), first.Tasks, first.Jobs, first.Nodes)
	for _, note := range first.Notes {
		o.printf("note: %s\n", oneLine(note))
	}
	for _, r := range reports {
		o.printf("\n%s, until %s\n", oneLine(r.Policy), span(seconds(r.Span)))
		o.printf("  %d placed, %d ended, %d of them failed, %d wait at the end, %d refused\n",
			r.Placed, r.Ended, r.Failed, r.Waiting, r.Refused)
		for _, refusal := range r.Refusals {
			o.printf("  refused: %s: %s\n", plural(refusal.Tasks, "task"), oneLine(refusal.Reason))
		}
		for _, cause := range r.Causes {
			o.printf("  waiting: %s: %s\n", plural(cause.Tasks, "task"), oneLine(cause.Cause))
		}
		used := make([]string, 0, len(r.Utilization))
		for _, name := range sortedNames(r.Utilization) {
			used = append(used, fmt.Sprintf("%s %.1f %%", name, 100*r.Utilization[name]))
		}
		o.printf("  used on average: %s; fragmentation of %s %.1f %%; fairness %.3f\n",
			strings.Join(used, ", "), r.Series.FragmentationOf, 100*r.Fragmentation, r.Fairness)
		if r.Then != nil {
			printThen(o, r)
			continue
		}
		o.printf("\n")
		rows := [][]string{waitRow("all", r.Placed, r.Waiting, r.Waits)}
		for _, q := range r.Queues {
			if q.Placed > 0 || q.Waiting > 0 {
				rows = append(rows, waitRow(q.Name, q.Placed, q.Waiting, q.Waits))
			}
		}
		columns(o, []string{"QUEUE", "PLACED", "WAITING", "MEAN", "P50", "P95", "P99", "MAX"}, rows)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

func waitRow(name string, placed, waiting int, w simulate.Waits) []string {
	row := []string{name, strconv.Itoa(placed), strconv.Itoa(waiting)}
	for _, x := range []float64{w.Mean, w.P50, w.P95, w.P99, w.Max} {
		row = append(row, span(seconds(x)))
	}
	return row
}

// printThen prints the waits of a recorded workload beside those of the simulation.
func printThen(o *output, r *simulate.Report) {
	t, d := r.Then, &r.Then.Difference
	o.printf("  waits differ from those of then by %s on average, 95 %% of them by at most %s, all by at most %s (%s)\n\n",
		span(seconds(d.Mean)), span(seconds(d.P95)), span(seconds(d.Max)), plural(t.Both, "task"))
	all := simulate.Group{Name: "all", Waiting: r.Waiting, Waits: r.Waits}
	groups := map[string]*simulate.Group{}
	then := map[string]*simulate.Group{"all": {Placed: t.Placed, Waiting: t.Waiting, Waits: t.Waits}}
	names := map[string]float64{}
	for i := range r.Queues {
		q := &r.Queues[i]
		groups[q.Name] = q
		if all.Placed += q.Placed; q.Placed > 0 || q.Waiting > 0 {
			names[q.Name] = 0
		}
	}
	for i := range t.Queues {
		then[t.Queues[i].Name] = &t.Queues[i]
		names[t.Queues[i].Name] = 0
	}
	groups["all"] = &all
	var rows [][]string
	for _, name := range append([]string{"all"}, sortedNames(names)...) {
		row := []string{name}
		here, before := thenCells(groups[name]), thenCells(then[name])
		for i := range here {
			row = append(row, here[i], before[i])
		}
		rows = append(rows, row)
	}
	columns(o, []string{
		"QUEUE", "PLACED", "THEN", "WAITING", "THEN", "P50", "THEN", "P95", "THEN", "P99", "THEN",
	}, rows)
}

// thenCells returns the cells of a queue; nil: it was not there.
func thenCells(g *simulate.Group) [5]string {
	if g == nil {
		return [5]string{}
	}
	cells := [5]string{strconv.Itoa(g.Placed), strconv.Itoa(g.Waiting)}
	if g.Placed > 0 {
		w := &g.Waits
		cells[2], cells[3], cells[4] = span(seconds(w.P50)), span(seconds(w.P95)), span(seconds(w.P99))
	}
	return cells
}
