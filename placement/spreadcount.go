package placement

import (
	"github.com/plimsoll-dev/plimsoll"
)

// SpreadTally is what the servers of a part of a fleet have of a group, by value of a label. Those
// of all parts together make a GroupSpread.
type SpreadTally map[string]SpreadValue

// SpreadValue is one value of a label. The value of a spread by node is the id of a server.
type SpreadValue struct {
	Instances int32 // of the group
	Counts    bool  // the value has a server that counts: the fewest are looked for here too
}

// GroupSpread says how a group is spread over a whole fleet by one label. A fleet that holds but a
// part of the servers, or loads their instances, cannot count it; see Loader.Spreads.
type GroupSpread struct {
	Instances map[string]int32 // of the group, by value
	Fewest    int32            // in a value that counts
}

// Spreads returns what the servers of the fleet have of a request's group: a tally for each spread,
// constraints first. The fleet must hold its instances, and those that the request is to be near to
// or far from too.
func (pl *Placer) Spreads(p *Prepared, now int64) []SpreadTally {
	pl.begin(p, now)
	var out []SpreadTally
	for i := range p.hardSpread {
		s := &p.hardSpread[i]
		out = append(out, pl.fleet.tally(s.counter, func(v int32) bool { return p.counted(s, v) }))
	}
	for _, c := range p.softSpread { // no value is compared
		out = append(out, pl.fleet.tally(c, func(int32) bool { return false }))
	}
	return out
}

// tally returns the values of a counter that count or have instances. Of servers that count and
// have none it names one: the parts of a fleet have no server in common, so one says it all.
func (f *Fleet) tally(c *counter, counts func(value int32) bool) SpreadTally {
	d := &f.domains[c.domain]
	node := d.key == SpreadByNode
	values, empty := len(d.names), false
	if node {
		values = len(f.rows)
	}
	out := SpreadTally{}
	for v := range int32(values) {
		value := SpreadValue{Instances: c.at(v), Counts: counts(v)}
		switch {
		case value == SpreadValue{}:
		case !node:
			out[d.names[v]] = value
		case value.Instances > 0 || !empty:
			empty = empty || value.Instances == 0
			out[f.ids[v]] = value
		}
	}
	return out
}

// MergeSpreads adds up the tallies of the parts of a fleet, each of which has one for each spread
// of the same request.
func MergeSpreads(parts ...[]SpreadTally) []GroupSpread {
	var sums []SpreadTally
	for _, part := range parts {
		for i, tally := range part {
			if i == len(sums) {
				sums = append(sums, SpreadTally{})
			}
			for _, value := range sortedKeys(tally) {
				n, sum := tally[value], sums[i][value]
				sums[i][value] = SpreadValue{sum.Instances + n.Instances, sum.Counts || n.Counts}
			}
		}
	}
	out := make([]GroupSpread, len(sums))
	for i, sum := range sums {
		out[i].Instances = map[string]int32{}
		first := true
		for _, value := range sortedKeys(sum) {
			n := sum[value]
			if n.Instances > 0 {
				out[i].Instances[value] = n.Instances
			}
			if n.Counts && (first || n.Instances < out[i].Fewest) {
				out[i].Fewest, first = n.Instances, false
			}
		}
	}
	return out
}

// spreadsGiven asks the loader of the fleet how a request's group is spread, and holds the counters
// of the request to that.
func (p *Prepared) spreadsGiven() error {
	f := p.fleet
	given, err := f.Loader.Spreads(&p.Request)
	if err != nil {
		return err
	}
	counters := p.counters()
	if len(given) != len(counters) {
		return plimsoll.Invalid("spreads", "has %d entries; the request has %d spreads, and each needs one",
			len(given), len(counters))
	}
	for i, c := range counters {
		c.counts = c.counts[:0]
		d := &f.domains[c.domain]
		for _, value := range sortedKeys(given[i].Instances) {
			n := given[i].Instances[value]
			if d.key == SpreadByNode {
				c.add(f.Slot(value), n)
			} else {
				c.add(d.value(value), n)
			}
		}
		if i < len(p.hardSpread) {
			s := &p.hardSpread[i]
			s.low, s.lowAt, s.fixed = given[i].Fewest, -1, true
		}
	}
	return nil
}
