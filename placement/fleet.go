package placement

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	present uint8 = 1 << iota // the slot holds a server
	loaded                    // its instances were loaded for the current batch
	sick                      // the two newest outcomes are failures; see load.last
	full                      // the server has as many instances as its record allows
)

// noClass is the class of a vacant slot.
const noClass = ^uint32(0)

// row is the part of a server that the filters read: one cache line.
type row struct {
	// amounts left of cpu, memory and disk. Invariant: those of renew, except after View.SetFree
	free     [firstCustom]int64
	owners   []tally // instances by owner, in any order. Invariant: each count is 1 or more
	class    uint32  // index in Fleet.classes
	count    uint32  // instances, loaded ones and tickets of known size included
	uncapped uint32  // instances without an amount of cpu
	tickets  uint16  // tickets of unknown size
	flags    uint8
}

// load is the rest of the sums over a server's instances.
type load struct {
	used Amounts    // sum of the booked amounts
	tags []tally    // instances by tag. Invariant: each count is 1 or more
	last [2]outcome // newest first
}

type outcome struct {
	at     int64
	failed bool
}

// Fleet holds servers and the sums over their instances, which are updated as instances come and
// go. A server is named by its slot. A fleet has one owner.
type Fleet struct {
	Names  *Names
	Loader Loader

	rows     []row
	sketches []sketch // owners of each slot, for owned and hosts
	// classAt is the class of each slot, noClass if the slot is vacant. A draw reads it, so it is
	// dense and stays in the cache. Invariant: equal to rows[slot].class of a server.
	classAt     []uint32
	loads       []load            // the rest of the sums, by slot
	ids         []string          // server ids by slot; empty: the slot is vacant
	classes     []*class          // Invariant: an index stays valid while epoch is the same
	byKey       map[string]uint32 // index of a class by appendClassKey
	dead        int               // classes without servers, which sweep drops
	epoch       uint64            // grows when classes get other indexes
	index       map[string]int32  // slot by id; nil: a fork that has not built it yet
	tags        tags
	domains     []domain            // labels that counters use or have used
	moves       uint64              // grows when an instance comes or goes, or Moved is called
	shifts      uint64              // grows with every change of a server or its record while the fleet has domains
	recent      *recent             // the last moves of instances; nil: no spread depends on them
	servers     int                 // occupied slots
	bounded     bool                // a record has had a bound on instances
	instances   map[string]place    // instances of server records, by id or by a key of arrive
	instancesOn map[int32][]string  // by slot: keys in instances
	duplicates  map[string][]string // by id: keys of further instances with the same id
	tickets     map[string]ticket   // by id of the instance to be
	pending     map[int32][]string  // by slot: ids of tickets
	scratch     []byte              // buffer of classOf
	copying     *Copying            // the copy in the making; nil: none
	ordering    *ordering           // order in which servers are tried; nil: they are drawn
}

type place struct {
	slot        int32
	kind        *Kind
	owner       string
	duplicateOf string // id of the instance if its key is another; see Fleet.onOneServer
}

// NewFleet returns an empty fleet that takes its resource names from names.
func NewFleet(names *Names) *Fleet {
	return &Fleet{
		Names: names, byKey: map[string]uint32{}, index: map[string]int32{}, tags: newTags(), epoch: 1,
		instances:   map[string]place{},
		instancesOn: map[int32][]string{}, tickets: map[string]ticket{}, pending: map[int32][]string{},
	}
}

// Len returns the number of slots; some may be vacant.
func (f *Fleet) Len() int { return len(f.rows) }

// Servers returns the number of servers.
func (f *Fleet) Servers() int { return f.servers }

// Slot returns the slot of the server with an id, -1 if there is none.
func (f *Fleet) Slot(id string) int32 {
	if f.index == nil {
		f.reindex()
	}
	if slot, ok := f.index[id]; ok {
		return slot
	}
	return -1
}

// ID returns the id of the server in a slot; empty if the slot is vacant.
func (f *Fleet) ID(slot int32) string { return f.ids[slot] }

// Add puts a server into the slot after the last one, or into its own slot if its id is known.
func (f *Fleet) Add(s *Server) int32 {
	slot, ok := f.index[s.ID]
	if !ok {
		slot = int32(len(f.rows))
	}
	f.Put(slot, s)
	return slot
}

// Put sets the record of the server in a slot. Booked instances stay; instances of the last record
// are replaced by those of the new one. A record that cannot be used is kept with its fault, so
// that the filter invalid-servers can report it.
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
	f.bookInstances(slot, &clean)
	f.markFull(slot)
}

// bookInstances books the instances of a server's record in place of those of its last record.
func (f *Fleet) bookInstances(slot int32, s *Server) {
	if len(f.instancesOn[slot]) > 0 { // otherwise an outcome would count twice
		f.loads[slot].last = [2]outcome{}
		f.rows[slot].flags &^= sick
	}
	for _, id := range f.instancesOn[slot] {
		f.Unbind(slot, f.instances[id].kind)
		f.Forget(f.instances[id].kind)
		f.depart(id)
	}
	delete(f.instancesOn, slot)
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

// Remove takes a server out of the fleet, together with its bookings and tickets.
func (f *Fleet) Remove(slot int32) {
	r := &f.rows[slot]
	if r.flags&present == 0 {
		return
	}
	f.changing(slot)
	for _, id := range f.instancesOn[slot] {
		f.Forget(f.instances[id].kind)
		f.depart(id)
	}
	delete(f.instancesOn, slot)
	for _, id := range append([]string(nil), f.pending[slot]...) {
		f.DropTicket(id)
	}
	for _, t := range f.loads[slot].tags {
		f.tags.info[t.tag].version++
	}
	for _, owner := range r.owners {
		f.noteHost(slot, owner.tag, false)
	}
	f.leave(slot)
	if f.index[f.ids[slot]] == slot {
		delete(f.index, f.ids[slot])
	}
	f.rows[slot], f.loads[slot], f.ids[slot], f.classAt[slot] = row{}, load{}, "", noClass
	f.sketches[slot] = sketch{}
	f.servers--
}

// classOf returns the index of a record's class, which is new if no server has had it.
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
		f.dead++ // until enter counts the server
	}
	return id
}

// sweep drops the classes without servers once they are half of all classes.
func (f *Fleet) sweep() {
	if f.dead < 64 || f.dead < len(f.classes)/2 {
		return
	}
	f.drop()
}

// drop removes the classes without servers and renumbers the others.
func (f *Fleet) drop() {
	f.copying.finish() // the copy refers to classes by index
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

// enter counts a server in its class and in the domains; leave takes it out of both counts.
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

// renew computes the amounts left of cpu, memory and disk on a server.
func (f *Fleet) renew(slot int32) {
	r, used := &f.rows[slot], &f.loads[slot].used
	c := f.classes[r.class]
	for i := range r.free {
		r.free[i] = c.free(i, used[i])
	}
}

// Kind is the common part of instances that are booked alike: amounts, owner and tags. Make one
// kind for the tasks of a group, and Forget it when none of them is booked any more.
type Kind struct {
	amounts  Amounts
	owner    uint32
	tags     []uint32
	uncapped bool
}

// Kind returns the kind of an instance, to be given back with Forget. New resource names enter
// Fleet.Names as long as there is room for them. Names beyond that are not counted.
func (f *Fleet) Kind(in *Instance) *Kind {
	k := &Kind{owner: f.tags.acquire(ownerTag(in.Owner)), amounts: f.known(in.held())}
	k.uncapped = in.Resources[plimsoll.CPU] == 0
	for _, name := range instanceTags(in) {
		k.tags = append(k.tags, f.tags.acquire(name))
	}
	return k
}

// Resize sets the amounts of a kind. No instance of it may be booked, unless the amounts stay the
// same.
func (f *Fleet) Resize(k *Kind, r plimsoll.Resources) { k.amounts = f.known(r) }

// ForgetName frees the index of a resource name. No server may have the resource in its capacity,
// and no booked instance may hold any of it. Requests and kinds with the name may not be used any
// more.
func (f *Fleet) ForgetName(i int) {
	f.drop() // otherwise a server that comes back finds its class with amounts by the old index
	f.Names.forget(i)
}

// known returns the amounts of r, without names that do not fit into Fleet.Names.
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

// instanceTags returns the tags of an instance, without its owner's.
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

// Forget gives a kind back. No instance of it may be booked.
func (f *Fleet) Forget(k *Kind) {
	f.tags.release(k.owner)
	for _, t := range k.tags {
		f.tags.release(t)
	}
}

// Amounts returns the amounts that an instance of the kind holds.
func (k *Kind) Amounts() *Amounts { return &k.amounts }

// Moved tells the fleet that the Loader's answers about the place of an instance or its volumes
// have changed.
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
	f.markFull(slot)
	f.book(slot, &k.amounts, -1)
	f.addOwner(slot, k.owner)
	f.tags.info[k.owner].version++
	for _, t := range k.tags {
		l.tags = addTally(l.tags, t)
		f.moved(t, slot, 1)
	}
}

// Unbind takes an instance of a kind off the server on which it is booked.
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
	f.markFull(slot)
	f.book(slot, &k.amounts, 1)
	f.subOwner(slot, k.owner)
	f.tags.info[k.owner].version++
	for _, t := range k.tags {
		l.tags = subTally(l.tags, t)
		f.moved(t, slot, -1)
	}
}

// markFull sets the flag full if a server has as many instances as it takes, and clears it
// otherwise.
func (f *Fleet) markFull(slot int32) {
	if !f.bounded {
		return
	}
	r := &f.rows[slot]
	r.flags &^= full
	if r.flags&present != 0 && f.classes[r.class].fullWith(r.count) {
		r.flags |= full
	}
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

// Outcome records that an instance on a server failed or runs well, at a time in Unix seconds. The
// filter sick-servers reads the newest two.
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

// Used returns the amounts booked on a server.
func (f *Fleet) Used(slot int32) *Amounts { return &f.loads[slot].used }

// Capacity returns the total amounts of a server.
func (f *Fleet) Capacity(slot int32) *Amounts { return &f.classes[f.rows[slot].class].whole }

// Free returns the amount of a resource left on a server: its capacity without the reserve and the
// bookings, with over-provisioning. The amount is negative if more is booked than there is.
func (f *Fleet) Free(slot int32, resource int) int64 {
	r := &f.rows[slot]
	if resource < firstCustom {
		return r.free[resource]
	}
	return f.classes[r.class].free(resource, f.loads[slot].used[resource])
}

// Open reports whether the server is set up, runs, has a usable record and takes instances.
func (f *Fleet) Open(slot int32) bool {
	r := &f.rows[slot]
	return r.flags&present != 0 && f.classes[r.class].open
}

// Holds reports whether no resource of a server is overdrawn.
func (f *Fleet) Holds(slot int32) bool {
	for i := range f.Names.Len() {
		if f.loads[slot].used[i] > 0 && f.Free(slot, i) < 0 {
			return false
		}
	}
	return true
}
