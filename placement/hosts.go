package placement

// bitmap is a set of slots.
type bitmap []uint64

func (m bitmap) has(slot int32) bool {
	word := int(slot >> 6)
	return word < len(m) && m[word]&(1<<(slot&63)) != 0
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
