package placement

import (
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// Refusal returns why no server takes a request that asks for r: a code, and a sentence with the
// numbers of servers.
func (x *Explanation) Refusal(r plimsoll.Resources) (plimsoll.WaitCode, string) {
	switch {
	case x.Open == 0:
		return plimsoll.WaitNoNodes, x.Summary()
	case x.Eligible == 0:
		return plimsoll.WaitNotEligible, "no node is for it, full or empty: " + x.Summary()
	case x.FitEmpty == 0:
		return plimsoll.WaitTooLarge, fmt.Sprintf("too large for every node: it asks for %s; %s", r, x.Summary())
	}
	return plimsoll.WaitNoNode, x.Summary()
}

// Refusal returns the code alone, and looks at no more servers than it needs. No server may take
// the request now, and some must take instances.
//
// The witness is a server that proves the code, and does so as long as its record stays the same.
// For WaitNoNode the witness would have room if it were empty; for WaitTooLarge it is eligible. For
// WaitNotEligible the witness is -1. A guess, such as the witness of an equal request, is looked at
// first; -1: none.
func (pl *Placer) Refusal(p *Prepared, now int64, guess int32) (code plimsoll.WaitCode, witness int32) {
	b := pl.begin(p, now)
	code, witness = plimsoll.WaitNotEligible, -1
	b.reset(0)
	b.add(0)
	judge := func(slot int32) (final bool) {
		if pl.fleet.rows[slot].flags&present == 0 {
			return false
		}
		if v := b.verdict(slot); v >= verdictDropped && decidesEligibility(&p.chain.stages[v-verdictDropped]) {
			return false
		}
		b.slots[0] = slot
		v := b.At(0)
		fits := p.fitsEmpty(v)
		switch {
		case !fits && witness >= 0 || !b.holds(p.chain.root, v, decidesEligibility):
		case fits:
			code, witness = plimsoll.WaitNoNode, slot
			return true
		default:
			code, witness = plimsoll.WaitTooLarge, slot
		}
		return false
	}
	if guess >= 0 && int(guess) < len(pl.fleet.rows) && judge(guess) {
		return code, witness
	}
	for slot := range pl.fleet.rows {
		if judge(int32(slot)) {
			break
		}
	}
	return code, witness
}

// Needs returns the amounts that must be free on a server for the request, after over-provisioning;
// see Chain.ComparesRoom.
func (p *Prepared) Needs() *Amounts { return &p.needs }

// ComparesRoom reports whether the chain drops every server that has less left of a resource than
// Prepared.Needs, for each resource of Prepared.Amounts. That is true of a chain with the filters
// for room in its pipe that calculates the amounts left as the fleet does.
func (c *Chain) ComparesRoom() bool {
	if c.root.op != "pipe" || c.Settings.NoRoom {
		return false
	}
	var filters []string
	for _, item := range c.root.items {
		if item.op == "" {
			filters = append(filters, c.stages[item.stage].Name)
		}
	}
	for _, name := range []string{"min-memory", "min-cpu", "min-disk", "min-custom"} {
		if !slices.Contains(filters, name) {
			return false
		}
	}
	return !slices.ContainsFunc(
		c.stages, func(s Stage) bool { return s.Gives&ReadsFree != 0 && s.Name != "calculate-unreserved" },
	)
}

// OwnerMatters reports whether a filter of the chain reads the owner of a request.
func (c *Chain) OwnerMatters() bool { return len(c.rules) > 0 }

// UseMatters reports whether an arriving instance can make a filter keep a server that it dropped
// before. That needs an owner rule that reads the number of instances or the amounts left.
func (c *Chain) UseMatters() bool {
	for _, owner := range sortedKeys(c.rules) {
		if c.rules[owner].reads {
			return true
		}
	}
	return false
}

// SetOwner gives a request another owner, whose instances have the kind k. No filter of the chain
// may read the owner.
func (p *Prepared) SetOwner(owner string, k *Kind) {
	if p.owner == k.owner {
		return
	}
	if p.watching {
		p.fleet.unwatchOwner(p.owner)
		p.watching = false
	}
	p.looked = 0
	p.fleet.tags.release(p.owner)
	p.fleet.tags.info[k.owner].refs++
	p.owner, p.Request.Owner = k.owner, owner
}

// Room returns the amounts left on a server now, and the amounts left if it were empty. Both are
// zero for a vacant slot.
func (f *Fleet) Room(slot int32) (now, empty Amounts) {
	if f.rows[slot].flags&present == 0 {
		return now, empty
	}
	c := f.classes[f.rows[slot].class]
	for i := range f.Names.Len() {
		now[i], empty[i] = f.Free(slot, i), c.free(i, 0)
	}
	return now, empty
}
