package state

import (
	"math"

	"github.com/plimsoll-dev/plimsoll"
)

// later returns at + delay, or the latest possible time if the sum overflows.
func later(at, delay int64) int64 {
	if at > math.MaxInt64-delay {
		return math.MaxInt64
	}
	return at + delay
}

// timer is a time at which a node, the end of a completing job or a task's retry is due.
type timer struct {
	at   int64 // Unix nanoseconds
	node *Node // node with a deadline; nil: none
	job  *Job  // completing job; nil: none
	ref  Ref   // task to retry, if node and job are nil
}

// timerHeap is a binary heap by time. A timer whose cause is gone has no effect.
type timerHeap []timer

func (h *timerHeap) push(t timer) {
	*h = append(*h, t)
	a := *h
	for i := len(a) - 1; i > 0; {
		up := (i - 1) / 2
		if a[up].at <= a[i].at {
			return
		}
		a[up], a[i] = a[i], a[up]
		i = up
	}
}

func (h *timerHeap) pop() timer {
	a := *h
	top, n := a[0], len(a)-1
	a[0] = a[n]
	a[n] = timer{}
	a = a[:n]
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && a[down+1].at < a[down].at {
			down++
		}
		if a[i].at <= a[down].at {
			break
		}
		a[i], a[down] = a[down], a[i]
		i = down
	}
	*h = a
	return top
}

// live reports whether the cause of a timer still exists.
func (t *timer) live() bool {
	if n := t.node; n != nil {
		return !n.deleted && (n.deadline == t.at || n.lostAt == t.at || n.sickUntil == t.at || n.exclusionEnd == t.at)
	}
	if t.job != nil {
		return t.job.State == plimsoll.JobCompleting && t.job.completes == t.at
	}
	if int(t.ref.Index) >= len(t.ref.Group.Tasks) || t.ref.Group.Job.Killed {
		return false
	}
	task := t.ref.Task()
	return task.State == plimsoll.TaskPending && !task.queued && task.NotBefore == t.at
}

// wakeAt sets a timer. Stale timers are dropped when the number of timers has doubled. So a long
// delay of a killed job does not keep the job in memory.
func (s *State) wakeAt(t timer) {
	if len(s.timers) >= max(s.tidyTimers, 64) {
		var live timerHeap
		for i := range s.timers {
			if s.timers[i].live() {
				live.push(s.timers[i])
			}
		}
		s.timers, s.tidyTimers = live, 2*len(live)
	}
	s.timers.push(t)
}

func (s *State) isDue() bool { return len(s.timers) > 0 && s.timers[0].at <= s.at }

// Due acts on the timers that are due, as far as the budget goes.
func (s *State) Due(budget Budget) {
	for s.isDue() && !s.Over(budget) {
		t := s.timers.pop()
		switch {
		case t.node != nil:
			s.nodeDue(t.node)
		case t.job != nil:
			s.finishIfDone(t.job)
		case int(t.ref.Index) < len(t.ref.Group.Tasks):
			s.retryDue(t.ref)
		}
	}
}

// Wake returns the time of the next turn that timers or expiry need, or 0 if there is none.
func (s *State) Wake() int64 {
	wake := int64(0)
	if len(s.timers) > 0 {
		wake = s.timers[0].at
	}
	if j := s.oldestKept(); j != nil && (wake == 0 || j.keptUntil < wake) {
		wake = j.keptUntil
	}
	if due := s.tree.HoldEnds(); due != 0 && (wake == 0 || due < wake) {
		wake = due
	}
	if due := s.tree.PastDue(); due != 0 && (wake == 0 || due < wake) {
		wake = due
	}
	if due := s.historianDue(); due != 0 && (wake == 0 || due < wake) {
		wake = due
	}
	for _, list := range []*outcomeList{&s.outcomes.changes, &s.outcomes.refused} {
		if list.order.len() == 0 {
			continue
		}
		if due := later((*list.order.front()).Time, s.cfg.KeepOutcomes); wake == 0 || due < wake {
			wake = due
		}
	}
	return wake
}
