package placement

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Movable is an instance that is booked on a server, and may be moved to another.
type Movable struct {
	Name     string
	Slot     int32
	Kind     *Kind     // as it is booked
	Prepared *Prepared // what it asks for
	Fixed    string    // why it must stay, such as "is being stopped"; empty: it may be moved
}

// Goal says what moves are planned for.
type Goal struct {
	// room for it on some server, as Chain chooses it; nil: servers without instances, as many as
	// possible
	For   *Request
	Chain *Chain
	Limit int    // most moves
	Looks int    // bounds the work, in servers looked at for one instance; 0: no bound
	Seed  uint64 // of the order in which servers are looked at; the same seed gives the same plan
	Now   int64  // Unix seconds
}

// Move takes one instance from a server to another.
type Move struct{ Name, From, To string }

// Kept says why a server keeps its instances.
type Kept struct {
	Server string
	Name   string // of the instance that cannot be moved; empty: it is not because of one
	Why    string
}

// Plan is a list of moves that are possible in their order: each instance moves once at most, to a
// server that every filter which looks at one server keeps for what the instance asks, with all
// moves before it done.
type Plan struct {
	Moves   []Move
	Emptied []string // servers that are left without instances
	Room    string   // server that has room for Goal.For after the moves; empty: none has
	Kept    []Kept   // at most 100
	More    int      // servers that are kept beyond those
	Stopped bool     // the bound on work was reached; more may be possible
}

const (
	maxKeptServers = 100
	sampled        = 512 // servers that are looked at for one instance before the best of them is taken
	refusalOf1     = 8   // what it costs to say why one server is refused, in looks
)

// PlanMoves plans moves of instances and changes nothing: what it books on the way is taken back.
// It is greedy. To empty servers it begins with those that have the fewest instances and the least
// in use, moves to the fullest server that takes the instance of a sample, and gives a server up
// when one of its instances finds no place. To make room it tries servers that the request could
// use if they were empty, those first where the fewest and smallest instances are in the way.
//
// Servers that take no instances now are neither emptied nor moved to, nor are empty ones moved to
// in order to empty others. Only what a moved instance asks for itself is held: not that others
// want to be near to it, or far from it.
func (pl *Placer) PlanMoves(movables []Movable, goal Goal) (Plan, error) {
	f := pl.fleet
	if f.lazy() {
		return Plan{}, errors.New(
			"a plan books instances, which a fleet that loads them cannot do; give its servers their instances",
		)
	}
	if goal.Limit < 1 {
		return Plan{}, plimsoll.Invalid(
			"limit", "is %d; give the most moves that the plan may have, 1 or more", goal.Limit,
		)
	}
	if goal.Looks <= 0 {
		goal.Looks = math.MaxInt
	}
	d := defrag{
		placer: pl, fleet: f, goal: goal, looks: goal.Looks, movables: movables, on: make([][]int32, f.Len()),
		moved: make([]bool, len(movables)), shut: make([]bool, f.Len()), noted: map[uint32]bool{},
		rng: rand.New(rand.NewPCG(goal.Seed, 0x9e3779b97f4a7c15)),
	}
	for i := range movables {
		if s := movables[i].Slot; s < 0 || int(s) >= f.Len() || f.ids[s] == "" {
			return Plan{}, fmt.Errorf("instance %s is on slot %d, which has no server", movables[i].Name, s)
		}
		d.on[movables[i].Slot] = append(d.on[movables[i].Slot], int32(i))
	}
	for slot := range int32(f.Len()) {
		if f.ids[slot] != "" && f.Open(slot) {
			d.targets = append(d.targets, slot)
		}
	}
	t := trial{fleet: f, moves: f.moves, names: *f.Names, domains: len(f.domains)}
	defer func() {
		d.end()
		t.end()
	}()
	if goal.For == nil {
		d.emptyServers()
	} else {
		if err := t.prepare(goal.Chain, &Ask{Request: *goal.For}); err != nil {
			return Plan{}, err
		}
		d.wanted = t.prepared[0]
		d.makeRoom()
	}
	d.plan.Stopped = d.looks <= 0 || d.cut && d.plan.Room == ""
	return d.plan, nil
}

// defrag is a plan in the making.
type defrag struct {
	placer   *Placer
	fleet    *Fleet
	goal     Goal
	plan     Plan
	looks    int       // that are left
	wanted   *Prepared // Goal.For
	movables []Movable
	on       [][]int32 // by slot: indexes of movables
	moved    []bool    // by movable
	shut     []bool    // by slot: nothing is moved to it
	targets  []int32   // open servers, in an order that is shuffled as far as needed
	rng      *rand.Rand
	done     []shift
	ranks    []gain // scratch of least
	cut      bool   // not all servers were looked at to make room

	noted    map[uint32]bool
	versions []version
}

type shift struct{ movable, from, to int32 }

// used returns which part of a server is in use, of cpu or memory, whichever is more.
func (d *defrag) used(slot int32) float64 {
	whole, used := d.fleet.Capacity(slot), d.fleet.Used(slot)
	part := 0.0
	for _, i := range [...]int{IndexCPU, IndexMemory} {
		if whole[i] > 0 {
			part = max(part, float64(used[i])/float64(whole[i]))
		}
	}
	return part
}

// size returns which part of its server an instance holds, of the resource of which it holds most.
func (d *defrag) size(i int32) float64 {
	m := &d.movables[i]
	whole, part := d.fleet.Capacity(m.Slot), 0.0
	for k := range d.fleet.Names.Len() {
		if whole[k] > 0 {
			part = max(part, float64(m.Kind.amounts[k])/float64(whole[k]))
		}
	}
	return part
}

// ordered returns slots in ascending order of two keys, then of their ids.
func (d *defrag) ordered(slots []int32, first func(int32) int, second func(int32) float64) []int32 {
	type keyed struct {
		slot   int32
		first  int
		second float64
	}
	list := make([]keyed, len(slots))
	for i, slot := range slots {
		list[i] = keyed{slot, first(slot), second(slot)}
	}
	slices.SortFunc(list, func(a, b keyed) int {
		return cmp.Or(
			cmp.Compare(a.first, b.first), cmp.Compare(a.second, b.second),
			strings.Compare(d.fleet.ids[a.slot], d.fleet.ids[b.slot]),
		)
	})
	out := make([]int32, len(list))
	for i := range list {
		out[i] = list[i].slot
	}
	return out
}

func (d *defrag) emptyServers() {
	var inUse []int32
	for _, slot := range d.targets {
		if d.fleet.Count(slot) > 0 {
			inUse = append(inUse, slot)
		} else {
			d.shut[slot] = true
		}
	}
	received := make([]bool, d.fleet.Len())
	for _, slot := range d.ordered(inUse, d.fleet.Count, d.used) {
		if d.looks <= 0 || len(d.done) == d.goal.Limit {
			return
		}
		if received[slot] {
			continue
		}
		if d.shut[slot] = true; !d.empty(slot) {
			d.shut[slot] = false
			continue
		}
		for _, s := range d.done[len(d.done)-len(d.on[slot]):] {
			received[s.to] = true
		}
		d.plan.Emptied = append(d.plan.Emptied, d.fleet.ids[slot])
	}
}

// empty moves all instances of a server, or none.
func (d *defrag) empty(slot int32) bool {
	list, began := d.on[slot], len(d.done)
	switch n := d.fleet.Count(slot); {
	case n > d.goal.Limit-began:
		d.keep(slot, "", fmt.Sprintf("has %d instances, of which %d may still be moved", n, d.goal.Limit-began))
		return false
	case n > len(list):
		d.keep(slot, "", fmt.Sprintf("has %d instances that were not offered for moving", n-len(list)))
		return false
	}
	fixed := (*Movable)(nil)
	for _, i := range list {
		// in whatever order they were given
		if m := &d.movables[i]; m.Fixed != "" && (fixed == nil || m.Name < fixed.Name) {
			fixed = m
		}
	}
	if fixed != nil {
		d.keep(slot, fixed.Name, fixed.Fixed)
		return false
	}
	slices.SortFunc(list, func(a, b int32) int { // the largest, for which a place is hardest to find, first
		return cmp.Or(cmp.Compare(d.size(b), d.size(a)), strings.Compare(d.movables[a].Name, d.movables[b].Name))
	})
	for _, i := range list {
		if why := d.move(i); why != "" {
			d.undo(began)
			d.keep(slot, d.movables[i].Name, why)
			return false
		}
	}
	return true
}

func (d *defrag) keep(slot int32, name, why string) {
	if len(d.plan.Kept) == maxKeptServers {
		d.plan.More++
		return
	}
	d.plan.Kept = append(d.plan.Kept, Kept{d.fleet.ids[slot], name, why})
}

// move moves an instance to the best server of a sample that takes it, or says why there is none.
func (d *defrag) move(i int32) (why string) {
	m := &d.movables[i]
	d.note(m.Kind)
	d.fleet.Unbind(m.Slot, m.Kind)
	to := d.target(m)
	if to < 0 {
		why = d.refusals(m)
		d.fleet.Bind(m.Slot, m.Kind)
		return why
	}
	d.fleet.Bind(to, m.Kind)
	d.moved[i] = true
	d.done = append(d.done, shift{i, m.Slot, to})
	d.plan.Moves = append(d.plan.Moves, Move{m.Name, d.fleet.ids[m.Slot], d.fleet.ids[to]})
	return ""
}

// target returns the fullest server that takes an instance of the first sample in which there is
// one, -1 if there is none.
func (d *defrag) target(m *Movable) int32 {
	f, best, high := d.fleet, int32(-1), 0.0
	for i := range d.targets {
		if i > 0 && i%sampled == 0 && best >= 0 || d.looks <= 0 {
			break
		}
		d.looks--
		j := i + d.rng.IntN(len(d.targets)-i)
		d.targets[i], d.targets[j] = d.targets[j], d.targets[i]
		slot := d.targets[i]
		if slot == m.Slot || d.shut[slot] || !d.placer.Keeps(m.Prepared, slot, d.goal.Now) {
			continue
		}
		part := d.used(slot)
		if f.classes[f.rows[slot].class].record.Reservoir {
			part-- // the last resort
		}
		if best < 0 || part > high || part == high && f.ids[slot] < f.ids[best] {
			best, high = slot, part
		}
	}
	return best
}

// refusals says why no server takes an instance.
func (d *defrag) refusals(m *Movable) string {
	if d.looks < refusalOf1*len(d.targets) {
		return "no other node takes it"
	}
	d.looks -= refusalOf1 * len(d.targets)
	var s Step
	for _, slot := range slices.Sorted(slices.Values(d.targets)) {
		switch {
		case slot == m.Slot:
		case d.shut[slot] && d.fleet.Count(slot) == 0:
			s.drop("is empty", d.fleet.ids[slot])
		case d.shut[slot]:
			s.drop("is to be emptied", d.fleet.ids[slot])
		default:
			for _, v := range d.placer.ExplainServer(m.Prepared, slot, d.goal.Now) {
				if v.Why != "" {
					s.drop(v.Why, d.fleet.ids[slot])
					break
				}
			}
		}
	}
	if len(s.Reasons) == 0 {
		return "there is no other node that takes instances"
	}
	slices.SortStableFunc(s.Reasons, func(a, b Reason) int { return b.Servers - a.Servers })
	parts := make([]string, len(s.Reasons))
	for i, r := range s.Reasons {
		parts[i] = fmt.Sprintf("%d of %d other nodes: %s", r.Servers, len(d.targets)-1, r.Text)
	}
	return strings.Join(parts, "; ")
}

// undo takes back what was moved after the first shifts.
func (d *defrag) undo(shifts int) {
	for k := len(d.done) - 1; k >= shifts; k-- {
		s := d.done[k]
		d.fleet.Unbind(s.to, d.movables[s.movable].Kind)
		d.fleet.Bind(s.from, d.movables[s.movable].Kind)
		d.moved[s.movable] = false
	}
	d.done, d.plan.Moves = d.done[:shifts], d.plan.Moves[:shifts]
}

// note remembers the versions of the tags of a kind that is about to be booked.
func (d *defrag) note(k *Kind) {
	for _, tag := range append([]uint32{k.owner}, k.tags...) {
		if !d.noted[tag] {
			d.noted[tag] = true
			d.versions = append(d.versions, version{tag, d.fleet.tags.info[tag].version})
		}
	}
}

// end takes the moves back: no request that waits may notice.
func (d *defrag) end() {
	d.undo(0)
	for _, v := range d.versions {
		d.fleet.tags.info[v.tag].version = v.n
	}
}
