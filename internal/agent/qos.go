package agent

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// QOSConfig says how the node is kept at its waterlines. Its zero value is usable.
type QOSConfig struct {
	Interval time.Duration          // between two samples; 0: nodeqos.DefaultInterval
	Metrics  []nodeqos.Metric       // user-defined ones, which policies of this node can use
	Extended nodeqos.ExtendedConfig // what is lent to best-effort tasks
}

func (c *QOSConfig) validate(dir string) error {
	if err := (&nodeqos.Config{Dir: dir, Interval: c.Interval, Extended: c.Extended}).Validate(); err != nil {
		return plimsoll.Within("qos", err)
	}
	if _, err := nodeqos.NewRegistry(c.Metrics); err != nil {
		return plimsoll.Within("qos.metrics", err)
	}
	return nil
}

// qosLoop is the node's QoS loop as the agent sees it.
type qosLoop interface {
	Run(ctx context.Context) error
	SetPolicies(policies []plimsoll.Policy)
	// Resend has the condition and the offers told once more.
	Resend()
	scraped
	// Watch calls each with what the loop sees, now and at every interval, until it fails or ctx
	// ends.
	Watch(ctx context.Context, interval time.Duration, each func(*pb.NodeQOSStatus) error) error
}

// scraped is what /metrics asks of the loop.
type scraped interface {
	Status() *pb.NodeQOSStatus
	// Took is how long the last sample took.
	Took() time.Duration
}

func newQOSLoop(cfg nodeqos.Config, deps nodeqos.Deps) (qosLoop, error) {
	return nodeqos.New(cfg, deps)
}

// makeQOS makes the loop of a node that is described, and gives it the policies of an earlier
// agent. The supervisor must have said what it holds.
func (a *Agent) makeQOS(
	node *plimsoll.Node, l *ledger, report func(plimsoll.NodeReport),
) (qosLoop, *policyBook, error) {
	caps := a.deps.Executor.Capabilities()
	tree, err := caps.OpenSubtree()
	if err != nil {
		a.deps.Events.Trouble(Trouble{Kind: TroubleGroups, Err: err})
	}
	if caps.Cgroups != "" && caps.Subtree == "" {
		a.deps.Events.Trouble(Trouble{Kind: TroubleOldSupervisor})
	}
	loop, err := a.newLoop(nodeqos.Config{
		Dir: a.cfg.Dir, Node: node.ID, Interval: a.cfg.QOS.Interval, Subtree: tree,
		Attributes:  maps.Clone(node.Attributes),
		Allocatable: allocatable(node), Extended: a.cfg.QOS.Extended, Metrics: a.cfg.QOS.Metrics,
	}, nodeqos.Deps{
		Tasks: l.residents,
		Evict: func(ctx context.Context, task string, attempt int32, grace time.Duration, reason string) error {
			return a.evict(ctx, l, task, attempt, grace, reason)
		},
		Report: report,
		Events: a.deps.Events.QOS,
	})
	if err != nil {
		return nil, nil, err
	}
	policies := newPolicyBook(filepath.Join(a.cfg.Dir, policyFile), loop.SetPolicies, a.deps.Events.Trouble)
	policies.open()
	return loop, policies, nil
}

// allocatable is what tasks can be promised of a node: its capacity without what is kept back.
func allocatable(node *plimsoll.Node) plimsoll.Resources {
	r := maps.Clone(node.Capacity)
	for name, part := range node.Facts.Reserve {
		r[name] -= int64(float64(r[name]) * part)
	}
	return r
}

// maxQOSWatchers is how many may watch the loop at a time: each costs a copy of what it sees, every
// second.
const maxQOSWatchers = 16

// qosHandler lets people watch the loop.
type qosHandler struct {
	node     string
	loop     atomic.Pointer[qosLoop] // nil: it does not run yet
	watchers atomic.Int32
}

// WatchQOS sends what the loop sees and would do, now and after each interval.
func (h *qosHandler) WatchQOS(
	ctx context.Context, req *connect.Request[pb.WatchQOSRequest], stream *connect.ServerStream[pb.WatchQOSResponse],
) error {
	m := req.Msg
	if m.GetNode() != h.node {
		return wire.ConnectError(
			plimsoll.Errorf(plimsoll.CodeNotFound, "this is the agent of node %q, not of %q", h.node, m.GetNode()),
		)
	}
	if m.GetIntervalNanos() < 0 {
		return wire.ConnectError(
			plimsoll.Invalid("interval", "is negative; give a duration such as 1s, or 0 for every sample"),
		)
	}
	defer h.watchers.Add(-1)
	if h.watchers.Add(1) > maxQOSWatchers {
		return wire.ConnectError(
			plimsoll.Errorf(
				plimsoll.CodeExhausted, "node %q is watched by %d already; end one of them, or try again later", h.node,
				maxQOSWatchers,
			),
		)
	}
	loop := h.loop.Load()
	if loop == nil {
		return wire.ConnectError(
			plimsoll.Errorf(
				plimsoll.CodeUnavailable, "node %q has no connection to its supervisor yet; try again", h.node,
			),
		)
	}
	err := (*loop).Watch(ctx, time.Duration(m.GetIntervalNanos()), func(status *pb.NodeQOSStatus) error {
		return stream.Send(&pb.WatchQOSResponse{Status: status})
	})
	var sent *connect.Error
	if errors.As(err, &sent) {
		return err // the stream's own
	}
	return wire.ConnectError(err)
}
