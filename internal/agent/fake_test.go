package agent

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/nodekey"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// cluster stands for the coordinator and its gateways: it assigns tasks to one node and accepts
// reports.
type cluster struct {
	*watched

	tasks       map[string]*pb.Assignment
	version     int
	node        plimsoll.Node
	registered  bool
	registers   int
	beats       int
	incarnation uint64 // an older one is refused
	watches     int
	cut         int   // raised to end all streams
	refuse      error // of all calls
	noReports   error // of ReportTasks
	requests    []*pb.ReportTasksRequest
	reports     []plimsoll.TaskReport
	every       time.Duration
	policies    map[plimsoll.PolicyRef]*pb.Policy
	noNews      error // of ReportNode
	lostAnswers int   // so many reports of the node are accepted without an answer
	nodeReports []*pb.ReportNodeRequest
	left        []*pb.LeaveNodeRequest
	signature   []byte            // of the last registration
	sessions    map[string]string // session in the last call of each kind
}

func newCluster() *cluster {
	return &cluster{
		watched: newWatched(), tasks: map[string]*pb.Assignment{}, every: time.Second,
		policies: map[plimsoll.PolicyRef]*pb.Policy{}, sessions: map[string]string{},
	}
}

// change calls do under the lock and wakes every waiter.
func (c *cluster) change(do func()) {
	c.watched.change(func() {
		do()
		c.version++
	})
}

// assign binds an attempt of a task to node n1, or changes the state of one.
func (c *cluster) assign(task string, attempt int32, state plimsoll.TaskState, command ...string) {
	if len(command) == 0 {
		command = []string{"true"}
	}
	job, group, index, _ := wire.SplitTaskID(task)
	t := plimsoll.Task{ID: task, Job: job, Group: group, Index: index, Attempt: attempt, State: state, Node: "n1"}
	spec := plimsoll.GroupSpec{Name: group, Count: 1, Command: command, KillGrace: 3 * time.Second}
	c.change(func() {
		c.tasks[task] = &pb.Assignment{
			Task: wire.TaskToProto(&t), Spec: wire.GroupSpecToProto(&spec), Owner: "ann", Queue: "root.batch",
			Labels: map[string]string{"app": job},
		}
	})
}

func (c *cluster) unassign(task string) { c.change(func() { delete(c.tasks, task) }) }

// disconnect ends every stream; with an error, calls are refused too.
func (c *cluster) disconnect(refuse error) { c.change(func() { c.cut++; c.refuse = refuse }) }

func (c *cluster) check(incarnation uint64) error {
	if incarnation < c.incarnation {
		return plimsoll.Errorf(plimsoll.CodeStale, "incarnation %d is older than %d", incarnation, c.incarnation)
	}
	return c.refuse
}

// has returns the number of reports with this state.
func (c *cluster) has(task string, attempt int32, state plimsoll.TaskState) int {
	n := 0
	for _, r := range c.reports {
		if r.Task == task && r.Attempt == attempt && r.State == state {
			n++
		}
	}
	return n
}

func (c *cluster) end(task string, attempt int32) (plimsoll.TaskReport, bool) {
	for _, r := range c.reports {
		if r.Task == task && r.Attempt == attempt && r.State == plimsoll.TaskFinished {
			return r, true
		}
	}
	return plimsoll.TaskReport{}, false
}

func (c *cluster) register(_ context.Context, node *plimsoll.Node) (every time.Duration, err error) {
	c.change(func() {
		if err = c.check(node.Incarnation); err == nil {
			c.node, c.registered, c.incarnation, every = *node, true, node.Incarnation, c.every
			c.registers++
		}
	})
	return every, err
}

func (c *cluster) heartbeat(_ context.Context, _ string, incarnation uint64) (registered bool, err error) {
	c.change(func() { err, registered = c.check(incarnation), c.registered; c.beats++ })
	return registered, err
}

func (c *cluster) report(
	ctx context.Context, node string, incarnation, sequence uint64, reports []plimsoll.TaskReport,
) error {
	req := &pb.ReportTasksRequest{Node: node, Incarnation: incarnation, Sequence: sequence}
	for i := range reports {
		req.Reports = append(req.Reports, wire.TaskReportToProto(&reports[i]))
	}
	return c.take(req)
}

func (c *cluster) take(req *pb.ReportTasksRequest) (err error) {
	c.change(func() {
		if err = cmp.Or(c.check(req.Incarnation), c.noReports); err != nil {
			return
		}
		c.requests = append(c.requests, req)
		for _, r := range req.Reports {
			if r.Message == "refuse" {
				err = plimsoll.Invalid("reports", "this one cannot be")
				return
			}
		}
		for _, r := range req.Reports {
			report := wire.TaskReportFromProto(r)
			c.reports = append(c.reports, report)
			a := c.tasks[report.Task]
			if a == nil || a.Task.Attempt != report.Attempt {
				continue
			}
			if report.State == plimsoll.TaskFinished {
				delete(c.tasks, report.Task)
			} else if a.Task.State < pb.TaskState(report.State) {
				a.Task.State = pb.TaskState(report.State)
			}
		}
	})
	return err
}

func (c *cluster) leave(_ context.Context, left *pb.LeaveNodeRequest) (err error) {
	c.change(func() {
		if err = c.check(left.Incarnation); err == nil {
			c.left = append(c.left, left)
		}
	})
	return err
}

func (c *cluster) reportNode(
	_ context.Context, node string, incarnation, sequence uint64, report *plimsoll.NodeReport,
) error {
	return c.hear(
		&pb.ReportNodeRequest{
			Node: node, Incarnation: incarnation, Sequence: sequence, Report: wire.NodeReportToProto(report),
		},
	)
}

// hear accepts a report of the node, unless it was accepted before.
func (c *cluster) hear(req *pb.ReportNodeRequest) (err error) {
	c.change(func() {
		report := wire.NodeReportFromProto(req.Report)
		if err = cmp.Or(c.check(req.Incarnation), c.noNews, report.Validate()); err != nil {
			return
		}
		if n := len(
			c.nodeReports,
		); n == 0 || c.nodeReports[n-1].Sequence < req.Sequence || c.nodeReports[n-1].Incarnation < req.Incarnation {
			c.nodeReports = append(c.nodeReports, req)
		}
		if c.lostAnswers > 0 {
			c.lostAnswers--
			err = plimsoll.Errorf(plimsoll.CodeUnavailable, "the connection broke")
		}
	})
	return err
}

// told returns the messages of all reported events, and the last condition.
func (c *cluster) told() (messages []string, closed bool) {
	for _, n := range c.nodeReports {
		for _, e := range n.Report.Events {
			messages = append(messages, e.Message)
		}
		closed = n.Report.SchedulingDisabled
	}
	return messages, closed
}

// policy sets a policy, or without content removes it.
func (c *cluster) policy(name string, action *plimsoll.Action) {
	ref := plimsoll.PolicyRef{Kind: plimsoll.PolicyAction, Name: name}
	c.change(func() {
		if action == nil {
			delete(c.policies, ref)
			return
		}
		action.Name = name
		c.policies[ref] = wire.PolicyToProto(&plimsoll.Policy{Action: action})
	})
}

// sendPolicies adds the policies that have changed since sent to a message.
func (c *cluster) sendPolicies(m *pb.WatchAssignmentsResponse, sent map[plimsoll.PolicyRef]*pb.Policy) {
	for ref, p := range c.policies {
		if sent[ref] != p {
			sent[ref] = p
			m.ChangedPolicies = append(m.ChangedPolicies, p)
		}
	}
	for ref := range sent {
		if c.policies[ref] == nil {
			delete(sent, ref)
			m.RemovedPolicies = append(m.RemovedPolicies, wire.PolicyRefToProto(ref))
		}
	}
}

// stream sends lists and changes to one watcher.
func (c *cluster) stream(ctx context.Context, incarnation uint64, send func(*pb.WatchAssignmentsResponse) error) error {
	sent := map[string]*pb.Assignment{}
	sentPolicies := map[plimsoll.PolicyRef]*pb.Policy{}
	var cut int
	c.change(func() { c.watches++; cut = c.cut })
	for first := true; ; first = false {
		c.mu.Lock()
		changed, err := c.changed, c.check(incarnation)
		m := &pb.WatchAssignmentsResponse{SnapshotEnd: first}
		for _, task := range sortedKeys(c.tasks) {
			if a := c.tasks[task]; sent[task] != a {
				m.Changed = append(m.Changed, &pb.Assignment{
					Task: wire.TaskToProto(taskOf(a)), Spec: a.Spec, Owner: a.Owner, Queue: a.Queue, Labels: a.Labels,
				})
				sent[task] = a
			}
		}
		for _, task := range sortedKeys(sent) {
			if c.tasks[task] == nil {
				m.Removed = append(m.Removed, task)
				delete(sent, task)
			}
		}
		c.sendPolicies(m, sentPolicies)
		if c.cut != cut {
			err = plimsoll.Errorf(plimsoll.CodeUnavailable, "the network is away")
		}
		c.mu.Unlock()
		if err != nil {
			return err
		}
		if first || len(m.Changed)+len(m.Removed)+len(m.ChangedPolicies)+len(m.RemovedPolicies) > 0 {
			if err := send(m); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func taskOf(a *pb.Assignment) *plimsoll.Task {
	t := wire.TaskFromProto(a.Task)
	return &t
}

// local is the cluster's gateway without a network.
type local struct{ *cluster }

func (l local) watch(ctx context.Context, _ string, incarnation uint64, each func(*assignments)) error {
	return l.stream(ctx, incarnation, func(m *pb.WatchAssignmentsResponse) error {
		each(assignmentsFromProto(m))
		return nil
	})
}

func (l local) close() {}

// served is the cluster's gateway on a network.
type served struct{ *cluster }

func (s served) RegisterNode(
	ctx context.Context, req *connect.Request[pb.RegisterNodeRequest],
) (*connect.Response[pb.RegisterNodeResponse], error) {
	node := wire.NodeFromProto(req.Msg.Node)
	s.look(func() { s.signature = req.Msg.Signature })
	every, err := s.register(ctx, &node)
	return connect.NewResponse(&pb.RegisterNodeResponse{HeartbeatIntervalNanos: int64(every)}), wire.ConnectError(err)
}

func (s served) note(call string, header http.Header) {
	s.look(func() { s.sessions[call] = header.Get(nodekey.Header) })
}

func (s served) Heartbeat(
	ctx context.Context, req *connect.Request[pb.HeartbeatRequest],
) (*connect.Response[pb.HeartbeatResponse], error) {
	s.note("Heartbeat", req.Header())
	known, err := s.heartbeat(ctx, req.Msg.Node, req.Msg.Incarnation)
	return connect.NewResponse(&pb.HeartbeatResponse{Registered: known}), wire.ConnectError(err)
}

func (s served) WatchAssignments(
	ctx context.Context, req *connect.Request[pb.WatchAssignmentsRequest],
	stream *connect.ServerStream[pb.WatchAssignmentsResponse],
) error {
	s.note("WatchAssignments", req.Header())
	return wire.ConnectError(s.stream(ctx, req.Msg.Incarnation, stream.Send))
}

func (s served) ReportTasks(
	_ context.Context, req *connect.Request[pb.ReportTasksRequest],
) (*connect.Response[pb.ReportTasksResponse], error) {
	s.note("ReportTasks", req.Header())
	return connect.NewResponse(&pb.ReportTasksResponse{}), wire.ConnectError(s.take(req.Msg))
}

func (s served) LeaveNode(
	ctx context.Context, req *connect.Request[pb.LeaveNodeRequest],
) (*connect.Response[pb.LeaveNodeResponse], error) {
	s.note("LeaveNode", req.Header())
	return connect.NewResponse(&pb.LeaveNodeResponse{}), wire.ConnectError(s.leave(ctx, req.Msg))
}

func (s served) ReportNode(
	_ context.Context, req *connect.Request[pb.ReportNodeRequest],
) (*connect.Response[pb.ReportNodeResponse], error) {
	return connect.NewResponse(&pb.ReportNodeResponse{}), wire.ConnectError(s.hear(req.Msg))
}

// qosFake is a QoS loop that does nothing by itself.
type qosFake struct {
	*watched

	cfg      nodeqos.Config
	deps     nodeqos.Deps
	policies [][]plimsoll.Policy // every set of SetPolicies
	resends  int
	watching int
	fails    error // of Run
}

func newQOSFake() *qosFake { return &qosFake{watched: newWatched()} }

func (q *qosFake) make(cfg nodeqos.Config, deps nodeqos.Deps) (qosLoop, error) {
	q.change(func() { q.cfg, q.deps = cfg, deps })
	return q, nil
}

// names returns the names of the last set of policies.
func (q *qosFake) names() []string {
	var names []string
	if n := len(q.policies); n > 0 {
		for _, p := range q.policies[n-1] {
			names = append(names, p.Name())
		}
	}
	return names
}

func (q *qosFake) Run(ctx context.Context) error {
	q.mu.Lock()
	fails := q.fails
	q.mu.Unlock()
	if fails == nil {
		<-ctx.Done()
	}
	return fails
}

func (q *qosFake) SetPolicies(p []plimsoll.Policy) {
	q.change(func() { q.policies = append(q.policies, p) })
}
func (q *qosFake) Took() time.Duration { return time.Millisecond }
func (q *qosFake) Resend()             { q.change(func() { q.resends++ }) }

func (q *qosFake) Status() *pb.NodeQOSStatus {
	return &pb.NodeQOSStatus{
		Node: q.cfg.Node, At: 5e9, SchedulingDisabled: true,
		Extended: &pb.Resources{Amounts: map[string]int64{plimsoll.ExtCPU: 1500}},
		Lines: []*pb.QOSLine{
			{Rule: "busy/cpu", Metric: "cpu_total_usage", Scale: 1000, Waterline: 2000, Usage: 2500, Triggered: true},
			{Rule: "busy/gauge", Metric: "gauge", Scale: 1, Waterline: 7, Missing: true},
		},
		Tasks: []*pb.QOSTask{{Task: "j.g.0", Rung: "throttle"}, {Task: "j.g.1", Rung: "throttle"}, {Task: "j.g.2"}},
	}
}

func (q *qosFake) Watch(ctx context.Context, interval time.Duration, each func(*pb.NodeQOSStatus) error) error {
	q.change(func() { q.watching++ })
	defer q.change(func() { q.watching-- })
	if err := each(&pb.NodeQOSStatus{Node: q.cfg.Node, At: int64(interval)}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// hanging is a gateway that does not answer LeaveNode.
type hanging struct{ local }

func (hanging) leave(ctx context.Context, _ *pb.LeaveNodeRequest) error {
	<-ctx.Done()
	return ctx.Err()
}
