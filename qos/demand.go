package qos

import (
	"fmt"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// demand is the gap that one firing rule wants closed.
type demand struct {
	*run
	metric     *Metric // nil: not registered
	action     *plimsoll.Action
	of         string // the dimension
	gap        int64  // amount of it that is still to be released
	gapUnknown bool   // the metric is missing or not registered, so the gap is unknown
	done       bool   // the effect of a used rung must show before the next rung
	why        string
}

func (r *round) demand(u *run) demand {
	d := demand{
		run: u, of: u.report.Dimension, metric: u.metric, action: &r.p.actions[u.action],
		gapUnknown: u.actsUnmeasured || u.metric == nil,
	}
	if !d.gapUnknown {
		d.gap = r.gapAbove(u)
		u.report.Gap = d.gap
	}
	return d
}

// gapAbove returns the amount to be released until a metric is at its target.
func (r *round) gapAbove(u *run) int64 {
	gap := u.amount - u.target
	return plus(gap, mulDiv(max(gap, 0), r.p.opt.Excess, 1000))
}

// subtractPending subtracts releases that are on their way from the gaps. They are the use of tasks
// that are being stopped, until they are gone or overdue, and recent steps. Steps of the real rules
// count for previewed rules too.
func (r *round) subtractPending(set []demand) {
	for i := range r.tasks {
		t := &r.tasks[i]
		e := r.l.leaving[t.Key()]
		if t.Gone || e != nil && e.Deadline <= r.now || e == nil && !t.Stopping {
			continue
		}
		for j := range set {
			if amount, known := set[j].use(t); known && !set[j].gapUnknown {
				set[j].gap = plus(set[j].gap, -max(amount, 0))
			}
		}
	}
	for i := range r.res.Steps {
		release(set, r.res.Steps[i].Release)
	}
	for _, c := range r.l.recent {
		for j := range set {
			if d := &set[j]; !c.Gives && d.of == c.Dimension && r.hidden(c.At, d.reading.at) {
				d.gap = plus(d.gap, -c.Value)
			}
		}
	}
	release(set, r.l.changes(false))
	r.subtractGone(set)
}

// subtractGone subtracts the use of tasks that have gone so recently that the node's figures still
// include it.
func (r *round) subtractGone(set []demand) {
	if len(r.l.leaving) == 0 {
		return
	}
	present := make(map[Key]bool, len(r.tasks))
	for i := range r.tasks {
		present[r.tasks[i].Key()] = true
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.l.leaving), compareKeys) {
		e := r.l.leaving[k]
		if present[k] {
			continue
		}
		t := e.task()
		for j := range set {
			if e.Gone != 0 && !r.hidden(e.Gone, set[j].reading.at) {
				continue
			}
			if amount, known := set[j].use(&t); known && !set[j].gapUnknown {
				set[j].gap = plus(set[j].gap, -max(amount, 0))
			}
		}
	}
}

func (d *demand) use(t *Task) (int64, bool) {
	if d.metric == nil {
		return 0, false
	}
	return d.metric.release(t)
}

// release subtracts the amounts of a step from the gaps of all demands on their dimensions.
func release(set []demand, amounts []Amount) {
	for _, a := range amounts {
		for i := range set {
			if set[i].of == a.Dimension {
				set[i].gap = plus(set[i].gap, -a.Value)
			}
		}
	}
}

func (d *demand) priority() int {
	if d.metric == nil {
		return -1
	}
	return d.metric.ActionPriority
}

// prefersThrottling reports whether a demand prefers throttling or freezing. A task on which that
// fails for now is not stopped instead.
func (d *demand) prefersThrottling() bool {
	return d.metric != nil && d.metric.Throttleable && (d.action.Throttle != nil || d.action.Freeze != nil)
}

// reason returns the reason of the demand's steps, for people.
func (d *demand) reason() string {
	if d.why == "" {
		d.why = d.describe()
	}
	return d.why
}

func (d *demand) describe() string {
	if d.metric == nil {
		return fmt.Sprintf("%s: nobody has registered %s, so the amount to release is unknown", d.key, d.Metric)
	}
	if d.gapUnknown {
		return fmt.Sprintf("%s: %s is missing, so the amount to release is unknown", d.key, d.Metric)
	}
	line := "line " + d.metric.Format(d.line)
	if d.rule.target != d.line {
		line += ", release " + d.metric.Format(d.rule.target)
	}
	return fmt.Sprintf("%s: %s is %s (%s)", d.key, d.Metric, d.metric.Format(d.report.Usage), line)
}
