package placement

// bitmap is a set of slots.
type bitmap []uint64

func (m bitmap) has(slot int32) bool {
	return m.bit(slot) != 0
}

// bit is 1 if the set has a slot, and 0 otherwise.
func (m bitmap) bit(slot int32) uint32 {
	word := int(slot >> 6)
	if word >= len(m) {
		return 0
	}
	return uint32(m[word] >> (slot & 63) & 1)
}

func (m *bitmap) set(slot int32) {
	for int(slot>>6) >= len(*m) {
		*m = append(*m, 0)
	}
	(*m)[slot>>6] |= 1 << (slot & 63)
}

func (m bitmap) clear(slot int32) {
	if word := int(slot >> 6); word < len(m) {
		m[word] &^= 1 << (slot & 63)
	}
}

// watchOwner keeps a bitmap of the servers that have instances of an owner, until unwatchOwner. The
// bitmap serves requests that are compared with many servers: one pass over the fleet is then
// cheaper than a search of every server's list of owners.
func (f *Fleet) watchOwner(owner uint32) {
	info := &f.tags.info[owner]
	if info.watchers++; info.watchers > 1 {
		return
	}
	info.hosts = make(bitmap, (len(f.rows)+63)/64)
	for slot := range f.rows {
		if f.hosts(int32(slot), owner) {
			info.hosts.set(int32(slot))
		}
	}
}

func (f *Fleet) unwatchOwner(owner uint32) {
	info := &f.tags.info[owner]
	if info.watchers--; info.watchers == 0 {
		info.hosts = nil
	}
}

// noteHost notes that a server has instances of an owner, or has none any more.
func (f *Fleet) noteHost(slot int32, owner uint32, has bool) {
	switch info := &f.tags.info[owner]; {
	case info.watchers == 0:
	case has:
		info.hosts.set(slot)
	default:
		info.hosts.clear(slot)
	}
}

// watchOwner counts the servers that the request was compared with, and watches its owner from many
// on.
func (p *Prepared) watchOwner(looked int) {
	p.looked += looked
	if !p.watching && p.chain.Settings.OwnerSpread && !p.fleet.lazy() && p.looked > 4*p.fleet.Len() {
		p.watching = true
		p.fleet.watchOwner(p.owner)
	}
}

// withoutOwner drops the servers that have instances of the request's owner, unless it would drop
// all.
func (b *Batch) withoutOwner(set []int32) []int32 {
	p := b.p
	if info := &b.fleet.tags.info[p.owner]; info.watchers > 0 {
		hosts := info.hosts
		return b.unlessAll(set, func(i int32) bool { return !hosts.has(b.slots[i]) })
	}
	b.prefetchOwners(set)
	return b.unlessAll(set, func(i int32) bool { return !b.fleet.hosts(b.slots[i], p.owner) })
}

// addOwner counts an instance of an owner on a server; subOwner takes one off the count.
func (f *Fleet) addOwner(slot int32, owner uint32) {
	r := &f.rows[slot]
	if r.owners = addTally(r.owners, owner); r.owners[len(r.owners)-1] == (tally{owner, 1}) {
		f.noteHost(slot, owner, true)
		f.sketches[slot].add(owner)
	}
}

func (f *Fleet) subOwner(slot int32, owner uint32) {
	r := &f.rows[slot]
	before := len(r.owners)
	if r.owners = subTally(r.owners, owner); len(r.owners) < before {
		f.noteHost(slot, owner, false)
		f.sketches[slot] = sketch{}
		for _, o := range r.owners {
			f.sketches[slot].add(o.tag)
		}
	}
}

// owned returns how many instances of an owner a server has.
func (f *Fleet) owned(slot int32, owner uint32) uint32 {
	if !f.sketches[slot].mayHave(owner) {
		return 0
	}
	return tallied(f.rows[slot].owners, owner)
}

// ownedOf returns owned of each of some servers, in the memory of counts. Each step reads the
// memory of all of them, so that the processor waits for it a few times and not for each server.
func (f *Fleet) ownedOf(counts []uint32, slots []int32, owner uint32) []uint32 {
	has := counts[:0]
	if info := &f.tags.info[owner]; info.watchers > 0 {
		for _, slot := range slots {
			has = append(has, info.hosts.bit(slot))
		}
	} else {
		word, bit := sketchPlace(owner)
		for _, slot := range slots {
			has = append(has, uint32(f.sketches[slot][word]>>bit&1))
		}
	}
	for i, slot := range slots {
		if owners := f.rows[slot].owners; has[i] > 0 && len(owners) > 0 {
			has[i] += owners[0].n
		}
	}
	for i, slot := range slots {
		if has[i] > 0 {
			has[i] = tallied(f.rows[slot].owners, owner)
		}
	}
	return has
}

// hosts reports whether a server has instances of an owner.
func (f *Fleet) hosts(slot int32, owner uint32) bool {
	return f.owned(slot, owner) > 0
}

// sketch is a set of owners with false positives and no false negatives, as a Bloom filter with one
// hash. For most servers it saves a read of the list of owners, which is elsewhere in memory.
type sketch [8]uint64

// sketchPlace returns the place of an owner in a sketch.
func sketchPlace(owner uint32) (word, bit uint32) {
	h := owner * 0x9e3779b1 >> 23
	return h >> 6, h & 63
}

func (s *sketch) add(owner uint32) {
	word, bit := sketchPlace(owner)
	s[word] |= 1 << bit
}

func (s *sketch) mayHave(owner uint32) bool {
	word, bit := sketchPlace(owner)
	return s[word]>>bit&1 != 0
}
