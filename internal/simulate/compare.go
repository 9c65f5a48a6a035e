package simulate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// compare notes what differs from an expectation.
func (p *player) compare(e *Expectation) error {
	for _, id := range sortedKeys(e.Jobs) {
		if !p.jobs[id] {
			return noSuchJob("expect.jobs", id)
		}
		want := e.Jobs[id]
		p.compareJob(id, &want)
	}
	if e.Queues != nil {
		p.compareText("queues", describe(e.Queues), describe(p.queues()))
	}
	if e.Together != nil {
		running := int32(0)
		for _, id := range e.Together.Jobs {
			if !p.jobs[id] {
				return noSuchJob("expect.together", id)
			}
			running += p.counts(id).running
		}
		p.compareNumber(strings.Join(e.Together.Jobs, " and ")+": running", e.Together.Running, running)
	}
	for _, id := range sortedKeys(e.Nodes) {
		want, err := resources("nodes."+id, e.Nodes[id])
		if err != nil {
			return err
		}
		p.compareText("node "+id, want.String(), p.allocated(id).String())
	}
	if e.NodesSorted != nil {
		var got []int64
		for _, id := range p.order {
			got = append(got, p.allocated(id)[plimsoll.CPU])
		}
		slices.SortFunc(got, func(a, b int64) int { return int(b - a) })
		p.compareText("cpu of nodes", fmt.Sprint(e.NodesSorted), fmt.Sprint(got))
	}
	return nil
}

func noSuchJob(field, id string) error {
	return plimsoll.Invalid(field, "names %q, and no step submits it; correct one of them", plimsoll.Shorten(id))
}

func (p *player) compareText(what, want, got string) {
	if want != got {
		p.differ(what, want, got)
	}
}

func (p *player) compareNumber(what string, want, got int32) {
	p.compareText(what, fmt.Sprint(want), fmt.Sprint(got))
}

func (p *player) compareJob(id string, want *JobExpectation) {
	if err := p.refused[id]; err != nil {
		if !want.Rejected {
			p.differ(id, "taken", "refused: "+err.Error())
		}
		return
	}
	got := p.counts(id)
	if want.Rejected {
		if got.state != plimsoll.JobRejected.String() {
			p.differ(id, "rejected", fmt.Sprintf("%s in %s", got.state, got.queue))
		}
		return
	}
	if want.Running != nil {
		p.compareNumber(id+": running", *want.Running, got.running)
	}
	if want.Gone {
		if j := p.state().Job(id); j != nil && !j.Killed {
			p.differ(id, "gone", got.state)
		}
		return
	}
	if want.Waiting != nil {
		p.compareNumber(id+": waiting", *want.Waiting, got.waiting)
	}
	for _, group := range sortedKeys(want.ByGroup) {
		p.compareNumber(id+"."+group+": running", want.ByGroup[group], got.byGroup[group])
	}
	if want.Queue != "" {
		p.compareText(id+": queue", want.Queue, got.queue)
	}
	if want.State != "" {
		p.compareText(id+": state", want.State, got.state)
	}
}

// jobCounts has the facts of a job that expectations are compared with.
type jobCounts struct {
	running, waiting int32
	byGroup          map[string]int32
	state, queue     string
}

func (p *player) counts(id string) jobCounts {
	c := jobCounts{byGroup: map[string]int32{}}
	j := p.state().Job(id)
	if j == nil {
		c.state = "gone"
		return c
	}
	if c.state = j.State.String(); j.State == plimsoll.JobStarting {
		c.state = plimsoll.JobRunning.String() // YuniKorn has one state for both
	}
	if j.Queue != nil {
		c.queue = j.Queue.Path
	}
	for _, g := range p.groups[id] {
		n := countsOf(j, g.spec.Name)
		c.running += n.Running + n.Starting + n.Bound
		c.byGroup[g.name] += n.Running + n.Starting + n.Bound
		c.waiting += n.Pending
	}
	return c
}

func countsOf(j *state.Job, group string) plimsoll.TaskCounts {
	for i := range j.Groups {
		if j.Groups[i].Spec.Name == group {
			return j.Groups[i].Counts
		}
	}
	return plimsoll.TaskCounts{}
}

func (p *player) allocated(id string) plimsoll.Resources {
	n := p.state().Node(id)
	if n == nil {
		return nil
	}
	r := p.state().NodeStatus(n).Allocated
	for _, name := range r.Names() {
		if r[name] == 0 {
			delete(r, name)
		}
	}
	return r
}

// queues returns the kind of each queue.
func (p *player) queues() map[string]string {
	kinds := map[string]string{}
	var walk func(q *plimsoll.QueueConfig, path string)
	walk = func(q *plimsoll.QueueConfig, path string) {
		kinds[path] = "static"
		if q.Dynamic {
			kinds[path] = "dynamic"
		}
		if q.Draining {
			kinds[path] = "draining"
		}
		for i := range q.Queues {
			walk(&q.Queues[i], path+"."+q.Queues[i].Name)
		}
	}
	root := p.state().QueueConfig()
	walk(&root, plimsoll.RootQueue)
	return kinds
}

func describe(kinds map[string]string) string {
	var b strings.Builder
	for _, path := range sortedKeys(kinds) {
		fmt.Fprintf(&b, "%s: %s, ", path, kinds[path])
	}
	return strings.TrimSuffix(b.String(), ", ")
}
