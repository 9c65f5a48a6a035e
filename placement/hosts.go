package placement

// bitmap is a set of slots.
type bitmap []uint64

func (m bitmap) has(slot int32) bool {
	word := int(slot >> 6)
	return word < len(m) && m[word]&(1<<(slot&63)) != 0
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

// watchOwner keeps a bitmap of the servers that have instances of an owner, for as long as somebody
// watches it: a request that was compared with so many servers that looking through the fleet once
// is cheaper than looking into the list of every server again.
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

// hosting says that a server has now, or no longer has, instances of an owner.
func (f *Fleet) hosting(slot int32, owner uint32, has bool) {
	switch info := &f.tags.info[owner]; {
	case info.watchers == 0:
	case has:
		info.hosts.set(slot)
	default:
		info.hosts.clear(slot)
	}
}

// watch begins to watch the owner of a request that looks at many servers.
func (p *Prepared) watchOwner(looked int) {
	p.looked += looked
	if !p.watching && p.chain.Settings.OwnerSpread && !p.fleet.lazy() && p.looked > 4*p.fleet.Len() {
		p.watching = true
		p.fleet.watchOwner(p.owner)
	}
}

// withoutOwner drops the servers that have instances of the request's owner, unless that drops all.
func (b *Batch) withoutOwner(set []int32) []int32 {
	p := b.p
	if info := &b.fleet.tags.info[p.owner]; info.watchers > 0 {
		hosts := info.hosts
		return b.unlessAll(set, func(i int32) bool { return !hosts.has(b.slots[i]) })
	}
	b.warmOwners(set)
	return b.unlessAll(set, func(i int32) bool { return !b.fleet.hosts(b.slots[i], p.owner) })
}
