package simulate

import (
	"maps"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
)

// NodeState is the state of a node from an instant on.
type NodeState struct {
	At       int64
	Gone     bool // it is not known to the cluster
	Ready    bool // its agent is heard
	Closed   bool // it takes no tasks
	Lost     bool // at this instant its tasks are given up
	Capacity plimsoll.Resources
}

// joining is a node as the engine knows it.
type joining struct {
	*Node

	state      NodeState
	registered plimsoll.Resources // the capacity that it has registered with
	sequence   uint64             // of the reports of its offers
}

// planNode plans the comings and goings of a node.
func (r *runner) planNode(n *Node) {
	if len(n.States) == 0 {
		r.at(n.From, func(*runner) []engine.Operation { return n.join() })
		if n.Until > 0 {
			r.at(n.Until, func(*runner) []engine.Operation { return []engine.Operation{n.leave()} })
		}
		return
	}
	j := &joining{Node: n, state: NodeState{Gone: true}}
	for i := range n.States {
		is := &n.States[i]
		r.at(is.At, func(r *runner) []engine.Operation { return j.become(r, is) })
	}
}

// join returns the operations by which a node joins.
func (n *Node) join() []engine.Operation {
	list := []engine.Operation{n.register(n.Capacity)}
	if n.Closed {
		list = append(list, n.open(false))
	}
	return list
}

func (n *Node) register(capacity plimsoll.Resources) engine.Operation {
	op := node(n.ID, capacity, n.Attributes)
	op.Node.Facts = n.Facts
	return op
}

func (n *Node) open(open bool) engine.Operation {
	mode := plimsoll.NodeCordoned
	if open {
		mode = plimsoll.NodeActive
	}
	return &engine.SetNodeMode{ID: n.ID, Mode: mode}
}

// leave gives the tasks of a node up.
func (n *Node) leave() engine.Operation {
	return &engine.LeaveNode{Node: n.ID, Incarnation: 1, Empty: true}
}

// become returns the operations by which a node changes its state.
func (j *joining) become(r *runner, is *NodeState) (list []engine.Operation) {
	was := j.state
	j.state = *is
	if is.Gone {
		if was.Gone {
			return nil
		}
		j.registered = nil
		r.at(is.At+1, func(*runner) []engine.Operation { return []engine.Operation{&engine.RemoveNode{ID: j.ID}} })
		return []engine.Operation{j.leave()}
	}
	capacity, offers := split(is.Capacity)
	resized := !maps.Equal(capacity, j.registered)
	if was.Gone || is.Ready && (!was.Ready || resized) {
		list = append(list, j.register(capacity))
		j.registered = capacity
	}
	if is.Closed != (was.Closed && !was.Gone) {
		list = append(list, j.open(!is.Closed))
	}
	if _, before := split(was.Capacity); is.Ready && (len(offers) > 0 || len(before) > 0 && !was.Gone) {
		j.sequence++
		list = append(list, &engine.ReportNode{
			Node: j.ID, Incarnation: 1, Sequence: j.sequence, Report: plimsoll.NodeReport{Extended: offers},
		})
	}
	switch {
	case is.Lost:
		list = append(list, j.leave())
	case !is.Ready && (was.Ready || was.Gone): // the engine gives its tasks up later, if it stays away
		list = append(list, &engine.LeaveNode{Node: j.ID, Incarnation: 1})
	}
	return list
}

// split divides a capacity into that of the node and the offers of its agent.
func split(capacity plimsoll.Resources) (own, offers plimsoll.Resources) {
	own, offers = maps.Clone(capacity), plimsoll.Resources{}
	for _, name := range []string{plimsoll.ExtCPU, plimsoll.ExtMemory} {
		if amount := capacity[name]; amount > 0 {
			offers[name] = amount
		}
		delete(own, name)
	}
	return own, offers
}
