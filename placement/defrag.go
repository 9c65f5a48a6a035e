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

// Movable is a booked instance that may be moved to another server.
type Movable struct {
	Name     string
	Slot     int32     // slot of its server
	Kind     *Kind     // kind under which it is booked
	Prepared *Prepared // request of the instance
	Fixed    string    // why the instance must stay, such as "is being stopped"; empty: it may be moved
}

// Goal is the purpose of a plan of moves, with its bounds.
type Goal struct {
	// For asks for room on some server, as Chain chooses it. nil asks for as many empty servers as
	// possible.
	For   *Request
	Chain *Chain
	Limit int    // most moves
	Looks int    // bound on the work, in servers looked at for one instance; 0: no bound
	Seed  uint64 // seed of the order in which servers are looked at; the same seed gives the same plan
	Now   int64  // Unix seconds
}

// Move takes one instance from a server to another.
type Move struct{ Name, From, To string }

// Kept says why a server keeps its instances.
type Kept struct {
	Server string
	Name   string // name of the instance that cannot be moved; empty: no single instance is the cause
	Why    string
}

// Plan is a list of moves that are possible in their order. Each instance moves at most once. After
// the moves before it, its new server passes all filters of single servers for the instance.
type Plan struct {
	Moves   []Move
	Emptied []string // servers that are left without instances
	Room    string   // server that has room for Goal.For after the moves; empty: none has
	Kept    []Kept   // at most 100
	More    int      // further servers that keep their instances
	Stopped bool     // the bound on work was reached; more may be possible
}

const (
	maxKeptServers = 100
	sampled        = 512 // servers that are looked at for one instance before the best of them is taken
	refusalOf1     = 8   // cost of explaining why one server refuses an instance, in looks
)

// PlanMoves plans moves of instances and changes nothing: its bookings are rolled back. The plan is
// greedy.
//
// To empty servers, it begins with those that have the fewest instances, and among them with the
// least used. An instance goes to the fullest server of a sample that takes it. A server is given
// up when one of its instances finds no other server.
//
// To make room, it tries servers that could take the request if they were empty. Those with the
// fewest and smallest instances in the way come first.
//
// Closed servers are neither emptied nor moved to. Empty servers are not moved to in order to empty
// others. A move respects the constraints of the moved instance, but not the wish of others to be
// near to it or far from it.
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
	run := dryRun{fleet: f, moves: f.moves, names: *f.Names, domains: len(f.domains)}
	defer func() {
		d.end()
		run.end()
	}()
	if goal.For == nil {
		d.emptyServers()
	} else {
		if err := run.prepare(goal.Chain, &Ask{Request: *goal.For}); err != nil {
			return Plan{}, err
		}
		d.wanted = run.prepared[0]
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
	looks    int       // rest of the bound on work
	wanted   *Prepared // Goal.For, prepared
	movables []Movable
	on       [][]int32 // by slot: indexes of movables
	moved    []bool    // by movable
	shut     []bool    // by slot: the server is no target of moves
	targets  []int32   // open servers, in an order that is shuffled as far as needed
	rng      *rand.Rand
	done     []bookedMove // moves that are booked, in their order. Invariant: as long as plan.Moves
	ranks    []gain       // scratch of least
	cut      bool         // room was sought on some of the servers only

	noted    map[uint32]bool // tags whose version is in versions
	versions []version       // versions of the tags before the first move
}

type bookedMove struct{ movable, from, to int32 }

// used returns the part of a server's cpu or memory that is in use, whichever is larger.
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

// size returns the part of its server that an instance holds, of the resource with the largest
// part.
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
		// the smallest name, so that the order of the input does not matter
		if m := &d.movables[i]; m.Fixed != "" && (fixed == nil || m.Name < fixed.Name) {
			fixed = m
		}
	}
	if fixed != nil {
		d.keep(slot, fixed.Name, fixed.Fixed)
		return false
	}
	slices.SortFunc(list, func(a, b int32) int { // the largest first, because it fits on the fewest servers
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

// move moves an instance to the best server of a sample that takes it, or returns why there is
// none.
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
	d.done = append(d.done, bookedMove{i, m.Slot, to})
	d.plan.Moves = append(d.plan.Moves, Move{m.Name, d.fleet.ids[m.Slot], d.fleet.ids[to]})
	return ""
}

// target returns the fullest server that takes an instance, of the first sample with such a server;
// -1 if there is none.
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
			part-- // reservoir servers come last
		}
		if best < 0 || part > high || part == high && f.ids[slot] < f.ids[best] {
			best, high = slot, part
		}
	}
	return best
}

// refusals returns why no server takes an instance.
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

// undo takes back all but the first n booked moves.
func (d *defrag) undo(n int) {
	for k := len(d.done) - 1; k >= n; k-- {
		s := d.done[k]
		d.fleet.Unbind(s.to, d.movables[s.movable].Kind)
		d.fleet.Bind(s.from, d.movables[s.movable].Kind)
		d.moved[s.movable] = false
	}
	d.done, d.plan.Moves = d.done[:n], d.plan.Moves[:n]
}

// note remembers the versions of a kind's tags before the kind is booked.
func (d *defrag) note(k *Kind) {
	for _, tag := range append([]uint32{k.owner}, k.tags...) {
		if !d.noted[tag] {
			d.noted[tag] = true
			d.versions = append(d.versions, version{tag, d.fleet.tags.info[tag].version})
		}
	}
}

// end takes the moves back and restores the versions of tags, so that no waiting request is woken.
func (d *defrag) end() {
	d.undo(0)
	for _, v := range d.versions {
		d.fleet.tags.info[v.tag].version = v.n
	}
}
