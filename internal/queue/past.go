package queue

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// pastStep is the time after which the past of the queues is brought up to date, in nanoseconds.
// Moments are multiples of it, so that another leader goes on with the same ones.
const pastStep = int64(10 * time.Second)

// fixed is the number whole + part / 2^64. Its results are the same on each machine.
type fixed struct{ whole, part uint64 }

// times returns the number multiplied by f / 2^64.
func (x fixed) times(f uint64) fixed {
	whole, part := bits.Mul64(x.whole, f)
	more, _ := bits.Mul64(x.part, f)
	return fixed{whole, part}.plus(fixed{0, more})
}

func (x fixed) plus(y fixed) fixed {
	part, carry := bits.Add64(x.part, y.part, 0)
	return fixed{x.whole + y.whole + carry, part}
}

// float returns the nearest number of type float64, or the one beside it.
func (x fixed) float() float64 { return float64(x.whole) + math.Ldexp(float64(x.part), -64) }

// fixedOf returns a number that float has returned. Numbers that it cannot return give zero.
func fixedOf(f float64) fixed {
	if !(f > 0 && f < 1<<63) {
		return fixed{}
	}
	whole, part := math.Modf(f)
	return fixed{uint64(whole), uint64(math.Ldexp(part, 64))}
}

// ln2 is 2^64 × the natural logarithm of 2.
const ln2 = 0xb17217f7d1cf79ab

// faded returns 2^64 × 2^(-time/halfLife): the rest of a weight after some time above zero. It is
// the series of e^-x, in integers.
func faded(time, halfLife uint64) uint64 {
	halves := time / halfLife
	if halves >= 64 {
		return 0
	}
	part, _ := bits.Div64(time%halfLife, 0, halfLife) // of a half-life
	x, _ := bits.Mul64(part, ln2)
	left, term := uint64(math.MaxUint64), uint64(math.MaxUint64)
	for k := uint64(1); term > 0; k++ {
		term, _ = bits.Mul64(term, x)
		if term /= k; k%2 == 0 {
			left += term
		} else {
			left -= term
		}
	}
	return left >> halves
}

// past is the past use of a queue, as a mean: use that is a half-life old weighs half as much as
// that of now. Only the children of a queue with a half-life have one.
type past struct {
	mean   [plimsoll.MaxResourceNames]fixed
	spent  [plimsoll.MaxResourceNames]fixed // since the time since: amount × nanoseconds, as whole × 2^64 + part
	since  int64                            // time to which mean counts, in Unix nanoseconds; 0: none yet
	until  int64                            // time to which spent counts
	kept   bool                             // the caller was told to store it
	listed bool                             // its queue is listed in Tree.pasts
}

// spend counts what was used from the last call until now. It comes before each change of used.
func (p *past) spend(used *Amounts, now int64) {
	if p.since == 0 { // a load counts use before it knows the time
		p.since, p.until = now, now
	}
	if now <= p.until {
		return
	}
	time := uint64(now - p.until)
	for i, amount := range used {
		if amount > 0 {
			high, low := bits.Mul64(uint64(amount), time)
			p.spent[i] = p.spent[i].plus(fixed{high, low})
		}
	}
	p.until = now
}

// fade brings the mean up to date, and reports whether that has changed it.
func (p *past) fade(halfLife time.Duration) (changed bool) {
	time := uint64(p.until - p.since)
	if time == 0 {
		return false
	}
	left := faded(time, uint64(halfLife))
	for i, was := range p.mean {
		used := p.spent[i]
		if was == (fixed{}) && used == (fixed{}) {
			continue
		}
		// A mean is at most the largest amount, so the quotient fits.
		whole, rest := bits.Div64(used.whole, used.part, time)
		part, _ := bits.Div64(rest, 0, time)
		now := fixed{whole, part}
		if left > 0 {
			now = was.times(left).plus(now.times(-left))
		}
		if whole == 0 && part == 0 && now.whole == 0 && now.part < nothing {
			now = fixed{}
		}
		p.mean[i], p.spent[i] = now, fixed{}
		changed = changed || now != was
	}
	p.since = p.until
	return changed
}

// nothing is the mean below which a resource that is not used any more is forgotten: 2^-20 of its
// smallest amount.
const nothing = 1 << 44

// halfway returns the mean of present and past use as a part of den.
func halfway(used uint64, was fixed, den uint64) fraction {
	shift := max(0, min(20, bits.LeadingZeros64(used|was.whole|den)-2)) // the bits behind the point
	return fraction{used<<shift + was.whole<<shift + was.part>>(64-shift), den << (shift + 1)}
}

// inheritPast gives a queue a past if the queue above has a half-life, and takes it otherwise.
func (t *Tree) inheritPast(q *Queue) {
	if !q.Leaf && q.order.halfLife > 0 {
		t.fading = append(t.fading, q)
	}
	switch wanted := q.Parent != nil && q.Parent.order.halfLife > 0; {
	case wanted && q.past == nil:
		q.past = &past{since: t.now, until: t.now}
	case !wanted && q.past != nil:
		t.dropPast(q)
	}
}

// dropPast takes the past of a queue.
func (t *Tree) dropPast(q *Queue) {
	if q.past != nil && q.past.kept {
		t.pasts = append(t.pasts, q.Path)
	}
	q.past = nil
	if i := slices.Index(t.fading, q); i >= 0 && t.Find(q.Path) != q {
		t.fading = slices.Delete(t.fading, i, i+1)
	}
}

// fadePasts brings the past of all queues up to date, and their order, if it is time. It costs
// O(queues with a past × resources) in each pastStep.
func (t *Tree) fadePasts() {
	if len(t.fading) == 0 || t.now/pastStep == t.faded/pastStep {
		return
	}
	t.faded = t.now
	for _, q := range t.fading {
		for _, child := range q.Children {
			child.past.spend(&child.Allocated, t.now)
			if !child.past.fade(q.order.halfLife) {
				continue
			}
			child.share = t.shareOf(child)
			t.storeLater(child)
			t.touch(child)
		}
		q.open.order()
	}
}

// storeLater lists a queue for NextPast.
func (t *Tree) storeLater(q *Queue) {
	q.past.kept = true
	if !q.past.listed {
		q.past.listed = true
		t.pasts = append(t.pasts, q.Path)
	}
}

// PastDue returns the time at which the past of queues changes next; 0: when a task is placed.
func (t *Tree) PastDue() int64 {
	if len(t.fading) == 0 || t.Root.Running == 0 {
		return 0
	}
	return (t.now/pastStep + 1) * pastStep
}

// NextPast takes the path of a queue whose past is to be stored anew, or to be deleted if the queue
// has none now. It returns false if there is none.
func (t *Tree) NextPast() (path string, ok bool) {
	last := len(t.pasts) - 1
	if last < 0 {
		return "", false
	}
	path, t.pasts = t.pasts[last], t.pasts[:last]
	if q := t.Find(path); q != nil && q.past != nil {
		q.past.listed = false
	}
	return path, true
}

// HasNextPast reports whether NextPast has something to return.
func (t *Tree) HasNextPast() bool { return len(t.pasts) > 0 }

// Past returns the mean of the queue's past use, by the number of the resource, and the time to
// which it counts in Unix nanoseconds. It returns false if the past does not count.
func (q *Queue) Past() (mean [plimsoll.MaxResourceNames]float64, at int64, ok bool) {
	if q.past == nil || !q.past.kept {
		return mean, 0, false
	}
	for i, m := range q.past.mean {
		mean[i] = m.float()
	}
	return mean, q.past.since, true
}

// SetPast sets what Past has returned for the queue with a path. It is for a load: it comes behind
// all calls of Book, and before the time is set. If no queue keeps it, the path is listed for
// NextPast, to be deleted.
func (t *Tree) SetPast(path string, mean *[plimsoll.MaxResourceNames]float64, at int64) {
	q := t.Find(path)
	if q == nil || q.past == nil {
		t.pasts = append(t.pasts, path)
		return
	}
	*q.past = past{since: at, until: at, kept: true}
	for i, m := range mean {
		q.past.mean[i] = fixedOf(m)
	}
	q.share = t.shareOf(q)
	q.fix()
}

// ForgetResource forgets what was used of a resource whose number another one may get.
func (t *Tree) ForgetResource(k int) {
	for _, q := range t.fading {
		for _, child := range q.Children {
			if child.past.mean[k] != (fixed{}) {
				t.storeLater(child)
			}
			child.past.mean[k], child.past.spent[k] = fixed{}, fixed{}
			child.share = t.shareOf(child)
		}
		q.open.order()
	}
}
