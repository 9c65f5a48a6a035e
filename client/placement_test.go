package client_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// placer answers calls about placement. Each field of its answers is set.
type placer struct {
	plimsollv1connect.UnimplementedJobServiceHandler
	plimsollv1connect.UnimplementedNodeServiceHandler
}

func someSteps() []*pb.ExplainStep {
	return []*pb.ExplainStep{{
		Stage: "min-cpu", Kind: pb.StageKind_STAGE_KIND_NO_ROOM, Received: 3, Remaining: 1, Dropped: 2, Refused: 4,
		Reasons: []*pb.ExplainReason{{Reason: "not enough cpu", Nodes: 2, Examples: []string{"n1"}}},
	}}
}

var wantSteps = []client.ExplainStep{{
	Stage: "min-cpu", Kind: client.StageNoRoom, Received: 3, Remaining: 1, Dropped: 2, Refused: 4,
	Reasons: []client.ExplainReason{{Reason: "not enough cpu", Nodes: 2, Examples: []string{"n1"}}},
}}

func someCounts() *pb.NodeCounts {
	return &pb.NodeCounts{Total: 5, Open: 4, Eligible: 3, FitEmpty: 2, Fit: 1}
}

var wantCounts = client.NodeCounts{Total: 5, Open: 4, Eligible: 3, FitEmpty: 2, Fit: 1}

func (placer) ExplainTask(
	_ context.Context, req *connect.Request[pb.ExplainTaskRequest],
) (*connect.Response[pb.ExplainTaskResponse], error) {
	return connect.NewResponse(&pb.ExplainTaskResponse{
		Task: &pb.Task{Job: "a", Group: "g", Index: 2}, WaitCode: pb.WaitCode_WAIT_CODE_NO_NODE, Summary: "full",
		Steps: someSteps(), Nodes: someCounts(),
		Verdicts: []*pb.NodeVerdict{
			{Stage: "traits", Kind: pb.StageKind_STAGE_KIND_NOT_ELIGIBLE, Reason: "on " + req.Msg.GetNode()},
		},
		DecisionsKept: 7,
		Spreads: []*pb.SpreadCount{{
			By: "rack", MaxSkew: 1, Values: 9, Counted: 8, Fewest: 7, FewestIn: "r1",
			Uncounted: []string{"r2"}, Summary: "one does not",
		}},
		Decision: &pb.PlacementDecision{
			Time: 8, Node: "n1", Score: 1.5, Looked: 9, Batches: 2, Steps: someSteps(), Export: []byte("{}"),
			Candidates: []*pb.PlacementCandidate{
				{
					Node: "n1", Kept: true, Score: 1.5, Free: wire.ResourcesToProto(plimsoll.Resources{"cpu": 1}),
					Tasks: 3,
				},
			},
		},
	}), nil
}

func (placer) PlaceJob(
	_ context.Context, req *connect.Request[pb.PlaceJobRequest],
) (*connect.Response[pb.PlaceJobResponse], error) {
	return connect.NewResponse(&pb.PlaceJobResponse{QueueReason: req.Msg.GetSpec().GetId(), Groups: []*pb.PlacedGroup{{
		Group: req.Msg.GetGroup(), Asked: req.Msg.GetCount(), Stopped: true,
		Placed: []*pb.PlacedTask{{Node: "n1", Score: 2, Free: wire.ResourcesToProto(plimsoll.Resources{"cpu": 5})}},
		Refused: &pb.PlacementRefusal{
			WaitCode: pb.WaitCode_WAIT_CODE_TOO_LARGE, Summary: "large", Steps: someSteps(), Nodes: someCounts(),
		},
	}}}), nil
}

func (placer) NodeCapacity(
	_ context.Context, req *connect.Request[pb.NodeCapacityRequest],
) (*connect.Response[pb.NodeCapacityResponse], error) {
	if len(req.Msg.GetNodes()) > 1 {
		return nil, wire.ConnectError(
			plimsoll.Errorf(plimsoll.CodeNotFound, "there is no node %q", req.Msg.GetNodes()[1]),
		)
	}
	return connect.NewResponse(&pb.NodeCapacityResponse{Nodes: []*pb.NodeRoom{
		{
			Node: "n1", Unreserved: wire.ResourcesToProto(plimsoll.Resources{"cpu": -1}),
			Whole: wire.ResourcesToProto(plimsoll.Resources{"cpu": 4}), Tasks: 6,
		},
		{Node: "n2", Reason: "not heard"},
	}}), nil
}

// clientOf serves on a socket until the test ends, and returns a client of that.
func clientOf(t *testing.T, mux *http.ServeMux, cfg client.Config) *client.Client {
	t.Helper()
	cfg.Server = "unix:" + filepath.Join(t.TempDir(), "s")
	l, err := transport.Listen(cfg.Server)
	if err != nil {
		t.Fatal(err)
	}
	// cleaning up comes after the test's own context has ended
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- transport.Serve(ctx, l, mux, transport.ServeConfig{}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// The server's answers about placement reach the caller whole.
func TestPlacement(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewJobServiceHandler(placer{}))
	mux.Handle(plimsollv1connect.NewNodeServiceHandler(placer{}))
	c := clientOf(t, mux, client.Config{})
	check := func(got any, err error, want any) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	}
	x, err := c.ExplainTask(t.Context(), "a.g.2", client.ExplainOptions{Node: "n9", Export: true})
	check(x, err, client.Explanation{
		Task: plimsoll.Task{ID: "a.g.2", Job: "a", Group: "g", Index: 2}, WaitCode: plimsoll.WaitNoNode,
		Summary: "full", Steps: wantSteps, Nodes: wantCounts,
		Verdicts: []client.NodeVerdict{{Stage: "traits", Kind: client.StageNotEligible, Reason: "on n9"}}, Kept: 7,
		Spreads: []client.SpreadCount{{
			By: "rack", MaxSkew: 1, Values: 9, Counted: 8, Fewest: 7, FewestIn: "r1",
			Uncounted: []string{"r2"}, Summary: "one does not",
		}},
		Decision: &client.Decision{
			Time: 8, Node: "n1", Score: 1.5, Looked: 9, Batches: 2, Steps: wantSteps, Export: []byte("{}"),
			Candidates: []client.Candidate{
				{Node: "n1", Kept: true, Score: 1.5, Free: plimsoll.Resources{"cpu": 1}, Tasks: 3},
			},
		},
	})
	trial, err := c.PlaceJob(t.Context(), plimsoll.JobSpec{ID: "try"}, client.PlaceOptions{Group: "g", Count: 12})
	check(trial, err, client.Trial{QueueReason: "try", Groups: []client.TriedGroup{{
		Name: "g", Asked: 12, Stopped: true,
		Placed: []client.PlacedTask{{Node: "n1", Score: 2, Free: plimsoll.Resources{"cpu": 5}}},
		Refused: &client.Refusal{
			WaitCode: plimsoll.WaitTooLarge, Summary: "large", Steps: wantSteps, Nodes: wantCounts,
		},
	}}})
	rooms, err := c.NodeCapacity(t.Context())
	check(rooms, err, []client.NodeRoom{
		{Node: "n1", Unreserved: plimsoll.Resources{"cpu": -1}, Whole: plimsoll.Resources{"cpu": 4}, Tasks: 6},
		{Node: "n2", Reason: "not heard"},
	})
	if _, err := c.NodeCapacity(t.Context(), "n1", "n9"); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("an unknown node: %v", err)
	}
	for k, want := range []string{"", "closed", "not eligible", "no room", "not best"} {
		if got := client.StageKind(k).String(); got != want {
			t.Errorf("kind %d is %q, want %q", k, got, want)
		}
	}
}
