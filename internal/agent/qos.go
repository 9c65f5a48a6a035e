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

// QOSConfig configures the node's QoS loop. Its zero value is usable.
type QOSConfig struct {
	Interval time.Duration          // time between samples; 0: nodeqos.DefaultInterval
	Metrics  []nodeqos.Metric       // user-defined metrics for policies of this node
	Extended nodeqos.ExtendedConfig // resources lent to best-effort tasks
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

// qosLoop is the node's QoS loop as the agent uses it.
type qosLoop interface {
	Run(ctx context.Context) error
	SetPolicies(policies []plimsoll.Policy)
	// Resend reports the condition and the offers once more.
	Resend()
	scraped
	// Watch calls each with the loop's status, now and at every interval, until each fails or ctx
	// ends.
	Watch(ctx context.Context, interval time.Duration, each func(*pb.NodeQOSStatus) error) error
}

// scraped are the values of the loop on /metrics.
type scraped interface {
	Status() *pb.NodeQOSStatus
	// Took returns the duration of the last sample.
	Took() time.Duration
}

func newQOSLoop(cfg nodeqos.Config, deps nodeqos.Deps) (qosLoop, error) {
	return nodeqos.New(cfg, deps)
}

// makeQOS makes the loop of a described node, and gives it the policies of an earlier agent. The
// supervisor's first list must be complete.
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
		Tasks: l.liveTasks,
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

// allocatable returns the resources for tasks: the node's capacity without the reserve.
func allocatable(node *plimsoll.Node) plimsoll.Resources {
	r := maps.Clone(node.Capacity)
	for name, part := range node.Facts.Reserve {
		r[name] -= int64(float64(r[name]) * part)
	}
	return r
}

// maxQOSWatchers bounds simultaneous watchers: each costs a copy of the loop's status every second.
const maxQOSWatchers = 16

// qosHandler serves the loop's status to people.
type qosHandler struct {
	node     string
	loop     atomic.Pointer[qosLoop] // nil: it does not run yet
	watchers atomic.Int32
}

// WatchQOS sends the loop's status and plan, now and after each interval.
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
		return err // an error of the stream
	}
	return wire.ConnectError(err)
}
