package placement

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// bookings returns the bookings on the servers of a fleet, without the fleet's numbers of tags and
// classes.
func bookings(f *Fleet) string {
	var b strings.Builder
	name := func(tag uint32) string {
		if int(tag) < len(f.tags.base) {
			return f.tags.base[tag]
		}
		return f.tags.info[tag].name
	}
	for i := range f.rows {
		r, l := f.rows[i], f.loads[i]
		if r.flags&present == 0 {
			fmt.Fprintf(&b, "%d vacant\n", i)
			continue
		}
		fmt.Fprintf(
			&b, "%d %s %v %+v %d %d %d %v %v", i, f.ids[i], r.free, f.classes[f.classAt[i]].record, r.count, r.uncapped,
			r.flags, l.used, l.last,
		)
		for _, o := range r.owners {
			fmt.Fprintf(&b, " %q=%d %v", name(o.tag), o.n, f.hosts(int32(i), o.tag))
		}
		for _, t := range l.tags {
			fmt.Fprintf(&b, " %q=%d", name(t.tag), t.n)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%d servers, names %v", f.servers, f.Names.names)
	return b.String()
}

// shaken is a fleet to which anything happens.
type shaken struct {
	*Fleet
	rng    *rand.Rand
	kinds  map[int32][]*Kind
	labels int
}

func (s *shaken) change() {
	slot := int32(s.rng.IntN(40))
	here := int(slot) < len(s.rows) && s.rows[slot].flags&present != 0
	switch n := s.rng.IntN(10); {
	case n == 0 && here:
		for _, k := range s.kinds[slot] {
			s.Unbind(slot, k)
			s.Forget(k)
		}
		delete(s.kinds, slot)
		s.Remove(slot)
	case n <= 3:
		s.labels++ // so that classes come and go, and are swept
		record := NewServer(
			fmt.Sprintf("s%d", slot), plimsoll.Resources{"cpu": 64_000, fmt.Sprintf("x/r%d", s.rng.IntN(3)): 5},
		)
		record.Labels = map[string]string{"boot": fmt.Sprint(s.labels)}
		s.Put(slot, &record)
	case !here:
	case n <= 7:
		in := Instance{
			Owner: fmt.Sprintf("o%d", s.rng.IntN(9)), Job: fmt.Sprintf("j%d", s.rng.IntN(30)),
			Resources: plimsoll.Resources{"cpu": s.rng.Int64N(9)},
		}
		k := s.Kind(&in)
		s.Bind(slot, k)
		s.kinds[slot] = append(s.kinds[slot], k)
	case n == 8 && len(s.kinds[slot]) > 0:
		k := s.kinds[slot][0]
		s.kinds[slot] = s.kinds[slot][1:]
		s.Unbind(slot, k)
		s.Forget(k)
	default:
		s.Outcome(slot, s.rng.Int64N(1000), s.rng.IntN(2) == 0)
		if s.rng.IntN(3) == 0 {
			s.Recover(slot)
		}
	}
}

// A copy is the fleet as it was when the copy began, whatever happens to the fleet while it is made
// in parts and afterwards.
func TestACopyIsTheFleetAsItWas(t *testing.T) {
	for seed := range uint64(testrun.Count(4, 15, 300)) {
		s := &shaken{Fleet: NewFleet(NewNames()), rng: rand.New(rand.NewPCG(seed, 5)), kinds: map[int32][]*Kind{}}
		swept := 0
		for round := range 60 {
			for range s.rng.IntN(30) {
				s.change()
			}
			want, epoch := bookings(s.Fleet), s.epoch
			c := s.Copy()
			for !c.Continue(s.rng.IntN(4)) {
				for range s.rng.IntN(12) {
					s.change()
				}
			}
			if s.epoch != epoch {
				swept++
			}
			s.change()
			if got := bookings(c.Fork()); got != want {
				t.Fatalf("seed %d, copy %d:\n%s\nwant\n%s", seed, round, got, want)
			}
		}
		if swept == 0 {
			t.Errorf("seed %d: classes were never swept while a copy was made", seed)
		}
	}
}

// Forks of a copy may be used by several goroutines at once, and leave each other, the copy and the
// fleet as they were.
func TestForksAreApart(t *testing.T) {
	f := racks(50)
	kind := f.Kind(&Instance{Owner: "o", Job: "j", Resources: plimsoll.Resources{"cpu": 100}})
	for slot := range int32(50) {
		f.Bind(slot, kind)
	}
	before := bookings(f)
	c := f.Copy()
	for !c.Continue(7) {
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			fork := c.Fork()
			r := cores(500)
			r.Owner, r.Job, r.Group = "o", "j", "g"
			r.Constraints.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 2}}
			r.Constraints.Near = []plimsoll.Selector{{Job: "j"}}
			tried, err := NewPlacer(fork, rand.NewPCG(1, 1)).Try(Default(), []Ask{{Request: r, Count: 20}}, 0, 0)
			if err != nil || len(tried[0].Placed) != 20 {
				t.Errorf("a trial on a fork: %v, %+v", err, tried)
			}
			if got := bookings(fork); got != before {
				t.Errorf("after a trial the fork is\n%s\nwant\n%s", got, before)
			}
		})
	}
	for slot := range int32(50) { // meanwhile the fleet goes on
		f.Unbind(slot, kind)
	}
	all.Wait()
	if got := bookings(c.Fork()); got != before {
		t.Errorf("the copy has changed:\n%s", got)
	}
}

// A large fleet is copied a slice at a time, and the cost of a slice is bounded by its servers and
// their instances.
func TestALargeFleetIsCopiedInSlices(t *testing.T) {
	f := NewFleet(NewNames())
	for i := range 25_000 {
		f.Add(
			&Server{
				ID: fmt.Sprintf("s%d", i), Setup: true, Status: StatusRunning,
				Capacity: plimsoll.Resources{"cpu": 64_000},
			},
		)
	}
	slices := func() (n int) {
		c := f.Copy()
		for n = 1; !c.Continue(10_000); n++ {
		}
		return n
	}
	if n := slices(); n != 3 {
		t.Errorf("25,000 servers took %d slices of 10,000, want 3", n)
	}
	for slot := range int32(1000) {
		for j := range 160 {
			f.Bind(
				slot,
				f.Kind(&Instance{Owner: "o", Job: fmt.Sprintf("j%d", j), Resources: plimsoll.Resources{"cpu": 1}}),
			)
		}
	}
	if n := slices(); n != 4 {
		t.Errorf("with 160,000 instances they took %d slices, want 4", n)
	}
}

// The index of tags is made when many are asked for, and finds what the search one by one has
// found.
func TestAForkFindsTagsByName(t *testing.T) {
	f := racks(3)
	for i := range 100 {
		f.Bind(
			int32(i%3),
			f.Kind(&Instance{Owner: "o", Job: fmt.Sprintf("j%d", i), Resources: plimsoll.Resources{"cpu": 1}}),
		)
	}
	c := f.Copy()
	for !c.Continue(1) {
	}
	fork := c.Fork()
	for i := range 110 {
		tag := fork.tags.acquire(jobTag(fmt.Sprintf("j%d", i)))
		if booked := int(tag) < len(fork.tags.base); booked != (i < 100) ||
			booked && fork.tags.base[tag] != jobTag(fmt.Sprintf("j%d", i)) {
			t.Fatalf("the tag of j%d is %d", i, tag)
		}
		fork.tags.release(tag)
	}
}
