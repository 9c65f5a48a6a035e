package trace

import (
	"maps"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
)

// queues are the queues that were there at any time of the window. Trees of a later time have the
// others too, without limits: a queue without jobs has no effect.
type queues struct {
	all     map[string]*limits // by path
	changes []change
	changed bool // since the last change was noted
	entries int  // limits in all changes
}

// limits are the resources of a queue. nil: there is no limit.
type limits struct {
	max, guaranteed plimsoll.Resources
}

// change has the limits of all queues from a time on.
type change struct {
	at     int64
	limits map[string]limits
}

// set sets the limits of a queue, which is added if it is not there.
func (q *queues) set(path string, limit, guaranteed plimsoll.Resources) {
	is := q.all[path]
	if is == nil {
		is = &limits{}
		q.all[strings.Clone(path)] = is
	}
	if path == plimsoll.RootQueue {
		return // what all nodes have
	}
	if !same(is.max, limit) || !same(is.guaranteed, guaranteed) {
		is.max, is.guaranteed, q.changed = maps.Clone(limit), maps.Clone(guaranteed), true
	}
}

// same reports whether two limits are equal. No limit differs from an empty one.
func same(a, b plimsoll.Resources) bool { return (a == nil) == (b == nil) && maps.Equal(a, b) }

// note notes the limits at a time if they have changed.
func (q *queues) note(at int64) {
	if !q.changed && len(q.changes) > 0 {
		return
	}
	now := map[string]limits{}
	for _, path := range sortedKeys(q.all) {
		if is := q.all[path]; is.max != nil || is.guaranteed != nil {
			now[path] = *is
		}
	}
	q.entries += len(now) + 1
	q.changes, q.changed = append(q.changes, change{at, now}), false
}

// queue applies an event of a queue.
func (p *reading) queue(e *plimsoll.Event) {
	switch {
	case e.Detail == plimsoll.QueueApp:
		if j := p.jobs[e.Reference]; j != nil && e.Change == plimsoll.ChangeAdd {
			j.queue = strings.Clone(e.Object)
		}
	case e.Change == plimsoll.ChangeAdd && (e.Detail == plimsoll.DetailNone || e.Detail == plimsoll.QueueDynamic),
		e.Change == plimsoll.ChangeRemove && (e.Detail == plimsoll.DetailNone || e.Detail == plimsoll.QueueDynamic):
		p.queues.set(e.Object, nil, nil)
	case e.Detail == plimsoll.QueueMax:
		p.queues.set(e.Object, limitOf(e.Resources), p.queues.of(e.Object).guaranteed)
	case e.Detail == plimsoll.QueueGuaranteed:
		p.queues.set(e.Object, p.queues.of(e.Object).max, limitOf(e.Resources))
	}
}

func (q *queues) of(path string) limits {
	if is := q.all[path]; is != nil {
		return *is
	}
	return limits{}
}

// limitOf returns nil for no limit.
func limitOf(r plimsoll.Resources) plimsoll.Resources {
	if len(r) == 0 {
		return nil
	}
	return r
}

// leaf reports whether a queue was a leaf for all of the window.
func (q *queues) leaf(path string) bool {
	if q.all[path] == nil {
		return false
	}
	for _, other := range sortedKeys(q.all) {
		if strings.HasPrefix(other, path+".") {
			return false
		}
	}
	return true
}

// trace makes the trees.
func (q *queues) trace(t *Trace) {
	paths := sortedKeys(q.all)
	if len(paths) == 0 || len(paths) == 1 && paths[0] == plimsoll.RootQueue {
		t.Queues = plimsoll.DefaultQueues()
		return
	}
	for i, c := range q.changes {
		tree := plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true}
		for _, path := range paths {
			if path == plimsoll.RootQueue {
				continue
			}
			at := &tree
			for part := range strings.SplitSeq(strings.TrimPrefix(path, plimsoll.RootQueue+"."), ".") {
				at = child(at, part)
			}
			at.Max, at.Guaranteed = c.limits[path].max, c.limits[path].guaranteed
		}
		if i == 0 {
			t.Queues = tree
		} else {
			t.Changes = append(t.Changes, simulate.QueueChange{At: c.at, Queues: tree})
		}
	}
}

// child returns a queue below another one.
func child(q *plimsoll.QueueConfig, name string) *plimsoll.QueueConfig {
	for i := range q.Queues {
		if q.Queues[i].Name == name {
			return &q.Queues[i]
		}
	}
	q.Parent = true
	q.Queues = append(q.Queues, plimsoll.QueueConfig{Name: name})
	return &q.Queues[len(q.Queues)-1]
}
