package coordinator

import (
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The encoders of the table of commands write the engine's answers into the gateway's reply.

func done(*pb.Reply, engine.Done) {}

func encodeRegistration(reply *pb.Reply, number engine.Registration) {
	reply.Registration = uint64(number)
}

func encodeOutcomes(reply *pb.Reply, list []state.PolicyOutcome) {
	reply.ApplyPolicies = policyOutcomes(list)
}

func policyOutcomes(list []state.PolicyOutcome) *pb.ApplyPoliciesResponse {
	m := &pb.ApplyPoliciesResponse{}
	for _, o := range list {
		m.Outcomes = append(
			m.Outcomes, &pb.PolicyOutcome{Policy: wire.PolicyRefToProto(o.Ref), Change: pb.PolicyChange(o.Change)},
		)
	}
	return m
}
