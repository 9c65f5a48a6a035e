package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// rivalry is a class for which others of its leaf are held back, and the family of one of them.
type rivalry struct {
	held  *wait
	other *family
}

// rivals returns what tells the tree whether groups compete for nodes.
func (c *Scheduler) rivals(s *state.State) queue.Rivals {
	return func(held, other *queue.Lane) bool {
		return c.waits.rivals(s, s.GroupOf(held).Class(), s.GroupOf(other).Class())
	}
}

// rivals reports whether a class could use a node, or a resource of a node, that the held one could
// use. It costs O(nodes) for the first class of a family, until the nodes change.
func (ws *waits) rivals(s *state.State, held, other *state.Class) bool {
	if held.Refused || held.Lacks != "" || other.Refused || other.Lacks != "" {
		return false
	}
	h, o := ws.of(held), ws.of(other)
	if ws.comparesRoom && h.class.Prepared.Relations() == 0 && !overlap(held.Amounts(), other.Amounts()) {
		return false
	}
	key := rivalry{h, o.family}
	meet, known := ws.meet[key]
	if !known {
		meet = meeting(s.Fleet, ws.placer, held.Prepared, other.Prepared, s.Seconds())
		if ws.meet == nil {
			ws.meet = map[rivalry]bool{}
		}
		ws.meet[key] = meet
	}
	return meet
}

// overlap reports whether both amounts have some of one resource.
func overlap(a, b *placement.Amounts) bool {
	for i := range a {
		if a[i] > 0 && b[i] > 0 {
			return true
		}
	}
	return false
}

// meeting reports whether a node that could take the held request, if it were empty, is also one
// for another request.
func meeting(fleet *placement.Fleet, placer *placement.Placer, held, other *placement.Prepared, now int64) bool {
	for slot := range int32(fleet.Len()) {
		if fleet.ID(slot) == "" {
			continue
		}
		if eligible, fits := placer.Suits(held, slot, now); !eligible || !fits {
			continue
		}
		if eligible, _ := placer.Suits(other, slot, now); eligible {
			return true
		}
	}
	return false
}

// nodesChanged forgets which requests could use the same nodes.
func (ws *waits) nodesChanged(s *state.State) {
	ws.meet = nil
	s.Tree().NodesChanged()
}

// holder is a group that holds back those behind it in its leaf.
type holder struct {
	queue.Hold
	job, group string
}

// holders returns the groups that hold others back, by the paths of their leaves. It costs
// O(queues).
func holders(s *state.State, t *queue.Tree) map[string][]holder {
	list := map[string][]holder{}
	t.Root.Walk(func(q *queue.Queue) {
		for _, h := range q.Holds() {
			g := s.GroupOf(&queue.Lane{ID: h.Lane})
			list[q.Path] = append(list[q.Path], holder{h, g.Job.Spec.ID, g.Spec.Name})
		}
	})
	return list
}

// whyHeld says which job holds others back in a leaf, and until when.
func whyHeld(job, leaf string, until int64) string {
	return fmt.Sprintf("job %s goes first in %s and does not fit; it holds back those behind it until %s at most",
		job, leaf, time.Unix(0, until).UTC().Format(time.RFC3339))
}

// unblockOrder says which job holds the tasks of a cause back.
func (v *View) unblockOrder(c *WaitingCause, spec *plimsoll.JobSpec, g *plimsoll.GroupSpec) error {
	h, err := v.holderOf(c.Cause.Queue, spec, g)
	if err != nil {
		return err
	}
	if h == nil { // it has ended since
		c.Unblock = append(c.Unblock, "wait: the next turn of the scheduler examines them again")
		return nil
	}
	c.Why = whyHeld(h.job, c.Cause.Queue, h.Until)
	c.Unblock = append(c.Unblock,
		fmt.Sprintf("room for job %s; plimsoll explain %s says what it waits for", h.job, h.job),
		fmt.Sprintf("wait until then, or give %s a shorter order.hold", c.Cause.Queue))
	return nil
}

// holderOf returns the group that holds a group back in its leaf, or nil. Only if several groups
// hold others back does it look at the nodes.
func (v *View) holderOf(leaf string, spec *plimsoll.JobSpec, g *plimsoll.GroupSpec) (*holder, error) {
	list := slices.DeleteFunc(slices.Clone(v.holders[leaf]), func(h holder) bool { return h.job == spec.ID })
	for i := range list {
		if len(list) == 1 {
			return &list[i], nil
		}
		competes, err := v.competes(&list[i], spec, g)
		if err != nil {
			return nil, err
		}
		if competes {
			return &list[i], nil
		}
	}
	return nil, nil
}

// competes reports whether a group and a holder wait for the same thing.
func (v *View) competes(h *holder, spec *plimsoll.JobSpec, g *plimsoll.GroupSpec) (bool, error) {
	other := v.names.Ask(spec, g, 1).Request
	if !h.ForNodes {
		amounts, set := v.fleet.Names.Amounts(other.Resources)
		for i := range amounts {
			if set&h.Limited&(1<<i) != 0 && amounts[i] > 0 {
				return h.User == "" || h.User == spec.Owner, nil
			}
		}
		return false, nil
	}
	job := v.records.Job(h.job)
	if job == nil {
		return false, nil
	}
	k := slices.IndexFunc(job.Groups, func(o plimsoll.GroupSpec) bool { return o.Name == h.group })
	if k < 0 {
		return false, nil
	}
	held := v.names.Ask(job, &job.Groups[k], 1).Request
	p, err := v.chain.Prepare(v.fleet, &held)
	if err != nil {
		return false, fmt.Errorf("prepare the request of %s.%s: %w", h.job, h.group, err)
	}
	defer p.Release()
	o, err := v.chain.Prepare(v.fleet, &other)
	if err != nil {
		return false, fmt.Errorf("prepare the request of %s.%s: %w", spec.ID, g.Name, err)
	}
	defer o.Release()
	return meeting(v.fleet, v.placer(), p, o, v.now), nil
}
