package placement

import (
	"maps"
	"slices"
)

// Copying is a copy of a fleet in the making. The copy shows the fleet as it was when Copy was
// called, whatever happens to the fleet meanwhile: a server is copied just before its first change.
// The calls of Continue may lie far apart, and each costs only the servers that it copies. A fleet
// has one copy in the making at a time.
//
//	c := fleet.Copy()
//	for !c.Continue(10_000) {
//		… // the fleet may change
//	}
//	fork := c.Fork()
type Copying struct {
	from, to *Fleet
	next     int32    // Invariant: all slots below it are copied
	ahead    bitmap   // slots from next on that are already copied
	tags     []uint32 // by tag of from: its number in to; 0: no copied server has it
	owners   arena
	tallies  arena
}

// arena holds many short lists of counts in one slice. Its lists never change.
type arena []tally

// Copy begins a copy; Continue copies the servers.
func (f *Fleet) Copy() *Copying {
	f.copying.finish()
	n := len(f.rows)
	to := &Fleet{
		Names: f.Names.Clone(), rows: make([]row, n), sketches: make([]sketch, n), classAt: make([]uint32, n),
		loads: make([]load, n),
		ids:   make([]string, n), classes: slices.Clone(f.classes), epoch: 1, servers: f.servers, bounded: f.bounded,
		instances: maps.Clone(f.instances),
		tickets:   maps.Clone(f.tickets), pending: map[int32][]string{}, tags: tags{base: make([]string, 1)},
		ordering: f.ordering.fresh(),
	}
	if len(f.duplicates) > 0 {
		to.duplicates = map[string][]string{}
		for _, id := range sortedKeys(f.duplicates) {
			to.duplicates[id] = slices.Clone(f.duplicates[id])
		}
	}
	for _, slot := range slices.Sorted(maps.Keys(f.pending)) {
		to.pending[slot] = slices.Clone(f.pending[slot])
	}
	c := &Copying{from: f, to: to, tags: make([]uint32, len(f.tags.info))}
	f.copying = c
	return c
}

// changing tells the copy in the making and the order that a server is about to change. Each method
// that changes a copied field of a server calls it first.
func (f *Fleet) changing(slot int32) {
	if f.copying != nil {
		f.copying.save(slot)
	}
	if f.ordering != nil {
		f.ordering.touch(slot)
	}
}

// save copies a server that is about to change, unless it is already copied.
func (c *Copying) save(slot int32) {
	if slot >= c.next && int(slot) < len(c.to.rows) && !c.ahead.has(slot) {
		c.server(slot)
		c.ahead.set(slot)
	}
}

// Continue copies about so many more servers, and reports whether the copy is complete.
func (c *Copying) Continue(servers int) (done bool) {
	if c.from == nil {
		return true
	}
	for ; servers > 0 && int(c.next) < len(c.to.rows); c.next++ {
		if !c.ahead.has(c.next) {
			c.server(c.next)
			servers -= 1 + (len(c.to.rows[c.next].owners)+len(c.to.loads[c.next].tags))/instancesOfOne
		}
	}
	if int(c.next) < len(c.to.rows) {
		return false
	}
	c.from.copying = nil
	c.from, c.ahead, c.tags = nil, nil, nil
	return true
}

// instancesOfOne is the number of owners and tags that cost about as much to copy as a server.
const instancesOfOne = 16

// finish copies all remaining servers.
func (c *Copying) finish() {
	if c != nil {
		c.Continue(len(c.to.rows) + 1<<30)
	}
}

// server copies one server. The tags of its instances get numbers of the copy.
func (c *Copying) server(slot int32) {
	from, to := c.from, c.to
	to.ids[slot], to.classAt[slot], to.rows[slot] = from.ids[slot], from.classAt[slot], from.rows[slot]
	r, l := &from.rows[slot], &from.loads[slot]
	copied := &to.loads[slot]
	copied.used, copied.last = l.used, l.last
	to.rows[slot].owners = nil
	if len(r.owners) > 0 {
		start := len(c.owners)
		for _, owner := range r.owners {
			number := c.tag(owner.tag)
			c.owners = append(c.owners, tally{number, owner.n})
			to.sketches[slot].add(number)
		}
		to.rows[slot].owners = c.owners[start:len(c.owners):len(c.owners)]
	}
	if len(l.tags) > 0 {
		start := len(c.tallies)
		for _, t := range l.tags {
			c.tallies = append(c.tallies, tally{c.tag(t.tag), t.n})
		}
		copied.tags = c.tallies[start:len(c.tallies):len(c.tallies)]
	}
}

// tag returns the number of a tag in the copy. The number in the copied fleet still means the same
// tag as when the copy began, because booked instances refer to it.
func (c *Copying) tag(id uint32) uint32 {
	for len(c.tags) <= int(id) {
		c.tags = append(c.tags, 0)
	}
	if c.tags[id] == 0 {
		c.tags[id] = uint32(len(c.to.tags.base))
		c.to.tags.base = append(c.to.tags.base, c.from.tags.info[id].name)
	}
	return c.tags[id]
}

// Fork returns a fleet equal to the copied one, with requests and placers of its own: its bookings
// change no other fleet. Servers cannot be added to it or removed. The copy must be complete, and
// does not change: several goroutines may fork it at a time. The fork has no Loader. A fork costs
// as much as the copy.
func (c *Copying) Fork() *Fleet {
	from := c.to
	f := &Fleet{
		Names: from.Names.Clone(), rows: slices.Clone(from.rows), sketches: slices.Clone(from.sketches),
		classAt: from.classAt,
		loads:   slices.Clone(from.loads), ids: from.ids, classes: from.classes, epoch: 1, servers: from.servers,
		bounded: from.bounded, instances: from.instances,
		duplicates: from.duplicates, tickets: from.tickets, pending: from.pending,
		ordering: from.ordering.fresh(),
	}
	f.tags = tags{index: map[string]uint32{}, base: from.tags.base, info: make([]tagInfo, len(from.tags.base))}
	for id := range f.tags.info {
		f.tags.info[id].refs = 1 // of the booked instances
	}
	owners, tallies := make(arena, 0, len(c.owners)), make(arena, 0, len(c.tallies))
	for slot := range f.rows {
		f.rows[slot].owners = owners.put(f.rows[slot].owners)
		f.loads[slot].tags = tallies.put(f.loads[slot].tags)
	}
	return f
}

// put appends a list to the arena and returns the list as it stands there.
func (a *arena) put(list []tally) []tally {
	if len(list) == 0 {
		return nil
	}
	start := len(*a)
	*a = append(*a, list...)
	return (*a)[start:len(*a):len(*a)]
}

// reindex builds the index of a fork by server id, on its first use.
func (f *Fleet) reindex() {
	f.index = make(map[string]int32, f.servers)
	for slot, id := range f.ids {
		if _, twice := f.index[id]; id != "" && !twice {
			f.index[id] = int32(slot)
		}
	}
}

// fewLooks is how many tags of a fork are searched one by one before the index of all tags is
// built.
const fewLooks = 16

// find searches the tags that a fork began with, and returns the id of the tag, 0 if there is none.
// A tag that is found enters the index.
func (t *tags) find(name string) uint32 {
	if t.looks++; t.looks == fewLooks {
		for id := 1; id < len(t.base); id++ {
			t.index[t.base[id]] = uint32(id)
			t.info[id].name = t.base[id]
		}
	}
	if t.looks >= fewLooks {
		return t.index[name]
	}
	for id := 1; id < len(t.base); id++ {
		if t.base[id] == name {
			t.index[name] = uint32(id)
			t.info[id].name = name
			return uint32(id)
		}
	}
	return 0
}

// Keep detaches the decision from the ring, so that a later Note does not overwrite it.
func (d *Decision) Keep() {
	n := *d.kept
	n.p = &Prepared{Request: n.p.Request, chain: n.p.chain, watched: slices.Clone(n.p.watched)}
	n.names = slices.Clone(n.names)
	n.steps = slices.Clone(n.steps)
	n.servers = slices.Clone(n.servers)
	n.custom = slices.Clone(n.custom)
	n.tags = slices.Clone(n.tags)
	n.counts = slices.Clone(n.counts)
	n.lowest = slices.Clone(n.lowest)
	d.kept = &n
}
