package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

var nodeNames = []string{"n1", "n2"}

// attempt names an attempt among all of a history.
type attempt struct {
	uid, task string
	number    int32
}

// fleet holds what the agents of a history have started.
type fleet struct {
	mu      sync.Mutex
	startAt map[attempt]string // node that has started it
}

// agent is the agent of a node, without processes. It keeps to the rules of a real one: what it has
// started it never forgets, and it starts nothing twice.
type agent struct {
	*process
	cluster  *cluster
	fleet    *fleet
	dice     *dice
	gateways []plimsollv1connect.AgentServiceClient
	sequence uint64

	mu   sync.Mutex
	runs []*pb.TaskReport // reports of attempts that are not acknowledged yet
}

// startAgents starts the agents. They end with the roles of the cluster.
func (c *cluster) startAgents(seed uint64) *fleet {
	f := &fleet{startAt: map[attempt]string{}}
	for i, name := range nodeNames {
		a := &agent{process: newProcess(name), cluster: c, fleet: f, dice: newDice(seed, 300+uint64(i))}
		for _, gateway := range gatewayNames {
			caller, base, err := transport.CallClientOver(addressOf(gateway), c.net.dialer(a.process))
			if err != nil {
				c.t.Fatal(err)
			}
			c.atEnd(caller.CloseIdleConnections)
			a.gateways = append(a.gateways, plimsollv1connect.NewAgentServiceClient(caller, base))
		}
		r := &role{process: a.process, cluster: c}
		c.agents = append(c.agents, r)
		c.run(r, a.run)
	}
	return f
}

// run registers the node at one gateway after the other, whenever the one before fails.
func (a *agent) run(ctx context.Context) error {
	for at := 0; ctx.Err() == nil; at++ {
		a.session(ctx, a.gateways[at%len(a.gateways)])
		pause := a.dice.between(50*time.Millisecond, 500*time.Millisecond)
		if a.dice.intN(8) == 0 {
			pause = 15 * time.Second // it counts as silent
		}
		sleep(ctx, pause)
	}
	return nil
}

// session keeps the node registered until a call fails.
func (a *agent) session(ctx context.Context, at plimsollv1connect.AgentServiceClient) {
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	node := plimsoll.Node{
		ID: a.name, Incarnation: 1,
		Capacity: plimsoll.Resources{plimsoll.CPU: 1000, plimsoll.Memory: 1 << 30},
	}
	call, end := context.WithTimeout(ctx, 3*time.Second)
	defer end()
	known, err := at.RegisterNode(call, connect.NewRequest(&pb.RegisterNodeRequest{Node: wire.NodeToProto(&node)}))
	if err != nil {
		return
	}
	stream, err := at.WatchAssignments(
		ctx, connect.NewRequest(&pb.WatchAssignmentsRequest{Node: a.name, Incarnation: 1}),
	)
	if err != nil {
		return
	}
	parts.Go(func() {
		defer cancel()
		a.beat(ctx, at, time.Duration(known.Msg.GetHeartbeatIntervalNanos()))
	})
	parts.Go(func() {
		defer cancel()
		a.report(ctx, at)
	})
	for stream.Receive() {
		for _, assigned := range stream.Msg().GetChanged() {
			a.start(assigned)
		}
	}
	_ = stream.Close() // nothing was written
}

func (a *agent) beat(ctx context.Context, at plimsollv1connect.AgentServiceClient, every time.Duration) {
	for ctx.Err() == nil {
		call, end := context.WithTimeout(ctx, 3*time.Second)
		known, err := at.Heartbeat(call, connect.NewRequest(&pb.HeartbeatRequest{Node: a.name, Incarnation: 1}))
		end()
		if err != nil || !known.Msg.GetRegistered() {
			return
		}
		sleep(ctx, every)
	}
}

// start starts an attempt, unless this node has started it before.
func (a *agent) start(assigned *pb.Assignment) {
	t := wire.TaskFromProto(assigned.GetTask())
	if t.State != plimsoll.TaskBound {
		return
	}
	which := attempt{assigned.GetUid(), t.ID, t.Attempt}
	a.fleet.mu.Lock()
	before := a.fleet.startAt[which]
	if before == "" {
		a.fleet.startAt[which] = a.name
	}
	a.fleet.mu.Unlock()
	if before == a.name {
		return // sent again on another stream
	}
	if before != "" {
		a.cluster.violated("attempt %+v was started by %s, and then by %s", which, before, a.name)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runs = append(a.runs, &pb.TaskReport{
		Task: which.task, Attempt: which.number, Uid: which.uid, State: pb.TaskState_TASK_STATE_RUNNING,
	})
}

// report tells the states of attempts, each until it is acknowledged: first that they run, later
// that they have ended.
func (a *agent) report(ctx context.Context, at plimsollv1connect.AgentServiceClient) {
	for ; ctx.Err() == nil; sleep(ctx, a.dice.between(10*time.Millisecond, 200*time.Millisecond)) {
		a.mu.Lock()
		list := slices.Clone(a.runs)
		a.mu.Unlock()
		if len(list) == 0 {
			continue
		}
		a.sequence++
		call, end := context.WithTimeout(ctx, 3*time.Second)
		_, err := at.ReportTasks(call, connect.NewRequest(&pb.ReportTasksRequest{
			Node: a.name, Incarnation: 1, Sequence: a.sequence, Reports: list,
		}))
		end()
		if err != nil {
			return
		}
		a.mu.Lock()
		a.runs = append(a.reported(list), a.runs[len(list):]...)
		a.mu.Unlock()
	}
}

// reported returns what is to be reported next of attempts whose reports were acknowledged.
func (a *agent) reported(list []*pb.TaskReport) (next []*pb.TaskReport) {
	for _, r := range list {
		if r.GetState() == pb.TaskState_TASK_STATE_RUNNING {
			next = append(next, &pb.TaskReport{
				Task: r.GetTask(), Attempt: r.GetAttempt(), Uid: r.GetUid(),
				State: pb.TaskState_TASK_STATE_FINISHED, Result: pb.TaskResult_TASK_RESULT_SUCCEEDED,
			})
		}
	}
	return next
}

// started returns how many attempts were started.
func (f *fleet) started() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.startAt)
}
