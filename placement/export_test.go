package placement

import (
	"fmt"
	"strings"
)

// Dump writes everything that a fleet knows of its servers and their instances, in a fixed order.
// It leaves out values that are computed on demand, such as the lowest count of a spread.
func (f *Fleet) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "servers %d names %v\n", f.servers, f.Names.names)
	for slot := range f.rows {
		r, l := &f.rows[slot], &f.loads[slot]
		if r.flags&present == 0 {
			fmt.Fprintf(&b, "%d vacant %q count %d used %v tags %v\n", slot, f.ids[slot], r.count, l.used, l.tags)
			continue
		}
		fmt.Fprintf(&b, "%d %q class %x free %v count %d uncapped %d tickets %d flags %b owners %v used %v tags %v last %v booked %q pending %q\n",
			slot, f.ids[slot], f.classes[r.class].key, r.free, r.count, r.uncapped, r.tickets, r.flags, r.owners,
			l.used,
			l.tags, l.last, f.instancesOn[int32(slot)], f.pending[int32(slot)])
	}
	for _, c := range f.classes {
		fmt.Fprintf(&b, "class %x servers %d open %t\n", c.key, c.servers, c.open)
	}
	for _, name := range sortedKeys(f.index) {
		fmt.Fprintf(&b, "index %q %d\n", name, f.index[name])
	}
	for _, name := range sortedKeys(f.tags.index) {
		info := &f.tags.info[f.tags.index[name]]
		fmt.Fprintf(&b, "tag %q refs %d version %d\n", name, info.refs, info.version)
		for _, c := range info.counters {
			fmt.Fprintf(&b, "  by %s refs %d %v\n", f.domains[c.domain].key, c.refs, f.spreadCounts(c))
		}
	}
	for _, id := range sortedKeys(f.instances) {
		fmt.Fprintf(&b, "instance %q on %d\n", id, f.instances[id].slot)
	}
	for _, id := range sortedKeys(f.tickets) {
		fmt.Fprintf(&b, "ticket %q on %d\n", id, f.tickets[id].slot)
	}
	return b.String()
}

// TagNames returns the names of all tags that somebody refers to.
func (f *Fleet) TagNames() []string { return sortedKeys(f.tags.index) }

// TagSpace returns how many tags there is room for.
func (f *Fleet) TagSpace() int { return len(f.tags.info) }

// Domains returns how many labels the fleet keeps counts by.
func (f *Fleet) Domains() int { return len(f.domains) }

// Epoch grows when classes are swept.
func (f *Fleet) Epoch() uint64 { return f.epoch }

// OwnedOn returns how many instances of the request's owner are counted on a server.
func (pl *Placer) OwnedOn(p *Prepared, slot int32) int {
	b := pl.begin(p, 0)
	b.reset(0)
	b.add(slot)
	return b.At(0).Owned()
}

// InGroup returns how many instances of a group are counted on a server.
func (f *Fleet) InGroup(slot int32, job, group string) int {
	return int(tallied(f.loads[slot].tags, f.tags.index[groupTag(job, group)]))
}

// OfJob returns how many instances of a job are counted on a server.
func (f *Fleet) OfJob(slot int32, job string) int {
	return int(tallied(f.loads[slot].tags, f.tags.index[jobTag(job)]))
}

// WithLabel returns how many instances with a label are counted on a server.
func (f *Fleet) WithLabel(slot int32, pair string) int {
	return int(tallied(f.loads[slot].tags, f.tags.index[labelTag(pair)]))
}

// Lowest returns the fewest instances of the request's group in a value of its i-th hard spread
// that counts.
func (pl *Placer) Lowest(p *Prepared, i int) int {
	pl.begin(p, 0)
	return int(p.hardSpread[i].low)
}

// In returns how many instances of the request's group are counted for the server's value of its
// i-th hard spread; -1 if it has none.
func (p *Prepared) In(i int, slot int32) int {
	c := p.hardSpread[i].counter
	value := p.fleet.valueOf(c.domain, slot)
	if value < 0 {
		return -1
	}
	return int(c.at(value))
}

// CheckClasses recomputes how many servers each class has.
func (f *Fleet) CheckClasses() error {
	counts, dead := make([]int, len(f.classes)), 0
	for slot := range f.rows {
		if r := &f.rows[slot]; r.flags&present != 0 {
			counts[r.class]++
		}
	}
	for id, c := range f.classes {
		if c.servers != counts[id] {
			return fmt.Errorf("class %d says %d servers, there are %d", id, c.servers, counts[id])
		}
		if c.servers == 0 {
			dead++
		}
		if f.byKey[c.key] != uint32(id) {
			return fmt.Errorf("class %d is found as %d", id, f.byKey[c.key])
		}
	}
	if len(f.byKey) != len(f.classes) || dead != f.dead {
		return fmt.Errorf(
			"%d classes, %d keys; %d without servers, counted %d", len(f.classes), len(f.byKey), dead, f.dead,
		)
	}
	return nil
}

// spreadCounts returns the counts of a counter by value.
func (f *Fleet) spreadCounts(c *counter) map[string]int32 {
	out := map[string]int32{}
	for v, n := range c.counts {
		if n != 0 {
			out[f.valueName(c.domain, int32(v))] = n
		}
	}
	return out
}

// Hundredths is a ratio as it is compared.
func Hundredths(ratio float64) int64 { return hundredths(ratio) }
