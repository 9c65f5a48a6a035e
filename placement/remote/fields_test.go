package remote

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// TestEveryFieldOfABatchPasses sets every field of the messages to and from an evaluator. A field
// that is only in its type would be evaluated as if it were not there.
func TestEveryFieldOfABatchPasses(t *testing.T) {
	free := fill.Options{}
	passes(t, free, serverToProto, serverFromProto, map[string]string{"Instances": "the evaluator loads them"})
	passes(
		t, free, instanceToProto, func(m *pb.PlacementInstance) placement.Instance { return *instanceFromProto(m) },
		nil,
	)
	passes(t, free, requestToProto, func(m *pb.PlacementRequest) placement.Request {
		r, err := requestFromProto(m)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}, nil)
	passes(t, free, settingsToProto, func(m *pb.PlacementSettings) placement.Settings {
		c, err := chainFromProto(&pb.PlacementChain{Expression: `["pipe", "hard-filter-setup"]`, Settings: m})
		if err != nil {
			t.Fatal(err)
		}
		return c.Settings
	}, map[string]string{"Batch": "the caller makes the batch", "All": "the caller makes the batch"})
	kinds := fill.Options{Values: map[string]func(int) any{"Kind": func(int) any { return placement.NoRoom }}}
	passes(t, kinds, evaluationToProto, func(m *pb.EvaluateResponse) Evaluation { return *evaluationFromProto(m) },
		map[string]string{"Steps[].Step.Refused": "only explain counts it, over all servers"})
	passes(t, free, queryToProto, queryFromProto, nil)
	passes(t, free, spreadToProto, spreadFromProto, nil)
	passes(t, free, func(t *placement.SpreadTally) *pb.PlacementTally { return tallyToProto(*t) }, tallyFromProto, nil)
	passes(t, free, capacityToProto, capacityFromProto, nil)
}

// A chain is JSON inside of a message: it is bounded before it is read.
func TestALongChainIsRefusedBeforeItIsRead(t *testing.T) {
	_, err := chainFromProto(&pb.PlacementChain{Expression: "[" + strings.Repeat("{},", MaxExpression/3) + "{}]"})
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), "chain.expression: is 655") {
		t.Errorf("refused with %v", err)
	}
}

func passes[T, M any](t *testing.T, o fill.Options, to func(*T) M, from func(M) T, lost map[string]string) {
	t.Helper()
	var in T
	fill.Fill(&in, o)
	out := from(to(&in))
	left, stale := fill.Unexpected(fill.Differences(&in, &out), lost)
	for _, d := range left {
		t.Errorf("%s.%s is lost on its way to or from an evaluator (%s: %s). It belongs into: its message in "+
			"proto/plimsoll/v1/placement.proto, then make generate; both directions in "+
			"message.go, and in internal/wire for what that converts", d.Type, d.Field, d.Path, d)
	}
	for _, rule := range stale {
		t.Errorf("%s of %T passes, although this test says that it does not; take that out", rule, in)
	}
}
