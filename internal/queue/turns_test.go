package queue_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
)

// turnsBelow returns the place of each child of root, of the live tree and of a copy of it.
func (p *fixture) turnsBelow() string {
	p.t.Helper()
	text := func(tree *queue.Tree) (s string) {
		for _, turn := range tree.Turns(tree.Root) {
			if turn.Queue.Parent != nil {
				s += fmt.Sprintf("%s %d/%d ", turn.Queue.Name, turn.Next, turn.Of)
			}
		}
		return s
	}
	live, copied := text(p.tree), text(p.tree.Copy())
	if live != copied {
		p.t.Errorf("the tree says %q, its copy %q", live, copied)
	}
	return live
}

// A queue is next while its maximum has room for one of its tasks, whether or not nodes have.
func TestTurnsOfQueuesAtTheirMax(t *testing.T) {
	for _, c := range []struct {
		name, want string
		do         func(p *fixture)
	}{
		{"nothing waits", "a 0/0 b 0/0 ", func(*fixture) {}},
		{"both may be next, in the order of their shares", "a 2/2 b 1/2 ", func(p *fixture) {
			p.job("root.a", p.class(1, 1), 3)
			p.tree.Charge(p.tree.Next())
			p.job("root.b", p.class(1, 1), 1)
		}},
		{"one resource is used up, and other tasks do not ask for it", "a 1/1 b 0/0 ", func(p *fixture) {
			p.job("root.a", p.class(4, 0), 2)
			p.cycle()
			no := p.class(0, 1)
			p.tree.Block(no, plimsoll.WaitNoNode)
			p.job("root.a", no, 1)
			p.cycle()
		}},
		{"all tasks ask for what is used up", "a 0/0 b 0/0 ", func(p *fixture) {
			p.job("root.a", p.class(4, 0), 2)
			p.job("root.a", p.class(1, 1), 1)
			p.cycle()
		}},
		{"tasks that fit wait for nodes, and one is above the max", "a 1/1 b 0/0 ", func(p *fixture) {
			p.job("root.a", p.class(9, 0), 1)
			no := p.class(1, 0)
			p.tree.Block(no, plimsoll.WaitNoNode)
			p.job("root.a", no, 1)
			p.cycle()
		}},
		{"a queue at its max waits for nodes too", "a 0/0 b 0/0 ", func(p *fixture) {
			p.job("root.a", p.class(4, 0), 1)
			p.cycle()
			no := p.class(2, 0)
			p.tree.Block(no, plimsoll.WaitNoNode)
			p.job("root.a", no, 1)
		}},
		{"as many jobs run as may, and one of them has more tasks", "a 0/0 b 1/1 ", func(p *fixture) {
			p.job("root.b", p.class(1, 0), 1)
			p.job("root.b", p.class(1, 0), 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newFixture(t,
				plimsoll.QueueConfig{Name: "a", Max: plimsoll.Resources{plimsoll.CPU: 4}},
				plimsoll.QueueConfig{Name: "b", MaxJobs: 1},
			)
			total, _ := p.names.Amounts(plimsoll.Resources{plimsoll.CPU: 100, plimsoll.Memory: 100})
			p.tree.SetTotal(&total)
			c.do(p)
			if got := p.turnsBelow(); got != c.want {
				t.Errorf("the places are %q, want %q", got, c.want)
			}
		})
	}
}
