package placement

import "github.com/plimsoll-dev/plimsoll"

// SpreadByNode is the key of a spread over the servers themselves.
const SpreadByNode = "node"

// domain is a label that spreads use, with the values that servers have for it.
type domain struct {
	key    string
	index  map[string]int32
	names  []string
	values []int32 // by class: index of its value in names, -1 if it has none. Invariant: as long as Fleet.classes
	shared int     // number of counters that use the domain
}

func (d *domain) value(text string) int32 {
	v, ok := d.index[text]
	if !ok {
		v = int32(len(d.names))
		d.index[text] = v
		d.names = append(d.names, text)
	}
	return v
}

// counter counts the instances with a tag by the value of a domain.
type counter struct {
	tag     uint32
	domain  int
	refs    int
	counts  []int32
	version uint64 // grows whenever a count changes
}

// count returns the counter of a tag for a spread; the caller gives it back with uncount, and must
// hold a reference to the tag. The first counter of a tag that others refer to costs O(servers).
func (f *Fleet) count(tag uint32, s plimsoll.Spread) *counter {
	d := f.domain(s.By)
	info := &f.tags.info[tag]
	for _, c := range info.counters {
		if c.domain == d {
			c.refs++
			return c
		}
	}
	c := &counter{tag: tag, domain: d, refs: 1}
	info.counters = append(info.counters, c)
	f.domains[d].shared++
	if info.refs > 1 { // otherwise no instance has the tag: its kind would refer to it
		f.recount(c)
	}
	return c
}

func (f *Fleet) uncount(c *counter) {
	if c.refs--; c.refs > 0 {
		return
	}
	f.domains[c.domain].shared--
	info := &f.tags.info[c.tag]
	for i, other := range info.counters {
		if other == c {
			info.counters = append(info.counters[:i], info.counters[i+1:]...)
			return
		}
	}
}

// domain returns the index of the domain of a key. A new key replaces a domain without counters.
func (f *Fleet) domain(key string) int {
	d := len(f.domains)
	for i := range f.domains {
		switch o := &f.domains[i]; {
		case o.key == key:
			return i
		case o.shared == 0:
			d = i // no counter uses it
		}
	}
	if d == len(f.domains) {
		f.domains = append(f.domains, domain{})
	}
	f.domains[d] = domain{key: key, index: map[string]int32{}}
	f.domains[d].values = make([]int32, len(f.classes))
	for id, c := range f.classes {
		f.domains[d].values[id] = f.domainValue(d, c)
	}
	return d
}

// placeInDomains adds the values of a new class, which is the last one, to the domains.
func (f *Fleet) placeInDomains(c *class) {
	for d := range f.domains {
		f.domains[d].values = append(f.domains[d].values, f.domainValue(d, c))
	}
}

// domainValue returns the value of a class in a domain, -1 if it has none.
func (f *Fleet) domainValue(d int, c *class) int32 {
	if text, ok := c.record.Labels[f.domains[d].key]; ok {
		return f.domains[d].value(text)
	}
	return -1
}

// valueOf returns the value of a server in a domain, -1 if it has none.
func (f *Fleet) valueOf(d int, slot int32) int32 {
	if f.domains[d].key == SpreadByNode {
		return slot
	}
	return f.domains[d].values[f.rows[slot].class]
}

// valueName returns a value of a domain as users write it.
func (f *Fleet) valueName(d int, value int32) string {
	if f.domains[d].key == SpreadByNode {
		return f.ids[value]
	}
	return f.domains[d].names[value]
}

// valuesOf returns the number of values of a domain at most.
func (f *Fleet) valuesOf(d int) int {
	if f.domains[d].key == SpreadByNode {
		return len(f.rows)
	}
	return len(f.domains[d].names)
}

func (f *Fleet) recount(c *counter) {
	clear(c.counts)
	for slot := range f.rows {
		if n := tallied(f.loads[slot].tags, c.tag); n > 0 && f.rows[slot].flags&present != 0 {
			c.add(f.valueOf(c.domain, int32(slot)), int32(n))
		}
	}
	c.version++
}

func (c *counter) add(value, n int32) {
	if value < 0 {
		return
	}
	for len(c.counts) <= int(value) {
		c.counts = append(c.counts, 0)
	}
	c.counts[value] += n
	c.version++
}

func (c *counter) at(value int32) int32 {
	if int(value) < len(c.counts) {
		return c.counts[value]
	}
	return 0
}
