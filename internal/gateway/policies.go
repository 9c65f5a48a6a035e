package gateway

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// policyService serves PolicyService.
type policyService struct{ g *Gateway }

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

// GetPolicy answers with one policy.
func (s policyService) GetPolicy(
	ctx context.Context, req *connect.Request[pb.GetPolicyRequest],
) (*connect.Response[pb.GetPolicyResponse], error) {
	ref, err := policyRef(req.Msg.GetKind(), req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return nil, err
	}
	policy, err := load[pb.Policy](snapshot, wire.KindPolicy, wire.PolicyKey(ref))
	if err != nil {
		return nil, err
	}
	if policy == nil {
		return nil, plimsoll.Errorf(plimsoll.CodeNotFound, "there is no %s", ref)
	}
	return connect.NewResponse(&pb.GetPolicyResponse{Policy: policy, Revision: snapshot.Revision()}), nil
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

// ListPolicies answers with all policies, or with the policies of one kind.
func (s policyService) ListPolicies(
	ctx context.Context, req *connect.Request[pb.ListPoliciesRequest],
) (*connect.Response[pb.ListPoliciesResponse], error) {
	kind := req.Msg.GetKind()
	if pb.PolicyKind_name[int32(kind)] == "" {
		return nil, plimsoll.Invalid("kind", "is not known; give Action, TaskQOS or NodeQOS, or leave it out for all")
	}
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return nil, err
	}
	resp := &pb.ListPoliciesResponse{Revision: snapshot.Revision()}
	for key, data := range snapshot.Scan(wire.KindPolicy, "", "") {
		if ref, _ := wire.SplitPolicyKey(key); kind != 0 && pb.PolicyKind(ref.Kind) != kind {
			continue
		}
		if err := holding(ctx, len(data)); err != nil {
			return nil, err
		}
		policy := &pb.Policy{}
		if err := decode(wire.KindPolicy, key, data, policy); err != nil {
			return nil, err
		}
		resp.Policies = append(resp.Policies, policy)
	}
	slices.SortFunc(resp.Policies, func(a, b *pb.Policy) int {
		x, y := wire.PolicyFromProto(a), wire.PolicyFromProto(b)
		return cmp.Or(cmp.Compare(x.Kind(), y.Kind()), strings.Compare(x.Name(), y.Name()))
	})
	return connect.NewResponse(resp), nil
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
