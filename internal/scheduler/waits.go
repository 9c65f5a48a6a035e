package scheduler

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// wait is a class that was blocked for want of a node, at least once.
type wait struct {
	class   *state.Class
	family  *family
	code    plimsoll.WaitCode // why it is blocked; WaitNone: it is not
	need    placement.Amounts // what must be free on a node
	set     uint32            // of the resources that it asks for
	witness int32             // slot of a node for which the code is so; see Placer.Refusal
	woken   []int32           // slots for which it was opened, if it can be placed nowhere else; nil: anywhere

	// Of a class for which instances on other nodes matter, or a chain that compares no room: it looks at each change of a node.
	polled    bool
	from      uint64 // the first change that it has not seen
	relations uint64 // Prepared.Relations that was seen
	distant   uint64 // Prepared.Distant that was seen
}

// family is the classes that differ in amounts only, so that the same nodes are for all of them.
type family struct {
	key   string
	room  grid    // those that have no room now
	large grid    // those that are too large for every node
	never []*wait // those for which there is no node; if there is one, it is all of them
	guess int32   // a witness, tried first
}

// waits knows the classes that no node takes, so that a change of a node looks only at those that it may let be placed. There are at most
// as many as twice the classes of the state.
type waits struct {
	placer       *placement.Placer
	comparesRoom bool // see Chain.ComparesRoom
	ownerMatters bool

	byClass  map[*state.Class]*wait
	all      []*wait
	families map[string]*family
	order    []*family // all families
	polled   []*wait   // those that are blocked and polled
	seen     uint64    // number of the first change of a node that was not seen
	closed   bool      // no node took tasks when it was looked at last
	scratch  []byte
	found    []*wait
	opened   []*wait // those that were opened for some nodes
}

func newWaits(placer *placement.Placer, chain *placement.Chain) *waits {
	return &waits{
		placer: placer, comparesRoom: chain.ComparesRoom(), ownerMatters: chain.OwnerMatters(),
		byClass: map[*state.Class]*wait{}, families: map[string]*family{},
	}
}

// of returns what is known of a class.
func (ws *waits) of(c *state.Class) *wait {
	w := ws.byClass[c]
	if w == nil {
		p := c.Prepared
		w = &wait{class: c, need: *p.Needs(), set: needSet(p.Amounts()), witness: -1, polled: !ws.comparesRoom || p.Relations() != 0}
		w.family = ws.familyOf(p)
		ws.byClass[c] = w
		ws.all = append(ws.all, w)
	}
	return w
}

// familyOf returns the family of a request: those that are the same but for the amounts.
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

// refused reports whether it is clear, without asking every node, that none takes a class, and blocks it then.
func (ws *waits) refused(s *state.State, w *wait) bool {
	f := w.family
	switch {
	case w.polled && s.Eligible() > 0:
		return false
	case s.Eligible() == 0, slices.ContainsFunc(f.never, isLive):
	case w.woken != nil && !ws.placer.KeepsAny(w.class.Prepared, w.woken, s.Seconds()):
	case f.large.within(&w.need, w.set, isLive) != nil:
	case f.room.within(&w.need, w.set, isLive) != nil: // one that asks for no more, and finds no room
	default:
		return false
	}
	ws.block(s, w)
	return true
}

func isLive(w *wait) bool { return !w.class.Gone() }

// block notes that no node takes a class, and why.
func (ws *waits) block(s *state.State, w *wait) {
	f := w.family
	w.woken = nil
	switch larger := f.large.within(&w.need, w.set, isLive); {
	case s.Eligible() == 0:
		w.code, w.witness = plimsoll.WaitNoNodes, -1
	case slices.ContainsFunc(f.never, isLive):
		w.code, w.witness = plimsoll.WaitNotEligible, -1
	case larger != nil: // it asks for no less than one that is too large
		w.code, w.witness = plimsoll.WaitTooLarge, larger.witness
	default:
		w.code, w.witness = ws.placer.Refusal(w.class.Prepared, s.Seconds(), f.guess)
		f.guess = w.witness
	}
	ws.enlist(s, w)
	s.Tree().Block(w.class.Class, w.code)
}

// enlist puts a class where the changes that may open it find it.
func (ws *waits) enlist(s *state.State, w *wait) {
	switch {
	case w.code == plimsoll.WaitNoNodes:
	case w.polled:
		_, w.from, _ = s.NodeEvents(0)
		w.relations, w.distant = w.class.Prepared.Relations(), w.class.Prepared.Distant()
		ws.polled = append(ws.polled, w)
	case w.code == plimsoll.WaitNotEligible:
		w.family.never = append(w.family.never, w)
	case w.code == plimsoll.WaitTooLarge:
		w.family.large.add(w)
	default:
		w.family.room.add(w)
	}
}

// delist is the inverse of enlist, but for those that are polled, which their list drops by itself.
func (w *wait) delist() {
	switch {
	case w.polled || w.code == plimsoll.WaitNoNodes || w.code == plimsoll.WaitNone:
	case w.code == plimsoll.WaitNotEligible:
		w.family.never = slices.DeleteFunc(w.family.never, func(o *wait) bool { return o == w })
	case w.code == plimsoll.WaitTooLarge:
		w.family.large.remove(w)
	default:
		w.family.room.remove(w)
	}
}

// open lets a class be tried again, anywhere or, with some, on the nodes in those slots only.
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

// maxWoken is how many nodes a class is tried on one by one; with more it is tried anywhere.
const maxWoken = 32

// wake opens the classes that the changes of nodes since the last call may let be placed, and finds new codes for those whose code they
// may have made wrong.
func (ws *waits) wake(s *state.State) {
	ws.sweep(s)
	for _, w := range ws.opened { // those that were not yet tried may be placed on other nodes too now
		w.woken = nil
	}
	ws.opened = ws.opened[:0]
	events, next, ok := s.NodeEvents(ws.seen)
	ws.seen = next
	if closed := s.Eligible() == 0; closed != ws.closed || !ok {
		ws.closed = closed
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

// changed acts on changes of nodes for the classes that are not polled.
func (ws *waits) changed(s *state.State, events []state.NodeEvent) {
	ws.lost(s, slotsOf(events, state.NodeLost))
	gained, freed := slotsOf(events, state.NodeGained), slotsOf(events, state.RoomFreed)
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

// slotsOf returns the slots of the events of a kind, each once.
func slotsOf(events []state.NodeEvent, kind state.NodeChange) (slots []int32) {
	for _, e := range events {
		if e.Change == kind {
			slots = append(slots, e.Slot)
		}
	}
	slices.Sort(slots)
	return slices.Compact(slots)
}

// freed opens the classes that fit into what is left on a node and that it takes.
func (ws *waits) freed(s *state.State, slot int32, room *placement.Amounts, woken []int32) {
	for _, f := range ws.order {
		ws.openSome(s, &f.room, room, woken, func(w *wait) bool { return ws.placer.Keeps(w.class.Prepared, slot, s.Seconds()) })
	}
}

// openSome opens the classes of a grid that fit into a room and that take chooses.
func (ws *waits) openSome(s *state.State, g *grid, room *placement.Amounts, woken []int32, take func(*wait) bool) {
	ws.found = ws.found[:0]
	g.within(room, 0, func(w *wait) bool {
		if w.class.Gone() || take(w) {
			ws.found = append(ws.found, w)
		}
		return false
	})
	for _, w := range ws.found {
		ws.open(s, w, woken)
	}
}

// gained opens the classes that a node takes that is new or open again, or that it would take if it were empty, or that it is for.
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

// lost finds new witnesses for those that have lost theirs, and with it perhaps their code.
func (ws *waits) lost(s *state.State, slots []int32) {
	if len(slots) == 0 {
		return
	}
	for _, w := range ws.all {
		if w.polled || w.witness < 0 || w.class.Gone() || w.code == plimsoll.WaitNone {
			continue
		}
		if _, found := slices.BinarySearch(slots, w.witness); found {
			w.delist()
			was := w.code
			w.code, w.witness = ws.placer.Refusal(w.class.Prepared, s.Seconds(), w.family.guess)
			w.family.guess = w.witness
			ws.enlist(s, w)
			if w.code != was {
				s.Tree().Block(w.class.Class, w.code)
			}
		}
	}
}

// poll opens the polled classes that have a cause to be tried again, and reports whether there were any.
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

// hasCause reports whether a polled class may find a node now, or have another code.
func (ws *waits) hasCause(s *state.State, w *wait) bool {
	p := w.class.Prepared
	events, next, ok := s.NodeEvents(w.from)
	w.from = next
	relations, distant := p.Relations(), p.Distant()
	related := relations != w.relations
	w.relations = relations
	if !ok || distant != w.distant { // its spread is another one, or its volumes are elsewhere
		return true
	}
	for _, e := range events {
		switch e.Change {
		case state.NodeLost:
			return true
		case state.TaskCame: // what it is to be far from and has gone has freed room
			if related && ws.placer.Keeps(p, e.Slot, s.Seconds()) {
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

// sweep forgets classes that are gone when they are the most.
func (ws *waits) sweep(s *state.State) {
	if len(ws.all) <= 2*s.Classes()+64 {
		return
	}
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
