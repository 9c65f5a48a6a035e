package engine_test

import (
	"maps"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
)

// foldedLimits are the limits of users and groups of users, with the jobs and the use for which
// they hold, made of events alone.
type foldedLimits struct {
	limits map[foldedWho]foldedLimit        // by queue
	use    map[foldedWho]plimsoll.Resources // by leaf queue
	links  map[string]string                // group by job
}

// foldedWho is a user or group at a queue.
type foldedWho struct {
	queue string
	group bool
	name  string
}

type foldedLimit struct {
	max     plimsoll.Resources
	maxJobs int32
}

func newFoldedLimits() foldedLimits {
	return foldedLimits{map[foldedWho]foldedLimit{}, map[foldedWho]plimsoll.Resources{}, map[string]string{}}
}

func (f *foldedLimits) dropQueue(path string) {
	maps.DeleteFunc(f.limits, func(who foldedWho, _ foldedLimit) bool { return who.queue == path })
}

func (f *fold) userGroup(e *plimsoll.Event) (right bool) {
	who := foldedWho{e.Reference, e.Detail == plimsoll.GroupLimit || e.Detail == plimsoll.GroupResource, e.Object}
	switch e.Detail {
	case plimsoll.UserLimit, plimsoll.GroupLimit:
		limit := foldedLimit{max: e.Resources}
		who.queue, limit.maxJobs = e.Limit()
		was, had := f.limits.limits[who]
		if e.Change == plimsoll.ChangeRemove {
			delete(f.limits.limits, who)
			return had
		}
		f.limits.limits[who] = limit
		return f.queues[who.queue] != nil && (!had || was.maxJobs != limit.maxJobs || !maps.Equal(was.max, limit.max))
	case plimsoll.GroupLink:
		linked := f.limits.links[e.Reference]
		if e.Change == plimsoll.ChangeRemove {
			delete(f.limits.links, e.Reference)
			return linked == e.Object
		}
		f.limits.links[e.Reference] = e.Object
		return linked == "" && f.jobs[e.Reference] != nil && e.Change == plimsoll.ChangeAdd
	}
	use := f.limits.use[who]
	if use == nil {
		use = plimsoll.Resources{}
		f.limits.use[who] = use
	}
	right = f.queues[who.queue] != nil && len(e.Resources) > 0 && e.Change != plimsoll.ChangeSet
	for name, amount := range e.Resources {
		if e.Change == plimsoll.ChangeRemove {
			amount = -amount
		}
		use[name] += amount
		right = right && use[name] >= 0
	}
	return right
}

// foldedLimits compares the limits, the links of the jobs, and the use of those for whom limits
// hold. When a new configuration has changed whose limits hold for jobs, that is told in parts, and
// the trackers know it before.
func (w *world) foldedLimits() {
	s, f, there := w.engine.State(), &w.fold.limits, 0
	use, links := map[foldedWho]plimsoll.Resources{}, 0
	s.Tree().Root.Walk(func(q *queue.Queue) {
		for _, l := range q.Stated().Limits {
			for group, names := range map[bool][]string{false: l.Users, true: l.Groups} {
				for _, name := range names {
					there++
					got, has := f.limits[foldedWho{q.Path, group, name}]
					if !has || got.maxJobs != l.MaxJobs || !maps.Equal(got.max, l.Max) {
						w.t.Fatalf("the limit of %s at %s is %+v; the events say %+v", name, q.Path, l, got)
					}
				}
			}
		}
	})
	if there != len(f.limits) {
		w.t.Fatalf("there are %d limits of users and groups; the events say %v", there, f.limits)
	}
	for _, id := range w.jobs {
		j := s.Job(id)
		if j == nil {
			continue
		}
		status := s.JobStatus(j)
		if status.LimitGroup != f.links[id] {
			w.t.Fatalf("job %s is linked to %q; the events say %q", id, status.LimitGroup, f.links[id])
		}
		if status.LimitGroup != "" {
			links++
		}
		for i := range j.Groups {
			c := &j.Groups[i].Counts
			for range c.OnNodes() {
				if status.UserLimits {
					addAmounts(use, foldedWho{j.Spec.Queue, false, j.Spec.Owner}, j.Groups[i].Spec.Resources)
				}
				if status.LimitGroup != "" {
					addAmounts(use, foldedWho{j.Spec.Queue, true, status.LimitGroup}, j.Groups[i].Spec.Resources)
				}
			}
		}
	}
	if links != len(f.links) {
		w.t.Fatalf("%d jobs are linked to groups; the events say %v", links, f.links)
	}
	for who := range f.use {
		if !sameAmounts(use[who], f.use[who]) {
			w.t.Fatalf("%+v uses %v; the events say %v", who, use[who], f.use[who])
		}
	}
	for who := range use {
		if !sameAmounts(use[who], f.use[who]) {
			w.t.Fatalf("%+v uses %v; the events say %v", who, use[who], f.use[who])
		}
	}
	if !s.Behind() {
		w.foldedTrackers()
	}
}

func (w *world) foldedTrackers() {
	s := w.engine.State()
	s.Tree().Root.Walk(func(q *queue.Queue) {
		for _, k := range q.Trackers() {
			sum := map[foldedWho]plimsoll.Resources{}
			who := foldedWho{"", k.Group != "", k.UserOrGroup()}
			for at, r := range w.fold.limits.use {
				if at.group == who.group && at.name == who.name && strings.HasPrefix(at.queue+".", q.Path+".") {
					addAmounts(sum, who, r)
				}
			}
			if used := s.Names.Resources(&k.Allocated); !sameAmounts(sum[who], used) {
				w.t.Fatalf("%s uses %v at %s; the events say %v", who.name, used, q.Path, sum[who])
			}
		}
	})
}

func addAmounts(to map[foldedWho]plimsoll.Resources, who foldedWho, r plimsoll.Resources) {
	if to[who] == nil {
		to[who] = plimsoll.Resources{}
	}
	for name, amount := range r {
		to[who][name] += amount
	}
}
