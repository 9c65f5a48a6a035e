package queue

import "math/bits"

// fraction is the non-negative number num/den. Invariant: den > 0.
type fraction struct{ num, den uint64 }

func (a fraction) compare(b fraction) int {
	hi1, lo1 := bits.Mul64(a.num, b.den)
	hi2, lo2 := bits.Mul64(b.num, a.den)
	switch {
	case hi1 < hi2 || hi1 == hi2 && lo1 < lo2:
		return -1
	case hi1 == hi2 && lo1 == lo2:
		return 0
	}
	return 1
}

// shareOf returns the dominant share of a queue: the largest quotient over the resources that it
// uses. The quotient is used over guaranteed; over the maximum if nothing is guaranteed; and over
// the whole cluster if there is no maximum above zero either. If the past counts, used is the mean
// of present and past use.
func (t *Tree) shareOf(q *Queue) fraction {
	best := fraction{0, 1}
	for i, amount := range q.Allocated {
		var was fixed
		if q.past != nil {
			was = q.past.mean[i]
		}
		if amount <= 0 && was == (fixed{}) {
			continue
		}
		used, bit := uint64(max(amount, 0)), uint32(1)<<i
		f := fraction{used, 1}
		switch {
		case q.GuaranteedSet&bit != 0 && q.Guaranteed[i] > 0:
			f.den = uint64(q.Guaranteed[i])
		case q.GuaranteedSet&bit != 0: // a guarantee of zero that is in use: a share of 1
			f.num, was = min(used, 1), fixed{min(used, 1), 0}
		case q.MaxSet&bit != 0 && q.Max[i] > 0:
			f.den = uint64(q.Max[i])
		case t.total[i] > 0:
			f.den = uint64(t.total[i])
		}
		if q.past != nil {
			f = halfway(f.num, was, f.den)
		}
		if best.compare(f) < 0 {
			best = f
		}
	}
	return best
}

// SetTotal sets the resources of the whole cluster. Shares of resources without a guarantee and a
// maximum are fractions of it. It is the maximum of the root, which has changed then.
func (t *Tree) SetTotal(total *Amounts) {
	if t.total != *total {
		t.total = *total
		t.totals++
		t.touch(t.Root)
	}
}

// reshare recomputes the shares and the order of a queue's children, after the total has changed.
func (t *Tree) reshare(q *Queue) {
	for _, child := range q.Children {
		child.share = t.shareOf(child)
	}
	q.open.order()
	q.sharedAt = t.totals
}
