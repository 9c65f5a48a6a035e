package trace

import (
	"maps"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
)

// node is a node with its states.
type node struct {
	id       string
	states   []simulate.NodeState
	cordoned bool // by a person
	closed   bool // by its agent
}

// change returns the state of a node at the present instant, to be changed.
func (p *reading) change(id string) (*node, *simulate.NodeState) {
	n := p.nodes[id]
	if n == nil {
		n = &node{id: strings.Clone(id)}
		p.nodes[n.id], p.order = n, append(p.order, n)
	}
	last := len(n.states) - 1
	if last < 0 || n.states[last].At != p.rel() {
		is := simulate.NodeState{Gone: true}
		if last >= 0 {
			is = n.states[last]
		}
		is.At, is.Lost = p.rel(), false
		n.states, last = append(n.states, is), last+1
		p.states++
	}
	return n, &n.states[last]
}

// enterNodes takes over the nodes as they are.
func (p *reading) enterNodes(list []fold.Node) {
	there := make(map[string]bool, len(list))
	for i := range list {
		is := &list[i]
		there[is.ID] = true
		n, s := p.change(is.ID)
		n.cordoned, n.closed = is.Cordoned, is.Closed
		s.Gone, s.Ready, s.Closed, s.Capacity = false, is.Ready, is.Cordoned || is.Closed, maps.Clone(is.Capacity)
	}
	for _, n := range p.order {
		if !there[n.id] && !n.states[len(n.states)-1].Gone {
			_, s := p.change(n.id)
			s.Gone = true
		}
	}
}

// node applies an event of a node. lost is the task whose node is given up, by the event before.
func (p *reading) node(e *plimsoll.Event, lost string) {
	if e.Change == plimsoll.ChangeAdd && e.Detail == plimsoll.DetailNone {
		n, s := p.change(e.Object)
		n.cordoned, n.closed = false, false
		*s = simulate.NodeState{At: s.At, Ready: true, Capacity: maps.Clone(e.Resources)}
		return
	}
	known := p.nodes[e.Object]
	if known == nil || known.states[len(known.states)-1].Gone {
		p.trace.Counts.Strange++
		return
	}
	switch e.Detail {
	case plimsoll.NodeAlloc:
		if lost != "" && e.Reference == lost && !known.states[len(known.states)-1].Ready {
			_, s := p.change(e.Object)
			s.Lost = true
		}
	case plimsoll.NodeReady:
		_, s := p.change(e.Object)
		s.Ready, _ = readSwitch(e.Message)
	case plimsoll.NodeSchedulable:
		n, s := p.change(e.Object)
		if on, byAgent := readSwitch(e.Message); byAgent {
			n.closed = !on
		} else {
			n.cordoned = !on
		}
		s.Closed = n.cordoned || n.closed
	case plimsoll.NodeCapacity:
		_, s := p.change(e.Object)
		s.Capacity = maps.Clone(e.Resources)
	case plimsoll.NodeDecomission:
		_, s := p.change(e.Object)
		s.Gone = true
	}
}

// readSwitch reads a message such as "ready: false (its agent is not heard)". It has a reason if an
// agent is the cause.
func readSwitch(message string) (on, reason bool) {
	_, value, _ := strings.Cut(message, ": ")
	word, _, reason := strings.Cut(value, " (")
	return word == "true", reason
}
