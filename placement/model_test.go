package placement_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// model is a fleet beside lists from which everything that the fleet keeps up to date is worked out
// anew.
type model struct {
	t        *testing.T
	rng      *rand.Rand
	fleet    *placement.Fleet
	placer   *placement.Placer
	kinds    []*modelKind
	servers  map[int32]*modelServer
	tickets  map[string]*modelTicket
	requests []*placement.Request // the same all along
	prepared []*placement.Prepared
}

type modelKind struct {
	in   placement.Instance
	kind *placement.Kind
}

type modelServer struct {
	record   placement.Server
	bound    []*modelKind
	outcomes []modelOutcome
}

type modelOutcome struct {
	at     int64
	failed bool
}

type modelTicket struct {
	slot    int32
	in      *placement.Instance
	arrived bool
}

const modelSlots = 10

func newModel(t *testing.T, seed uint64) *model {
	f := placement.NewFleet(placement.NewNames())
	m := &model{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), fleet: f, placer: newPlacer(f, seed),
		servers: map[int32]*modelServer{}, tickets: map[string]*modelTicket{},
	}
	for i := range 8 {
		in := m.instance("")
		in.Owner, in.Job, in.Group = []string{"alice", "bob"}[i%2], []string{"j", "k", ""}[i%3], []string{"g", "h"}[i/4]
		m.kinds = append(m.kinds, &modelKind{in: in, kind: f.Kind(&in)})
	}
	for _, by := range []string{"rack", "zone", "node"} {
		r := asks(1, func(r *placement.Request) {
			r.Constraints.Spread = []plimsoll.Spread{{By: by, MaxSkew: 1}}
			r.Constraints.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
			r.Constraints.Far = []plimsoll.Selector{{Job: "k"}}
		})
		m.requests = append(m.requests, r)
	}
	m.requests = append(
		m.requests,
		asks(1, func(r *placement.Request) { r.Constraints.Where = `node.labels.rack == "r1"`; r.Owner = "bob" }),
	)
	for _, r := range m.requests {
		p, err := placement.Default().Prepare(f, r)
		if err != nil {
			t.Fatal(err)
		}
		m.prepared = append(m.prepared, p)
	}
	return m
}

func (m *model) instance(id string) placement.Instance {
	in := placement.Instance{
		ID: id, Owner: []string{"alice", "bob", "carol"}[m.rng.IntN(3)], Job: []string{"j", "k"}[m.rng.IntN(2)],
		Group:     []string{"g", ""}[m.rng.IntN(2)],
		Resources: plimsoll.Resources{"cpu": m.rng.Int64N(3) * 100, "memory": m.rng.Int64N(3)},
		Failed:    m.rng.IntN(5) == 0,
	}
	if m.rng.IntN(3) == 0 {
		in.Labels = map[string]string{"app": "db"}
	}
	if m.rng.IntN(4) == 0 {
		in.Resources["gpu"] = 1
	}
	if in.Failed && m.rng.IntN(2) == 0 {
		in.Left = plimsoll.Resources{"disk": 5}
	}
	return in
}

func (m *model) record(slot int32) placement.Server {
	s := placement.NewServer(
		fmt.Sprintf("s%d", slot),
		plimsoll.Resources{"cpu": 1000 * m.rng.Int64N(4), "memory": 20, "gpu": m.rng.Int64N(2)},
	)
	// so many that classes are swept
	s.Labels = map[string]string{"rack": fmt.Sprintf("r%d", m.rng.IntN(3)), "zone": fmt.Sprintf("z%d", m.rng.IntN(400))}
	if m.rng.IntN(4) == 0 {
		delete(s.Labels, "rack")
	}
	if m.rng.IntN(2) == 0 {
		s.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
	}
	if m.rng.IntN(5) == 0 {
		s.Reserved = "cordoned"
	}
	if m.rng.IntN(4) == 0 {
		s.Overprovision, s.Reserve = map[string]float64{"cpu": 1.5, "memory": 2}, map[string]float64{"memory": 0.3}
	}
	for k := range m.rng.IntN(3) {
		s.Instances = append(s.Instances, m.instance(fmt.Sprintf("s%d-%d", slot, k)))
	}
	return s
}

func (m *model) step() {
	slot := m.rng.Int32N(modelSlots)
	s := m.servers[slot]
	switch n := m.rng.IntN(12); {
	case n < 2:
		m.put(slot)
	case n == 2 && s != nil:
		m.fleet.Remove(slot)
		delete(m.servers, slot)
		for id, ticket := range m.tickets {
			if ticket.slot == slot {
				delete(m.tickets, id)
			}
		}
	case n < 7 && s != nil:
		k := m.kinds[m.rng.IntN(len(m.kinds))]
		m.fleet.Bind(slot, k.kind)
		s.bound = append(s.bound, k)
	case n < 9 && s != nil && len(s.bound) > 0:
		i := m.rng.IntN(len(s.bound))
		m.fleet.Unbind(slot, s.bound[i].kind)
		s.bound = slices.Delete(s.bound, i, i+1)
	case n == 9 && s != nil:
		m.ticket(slot)
	case n == 10:
		id := m.ticketID()
		m.fleet.DropTicket(id)
		delete(m.tickets, id)
	case n == 11 && s != nil:
		o := modelOutcome{at: 1 + m.rng.Int64N(1<<40), failed: m.rng.IntN(2) == 0}
		m.fleet.Outcome(slot, o.at, o.failed)
		s.outcomes = append(s.outcomes, o)
	}
}

func (m *model) put(slot int32) {
	record := m.record(slot)
	m.fleet.Put(slot, &record)
	if m.servers[slot] == nil {
		m.servers[slot] = &modelServer{}
	}
	if len(m.servers[slot].record.Instances) > 0 {
		m.servers[slot].outcomes = nil // those of instances give way to those that come now
	}
	m.servers[slot].record = record
	for i := range record.Instances {
		if ticket := m.tickets[record.Instances[i].ID]; ticket != nil {
			ticket.arrived = true
		}
	}
}

func (m *model) ticketID() string {
	if m.rng.IntN(2) == 0 {
		return fmt.Sprintf("t%d", m.rng.IntN(6))
	}
	return fmt.Sprintf("s%d-%d", m.rng.IntN(modelSlots), m.rng.IntN(3))
}

func (m *model) ticket(slot int32) {
	id := m.ticketID()
	ticket := &modelTicket{slot: slot}
	if m.rng.IntN(3) > 0 {
		in := m.instance(id)
		ticket.in = &in
	}
	for _, s := range m.servers {
		for i := range s.record.Instances {
			ticket.arrived = ticket.arrived || s.record.Instances[i].ID == id
		}
	}
	if err := m.fleet.AddTicket(
		placement.Ticket{ID: id, Server: m.servers[slot].record.ID, Instance: ticket.in},
	); err != nil {
		m.t.Fatal(err)
	}
	m.tickets[id] = ticket
}

// on returns the instances that count on a server: recorded ones, bound ones, and those of tickets.
func (m *model) on(slot int32) (list []placement.Instance, blocked bool) {
	s := m.servers[slot]
	list = slices.Clone(s.record.Instances)
	for _, k := range s.bound {
		list = append(list, k.in)
	}
	for _, ticket := range m.tickets {
		if ticket.slot == slot && !ticket.arrived {
			if ticket.in == nil {
				blocked = true
			} else {
				list = append(list, *ticket.in)
			}
		}
	}
	return list, blocked
}

func (m *model) check() {
	if m.fleet.Servers() != len(m.servers) {
		m.t.Fatalf("%d servers, want %d", m.fleet.Servers(), len(m.servers))
	}
	if err := m.fleet.CheckClasses(); err != nil {
		m.t.Fatal(err)
	}
	inGroup := map[int32]int{}
	for slot := range int32(m.fleet.Len()) {
		s := m.servers[slot]
		id := fmt.Sprintf("s%d", slot)
		if s == nil {
			if m.fleet.ID(slot) != "" || m.fleet.Slot(id) != -1 || m.fleet.Open(slot) || m.fleet.Count(slot) != 0 {
				m.t.Fatalf("slot %d is vacant, and %q is in it", slot, m.fleet.ID(slot))
			}
			continue
		}
		if m.fleet.ID(slot) != id || m.fleet.Slot(id) != slot || m.fleet.Open(slot) != (s.record.Reserved == "") {
			m.t.Fatalf(
				"slot %d: %q, found at %d, open %t", slot, m.fleet.ID(slot), m.fleet.Slot(id), m.fleet.Open(slot),
			)
		}
		inGroup[slot] = m.checkServer(slot, s)
	}
	for i, r := range m.requests {
		m.checkSpread(m.prepared[i], r, inGroup)
		fresh, err := placement.Default().Prepare(m.fleet, r)
		if err != nil {
			m.t.Fatal(err)
		}
		for slot := range m.servers {
			if kept, again := m.placer.Keeps(
				m.prepared[i], slot, 1<<41,
			), m.placer.Keeps(fresh, slot, 1<<41); kept != again {
				m.t.Fatalf(
					"request %d, prepared long ago, says %t of slot %d; prepared just now, it says %t", i, kept, slot,
					again,
				)
			}
		}
		fresh.Release()
	}
}

func (m *model) checkServer(slot int32, s *modelServer) (inGroup int) {
	list, blocked := m.on(slot)
	used, owned, ofJob, labelled := plimsoll.Resources{}, map[string]int{}, map[string]int{}, 0
	for i := range list {
		in := &list[i]
		held := in.Resources
		if in.Failed {
			held = in.Left
		}
		for name, n := range held {
			used[name] += n
		}
		owned[in.Owner]++
		ofJob[in.Job]++
		if in.Job == "j" && in.Group == "g" {
			inGroup++
		}
		if in.Labels["app"] == "db" {
			labelled++
		}
	}
	for k := range m.fleet.Names.Len() {
		name := m.fleet.Names.Name(k)
		free := s.record.Capacity[name] - used[name]
		if len(s.record.Overprovision) > 0 {
			ratio := max(s.record.Overprovision[name], 0)
			if ratio == 0 {
				ratio = 1
			}
			free = int64(
				math.Floor(float64(s.record.Capacity[name])*(1-s.record.Reserve[name]) - float64(used[name])/ratio),
			)
		}
		if got := m.fleet.Free(slot, k); got != free || m.fleet.Used(slot)[k] != used[name] {
			m.t.Fatalf(
				"slot %d has %d %s free and %d used, want %d and %d", slot, got, name, m.fleet.Used(slot)[k], free,
				used[name],
			)
		}
	}
	if m.fleet.Count(slot) != len(list) || m.fleet.InGroup(slot, "j", "g") != inGroup ||
		m.fleet.WithLabel(slot, "app=db") != labelled {
		m.t.Fatalf("slot %d: %d instances, %d of the group, %d with the label; want %d, %d, %d", slot, m.fleet.Count(
			slot,
		),
			m.fleet.InGroup(slot, "j", "g"), m.fleet.WithLabel(slot, "app=db"), len(list), inGroup, labelled)
	}
	for _, job := range []string{"j", "k"} {
		if got := m.fleet.OfJob(slot, job); got != ofJob[job] {
			m.t.Fatalf("slot %d: %d of job %s, want %d", slot, got, job, ofJob[job])
		}
	}
	for _, p := range m.prepared {
		if got := m.placer.OwnedOn(p, slot); got != owned[p.Request.Owner] {
			m.t.Fatalf("slot %d: %d of %s, want %d", slot, got, p.Request.Owner, owned[p.Request.Owner])
		}
	}
	slices.SortFunc(s.outcomes, func(a, b modelOutcome) int { return int(b.at - a.at) })
	sick := len(s.outcomes) > 1 && s.outcomes[0].failed && s.outcomes[1].failed
	for _, v := range m.placer.ExplainServer(m.prepared[0], slot, 1) {
		if v.Stage == "sick-servers" && (v.Why != "") != sick ||
			v.Stage == "calculate-tickets" && (v.Why != "") != blocked {
			m.t.Fatalf("slot %d, sick %t, blocked %t: %+v", slot, sick, blocked, v)
		}
	}
	return inGroup
}

// allowed reports whether the constraints of the requests that spread, other than the spread, allow
// a server: it is open, has the trait and cpu, is not over-provisioned, and holds nothing of job k.
func (m *model) allowed(slot int32, s *modelServer) bool {
	_, ssd := s.record.Traits["ssd"]
	if s.record.Reserved != "" || !ssd || len(s.record.Overprovision) > 0 || s.record.Capacity["cpu"] < 1 {
		return false
	}
	list, _ := m.on(slot)
	return !slices.ContainsFunc(list, func(in placement.Instance) bool { return in.Job == "k" })
}

func (m *model) checkSpread(p *placement.Prepared, r *placement.Request, inGroup map[int32]int) {
	if len(r.Constraints.Spread) == 0 {
		return
	}
	key := r.Constraints.Spread[0].By
	value := func(slot int32) (string, bool) {
		if key == "node" {
			return fmt.Sprint(slot), true
		}
		v, ok := m.servers[slot].record.Labels[key]
		return v, ok
	}
	sums, counts := map[string]int{}, map[string]bool{}
	for slot, s := range m.servers {
		if v, ok := value(slot); ok {
			sums[v] += inGroup[slot]
			counts[v] = counts[v] || m.allowed(slot, s)
		}
	}
	lowest := math.MaxInt
	for v, counted := range counts {
		if counted {
			lowest = min(lowest, sums[v])
		}
	}
	if lowest == math.MaxInt {
		lowest = 0
	}
	if got := m.placer.Lowest(p, 0); got != lowest {
		m.t.Fatalf("by %s: the lowest is %d, want %d of %v", key, got, lowest, sums)
	}
	for slot := range m.servers {
		want := -1
		if v, ok := value(slot); ok {
			want = sums[v]
		}
		if got := p.In(0, slot); got != want {
			m.t.Fatalf("by %s: %d where slot %d is, want %d of %v", key, got, slot, want, sums)
		}
	}
}

// A fleet keeps sums and counts as instances, tickets and servers come and go. In any order of
// events they equal the sums computed from lists. Once everything is given back, nothing is kept.
//
// The test is the longest of this package. It places thousands of instances, because a choice that
// is only likely needs many. Each choice is held against a run that looks at every server.
func TestFleetKeepsWhatAListWouldSay(t *testing.T) {
	epochs := 0
	for seed := range uint64(testrun.Count(2, 8, 300)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			m := newModel(t, seed)
			first := m.fleet.Epoch()
			for slot := range int32(modelSlots) {
				m.put(slot)
			}
			for range 600 {
				m.step()
				m.check()
			}
			epochs += int(m.fleet.Epoch() - first)
			for slot := range int32(modelSlots) {
				m.fleet.Remove(slot)
			}
			for _, k := range m.kinds {
				m.fleet.Forget(k.kind)
			}
			for _, p := range m.prepared {
				p.Release()
			}
			if tags := m.fleet.TagNames(); len(tags) > 0 {
				t.Fatalf("%q are kept, and nobody refers to them", tags)
			}
		})
	}
	if epochs == 0 {
		t.Error("classes were never swept: the test tests little")
	}
}
