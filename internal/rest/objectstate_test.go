package rest

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The state of a queue costs the same beside ten queues and nodes as beside a thousand, with each
// new revision: streams render few events at a time.
func TestTheStateOfAQueueCostsNotTheOtherQueuesAndNodes(t *testing.T) {
	cost := func(count int) float64 {
		tables := replica.NewTables()
		revision := uint64(0)
		put := func(mutations ...wire.Mutation) {
			revision++
			if err := tables.Apply(&wire.Batch{Epoch: 1, Revision: revision, Mutations: mutations}); err != nil {
				t.Fatal(err)
			}
		}
		queue := func(path string, leaf bool) wire.Mutation {
			s := plimsoll.QueueStatus{Path: path, Leaf: leaf}
			return wire.Mutation{Kind: wire.KindQueueStatus, Key: path, Value: wire.AppendQueueStatus(nil, &s)}
		}
		put(queue("root", false), queue("root.a", true))
		for i := range count {
			n := plimsoll.Node{ID: fmt.Sprint("n", i), Incarnation: 1, Capacity: plimsoll.Resources{plimsoll.CPU: 1000}}
			put(queue(fmt.Sprint("root.q", i), true),
				wire.Mutation{Kind: wire.KindNode, Key: n.ID, Value: wire.AppendNode(nil, &n)})
		}
		o := objectStates{wanted: true, fault: func(err error) { t.Error(err) }}
		ev := plimsoll.Event{Type: plimsoll.EventQueue, Object: "root.a"}
		const revisions = 100
		var snapshots []*replica.Snapshot
		for range revisions + 1 { // AllocsPerRun runs once more
			put(queue("root.a", true))
			snapshots = append(snapshots, tables.Snapshot())
		}
		o.begin(snapshots[0])
		o.of(&ev) // it reads the capacity of the nodes
		next := 0
		return testing.AllocsPerRun(revisions, func() {
			o.begin(snapshots[next])
			next++
			if o.of(&ev) == nil {
				t.Error("there is no state")
			}
		})
	}
	few, many := cost(10), cost(1000)
	if many > few+5 {
		t.Errorf("a state costs %.0f allocations beside 10 queues and nodes, and %.0f beside 1000", few, many)
	}
}
