// Package queue says who is next: which leaf of the queue tree, and whether its quota allows it.
//
// From the root down, the queue with the smallest share of what it may have goes first (YuniKorn's fair order); inside a leaf
// the jobs go in the order of submission, and what cannot be placed now does not hold up what can. A queue's share is the
// largest, over the resources that it uses, of used over guaranteed, or over the maximum where nothing is guaranteed. Shares
// are compared by multiplication of integers, so that equal input gives equal order.
//
// It owns nothing: it reads the tables of package state. Its only caller is the scheduler. Next costs O(queues on the way
// down and beside it); Blocked costs O(depth).
package queue

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Next returns the shape whose first task is to be placed next, or nil if everything that waits is blocked.
func Next(s *state.State) *state.Shape {
	q := s.Root
	for !q.Leaf {
		var best *state.Queue
		for _, child := range q.Children {
			if child.Open > 0 && (best == nil || share(s, child).less(share(s, best))) {
				best = child
			}
		}
		if best == nil {
			return nil
		}
		q = best
	}
	return q.Head()
}

// fraction is a non-negative number num/den.
type fraction struct{ num, den uint64 }

func (a fraction) less(b fraction) bool {
	hi1, lo1 := bits.Mul64(a.num, b.den)
	hi2, lo2 := bits.Mul64(b.num, a.den)
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}

func share(s *state.State, q *state.Queue) fraction {
	best := fraction{0, 1}
	for i := range s.Names.Len() {
		used := q.Allocated[i]
		if used <= 0 {
			continue
		}
		f := fraction{uint64(used), 1}
		bit := uint32(1) << i
		switch {
		case q.GuaranteedSet&bit != 0 && q.Guaranteed[i] > 0:
			f.den = uint64(q.Guaranteed[i])
		case q.GuaranteedSet&bit != 0: // guaranteed nothing, but uses it: counts as its whole share
			f.num = 1
		case q.MaxSet&bit != 0 && q.Max[i] > 0:
			f.den = uint64(q.Max[i])
		case s.Total()[i] > 0:
			f.den = uint64(s.Total()[i])
		}
		if best.less(f) {
			best = f
		}
	}
	return best
}

// Blocked returns the queue, the leaf or one above, whose quota forbids one more task of such amounts in the leaf, and says why:
// "root.batch is at its max: memory 64Gi of 64Gi". It returns nil if there is room.
func Blocked(s *state.State, leaf *state.Queue, r *placement.Amounts) (by *state.Queue, reason string) {
	for q := leaf; q != nil; q = q.Parent {
		for i := range s.Names.Len() {
			if q.MaxSet&(1<<i) != 0 && r[i] > 0 && r[i] > q.Max[i]-q.Allocated[i] {
				return q, quotaReason(s, q, r)
			}
		}
	}
	return nil, ""
}

// Short says why a queue, the leaf or one above, would hold back some of several tasks that ask for so much together: "root.batch has
// cpu 2 left of its max of 8, and they ask for 10". It is empty if none would.
func Short(s *state.State, leaf *state.Queue, total *placement.Amounts) string {
	for q := leaf; q != nil; q = q.Parent {
		if q.MaxJobs > 0 && q.Admitted >= q.MaxJobs {
			return state.ParkedReason(leaf)
		}
		for i := range s.Names.Len() {
			if left := max(q.Max[i]-q.Allocated[i], 0); q.MaxSet&(1<<i) != 0 && total[i] > left {
				name := s.Names.Name(i)
				return fmt.Sprintf("%s has %s %s left of its max of %s, and they ask for %s", q.Path, name,
					plimsoll.FormatQuantity(name, left), plimsoll.FormatQuantity(name, q.Max[i]), plimsoll.FormatQuantity(name, total[i]))
			}
		}
	}
	return ""
}

func quotaReason(s *state.State, q *state.Queue, r *placement.Amounts) string {
	var full, large []string
	for i := range s.Names.Len() {
		if q.MaxSet&(1<<i) == 0 || r[i] <= q.Max[i]-q.Allocated[i] || r[i] == 0 {
			continue
		}
		name := s.Names.Name(i)
		limit := plimsoll.FormatQuantity(name, q.Max[i])
		if r[i] > q.Max[i] {
			large = append(large, fmt.Sprintf("%s %s of %s", name, plimsoll.FormatQuantity(name, r[i]), limit))
		} else {
			full = append(full, fmt.Sprintf("%s %s of %s", name, plimsoll.FormatQuantity(name, q.Allocated[i]), limit))
		}
	}
	if len(large) > 0 {
		return fmt.Sprintf("the task asks for more than the max of %s: %s", q.Path, strings.Join(large, ", "))
	}
	return fmt.Sprintf("%s is at its max: %s", q.Path, strings.Join(full, ", "))
}
