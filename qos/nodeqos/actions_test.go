package nodeqos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// server is a program with a metric of its own: its clients make requests, and it holds them to
// rates.
type server struct {
	mu     sync.Mutex
	rates  map[string]float64
	calls  []string
	fail   error
	limits map[string]float64 // what clients are held to
	block  chan struct{}      // not nil: calls wait for it
}

func newServer(rates map[string]float64) *server {
	return &server{rates: rates, limits: map[string]float64{}}
}

func (s *server) call(ctx context.Context, text string, do func()) error {
	s.mu.Lock()
	block := s.block
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, text)
	if s.fail != nil {
		return s.fail
	}
	do()
	return nil
}

func (s *server) set(verb string) func(ctx context.Context, task *Task, limit float64) error {
	return func(ctx context.Context, task *Task, limit float64) error {
		return s.call(ctx, fmt.Sprintf("%s %s %v", verb, task.ID, limit), func() { s.limits[task.ID] = limit })
	}
}

// metric is all that the program gives the loop: measure, sort, throttle, restore and evict as
// functions.
func (s *server) metric() Metric {
	// the last owner first
	sorter := qos.OrderedBy(func(a, b *qos.Task) int { return strings.Compare(b.Owner, a.Owner) })
	return Metric{
		Metric: qos.Metric{
			Name: "requests", Sort: &sorter, ActionPriority: 8, Limit: &qos.Limit{},
			Throttleable: true, ThrottleQuantified: true, Evictable: true, EvictQuantified: true,
		},
		PerTask: true, Sum: true, Every: MinEvery,
		Measure: func(_ context.Context, task *Task) (float64, bool, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			rate := s.rates[task.ID]
			if limit, ok := s.limits[task.ID]; ok {
				rate = min(rate, limit)
			}
			return rate, true, nil
		},
		Actions: Actions{
			Throttle: s.set("throttle"), Restore: s.set("restore"),
			Evict: func(ctx context.Context, task *Task, grace time.Duration, _ string) error {
				return s.call(ctx, fmt.Sprintf("evict %s %v", task.ID, grace), func() { delete(s.rates, task.ID) })
			},
		},
	}
}

// told returns the calls since it was called last.
func (s *server) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.calls)
	text := strings.Join(s.calls, ", ")
	s.calls = nil
	return text
}

func (s *server) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// serving is a node without control groups whose only metric is the server's.
func serving(t *testing.T, s *server, a plimsoll.Action) *node {
	n := newNode(t, nil)
	n.cfg.Metrics = []Metric{s.metric()}
	n.loop = n.start()
	n.loop.SetPolicies(policies(a, plimsoll.Rule{Metric: "requests", Waterline: "100"}))
	n.add(Task{ID: "a", Class: plimsoll.ClassBestEffort, Owner: "ann"})
	n.add(Task{ID: "z", Class: plimsoll.ClassBestEffort, Owner: "zoe"})
	n.step() // from now on the tasks are measured
	return n
}

func throttle(step int32) plimsoll.Action {
	return plimsoll.Action{Throttle: &plimsoll.ThrottleAction{Step: step}}
}

// next lets a second pass, and waits for the actions begun in it.
func (n *node) next() {
	n.step()
	n.settle()
}

// A program's functions measure, sort, throttle and restore; the loop decides when and how far, and
// gives all of it back.
func TestAProgramThrottlesAndRestoresItself(t *testing.T) {
	s := newServer(map[string]float64{"a": 60, "z": 60})
	n := serving(t, s, throttle(20))
	n.next()
	same(t, "above the line", s.told(), "throttle a 48, throttle z 48")
	s.change(func() { s.rates["z"], s.rates["a"] = 10, 10 })
	for range 3 {
		n.next()
	}
	same(t, "given back", s.told(), "restore a +Inf, restore z +Inf")
	events := n.told()
	slices.Sort(events) // both tasks are changed at once
	same(t, "events", events, []string{
		"restored a limit 48 → limit none", "restored z limit 48 → limit none", "rule restored", "rule triggered",
		"throttled a limit none → limit 48", "throttled z limit none → limit 48",
	})
}

// A task that must go for a metric with an Evict of its own is stopped by that function and not by
// Deps.Evict.
func TestAProgramEvictsItself(t *testing.T) {
	s := newServer(map[string]float64{"a": 60, "z": 60})
	n := serving(t, s, plimsoll.Action{Evict: &plimsoll.EvictAction{Grace: 3 * time.Second}})
	n.next()
	same(t, "the program", s.told(), "evict z 3s")
	same(t, "Deps.Evict", n.evicted, []string{})
	n.next()
	same(t, "while it leaves", s.told(), "")
}

// A slow function delays nothing and is not called twice for one task, and its release counts in
// advance.
func TestAProgramMayTakeItsTime(t *testing.T) {
	s := newServer(map[string]float64{"a": 60, "z": 60})
	n := serving(t, s, throttle(50))
	s.block = make(chan struct{})
	n.steps(4)
	same(t, "while it waits", s.told(), "")
	close(s.block)
	n.settle()
	same(t, "once", s.told(), "throttle z 30")
}

// A function that fails is told, counts for nothing, and its task is left alone for a while.
func TestAProgramThatFailsIsTold(t *testing.T) {
	s := newServer(map[string]float64{"a": 60, "z": 60})
	n := serving(t, s, throttle(50))
	s.fail = errors.New("no such client")
	n.next()
	same(t, "the first", s.told(), "throttle z 30")
	n.next()
	same(t, "the next", s.told(), "throttle a 30")
	if events := n.told(); !slices.Contains(events, "failed z limit none → limit 30") {
		t.Errorf("it is told %v", events)
	}
}

// Limits are on record: a loop that is started again sets them once more, and gives them back.
func TestLimitsAreSetAgainAfterARestart(t *testing.T) {
	s := newServer(map[string]float64{"a": 60, "z": 60})
	n := serving(t, s, throttle(50))
	n.next()
	same(t, "before", s.told(), "throttle z 30")
	if err := n.loop.end(); err != nil {
		t.Fatal(err)
	}
	s.change(func() { clear(s.limits) })
	rules, _ := n.loop.currentPolicies()
	n.loop = n.start()
	n.loop.policies.compiled = rules
	n.next()
	same(t, "after", s.told(), "throttle z 30")
	s.change(func() { s.rates["z"], s.rates["a"] = 10, 10 })
	n.next()
	n.next()
	n.next()
	same(t, "given back", s.told(), "restore z +Inf")
}

// A limit that can be planned but not set, or set but not planned, is refused.
func TestALimitWithoutItsFunctionsIsRefused(t *testing.T) {
	for name, change := range map[string]func(m *Metric){
		"no Throttle": func(m *Metric) { m.Actions.Throttle = nil },
		"no Restore":  func(m *Metric) { m.Actions.Restore = nil },
		"no Limit":    func(m *Metric) { m.Limit, m.ThrottleQuantified = nil, false },
		"not of tasks": func(m *Metric) {
			m.PerTask, m.Sum, m.EvictQuantified, m.ThrottleQuantified = false, false, false, false
		},
		"not evictable":          func(m *Metric) { m.Evictable, m.EvictQuantified = false, false },
		"quantified, but no sum": func(m *Metric) { m.Sum, m.EvictQuantified = false, false },
		"Restore alone":          func(m *Metric) { m.Limit, m.Actions.Throttle = nil, nil },
	} {
		m := newServer(nil).metric()
		change(&m)
		if err := m.Validate(); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
