package gateway

import (
	"bytes"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// policyWatch holds the policies that a stream has been sent.
type policyWatch struct {
	node []byte            // record of the node for which policies were chosen
	sent map[string][]byte // records sent, by key
}

func entries(m *pb.WatchAssignmentsResponse) int {
	return len(m.Changed) + len(m.Removed) + len(m.ChangedPolicies) + len(m.RemovedPolicies)
}

// sendPolicies sends the difference between the policies that were sent and those in a snapshot
// that select the node.
func (a *assignments) sendPolicies(snapshot *replica.Snapshot) error {
	w := &a.policies
	data, _ := snapshot.Get(wire.KindNode, a.node)
	node, err := load[pb.Node](snapshot, wire.KindNode, a.node)
	if err != nil {
		return err
	}
	w.node = data
	if w.sent == nil {
		w.sent = map[string][]byte{}
	}
	concerns := map[string]bool{}
	for key, data := range snapshot.Scan(wire.KindPolicy, "", "") {
		selected, err := a.lookPolicy(node, key, data)
		if err != nil {
			return err
		}
		concerns[key] = selected
	}
	for _, key := range slices.Sorted(maps.Keys(w.sent)) {
		if concerns[key] {
			continue
		}
		if err := a.removePolicy(key); err != nil {
			return err
		}
	}
	return nil
}

// followPolicy looks at a policy that has changed; nil data: it was deleted.
func (a *assignments) followPolicy(snapshot *replica.Snapshot, key string, data []byte) error {
	if record, _ := snapshot.Get(wire.KindNode, a.node); !bytes.Equal(a.policies.node, record) {
		return a.sendPolicies(snapshot) // the node has changed too, and with it the choice
	}
	if data == nil {
		return a.removePolicy(key)
	}
	node, err := load[pb.Node](snapshot, wire.KindNode, a.node)
	if err != nil {
		return err
	}
	selected, err := a.lookPolicy(node, key, data)
	if err == nil && !selected {
		err = a.removePolicy(key)
	}
	return err
}

// lookPolicy compares a policy with the sent one, and queues the difference. selected reports
// whether it applies to the node.
func (a *assignments) lookPolicy(node *pb.Node, key string, data []byte) (selected bool, err error) {
	policy := &pb.Policy{}
	if err := decode(wire.KindPolicy, key, data, policy); err != nil {
		a.skip(err)
		return false, nil
	}
	if !selects(policy, node) {
		return false, nil
	}
	if was, has := a.policies.sent[key]; has && bytes.Equal(was, data) {
		return true, nil
	}
	a.policies.sent[key] = data
	a.message.ChangedPolicies = append(a.message.ChangedPolicies, policy)
	return true, a.added(proto.Size(policy))
}

// removePolicy queues the removal of a policy, if it was sent.
func (a *assignments) removePolicy(key string) error {
	if _, has := a.policies.sent[key]; !has {
		return nil
	}
	delete(a.policies.sent, key)
	ref, _ := wire.SplitPolicyKey(key)
	a.message.RemovedPolicies = append(a.message.RemovedPolicies, wire.PolicyRefToProto(ref))
	return a.added(len(key))
}

// selects reports whether a policy applies to a node.
func selects(policy *pb.Policy, node *pb.Node) bool {
	if policy.GetNodeQos() == nil {
		return true
	}
	n := plimsoll.NodeQOS{Selector: policy.GetNodeQos().GetSelector()}
	return n.Selects(node.GetAttributes())
}
