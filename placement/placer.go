package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Choice is the result of a placement.
type Choice struct {
	Slot    int32 // slot of the chosen server; -1: none
	Score   float64
	Looked  int // open servers that were looked at
	Batches int
	Loads   int // servers whose instances were loaded
	Peak    int // most loaded instances held at once
}

// Placer runs chains over a fleet, in batches of servers drawn in random order. Its owner is that
// of the fleet.
type Placer struct {
	fleet *Fleet
	draw  *Draw
	batch Batch
}

// NewPlacer returns a placer whose draws follow from rng.
func NewPlacer(f *Fleet, rng *rand.PCG) *Placer {
	return &Placer{
		fleet: f, draw: NewDraw(rng), batch: Batch{fleet: f, ids: map[string]place{}, fault: map[int32]string{}},
	}
}

// Verdicts on a class. From verdictDropped on, a verdict is verdictDropped plus the index of the
// stage that drops the class.
const (
	verdictUnknown = iota
	verdictKept
	verdictClosed // not even counted as looked at, as if a query for servers had left it out
	verdictDropped
)

// judge asks the filters by class about a class and notes the verdict. slot is any server of the
// class.
func (b *Batch) judge(id uint32, slot int32) uint8 {
	f := b.fleet
	verdict := uint8(verdictKept)
	b.view.slot, b.view.row, b.view.class, b.view.anyOf = slot, &f.rows[slot], f.classes[id], true
	defer func() { b.view.anyOf = false }()
	for _, stage := range b.p.byClass {
		s := &b.chain.stages[stage]
		if s.Keep(&b.view) {
			continue
		}
		if s.Closes { // a closed server is closed whatever other filters answer
			verdict = verdictClosed
			break
		}
		if verdict == verdictKept {
			verdict = verdictDropped + uint8(stage)
		}
	}
	b.p.verdicts[id] = verdict
	return verdict
}

// verdict returns the verdict on the class of a server. The slot must not be vacant.
func (b *Batch) verdict(slot int32) uint8 {
	id := b.fleet.rows[slot].class
	if v := b.p.verdicts[id]; v != verdictUnknown {
		return v
	}
	return b.judge(id, slot)
}

// begin prepares the batch for a request; now is in Unix seconds.
func (pl *Placer) begin(p *Prepared, now int64) *Batch {
	b := &pl.batch
	b.p, b.chain, b.now = p, p.chain, now
	b.inOrder = pl.fleet.ordering != nil
	b.view = View{batch: b, fleet: pl.fleet, p: p}
	b.loads, b.peak = 0, 0
	b.flow, b.drops = zeros(b.flow, len(b.chain.stages)), zeros(b.drops, len(b.chain.stages))
	clear(b.fault)
	if p.bounded != pl.fleet.bounded {
		p.choose()
	}
	if p.epoch != pl.fleet.epoch {
		p.epoch = pl.fleet.epoch
		clear(p.verdicts)
	}
	for len(p.verdicts) < len(pl.fleet.classes) {
		p.verdicts = append(p.verdicts, verdictUnknown)
	}
	p.resolve()
	if len(p.hardSpread) > 0 {
		b.compareValues()
	}
	return b
}

// zeros returns n zero values, in the memory of s if they fit.
func zeros[V any](s []V, n int) []V {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// Place returns the server that the request's chain chooses: the best of the first batch with a
// survivor. The answer is none only if every server was looked at and none survived. now is in Unix
// seconds.
func (pl *Placer) Place(p *Prepared, now int64) Choice {
	b := pl.begin(p, now)
	c := Choice{Slot: -1}
	n, size := pl.fleet.Len(), p.chain.size(pl.fleet.Len())
	var order []int32 // nil: the servers are drawn
	if o := pl.fleet.ordering; o != nil {
		order = o.servers(pl.fleet)
		if n = len(order); o.kept > 0 {
			size = n // a reservoir waits for all others
		}
	} else {
		pl.draw.resize(n)
	}
	for i := 0; i < n && c.Slot < 0; {
		b.reset(pl.draw.rng.Uint64())
		if order != nil {
			i = pl.fillInOrder(b, order, i, size, &c)
		} else {
			i = pl.fill(b, i, size, &c)
		}
		c.Batches++
		if b.record != nil {
			b.record.begin(b)
		}
		skip := p.chain.prefix
		if b.record != nil {
			skip = 0
		}
		if best := b.run(skip); best >= 0 {
			c.Slot, c.Score = b.slots[best], b.score[best]
		}
		b.done()
	}
	c.Loads, c.Peak = b.loads, b.peak
	b.choice = c
	p.watchOwner(c.Looked)
	return c
}

// size returns how many open servers make a batch.
func (c *Chain) size(servers int) int {
	switch {
	case c.Settings.All:
		return servers
	case c.Settings.Batch <= 0:
		return DefaultBatch
	}
	return c.Settings.Batch
}

// wholeAtOnce reports whether n servers are many and make one batch. Their order then does not
// matter, and they are read in the order of their slots, which is the fastest.
func wholeAtOnce(size, n int) bool { return size >= n && n > manyServers }

// fill draws servers from the i-th on until size of them are open. It adds those that pass the
// filters on records to the batch and returns the place of the next draw.
func (pl *Placer) fill(b *Batch, i, size int, c *Choice) int {
	n := pl.fleet.Len()
	if wholeAtOnce(size, n) {
		c.Looked += pl.addPassing(b, pl.draw.all(n))
		return n
	}
	for open := 0; i < n && open < size; {
		drawn := pl.draw.next(i, min(size-open, n-i))
		for _, slot := range drawn {
			b.prefetched += pl.fleet.classAt[slot]
		}
		found := pl.addPassing(b, drawn)
		open += found
		c.Looked += found
		i += len(drawn)
	}
	b.prefetch()
	return i
}

// fillInOrder is fill for servers in an order.
func (pl *Placer) fillInOrder(b *Batch, order []int32, i, size int, c *Choice) int {
	for open := 0; i < len(order) && open < size; {
		next := order[i:min(i+size-open, len(order))]
		found := pl.addPassing(b, next)
		open += found
		c.Looked += found
		i += len(next)
	}
	b.prefetch()
	return i
}

// addPassing adds the drawn servers that pass the filters on records to the batch, and returns how
// many of the drawn ones are open.
func (pl *Placer) addPassing(b *Batch, drawn []int32) (open int) {
	f, verdicts, all := pl.fleet, b.p.verdicts, len(b.p.byServer) == 0
	for _, slot := range drawn {
		id := f.classAt[slot]
		if id == noClass {
			continue
		}
		verdict := verdicts[id]
		if verdict == verdictUnknown {
			verdict = b.judge(id, slot)
		}
		if verdict != verdictClosed {
			open++
		}
		switch {
		case b.record != nil, verdict == verdictKept && (all || b.passes(slot)):
			b.add(slot)
		case verdict >= verdictDropped:
			b.drops[verdict-verdictDropped]++
		}
	}
	return open
}

// passes asks the filters of the prefix that need the server itself, not only its class.
func (b *Batch) passes(slot int32) bool {
	if len(b.p.byServer) == 0 {
		return true
	}
	r := &b.fleet.rows[slot]
	b.view.slot, b.view.row, b.view.class = slot, r, b.fleet.classes[r.class]
	for _, stage := range b.p.byServer {
		if !b.chain.stages[stage].Keep(&b.view) {
			b.drops[stage]++
			return false
		}
	}
	return true
}

// Keeps reports whether every filter of single servers keeps a server, whose instances the fleet
// must hold. Filters that compare servers are not asked.
func (pl *Placer) Keeps(p *Prepared, slot int32, now int64) bool {
	return pl.begin(p, now).keeps(slot)
}

// KeepsAny reports whether Keeps is true of one of the servers.
func (pl *Placer) KeepsAny(p *Prepared, slots []int32, now int64) bool {
	return slices.ContainsFunc(slots, pl.begin(p, now).keeps)
}

func (b *Batch) keeps(slot int32) bool {
	if b.fleet.classAt[slot] == noClass || b.verdict(slot) != verdictKept || !b.passes(slot) {
		return false
	}
	b.reset(0)
	b.add(slot)
	root, v := b.chain.root, b.At(0)
	all := func(*Stage) bool { return true }
	if root.op != "pipe" {
		return b.holds(root, v, all)
	}
	for _, item := range root.items[b.chain.prefix:] {
		if !b.holds(item, v, all) {
			return false
		}
	}
	return true
}

// holds reports whether a part of the chain keeps a server: all parts of a pipe, or one part of an
// or. Only filters of single servers are asked, and of those only the ones for which counts is
// true.
func (b *Batch) holds(n *node, v *View, counts func(*Stage) bool) bool {
	if n.op == "" {
		s := &b.chain.stages[n.stage]
		return s.Keep == nil || b.p.skips[n.stage] || !counts(s) || s.Keep(v)
	}
	for _, item := range n.items {
		if b.holds(item, v, counts) == (n.op == "or") {
			return n.op == "or"
		}
	}
	return n.op == "pipe"
}

// volumes is the place of the instances whose volumes a request wants.
type volumes struct {
	slot int32  // server of all of them; -1: none
	why  string // why a server without the volumes is dropped
}

// resolve finds the servers of the instances that a request names.
func (p *Prepared) resolve() {
	if list := p.Request.Constraints.VolumesFrom; len(list) > 0 {
		p.volumes = p.fleet.volumesOf(list)
	}
	for _, list := range [...][]selector{p.hardNear, p.hardFar, p.softNear, p.softFar} {
		for i := range list {
			if list[i].id == "" {
				continue
			}
			slot, owner, err := p.fleet.locate(list[i].id)
			if err != nil || p.Request.OwnOnly && owner != p.Request.Owner {
				slot = -1
			}
			list[i].slot = slot
		}
	}
}

func (f *Fleet) volumesOf(ids []string) volumes {
	why := "does not hold the volumes of " + strings.Join(ids, ", ")
	first := int32(-1)
	for i, id := range ids {
		slot, err := f.holder(id)
		if err != nil {
			return volumes{-1, err.Error()}
		}
		if i == 0 {
			first = slot
		}
		if slot < 0 {
			return volumes{-1, "instance " + id + ", whose volumes are asked for, is not on any server"}
		}
		if slot != first {
			return volumes{-1, why + ", which are on different servers"}
		}
	}
	return volumes{first, why}
}

// volumesAt returns the server that holds the volumes of all these instances; -1 if there is none.
func (f *Fleet) volumesAt(ids []string) int32 {
	at := int32(-1)
	for i, id := range ids {
		slot, err := f.holder(id)
		if err != nil || slot < 0 || i > 0 && slot != at {
			return -1
		}
		at = slot
	}
	return at
}

// holder returns the server that holds the volumes of an instance.
func (f *Fleet) holder(id string) (int32, error) {
	if f.Loader.Volumes == nil {
		if err := f.onOneServer(id); err != nil {
			return -1, err
		}
		slot, _, err := f.locate(id)
		return slot, err
	}
	server, err := f.Loader.Volumes(id)
	if err != nil {
		return -1, fmt.Errorf("look up the volumes of %s: %w", id, err)
	}
	return f.Slot(server), nil
}

func (v *View) holdsVolumes() bool { return v.p.volumes.slot == v.slot }
