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

// Loop is the QoS loop of one node. Make it with New; Run does the work.
type Loop struct {
	cfg      Config
	deps     Deps
	registry *qos.Registry
	base     time.Time // the ledger's time is this plus what has passed, so that setting the clock changes no deadline

	policies struct {
		sync.Mutex
		compiled *qos.Policies
		pressure bool // a rule asks for pressure
	}
	gauges  *gauges
	again   chan struct{} // Resend was called
	wake    chan struct{} // there is pressure: sample at once
	errands *errands
	sampled broadcast // after each sample
	changed broadcast // when policies are set
	state   state
}

// state is what one sample hands to the next.
type state struct {
	sync.Mutex // held during a sample, and by Status

	sampler  *sample.Sampler // nil while Run is not under way
	sweep    sample.Sweep
	cores    int64 // nanocores of the machine, as they were read last
	memory   int64 // bytes of the machine, as they were read last
	load     int64 // of the machine, as it was read last
	loadAt   int64 // when that was new
	closing  error
	v2       bool // groups are v2's alone
	most     int  // how many groups may be open
	groups   map[qos.Key]*group
	evicting map[qos.Key]bool // what we told to stop and is still there
	recorded []qos.Step       // limits of an earlier Run that are still to be set again

	number    uint64        // of the sample
	now       time.Time     // of the sample
	last      time.Time     // of the sample before
	took      time.Duration // of the last sample, with all that was done about it at once
	startedAt int64         // Unix nanoseconds at which Run began
	first     bool          // this is the first sample of this Run

	tasks    []Task
	policies *qos.Policies // of the last plan
	snapshot *qos.Snapshot // the last one; nil: there was none
	result   *qos.Result   // the last plan

	ledger  *qos.Ledger
	dirty   bool  // the ledger is to be written
	savedAt int64 // when it was written
	lending lending
	voice   voice
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
		again: make(chan struct{}, 1), wake: make(chan struct{}, 1), errands: newErrands(),
	}
	l.state.groups, l.state.evicting, l.state.ledger = map[qos.Key]*group{}, map[qos.Key]bool{}, qos.NewLedger()
	l.state.v2 = cfg.Subtree != nil && cfg.Subtree.Hierarchy().Version() == cgroup.V2
	l.state.lending.init(&cfg)
	l.state.voice.init()
	l.SetPolicies(nil)
	return l, nil
}

// SetPolicies replaces all policies; the next sample goes by them. Those that do not concern the
// node are left out.
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

func (l *Loop) current() (p *qos.Policies, pressure bool) {
	l.policies.Lock()
	defer l.policies.Unlock()
	return l.policies.compiled, l.policies.pressure
}

// Resend has the condition and the offers reported once more, though they have not changed: the
// coordinator may have forgotten them.
func (l *Loop) Resend() { poke(l.again) }

// poke wakes whoever receives from a channel of capacity one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is woken already
	}
}

// at converts a time to the ledger's: Unix nanoseconds of a clock that nobody sets.
func (l *Loop) at(now time.Time) int64 { return l.base.UnixNano() + int64(now.Sub(l.base)) }

// Run keeps the node at its lines until ctx ends. Then it thaws what it froze, which nobody else
// would, and leaves the rest as it is: what was taken from tasks is on record, and the next Run
// gives it back. A Loop runs once at a time.
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
	l.errands.wait()
	l.collectErrands(ctx)
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
	s.most = mostGroups(openFiles(), s.v2)
	s.startedAt, s.voice.told = l.deps.Now().UnixNano(), false
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
			for next = next.Add(l.cfg.interval()); !next.After(now); { // what was missed is not made up for
				next = now.Add(l.cfg.interval())
			}
			timer.Reset(next.Sub(now))
		case <-l.wake:
			if l.soon() {
				l.sample(ctx)
			}
		case <-l.errands.ended:
			l.collectErrands(ctx)
		case <-l.again:
			l.resend()
		}
	}
}

// soon reports whether pressure is a reason to sample now: some rule asks for it, and the last
// sample is not of just now.
func (l *Loop) soon() bool {
	_, pressure := l.current()
	l.state.Lock()
	defer l.state.Unlock()
	return pressure && l.deps.Now().Sub(l.state.last) >= l.cfg.interval()/4
}

// sample measures, plans and acts, once.
func (l *Loop) sample(ctx context.Context) {
	s := &l.state
	s.Lock()
	defer s.Unlock()
	defer l.sampled.send()
	var pressure bool
	s.policies, pressure = l.current()
	s.number++
	s.now = l.deps.Now()
	defer func() { s.took = l.deps.Now().Sub(s.now) }()
	s.last = s.now
	at := l.at(s.now)
	s.tasks = l.deps.Tasks()
	l.gauges.setTasks(s.tasks)
	s.follow(l, pressure)
	snap, err := s.measure(l, at)
	if err != nil {
		l.trouble(TroubleMeasure, err)
		return
	}
	s.reassert(ctx, l, at)
	s.first = false
	s.letGo(l)
	s.snapshot, s.result = snap, qos.Plan(snap, s.policies, s.ledger, at)
	if s.result.Waits == "" {
		s.ledger.Accept(s.result, snap)
		s.voice.rules(l, s.result)
		s.act(ctx, l, at)
	}
	s.voice.flush(l, s)
}

// Took returns how long the last sample took, with all that was done about it at once.
func (l *Loop) Took() time.Duration {
	l.state.Lock()
	defer l.state.Unlock()
	return l.state.took
}

// letGo thaws what somebody stops: a task that stands still does not hear SIGTERM.
func (s *state) letGo(l *Loop) {
	for i := range s.tasks {
		if t := &s.tasks[i]; t.Stopping && s.ledger.FrozenUntil(t.Key()) != 0 {
			s.thawFirst(l, t.Key(), "it is being stopped, and must hear that")
		}
	}
}

// end gives back what cannot be left.
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
	s.voice.flush(l, s)
	errs := []error{s.closing}
	for key, g := range s.groups {
		if g.owed && g.control != nil {
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

// broadcast tells everybody who waits.
type broadcast struct {
	mu struct {
		sync.Mutex
		next chan struct{} // closed by the next send; nil: nobody waits
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
