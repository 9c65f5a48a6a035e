package agent

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// policyFile, in the agent's directory, has the policies of the node, as one
// WatchAssignmentsResponse.
const policyFile = "policies.pb"

// policyBook holds the policies of the node, in memory and on disk. So an agent that restarts
// without a gateway continues with them. It is used by one goroutine at a time.
type policyBook struct {
	path    string
	apply   func([]plimsoll.Policy) // called with the complete set after a change
	trouble func(Trouble)

	set     map[plimsoll.PolicyRef]plimsoll.Policy
	fresh   map[plimsoll.PolicyRef]plimsoll.Policy // the list that is being received; nil: none
	applied []byte                                 // the last set that was applied
	saved   []byte                                 // the set on disk
}

func newPolicyBook(path string, apply func([]plimsoll.Policy), trouble func(Trouble)) *policyBook {
	return &policyBook{path: path, apply: apply, trouble: trouble, set: map[plimsoll.PolicyRef]plimsoll.Policy{}}
}

// open reads the policies of an earlier agent, and applies them. An unreadable file counts as
// empty, and the next list replaces it.
func (b *policyBook) open() {
	data, err := os.ReadFile(b.path)
	if err == nil {
		var m pb.WatchAssignmentsResponse
		if err = proto.Unmarshal(data, &m); err == nil {
			for _, p := range m.GetChangedPolicies() {
				b.put(b.set, wire.PolicyFromProto(p))
			}
			b.saved = data
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.trouble(Trouble{Kind: TroubleReadPolicies, Err: err})
	}
	b.publish()
}

func (b *policyBook) put(into map[plimsoll.PolicyRef]plimsoll.Policy, p plimsoll.Policy) {
	if err := p.Validate(); err != nil {
		b.trouble(Trouble{Kind: TroublePolicy, Policy: p.Ref().String(), Err: err})
		return
	}
	into[p.Ref()] = p
}

// begin announces a list of all policies.
func (b *policyBook) begin() { b.fresh = map[plimsoll.PolicyRef]plimsoll.Policy{} }

// take records a part of the list, or changes to it. complete is true at the end of the list, which
// then replaces the old set.
func (b *policyBook) take(changed []plimsoll.Policy, gone []plimsoll.PolicyRef, complete bool) {
	into := b.set
	if b.fresh != nil {
		into = b.fresh
	}
	for _, p := range changed {
		b.put(into, p)
	}
	for _, ref := range gone {
		delete(into, ref)
	}
	if complete && b.fresh != nil {
		b.set, b.fresh = b.fresh, nil
	} else if b.fresh != nil || len(changed)+len(gone) == 0 {
		return
	}
	b.publish()
}

// publish applies and saves the set, if it has changed.
func (b *policyBook) publish() {
	policies, data := b.all()
	if b.applied == nil || !bytes.Equal(b.applied, data) {
		b.apply(append(policies, unknownTaskPolicy()))
		b.applied = data
	}
	if bytes.Equal(b.saved, data) {
		return
	}
	if err := writeDurably(b.path, data); err != nil {
		b.trouble(Trouble{Kind: TroubleKeepPolicies, Err: err})
		return
	}
	b.saved = data
}

// all returns the set in the order of kinds and names, and its encoding, which is never nil.
func (b *policyBook) all() (policies []plimsoll.Policy, data []byte) {
	m := &pb.WatchAssignmentsResponse{SnapshotEnd: true}
	for _, p := range b.set {
		policies = append(policies, p)
	}
	slices.SortFunc(policies, func(p, q plimsoll.Policy) int {
		return cmp.Or(cmp.Compare(p.Kind(), q.Kind()), cmp.Compare(p.Name(), q.Name()))
	})
	for i := range policies {
		m.ChangedPolicies = append(m.ChangedPolicies, wire.PolicyToProto(&policies[i]))
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("policies that were received cannot be encoded: %v", err))
	}
	return policies, data
}
