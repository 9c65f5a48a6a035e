package placement

import (
	"fmt"
	"math"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// Decisions keeps the last placements, so that a caller can ask later why an instance is on its
// server. The ring holds as many as NewDecisions says; the oldest are overwritten. A decision takes
// about 100 bytes for each server of its last batch.
type Decisions struct {
	ring  []noted
	next  int
	index map[string]int // place in ring by name
	owned []uint32       // of the servers of a decision; used again
}

// noted is a decision as it is kept: the servers of the last batch, without texts.
type noted struct {
	name    string
	p       *Prepared // request and chain, the parts that do not change
	names   []string  // resource names
	at      int64
	seed    uint64
	chosen  int32 // place in servers
	choice  Choice
	inOrder bool // the first kept server was chosen
	steps   []flow
	servers []notedServer
	custom  []int64  // free custom resources, server by server
	tags    []uint32 // instances that the selectors and the group's spread hit, server by server
	// counts has, server by server and spread by spread, the instances of the group that have the
	// server's value; -1: the server has no value.
	counts []int32
	lowest []lowest          // by spread that is a constraint
	places map[string]string // servers of the instances that the request names, by instance id
}

// lowest is a value with the fewest instances of a group.
type lowest struct {
	value string
	n     int32 // -1: no value counted
}

type notedServer struct {
	id       string
	class    *class
	free     [firstCustom]int64
	score    float64
	count    uint32
	uncapped uint32
	owned    uint32
	kept     bool
	sick     bool
}

// NewDecisions returns room for the last n decisions.
func NewDecisions(n int) *Decisions {
	return &Decisions{ring: make([]noted, 0, max(n, 1)), index: map[string]int{}}
}

// Len returns how many decisions are kept.
func (d *Decisions) Len() int { return len(d.ring) }

// Note keeps the result of the last Place under a name. Call it after a Place that chose a server
// and before the choice is booked, on a fleet that holds its instances.
func (pl *Placer) Note(d *Decisions, name string) {
	b, f := &pl.batch, pl.fleet
	if d.next == len(d.ring) && len(d.ring) < cap(d.ring) {
		d.ring = append(d.ring, noted{})
	}
	n := &d.ring[d.next]
	if n.name != "" && d.index[n.name] == d.next {
		delete(d.index, n.name)
	}
	d.index[name] = d.next
	d.next = (d.next + 1) % cap(d.ring)
	n.name, n.p, n.at, n.seed, n.names, n.choice = name, b.p, b.now, b.first, f.Names.names, b.choice
	n.inOrder = b.inOrder
	n.steps, n.servers, n.custom, n.tags = b.flows(n.steps[:0]), n.servers[:0], n.custom[:0], n.tags[:0]
	d.owned = f.ownedOf(d.owned, b.slots, b.p.owner)
	for i, slot := range b.slots {
		r := &f.rows[slot]
		n.servers = append(n.servers, notedServer{
			id: f.ids[slot], class: f.classes[r.class], free: r.free, score: b.score[i], count: r.count,
			uncapped: r.uncapped, owned: d.owned[i], sick: r.flags&sick != 0,
		})
		if slot == b.choice.Slot {
			n.chosen = int32(i)
		}
		for k := firstCustom; k < f.Names.Len(); k++ {
			n.custom = append(n.custom, f.Free(slot, k))
		}
		for _, tag := range b.p.watched {
			n.tags = append(n.tags, tallied(f.loads[slot].tags, tag))
		}
	}
	for _, i := range b.final {
		n.servers[i].kept = true
	}
	n.places = b.p.places()
	n.noteSpreads(b)
}

// noteSpreads keeps the counts of the request's spreads on the servers of the batch, and the fewest
// instances that they are compared with.
func (n *noted) noteSpreads(b *Batch) {
	f := b.fleet
	n.counts, n.lowest = n.counts[:0], n.lowest[:0]
	for i := range b.p.hardSpread {
		low := lowest{n: -1}
		if s := &b.p.hardSpread[i]; s.lowAt >= 0 {
			low = lowest{f.valueName(s.domain, s.lowAt), s.low}
		}
		n.lowest = append(n.lowest, low)
	}
	for _, slot := range b.slots {
		for i := range b.p.hardSpread {
			n.counts = append(n.counts, f.countAt(b.p.hardSpread[i].counter, slot))
		}
		for _, c := range b.p.softSpread {
			n.counts = append(n.counts, f.countAt(c, slot))
		}
	}
}

// countAt returns the count of a server's value, -1 if the server has none.
func (f *Fleet) countAt(c *counter, slot int32) int32 {
	if v := f.valueOf(c.domain, slot); v >= 0 {
		return c.at(v)
	}
	return -1
}

// fewest returns, by hard spread, the fewest instances of the group in a value that counted; -1 if
// no value did.
func (n *noted) fewest() (out []int32) {
	for i := range n.lowest {
		out = append(out, n.lowest[i].n)
	}
	return out
}

// spreads returns the counts of each spread by value, as far as they are kept.
func (n *noted) spreads() []map[string]int32 {
	var by []string
	for _, list := range [...][]plimsoll.Spread{n.p.Request.Constraints.Spread, n.p.Request.Preferences.Spread} {
		for _, s := range list {
			by = append(by, s.By)
		}
	}
	var out []map[string]int32
	for k, key := range by {
		counts := map[string]int32{}
		if k < len(n.lowest) && n.lowest[k].n >= 0 {
			counts[n.lowest[k].value] = n.lowest[k].n
		}
		for i := range n.servers {
			if count := n.counts[i*len(by)+k]; count >= 0 && key == SpreadByNode {
				counts[n.servers[i].id] = count
			} else if count >= 0 {
				counts[n.servers[i].class.record.Labels[key]] = count
			}
		}
		out = append(out, counts)
	}
	return out
}

// places returns the servers of the instances that the request names.
func (p *Prepared) places() map[string]string {
	var out map[string]string
	put := func(id string, slot int32) {
		if out == nil {
			out = map[string]string{}
		}
		if slot >= 0 {
			out[id] = p.fleet.ids[slot]
		}
	}
	for _, list := range [...][]selector{p.hardNear, p.hardFar, p.softNear, p.softFar} {
		for i := range list {
			if list[i].id != "" {
				put(list[i].id, list[i].slot)
			}
		}
	}
	for _, id := range p.Request.Constraints.VolumesFrom {
		put(id, p.volumes.slot)
	}
	return out
}

// flows returns how many servers each stage received and left, stages of the prefix included.
func (b *Batch) flows(out []flow) []flow {
	out = append(out, b.flow...)
	left := uint32(b.choice.Looked)
	for i := range b.chain.prefix {
		stage := b.chain.root.items[i].stage
		if b.p.skips[stage] {
			continue
		}
		out[stage] = flow{left, left - b.drops[stage]}
		left -= b.drops[stage]
	}
	return out
}

// Decision is a placement as it was decided.
type Decision struct {
	Name    string
	At      int64 // Unix seconds
	Server  string
	Score   float64
	Looked  int // open servers that were looked at
	Batches int
	Steps   []Step // without reasons, added up over all batches
	// Candidates are the servers of the last batch that the filters on records left. Servers that
	// all filters left come first, the best of them at the front.
	Candidates []Candidate

	kept *noted
}

// Candidate is a server that a decision compared.
type Candidate struct {
	Server    string
	Kept      bool // the server was scored
	Score     float64
	Free      plimsoll.Resources // before the placement
	Instances int
}

// Last returns the latest decision under a name, if it is still kept. The decision is valid until
// the next Note; see Keep.
func (d *Decisions) Last(name string) (*Decision, bool) {
	i, ok := d.index[name]
	if !ok {
		return nil, false
	}
	n := &d.ring[i]
	out := &Decision{
		Name: n.name, At: n.at, Server: n.servers[n.chosen].id, Score: n.choice.Score, Looked: n.choice.Looked,
		Batches: n.choice.Batches, kept: n,
	}
	for stage, f := range n.steps {
		if f.in > 0 {
			s := &n.p.chain.stages[stage]
			out.Steps = append(out.Steps, Step{
				Stage: s.Name, Kind: s.kind(), Received: int(f.in), Remaining: int(f.out),
				Dropped: int(f.in) - int(f.out),
			})
		}
	}
	for i := range n.servers {
		s := &n.servers[i]
		out.Candidates = append(out.Candidates, Candidate{s.id, s.kept, s.score, n.free(i), int(s.count)})
	}
	slices.SortStableFunc(out.Candidates, func(a, b Candidate) int {
		switch {
		case a.Kept != b.Kept && a.Kept:
			return -1
		case a.Kept != b.Kept:
			return 1
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return 0
	})
	return out, true
}

func (n *noted) free(i int) plimsoll.Resources {
	r := plimsoll.Resources{}
	for k, name := range n.names {
		switch {
		case k < firstCustom:
			r[name] = n.servers[i].free[k]
		case n.servers[i].class.whole[k] > 0 && len(n.custom) >= len(n.servers)*(len(n.names)-firstCustom):
			r[name] = n.custom[i*(len(n.names)-firstCustom)+k-firstCustom]
		}
	}
	return r
}

// DecisionRecord is a decision with all its inputs, so that Replay can repeat it elsewhere and
// later. Its parts belong to the decision, and are valid as long.
type DecisionRecord struct {
	Name     string
	At       int64 // Unix seconds
	Seed     uint64
	Server   string
	Score    float64
	Looked   int // open servers that were looked at
	Batches  int
	Chain    Expression // without definitions
	Settings Settings
	Request  Request
	Names    []string         // resource names
	Servers  []RecordedServer // of the last batch
	InOrder  bool             // the first server that was left was chosen; see Fleet.OrderBy
	// Spreads has, by spread of the request and constraints first, the instances of the group by
	// value.
	Spreads []map[string]int32
	Fewest  []int32 // by hard spread: the least count of a value that was compared; -1: none was
	// Places has the server of each instance that the request names, without instances that are
	// nowhere.
	Places map[string]string
}

// RecordedServer is a server as it was when a decision was made.
type RecordedServer struct {
	Server    Server // without instances
	Free      plimsoll.Resources
	Instances uint32
	Uncapped  uint32   // instances that have no amount of cpu
	Owned     uint32   // instances of the request's owner
	Sick      bool     // two of its instances failed in a row, as stage sick-servers counts
	Hits      []uint32 // by selector by job or label, then for the request's group: instances on the server
}

// Record returns the decision with its inputs: the chain and its settings, the request, and the
// servers of the last batch as they were.
func (d *Decision) Record() *DecisionRecord {
	n := d.kept
	out := &DecisionRecord{
		Name: n.name, At: n.at, Seed: n.seed, Server: d.Server, Score: d.Score, Looked: d.Looked, Batches: d.Batches,
		InOrder: n.inOrder,
		Chain:   n.p.chain.expanded(n.p.chain.root), Settings: n.p.chain.Settings, Request: n.p.Request, Names: n.names,
		Spreads: n.spreads(), Fewest: n.fewest(), Places: n.places,
	}
	hits := len(n.p.watched)
	for i := range n.servers {
		s := &n.servers[i]
		r := RecordedServer{
			Server: s.class.record, Free: n.free(i), Instances: s.count, Uncapped: s.uncapped, Owned: s.owned,
			Sick: s.sick,
		}
		r.Server.ID = s.id
		if hits > 0 {
			r.Hits = n.tags[i*hits : (i+1)*hits]
		}
		out.Servers = append(out.Servers, r)
	}
	return out
}

// expanded returns the expression of a node without definitions.
func (c *Chain) expanded(n *node) Expression {
	if n.op == "" {
		return Named(c.stages[n.stage].Name)
	}
	e := Expression{Op: n.op}
	for _, item := range n.items {
		e.List = append(e.List, c.expanded(item))
	}
	return e
}

// Replayed is the result of a decision that was decided again.
type Replayed struct {
	Name   string
	Was    string // the server chosen at first
	Server string // the server chosen now; empty: none
	Score  float64
	Steps  []Step // over the servers of the last batch
}

// Replay decides again with a program's stages; nil means the stages of the package.
func (x *DecisionRecord) Replay(stages []Stage) (*Replayed, error) {
	if len(x.Names) < firstCustom || len(x.Names) > plimsoll.MaxResourceNames || len(x.Servers) == 0 {
		return nil, plimsoll.Invalid(
			"decision", "names no servers or an impossible number of resources; give a file that an export wrote",
		)
	}
	if stages == nil {
		stages = Stages()
	}
	chain, err := NewChain(x.Chain, stages, nil, x.Settings)
	if err != nil {
		return nil, err
	}
	f := NewFleet(&Names{names: x.Names})
	f.Loader.Instance = func(id string) (server, owner string, err error) { return x.Places[id], x.Request.Owner, nil }
	p, err := chain.Prepare(f, &x.Request)
	if err != nil {
		return nil, err
	}
	for i := range x.Servers {
		if f.Add(&x.Servers[i].Server) != int32(i) || len(x.Servers[i].Hits) != len(p.watched) {
			return nil, plimsoll.Invalid(
				fmt.Sprintf("decision.servers[%d]", i), "stands twice, or does not say what the request asks about",
			)
		}
		f.restore(int32(i), &x.Servers[i], p)
	}
	if counters := p.counters(); len(counters) == len(x.Spreads) {
		for i, c := range counters {
			f.restoreSpread(c, x.Spreads[i])
		}
		x.compareAs(p)
	}
	pl := NewPlacer(f, nil)
	b := pl.begin(p, x.At)
	r := newRecorder(chain)
	b.record, b.inOrder = r, x.InOrder
	b.reset(x.Seed)
	for slot := range x.Servers {
		b.add(int32(slot))
	}
	out := &Replayed{Name: x.Name, Was: x.Server}
	if best := b.run(0); best >= 0 {
		out.Server, out.Score = f.ids[b.slots[best]], b.score[best]
	}
	out.Steps = r.list()
	return out, nil
}

// restore books a recorded server's instances in the fleet, as sums.
func (f *Fleet) restore(slot int32, s *RecordedServer, p *Prepared) {
	r, l := &f.rows[slot], &f.loads[slot]
	c := f.classes[r.class]
	for k := range f.Names.Len() {
		free := s.Free[f.Names.Name(k)]
		if k < firstCustom {
			r.free[k] = free
		} else {
			l.used[k] = c.whole[k] - free
		}
	}
	r.count, r.uncapped = s.Instances, s.Uncapped
	f.markFull(slot)
	if s.Owned > 0 {
		r.owners = []tally{{p.owner, s.Owned}}
		f.sketches[slot].add(p.owner)
	}
	if s.Sick {
		r.flags |= sick
		l.last = [2]outcome{{1 << 62, true}, {1 << 62, true}}
	}
	for k, n := range s.Hits {
		if n > 0 {
			l.tags = append(l.tags, tally{p.watched[k], n})
		}
	}
}

// restoreSpread puts recorded counts into a counter. Values of servers that were no candidates are
// left out.
func (f *Fleet) restoreSpread(c *counter, counts map[string]int32) {
	d := &f.domains[c.domain]
	for _, value := range sortedKeys(counts) {
		v := f.Slot(value)
		if d.key != SpreadByNode {
			v = d.value(value)
		}
		if v < 0 {
			continue
		}
		for len(c.counts) <= int(v) {
			c.counts = append(c.counts, 0)
		}
		c.counts[v] = counts[value]
	}
	c.version++
}

// compareAs makes the hard spreads of a request compare with the counts of the recorded decision. A
// record without Fewest was made before spreads could leave values out: all its counts were
// compared.
func (x *DecisionRecord) compareAs(p *Prepared) {
	for i := range p.hardSpread {
		s := &p.hardSpread[i]
		s.fixed, s.low = true, 0
		switch {
		case i < len(x.Fewest):
			s.low = max(x.Fewest[i], 0)
		case len(x.Spreads[i]) > 0:
			s.low = math.MaxInt32
			for _, value := range sortedKeys(x.Spreads[i]) {
				s.low = min(s.low, x.Spreads[i][value])
			}
		}
		s.lowAt = -1
	}
}
