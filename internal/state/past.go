package state

import (
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// QueuePast is the past use of a queue, for fairness.halflife. It is stored and not
// replicated: QueueStatus has the part that users see.
type QueuePast struct {
	Path string
	Time int64              // to which it counts, in Unix nanoseconds
	Mean map[string]float64 // amounts by resource
}

// pastOf returns the record of a queue, if it has one.
func (s *State) pastOf(q *queue.Queue) (p QueuePast, ok bool) {
	mean, at, ok := q.Past()
	if !ok {
		return p, false
	}
	p = QueuePast{Path: q.Path, Time: at, Mean: map[string]float64{}}
	for i, amount := range mean {
		if amount > 0 {
			p.Mean[s.Names.Name(i)] = amount
		}
	}
	return p, true
}

// storePasts marks the changed pasts of queues dirty, as far as the budget goes. All of them change
// at once, at most every 10 s.
func (s *State) storePasts(budget Budget) {
	for !s.Over(budget) {
		path, some := s.tree.NextPast()
		if !some {
			return
		}
		s.dirty.pasts = append(s.dirty.pasts, path)
		s.dirty.bytes += len(path)
		if q := s.tree.Find(path); q != nil {
			p, _ := s.pastOf(q)
			s.dirty.bytes += size.Of(&p)
		}
	}
}

// takePasts hands out the pasts that have changed, and those of queues that have none any more.
func (s *State) takePasts(c *Changes) {
	for _, path := range unique(s.dirty.pasts) {
		if q := s.tree.Find(path); q != nil {
			if p, ok := s.pastOf(q); ok {
				c.QueuePasts = append(c.QueuePasts, p)
				continue
			}
		}
		c.DeletedQueuePasts = append(c.DeletedQueuePasts, path)
	}
}

// loadPast takes over a stored past, but for resources that nobody has or names any more.
func (s *State) loadPast(p *QueuePast) {
	var mean [plimsoll.MaxResourceNames]float64
	for _, name := range slices.Sorted(maps.Keys(p.Mean)) {
		if k := s.index(name); k >= 0 {
			mean[k] = p.Mean[name]
		}
	}
	s.tree.SetPast(p.Path, &mean, p.Time)
}
