package placement

import (
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	present uint8 = 1 << iota // the slot holds a server
	loaded                    // what runs on it was loaded for one batch
	sick                      // the two newest outcomes are failures; see load.last
	full                      // it has as many instances as its record says that it takes
)

// noClass is the class of a vacant slot.
const noClass = ^uint32(0)

// row is what the filters read of a server, one cache line.
type row struct {
	free     [firstCustom]int64
	owners   []uint32 // whose instances it has, in any order; load.owned says how many
	class    uint32
	count    uint32 // instances
	uncapped uint32 // instances without an amount of cpu
	tickets  uint16 // of unknown size
	flags    uint8
}

// load is what else is known of the instances of a server.
type load struct {
	used  Amounts
	owned []uint32 // by place in row.owners
	tags  []tally
	last  [2]outcome // newest first
}

type outcome struct {
	at     int64
	failed bool
}

// Fleet holds servers and what runs on them, as sums that are kept up to date as instances come and
// go. It has one owner.
type Fleet struct {
	Names  *Names
	Loader Loader

	rows     []row
	sketches []sketch // by slot, of row.owners
	// class by slot, noClass if it is vacant: what a draw looks at, dense so that it stays in the
	// cache
	classAt []uint32
	loads   []load
	ids     []string
	classes []*class
	byKey   map[string]uint32
	dead    int // classes without servers
	epoch   uint64
	index   map[string]int32 // slot by id
	tags    tags
	domains []domain
	moves   uint64  // grows when an instance comes or goes, or Moved is called
	shifts  uint64  // grows when a server comes, leaves or gets another record, if somebody spreads
	recent  *recent // where instances came or went last; nil: no spread depends on that
	servers int
	bounded bool                // some record has said how many instances its server takes
	inside  map[string]place    // instances that came with a server
	brought map[int32][]string  // their keys in inside by slot
	twins   map[string][]string // by id: keys of further instances that came with the same id
	tickets map[string]ticket
	pending map[int32][]string // ids of tickets by slot
	scratch []byte
	copying *Copying // the copy that is being made; nil: none
}

type place struct {
	slot  int32
	kind  *Kind
	owner string
	twin  string // the id, if another instance is known by it; see Fleet.alone
}

// NewFleet returns an empty fleet that takes its resource names from names.
func NewFleet(names *Names) *Fleet {
	return &Fleet{
		Names: names, byKey: map[string]uint32{}, index: map[string]int32{}, tags: newTags(), epoch: 1,
		inside:  map[string]place{},
		brought: map[int32][]string{}, tickets: map[string]ticket{}, pending: map[int32][]string{},
	}
}

// Len returns how many slots there are; some may be vacant.
func (f *Fleet) Len() int { return len(f.rows) }

// Servers returns how many servers there are.
func (f *Fleet) Servers() int { return f.servers }

// Slot returns the slot of a server, -1 if there is none with the id.
func (f *Fleet) Slot(id string) int32 {
	if f.index == nil {
		f.reindex()
	}
	if slot, ok := f.index[id]; ok {
		return slot
	}
	return -1
}

// ID returns the id of the server in a slot; empty if it is vacant.
func (f *Fleet) ID(slot int32) string { return f.ids[slot] }

// Add puts a server in the slot after the last one, or in its own if it is known.
func (f *Fleet) Add(s *Server) int32 {
	slot, ok := f.index[s.ID]
	if !ok {
		slot = int32(len(f.rows))
	}
	f.Put(slot, s)
	return slot
}

// Put says what the server in a slot is. What was booked on it stays; instances that came with it
// before give way to those that come now. A record that cannot be used is kept with its fault, so
// that the filter invalid-servers can tell of it.
func (f *Fleet) Put(slot int32, s *Server) {
	for int(slot) >= len(f.rows) {
		f.rows, f.loads, f.ids, f.classAt = append(f.rows, row{}), append(f.loads, load{}), append(f.ids, ""), append(
			f.classAt, noClass,
		)
		f.sketches = append(f.sketches, sketch{})
	}
	clean := *s
	if clean.Fault == "" {
		err := clean.Validate()
		if err == nil {
			err = f.Names.Check("capacity", clean.Capacity)
		}
		if err != nil {
			clean.Fault = err.Error()
		}
	}
	if other, ok := f.index[s.ID]; ok && other != slot {
		clean.Fault = fmt.Sprintf("another server has the id %q; give each its own", s.ID)
	}
	f.changing(slot)
	r := &f.rows[slot]
	if r.flags&present != 0 {
		f.leave(slot)
	} else {
		f.servers++
	}
	r.class = f.classOf(&clean)
	f.classAt[slot] = r.class
	r.flags |= present
	f.enter(slot)
	if f.ids[slot] == "" {
		f.ids[slot] = s.ID
		if _, ok := f.index[s.ID]; !ok {
			f.index[s.ID] = slot
		}
	}
	f.renew(slot)
	f.bring(slot, &clean)
	f.crowd(slot)
}

// bring books the instances that come with a server.
func (f *Fleet) bring(slot int32, s *Server) {
	if len(f.brought[slot]) > 0 { // or an outcome would count twice
		f.loads[slot].last = [2]outcome{}
		f.rows[slot].flags &^= sick
	}
	for _, id := range f.brought[slot] {
		f.Unbind(slot, f.inside[id].kind)
		f.Forget(f.inside[id].kind)
		f.depart(id)
	}
	delete(f.brought, slot)
	if s.Fault != "" {
		return
	}
	for i := range s.Instances {
		in := &s.Instances[i]
		kind := f.Kind(in)
		f.Bind(slot, kind)
		f.Outcome(slot, in.Modified, in.Failed)
		f.arrived(in.ID)
		f.arrive(in.ID, i, place{slot: slot, kind: kind, owner: in.Owner})
	}
}

// Remove takes a server out of the fleet, with what is booked on it.
func (f *Fleet) Remove(slot int32) {
	r := &f.rows[slot]
	if r.flags&present == 0 {
		return
	}
	f.changing(slot)
	for _, id := range f.brought[slot] {
		f.Forget(f.inside[id].kind)
		f.depart(id)
	}
	delete(f.brought, slot)
	for _, id := range append([]string(nil), f.pending[slot]...) {
		f.DropTicket(id)
	}
	for _, t := range f.loads[slot].tags {
		f.tags.info[t.tag].version++
	}
	for _, owner := range r.owners {
		f.hosting(slot, owner, false)
	}
	f.leave(slot)
	if f.index[f.ids[slot]] == slot {
		delete(f.index, f.ids[slot])
	}
	f.rows[slot], f.loads[slot], f.ids[slot], f.classAt[slot] = row{}, load{}, "", noClass
	f.sketches[slot] = sketch{}
	f.servers--
}

// classOf returns the class of a record, which counts one server more.
func (f *Fleet) classOf(s *Server) uint32 {
	f.scratch = appendClassKey(f.scratch[:0], s)
	id, ok := f.byKey[string(f.scratch)]
	if !ok {
		f.sweep()
		key := string(f.scratch)
		id = uint32(len(f.classes))
		c := newClass(f.Names, key, s)
		f.placeInDomains(c)
		f.bounded = f.bounded || c.record.MaxTasks > 0
		f.classes = append(f.classes, c)
		f.byKey[key] = id
		f.dead++ // until the server is counted
	}
	return id
}

// sweep forgets the classes that no server has when they are the most.
func (f *Fleet) sweep() {
	if f.dead < 64 || f.dead < len(f.classes)/2 {
		return
	}
	f.drop()
}

// drop forgets the classes that no server has.
func (f *Fleet) drop() {
	f.copying.finish() // it knows the classes by their numbers
	moved := make([]uint32, len(f.classes))
	kept := f.classes[:0]
	for id, c := range f.classes {
		if c.servers == 0 {
			delete(f.byKey, c.key)
			continue
		}
		moved[id] = uint32(len(kept))
		f.byKey[c.key] = moved[id]
		for d := range f.domains {
			f.domains[d].values[moved[id]] = f.domains[d].values[id]
		}
		kept = append(kept, c)
	}
	for d := range f.domains {
		f.domains[d].values = f.domains[d].values[:len(kept)]
	}
	clear(f.classes[len(kept):])
	f.classes, f.dead = kept, 0
	f.epoch++
	for i := range f.rows {
		if f.classAt[i] != noClass {
			f.rows[i].class = moved[f.rows[i].class]
			f.classAt[i] = f.rows[i].class
		}
	}
}

// enter and leave count the server in its class and in the domains.
func (f *Fleet) enter(slot int32) {
	c := f.classes[f.rows[slot].class]
	if c.servers++; c.servers == 1 {
		f.dead--
	}
	f.atDomains(slot, 1)
}

func (f *Fleet) leave(slot int32) {
	c := f.classes[f.rows[slot].class]
	if c.servers--; c.servers == 0 {
		f.dead++
	}
	f.atDomains(slot, -1)
}

func (f *Fleet) atDomains(slot, n int32) {
	if len(f.domains) == 0 {
		return
	}
	f.shifts++
	for _, t := range f.loads[slot].tags {
		for _, counter := range f.tags.info[t.tag].counters {
			counter.add(f.valueOf(counter.domain, slot), n*int32(t.n))
		}
	}
}

// renew computes what is free on a server.
func (f *Fleet) renew(slot int32) {
	r, used := &f.rows[slot], &f.loads[slot].used
	c := f.classes[r.class]
	for i := range r.free {
		r.free[i] = c.free(i, used[i])
	}
}

// Kind is what instances have in common that are booked alike. Make one for the tasks of a group
// and keep it until none of them is booked any more.
type Kind struct {
	amounts  Amounts
	owner    uint32
	tags     []uint32
	uncapped bool
}

// Kind returns the kind of an instance, to be given back with Forget. Names of resources that
// nobody knows yet are taken in as far as there is room for names, and are not counted beyond it.
func (f *Fleet) Kind(in *Instance) *Kind {
	k := &Kind{owner: f.tags.acquire(ownerTag(in.Owner)), amounts: f.known(in.held())}
	k.uncapped = in.Resources[plimsoll.CPU] == 0
	for _, name := range instanceTags(in) {
		k.tags = append(k.tags, f.tags.acquire(name))
	}
	return k
}

// Resize gives a kind other amounts. No instance of it may be booked, unless the amounts are the
// same.
func (f *Fleet) Resize(k *Kind, r plimsoll.Resources) { k.amounts = f.known(r) }

// ForgetName frees the index of a resource's name. No server may have it in its capacity, nothing
// that is booked may hold any of it, and no request that was prepared before, nor any kind, may be
// used any more if it has the name.
func (f *Fleet) ForgetName(i int) {
	f.drop() // a server that comes back may not find its class with amounts by the old index
	f.Names.forget(i)
}

// known returns the amounts of r whose names are known or can be.
func (f *Fleet) known(r plimsoll.Resources) Amounts {
	if f.Names.Check("", r) == nil {
		a, _ := f.Names.Amounts(r)
		return a
	}
	var a Amounts
	for i := range f.Names.Len() {
		a[i] = r[f.Names.Name(i)]
	}
	return a
}

// instanceTags returns the tags of an instance beside its owner.
func instanceTags(in *Instance) []string {
	var list []string
	if in.Job != "" {
		list = append(list, jobTag(in.Job))
		if in.Group != "" {
			list = append(list, groupTag(in.Job, in.Group))
		}
	}
	for _, key := range sortedKeys(in.Labels) {
		list = append(list, labelTag(key+"="+in.Labels[key]))
	}
	return list
}

// Forget gives a kind back when no instance of it is booked.
func (f *Fleet) Forget(k *Kind) {
	f.tags.release(k.owner)
	for _, t := range k.tags {
		f.tags.release(t)
	}
}

// Amounts returns what an instance of the kind holds.
func (k *Kind) Amounts() *Amounts { return &k.amounts }

// Moved says that the Loader would answer otherwise than before about where an instance is or its
// volumes are.
func (f *Fleet) Moved() { f.moves++ }

// Bind books an instance of a kind on a server.
func (f *Fleet) Bind(slot int32, k *Kind) {
	f.changing(slot)
	r, l := &f.rows[slot], &f.loads[slot]
	f.moves++
	l.used.Add(&k.amounts)
	r.count++
	if k.uncapped {
		r.uncapped++
	}
	f.recent.add(slot)
	f.crowd(slot)
	f.book(slot, &k.amounts, -1)
	f.addOwner(slot, k.owner)
	f.tags.info[k.owner].version++
	for _, t := range k.tags {
		l.tags = addTally(l.tags, t)
		f.moved(t, slot, 1)
	}
}

// Unbind takes an instance of a kind off a server on which one was booked.
func (f *Fleet) Unbind(slot int32, k *Kind) {
	f.changing(slot)
	r, l := &f.rows[slot], &f.loads[slot]
	f.moves++
	l.used.Sub(&k.amounts)
	r.count--
	if k.uncapped {
		r.uncapped--
	}
	f.recent.add(slot)
	f.crowd(slot)
	f.book(slot, &k.amounts, 1)
	f.subOwner(slot, k.owner)
	f.tags.info[k.owner].version++
	for _, t := range k.tags {
		l.tags = subTally(l.tags, t)
		f.moved(t, slot, -1)
	}
}

// crowd notes whether a server has as many instances as it takes.
func (f *Fleet) crowd(slot int32) {
	if !f.bounded {
		return
	}
	r := &f.rows[slot]
	r.flags &^= full
	if r.flags&present != 0 && f.classes[r.class].crowded(r.count) {
		r.flags |= full
	}
}

// addOwner and subOwner count the instances of an owner on a server.
func (f *Fleet) addOwner(slot int32, owner uint32) {
	r, l := &f.rows[slot], &f.loads[slot]
	if i := slices.Index(r.owners, owner); i >= 0 {
		l.owned[i]++
		return
	}
	r.owners, l.owned = append(r.owners, owner), append(l.owned, 1)
	f.hosting(slot, owner, true)
	f.sketches[slot].add(owner)
}

func (f *Fleet) subOwner(slot int32, owner uint32) {
	r, l := &f.rows[slot], &f.loads[slot]
	i := slices.Index(r.owners, owner)
	if i < 0 {
		return
	}
	if l.owned[i]--; l.owned[i] == 0 {
		last := len(r.owners) - 1
		r.owners[i], l.owned[i] = r.owners[last], l.owned[last]
		r.owners, l.owned = r.owners[:last], l.owned[:last]
		f.hosting(slot, owner, false)
		f.sketches[slot] = sketch{}
		for _, o := range r.owners {
			f.sketches[slot].add(o)
		}
	}
}

// owned returns how many instances of an owner a server has.
func (f *Fleet) owned(slot int32, owner uint32) uint32 {
	r := &f.rows[slot]
	if !f.sketches[slot].mayHave(owner) {
		return 0
	}
	if i := slices.Index(r.owners, owner); i >= 0 {
		return f.loads[slot].owned[i]
	}
	return 0
}

// hosts reports whether a server has instances of an owner.
func (f *Fleet) hosts(slot int32, owner uint32) bool {
	return f.sketches[slot].mayHave(owner) && slices.Contains(f.rows[slot].owners, owner)
}

// sketch is a set of owners that may say that it has one that it has not, but never the other way
// round. It spares most servers a look at their list of owners, which is elsewhere in memory.
type sketch [8]uint64

func (s *sketch) add(owner uint32) {
	h := owner * 0x9e3779b1 >> 23
	s[h>>6] |= 1 << (h & 63)
}

func (s *sketch) mayHave(owner uint32) bool {
	h := owner * 0x9e3779b1 >> 23
	return s[h>>6]&(1<<(h&63)) != 0
}

func (f *Fleet) book(slot int32, a *Amounts, sign int64) {
	r := &f.rows[slot]
	if r.flags&present == 0 || f.classes[r.class].offers != nil {
		if r.flags&present != 0 {
			f.renew(slot)
		}
		return
	}
	for i := range r.free {
		r.free[i] += sign * a[i]
	}
}

func (f *Fleet) moved(tag uint32, slot, n int32) {
	info := &f.tags.info[tag]
	info.version++
	for _, c := range info.counters {
		if r := &f.rows[slot]; r.flags&present != 0 {
			c.add(f.valueOf(c.domain, slot), n)
		}
	}
}

// Outcome says how an instance on a server ended, or that it runs well, at a time in Unix seconds.
// The filter sick-servers looks at the newest two.
func (f *Fleet) Outcome(slot int32, at int64, failed bool) {
	f.changing(slot)
	l, r := &f.loads[slot], &f.rows[slot]
	o := outcome{at, failed}
	switch {
	case at == 0:
		return
	case at >= l.last[0].at:
		l.last[1], l.last[0] = l.last[0], o
	case at > l.last[1].at:
		l.last[1] = o
	}
	r.flags &^= sick
	if l.last[0].failed && l.last[1].failed {
		r.flags |= sick
	}
}

// Count returns how many instances are booked on a server.
func (f *Fleet) Count(slot int32) int { return int(f.rows[slot].count) }

// Used returns what is booked on a server.
func (f *Fleet) Used(slot int32) *Amounts { return &f.loads[slot].used }

// Capacity returns what a server has in all.
func (f *Fleet) Capacity(slot int32) *Amounts { return &f.classes[f.rows[slot].class].whole }

// Free returns what is left of a resource on a server after what is kept back and what is booked,
// stretched by over-provisioning. It is negative if more is booked than there is.
func (f *Fleet) Free(slot int32, resource int) int64 {
	r := &f.rows[slot]
	if resource < firstCustom {
		return r.free[resource]
	}
	return f.classes[r.class].free(resource, f.loads[slot].used[resource])
}

// Open reports whether the server is set up, runs, has a sound record and takes instances.
func (f *Fleet) Open(slot int32) bool {
	r := &f.rows[slot]
	return r.flags&present != 0 && f.classes[r.class].open
}

// Holds reports whether nothing is overdrawn on a server.
func (f *Fleet) Holds(slot int32) bool {
	for i := range f.Names.Len() {
		if f.loads[slot].used[i] > 0 && f.Free(slot, i) < 0 {
			return false
		}
	}
	return true
}
