package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/informer"
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

	set     *informer.Loader[plimsoll.Policy] // by policyKey
	applied []byte                            // the last set that was applied
	saved   []byte                            // the set on disk
}

func newPolicyBook(path string, apply func([]plimsoll.Policy), trouble func(Trouble)) *policyBook {
	set := informer.NewLoader(informer.NewPlainIndexer[plimsoll.Policy]())
	return &policyBook{path: path, apply: apply, trouble: trouble, set: set}
}

// open reads the policies of an earlier agent, and applies them. An unreadable file counts as
// empty, and the next list replaces it.
func (b *policyBook) open() {
	data, err := os.ReadFile(b.path)
	if err == nil {
		var m pb.WatchAssignmentsResponse
		if err = proto.Unmarshal(data, &m); err == nil {
			var changed []plimsoll.Policy
			for _, p := range m.GetChangedPolicies() {
				changed = append(changed, wire.PolicyFromProto(p))
			}
			b.store(changed, nil)
			b.saved = data
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.trouble(Trouble{Kind: TroubleReadPolicies, Err: err})
	}
	b.publish()
}

// policyKey is the key of a policy in the book; its order is that of kinds and names.
func policyKey(ref plimsoll.PolicyRef) string { return string(rune(ref.Kind)) + ref.Name }

// store puts valid policies into the set or into the list that arrives, and reports whether it
// could.
func (b *policyBook) store(changed []plimsoll.Policy, gone []plimsoll.PolicyRef) bool {
	changes := make([]informer.Change[plimsoll.Policy], 0, len(changed)+len(gone))
	for i := range changed {
		p := &changed[i]
		if err := p.Validate(); err != nil {
			b.trouble(Trouble{Kind: TroublePolicy, Policy: p.Ref().String(), Err: err})
			continue
		}
		changes = append(changes, informer.Change[plimsoll.Policy]{Key: policyKey(p.Ref()), Object: *p})
	}
	for _, ref := range gone {
		changes = append(changes, informer.Change[plimsoll.Policy]{Key: policyKey(ref), Deleted: true})
	}
	return b.took(b.set.Apply(changes, informer.Version{}))
}

// took reports an error of the set.
func (b *policyBook) took(err error) bool {
	if err != nil {
		b.trouble(Trouble{Kind: TroublePolicy, Err: err})
	}
	return err == nil
}

// begin announces a list of all policies.
func (b *policyBook) begin() { b.set.Begin() }

// take records a part of the list, or changes to it. complete is true at the end of the list, which
// then replaces the old set.
func (b *policyBook) take(changed []plimsoll.Policy, gone []plimsoll.PolicyRef, complete bool) {
	listing := b.set.Listing()
	if !b.store(changed, gone) || listing && !complete || !listing && len(changed)+len(gone) == 0 {
		return
	}
	if b.took(b.set.Complete(informer.Version{})) {
		b.publish()
	}
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
	for _, p := range b.set.Index().Snapshot().All() {
		policies = append(policies, p)
		m.ChangedPolicies = append(m.ChangedPolicies, wire.PolicyToProto(&p))
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("policies that were received cannot be encoded: %v", err))
	}
	return policies, data
}
