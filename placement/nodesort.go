package placement

import (
	"cmp"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// defaultSortWeights are those of a NodeSort without weights.
var defaultSortWeights = map[string]float64{plimsoll.CPU: 1, plimsoll.Memory: 1}

// OrderBy makes placers try the servers in YuniKorn's order: those with the smallest mean share in
// use first, or with binpacking those with the largest, and of equals the one with the lower id.
// The filters of the chain still decide which servers fit. Its stages that say which of them is
// best no longer count, but for reservoirs, which wait for all others. nil brings the chain's own
// choice back.
//
// The mean is over the resources that the server has and that have a weight. The order is kept up
// as instances come and go: a placement costs a search and the move of one server, which is
// O(servers) of four bytes each.
func (f *Fleet) OrderBy(sort *plimsoll.NodeSort) {
	if sort == nil {
		f.ordering = nil
		return
	}
	o := &ordering{binpacking: sort.Binpacking}
	weights := sort.Weights
	if len(weights) == 0 {
		weights = defaultSortWeights
	}
	for _, name := range sortedKeys(weights) {
		if weights[name] != 0 {
			o.weights = append(o.weights, sortWeight{name, weights[name]})
		}
	}
	f.ordering = o
}

// ordering is the order of the servers of a fleet by their use.
type ordering struct {
	binpacking bool
	weights    []sortWeight // by name

	built  bool            // the fields below are in use
	order  []int32         // Invariant: the servers in the order of places, but for those that are dirty
	places []orderedServer // by slot
	dirty  []int32         // slots that have changed since they were put into order, each once
	kept   int             // servers that are a reservoir
}

type sortWeight struct {
	resource string
	weight   float64
}

// orderedServer is a server as it stands in the order.
type orderedServer struct {
	key       float64 // the smallest is first
	id        string  // empty: the slot is not in the order
	dirty     bool
	reservoir bool
}

// usage returns the weighted mean of the shares in use of a server's resources, of which 1 is all.
func (o *ordering) usage(f *Fleet, slot int32) float64 {
	sum, total := 0.0, 0.0
	whole := &f.classes[f.rows[slot].class].whole
	for i := range o.weights {
		w := &o.weights[i]
		if n := f.Names.Index(w.resource); n >= 0 && whole[n] > 0 {
			sum += w.weight * (1 - float64(f.Free(slot, n))/float64(whole[n]))
			total += w.weight
		}
	}
	if total == 0 {
		return 0
	}
	return sum / total
}

// score returns the score of a server, of which the highest is first.
func (o *ordering) score(f *Fleet, slot int32) float64 {
	if o.binpacking {
		return o.usage(f, slot)
	}
	return 1 - o.usage(f, slot)
}

// touch notes that a server is about to change.
func (o *ordering) touch(slot int32) {
	if !o.built {
		return
	}
	for int(slot) >= len(o.places) {
		o.places = append(o.places, orderedServer{})
	}
	if !o.places[slot].dirty {
		o.places[slot].dirty = true
		o.dirty = append(o.dirty, slot)
	}
}

// servers returns the slots of the servers in their order. It is valid until the fleet changes.
func (o *ordering) servers(f *Fleet) []int32 {
	if !o.built || len(o.dirty) > 16+len(o.order)/16 {
		o.build(f)
		return o.order
	}
	for _, slot := range o.dirty {
		p := &o.places[slot]
		if p.id != "" {
			i, _ := o.find(slot)
			o.order = slices.Delete(o.order, i, i+1)
		}
		o.enter(f, slot)
		if p.id != "" {
			i, _ := o.find(slot)
			o.order = slices.Insert(o.order, i, slot)
		}
	}
	o.dirty = o.dirty[:0]
	return o.order
}

// build puts all servers into order.
func (o *ordering) build(f *Fleet) {
	o.built, o.order, o.dirty, o.kept = true, o.order[:0], o.dirty[:0], 0
	o.places = zeros(o.places, len(f.rows))
	for slot := range int32(len(f.rows)) {
		if o.enter(f, slot); o.places[slot].id != "" {
			o.order = append(o.order, slot)
		}
	}
	slices.SortFunc(o.order, o.compare)
}

// enter computes the place of a server, which is not in the order.
func (o *ordering) enter(f *Fleet, slot int32) {
	if o.places[slot].reservoir {
		o.kept--
	}
	o.places[slot] = orderedServer{}
	if f.classAt[slot] == noClass {
		return
	}
	key := o.usage(f, slot)
	if o.binpacking {
		key = -key
	}
	p := orderedServer{key: key, id: f.ids[slot], reservoir: f.classes[f.classAt[slot]].record.Reservoir}
	if p.reservoir {
		o.kept++
	}
	o.places[slot] = p
}

// find returns where a server is in the order, or where it is to be put.
func (o *ordering) find(slot int32) (int, bool) {
	return slices.BinarySearchFunc(o.order, slot, o.compare)
}

func (o *ordering) compare(a, b int32) int {
	x, y := &o.places[a], &o.places[b]
	if c := cmp.Compare(x.key, y.key); c != 0 {
		return c
	}
	if c := strings.Compare(x.id, y.id); c != 0 {
		return c
	}
	return cmp.Compare(a, b) // two servers with one id, of which one has a fault
}

// fresh returns an ordering of the same kind for a copy of the fleet.
func (o *ordering) fresh() *ordering {
	if o == nil {
		return nil
	}
	return &ordering{binpacking: o.binpacking, weights: o.weights}
}
