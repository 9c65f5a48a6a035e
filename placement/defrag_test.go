package placement

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// booked is a fleet with instances on it that may be moved.
type booked struct {
	fleet     *Fleet
	placer    *Placer
	chain     *Chain
	movables  []Movable
	instances []Instance
}

func newBooked() *booked {
	f := NewFleet(NewNames())
	return &booked{fleet: f, placer: NewPlacer(f, rand.NewPCG(1, 1)), chain: Default()}
}

// prepare makes a request ready, which must be valid.
func (b *booked) prepare(r *Request) *Prepared {
	p, err := b.chain.Prepare(b.fleet, r)
	if err != nil {
		panic(err)
	}
	return p
}

func (b *booked) put(server string, r Request, labels map[string]string) {
	in := Instance{
		ID: fmt.Sprintf("i%d", len(b.movables)), Owner: r.Owner, Job: r.Job, Group: r.Group, Labels: labels,
		Resources: r.Resources,
	}
	slot := b.fleet.Slot(server)
	m := Movable{Name: in.ID, Slot: slot, Kind: b.fleet.Kind(&in), Prepared: b.prepare(&r)}
	b.fleet.Bind(slot, m.Kind)
	b.movables, b.instances = append(b.movables, m), append(b.instances, in)
}

// seen returns the visible state of the bookings of a fleet.
func (b *booked) seen() any {
	type server struct {
		used    Amounts
		free    []int64
		count   int
		allowed string
	}
	var list []server
	for slot := range int32(b.fleet.Len()) {
		s := server{used: *b.fleet.Used(slot), count: b.fleet.Count(slot)}
		for i := range b.fleet.Names.Len() {
			s.free = append(s.free, b.fleet.Free(slot, i))
		}
		for _, m := range b.movables {
			s.allowed += fmt.Sprint(b.placer.Keeps(m.Prepared, slot, 0), m.Prepared.Relations(), " ")
		}
		list = append(list, s)
	}
	return append([]any{b.fleet.moves}, list)
}

// drawFleet draws a few servers with instances that have constraints, as a random history leaves
// them.
func drawFleet(t *rapid.T) *booked {
	b := newBooked()
	n := rapid.IntRange(1, 8).Draw(t, "servers")
	for i := range n {
		s := NewServer(
			fmt.Sprintf("s%d", i),
			plimsoll.Resources{plimsoll.CPU: rapid.Int64Range(2, 8).Draw(t, "cpu") * 1000, plimsoll.Memory: 8 << 30},
		)
		s.Labels = map[string]string{"rack": fmt.Sprintf("r%d", rapid.IntRange(0, 2).Draw(t, "rack"))}
		switch rapid.IntRange(0, 9).Draw(t, "state") {
		case 0:
			s.Reserved = "cordoned"
		case 1:
			s.Reservoir = true
		case 2:
			s.Overprovision = map[string]float64{plimsoll.CPU: 2}
		}
		b.fleet.Add(&s)
	}
	for range rapid.IntRange(0, 20).Draw(t, "instances") {
		r := drawRequest(t)
		labels := map[string]string{"app": r.Job}
		if slot := b.placer.Place(b.prepare(&r), 0).Slot; slot >= 0 {
			b.put(b.fleet.ID(slot), r, labels)
			if rapid.IntRange(0, 9).Draw(t, "fixed") == 0 {
				b.movables[len(b.movables)-1].Fixed = "is being stopped"
			}
		}
	}
	return b
}

func drawRequest(t *rapid.T) Request {
	r := Request{
		Owner: "alice", Job: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "job"), Group: "g", AnyClass: true,
		Resources: plimsoll.Resources{
			plimsoll.CPU: rapid.Int64Range(1, 4).Draw(t, "cpu") * 500, plimsoll.Memory: 1 << 30,
		},
	}
	switch rapid.IntRange(0, 5).Draw(t, "constraint") {
	case 0:
		r.Constraints.Far = []plimsoll.Selector{{Label: "app=" + r.Job}}
	case 1:
		r.Constraints.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 1}}
	case 2:
		r.Constraints.Nodes = []string{"s0", "s1", "s2"}
	}
	return r
}

// drawGoal draws what to plan for; whether for a request.
func (b *booked) drawGoal(t *rapid.T) Goal {
	goal := Goal{Chain: b.chain, Limit: rapid.IntRange(1, 6).Draw(t, "limit"), Seed: rapid.Uint64().Draw(t, "seed")}
	if rapid.Bool().Draw(t, "room") {
		goal.For = &Request{
			Owner: "bob", AnyClass: true,
			Resources: plimsoll.Resources{plimsoll.CPU: rapid.Int64Range(1, 8).Draw(t, "wanted") * 1000},
		}
	}
	return goal
}

// A plan keeps its limit and moves each instance once, for any fleet. After the moves before it,
// the new server of each move passes every filter of the instance and is not overdrawn. Emptied
// servers are empty at the end and received nothing. The request has room on the server that the
// plan names.
func TestAPlanCanBeCarriedOut(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		b := drawFleet(t)
		goal := b.drawGoal(t)
		plan, err := b.placer.PlanMoves(b.movables, goal)
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Moves) > goal.Limit {
			t.Fatalf("%d moves, allowed are %d", len(plan.Moves), goal.Limit)
		}
		moved := map[string]bool{}
		for _, m := range plan.Moves {
			i := slices.IndexFunc(b.movables, func(x Movable) bool { return x.Name == m.Name })
			x := &b.movables[i]
			to := b.fleet.Slot(m.To)
			if moved[m.Name] || m.From != b.fleet.ID(x.Slot) || m.From == m.To || x.Fixed != "" ||
				slices.Contains(plan.Emptied, m.To) {
				t.Fatalf("%+v is not a move that may be planned: %+v", m, plan)
			}
			moved[m.Name] = true
			b.fleet.Unbind(x.Slot, x.Kind)
			if !b.placer.Keeps(x.Prepared, to, goal.Now) {
				t.Fatalf("%+v is refused: %+v", m, b.placer.ExplainServer(x.Prepared, to, goal.Now))
			}
			b.fleet.Bind(to, x.Kind)
			if !b.fleet.Holds(to) {
				t.Fatalf("%+v overdraws its server", m)
			}
		}
		for _, id := range plan.Emptied {
			if n := b.fleet.Count(b.fleet.Slot(id)); n != 0 {
				t.Fatalf("%s is told to be emptied and has %d instances", id, n)
			}
		}
		if plan.Room != "" && !b.placer.Keeps(b.prepare(goal.For), b.fleet.Slot(plan.Room), goal.Now) {
			t.Fatalf("%s is told to have room", plan.Room)
		}
		if len(plan.Moves) > 0 && plan.Room == "" && len(plan.Emptied) == 0 {
			t.Fatal("there are moves for nothing")
		}
	})
}

// Planning changes nothing that can be seen of the fleet, and the same seed gives the same plan.
func TestPlanningChangesNothing(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		b := drawFleet(t)
		goal := b.drawGoal(t)
		before := b.seen()
		first, err := b.placer.PlanMoves(b.movables, goal)
		if err != nil {
			t.Fatal(err)
		}
		if after := b.seen(); !reflect.DeepEqual(before, after) {
			t.Fatalf("before:\n%v\nafter:\n%v", before, after)
		}
		if second, err := b.placer.PlanMoves(b.movables, goal); err != nil || !reflect.DeepEqual(first, second) {
			t.Fatalf("%v; first\n%+v\nthen\n%+v", err, first, second)
		}
	})
}

// Each plan is for servers of 4 cores. Instances are written as the cores that they hold, in
// millicores; + after one is a constraint to s0.
func TestPlanMoves(t *testing.T) {
	tests := []struct {
		sentence string
		servers  string // of instances, servers separated by |
		limit    int
		room     int64 // millicores; 0: to empty servers
		want     string
	}{
		{"The server with the fewest instances is emptied into the fullest.", "1000 1000|1000|1000 1000 1000", 9, 0, "i2 s1→s2; empty s1; s0 i0: 1 of 2 other nodes: is empty; 1 of 2 other nodes: not enough cpu"},
		{"Two servers are emptied into one.", "1000|1000|1000", 9, 0, "i0 s0→s1; i2 s2→s1; empty s0; empty s2"},
		{"A server is emptied whole or not at all.", "1500 1500|2500 1500|500 2000", 1, 0, "s2: has 2 instances, of which 1 may still be moved; s0: has 2 instances, of which 1 may still be moved; s1: has 2 instances, of which 1 may still be moved"},
		{"What an instance asks for is held.", "1000+|3000", 9, 0, "i1 s1→s0; empty s1; s0 i0: 1 of 1 other nodes: not one of the nodes that are asked for"},
		{"Where there is room already nothing is moved.", "4000|1000", 9, 2000, "room s1"},
		{"The smallest instance that is enough goes.", "2500 1000|2500 500|3000", 9, 1500, "i3 s1→s0; room s1"},
		{"One instance goes rather than two smaller ones.", "1000 500 500|3000|3500", 9, 3000, "i0 s0→s1; room s0"},
		{"Two go if the one finds no place.", "500 500 2000|2500 500|3000", 9, 2000, "i0 s0→s1; i1 s0→s1; room s0"},
		{"Too many moves are told of.", "500 500 500 500|500 500 500 500|4000", 1, 3000, "s2 i8: 2 of 2 other nodes: not enough cpu; s0: about 2 instances are in the way, of which 1 may be moved; s1: about 2 instances are in the way, of which 1 may be moved"},
	}
	for _, tt := range tests {
		b := newBooked()
		for i, list := range strings.Split(tt.servers, "|") {
			s := NewServer(fmt.Sprintf("s%d", i), plimsoll.Resources{plimsoll.CPU: 4000, plimsoll.Memory: 8 << 30})
			b.fleet.Add(&s)
			for _, text := range strings.Fields(list) {
				var n int64
				text, fixed := strings.CutSuffix(text, "+")
				if _, err := fmt.Sscan(text, &n); err != nil {
					t.Fatal(err)
				}
				r := Request{Resources: plimsoll.Resources{plimsoll.CPU: n}}
				if fixed {
					r.Constraints.Nodes = []string{"s0"}
				}
				b.put(s.ID, r, nil)
			}
		}
		goal := Goal{Chain: b.chain, Limit: tt.limit, Seed: 1}
		if tt.room > 0 {
			goal.For = &Request{Resources: plimsoll.Resources{plimsoll.CPU: tt.room}}
		}
		plan, err := b.placer.PlanMoves(b.movables, goal)
		if err != nil {
			t.Fatal(err)
		}
		if got := planText(&plan); got != tt.want {
			t.Errorf("%s\n  got  %s\n  want %s", tt.sentence, got, tt.want)
		}
	}
}

func planText(p *Plan) string {
	var parts []string
	for _, m := range p.Moves {
		parts = append(parts, fmt.Sprintf("%s %s→%s", m.Name, m.From, m.To))
	}
	for _, id := range p.Emptied {
		parts = append(parts, "empty "+id)
	}
	if p.Room != "" {
		parts = append(parts, "room "+p.Room)
	}
	for _, k := range p.Kept {
		parts = append(parts, strings.TrimSuffix(k.Server+" "+k.Name, " ")+": "+k.Why)
	}
	return strings.Join(parts, "; ")
}

// A plan stops when the bound on its work is reached, and says so; a plan without moves is refused.
func TestThePlanOfMovesIsBounded(t *testing.T) {
	b := newBooked()
	for i := range 50 {
		s := NewServer(fmt.Sprintf("s%02d", i), plimsoll.Resources{plimsoll.CPU: 4000})
		b.fleet.Add(&s)
		b.put(s.ID, Request{Resources: plimsoll.Resources{plimsoll.CPU: 100}}, nil)
	}
	whole, err := b.placer.PlanMoves(b.movables, Goal{Limit: 100})
	if err != nil || whole.Stopped || len(whole.Emptied) != 48 {
		t.Errorf(
			"%v: %d servers are emptied, stopped %t; 50 instances fill two", err, len(whole.Emptied), whole.Stopped,
		)
	}
	short, err := b.placer.PlanMoves(b.movables, Goal{Limit: 100, Looks: 500})
	if err != nil || !short.Stopped || len(short.Emptied) == 0 || len(short.Emptied) > 11 {
		t.Errorf(
			"%v: %d servers are emptied, stopped %t; 500 looks are ten instances", err, len(short.Emptied),
			short.Stopped,
		)
	}
	if _, err := b.placer.PlanMoves(b.movables, Goal{}); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("without a limit: %v", err)
	}
}
