package placement

import (
	"fmt"
	"math/bits"
)

// allowed is the set of servers that a spread request could use but for its spread. Such a server
// is open, and passes the filters on records. The instances that the request must be near to and
// far from are where they should be. The server would have room for the request if it were empty. A
// hard spread counts the label values of these servers, and no others: a rack without GPUs does not
// hold back a request for a GPU. A server that is full or sick for now stays in the set, so that
// its value waits for it.
//
// To find the set costs a look at every server. The set is found anew after a server came, left or
// got another record, or an instance that the request names moved. Another instance that comes or
// goes costs a look at its server, and only if the request is near to or far from instances.
type allowed struct {
	items  []*node           // parts of the chain behind its prefix that decide about the set
	counts func(*Stage) bool // whether a stage decides about the set
	single bool              // each server is asked; otherwise one server speaks for its class
	moving bool              // the set depends on instances that come and go
	// whether the set was found
	known  bool
	shifts uint64  // Fleet.shifts when the set was found
	seen   uint64  // number of the next entry of Fleet.recent, if moving is set
	named  []int32 // slots of the instances that the request names, when the set was found
	slots  bitmap  // the set
}

// hardSpread is a hard spread of a request with the fewest instances that it compares with.
type hardSpread struct {
	*counter
	servers []int32 // by value: how many allowed servers have it; unused of a spread by node
	low     int32   // the fewest instances in a value that counts; 0 if none does
	lowAt   int32   // value that has low instances; -1: no value counts
	seen    uint64  // counter.version when low was found
	stale   bool    // low is to be found again
	fixed   bool    // low was given by a loader or the record of a decision, and stays
}

// recentMoves is how many moves of instances a fleet remembers.
const recentMoves = 1024

// recent remembers the servers of the last instances that came or went.
type recent struct {
	slots [recentMoves]int32
	n     uint64 // Invariant: only grows, also while a trial rolls its bookings back
}

func (r *recent) add(slot int32) {
	if r != nil {
		r.slots[r.n%recentMoves] = slot
		r.n++
	}
}

// counters returns the counters of all spreads of the request, those of hard ones first.
func (p *Prepared) counters() []*counter {
	out := make([]*counter, 0, len(p.hardSpread)+len(p.softSpread))
	for i := range p.hardSpread {
		out = append(out, p.hardSpread[i].counter)
	}
	return append(out, p.softSpread...)
}

// prepare finds the stages that decide about the set, and the events that change it.
func (a *allowed) prepare(p *Prepared) {
	if len(p.hardSpread) == 0 {
		return
	}
	a.counts = func(s *Stage) bool { return decidesEligibility(s) || s.restricts != nil && s.restricts(p) }
	for _, stage := range p.byServer {
		s := &p.chain.stages[stage]
		a.single = a.single || s.alike == nil || !s.alike(p)
	}
	items := []*node{p.chain.root}
	if p.chain.root.op == "pipe" {
		items = p.chain.root.items[p.chain.prefix:]
	}
	for _, item := range items {
		if a.decides(p, item) {
			a.items = append(a.items, item)
		}
	}
	if a.moving && p.fleet.recent == nil {
		p.fleet.recent = &recent{}
	}
}

// decides reports whether a part of the chain has stages that decide about the set.
func (a *allowed) decides(p *Prepared, n *node) bool {
	if n.op == "" {
		s := &p.chain.stages[n.stage]
		if s.Keep == nil || p.skips[n.stage] || !a.counts(s) {
			return false
		}
		alike := s.ByClass || s.alike != nil && s.alike(p)
		a.single = a.single || !alike
		a.moving = a.moving || !alike && s.Reads != ReadsRecord
		return true
	}
	some := false
	for _, item := range n.items {
		some = a.decides(p, item) || some
	}
	return some
}

// compareValues brings up to date the values that the hard spreads of the request count, and the
// fewest instances in one of them.
func (b *Batch) compareValues() {
	p, f := b.p, b.fleet
	a := &p.allowed
	switch elsewhere := a.moved(p); {
	case !a.known || elsewhere || a.shifts != f.shifts || a.moving && f.recent.n-a.seen > recentMoves:
		b.findAllowed()
	case a.moving:
		for ; a.seen < f.recent.n; a.seen++ {
			b.allowAgain(f.recent.slots[a.seen%recentMoves])
		}
	}
	for i := range p.hardSpread {
		if s := &p.hardSpread[i]; !s.fixed && (s.stale || s.seen != s.version) {
			f.findLowest(s, a.slots)
		}
	}
}

// moved reports whether an instance that the request names has moved since the last call.
func (a *allowed) moved(p *Prepared) (elsewhere bool) {
	k := 0
	at := func(slot int32) {
		if k == len(a.named) {
			a.named = append(a.named, noSlot)
		}
		elsewhere = elsewhere || a.named[k] != slot
		a.named[k] = slot
		k++
	}
	if len(p.Request.Constraints.VolumesFrom) > 0 {
		at(p.volumes.slot)
	}
	for _, list := range [...][]selector{p.hardNear, p.hardFar} {
		for i := range list {
			if list[i].id != "" {
				at(list[i].slot)
			}
		}
	}
	return elsewhere
}

// noSlot is a slot that no instance has: -1 stands for an instance on no server.
const noSlot = -2

// findAllowed finds the set anew.
func (b *Batch) findAllowed() {
	p, f := b.p, b.fleet
	a := &p.allowed
	a.known, a.shifts = true, f.shifts
	if a.moving {
		a.seen = f.recent.n
	}
	a.slots = zeros(a.slots, (len(f.rows)+63)/64)
	for i := range p.hardSpread {
		s := &p.hardSpread[i]
		s.stale = true
		if f.domains[s.domain].key != SpreadByNode {
			s.servers = zeros(s.servers, len(f.domains[s.domain].names))
		}
	}
	b.newMark()
	for slot, id := range f.classAt {
		if id == noClass {
			continue
		}
		if b.marks[id] != b.mark {
			b.marks[id], b.values[id] = b.mark, 0
			if b.allowsClass(int32(slot)) && (a.single || b.allowsServer(int32(slot))) {
				b.values[id] = 1
			}
		}
		if b.values[id] == 1 && (!a.single || b.allowsServer(int32(slot))) {
			b.allow(int32(slot), 1)
		}
	}
}

// allowAgain updates the set after an instance came to a server or left it.
func (b *Batch) allowAgain(slot int32) {
	a := &b.p.allowed
	now := b.fleet.classAt[slot] != noClass && b.allowsClass(slot) && b.allowsServer(slot)
	switch was := a.slots.has(slot); {
	case now && !was:
		b.allow(slot, 1)
	case was && !now:
		b.allow(slot, -1)
	}
}

// allow puts a server into the set if n is 1, and takes it out if n is -1.
func (b *Batch) allow(slot, n int32) {
	p := b.p
	if n > 0 {
		p.allowed.slots.set(slot)
	} else {
		p.allowed.slots.clear(slot)
	}
	for i := range p.hardSpread {
		s := &p.hardSpread[i]
		s.stale = true
		if v := b.fleet.valueOf(s.domain, slot); v >= 0 && b.fleet.domains[s.domain].key != SpreadByNode {
			s.servers[v] += n
		}
	}
}

// allowsClass reports whether the class of the server at slot allows the request.
func (b *Batch) allowsClass(slot int32) bool {
	c := b.fleet.classes[b.fleet.rows[slot].class]
	if !c.open || b.verdict(slot) != verdictKept {
		return false
	}
	b.see(slot)
	return b.p.fitsEmpty(&b.view)
}

// allowsServer asks the filters whose answer depends on the server itself.
func (b *Batch) allowsServer(slot int32) bool {
	b.see(slot)
	for _, stage := range b.p.byServer {
		if !b.chain.stages[stage].Keep(&b.view) {
			return false
		}
	}
	for _, item := range b.p.allowed.items {
		if !b.holds(item, &b.view, b.p.allowed.counts) {
			return false
		}
	}
	return true
}

// see points the view at a server, which need not be in the batch.
func (b *Batch) see(slot int32) {
	r := &b.fleet.rows[slot]
	b.view.slot, b.view.row, b.view.class = slot, r, b.fleet.classes[r.class]
}

// findLowest finds the value that counts and has the fewest instances of the group. Of several
// values of a label it is the first by name, so that a copy of the fleet names the same.
func (f *Fleet) findLowest(s *hardSpread, slots bitmap) {
	s.stale, s.seen, s.lowAt = false, s.version, -1
	least := func(value int32) {
		if n := s.at(value); s.lowAt < 0 || n < s.low {
			s.low, s.lowAt = n, value
		}
	}
	if f.domains[s.domain].key == SpreadByNode {
		for i, word := range slots {
			for ; word != 0; word &= word - 1 {
				least(int32(i*64 + bits.TrailingZeros64(word)))
			}
		}
	} else {
		for v, n := range s.servers {
			if n <= 0 {
				continue
			}
			value := int32(v)
			least(value)
			if s.at(value) == s.low && f.valueName(s.domain, value) < f.valueName(s.domain, s.lowAt) {
				s.lowAt = value
			}
		}
	}
	if s.lowAt < 0 {
		s.low = 0
	}
}

// counted reports whether a value has an allowed server.
func (p *Prepared) counted(s *hardSpread, value int32) bool {
	if p.fleet.domains[s.domain].key == SpreadByNode {
		return p.allowed.slots.has(value)
	}
	return int(value) < len(s.servers) && s.servers[value] > 0
}

// neighbours returns a number that changes with every instance that comes or goes, of those that
// the request must be near to or far from.
func (p *Prepared) neighbours() (sum uint64) {
	for _, list := range [...][]selector{p.hardNear, p.hardFar} {
		for i := range list {
			if list[i].id == "" {
				sum += p.fleet.tags.info[list[i].tag].version
				continue
			}
			slot, _, _ := p.fleet.locate(list[i].id)
			sum = sum*31 + uint64(slot+2)<<40
		}
	}
	return sum
}

// skewed returns the first hard spread that one more instance on the server would break, -1 if
// there is none.
func (v *View) skewed() int {
	for i := range v.p.hardSpread {
		s := &v.p.hardSpread[i]
		value := v.fleet.valueOf(s.domain, v.slot)
		if value < 0 || s.at(value)+1-s.low > v.p.Request.Constraints.Spread[i].MaxSkew {
			return i
		}
	}
	return -1
}

func whySpread(v *View) string {
	i := v.skewed()
	if i < 0 {
		return ""
	}
	s, by := &v.p.hardSpread[i], v.p.Request.Constraints.Spread[i].By
	if v.fleet.valueOf(s.domain, v.slot) < 0 {
		return "has no " + by
	}
	why := "too many of the group in its " + by
	switch {
	case s.fixed:
		return fmt.Sprintf("%s: the fewest is %d", why, s.low)
	case s.lowAt < 0:
		return fmt.Sprintf("%s: no %s has a node that the other constraints allow", why, by)
	}
	return fmt.Sprintf("%s: %s %s has the fewest, %d", why, by, v.fleet.valueName(s.domain, s.lowAt), s.low)
}

// SpreadCount says which values of a label a hard spread compares: the values of servers that the
// request's other constraints allow.
type SpreadCount struct {
	By        string
	MaxSkew   int32
	Values    int      // values that servers of the fleet have
	Counted   int      // values that are compared
	Fewest    int      // fewest instances of the group in a value that is compared
	FewestIn  string   // a value with that number; empty: no value is compared
	Uncounted []string // at most ten of the values that are not compared, in the order of the servers
}

// spreadCounts returns the values that each hard spread of the request compares.
func (p *Prepared) spreadCounts() (out []SpreadCount) {
	f := p.fleet
	for i := range p.hardSpread {
		s, spread := &p.hardSpread[i], &p.Request.Constraints.Spread[i]
		c := SpreadCount{By: spread.By, MaxSkew: spread.MaxSkew, Fewest: int(s.low)}
		if s.lowAt >= 0 {
			c.FewestIn = f.valueName(s.domain, s.lowAt)
		}
		var seen bitmap
		for slot := range f.rows {
			if f.classAt[slot] == noClass {
				continue
			}
			v := f.valueOf(s.domain, int32(slot))
			if v < 0 || seen.has(v) {
				continue
			}
			seen.set(v)
			c.Values++
			if p.counted(s, v) {
				c.Counted++
			} else if len(c.Uncounted) < examples {
				c.Uncounted = append(c.Uncounted, f.valueName(s.domain, v))
			}
		}
		out = append(out, c)
	}
	return out
}

// String returns the count in one line: "spread by rack: r2 has the fewest, 1, of 2 that count; 8
// others have no node that the other constraints allow".
func (c *SpreadCount) String() string {
	if c.Counted == 0 {
		return fmt.Sprintf(
			"spread by %s: no value counts, because none has a node that the other constraints allow", c.By,
		)
	}
	text := fmt.Sprintf("spread by %s: %s has the fewest, %d", c.By, c.FewestIn, c.Fewest)
	switch left := c.Values - c.Counted; left {
	case 0:
	case 1:
		text += fmt.Sprintf(", of %d that count; 1 other has no node that the other constraints allow", c.Counted)
	default:
		text += fmt.Sprintf(
			", of %d that count; %d others have no node that the other constraints allow", c.Counted, left,
		)
	}
	return text
}
