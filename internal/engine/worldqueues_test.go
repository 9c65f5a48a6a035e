package engine_test

import (
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
)

// ask draws what a job states for the placement rules and access lists.
func (w *world) ask(spec *plimsoll.JobSpec) {
	switch w.rng.IntN(6) {
	case 0:
		spec.Queue = ""
	case 1:
		spec.Queue = w.pick([]string{"small", "Batch", "users.q", "team"})
	case 2:
		spec.Queue = w.pick([]string{"root.users.q", "root.users.deep.q", "root.dyn.a.b", "root.users"})
	}
	if w.rng.IntN(2) == 0 {
		spec.Tags["team"] = w.pick([]string{"red", "blue", "x.y", "no name"})
	}
	if w.rng.IntN(3) == 0 {
		spec.OwnerGroups = []string{w.pick([]string{"dev", "ops"})}
	}
}

// rules draws placement rules and access lists for a tree, or none.
func (w *world) rules(c *plimsoll.QueueConfig) {
	if w.rng.IntN(2) == 0 {
		return
	}
	users := plimsoll.QueueConfig{Name: "users", Parent: true}
	if w.rng.IntN(2) == 0 {
		users.Template = &plimsoll.QueueTemplate{
			Max: plimsoll.Resources{"cpu": int64(1000 * (1 + w.rng.IntN(4)))}, MaxJobs: w.rng.Int32N(3),
		}
		if w.rng.IntN(3) == 0 {
			users.Template.Guaranteed = plimsoll.Resources{w.odd(): 1}
		}
	}
	if w.rng.IntN(3) == 0 {
		users.MaxJobs = 3 + w.rng.Int32N(9)
	} else if w.rng.IntN(4) == 0 { // they may have been dynamic
		users.Queues = []plimsoll.QueueConfig{{Name: w.pick([]string{"alice", "bob", "q"})}}
	}
	c.Queues = append(c.Queues, users)
	fixed := &plimsoll.PlacementRule{Name: "fixed", Value: "root.users"}
	create := w.rng.IntN(4) > 0
	all := []plimsoll.PlacementRule{
		{Name: "provided", Create: create},
		{Name: "user", Create: create, Parent: fixed},
		{Name: "tag", Value: "team", Create: create},
		{
			Name: "tag", Value: "Team", Create: true, Parent: fixed,
			Filter: &plimsoll.RuleFilter{Groups: []string{"dev"}},
		},
		{Name: "user", Create: true, Filter: &plimsoll.RuleFilter{Deny: true, Users: []string{"^a.*"}}},
		{Name: "fixed", Value: "small"},
	}
	w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	c.Partition = &plimsoll.PartitionConfig{Rules: all[:w.rng.IntN(len(all))]}
	if w.rng.IntN(8) == 0 {
		c.SubmitAccess = &plimsoll.AccessList{Users: []string{"alice", "carol"}, Groups: []string{"ops"}}
		if w.rng.IntN(2) == 0 {
			c.Queues[0].SubmitAccess = &plimsoll.AccessList{Everybody: true}
		}
	}
}

// checkPlaces checks that each job is in a leaf, and that each dynamic queue has a job.
func (w *world) checkPlaces() {
	s := w.engine.State()
	for _, id := range w.jobs {
		if j := s.Job(id); j != nil && !j.State.Ended() {
			q := s.Queue(j.Spec.Queue)
			if q == nil || !q.Leaf || q != j.Queue || j.Spec.Queue != strings.ToLower(j.Spec.Queue) {
				w.t.Fatalf("job %s is in %q, which is no leaf of the tree", id, j.Spec.Queue)
			}
		}
	}
	s.Tree().Root.Walk(func(q *queue.Queue) {
		if q.Dynamic {
			w.dynamic++
		}
	})
}
