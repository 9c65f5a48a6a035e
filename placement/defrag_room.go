package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// makeRoom moves instances off one server until that server takes the request.
func (d *defrag) makeRoom() {
	f, p := d.fleet, d.wanted
	var suited []int32
	for _, slot := range slices.Sorted(slices.Values(d.targets)) {
		d.looks--
		if d.placer.Keeps(p, slot, d.goal.Now) {
			d.plan.Room = f.ids[slot]
			return
		}
		if eligible, fits := d.placer.Suits(p, slot, d.goal.Now); eligible && fits {
			suited = append(suited, slot)
		}
	}
	inTheWay := make([]int, f.Len())
	amount := make([]float64, f.Len())
	for k, slot := range suited {
		if d.looks <= d.goal.Looks/4 {
			suited = suited[:k] // the rest of the work is for moves
			d.cut = true
			break
		}
		inTheWay[slot], amount[slot] = d.least(slot)
	}
	for _, slot := range d.ordered(
		suited, func(s int32) int { return inTheWay[s] }, func(s int32) float64 { return amount[s] },
	) {
		switch {
		case d.looks <= 0:
			return
		case inTheWay[slot] < 0 && f.Count(slot) > len(d.on[slot]):
			d.keep(
				slot, "",
				fmt.Sprintf("has %d instances that were not offered for moving", f.Count(slot)-len(d.on[slot])),
			)
			continue
		case inTheWay[slot] < 0:
			d.keep(slot, "", "what is in the way cannot be moved")
			continue
		case inTheWay[slot] > d.goal.Limit:
			d.keep(
				slot, "",
				fmt.Sprintf(
					"about %d instances are in the way, of which %d may be moved", inTheWay[slot], d.goal.Limit,
				),
			)
			continue
		}
		d.shut[slot] = true
		if d.clear(slot) {
			d.plan.Room, d.plan.Kept, d.plan.More = f.ids[slot], nil, 0
			if d.fleet.Count(slot) == 0 {
				d.plan.Emptied = append(d.plan.Emptied, f.ids[slot])
			}
			return
		}
		d.undo(0)
		d.shut[slot] = false
	}
}

// least estimates the number of instances that would have to leave a server for the request, and
// the part of the server that they hold. Instances that free most of the short resources leave
// first. The estimate reads amounts only. It is -1 if the movable instances are not enough.
func (d *defrag) least(slot int32) (n int, part float64) {
	short := d.shortage(slot)
	if len(short) == 0 {
		return 1, 0
	}
	d.looks -= 1 + len(d.on[slot])/looksOfOne
	d.ranks = d.ranks[:0]
	for _, i := range d.on[slot] {
		if d.movables[i].Fixed == "" {
			d.ranks = append(d.ranks, gain{i, d.frees(i, short), d.size(i)})
		}
	}
	slices.SortFunc(d.ranks, func(a, b gain) int {
		return cmp.Or(cmp.Compare(b.frees, a.frees), cmp.Compare(a.size, b.size), cmp.Compare(a.movable, b.movable))
	})
	for _, r := range d.ranks {
		n, part = n+1, part+r.size
		enough := true
		for s := range short {
			short[s].amount -= d.movables[r.movable].Kind.amounts[short[s].resource]
			enough = enough && short[s].amount <= 0
		}
		if enough {
			return n, part
		}
	}
	return -1, 0
}

// gain is an instance, its size, and the share of the short resources that it frees.
type gain struct {
	movable     int32
	frees, size float64
}

// frees returns the sum, over the short resources, of the share that an instance frees, at most 1
// each.
func (d *defrag) frees(i int32, short []shortage) (sum float64) {
	for _, s := range short {
		sum += min(1, float64(d.movables[i].Kind.amounts[s.resource])/float64(s.amount))
	}
	return sum
}

type shortage struct {
	resource int
	amount   int64
}

// shortage returns the amounts that a server lacks for the request.
func (d *defrag) shortage(slot int32) (list []shortage) {
	p, c := d.wanted, d.fleet.classes[d.fleet.rows[slot].class]
	for i := range d.fleet.Names.Len() {
		lack := p.needs[i] - d.fleet.Free(slot, i)
		if p.amounts[i] == 0 || lack <= 0 {
			continue
		}
		if c.offers != nil { // an instance frees less than it holds, or more
			lack = max(1, int64(float64(lack)*c.offers.ratio[i]))
		}
		list = append(list, shortage{i, lack})
	}
	return list
}

// inTheWay returns the index of the instance that is best moved: the smallest that frees all of the
// shortage, or else the one that frees most. It is -1 if none frees any.
func (d *defrag) inTheWay(list []int32, short []shortage) int {
	best, most, least := -1, 0.0, 0.0
	for k, i := range list {
		if d.movables[i].Fixed != "" || d.moved[i] {
			continue
		}
		frees, size := d.frees(i, short), d.size(i)
		order := cmp.Or(cmp.Compare(frees, most), cmp.Compare(least, size))
		if frees > 0 && (best < 0 || order > 0 || order == 0 && strings.Compare(
			d.movables[i].Name, d.movables[list[best]].Name,
		) < 0) {
			best, most, least = k, frees, size
		}
	}
	return best
}

// clear moves instances off a server until it takes the request.
func (d *defrag) clear(slot int32) bool {
	left := slices.Clone(d.on[slot])
	slices.SortFunc(left, func(a, b int32) int { return strings.Compare(d.movables[a].Name, d.movables[b].Name) })
	for !d.placer.Keeps(d.wanted, slot, d.goal.Now) {
		if len(d.done) == d.goal.Limit || d.looks <= 0 {
			d.keep(
				slot, "",
				fmt.Sprintf("more than %d instances are in the way, which is as many as may be moved", d.goal.Limit),
			)
			return false
		}
		short := d.shortage(slot)
		k := d.inTheWay(left, short)
		if len(short) == 0 {
			k = d.refused(slot, left)
		}
		if k < 0 {
			if kept := d.plan.Kept; len(kept) == 0 || kept[len(kept)-1].Server != d.fleet.ids[slot] {
				d.keep(slot, "", "what is in the way cannot be moved")
			}
			return false
		}
		if why := d.move(left[k]); why != "" {
			d.keep(slot, d.movables[left[k]].Name, why) // another instance may do
		}
		left = slices.Delete(left, k, k+1)
	}
	return true
}

// refused returns the index of an instance without which a server takes the request, although no
// resource is short; -1 if there is none.
func (d *defrag) refused(slot int32, list []int32) int {
	for k, i := range list {
		m := &d.movables[i]
		if m.Fixed != "" {
			continue
		}
		d.looks--
		d.note(m.Kind)
		d.fleet.Unbind(slot, m.Kind)
		keeps := d.placer.Keeps(d.wanted, slot, d.goal.Now)
		d.fleet.Bind(slot, m.Kind)
		if keeps {
			return k
		}
	}
	return -1
}
