package agent

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/nodekey"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// gateway is one gateway as the agent uses it. Errors are plimsoll.Errors; CodeStale means that
// another agent has taken over.
type gateway interface {
	// register registers the node and returns the interval of heartbeats; 0: unspecified.
	register(ctx context.Context, node *plimsoll.Node) (every time.Duration, err error)
	heartbeat(ctx context.Context, node string, incarnation uint64) (registered bool, err error)
	// watch calls each with all assignments, then with changes, until ctx ends or the connection is
	// lost.
	watch(ctx context.Context, node string, incarnation uint64, each func(*assignments)) error
	reporter
	close()
}

// reporter accepts a node's reports, and answers when they are durable.
type reporter interface {
	report(ctx context.Context, node string, incarnation, sequence uint64, reports []plimsoll.TaskReport) error
	reportNode(ctx context.Context, node string, incarnation, sequence uint64, report *plimsoll.NodeReport) error
	// leave reports that the agent stops, and answers when that is durable.
	leave(ctx context.Context, left *pb.LeaveNodeRequest) error
}

// assignments is one message of a watch.
type assignments struct {
	changed  []assignmentOf
	removed  []string
	complete bool // the last message of the first list, which has all assignments and policies

	policies     []plimsoll.Policy    // new and changed
	policiesGone []plimsoll.PolicyRef // removed, or no longer of this node
}

// connectGateway is a gateway over the network.
type connectGateway struct {
	http *http.Client
	rpc  plimsollv1connect.AgentServiceClient
	key  *nodekey.Key // of the node
}

func dialGateway(address string, key *nodekey.Key, tokens func(gateway string) *token.Source) (gateway, error) {
	client, base, err := transport.Client(address)
	if err != nil {
		return nil, err
	}
	if tokens != nil {
		transport.SendToken(client, tokens(address))
	}
	return &connectGateway{client, plimsollv1connect.NewAgentServiceClient(client, base, connect.WithGRPC()), key}, nil
}

// withSession makes a request that carries the session of the node's key.
func withSession[Q any](g *connectGateway, m *Q) *connect.Request[Q] {
	req := connect.NewRequest(m)
	req.Header().Set(nodekey.Header, g.key.Session())
	return req
}

func (g *connectGateway) close() { g.http.CloseIdleConnections() }

func (g *connectGateway) register(ctx context.Context, node *plimsoll.Node) (time.Duration, error) {
	res, err := g.rpc.RegisterNode(
		ctx,
		connect.NewRequest(
			&pb.RegisterNodeRequest{Node: wire.NodeToProto(node), Signature: g.key.SignRegistration(node)},
		),
	)
	if err != nil {
		return 0, wire.FromConnectError(err)
	}
	return time.Duration(res.Msg.HeartbeatIntervalNanos), nil
}

func (g *connectGateway) heartbeat(ctx context.Context, node string, incarnation uint64) (bool, error) {
	res, err := g.rpc.Heartbeat(ctx, withSession(g, &pb.HeartbeatRequest{Node: node, Incarnation: incarnation}))
	if err != nil {
		return false, wire.FromConnectError(err)
	}
	return res.Msg.Registered, nil
}

func (g *connectGateway) watch(
	ctx context.Context, node string, incarnation uint64, each func(*assignments),
) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := g.rpc.WatchAssignments(
		ctx, withSession(g, &pb.WatchAssignmentsRequest{Node: node, Incarnation: incarnation}),
	)
	if err != nil {
		return wire.FromConnectError(err)
	}
	for stream.Receive() {
		each(assignmentsFromProto(stream.Msg()))
	}
	cancel() // later messages are not needed
	err, closed := stream.Err(), stream.Close()
	if err == nil {
		err = closed
	}
	if err == nil || ctx.Err() != nil && plimsoll.CodeOf(wire.FromConnectError(err)) == plimsoll.CodeCanceled {
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "the gateway ended the list of assignments")
	}
	return wire.FromConnectError(err)
}

func assignmentsFromProto(m *pb.WatchAssignmentsResponse) *assignments {
	a := &assignments{removed: m.GetRemoved(), complete: m.GetSnapshotEnd()}
	for _, c := range m.GetChanged() {
		t := wire.TaskFromProto(c.GetTask())
		a.changed = append(a.changed, assignmentOf{
			task: t.ID, node: t.Node, assignment: assignment{
				want: want{t.Attempt, t.State, t.Result, t.Message}, job: t.Job, uid: wire.UIDFromText(c.GetUid()),
				spec:  specOf(&t, c.GetSpec()),
				owner: c.GetOwner(), queue: c.GetQueue(), labels: c.GetLabels(),
			},
		})
	}
	for _, p := range m.GetChangedPolicies() {
		a.policies = append(a.policies, wire.PolicyFromProto(p))
	}
	for _, r := range m.GetRemovedPolicies() {
		a.policiesGone = append(a.policiesGone, wire.PolicyRefFromProto(r))
	}
	return a
}

// specOf returns the specification of a task, with the number of its piece of work in the
// environment. The supervisor, which may be of an older version, sets the other variables.
func specOf(t *plimsoll.Task, m *pb.GroupSpec) plimsoll.GroupSpec {
	spec := wire.GroupSpecFromProto(m)
	piece := spec.Piece(t.Index)
	if len(spec.Indexes) == 1 { // an assignment has that of its task alone
		piece = spec.Indexes[0]
	}
	if spec.Env == nil {
		spec.Env = map[string]string{}
	}
	spec.Env["PLIMSOLL_TASK_INDEX"] = strconv.Itoa(int(piece))
	return spec
}

func (g *connectGateway) report(
	ctx context.Context, node string, incarnation, sequence uint64, reports []plimsoll.TaskReport,
) error {
	req := &pb.ReportTasksRequest{Node: node, Incarnation: incarnation, Sequence: sequence}
	for i := range reports {
		req.Reports = append(req.Reports, wire.TaskReportToProto(&reports[i]))
	}
	if _, err := g.rpc.ReportTasks(ctx, withSession(g, req)); err != nil {
		return wire.FromConnectError(err)
	}
	return nil
}

func (g *connectGateway) reportNode(
	ctx context.Context, node string, incarnation, sequence uint64, report *plimsoll.NodeReport,
) error {
	req := &pb.ReportNodeRequest{
		Node: node, Incarnation: incarnation, Sequence: sequence, Report: wire.NodeReportToProto(report),
	}
	_, err := g.rpc.ReportNode(ctx, withSession(g, req))
	return wire.FromConnectError(err)
}

func (g *connectGateway) leave(ctx context.Context, left *pb.LeaveNodeRequest) error {
	_, err := g.rpc.LeaveNode(ctx, withSession(g, left))
	return wire.FromConnectError(err)
}
