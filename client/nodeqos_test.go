package client_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// watched sends one status of a node in each stream, and then breaks the stream.
type watched struct {
	plimsollv1connect.UnimplementedNodeServiceHandler
	mu struct {
		sync.Mutex
		streams  uint64
		interval int64
	}
}

func (w *watched) WatchNodeQOS(
	_ context.Context, req *connect.Request[pb.WatchNodeQOSRequest],
	stream *connect.ServerStream[pb.WatchNodeQOSResponse],
) error {
	w.mu.Lock()
	w.mu.streams++
	w.mu.interval = req.Msg.GetIntervalNanos()
	n := w.mu.streams
	w.mu.Unlock()
	if req.Msg.GetNode() != "n1" {
		return wire.ConnectError(plimsoll.Errorf(plimsoll.CodeNotFound, "there is no node %q", req.Msg.GetNode()))
	}
	if err := stream.Send(&pb.WatchNodeQOSResponse{Status: someQOS(n)}); err != nil {
		return err
	}
	return wire.ConnectError(plimsoll.Errorf(plimsoll.CodeUnavailable, "the agent is started anew"))
}

func someQOS(sequence uint64) *pb.NodeQOSStatus {
	return &pb.NodeQOSStatus{
		Node: "n1", At: 1, Sequence: sequence, SchedulingDisabled: true, SchedulingReason: "full", CpuNanocores: 2,
		MemoryBytes: 3, Waits: "old", Unable: "v0",
		Extended: wire.ResourcesToProto(plimsoll.Resources{plimsoll.ExtCPU: 4}), Values: map[string]int64{"load": 5},
		Lines: []*pb.QOSLine{{
			Rule: "a/b", Metric: "load", Unit: "u", Scale: 6, Waterline: 7, Release: 8, Usage: 9, Gap: 10,
			Triggered: true, Since: 11, Action: "c", Preview: true,
			Missing: true, Waits: "w",
		}, {Rule: "a/c"}},
		Tasks: []*pb.QOSTask{{
			Task: "t", Attempt: 1, Class: pb.Class_CLASS_GUARANTEED, Priority: 2, CpuNanocores: 3, MemoryBytes: 4,
			ExtRatioPermille: 5, Started: 6,
			QuotaNanocores: 7, OriginalQuotaNanocores: 8, Idle: true, Frozen: true, Rung: "freeze",
			Allowed: []string{"c"}, Exempt: "e", Pending: true,
			Owner: "o", Queue: "q", Labels: map[string]string{"k": "v"}, ExtCpuNanocores: 9, ExtMemoryBytes: 10,
			LimitNanocores: 11, RequestNanocores: 12,
			Shares: 13, OriginalShares: 14, CpuUnknown: true, Stopping: true, CpuPressure: 15, MemoryPressure: 16,
			PressureKnown: true, OwnQuota: true,
			Values: map[string]int64{"m": 17},
		}},
		Plan: []*pb.QOSStep{
			{
				Task: "t", Verb: "evict", Metric: "load", Rule: "a/b", Amount: "1", Before: "x", After: "y",
				Reason: "z", Preview: true,
			},
		},
		Skipped: []*pb.QOSSkip{{Task: "t", Reason: "gone", Rule: "a/b", Verb: "evict"}},
		Waterlines: &pb.QOSWaterlines{
			Throttle: []*pb.QOSWaterline{{
				Metric: "load", Rule: "a/b", Unit: "u", Scale: 6, Value: 7, Smallest: true, Gap: 8,
			}},
			Restore: []*pb.QOSWaterline{{Rule: "a/c"}},
			Evict:   []*pb.QOSWaterline{{Rule: "a/d"}},
		},
	}
}

// The QoS state of a node reaches the caller whole, and the watch outlives its stream.
func TestWatchNodeQOS(t *testing.T) {
	w := &watched{}
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewNodeServiceHandler(w))
	c := clientOf(t, mux, client.Config{RetryBudget: time.Minute})

	want := client.NodeQOS{
		Node: "n1", At: 1, SchedulingDisabled: true, SchedulingReason: "full", CPU: 2, Memory: 3, Waits: "old",
		Unable:   "v0",
		Extended: plimsoll.Resources{plimsoll.ExtCPU: 4}, Values: map[string]int64{"load": 5},
		Lines: []client.QOSLine{{
			Rule: "a/b", Metric: "load", Unit: "u", Scale: 6, Waterline: 7, Release: 8, Usage: 9, Gap: 10,
			Triggered: true, Since: 11, Action: "c", Preview: true,
			Missing: true, Waits: "w",
		}, {Rule: "a/c", Scale: 1}},
		Tasks: []client.QOSTask{{
			Task: "t", Attempt: 1, Class: plimsoll.ClassGuaranteed, Priority: 2, CPU: 3, Memory: 4, MemoryKnown: true,
			ExtRatio: 5, Started: 6,
			Quota: 7, OriginalQuota: 8, Idle: true, Frozen: true, Rung: "freeze", Allowed: []string{"c"}, Exempt: "e",
			Pending: true,
			Owner:   "o", Queue: "q", Labels: map[string]string{"k": "v"}, ExtCPU: 9, ExtMemory: 10, Limit: 11,
			Request: 12,
			Shares:  13, OriginalShares: 14, Stopping: true, CPUPressure: 15, MemoryPressure: 16, PressureKnown: true,
			OwnQuota: true,
			Values:   map[string]int64{"m": 17},
		}},
		Plan: []client.QOSStep{
			{
				Task: "t", Verb: "evict", Metric: "load", Rule: "a/b", Amount: "1", Before: "x", After: "y",
				Reason: "z", Preview: true,
			},
		},
		Skipped: []client.QOSSkip{{Task: "t", Reason: "gone", Rule: "a/b", Verb: "evict"}},
		Waterlines: client.QOSWaterlines{
			Throttle: []client.QOSWaterline{{
				Metric: "load", Rule: "a/b", Unit: "u", Scale: 6, Value: 7, Smallest: true, Gap: 8,
			}},
			Restore: []client.QOSWaterline{{Rule: "a/c", Scale: 1}},
			Evict:   []client.QOSWaterline{{Rule: "a/d", Scale: 1}},
		},
	}
	for got, err := range c.WatchNodeQOS(t.Context(), "n1", time.Second) {
		if err != nil {
			t.Fatal(err)
		}
		want.Sequence++
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("(-want +got)\n%s", d)
		}
		if want.Sequence == 3 {
			break
		}
	}
	if w.mu.interval != int64(time.Second) {
		t.Errorf("it asked for one each %d ns", w.mu.interval)
	}
	for _, err := range c.WatchNodeQOS(t.Context(), "n2", 0) {
		if plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
			t.Errorf("%v", err)
		}
	}
}
