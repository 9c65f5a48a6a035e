package placement

import (
	"github.com/plimsoll-dev/plimsoll"
)

// SpreadTally counts the instances of a group on one part of a fleet, by value of a label. The
// tallies of all parts make a GroupSpread.
type SpreadTally map[string]SpreadValue

// SpreadValue is the count of one value of a label. The value of a spread by node is a server's id.
type SpreadValue struct {
	Instances int32 // instances of the group
	Counts    bool  // the value has a server that the request's other constraints allow, so Fewest compares it
}

// GroupSpread is the spread of a group over a whole fleet by one label. A fleet with a part of the
// servers, or one that loads their instances, cannot count it; see Loader.Spreads.
type GroupSpread struct {
	Instances map[string]int32 // instances of the group by value
	Fewest    int32            // fewest instances in a value that counts
}

// Spreads returns a tally of the request's group for each spread, constraints first. The fleet must
// hold its instances, and also those that the request is to be near to or far from.
func (pl *Placer) Spreads(p *Prepared, now int64) []SpreadTally {
	pl.begin(p, now)
	var out []SpreadTally
	for i := range p.hardSpread {
		s := &p.hardSpread[i]
		out = append(out, pl.fleet.tally(s.counter, func(v int32) bool { return p.counted(s, v) }))
	}
	for _, c := range p.softSpread { // soft spreads compare no values
		out = append(out, pl.fleet.tally(c, func(int32) bool { return false }))
	}
	return out
}

// tally returns the values of a counter that count or have instances. Of the servers that count
// without instances one is enough, because the parts of a fleet share no server.
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

// MergeSpreads adds up the tallies of the parts of a fleet. Each part has a tally for each spread
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

// spreadsGiven asks the fleet's loader for the spread of a request's group, and sets the counters
// of the request to it.
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
