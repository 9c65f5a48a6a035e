package gateway

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// leader is a real replication source behind a real socket; in place of an engine it accepts every
// job.
type leader struct {
	address string
	stop    func()
	mu      sync.Mutex
	source  *replica.Source
	next    uint64
}

func startLeader(t testing.TB) *leader {
	t.Helper()
	source, err := replica.NewSource(
		replica.SourceConfig{Epoch: 1, Leader: "c63c4f68-decf-4285-a5dc-97d0663d8030"}, nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	ld := &leader{source: source, address: "unix:" + filepath.Join(t.TempDir(), "leader.sock")}
	l, err := transport.Listen(ld.address)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(replica.NewHandler(source, ld.exec))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- transport.Serve(ctx, l, mux, transport.ServeConfig{}) }()
	ld.stop = sync.OnceFunc(func() {
		cancel()
		source.Close(nil)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(ld.stop)
	return ld
}

func (ld *leader) exec(_ context.Context, _ string, cmd *pb.Command, respond func(*pb.Reply)) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	ld.next++
	batch := &wire.Batch{Epoch: 1, Revision: ld.next}
	switch {
	case cmd.GetSubmitJob() != nil:
		spec := wire.JobSpecFromProto(cmd.GetSubmitJob().GetSpec())
		batch.Mutations = append(batch.Mutations, putSpec(spec), putStatus(plimsoll.JobStatus{
			ID: spec.ID, Owner: spec.Owner, State: plimsoll.JobAccepted, Revision: ld.next,
		}))
	case cmd.GetRegisterNode() != nil:
		node := wire.NodeFromProto(cmd.GetRegisterNode().GetNode())
		node.Ready = true
		batch.Mutations = append(batch.Mutations, putNode(node))
		ld.source.Publish(batch)
		respond(&pb.Reply{Revision: ld.next, Registration: ld.next})
		return
	case cmd.GetKillJob() != nil:
		batch.Mutations = append(batch.Mutations, putStatus(plimsoll.JobStatus{
			ID: cmd.GetKillJob().GetId(), State: plimsoll.JobFailed, Killed: true, Revision: ld.next,
		}))
	}
	ld.source.Publish(batch)
	respond(&pb.Reply{Revision: ld.next})
}

// follow runs a follower of a leader until the test ends, and returns it once it is live.
func follow(t testing.TB, ld *leader, id string) *replica.Follower {
	t.Helper()
	follower, err := replica.NewFollower(replica.FollowerConfig{Gateway: id, Leader: ld.address})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- follower.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := follower.Ready(context.Background()); err != nil {
		t.Fatal(err)
	}
	return follower
}

// "Any gateway answers any call with full consistency; writing through one and reading through
// another is fine."
func TestWhatIsWrittenThroughOneGatewayIsReadThroughTheOther(t *testing.T) {
	ld := startLeader(t)
	one := serve(t, Config{ID: "one"}, follow(t, ld, "one"))
	other := serve(t, Config{ID: "other"}, follow(t, ld, "other"))
	for i := range 200 {
		id := fmt.Sprintf("job%d", i)
		spec := specNamed(id)
		submitted := must(t, one.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)})
		if submitted.GetJob().GetStatus().GetState() != pb.JobState_JOB_STATE_ACCEPTED {
			t.Fatalf("the answer to a submit is %v", submitted)
		}
		if got := must(t, other.jobs.GetJob, &pb.GetJobRequest{Id: id}); got.GetJob().GetSpec().GetOwner() != "alice" {
			t.Fatalf("the other gateway reads %v", got)
		}
		one, other = other, one
	}
}

func TestAWatchAtOneGatewaySeesWhatIsDoneAtTheOther(t *testing.T) {
	ld := startLeader(t)
	one := serve(t, Config{ID: "one"}, follow(t, ld, "one"))
	other := serve(t, Config{ID: "other"}, follow(t, ld, "other"))
	spec := specNamed("a")
	must(t, one.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)})
	stream := open(t, other.jobs.WatchJob, &pb.WatchJobRequest{Id: "a"})
	receive(t, stream)
	must(t, one.jobs.KillJob, &pb.KillJobRequest{Id: "a"})
	if got := receive(t, stream).GetStatus(); !got.GetKilled() {
		t.Errorf("it sees %v", got)
	}
	if err := ending(t, stream); err != nil {
		t.Errorf("it ends with %v", err)
	}
}

// A gateway has everything in memory, and answers nothing once the leader has gone.
func TestAfterTheLeaderHasGoneNothingIsAnswered(t *testing.T) {
	ld := startLeader(t)
	s := serve(t, Config{}, follow(t, ld, "g1"))
	spec := specNamed("a")
	must(t, s.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)})
	ld.stop()
	if _, err := call(s.jobs.GetJob, &pb.GetJobRequest{Id: "a"}); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a read: %v", err)
	}
	if _, err := call(s.jobs.KillJob, &pb.KillJobRequest{Id: "a"}); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a write: %v", err)
	}
	if status, body := s.do(t, http.MethodGet, "/healthz", "", nil); status != http.StatusServiceUnavailable {
		t.Errorf("health: %d %s", status, body)
	}
	if status, body := s.do(
		t, http.MethodGet, "/ws/v1/events/batch", "", nil,
	); status != http.StatusServiceUnavailable {
		t.Errorf("YuniKorn's batch: %d %s", status, body)
	}
}

// The barrier's price: the same read, strict over the gateway's RPC, strict without the RPC, and
// not strict at all.
func BenchmarkGetJob(b *testing.B) {
	ld := startLeader(b)
	follower := follow(b, ld, "g1")
	s := serve(b, Config{}, follower)
	spec := specNamed("a")
	must(b, s.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)})
	b.Run("strict", func(b *testing.B) {
		for b.Loop() {
			must(b, s.jobs.GetJob, &pb.GetJobRequest{Id: "a"})
		}
	})
	b.Run("strict/parallel=64", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				must(b, s.jobs.GetJob, &pb.GetJobRequest{Id: "a"})
			}
		})
	})
	loose := serve(b, Config{}, latestOnly{follower})
	b.Run("latest", func(b *testing.B) {
		for b.Loop() {
			must(b, loose.jobs.GetJob, &pb.GetJobRequest{Id: "a"})
		}
	})
	b.Run("barrier", func(b *testing.B) {
		for b.Loop() {
			if _, err := follower.Barrier(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// latestOnly answers reads from the newest snapshot at hand. A gateway must never do so; the
// benchmark compares it with strict reads to show their cost.
type latestOnly struct{ *replica.Follower }

func (l latestOnly) Barrier(context.Context) (*replica.Snapshot, error) { return l.Latest(), nil }
