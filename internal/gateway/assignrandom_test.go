package gateway

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// receiver is the state that an agent has of a stream.
type receiver struct {
	tasks    map[string]string // state and revision by id
	policies map[string]bool
}

func (r *receiver) receive(messages []*pb.WatchAssignmentsResponse) {
	for _, m := range messages {
		for _, c := range m.GetChanged() {
			r.tasks[taskID(c.GetTask())] = fmt.Sprint(c.GetTask().GetState(), c.GetTask().GetRevision())
		}
		for _, id := range m.GetRemoved() {
			delete(r.tasks, id)
		}
		for _, p := range m.GetChangedPolicies() {
			policy := wire.PolicyFromProto(p)
			r.policies[policy.Name()] = true
		}
		for _, ref := range m.GetRemovedPolicies() {
			delete(r.policies, ref.GetName())
		}
	}
}

// expected returns the state that the records of a snapshot stand for.
func (r *receiver) expected(s *replica.Snapshot) (*receiver, error) {
	want := &receiver{tasks: map[string]string{}, policies: map[string]bool{}}
	for key, data := range s.NodeTasks("n1") {
		task := &pb.Task{}
		if err := decode(wire.KindTask, key, data, task); err != nil {
			return nil, err
		}
		if plimsoll.TaskState(task.GetState()).OnNode() {
			want.tasks[taskID(task)] = fmt.Sprint(task.GetState(), task.GetRevision())
		}
	}
	node, err := loadNode(s, "n1")
	if err != nil {
		return nil, err
	}
	for key, data := range s.Scan(wire.KindPolicy, "", "") {
		policy := &pb.Policy{}
		if err := decode(wire.KindPolicy, key, data, policy); err != nil {
			return nil, err
		}
		if selects(policy, node) {
			ref, _ := wire.SplitPolicyKey(key)
			want.policies[ref.Name] = true
		}
	}
	return want, nil
}

// coloredPolicy returns a NodeQOS that selects the nodes with one color.
func coloredPolicy(name, color string) wire.Mutation {
	return putPolicy(plimsoll.Policy{
		NodeQOS: &plimsoll.NodeQOS{Name: name, Selector: map[string]string{"color": color}},
	})
}

// A stream that follows the history sends the records of the snapshot, through gaps and elections.
// Only there does it compare all records of the node.
func TestAssignmentsThatFollowTheHistoryAreThoseOfTheSnapshot(t *testing.T) {
	seed := testrun.Seed(t)
	for run := range testrun.Count(20, 50, 3000) {
		rng := rand.New(rand.NewPCG(seed+uint64(run), 0))
		f := newFake()
		limit := 1 << (13 + rng.IntN(8))
		f.history = replica.NewHistory(limit)
		f.history.Reset(1, 0)
		f.changes = f.history.View()
		f.put(putSpec(specNamed("a")), putNode(plimsoll.Node{ID: "n1", Attributes: map[string]string{"color": "red"}}))
		d, got := newDiffer(), &receiver{tasks: map[string]string{}, policies: map[string]bool{}}
		d.tasks = f.ReadChanges(replica.Part{Kind: wire.KindTask, By: replica.ByNode, Value: "n1"}, false)
		d.history = f.Changes
		signals := map[wire.Kind]<-chan struct{}{}
		for kind, key := range map[wire.Kind]string{wire.KindNode: "n1", wire.KindPolicy: ""} {
			signals[kind], _ = f.Watch(kind, key)
		}
		if err := d.update(f.Latest(), nil, 0, true); err != nil {
			t.Fatal(err)
		}
		full, elections := d.round, uint64(0)
		for range 200 {
			for range 1 + rng.IntN(3) {
				f.put(randomAssignments(rng, f.revision+1)...)
			}
			if rng.IntN(50) == 0 {
				f.elect()
				elections++
			}
			if rng.IntN(50) == 0 {
				f.takeOver(randomAssignments(rng, f.revision+1)...)
			}
			for _, kind := range []wire.Kind{wire.KindPolicy, wire.KindTask, wire.KindNode} {
				select {
				case <-signals[kind]:
				case <-d.changedTasks(kind):
				default: // nothing of it has changed
					continue
				}
				view := d.tasks.View()
				if err := d.update(f.Latest(), view, kind, false); err != nil {
					t.Fatal(err)
				}
			}
			got.receive(d.messages)
			d.messages = nil
			want, err := got.expected(f.Latest())
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(got.tasks, want.tasks) || !maps.Equal(got.policies, want.policies) {
				t.Fatalf("PLIMSOLL_SEED=%d: at revision %d the agent has %v, want %v", seed, f.revision, got, want)
			}
		}
		if passes := d.round - full; limit == 1<<20 && passes != elections {
			t.Errorf("%d passes over all tasks of the node, and %d elections", passes, elections)
		}
		if len(d.skipped) > 0 {
			t.Errorf("skipped: %v", d.skipped)
		}
	}
}

// changedTasks returns the channel of the changes of tasks, if these are the kind.
func (d *differ) changedTasks(kind wire.Kind) <-chan struct{} {
	if kind != wire.KindTask {
		return nil
	}
	return d.tasks.Changed()
}

func randomAssignments(rng *rand.Rand, revision uint64) (mutations []wire.Mutation) {
	for _, index := range rng.Perm(20)[:rng.IntN(5)] {
		task := plimsoll.Task{
			Job: "a", Group: "map", Index: int32(index), Attempt: 1, State: plimsoll.TaskState(1 + rng.IntN(6)),
			Node: fmt.Sprint("n", 1+rng.IntN(2)), Revision: revision,
		}
		m := putTask(task)
		if rng.IntN(5) == 0 {
			m = deleted(m)
		}
		mutations = append(mutations, m)
	}
	colors := []string{"red", "blue"}
	if rng.IntN(5) == 0 {
		m := coloredPolicy(fmt.Sprint("p", rng.IntN(3)), colors[rng.IntN(2)])
		if rng.IntN(3) == 0 {
			m = deleted(m)
		}
		mutations = append(mutations, m)
	}
	if rng.IntN(10) == 0 {
		mutations = append(mutations, putNode(plimsoll.Node{
			ID: "n1", Attributes: map[string]string{"color": colors[rng.IntN(2)]}, Revision: revision,
		}))
	}
	return mutations
}
