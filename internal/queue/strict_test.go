package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
)

// strictLeaf is a leaf in which a job that does not fit holds others back for a minute at most.
func strictLeaf(maximum plimsoll.Resources) plimsoll.QueueConfig {
	c := withProperties("a", plimsoll.PropertyOrder, "strict", plimsoll.PropertyOrderHold, "1m")
	c.Max = maximum
	return c
}

// TestStrictOrder: in a strict leaf with 4 CPUs, of which 3 are in use, a job that needs 4 waits.
// The table says what happens to a job that could be placed behind it.
func TestStrictOrder(t *testing.T) {
	for name, test := range map[string]struct {
		properties []string // nil: those of strictLeaf
		large      int64    // cpu of the job that does not fit
		small      int64    // cpu of the one behind it
		priority   int32    // of the one behind it
		after      time.Duration
		placed     bool
	}{
		"it is held back":                     {nil, 4, 1, 0, 0, false},
		"until the time is over":              {nil, 4, 1, 0, time.Minute, true},
		"and not before":                      {nil, 4, 1, 0, time.Minute - 1, false},
		"another order does not":              {[]string{plimsoll.PropertyOrder, "default"}, 4, 1, 0, 0, true},
		"it asks for nothing that is limited": {nil, 4, 0, 0, 0, true},
		"it goes first":                       {nil, 4, 1, 1, 0, true},
		"the large one never fits":            {nil, 5, 1, 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := strictLeaf(plimsoll.Resources{plimsoll.CPU: 4})
			if test.properties != nil {
				leaf.Properties = withProperties("a", test.properties...).Properties
			}
			p := newFixture(t, leaf)
			p.tree.Advance(1)
			p.job("root.a", p.class(3, 0), 1)
			large := p.job("root.a", p.class(test.large, 1), 1)
			p.cycle()
			p.want(large, "root.a has too little cpu")
			p.priority = test.priority
			small := p.job("root.a", p.class(test.small, 1), 1)
			placed := p.cycle()
			p.tree.Advance(1 + int64(test.after))
			if placed += p.cycle(); placed == 1 != test.placed {
				t.Errorf("%d tasks were placed", placed)
			}
			if !test.placed {
				p.want(small, "order")
			}
		})
	}
}

// A job that no node takes now holds back those that could use its nodes. One that no node can ever
// take holds nobody back.
func TestStrictOrderForNodes(t *testing.T) {
	for name, test := range map[string]struct {
		code   plimsoll.WaitCode
		rivals bool
		placed int
	}{
		"the same nodes":  {plimsoll.WaitNoNode, true, 0},
		"other nodes":     {plimsoll.WaitNoNode, false, 1},
		"too large":       {plimsoll.WaitTooLarge, true, 1},
		"never eligible":  {plimsoll.WaitNotEligible, true, 1},
		"no such names":   {plimsoll.WaitNoResource, true, 1},
		"not understood":  {plimsoll.WaitNotUnderstood, true, 1},
		"no nodes at all": {plimsoll.WaitNoNodes, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFixture(t, strictLeaf(nil), withProperties("b"))
			p.tree.Advance(1)
			p.tree.SetRivals(func(_, _ *queue.Lane) bool { return test.rivals })
			large, c := p.job("root.a", p.class(8, 0), 1), p.class(1, 0)
			p.tree.Block(large.Class(), test.code)
			p.job("root.a", c, 1)
			if got := p.cycle(); got != test.placed {
				t.Errorf("%d tasks were placed, want %d", got, test.placed)
			}
			p.job("root.b", c, 1)
			if got := p.cycle(); got != 1 {
				t.Errorf("%d tasks of another leaf were placed", got)
			}
		})
	}
}

// Answers of Rivals that have changed have their effect after NodesChanged. A code that says that a
// job fits nowhere ends its hold.
func TestStrictOrderFollowsTheNodes(t *testing.T) {
	p := newFixture(t, strictLeaf(nil))
	p.tree.Advance(1)
	meet := true
	p.tree.SetRivals(func(_, _ *queue.Lane) bool { return meet })
	large := p.job("root.a", p.class(8, 0), 1)
	p.tree.Block(large.Class(), plimsoll.WaitNoNode)
	small := p.job("root.a", p.class(1, 0), 1)
	wantPlaced := func(want int) {
		t.Helper()
		if got := p.cycle(); got != want {
			t.Errorf("%d tasks were placed, want %d", got, want)
		}
	}
	wantPlaced(0)
	p.want(small, "order")
	meet = false
	p.tree.NodesChanged()
	wantPlaced(1)
	meet = true
	p.job("root.a", p.class(2, 0), 1)
	wantPlaced(0)
	p.tree.Block(large.Class(), plimsoll.WaitTooLarge)
	wantPlaced(1)
}

// The time for which a job holds others back counts from the first time that it did not fit. It
// goes on over a reload and while the job gets some of its tasks. It counts anew once none of them
// waits.
func TestStrictOrderCountsItsTimeOnce(t *testing.T) {
	p := newFixture(t, strictLeaf(nil))
	at := func(seconds int64) {
		t.Helper()
		p.tree.Advance(1 + seconds*int64(time.Second))
	}
	ends := func(want int64) {
		t.Helper()
		got := p.tree.HoldEnds()
		if want > 0 {
			want = 1 + want*int64(time.Second)
		}
		if got != want {
			t.Errorf("the hold ends at %d, want %d", got, want)
		}
	}
	at(0)
	large := p.job("root.a", p.class(8, 0), 2)
	p.tree.Block(large.Class(), plimsoll.WaitNoNode)
	small := p.job("root.a", p.class(1, 0), 5)
	p.cycle()
	ends(60)
	at(30)
	p.tree.Open(large.Class())
	p.tree.Charge(p.tree.Next())
	p.tree.Block(large.Class(), plimsoll.WaitNoNode)
	p.cycle()
	ends(60)
	c := plimsoll.QueueConfig{
		Name: plimsoll.RootQueue, Parent: true, Queues: []plimsoll.QueueConfig{strictLeaf(nil)},
	}
	p.tree.Configure(&c)
	p.cycle()
	ends(60)
	held := p.tree.Find("root.a").Holds()
	if len(held) != 1 || held[0].Account != large.Account.ID || !held[0].ForNodes {
		t.Errorf("the holds are %+v", held)
	}
	if h, ok := p.tree.HeldBackBy(&small.Lane); !ok || h.Lane != large.Lane.ID {
		t.Errorf("the small job is held back by %+v", h)
	}
	at(60)
	ends(0)
	p.tree.Configure(&c) // each job is looked at anew, at the very end of the time
	if got := p.cycle(); got != 5 {
		t.Errorf("%d tasks were placed after the time is over", got)
	}
	ends(0)
	p.tree.Open(large.Class())
	p.cycle() // the large job has all that it wants
	p.tree.Pend(&large.Lane, 1)
	p.tree.Ready(&large.Lane, 1)
	p.tree.Block(large.Class(), plimsoll.WaitNoNode)
	p.job("root.a", p.class(1, 0), 1)
	if got := p.cycle(); got != 0 {
		t.Errorf("%d tasks passed a job that waits anew", got)
	}
	ends(120)
}

// At most 16 jobs of a leaf hold others back at a time, although each holds back those of its own
// user alone. The fixture checks the number too.
func TestAtMostSixteenJobsOfALeafHoldOthersBack(t *testing.T) {
	leaf := strictLeaf(nil)
	leaf.Limits = []plimsoll.QueueLimit{{Users: []string{"*"}, Max: plimsoll.Resources{plimsoll.CPU: 4}}}
	p := newFixture(t, leaf)
	p.tree.Advance(1)
	for _, cpu := range []int64{3, 2} { // the second does not fit beside the first
		for i := range 17 {
			p.as(fmt.Sprint("user", i), "", 0).job("root.a", p.class(cpu, 0), 1)
		}
		p.cycle()
	}
	if n := len(p.tree.Find("root.a").Holds()); n != 16 {
		t.Errorf("%d jobs hold others back, want 16", n)
	}
}

// A limit of a user holds back only those who count in it.
func TestStrictOrderWithLimits(t *testing.T) {
	leaf := strictLeaf(nil)
	leaf.Limits = []plimsoll.QueueLimit{{Users: []string{"ann"}, Max: plimsoll.Resources{plimsoll.CPU: 4}}}
	p := newFixture(t, leaf)
	p.tree.Advance(1)
	p.as("ann", "", 0).job("root.a", p.class(3, 0), 1)
	p.cycle()
	p.job("root.a", p.class(2, 0), 1)
	held := p.job("root.a", p.class(1, 0), 1)
	free := p.as("bob", "", 0).job("root.a", p.class(1, 1), 1)
	p.cycle()
	p.want(held, "order")
	if free.Ready() != 0 {
		t.Error("a job of another user is held back")
	}
}
