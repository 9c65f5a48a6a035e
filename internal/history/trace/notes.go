package trace

import (
	"fmt"
	"time"
)

func duration(nanos int64) time.Duration { return time.Duration(nanos) }

// notes says in sentences what is not as it was.
func (t *Trace) notes() []string {
	c := &t.Counts
	list := []string{
		"events tell no groups of owners, no priorities, constraints and preferences of jobs, no pauses between " +
			"attempts, and no labels of nodes: the simulation has none",
		"of queues events tell paths, max and guaranteed; orders, priorities, maxapplications, limits of users, " +
			"placement rules and the chain of then are not known: unless files state them, those without a file hold",
	}
	if c.Shortened {
		list = append(list, "the history knows the cluster from "+clock(t.From)+" on, so the window begins there")
	}
	for _, n := range []struct {
		count int
		one   string
		many  string
	}{
		{
			c.RanBefore, "task ran at the beginning already: it takes room, and is in no wait",
			"tasks ran at the beginning already: they take room, and are in no wait",
		},
		{
			c.WaitedBefore, "task waited at the beginning already: it is in no wait",
			"tasks waited at the beginning already: they are in no wait",
		},
		{
			c.Unfinished, "task had not ended: once it runs, it runs until the end",
			"tasks had not ended: once they run, they run until the end",
		},
		{c.Waiting, "task waited at the end", "tasks waited at the end"},
		{
			c.Killed, "task was stopped while it ran: it runs until it is stopped",
			"tasks were stopped while they ran: each runs until it is stopped",
		},
		{
			c.Interrupted, "attempt ended with its node: in the simulation those that are on the node then begin anew",
			"attempts ended with their nodes: in the simulation those that are on the nodes then begin anew",
		},
		{
			c.Again, "further attempt comes at once, without the pause of then",
			"further attempts come at once, without the pauses of then",
		},
		{c.Refused, "job was refused then, and does not come", "jobs were refused then, and do not come"},
		{
			c.InGaps, "task came, began or ended in a gap: that happens at the end of the gap, and its wait is not known",
			"tasks came, began or ended in a gap: that happens at the end of the gap, and their waits are not known",
		},
		{c.NoOwner, "job has no known owner", "jobs have no known owner"},
		{
			c.NoQueue, "job was in a queue that is not known, or no leaf any more: see the queues of the simulation",
			"jobs were in queues that are not known, or no leaves any more: see the queues of the simulation",
		},
		{
			c.Strange, "event does not fit to those before it, and is left out",
			"events do not fit to those before them, and are left out",
		},
	} {
		switch n.count {
		case 0:
		case 1:
			list = append(list, "1 "+n.one)
		default:
			list = append(list, fmt.Sprintf("%d %s", n.count, n.many))
		}
	}
	if c.Gaps > 0 {
		list = append(list, fmt.Sprintf("the history has gaps here: %d, of %v together", c.Gaps,
			c.GapTime.Round(time.Second)))
	}
	return list
}
