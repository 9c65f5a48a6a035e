package placement

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// SpreadTally is what the servers of a part of a fleet have of a group, by value of a label. Those
// of all parts together make a SpreadCount.
type SpreadTally map[string]SpreadValue

// SpreadValue is one value of a label. The value of a spread by node is the id of a server.
type SpreadValue struct {
	Instances int32 // of the group
	Counts    bool  // the value has a server that counts: the fewest are looked for here too
}

// SpreadCount says how a group is spread over a whole fleet by one label. A fleet that holds but a
// part of the servers, or loads their instances, cannot count it; see Loader.Spreads.
type SpreadCount struct {
	Instances map[string]int32 // of the group, by value
	Fewest    int32            // in a value that counts
}

// Spreads returns what the servers of the fleet have of the request's group: a tally for each
// spread, constraints first. The fleet must hold its instances.
func (p *Prepared) Spreads() []SpreadTally {
	var out []SpreadTally
	for _, c := range slices.Concat(p.hardSpread, p.softSpread) {
		out = append(out, p.fleet.tally(c))
	}
	return out
}

// tally returns the values of a counter that count or have instances. Of servers that count and
// have none it names one: the parts of a fleet have no server in common, so one says it all.
func (f *Fleet) tally(c *counter) SpreadTally {
	d := &f.domains[c.domain]
	out, empty := SpreadTally{}, false
	for v := range int32(max(len(d.open), len(c.counts))) {
		value := SpreadValue{Instances: c.at(v), Counts: int(v) < len(d.open) && d.open[v] > 0}
		switch {
		case value == SpreadValue{}:
			continue
		case d.key != SpreadByNode:
			out[d.names[v]] = value
			continue
		case value.Instances == 0 && empty:
			continue
		}
		empty = empty || value.Instances == 0
		out[f.ids[v]] = value
	}
	return out
}

// MergeSpreads adds up the tallies of the parts of a fleet, each of which has one for each spread
// of the same request.
func MergeSpreads(parts ...[]SpreadTally) []SpreadCount {
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
	out := make([]SpreadCount, len(sums))
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
	counters := slices.Concat(p.hardSpread, p.softSpread)
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
		c.low, c.given = given[i].Fewest, true
	}
	return nil
}
