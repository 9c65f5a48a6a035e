package state

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// QueuePast is what a queue used in the past, for fairness.halflife. It is stored and not
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

// storePasts marks the pasts of queues dirty that have changed, as far as the budget goes. A queue's
// past changes at most every 10 s, for all queues at once.
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
	for name, amount := range p.Mean {
		if k := s.index(name); k >= 0 {
			mean[k] = amount
		}
	}
	s.tree.SetPast(p.Path, &mean, p.Time)
}
