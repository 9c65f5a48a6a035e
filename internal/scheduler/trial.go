package scheduler

import (
	"errors"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

const (
	// MaxTrial is the largest number of tasks of a group that one trial places.
	MaxTrial = 10_000
	// maxTrialLooks bounds the nodes that one trial evaluates, so that it takes some 50 ms.
	maxTrialLooks = 500_000
)

// Trial is the answer to where the tasks of a job would be placed now.
type Trial struct {
	Groups []TriedGroup
	// QueueReason is why the job's queue would hold back tasks that find a node; empty if it would
	// not.
	QueueReason string
}

// TriedGroup is the result for the tasks of one group.
type TriedGroup struct {
	Name  string
	Asked int
	placement.Tried
	Code    plimsoll.WaitCode // why the next task finds no node, if Why is set
	Summary string
}

// Try finds where tasks of a job would be placed now, group by group. Each placement is deducted
// before the next. It tries count tasks of each group, or the specified number if count is 0. An
// empty group means all groups. Neither allocated amounts nor the order of drawing are changed.
func (v *View) Try(spec *plimsoll.JobSpec, group string, count int) (*Trial, error) {
	if err := v.checkSize(spec); err != nil {
		return nil, err
	}
	asks, err := trialAsks(v.names, spec, group, count)
	if err != nil {
		return nil, err
	}
	wanted := make([]int, len(asks))
	for i := range asks {
		wanted[i] = asks[i].Count
		asks[i].Count = min(wanted[i], MaxTrial)
		if v.names.Lacks(spec.Groups[i].Resources) != "" {
			asks[i].Count = 0
		}
	}
	tried, err := v.placer().Try(v.chain, asks, v.now, maxTrialLooks)
	if err != nil {
		return nil, ofGroups(err)
	}
	t := &Trial{}
	for i := range tried {
		g := TriedGroup{Name: spec.Groups[i].Name, Asked: wanted[i], Tried: tried[i]}
		if group != "" && g.Name != group {
			continue
		}
		if none := whyNone(v.names, spec.Groups[i].Resources); none != "" {
			g.Why, g.Code, g.Summary = &placement.Explanation{Servers: v.fleet.Servers()}, plimsoll.WaitNoResource, none
			t.Groups = append(t.Groups, g)
			continue
		}
		g.Stopped = g.Stopped || g.Why == nil && asks[i].Count < wanted[i]
		if g.Why != nil {
			g.Code, g.Summary = g.Why.Refusal(spec.Groups[i].Resources)
		}
		t.Groups = append(t.Groups, g)
	}
	t.QueueReason = v.queueReason(spec, tried)
	return t, nil
}

// trialAsks returns the requests to try, one for each group. If group is not empty, all other
// groups get a count of 0.
func trialAsks(known state.KnownNames, spec *plimsoll.JobSpec, group string, count int) ([]placement.Ask, error) {
	if count < 0 || count > MaxTrial {
		return nil, plimsoll.Invalid(
			"count", "is %d; give a number from 1 to %d, or leave it out to try as many as the job file says", count,
			MaxTrial,
		)
	}
	names := make([]string, len(spec.Groups))
	asks := make([]placement.Ask, len(spec.Groups))
	for i := range spec.Groups {
		g := &spec.Groups[i]
		names[i] = g.Name
		n := int(g.Count)
		if count > 0 {
			n = count
		}
		if group != "" && g.Name != group {
			n = 0
		}
		asks[i] = known.Ask(spec, g, n)
	}
	if group != "" && !slices.Contains(names, group) {
		return nil, plimsoll.Invalid("group", "the job has no group %q; it has %s", group, strings.Join(names, ", "))
	}
	return asks, nil
}

// ofGroups renames the field of an error as in the job file.
func ofGroups(err error) error {
	var e *plimsoll.Error
	if !errors.As(err, &e) {
		return err
	}
	named := *e
	if at, ok := strings.CutPrefix(e.Field, "asks"); ok {
		named.Field = "groups" + at
	}
	return &named
}

// queueReason returns why the job's queue would hold back tasks that find a node.
func (v *View) queueReason(spec *plimsoll.JobSpec, tried []placement.Tried) string {
	leaf, err := state.Leaf(v.tree, v.rules, spec)
	if err != nil {
		return "the job would be refused: " + err.Error()
	}
	var total placement.Amounts
	for i := range tried {
		for _, name := range spec.Groups[i].Resources.Names() {
			if k := v.fleet.Names.Index(name); k >= 0 {
				total[k] = addTimes(total[k], spec.Groups[i].Resources[name], int64(len(tried[i].Placed)))
			}
		}
	}
	return v.whyShort(leaf, queue.Owner{User: spec.Owner, Groups: spec.OwnerGroups}, &total)
}

// addTimes returns sum + n*times, or the largest number on overflow.
func addTimes(sum, n, times int64) int64 {
	const most = 1 << 62
	if n > 0 && times > (most-sum)/n {
		return most
	}
	return sum + n*times
}

// Capacities returns the room left on the named nodes, in their order. Without names it returns
// that of all nodes, in the order of their ids.
func (v *View) Capacities(nodes []string) ([]placement.Capacity, error) {
	var slots []int32
	for _, id := range nodes {
		slot := v.fleet.Slot(id)
		if slot < 0 {
			return nil, noNode(id)
		}
		slots = append(slots, slot)
	}
	if len(nodes) == 0 {
		for slot := range int32(v.fleet.Len()) {
			if v.fleet.ID(slot) != "" {
				slots = append(slots, slot)
			}
		}
		slices.SortFunc(slots, func(a, b int32) int { return strings.Compare(v.fleet.ID(a), v.fleet.ID(b)) })
	}
	chain, err := placement.CapacityChain(placement.Stages())
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the fault
	}
	return v.placer().Capacities(chain, slots, v.now) //nolint:wrapcheck // it names the fault
}

func noNode(id string) error {
	return plimsoll.Errorf(
		plimsoll.CodeNotFound, "there is no node %q; plimsoll node list shows those that there are", id,
	)
}
