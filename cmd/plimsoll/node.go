package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type nodeCmd struct {
	List     nodeListCmd     `cmd:"" help:"List nodes with their allocated resources."`
	Show     nodeShowCmd     `cmd:"" help:"Show a node with all the facts that placement uses."`
	Capacity nodeCapacityCmd `cmd:"" help:"Show the room that is left on nodes."`
	Top      nodeTopCmd      `cmd:"" help:"Watch a node's use and waterlines, and the tasks that actions would choose next."`
	Drain    nodeDrainCmd    `cmd:"" help:"Take nodes out of use: they get no new tasks, and their tasks are placed elsewhere."`
	Cordon   nodeCordonCmd   `cmd:"" help:"Give nodes no new tasks. Running tasks go on."`
	Uncordon nodeUncordonCmd `cmd:"" help:"Let nodes take tasks again, after cordon or drain."`
	Remove   nodeRemoveCmd   `cmd:"" help:"Remove nodes whose machines are gone. A node that is alive or holds tasks is refused."`
}

// Help is the detail of the help text.
func (nodeCmd) Help() string {
	return example("plimsoll node list", "plimsoll node show n1", "plimsoll node drain n1")
}

type nodeListCmd struct {
	watchFlag
	nodeFormatFlag
}

// Help is the detail of the help text.
func (nodeListCmd) Help() string {
	return example("plimsoll node list", "plimsoll node list -o wide", "plimsoll node list --watch") + watchHelp
}

// Run lists nodes.
func (cmd *nodeListCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if cmd.Watch {
		if cmd.Output == "name" || cmd.Output == "wide" {
			return plimsoll.Invalid(
				"--output", "%s cannot be used beside --watch; give table, json or yaml", cmd.Output,
			)
		}
		return printChanges(ctx, a, formatFlag(cmd.nodeFormatFlag), c.WatchNodes(ctx, client.WatchPoint{}),
			watchedView[client.NodeInfo]{
				header: nodeHeader,
				usual:  []string{"node-1", "unschedulable", "", "1900m of 16", "640Mi of 64Gi"},
				row:    func(n *client.NodeInfo) []string { return nodeRow(n, a.now(), clock) },
				json:   func(n *client.NodeInfo) any { return viewNode(n) },
			})
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	if cmd.Output == "name" {
		for i := range nodes {
			a.out.printf("%s\n", nodes[i].Node.ID)
		}
		return nil
	}
	views := make([]nodeView, len(nodes))
	for i := range nodes {
		views[i] = viewNode(&nodes[i])
	}
	return formatFlag(cmd.nodeFormatFlag).print(a, views, func(o *output) {
		nodeTable(o, a.now(), nodes, cmd.Output == "wide")
	})
}

var nodeHeader = []string{
	"ID", "STATE", "TASKS", "CPU", "MEMORY", "RESERVE", "OVERPROVISION", "ADDRESS", "REGISTERED",
}

func nodeRow(info *client.NodeInfo, now time.Time, when instants) []string {
	n := &info.Node
	return []string{
		n.ID, takesTasks(info, now), count(info.Status.Tasks), used(info, plimsoll.CPU), used(info, plimsoll.Memory),
		shares(n.Facts.Reserve), ratios(n.Facts.Overprovision), n.Address, when(n.Registered),
	}
}

func nodeTable(o *output, now time.Time, nodes []client.NodeInfo, wide bool) {
	header := slices.Clone(nodeHeader)
	if wide {
		header = append(header, "OTHERS")
	}
	offered := slices.ContainsFunc(nodes, func(n client.NodeInfo) bool { return offers(&n) != "" })
	if offered {
		header = slices.Insert(header, 5, "OFFERED")
	}
	rows := make([][]string, len(nodes))
	for i := range nodes {
		rows[i] = nodeRow(&nodes[i], now, relative(now))
		if wide {
			rows[i] = append(rows[i], others(&nodes[i].Node))
		}
		if offered {
			rows[i] = slices.Insert(rows[i], 5, offers(&nodes[i]))
		}
	}
	columns(o, header, rows)
}

type nodeShowCmd struct {
	formatFlag
	ID string `arg:"" help:"Id of the node."`
}

// Help is the detail of the help text.
func (nodeShowCmd) Help() string {
	return example("plimsoll node show n1", "plimsoll node show n1 -o json")
}

// Run shows a node.
func (cmd *nodeShowCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(nodes, func(n client.NodeInfo) bool { return n.Node.ID == cmd.ID })
	if i < 0 {
		return plimsoll.Errorf(
			plimsoll.CodeNotFound, "there is no node %q; plimsoll node list shows those that there are", cmd.ID,
		)
	}
	return cmd.print(a, viewNode(&nodes[i]), func(o *output) { showNode(o, a.now(), &nodes[i]) })
}

func showNode(o *output, now time.Time, info *client.NodeInfo) {
	n := &info.Node
	f := &n.Facts
	pairs := [][2]string{
		{"id", n.ID}, {"state", takesTasks(info, now)}, {"tasks", countOf(info.Status.Tasks, f.MaxTasks)},
	}
	for _, name := range n.Capacity.Names() {
		pairs = append(pairs, [2]string{name, used(info, name)})
	}
	if n.OccupiedAt != 0 {
		pairs = append(pairs, [2]string{"others use", others(n) + ", told " + ago(now, n.OccupiedAt)})
	}
	var role []string
	if f.Headnode {
		role = append(role, "headnode, takes no tasks")
	}
	if f.Reservoir {
		role = append(role, "reservoir, for when nothing else is left")
	}
	pairs = append(
		pairs,
		[2]string{"reserve", shares(f.Reserve)}, [2]string{"overprovision", ratios(f.Overprovision)},
		[2]string{"role", strings.Join(role, "; ")},
		[2]string{"traits", traitsText(f.Traits)}, [2]string{"networks", networksText(f.Networks)},
		[2]string{"release", f.Release}, [2]string{"platform", f.Platform},
		[2]string{"attributes", attributesText(n.Attributes)},
		[2]string{"address", n.Address}, [2]string{"registered", ago(now, n.Registered)},
		[2]string{"last boot", secondsText(f.LastBoot)}, [2]string{"next reboot", secondsText(f.NextReboot)},
		[2]string{"metrics", strings.Join(f.Metrics, ", ")}, [2]string{"keeps away", keptAway(n, now)},
	)
	fields(o, pairs...)
}

// countOf returns a number and its bound: "12 of 256"; without a bound "12".
func countOf(n, most int32) string {
	if most == 0 {
		return count(n)
	}
	return fmt.Sprintf("%d of %d", n, most)
}

// keptAway lists the groups that are kept off a node for a while, because a task of theirs was
// evicted.
func keptAway(n *plimsoll.Node, now time.Time) string {
	var parts []string
	for _, e := range n.Evictions {
		if left := time.Unix(0, e.Until).Sub(now); left > 0 {
			parts = append(
				parts,
				fmt.Sprintf(
					"%s.%s for another %s (evicted %s)", e.Job, e.Group, span(left),
					plimsoll.TaskID(e.Job, e.Group, e.Index),
				),
			)
		}
	}
	return strings.Join(parts, ", ")
}

// shares formats parts of a capacity: "cpu 5%, memory 15%".
func shares(parts map[string]float64) string {
	return inOrder(
		parts, func(name string, p float64) string { return name + " " + strconv.FormatFloat(p*100, 'g', 4, 64) + "%" },
	)
}

// ratios formats the factors of over-provisioning: "cpu x4".
func ratios(of map[string]float64) string {
	return inOrder(of, func(name string, r float64) string { return name + " x" + strconv.FormatFloat(r, 'g', 4, 64) })
}

func traitsText(traits map[string]plimsoll.Trait) string {
	return inOrder(traits, func(name string, t plimsoll.Trait) string {
		switch {
		case t.Words != nil:
			return name + "=" + strings.Join(t.Words, "|")
		case !t.Flag:
			return name + "=false"
		}
		return name
	})
}

func networksText(networks map[string]bool) string {
	return inOrder(networks, func(name string, up bool) string {
		if !up {
			return name + " (down)"
		}
		return name
	})
}

func attributesText(attributes map[string]string) string {
	return inOrder(attributes, func(name, value string) string { return name + "=" + value })
}

// inOrder joins the entries of m in the order of their names.
func inOrder[V any](m map[string]V, entry func(name string, v V) string) string {
	texts := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		texts = append(texts, entry(name, m[name]))
	}
	return strings.Join(texts, ", ")
}

func secondsText(seconds int64) string {
	if s := stampSeconds(seconds); s != nil {
		return *s
	}
	return ""
}

func nodeState(n *plimsoll.Node) string {
	state := "ready"
	if !n.Ready {
		state = "not ready"
	}
	if n.Mode != plimsoll.NodeActive {
		state += ", " + n.Mode.String()
	}
	if why := noNewTasks(n); why != "" {
		state += ", no new tasks: " + why
	}
	return state
}

// noNewTasks returns why the agent of a node has stopped new tasks; empty: it has not.
func noNewTasks(n *plimsoll.Node) string {
	if n.Gate.Closed && n.Gate.Reason == "" {
		return "its agent says so"
	}
	return n.Gate.Reason
}

// offers lists the extended resources of a node, and how much of them is lent.
func offers(n *client.NodeInfo) string {
	var parts []string
	for _, name := range []string{plimsoll.ExtCPU, plimsoll.ExtMemory} {
		if n.Node.Capacity[name] > 0 || n.Status.Allocated[name] > 0 {
			parts = append(parts, name+" "+used(n, name))
		}
	}
	return strings.Join(parts, ", ")
}

// others returns the use of a node outside of its tasks, as it was told; empty: it was not told.
func others(n *plimsoll.Node) string {
	if n.OccupiedAt == 0 {
		return ""
	}
	return "cpu " + humanAmount(plimsoll.CPU, n.Occupied.CPU) + ", memory " +
		humanAmount(plimsoll.Memory, n.Occupied.Memory)
}

// takesTasks returns the state of a node. If the node is left out because it could not start tasks,
// it adds for how long.
func takesTasks(info *client.NodeInfo, now time.Time) string {
	state := nodeState(&info.Node)
	if left := time.Unix(0, info.Status.SickUntil).Sub(now); left > 0 {
		state += ", sick for another " + span(left)
	}
	return state
}

// used returns the allocated and the whole amount of a resource.
func used(n *client.NodeInfo, resource string) string {
	allocated, whole := n.Status.Allocated[resource], n.Node.Capacity[resource]
	return humanAmount(resource, allocated) + " of " + humanAmount(resource, whole)
}

// humanAmount formats an amount in a few digits, for people.
func humanAmount(resource string, amount int64) string {
	if resource != plimsoll.Memory && resource != plimsoll.Disk && resource != plimsoll.ExtMemory || amount < 1<<10 {
		return plimsoll.FormatQuantity(resource, amount)
	}
	value, unit := float64(amount), -1
	for value >= 1024 && unit < 5 {
		value, unit = value/1024, unit+1
	}
	if value >= 10 || value == float64(int64(value)) {
		return fmt.Sprintf("%.0f%ci", value, "KMGTPE"[unit])
	}
	return fmt.Sprintf("%.1f%ci", value, "KMGTPE"[unit])
}

type nodeDrainCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of the nodes."`
}

// Help is the detail of the help text.
func (nodeDrainCmd) Help() string { return example("plimsoll node drain n1 n2") }

// Run drains nodes.
func (cmd *nodeDrainCmd) Run(ctx context.Context, a *app) error {
	return a.setNodeMode(ctx, cmd.IDs, plimsoll.NodeDraining)
}

type nodeCordonCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of the nodes."`
}

// Help is the detail of the help text.
func (nodeCordonCmd) Help() string { return example("plimsoll node cordon n1") }

// Run cordons nodes.
func (cmd *nodeCordonCmd) Run(ctx context.Context, a *app) error {
	return a.setNodeMode(ctx, cmd.IDs, plimsoll.NodeCordoned)
}

type nodeUncordonCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of the nodes."`
}

// Help is the detail of the help text.
func (nodeUncordonCmd) Help() string { return example("plimsoll node uncordon n1") }

// Run lets nodes take tasks again.
func (cmd *nodeUncordonCmd) Run(ctx context.Context, a *app) error {
	return a.setNodeMode(ctx, cmd.IDs, plimsoll.NodeActive)
}

func (a *app) setNodeMode(ctx context.Context, ids []string, mode plimsoll.NodeMode) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return each(ids, func(id string) error {
		n, err := c.SetNodeMode(ctx, id, mode)
		if err != nil {
			return err
		}
		a.out.printf("%s: %s\n", id, nodeState(&n))
		return nil
	})
}

type nodeRemoveCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of the nodes."`
}

// Help is the detail of the help text.
func (nodeRemoveCmd) Help() string {
	return example("plimsoll node drain n1", "plimsoll node remove n1")
}

// Run removes nodes.
func (cmd *nodeRemoveCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return each(cmd.IDs, func(id string) error {
		if err := c.RemoveNode(ctx, id); err != nil {
			return err
		}
		a.out.printf("%s: removed\n", id)
		return nil
	})
}
