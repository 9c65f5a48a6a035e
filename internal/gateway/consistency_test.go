package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// stamp is the part of every answer that names its state.
type stamp interface {
	GetRevision() uint64
	GetEpoch() uint64
	GetAgeNanos() int64
}

// readsAt are all reads, with the consistency that they ask for.
func readsAt(s *served) map[string]func(context.Context, plimsoll.Consistency) (stamp, error) {
	type ask = func(context.Context, plimsoll.Consistency) (stamp, error)
	at := wire.ConsistencyToProto
	return map[string]ask{
		"GetJob": func(ctx context.Context, c plimsoll.Consistency) (stamp, error) {
			return callIn(ctx, s.jobs.GetJob, &pb.GetJobRequest{Id: "a", Consistency: at(c)})
		},
		"ListJobs": func(ctx context.Context, c plimsoll.Consistency) (stamp, error) {
			return callIn(ctx, s.jobs.ListJobs, &pb.ListJobsRequest{Consistency: at(c)})
		},
		"GetTask": func(ctx context.Context, c plimsoll.Consistency) (stamp, error) {
			return callIn(ctx, s.jobs.GetTask, &pb.GetTaskRequest{Id: "a.map.0", Consistency: at(c)})
		},
		"ListTasks": func(ctx context.Context, c plimsoll.Consistency) (stamp, error) {
			return callIn(ctx, s.jobs.ListTasks, &pb.ListTasksRequest{Consistency: at(c)})
		},
		"ListNodes": func(ctx context.Context, c plimsoll.Consistency) (stamp, error) {
			return callIn(ctx, s.nodes.ListNodes, &pb.ListNodesRequest{Consistency: at(c)})
		},
		"ListQueues": func(ctx context.Context, c plimsoll.Consistency) (stamp, error) {
			return callIn(ctx, s.queues.ListQueues, &pb.ListQueuesRequest{Consistency: at(c)})
		},
		"GetQueueConfig": func(ctx context.Context, c plimsoll.Consistency) (stamp, error) {
			return callIn(ctx, s.queues.GetQueueConfig, &pb.GetQueueConfigRequest{Consistency: at(c)})
		},
		"GetPolicy": func(ctx context.Context, c plimsoll.Consistency) (stamp, error) {
			return callIn(ctx, s.policies.GetPolicy, &pb.GetPolicyRequest{Kind: 1, Name: "slow", Consistency: at(c)})
		},
		"ListPolicies": func(ctx context.Context, c plimsoll.Consistency) (stamp, error) {
			return callIn(ctx, s.policies.ListPolicies, &pb.ListPoliciesRequest{Consistency: at(c)})
		},
		"ListEvents": func(ctx context.Context, c plimsoll.Consistency) (stamp, error) {
			return callIn(ctx, s.events.ListEvents, &pb.ListEventsRequest{Consistency: at(c)})
		},
	}
}

// clusterWithPolicy is cluster with a policy, at revision 2 of epoch 1.
func clusterWithPolicy() *fake {
	f := cluster()
	f.put(wire.Mutation{
		Kind: wire.KindPolicy, Key: wire.PolicyKey(plimsoll.PolicyRef{Kind: 1, Name: "slow"}),
		Value: wire.AppendPolicy(nil, &plimsoll.Policy{Action: &plimsoll.Action{Name: "slow"}}),
	})
	return f
}

func TestEveryAnswerCarriesItsVersionAndItsAge(t *testing.T) {
	s := directly(newGateway(t, Config{}, clusterWithPolicy()))
	for name, read := range readsAt(s) {
		for _, c := range []plimsoll.Consistency{
			{}, {Level: plimsoll.FreshnessStrict}, {Level: plimsoll.FreshnessEventual}, plimsoll.AtLeast(1, 2),
		} {
			got, err := read(t.Context(), c)
			if err != nil {
				t.Errorf("%s %s: %v", name, c, err)
				continue
			}
			age := time.Duration(got.GetAgeNanos())
			if got.GetEpoch() != 1 || got.GetRevision() != 2 || (age == 0) != c.Strict() || age != 0 && age != copyAge {
				t.Errorf("%s %s: revision %d of epoch %d, %s old", name, c, got.GetRevision(), got.GetEpoch(), age)
			}
		}
	}
}

// Without a leader a strict read is refused, never stale. Only the others are answered.
func TestWithoutALeaderOnlyAReadThatAllowsItIsAnsweredFromTheCopy(t *testing.T) {
	f := clusterWithPolicy()
	f.down = errNoLeader
	g := newGateway(t, Config{}, f)
	for name, read := range readsAt(directly(g)) {
		if _, err := read(t.Context(), plimsoll.Consistency{}); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
			t.Errorf("%s, strict: %v", name, err)
		}
		for _, c := range []plimsoll.Consistency{{Level: plimsoll.FreshnessEventual}, plimsoll.AtLeast(1, 1)} {
			if got, err := read(t.Context(), c); err != nil || got.GetAgeNanos() == 0 {
				t.Errorf("%s, %s: %v", name, c, err)
			}
		}
	}
	for _, path := range []string{
		plimsollv1connect.JobServiceListJobsProcedure, plimsollv1connect.EventServiceListEventsProcedure,
	} {
		status, header, body := post(g, path, "application/json", []byte("{}"))
		if status != http.StatusServiceUnavailable || header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d, retry after %q: %s", path, status, header.Get("Retry-After"), body)
		}
	}
}

func TestBeforeTheFirstCopyNoReadIsAnswered(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		f := newFake()
		f.down, f.latest = errNoLeader, replica.NewTables().Snapshot()
		for name, read := range readsAt(directly(newGateway(t, Config{}, f))) {
			for _, c := range []plimsoll.Consistency{{}, {Level: plimsoll.FreshnessEventual}, plimsoll.AtLeast(1, 1)} {
				if _, err := read(t.Context(), c); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
					t.Errorf("%s, %s: %v", name, c, err)
				}
			}
		}
	})
}

func TestAVersionThatDoesNotComeIsUnavailableAfterTheBarrierTimeout(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		for name, read := range readsAt(directly(newGateway(t, Config{}, clusterWithPolicy()))) {
			for _, test := range []struct {
				at   plimsoll.Consistency
				want string
			}{
				{plimsoll.AtLeast(1, 3), "is at revision 2 of epoch 1 and has not reached 3 within 3s"},
				{plimsoll.AtLeast(2, 1), "is of epoch 1 and has not seen epoch 2 within 3s"},
			} {
				began := time.Now()
				_, err := read(t.Context(), test.at)
				if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || !strings.Contains(err.Error(), test.want) ||
					time.Since(began) != 3*time.Second {
					t.Errorf("%s, %s: %v after %s", name, test.at, err, time.Since(began))
				}
			}
		}
	})
}

func TestAConsistencyThatIsWrongIsRefusedWithItsField(t *testing.T) {
	g := newGateway(t, Config{}, cluster())
	for body, want := range map[string]string{
		`{"consistency":{"level":"FRESHNESS_EVENTUALLY"}}`:              `did you mean \"FRESHNESS_EVENTUAL\"?`,
		`{"consistency":{"level":7}}`:                                   "consistency.level: 7 is not known",
		`{"consistency":{"level":"FRESHNESS_AT_LEAST","revision":"4"}}`: "consistency.epoch: is 0; give the epoch",
		`{"consistency":{"revision":"4"}}`:                              "consistency: is strict with an epoch",
	} {
		status, _, answer := post(g, plimsollv1connect.JobServiceListJobsProcedure, "application/json", []byte(body))
		if status != http.StatusBadRequest || !strings.Contains(string(answer), want) {
			t.Errorf("%s: %d %s, want %s", body, status, answer, want)
		}
	}
}
