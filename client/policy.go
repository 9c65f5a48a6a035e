package client

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// PolicyChange is the change that applying a policy made, or would make.
type PolicyChange int

// The changes.
const (
	PolicyUnknown PolicyChange = iota // the server is newer than this client
	PolicyCreated
	PolicyChanged
	PolicyUnchanged
)

// String returns the change in a word.
func (c PolicyChange) String() string {
	switch c {
	case PolicyCreated:
		return "created"
	case PolicyChanged:
		return "changed"
	case PolicyUnchanged:
		return "unchanged"
	case PolicyUnknown:
	}
	return "applied"
}

// PolicyOutcome is the outcome for one policy of a set.
type PolicyOutcome struct {
	Policy plimsoll.PolicyRef
	Change PolicyChange
}

// ApplyPolicies creates and changes policies: all of the set, which may refer to each other, or
// none. With dryRun nothing is changed, and the answer is the same.
func (c *Client) ApplyPolicies(ctx context.Context, policies []plimsoll.Policy, dryRun bool) ([]PolicyOutcome, error) {
	req := &pb.ApplyPoliciesRequest{DryRun: dryRun}
	for i := range policies {
		req.Policies = append(req.Policies, wire.PolicyToProto(&policies[i]))
	}
	apply := change[pb.ApplyPoliciesRequest, pb.ApplyPoliciesResponse]
	if dryRun {
		apply = call
	} else {
		req.Token = tokenOf(ctx)
	}
	res, err := apply(ctx, c, c.policies.ApplyPolicies, req)
	if err != nil {
		return nil, err
	}
	outcomes := make([]PolicyOutcome, len(res.GetOutcomes()))
	for i, o := range res.GetOutcomes() {
		outcomes[i].Policy = wire.PolicyRefFromProto(o.GetPolicy())
		if change := PolicyChange(o.GetChange()); change >= PolicyCreated && change <= PolicyUnchanged {
			outcomes[i].Change = change
		}
	}
	return outcomes, nil
}

// Policies reads all policies of a kind, by kind and name. The zero kind stands for all kinds.
func (c *Client) Policies(ctx context.Context, kind plimsoll.PolicyKind) ([]plimsoll.Policy, error) {
	res, err := call(ctx, c, c.policies.ListPolicies, &pb.ListPoliciesRequest{
		Kind: pb.PolicyKind(kind), Consistency: c.consistency(ctx),
	})
	if err != nil {
		return nil, err
	}
	policies := make([]plimsoll.Policy, len(res.GetPolicies()))
	for i, m := range res.GetPolicies() {
		policies[i] = wire.PolicyFromProto(m)
	}
	return policies, nil
}

// Policy reads one policy.
func (c *Client) Policy(ctx context.Context, ref plimsoll.PolicyRef) (plimsoll.Policy, error) {
	res, err := call(ctx, c, c.policies.GetPolicy, &pb.GetPolicyRequest{
		Kind: pb.PolicyKind(ref.Kind), Name: ref.Name, Consistency: c.consistency(ctx),
	})
	if err != nil {
		return plimsoll.Policy{}, err
	}
	return wire.PolicyFromProto(res.GetPolicy()), nil
}

// DeletePolicy deletes a policy. An Action that other policies name is not deleted.
func (c *Client) DeletePolicy(ctx context.Context, ref plimsoll.PolicyRef) error {
	req := &pb.DeletePolicyRequest{Kind: pb.PolicyKind(ref.Kind), Name: ref.Name, Token: tokenOf(ctx)}
	_, err := change(ctx, c, c.policies.DeletePolicy, req)
	return err
}
