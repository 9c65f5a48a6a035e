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
	looked *replica.Snapshot // snapshot of the last comparison
	node   []byte            // record of the node in looked
	sent   map[string][]byte // records sent, by key
}

func entries(m *pb.WatchAssignmentsResponse) int {
	return len(m.Changed) + len(m.Removed) + len(m.ChangedPolicies) + len(m.RemovedPolicies)
}

// sendPolicies sends the difference between the policies that were sent and those in a snapshot
// that select the node.
func (a *assignments) sendPolicies(snapshot *replica.Snapshot) error {
	w := &a.policies
	data, _ := snapshot.Get(wire.KindNode, a.node)
	if snapshot.Same(wire.KindPolicy, w.looked) && bytes.Equal(w.node, data) {
		return nil
	}
	node, err := load[pb.Node](snapshot, wire.KindNode, a.node)
	if err != nil {
		return err
	}
	w.looked, w.node = snapshot, data
	if w.sent == nil {
		w.sent = map[string][]byte{}
	}
	concerns := map[string]bool{}
	for key, data := range snapshot.Scan(wire.KindPolicy, "", "") {
		policy := &pb.Policy{}
		if err := decode(wire.KindPolicy, key, data, policy); err != nil {
			a.skip(err)
			continue
		}
		if !selects(policy, node) {
			continue
		}
		concerns[key] = true
		if was, has := w.sent[key]; has && bytes.Equal(was, data) {
			continue
		}
		w.sent[key] = data
		a.message.ChangedPolicies = append(a.message.ChangedPolicies, policy)
		if err := a.added(proto.Size(policy)); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.sent)) {
		if concerns[key] {
			continue
		}
		delete(w.sent, key)
		ref, _ := wire.SplitPolicyKey(key)
		a.message.RemovedPolicies = append(a.message.RemovedPolicies, wire.PolicyRefToProto(ref))
		if err := a.added(len(key)); err != nil {
			return err
		}
	}
	return nil
}

// selects reports whether a policy applies to a node.
func selects(policy *pb.Policy, node *pb.Node) bool {
	if policy.GetNodeQos() == nil {
		return true
	}
	n := plimsoll.NodeQOS{Selector: policy.GetNodeQos().GetSelector()}
	return n.Selects(node.GetAttributes())
}
