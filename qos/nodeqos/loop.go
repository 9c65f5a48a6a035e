package nodeqos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/internal/sample"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Loop is the QoS loop of one node. New makes one, and Run runs it.
type Loop struct {
	cfg      Config
	deps     Deps
	registry *qos.Registry
	base     time.Time // the ledger's time is base plus the elapsed time, so that setting the clock changes no deadline

	policies struct {
		sync.Mutex
		compiled *qos.Policies
		pressure bool // some rule asks for pressure
	}
	gauges      *gauges
	resendAsked chan struct{} // Resend was called
	wake        chan struct{} // pressure asks for a sample at once
	background  *background
	sampled     broadcast // after each sample
	changed     broadcast // when policies are set
	state       loopState
}

// loopState is the state of the loop between samples.
type loopState struct {
	sync.Mutex // held during a sample and by Status

	sampler   *sample.Sampler // nil while Run is not under way
	sweep     sample.Sweep
	cores     int64 // nanocores of the machine, by the last reading
	memory    int64 // bytes of the machine, by the last reading
	load      int64 // load of the machine, by the last reading
	loadAt    int64 // time at which that reading was new
	closing   error
	v2        bool // the groups are of cgroup v2 alone
	maxGroups int  // largest number of open groups
	groups    map[qos.Key]*group
	evicting  map[qos.Key]bool // tasks that the loop has told to stop and that are still there
	recorded  []qos.Step       // limits of an earlier Run that must be set again

	number    uint64        // of the sample
	now       time.Time     // of the sample
	last      time.Time     // time of the previous sample
	took      time.Duration // duration of the last sample, with all immediate steps
	startedAt int64         // Unix nanoseconds; the time at which Run began
	first     bool          // the current sample is the first of this Run

	tasks    []Task
	policies *qos.Policies // of the last plan
	snapshot *qos.Snapshot // of the last sample; nil: there was none
	result   *qos.Result   // the last plan

	ledger   *qos.Ledger
	dirty    bool  // the ledger must be written
	savedAt  int64 // time at which it was written
	lending  lending
	occupied occupancy
	reporter reporter
}

// New checks the configuration. It starts nothing.
func New(cfg Config, deps Deps) (*Loop, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Tasks == nil || deps.Evict == nil {
		return nil, plimsoll.Invalid("deps", "is incomplete; Tasks and Evict are needed")
	}
	if deps.Report == nil {
		deps.Report = func(plimsoll.NodeReport) {}
	}
	deps.Events = deps.Events.withDefaults()
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if len(cfg.Metrics) > plimsoll.MaxMetrics {
		return nil, plimsoll.Invalid(
			"metrics", "has %d entries; a node can announce %d", len(cfg.Metrics), plimsoll.MaxMetrics,
		)
	}
	registry, err := NewRegistry(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	l := &Loop{
		cfg: cfg, deps: deps, registry: registry, base: deps.Now(), gauges: newGauges(),
		resendAsked: make(chan struct{}, 1), wake: make(chan struct{}, 1), background: newBackground(),
	}
	l.state.groups, l.state.evicting, l.state.ledger = map[qos.Key]*group{}, map[qos.Key]bool{}, qos.NewLedger()
	l.state.v2 = cfg.Subtree != nil && cfg.Subtree.Hierarchy().Version() == cgroup.V2
	l.state.lending.init(&cfg)
	l.state.reporter.init()
	l.SetPolicies(nil)
	return l, nil
}

// SetPolicies replaces all policies from the next sample on. Policies that do not concern the node
// are left out.
func (l *Loop) SetPolicies(policies []plimsoll.Policy) {
	all := slices.Clone(policies)
	if l.cfg.Extended.Enabled {
		all = append(all, qos.ExtendedPolicies()...)
	}
	compiled := qos.Compile(all, l.registry, l.cfg.Attributes, l.cfg.Options)
	pressure := false
	for i := range all {
		if n := all[i].NodeQOS; n != nil {
			pressure = pressure || slices.ContainsFunc(n.Rules, func(r plimsoll.Rule) bool {
				return r.Metric == qos.CPUPressure || r.Metric == qos.MemoryPressure
			})
		}
	}
	l.policies.Lock()
	l.policies.compiled, l.policies.pressure = compiled, pressure
	l.policies.Unlock()
	l.changed.send()
}

func (l *Loop) currentPolicies() (p *qos.Policies, pressure bool) {
	l.policies.Lock()
	defer l.policies.Unlock()
	return l.policies.compiled, l.policies.pressure
}

// Resend reports the condition and the offers once more, even if they have not changed: the
// coordinator may have forgotten them.
func (l *Loop) Resend() { signal(l.resendAsked) }

// signal wakes the receiver of a channel of capacity one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a signal is pending already
	}
}

// at converts a time to the ledger's: Unix nanoseconds of a clock that is never set.
func (l *Loop) at(now time.Time) int64 { return l.base.UnixNano() + int64(now.Sub(l.base)) }

// Run keeps the node at its lines until ctx ends. Then it thaws the tasks that it froze, since no
// other program would. Other changes stay: they are on record, and the next Run gives them back. A
// Loop runs once at a time.
func (l *Loop) Run(ctx context.Context) error {
	if err := l.begin(); err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	for i := range l.cfg.Metrics {
		if m := &l.cfg.Metrics[i]; m.Measure != nil {
			work.Go(func() error { return l.collect(ctx, m) })
		}
	}
	work.Go(func() error { return l.watchPressure(ctx, cgroup.CPU) })
	work.Go(func() error { return l.watchPressure(ctx, cgroup.Memory) })
	work.Go(func() error { return l.loop(ctx) })
	err := work.Wait()
	l.background.wait()
	l.collectFinished(ctx)
	return errors.Join(err, l.end())
}

func (l *Loop) begin() error {
	s := &l.state
	s.Lock()
	defer s.Unlock()
	if s.sampler != nil {
		return plimsoll.Errorf(plimsoll.CodeConflict, "the QoS loop runs already")
	}
	if err := l.makeDirectory(); err != nil {
		return err
	}
	sampler, err := sample.New(sample.Config{Proc: l.cfg.Proc})
	if err != nil {
		return fmt.Errorf("start the QoS loop: %w", err)
	}
	s.sampler, s.first, s.number = sampler, true, 0
	s.maxGroups = maxGroups(openFiles(), s.v2)
	s.startedAt, s.reporter.reported = l.deps.Now().UnixNano(), false
	clear(s.evicting)
	s.ledger = l.loadLedger()
	l.loadPredictors()
	return nil
}

// loop samples at every interval, and once more when there is pressure.
func (l *Loop) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := l.deps.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			l.sample(ctx)
			now := l.deps.Now()
			for next = next.Add(l.cfg.interval()); !next.After(now); { // missed samples are not made up for
				next = now.Add(l.cfg.interval())
			}
			timer.Reset(next.Sub(now))
		case <-l.wake:
			if l.soon() {
				l.sample(ctx)
			}
		case <-l.background.ended:
			l.collectFinished(ctx)
		case <-l.resendAsked:
			l.resend()
		}
	}
}

// soon reports whether pressure is a reason to sample now: some rule asks for it, and the last
// sample is not too recent.
func (l *Loop) soon() bool {
	_, pressure := l.currentPolicies()
	l.state.Lock()
	defer l.state.Unlock()
	return pressure && l.deps.Now().Sub(l.state.last) >= l.cfg.interval()/4
}

// sample measures, plans and acts once.
func (l *Loop) sample(ctx context.Context) {
	s := &l.state
	s.Lock()
	defer s.Unlock()
	defer l.sampled.send()
	var pressure bool
	s.policies, pressure = l.currentPolicies()
	s.number++
	s.now = l.deps.Now()
	defer func() { s.took = l.deps.Now().Sub(s.now) }()
	s.last = s.now
	at := l.at(s.now)
	s.tasks = l.deps.Tasks()
	l.gauges.setTasks(s.tasks)
	s.syncGroups(l, pressure)
	snap, err := s.measure(l, at)
	if err != nil {
		l.trouble(TroubleMeasure, err)
		return
	}
	s.reassert(ctx, l, at)
	s.first = false
	s.thawStopping(l)
	s.snapshot, s.result = snap, qos.Plan(snap, s.policies, s.ledger, at)
	if s.result.Waits == "" {
		s.ledger.Accept(s.result, snap)
		s.reporter.rules(l, s.result)
		s.act(ctx, l, at)
	}
	s.reporter.flush(l, s)
}

// Took returns the duration of the last sample, with all immediate steps.
func (l *Loop) Took() time.Duration {
	l.state.Lock()
	defer l.state.Unlock()
	return l.state.took
}

// thawStopping thaws tasks that are being stopped: a frozen task does not receive SIGTERM.
func (s *loopState) thawStopping(l *Loop) {
	for i := range s.tasks {
		if t := &s.tasks[i]; t.Stopping && s.ledger.FrozenUntil(t.Key()) != 0 {
			s.thawFirst(l, t.Key(), "it is being stopped, and must hear that")
		}
	}
}

// end thaws frozen tasks, writes the records, and closes all files.
func (l *Loop) end() error {
	s := &l.state
	s.Lock()
	defer s.Unlock()
	for _, key := range s.ledger.Held() {
		if s.ledger.FrozenUntil(key) != 0 {
			s.thawFirst(l, key, "the agent stops, and nobody else would thaw it")
		}
	}
	s.dirty = true
	l.saveLedger(l.at(l.deps.Now()))
	l.savePredictors()
	s.reporter.flush(l, s)
	errs := []error{s.closing}
	for key, g := range s.groups {
		if g.thawPending && g.control != nil {
			if err := g.thaw(); !errors.Is(err, cgroup.ErrGone) {
				errs = append(errs, err)
			}
		}
		errs = append(errs, g.close(s.sampler))
		delete(s.groups, key)
	}
	errs = append(errs, s.sampler.Close())
	s.sampler, s.closing = nil, nil
	if err := errors.Join(errs...); err != nil {
		l.trouble(TroubleCloseAll, err)
	}
	return nil
}

// broadcast wakes all waiters at once.
type broadcast struct {
	mu struct {
		sync.Mutex
		next chan struct{} // closed by the next send; nil: there is no waiter
	}
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.next != nil {
		close(b.mu.next)
		b.mu.next = nil
	}
}

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.next == nil {
		b.mu.next = make(chan struct{})
	}
	return b.mu.next
}
