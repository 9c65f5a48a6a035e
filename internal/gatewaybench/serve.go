package gatewaybench

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The roles of Serve.
const (
	roleLeader  = "leader"
	roleGateway = "gateway"
	roleBare    = "bare"
)

const (
	records     = 100
	recordBytes = 2600 // of one record, roughly
	queue       = "root.batch"
)

// Server is the process of one server.
type Server struct {
	Role   string // leader, gateway or bare
	Leader string // address that a gateway follows
}

// announced is the beginning of the line that tells a server's address.
const announced = "serving "

// Serve serves until in ends or ctx does. It writes its address to out, in a line of its own.
func (s Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // it ends with in, which the parent closes, or with the process
		_, _ = io.Copy(io.Discard, in) // only its end matters
		cancel()
	}()
	announce := func(address string) {
		_, _ = fmt.Fprintln(out, announced+address) // a parent that is gone has closed in
	}
	switch s.Role {
	case roleLeader:
		return serveLeader(ctx, announce)
	case roleGateway:
		return serveGateway(ctx, s.Leader, announce)
	case roleBare:
		return serveBare(ctx, announce)
	}
	return plimsoll.Invalid("role", "%q is no role; give leader, gateway or bare", s.Role)
}

// statuses returns the records: the statuses of jobs of many groups.
func statuses() []plimsoll.JobStatus {
	all := make([]plimsoll.JobStatus, records)
	for i := range all {
		job := &all[i]
		*job = plimsoll.JobStatus{
			ID: fmt.Sprintf("job%03d", i), Owner: "alice", Queue: queue, State: plimsoll.JobRunning,
			Revision: 1,
		}
		for len(wire.AppendJobStatus(nil, job)) < recordBytes {
			job.Groups = append(job.Groups, plimsoll.GroupStatus{
				Name: fmt.Sprintf("group%d", len(job.Groups)), Count: 3,
				Counts: plimsoll.TaskCounts{Pending: 1, Running: 2},
				Wait:   plimsoll.WaitCause{Code: plimsoll.WaitQueueMax, Queue: queue, Resource: "memory"},
			})
		}
	}
	return all
}

// serveLeader serves the records to gateways, and to users as encodingLeader does.
func serveLeader(ctx context.Context, announce func(string)) error {
	source, err := replica.NewSource(replica.SourceConfig{Epoch: 1, Leader: "gatewaybench"}, nil)
	if err != nil {
		return fmt.Errorf("start a leader: %w", err)
	}
	defer source.Close(nil)
	leader := &encodingLeader{}
	batch := &wire.Batch{Epoch: 1, Revision: 1}
	for _, job := range statuses() {
		data := wire.AppendJobStatus(nil, &job)
		batch.Mutations = append(batch.Mutations, wire.Mutation{Kind: wire.KindJobStatus, Key: job.ID, Value: data})
		status, err := decoded(data)
		if err != nil {
			return err
		}
		leader.jobs = append(leader.jobs, status)
	}
	source.Publish(batch)
	mux := http.NewServeMux()
	mux.Handle(replica.NewHandler(source, noCommands))
	mux.Handle(plimsollv1connect.NewJobServiceHandler(
		leader, wire.Bounded(wire.RequestBounds(8<<20)), connect.WithCompressMinBytes(1400),
	))
	return serve(ctx, mux, announce)
}

func noCommands(_ context.Context, _ string, cmd *pb.Command, respond func(*pb.Reply)) {
	respond(&pb.Reply{Id: cmd.GetId()})
}

// encodingLeader answers lists of jobs from decoded records, which are encoded at each request.
type encodingLeader struct {
	plimsollv1connect.UnimplementedJobServiceHandler

	jobs []*pb.JobStatus
}

// ListJobs answers with all jobs.
func (l *encodingLeader) ListJobs(
	context.Context, *connect.Request[pb.ListJobsRequest],
) (*connect.Response[pb.ListJobsResponse], error) {
	return connect.NewResponse(&pb.ListJobsResponse{Jobs: l.jobs, Revision: 1, Epoch: 1}), nil
}

// serveGateway serves users as the role does.
func serveGateway(ctx context.Context, leader string, announce func(string)) error {
	follower, err := replica.NewFollower(replica.FollowerConfig{Gateway: "gatewaybench", Leader: leader})
	if err != nil {
		return fmt.Errorf("follow the leader: %w", err)
	}
	g, err := gateway.New(gateway.Config{
		ID: "gatewaybench", Listen: "127.0.0.1:0", Access: transport.AnyCaller(),
		Events: gateway.Events{Serving: announce},
	}, follower)
	if err != nil {
		return fmt.Errorf("make a gateway: %w", err)
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return follower.Run(running) })
	group.Go(func() error {
		if err := follower.Ready(running); err != nil {
			return err
		}
		return g.Run(running)
	})
	if err := group.Wait(); ctx.Err() == nil {
		return err //nolint:wrapcheck // the roles name themselves
	}
	return nil // it was stopped, maybe before it was ready
}

// serveBare serves the bytes of the answer with nothing but net/http. They are encoded as a gateway
// has them: the pages of memory that nobody has written to are all one, which stays in the cache.
func serveBare(ctx context.Context, announce func(string)) error {
	answer := &pb.ListJobsResponse{Revision: 1, Epoch: 1}
	for _, job := range statuses() {
		status, err := decoded(wire.AppendJobStatus(nil, &job))
		if err != nil {
			return err
		}
		answer.Jobs = append(answer.Jobs, status)
	}
	body, err := proto.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	l, err := transport.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	announce(l.Addr().String())
	return transport.ServeBare(ctx, l, body)
}

// decoded returns the message of a record.
func decoded(record []byte) (*pb.JobStatus, error) {
	status := &pb.JobStatus{}
	if err := proto.Unmarshal(record, status); err != nil {
		return nil, fmt.Errorf("decode a record: %w", err)
	}
	return status, nil
}

func serve(ctx context.Context, handler http.Handler, announce func(string)) error {
	l, err := transport.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	return transport.Serve(ctx, l, handler, transport.ServeConfig{
		Access: transport.AnyCaller(), Started: func() { announce(l.Addr().String()) },
	})
}
