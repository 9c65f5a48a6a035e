package gateway

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// policyService serves PolicyService.
type policyService struct {
	plimsollv1connect.UnimplementedPolicyServiceHandler // for the reads in Gateway.encodedReads

	g *Gateway
}

// ApplyPolicies creates and changes policies: the whole set or nothing. The leader checks them
// together with the existing ones.
func (s policyService) ApplyPolicies(
	ctx context.Context, req *connect.Request[pb.ApplyPoliciesRequest],
) (*connect.Response[pb.ApplyPoliciesResponse], error) {
	if err := checkPolicies(req.Msg.GetPolicies()); err != nil {
		return nil, err
	}
	reply, err := s.g.change(
		ctx, req.Msg.GetToken(), &pb.Command{Kind: &pb.Command_ApplyPolicies{ApplyPolicies: req.Msg}},
	)
	if err != nil {
		return nil, err
	}
	if reply.GetApplyPolicies() == nil {
		return nil, olderLeader("keep policies")
	}
	if _, err := s.g.after(ctx, reply); err != nil {
		return nil, err
	}
	return connect.NewResponse(reply.GetApplyPolicies()), nil
}

func checkPolicies(policies []*pb.Policy) error {
	if len(policies) == 0 {
		return plimsoll.Invalid("policies", "is empty; give at least one policy")
	}
	if len(policies) > plimsoll.MaxPolicies {
		return plimsoll.Invalid(
			"policies", "has %d entries; at most %d are possible", len(policies), plimsoll.MaxPolicies,
		)
	}
	seen := map[plimsoll.PolicyRef]bool{}
	for _, m := range policies {
		p := wire.PolicyFromProto(m)
		if err := p.Validate(); err != nil {
			return plimsoll.InPolicy(p.Ref(), err)
		}
		if seen[p.Ref()] {
			return plimsoll.Invalid("policies", "%s stands twice; give it once", p.Ref())
		}
		seen[p.Ref()] = true
	}
	return nil
}

// getPolicy answers with one policy.
func (s policyService) getPolicy(ctx context.Context, req *pb.GetPolicyRequest, a *answer) error {
	ref, err := policyRef(req.GetKind(), req.GetName())
	if err != nil {
		return err
	}
	v, err := a.view(ctx, req)
	if err != nil {
		return err
	}
	a.share(v.Snapshot)
	key := wire.PolicyKey(ref)
	data, ok := v.Get(wire.KindPolicy, key)
	if !ok {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no %s", ref)
	}
	if err := a.add(fieldPolicy, wire.KindPolicy, key, data); err != nil {
		return err
	}
	return a.Finish(&pb.GetPolicyResponse{Revision: v.Revision(), Epoch: v.Epoch()}, v.age)
}

func policyRef(kind pb.PolicyKind, name string) (plimsoll.PolicyRef, error) {
	ref := wire.PolicyRefFromProto(&pb.PolicyRef{Kind: kind, Name: name})
	if ref.Kind == 0 {
		return ref, plimsoll.Invalid("kind", "is not known; give Action, TaskQOS or NodeQOS")
	}
	if name == "" || len(name) > 63 {
		return ref, plimsoll.Invalid("name", "is missing or longer than 63 characters; give the name of a policy")
	}
	return ref, nil
}

// listPolicies answers with all policies, or with the policies of one kind: by kind, then by name.
func (s policyService) listPolicies(ctx context.Context, req *pb.ListPoliciesRequest, a *answer) error {
	wanted := req.GetKind()
	if pb.PolicyKind_name[int32(wanted)] == "" {
		return plimsoll.Invalid("kind", "is not known; give Action, TaskQOS or NodeQOS, or leave it out for all")
	}
	v, err := a.view(ctx, req)
	if err != nil {
		return err
	}
	a.share(v.Snapshot)
	for kind := plimsoll.PolicyKind(1); kind.Known(); kind++ {
		if wanted != 0 && pb.PolicyKind(kind) != wanted {
			continue
		}
		for key, data := range v.Scan(wire.KindPolicy, wire.PolicyKey(plimsoll.PolicyRef{Kind: kind}), "") {
			if err := a.add(fieldPolicies, wire.KindPolicy, key, data); err != nil {
				return err
			}
		}
	}
	return a.Finish(&pb.ListPoliciesResponse{Revision: v.Revision(), Epoch: v.Epoch()}, v.age)
}

// DeletePolicy deletes a policy to which no other policy refers.
func (s policyService) DeletePolicy(
	ctx context.Context, req *connect.Request[pb.DeletePolicyRequest],
) (*connect.Response[pb.DeletePolicyResponse], error) {
	if _, err := policyRef(req.Msg.GetKind(), req.Msg.GetName()); err != nil {
		return nil, err
	}
	reply, err := s.g.change(
		ctx, req.Msg.GetToken(), &pb.Command{Kind: &pb.Command_DeletePolicy{DeletePolicy: req.Msg}},
	)
	if err != nil {
		return nil, err
	}
	if _, err := s.g.after(ctx, reply); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.DeletePolicyResponse{}), nil
}
