package placement

import (
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// Batch is a number of servers that a chain runs over together. A stage names a server by its place
// in the batch.
type Batch struct {
	fleet  *Fleet
	p      *Prepared
	chain  *Chain
	now    int64
	seed   uint64
	first  uint64        // seed that the batch began with
	choice Choice        // result of the last placement
	intn   func(int) int // instead of seed, for tests

	slots            []int32           // by place in the batch
	score            []float64         // by place in the batch
	set              []int32           // places of the servers still in the batch; stages reorder and cut it
	final            []int32           // the servers that the chain left of set
	flow             []flow            // by stage of the chain, summed over all batches of a placement
	drops            []uint32          // by stage of the prefix: open servers that it dropped
	keys             []rank            // scratch of sort
	spare            []rank            // scratch of sort
	packed, unpacked []uint64          // scratch of radix
	copies           [][]int32         // by depth: the input of an or, for its alternatives
	inOrder          bool              // the first server that is left is chosen, not the one with the highest score
	depth            int               // how many ors the current stage is in
	mark             uint64            // generation of values; see newMark
	marks            []uint64          // by class: the mark under which values was set
	classes          []uint32          // classes of the servers that are scored; empty: not yet known
	values           []float64         // by class: a value computed once; valid if marks is mark
	weeks            []int64           // scratch of scoreReboot
	out              [maxStages]uint32 // scratch of steps: servers that each filter dropped
	view             View              // result of At
	record           *recorder         // nil: the steps are not recorded

	fresh      []int32          // slots whose instances were loaded for this batch
	ids        map[string]place // the loaded instances by id
	fault      map[int32]string // by slot: why its instances could not be loaded
	names      []string         // scratch of load
	prefetched uint32           // sum of prefetched values, which keeps the compiler from dropping the reads
	peak       int              // most instances held at once
	loads      int              // servers whose instances were loaded
	held       int              // instances held now
}

// flow counts the servers that entered a stage, and the servers that came out of it.
type flow struct{ in, out uint32 }

// View is one server as a stage sees it. It is valid until the stage looks at the next server.
type View struct {
	batch *Batch
	fleet *Fleet
	p     *Prepared
	slot  int32
	row   *row
	class *class
	anyOf bool // the stage is asked about the class, and slot is any server of it
}

// At returns the server at a place of the batch.
func (b *Batch) At(i int32) *View {
	slot := b.slots[i]
	r := &b.fleet.rows[slot]
	b.view.slot, b.view.row, b.view.class = slot, r, b.fleet.classes[r.class]
	return &b.view
}

// Score adds n to the score of a server.
func (b *Batch) Score(i int32, n float64) { b.score[i] += n }

// Request returns the request that is placed.
func (b *Batch) Request() *Request { return &b.p.Request }

// Request returns the request that is placed.
func (v *View) Request() *Request { return &v.p.Request }

// ID returns the server's id.
func (v *View) ID() string { return v.fleet.ids[v.slot] }

// Record returns the server's record without its id and instances. The record is shared; do not
// change it.
func (v *View) Record() *Server { return &v.class.record }

// Count returns how many instances the server has.
func (v *View) Count() int { return int(v.row.count) }

// Owned returns how many instances of the request's owner the server has.
func (v *View) Owned() int { return int(v.fleet.owned(v.slot, v.p.owner)) }

// Free returns the amount left of a resource, by its index in Fleet.Names.
func (v *View) Free(i int) int64 {
	n := v.fleet.Free(v.slot, i)
	if i == IndexCPU && v.row.uncapped > 0 && v.batch.chain.Settings.Capness {
		n = min(n, 0) // an instance without a bound may take all of it
	}
	return n
}

// Used returns how much of a resource is booked, by its index in Fleet.Names.
func (v *View) Used(i int) int64 { return v.fleet.loads[v.slot].used[i] }

// Uncapped returns how many instances of the server have no amount of cpu.
func (v *View) Uncapped() int { return int(v.row.uncapped) }

// SetFree sets the amount left of cpu, memory or disk until the server's instances change. It is
// for stages that calculate in another way than calculate-unreserved.
func (v *View) SetFree(i int, n int64) {
	v.fleet.changing(v.slot)
	v.row.free[i] = n
}

// settings returns the settings of the chain.
func (v *View) settings() *Settings { return &v.batch.chain.Settings }

// prefetch reads the rows of the batch all at once, so that the processor waits for memory once and
// not for each server.
func (b *Batch) prefetch() {
	watched := b.fleet.tags.info[b.p.owner].watchers > 0
	for _, slot := range b.slots {
		if b.prefetched += b.fleet.rows[slot].count; !watched { // then hosts asks the sketch
			b.prefetched += uint32(b.fleet.sketches[slot][0])
		}
	}
}

// prefetchOwners reads the lists of owners that hosts will search.
func (b *Batch) prefetchOwners(set []int32) {
	for _, i := range set {
		if slot := b.slots[i]; b.fleet.sketches[slot].mayHave(b.p.owner) {
			r := &b.fleet.rows[slot]
			for k := 0; k < len(r.owners); k += 8 { // a cache line
				b.prefetched += r.owners[k].n
			}
		}
	}
}

// random returns a number from 0 to n-1.
func (b *Batch) random(n int) int {
	if b.intn != nil {
		return b.intn(n)
	}
	b.seed += 0x9e3779b97f4a7c15 // splitmix64
	z := b.seed
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) >> 32 * uint64(n) >> 32)
}

// reset empties the batch for the next servers.
func (b *Batch) reset(seed uint64) {
	b.slots, b.set, b.classes, b.seed, b.first, b.depth = b.slots[:0], b.set[:0], b.classes[:0], seed, seed, 0
}

// add puts a server into the batch.
func (b *Batch) add(slot int32) {
	b.set = append(b.set, int32(len(b.slots)))
	b.slots = append(b.slots, slot)
}

// run runs the chain over the batch without the first skip items of the root. It returns the place
// of the chosen server, -1 if none is left.
func (b *Batch) run(skip int) int32 {
	if cap(b.score) < len(b.slots) {
		b.score = make([]float64, len(b.slots), 2*len(b.slots))
	}
	b.score = b.score[:len(b.slots)]
	clear(b.score)
	set := b.set
	switch root := b.chain.root; {
	case root.op == "pipe" && b.record == nil && skip == b.chain.prefix:
		set = b.steps(set)
	case root.op == "pipe":
		for _, item := range root.items[skip:] {
			if len(set) == 0 {
				break
			}
			set = b.exec(item, set)
		}
	case len(set) > 0:
		set = b.exec(root, set)
	}
	b.final = set
	if b.inOrder {
		return b.firstOf(set)
	}
	best := int32(-1)
	for _, i := range set {
		if best < 0 || b.score[i] >= b.score[best] {
			best = i // the later of equals, as in the original
		}
	}
	return best
}

// firstOf returns the first server of a set in the fleet's order, in which the batch was filled.
// Its scores replace those of the chain.
func (b *Batch) firstOf(set []int32) int32 {
	if len(set) == 0 {
		return -1
	}
	if o := b.fleet.ordering; o != nil {
		for _, i := range set {
			b.score[i] = o.score(b.fleet, b.slots[i])
		}
	}
	return slices.Min(set)
}

// steps runs the plan of the request. Adjacent filters are all asked about one server before the
// next server, so that each server is read once.
func (b *Batch) steps(set []int32) []int32 {
	for k := range b.p.plan {
		if len(set) == 0 {
			break
		}
		item := &b.p.plan[k]
		if item.node != nil {
			set = b.exec(item.node, set)
			continue
		}
		given := uint32(len(set))
		clear(b.out[:len(item.keeps)])
		kept := set[:0]
	servers:
		for _, i := range set {
			v := b.At(i)
			for n := range item.keeps {
				k := &item.keeps[n]
				if k.room > 0 && v.row.free[k.room-1] >= k.need && !(k.room-1 == IndexCPU && v.row.uncapped > 0) {
					continue // keep would return true; the call is saved
				}
				if k.clear != 0 && v.row.flags&k.clear == 0 {
					continue
				}
				if !k.keep(v) {
					b.out[n]++
					continue servers
				}
			}
			kept = append(kept, i)
		}
		for n := range item.keeps {
			flow := &b.flow[item.keeps[n].stage]
			flow.in += given
			given -= b.out[n]
			flow.out += given
		}
		set = kept
	}
	return set
}

func (b *Batch) exec(n *node, set []int32) []int32 {
	switch n.op {
	case "":
		return b.stage(n.stage, set)
	case "pipe":
		for _, item := range n.items {
			if len(set) == 0 {
				break
			}
			set = b.exec(item, set)
		}
		return set
	}
	if b.depth == len(b.copies) {
		b.copies = append(b.copies, nil)
	}
	given := append(b.copies[b.depth][:0], set...)
	b.copies[b.depth] = given
	b.depth++
	out := set[:0]
	for k, item := range n.items {
		if k > 0 { // the alternative before has changed it
			set = append(set[:0], given...)
		}
		if out = b.exec(item, set); len(out) > 0 {
			break
		}
	}
	b.depth--
	return out
}

func (b *Batch) stage(i int, set []int32) []int32 {
	s := &b.chain.stages[i]
	if b.p.skips[i] {
		return set
	}
	flow := &b.flow[i]
	flow.in += uint32(len(set))
	if b.record == nil {
		set = b.filter(s, set)
		flow.out += uint32(len(set))
		return set
	}
	b.record.before(set)
	set = b.filter(s, set)
	b.record.after(b, i, set)
	flow.out += uint32(len(set))
	return set
}

func (b *Batch) filter(s *Stage, set []int32) []int32 {
	if s.Batch != nil {
		if b.inOrder && (s.Scores || s.kind() == NotBest) {
			return set // the order says which server is best
		}
		return s.Batch(b, set)
	}
	kept := set[:0]
	if s.ByClass && len(set) > manyServers && !(s.excepts && len(b.p.Request.Except) > 0) {
		b.newMark()
		for _, i := range set {
			id := b.fleet.classAt[b.slots[i]]
			if b.marks[id] != b.mark {
				b.marks[id], b.values[id] = b.mark, 0
				if s.Keep(b.At(i)) {
					b.values[id] = 1
				}
			}
			if b.values[id] == 1 {
				kept = append(kept, i)
			}
		}
		return kept
	}
	for _, i := range set {
		if s.Keep(b.At(i)) {
			kept = append(kept, i)
		}
	}
	return kept
}

// newMark invalidates all values of classes at once: a value is valid only if its mark is the
// current one.
func (b *Batch) newMark() {
	b.mark++
	for len(b.marks) < len(b.fleet.classes) {
		b.marks, b.values = append(b.marks, 0), append(b.values, 0)
	}
}

// load loads the instances of the servers of a set if the fleet has a Loader, and drops the servers
// whose instances cannot be loaded.
func (b *Batch) load(set []int32) []int32 {
	l := &b.fleet.Loader
	if l.Instances == nil && l.Batch == nil {
		return set
	}
	b.names = b.names[:0]
	for _, i := range set {
		if slot := b.slots[i]; b.fleet.rows[slot].flags&loaded == 0 { // an alternative may have loaded it
			b.names = append(b.names, b.fleet.ids[slot])
		}
	}
	results := l.load(b.names)
	kept := set[:0]
	k := -1
	for _, i := range set {
		slot := b.slots[i]
		if b.fleet.rows[slot].flags&loaded != 0 {
			kept = append(kept, i)
			continue
		}
		k++
		instances, err := results[k].Instances, results[k].Err
		for j := 0; err == nil && j < len(instances); j++ {
			err = instances[j].Validate()
		}
		if err == nil {
			err = countable(instances)
		}
		if err != nil {
			b.fault[slot] = fmt.Sprintf("its instances could not be loaded: %s", err)
			continue
		}
		b.hold(slot, instances)
		kept = append(kept, i)
	}
	return kept
}

// hold counts loaded instances on a server until the batch is done.
func (b *Batch) hold(slot int32, instances []Instance) {
	f := b.fleet
	b.fresh = append(b.fresh, slot)
	b.loads++
	b.held += len(instances)
	f.changing(slot)
	b.peak = max(b.peak, b.held)
	f.rows[slot].flags |= loaded
	for k := range instances {
		in := &instances[k]
		if in.ID != "" {
			b.ids[in.ID] = place{slot: slot, owner: in.Owner}
		}
		f.holdOne(slot, in)
	}
	f.renew(slot)
	f.markFull(slot)
}

// holdOne counts an instance on a server, under the tags that requests have acquired.
func (f *Fleet) holdOne(slot int32, in *Instance) {
	r, l := &f.rows[slot], &f.loads[slot]
	r.count++
	if in.Resources[plimsoll.CPU] == 0 {
		r.uncapped++
	}
	a := f.known(in.held())
	l.used.Add(&a)
	f.Outcome(slot, in.Modified, in.Failed)
	if owner := f.tags.index[ownerTag(in.Owner)]; owner != 0 {
		f.addOwner(slot, owner)
	}
	for _, name := range instanceTags(in) {
		if tag := f.tags.index[name]; tag != 0 {
			l.tags = addTally(l.tags, tag)
		}
	}
}

// done forgets the instances that were loaded for the batch.
func (b *Batch) done() {
	for _, slot := range b.fresh {
		r, l := &b.fleet.rows[slot], &b.fleet.loads[slot]
		b.fleet.sketches[slot] = sketch{}
		*r = row{class: r.class, flags: r.flags &^ (loaded | sick | full), owners: r.owners[:0], tickets: r.tickets}
		*l = load{tags: l.tags[:0]}
		b.fleet.renew(slot)
	}
	b.fresh, b.held = b.fresh[:0], 0
	clear(b.ids)
}

// hits returns how many instances of a selector are on the server.
func (v *View) hits(s *selector) int {
	if s.id == "" {
		return int(tallied(v.fleet.loads[v.slot].tags, s.tag))
	}
	if s.slot == v.slot {
		return 1
	}
	if p, ok := v.batch.ids[s.id]; ok && p.slot == v.slot && (!v.p.Request.OwnOnly || p.owner == v.p.Request.Owner) {
		return 1
	}
	return 0
}

func (v *View) holdsAny(list []selector) bool {
	for i := range list {
		if v.hits(&list[i]) > 0 {
			return true
		}
	}
	return false
}

func (v *View) holdsAll(list []selector) bool {
	for i := range list {
		if v.hits(&list[i]) == 0 {
			return false
		}
	}
	return true
}
