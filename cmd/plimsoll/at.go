package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type atCmd struct {
	Time   string `arg:"" help:"The instant, such as 2026-11-20T10:00, or a time ago, such as 2h or 7d."`
	Jobs   bool   `help:"List the jobs that were there."`
	Nodes  bool   `help:"List the nodes."`
	Queues bool   `help:"List the queues."`
	Tasks  bool   `help:"List the tasks that waited or ran."`
	Limit  int    `help:"Most objects to list; 0 lists all." default:"50" placeholder:"N"`
	formatFlag
}

// Help is the detail of the help text.
func (atCmd) Help() string {
	return "Without a flag, the nodes, the queues and the number of jobs are shown.\n\n" + historyHelp + "\n\n" +
		example("plimsoll at 2026-11-20T10:00", "plimsoll at 2h --jobs", "plimsoll at 7d --nodes -o json")
}

// parts returns the parts that are wanted.
func (cmd *atCmd) parts() []client.ClusterPart {
	var parts []client.ClusterPart
	for _, p := range []struct {
		wanted bool
		part   client.ClusterPart
	}{
		{cmd.Jobs, client.PartJobs},
		{cmd.Nodes, client.PartNodes},
		{cmd.Queues, client.PartQueues},
		{cmd.Tasks, client.PartTasks},
	} {
		if p.wanted {
			parts = append(parts, p.part)
		}
	}
	if parts == nil {
		return []client.ClusterPart{client.PartNodes, client.PartQueues}
	}
	return parts
}

// Run shows what the cluster looked like.
func (cmd *atCmd) Run(ctx context.Context, a *app) error {
	if cmd.Limit < 0 {
		return plimsoll.Invalid("--limit", "is negative; give a number above zero, or 0 for all")
	}
	at, err := instant("time", cmd.Time, a.now())
	if err != nil {
		return err
	}
	if at.After(a.now()) {
		return plimsoll.Invalid("time", "%s is in the future", cmd.Time)
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	var whole client.ClusterAt
	cut := false
	for _, part := range cmd.parts() {
		page, more, err := cmd.read(ctx, c, client.ClusterQuestion{At: at.UnixNano(), Part: part})
		if err != nil {
			return err
		}
		cut = cut || more
		page.Jobs, page.NodeList = append(page.Jobs, whole.Jobs...), append(page.NodeList, whole.NodeList...)
		page.Queues, page.Tasks = append(page.Queues, whole.Queues...), append(page.Tasks, whole.Tasks...)
		whole = page
	}
	err = cmd.print(a, viewClusterAt(&whole), func(o *output) { clusterTables(o, &whole) })
	if cut {
		a.notes.printf("There are more; --limit 0 lists all.\n")
	}
	return err
}

// read reads one part, page by page up to the limit.
func (cmd *atCmd) read(
	ctx context.Context, c *client.Client, q client.ClusterQuestion,
) (all client.ClusterAt, more bool, err error) {
	for next := ""; ; {
		if cmd.Limit > 0 {
			q.PageSize = int32(min(cmd.Limit-all.Count(), 10_000))
		}
		page, err := c.ClusterAt(ctx, q, next)
		if err != nil {
			return all, false, err
		}
		page.Jobs, page.NodeList = append(all.Jobs, page.Jobs...), append(all.NodeList, page.NodeList...)
		page.Queues, page.Tasks = append(all.Queues, page.Queues...), append(all.Tasks, page.Tasks...)
		all, next = page, page.Next
		switch {
		case next == "":
			return all, false, nil
		case cmd.Limit > 0 && all.Count() >= cmd.Limit:
			return all, true, nil
		}
	}
}

// clusterTables prints a cluster.
func clusterTables(o *output, c *client.ClusterAt) {
	jobs := []string{}
	for _, state := range jobStatesOf(c) {
		jobs = append(jobs, fmt.Sprintf("%d %s", c.JobsBy[state], state))
	}
	fields(o,
		[2]string{"at", eventTime(c.At)},
		[2]string{"jobs", strings.Join(jobs, ", ")},
		[2]string{"tasks", fmt.Sprintf("%d on nodes, %d waiting", c.Running, c.Waiting)},
		[2]string{"nodes", fmt.Sprintf("%d of %d took tasks", c.NodesReady, c.Nodes)},
		[2]string{"allocated", listed(c.Allocated)},
		[2]string{"capacity", listed(c.Capacity)},
	)
	section := func(header []string, rows [][]string) {
		if len(rows) > 0 {
			o.printf("\n")
			columns(o, header, rows)
		}
	}
	var rows [][]string
	for i := range c.NodeList {
		n := &c.NodeList[i]
		state := "ready"
		switch {
		case !n.Ready:
			state = "not ready"
		case !n.Schedulable:
			state = "cordoned"
		}
		rows = append(rows, []string{n.ID, state, fmt.Sprint(n.Tasks), listed(n.Allocated), listed(n.Capacity)})
	}
	section([]string{"NODE", "STATE", "TASKS", "ALLOCATED", "CAPACITY"}, rows)
	rows = nil
	for i := range c.Queues {
		q := &c.Queues[i]
		rows = append(rows, []string{
			q.Path, fmt.Sprint(q.Jobs), listed(q.Allocated), listed(q.Guaranteed), listed(q.Max),
		})
	}
	section([]string{"QUEUE", "JOBS", "ALLOCATED", "GUARANTEED", "MAX"}, rows)
	rows = nil
	for i := range c.Jobs {
		j := &c.Jobs[i]
		rows = append(rows, []string{
			j.ID, j.State.String(), j.Owner, j.Queue, fmt.Sprint(j.Running), fmt.Sprint(j.Waiting), listed(j.Allocated),
		})
	}
	section([]string{"JOB", "STATE", "OWNER", "QUEUE", "RUNNING", "WAITING", "ALLOCATED"}, rows)
	rows = nil
	for i := range c.Tasks {
		rows = append(rows, []string{c.Tasks[i].ID, c.Tasks[i].Node, listed(c.Tasks[i].Resources)})
	}
	section([]string{"TASK", "NODE", "RESOURCES"}, rows)
}

// jobStatesOf returns the states of jobs that there were, in their order.
func jobStatesOf(c *client.ClusterAt) []plimsoll.JobState {
	var states []plimsoll.JobState
	for state := range c.JobsBy {
		states = append(states, state)
	}
	slices.Sort(states)
	return states
}

type clusterAtView struct {
	At         *string            `json:"at"`
	Newest     *string            `json:"newest"` // the last event before
	JobsBy     map[string]int64   `json:"jobsByState"`
	Waiting    int64              `json:"waiting"`
	Running    int64              `json:"running"`
	NodesTotal int64              `json:"nodesTotal"`
	NodesReady int64              `json:"nodesReady"`
	Capacity   plimsoll.Resources `json:"capacity"`
	Allocated  plimsoll.Resources `json:"allocated"`
	Jobs       []jobAtView        `json:"jobs"`
	Nodes      []nodeAtView       `json:"nodes"`
	Queues     []queueAtView      `json:"queues"`
	Tasks      []taskAtView       `json:"tasks"`
}

type jobAtView struct {
	ID        string             `json:"id"`
	Owner     *string            `json:"owner"` // null: it is not known
	Queue     string             `json:"queue"`
	State     string             `json:"state"`
	Submitted *string            `json:"submitted"`
	Waiting   int64              `json:"waiting"`
	Running   int64              `json:"running"`
	Allocated plimsoll.Resources `json:"allocated"`
}

type nodeAtView struct {
	ID          string             `json:"id"`
	Ready       bool               `json:"ready"`
	Schedulable bool               `json:"schedulable"`
	Capacity    plimsoll.Resources `json:"capacity"`
	Allocated   plimsoll.Resources `json:"allocated"`
	Occupied    plimsoll.Resources `json:"occupied"`
	Tasks       int64              `json:"tasks"`
}

type queueAtView struct {
	Path       string             `json:"path"`
	Leaf       bool               `json:"leaf"`
	Draining   bool               `json:"draining"`
	Max        plimsoll.Resources `json:"max"`
	Guaranteed plimsoll.Resources `json:"guaranteed"`
	Allocated  plimsoll.Resources `json:"allocated"`
	Jobs       int64              `json:"jobs"`
}

type taskAtView struct {
	ID        string             `json:"id"`
	Node      *string            `json:"node"` // null: it waited
	Resources plimsoll.Resources `json:"resources"`
}

func viewClusterAt(c *client.ClusterAt) clusterAtView {
	v := clusterAtView{
		At: stamp(c.At), Newest: stamp(c.Newest), JobsBy: map[string]int64{}, Waiting: c.Waiting, Running: c.Running,
		NodesTotal: c.Nodes, NodesReady: c.NodesReady, Capacity: amounts(c.Capacity), Allocated: amounts(c.Allocated),
		Jobs: []jobAtView{}, Nodes: []nodeAtView{}, Queues: []queueAtView{}, Tasks: []taskAtView{},
	}
	for state, jobs := range c.JobsBy {
		v.JobsBy[state.String()] = jobs
	}
	for i := range c.Jobs {
		j := &c.Jobs[i]
		v.Jobs = append(v.Jobs, jobAtView{
			j.ID, nullIfEmpty(j.Owner), j.Queue, j.State.String(), stamp(j.Submitted), j.Waiting, j.Running,
			amounts(j.Allocated),
		})
	}
	for i := range c.NodeList {
		n := &c.NodeList[i]
		v.Nodes = append(v.Nodes, nodeAtView{
			n.ID, n.Ready, n.Schedulable, amounts(n.Capacity), amounts(n.Allocated), amounts(n.Occupied), n.Tasks,
		})
	}
	for i := range c.Queues {
		q := &c.Queues[i]
		v.Queues = append(v.Queues, queueAtView{
			q.Path, q.Leaf, q.Draining, amounts(q.Max), amounts(q.Guaranteed), amounts(q.Allocated), q.Jobs,
		})
	}
	for i := range c.Tasks {
		t := &c.Tasks[i]
		v.Tasks = append(v.Tasks, taskAtView{t.ID, nullIfEmpty(t.Node), amounts(t.Resources)})
	}
	return v
}
