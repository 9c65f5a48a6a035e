package scheduler

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// wait is a class of which a task was due at least once, with the scheduler's knowledge of the
// nodes for it.
type wait struct {
	class   *state.Class
	family  *family
	code    plimsoll.WaitCode // why the class is blocked; WaitNone: it is not
	need    placement.Amounts // least free amounts that a node must have
	set     uint32            // resources that it needs, a bit for each index
	witness int32             // slot of a node that proves the code; -1: none; see Placer.Refusal
	place   int               // position in family.never
	woken   []int32           // slots for which it was opened, the only candidates; nil: any node

	number uint64 // order of arrival of the class

	// polled classes check each change of a node themselves, because their need alone does not
	// show whether a change matters. That is so if instances on other nodes matter too, or if the
	// chain compares no room or examines the instances of a node.
	polled    bool
	from      uint64 // number of the first change that the class has not checked
	relations uint64 // Prepared.Relations at its last check
	distant   uint64 // Prepared.Distant at its last check
}

// family is the classes that differ only in amounts, so that the same nodes are eligible for all.
// Its blocked classes that are not polled are in one of three lists, by code.
type family struct {
	key   string
	room  grid    // classes blocked with WaitNoNode
	large grid    // classes blocked with WaitTooLarge
	never []*wait // classes blocked with WaitNotEligible, which does not depend on amounts and so holds for the family
	guess int32   // last witness of a class of the family; Refusal tries it first
}

// waits holds the classes that no node takes. A change of a node is compared only with the classes
// that it may let be placed. Once more than half of the classes are gone, wake drops them.
type waits struct {
	placer       *placement.Placer
	comparesRoom bool // see Chain.ComparesRoom
	useMatters   bool // see Chain.UseMatters
	ownerMatters bool // see Chain.OwnerMatters

	byClass  map[*state.Class]*wait // Invariant: the same waits as all
	numbers  uint64                 // number of the last wait that was made; it never goes back
	all      []*wait                // in order of arrival
	families map[string]*family     // Invariant: the same families as order, by their key
	order    []*family              // in order of arrival
	polled   []*wait                // classes that are blocked and polled
	seen     uint64                 // number of the first change of a node that wake has not processed
	closed   bool                   // no node took tasks at the last wake
	scratch  []byte                 // reused for keys of families
	meet     map[rivalry]bool       // whether both could use the same node
	found    []*wait                // reused for the classes that openSome finds
	opened   []*wait                // classes that the last wake opened for some slots
}

func newWaits(placer *placement.Placer, chain *placement.Chain) *waits {
	return &waits{
		placer: placer, comparesRoom: chain.ComparesRoom(), useMatters: chain.UseMatters(),
		ownerMatters: chain.OwnerMatters(),
		byClass:      map[*state.Class]*wait{}, families: map[string]*family{},
	}
}

// of returns the wait of a class. It makes one if necessary.
func (ws *waits) of(c *state.Class) *wait {
	w := ws.byClass[c]
	if w == nil {
		p := c.Prepared
		ws.numbers++
		w = &wait{class: c, need: *p.Needs(), set: needSet(p.Amounts()), witness: -1, number: ws.numbers}
		w.polled = !ws.comparesRoom || ws.useMatters || p.Relations() != 0
		w.family = ws.familyOf(p)
		ws.byClass[c] = w
		ws.all = append(ws.all, w)
	}
	return w
}

// familyOf returns the family of a request. It makes one if necessary. The key is that of the
// request without amounts and, if no filter examines owners, without the owner.
func (ws *waits) familyOf(p *placement.Prepared) *family {
	r := p.Request
	r.Resources = nil
	if !ws.ownerMatters {
		r.Owner = ""
	}
	ws.scratch = r.AppendKey(ws.scratch[:0])
	f := ws.families[string(ws.scratch)]
	if f == nil {
		f = &family{key: string(ws.scratch), guess: -1}
		ws.families[f.key] = f
		ws.order = append(ws.order, f)
	}
	return f
}

// refused blocks a class and returns true if no node can take it, without asking every node. There
// are four such cases: no node takes tasks; the family has no eligible node; the class was opened
// for some slots and none of those takes it; or another class of the family that needs at most as
// much finds no room, or is too large.
func (ws *waits) refused(s *state.State, w *wait) bool {
	f := w.family
	switch {
	case w.polled && s.Eligible() > 0:
		return false
	case s.Eligible() == 0, slices.ContainsFunc(f.never, isLive):
	case w.woken != nil && !ws.placer.KeepsAny(w.class.Prepared, w.woken, s.Seconds()):
	case f.large.within(&w.need, w.set, isLive) != nil:
	case f.room.within(&w.need, w.set, isLive) != nil:
	default:
		return false
	}
	ws.block(s, w)
	return true
}

func isLive(w *wait) bool { return !w.class.Gone() }

// block finds the code for which no node takes a class, and blocks the class with it.
func (ws *waits) block(s *state.State, w *wait) {
	f := w.family
	w.woken = nil
	switch larger := f.large.within(&w.need, w.set, isLive); {
	case s.Eligible() == 0:
		w.code, w.witness = plimsoll.WaitNoNodes, -1
	case slices.ContainsFunc(f.never, isLive):
		w.code, w.witness = plimsoll.WaitNotEligible, -1
	case larger != nil: // a class that needs at most as much is too large already
		w.code, w.witness = plimsoll.WaitTooLarge, larger.witness
	default:
		w.code, w.witness = ws.placer.Refusal(w.class.Prepared, s.Seconds(), f.guess)
		f.guess = w.witness
	}
	ws.enlist(s, w)
	s.Tree().Block(w.class.Class, w.code)
}

// enlist puts a class into the list that is searched after the changes that may open it.
// WaitNoNodes has no list: wake opens all classes when a node takes tasks again.
func (ws *waits) enlist(s *state.State, w *wait) {
	switch {
	case w.code == plimsoll.WaitNoNodes:
	case w.polled:
		_, w.from, _ = s.NodeEvents(0)
		w.relations, w.distant = w.class.Prepared.Relations(), w.class.Prepared.Distant()
		ws.polled = append(ws.polled, w)
	case w.code == plimsoll.WaitNotEligible:
		w.place = len(w.family.never)
		w.family.never = append(w.family.never, w)
	case w.code == plimsoll.WaitTooLarge:
		w.family.large.add(w)
	default:
		w.family.room.add(w)
	}
}

// delist undoes enlist. A polled class is an exception: poll removes it from its list.
func (w *wait) delist() {
	switch {
	case w.polled || w.code == plimsoll.WaitNoNodes || w.code == plimsoll.WaitNone:
	case w.code == plimsoll.WaitNotEligible:
		w.family.dropNever(w)
	case w.code == plimsoll.WaitTooLarge:
		w.family.large.remove(w)
	default:
		w.family.room.remove(w)
	}
}

func (f *family) dropNever(w *wait) {
	last := len(f.never) - 1
	f.never[w.place] = f.never[last]
	f.never[w.place].place = w.place
	f.never[last] = nil
	f.never = f.never[:last]
}

// open lets a class be tried again: on the nodes in the woken slots, or on any if woken is nil.
func (ws *waits) open(s *state.State, w *wait, woken []int32) {
	w.delist()
	w.code, w.woken = plimsoll.WaitNone, woken
	if w.class.Gone() {
		return
	}
	s.Tree().Open(w.class.Class)
	if woken != nil {
		ws.opened = append(ws.opened, w)
	}
}

// maxWoken is the number of changed nodes up to which a class is tried on each of them. Beyond it,
// the class is tried like any other.
const maxWoken = 32

// wake processes the changes of nodes since the last call. It opens the classes that these changes
// may let be placed, and recomputes the codes that may have become wrong.
func (ws *waits) wake(s *state.State) {
	ws.sweep(s)
	for _, w := range ws.opened { // if the last cycle did not reach it, other nodes may take it now
		w.woken = nil
	}
	ws.opened = ws.opened[:0]
	events, next, ok := s.NodeEvents(ws.seen)
	ws.seen = next
	if closed := s.Eligible() == 0; closed != ws.closed || !ok {
		ws.closed = closed
		ws.nodesChanged(s)
		for _, w := range ws.all {
			if w.code != plimsoll.WaitNone {
				ws.open(s, w, nil)
			}
		}
		ws.polled = ws.polled[:0]
		return
	}
	if len(events) > 0 {
		ws.changed(s, events)
	}
	ws.poll(s)
}

// changed processes changes of nodes for the classes that are not polled.
func (ws *waits) changed(s *state.State, events []state.NodeEvent) {
	lost := slotsOf(events, state.NodeLost)
	ws.lost(s, lost)
	gained, freed := slotsOf(events, state.NodeGained), slotsOf(events, state.RoomFreed)
	if len(gained)+len(lost) > 0 {
		ws.nodesChanged(s)
	}
	woken := append(slices.Clone(gained), freed...)
	if len(woken) > maxWoken {
		woken = nil
	}
	for _, slot := range gained {
		ws.gained(s, slot, woken)
	}
	for _, slot := range freed {
		now, _ := s.Fleet.Room(slot)
		ws.freed(s, slot, &now, woken)
	}
}

// slotsOf returns the slots of the events of a kind, each slot once.
func slotsOf(events []state.NodeEvent, kind state.NodeChange) (slots []int32) {
	for _, e := range events {
		if e.Change == kind {
			slots = append(slots, e.Slot)
		}
	}
	slices.Sort(slots)
	return slices.Compact(slots)
}

// freed opens the classes that fit into the room left on a node and whose filters keep the node.
func (ws *waits) freed(s *state.State, slot int32, room *placement.Amounts, woken []int32) {
	for _, f := range ws.order {
		ws.openSome(
			s, &f.room, room, woken, func(w *wait) bool { return ws.placer.Keeps(w.class.Prepared, slot, s.Seconds()) },
		)
	}
}

// openSome opens the classes of a grid that fit into some room and for which take is true.
func (ws *waits) openSome(s *state.State, g *grid, room *placement.Amounts, woken []int32, take func(*wait) bool) {
	ws.found = ws.found[:0]
	g.within(room, 0, func(w *wait) bool {
		if w.class.Gone() || take(w) {
			ws.found = append(ws.found, w)
		}
		return false
	})
	// The last class of a bin goes first, so that the others need not move up.
	for _, w := range slices.Backward(ws.found) {
		ws.open(s, w, woken)
	}
}

// gained opens classes for a node that is new, open again or described anew. It opens the classes
// that the node takes now. Of the classes that were too large, it opens those that the node would
// take if it were empty. It opens a family without an eligible node if the node is eligible.
func (ws *waits) gained(s *state.State, slot int32, woken []int32) {
	if s.Fleet.ID(slot) == "" {
		return
	}
	now, empty := s.Fleet.Room(slot)
	ws.freed(s, slot, &now, woken)
	for _, f := range ws.order {
		ws.openSome(s, &f.large, &empty, nil, func(w *wait) bool {
			_, fits := ws.placer.Suits(w.class.Prepared, slot, s.Seconds())
			return fits
		})
		if i := slices.IndexFunc(f.never, isLive); i >= 0 {
			if eligible, _ := ws.placer.Suits(f.never[i].class.Prepared, slot, s.Seconds()); !eligible {
				continue
			}
		}
		for _, w := range slices.Clone(f.never) {
			ws.open(s, w, nil)
		}
	}
}

// lost finds new witnesses for the classes whose witness is among the slots of nodes that are gone
// or offer less. Their codes may change. The loss of a node lets no class be placed. If it changes
// how a class is spread, or where its volumes are, poll notices.
func (ws *waits) lost(s *state.State, slots []int32) {
	if len(slots) == 0 {
		return
	}
	for _, w := range ws.all {
		if w.witness < 0 || w.class.Gone() || w.code == plimsoll.WaitNone {
			continue
		}
		if _, found := slices.BinarySearch(slots, w.witness); found {
			w.delist()
			was := w.code
			w.code, w.witness = ws.placer.Refusal(w.class.Prepared, s.Seconds(), w.family.guess)
			w.family.guess = w.witness
			if !w.polled { // polled classes stay in their list
				ws.enlist(s, w)
			}
			if w.code != was {
				s.Tree().Block(w.class.Class, w.code)
			}
		}
	}
}

// poll opens the polled classes that have a cause to be tried again, and reports whether there
// were any.
func (ws *waits) poll(s *state.State) (opened bool) {
	kept := ws.polled[:0]
	for _, w := range ws.polled {
		switch {
		case w.class.Gone():
			w.code = plimsoll.WaitNone
		case ws.hasCause(s, w):
			ws.open(s, w, nil)
			opened = true
		default:
			kept = append(kept, w)
		}
	}
	clear(ws.polled[len(kept):])
	ws.polled = kept
	return opened
}

// hasCause reports whether a polled class may find a node now, or may wait for another code.
func (ws *waits) hasCause(s *state.State, w *wait) bool {
	p := w.class.Prepared
	events, next, ok := s.NodeEvents(w.from)
	w.from = next
	relations, distant := p.Relations(), p.Distant()
	related := relations != w.relations
	w.relations = relations
	if !ok || distant != w.distant { // the spread of its group changed, or its volumes moved
		return true
	}
	for _, e := range events {
		switch e.Change {
		case state.NodeLost: // its code may change; see lost
		case state.TaskCame: // a task that it must be far from has left and freed room
			if (related || ws.useMatters) && ws.placer.Keeps(p, e.Slot, s.Seconds()) {
				return true
			}
		default:
			if ws.placer.Keeps(p, e.Slot, s.Seconds()) {
				return true
			}
			if w.code == plimsoll.WaitNoNode {
				continue
			}
			eligible, fits := ws.placer.Suits(p, e.Slot, s.Seconds())
			if fits || eligible && w.code == plimsoll.WaitNotEligible {
				return true
			}
		}
	}
	return false
}

// sweep drops classes that are gone, and families without classes. It does so once there are more
// than twice as many waits as classes of the state, plus 64. So its cost is spread over the classes
// that have gone.
func (ws *waits) sweep(s *state.State) {
	if len(ws.all) <= 2*s.Classes()+64 {
		return
	}
	ws.meet = nil
	live := 0
	for _, w := range ws.all {
		if w.class.Gone() {
			w.delist()
			delete(ws.byClass, w.class)
			continue
		}
		ws.all[live] = w
		live++
	}
	clear(ws.all[live:])
	ws.all = ws.all[:live]
	ws.polled = slices.DeleteFunc(ws.polled, func(w *wait) bool { return w.class.Gone() })
	ws.opened = slices.DeleteFunc(ws.opened, func(w *wait) bool { return w.class.Gone() })
	used := map[*family]bool{}
	for _, w := range ws.all {
		used[w.family] = true
	}
	ws.order = slices.DeleteFunc(ws.order, func(f *family) bool {
		if !used[f] {
			delete(ws.families, f.key)
		}
		return !used[f]
	})
}
