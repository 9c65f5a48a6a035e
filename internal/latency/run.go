package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/qos"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// plan holds the parameters of a measurement.
type plan struct {
	rounds          int
	measure, settle time.Duration
	others          float64 // in cores
	random          *rand.Rand
}

// mode is a treatment of the burners.
type mode struct {
	name    string
	stopped bool
	rungs   []rung // empty: no agent
}

// rung is a rule on the share of time in which the server waits for a processor.
type rung struct {
	waterline, release string
	action             plimsoll.Action
}

// modes returns the treatments. The ladder first lowers the burners' weight, which costs nothing
// while processors are idle. If that is not enough, a second line throttles them, and finally
// suspends them for a moment.
func modes() []mode {
	throttle := &plimsoll.ThrottleAction{Step: 40}
	return []mode{
		{name: "burners stopped", stopped: true},
		{name: "agent off"},
		{name: "quota only", rungs: []rung{{"3", "2", plimsoll.Action{Name: "shed", Throttle: throttle}}}},
		{name: "full ladder", rungs: []rung{
			{"3", "2", plimsoll.Action{Name: "yield", Weight: &plimsoll.WeightAction{Idle: true}}},
			{
				"40", "30",
				plimsoll.Action{Name: "shed", Throttle: throttle, Freeze: &plimsoll.FreezeAction{For: 2 * time.Second}},
			},
		}},
	}
}

func policies(m *mode) []plimsoll.Policy {
	node := &plimsoll.NodeQOS{Name: "latency"}
	tasks := &plimsoll.TaskQOS{
		Name: "batch", Match: []plimsoll.Requirement{{Scope: plimsoll.ScopeClass, Values: []string{"best-effort"}}},
	}
	all := []plimsoll.Policy{{TaskQOS: tasks}, {NodeQOS: node}}
	for _, r := range m.rungs {
		a := r.action
		a.CoolDown = time.Minute
		tasks.Allowed = append(tasks.Allowed, a.Name)
		node.Rules = append(
			node.Rules,
			plimsoll.Rule{
				Name: a.Name, Metric: qos.CPUPressure, Waterline: r.waterline, Release: r.release, Action: a.Name,
			},
		)
		all = append(all, plimsoll.Policy{Action: &a})
	}
	return all
}

// outcome is the result of one measurement.
type outcome struct {
	wait     time.Duration // waiting time of the server's threads for a processor, per request
	p50, p95 time.Duration // of the durations of requests
	batch    float64       // cores used by the burners
	idle     float64       // unused cores
}

// setup is the set of processes and groups that run during a measurement.
type setup struct {
	dir  string
	tree *cgroup.Subtree

	// Invariant: both lists begin with the server's, then the burners', then those of other
	// programs.
	groups   []*cgroup.Group
	children []*exec.Cmd
	tasks    []*cgroup.Group // the part of groups for the server and the burners

	client *client
	// own is the group of this process. The client then competes with the server as a neighbour,
	// and not as the whole tree does.
	own *cgroup.Group
}

func (s *setup) socket() string { return filepath.Join(s.dir, "socket") }

func taskName(i int) string {
	if i == 0 {
		return "web"
	}
	return fmt.Sprintf("batch-%d", i)
}

// run measures everything and prints the table.
func run(ctx context.Context, p *plan, out io.Writer) (err error) {
	s, err := build(p.others)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove()) }()
	all := modes()
	results := make([][]outcome, len(all))
	for round := range p.rounds {
		for _, i := range p.random.Perm(len(all)) {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, p.rounds, all[i].name)
			o, err := s.measure(ctx, p, &all[i])
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			results[i] = append(results[i], o)
		}
	}
	return table(out, p, all, results)
}

func build(others float64) (s *setup, err error) {
	h, err := cgroup.Detect(cgroup.DefaultRoot)
	if err != nil {
		return nil, err
	}
	s = &setup{}
	if s.dir, err = os.MkdirTemp("", "plimsoll-latency-"); err != nil {
		return nil, err
	}
	if s.tree, err = h.Subtree(fmt.Sprintf("plimsoll/latency-%d", os.Getpid())); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	s.client = newClient(s.socket())
	if s.own, err = s.tree.Create("client", cgroup.Limits{}); err == nil {
		err = s.own.Add(os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	for i := range burners + 1 {
		args := []string{"burn"}
		if i == 0 {
			args = []string{"serve", s.socket()}
		}
		if err := s.start(taskName(i), cgroup.Limits{}, args...); err != nil {
			return nil, errors.Join(err, s.remove())
		}
	}
	s.tasks = s.groups
	for i := range runtime.NumCPU() {
		milli := int64(1000 * others / float64(runtime.NumCPU()))
		if milli <= 0 {
			break
		}
		if err := s.start(fmt.Sprintf("other-%d", i), cgroup.Limits{CPUMilli: milli}, "burn"); err != nil {
			return nil, errors.Join(err, s.remove())
		}
	}
	return s, nil
}

// start starts a process in a group of its own.
func (s *setup) start(name string, limits cgroup.Limits, args ...string) error {
	g, err := s.tree.Create(name, limits)
	if err != nil {
		return err
	}
	s.groups = append(s.groups, g)
	cmd, err := child(args...)
	if err != nil {
		return err
	}
	s.children = append(s.children, cmd)
	return g.Add(cmd.Process.Pid)
}

func (s *setup) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	for _, g := range s.groups {
		errs = append(errs, g.Kill(ctx))
	}
	for _, cmd := range s.children {
		_ = cmd.Wait() // it was killed
	}
	errs = append(errs, s.client.close(), s.tree.Hierarchy().Leave(os.Getpid()))
	for _, g := range append(s.groups, s.own) {
		errs = append(errs, g.Remove(ctx))
	}
	return errors.Join(append(errs, s.tree.Remove(), os.RemoveAll(s.dir))...)
}

// measure runs one mode: first until the agent's actions have settled, then the requests that are
// measured.
func (s *setup) measure(ctx context.Context, p *plan, m *mode) (o outcome, err error) {
	if err := s.reset(ctx, m.stopped); err != nil {
		return o, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	agent := make(chan error, 1)
	if len(m.rungs) == 0 {
		agent <- nil
	} else {
		loop, err := s.agent(m)
		if err != nil {
			return o, err
		}
		go func() { agent <- loop.Run(ctx) }()
	}
	if _, err := s.client.ask(ctx, p.random, p.settle); err != nil {
		return o, err
	}
	before, err := s.read()
	if err != nil {
		return o, err
	}
	took, err := s.client.ask(ctx, p.random, p.measure)
	if err != nil {
		return o, err
	}
	after, err := s.read()
	if err != nil {
		return o, err
	}
	elapsed := after.at.Sub(before.at).Seconds()
	o.wait = (after.waited - before.waited) / time.Duration(max(len(took), 1))
	o.p50, o.p95 = percentile(took, 50), percentile(took, 95)
	o.batch, o.idle = (after.batch-before.batch).Seconds()/elapsed, (after.idle-before.idle).Seconds()/elapsed
	cancel()
	return o, <-agent
}

// reset removes all restrictions from every group, and lets the burners run or stop.
func (s *setup) reset(ctx context.Context, stopped bool) error {
	for i, g := range s.tasks {
		c, err := g.Control()
		if err != nil {
			return err
		}
		err = errors.Join(
			c.Thaw(), c.SetQuota(cgroup.Quota{Micros: -1, PeriodMicros: 100_000}),
			c.SetScheduling(cgroup.Scheduling{Shares: 1024}),
		)
		if stopped && i > 0 {
			err = errors.Join(err, c.Freeze(ctx))
		}
		if err = errors.Join(err, c.Close()); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(s.dir, "agent"))
}

func (s *setup) agent(m *mode) (*nodeqos.Loop, error) {
	dir := filepath.Join(s.dir, "agent")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	started := time.Now().UnixNano()
	loop, err := nodeqos.New(nodeqos.Config{Dir: dir, Node: "latency", Subtree: s.tree}, nodeqos.Deps{
		Tasks: func() []nodeqos.Task {
			tasks := make([]nodeqos.Task, len(s.tasks))
			for i := range tasks {
				tasks[i] = nodeqos.Task{
					ID: taskName(i), Attempt: 1, Group: taskName(i), Class: plimsoll.ClassBestEffort, Started: started,
				}
			}
			tasks[0].Class = plimsoll.ClassGuaranteed
			return tasks
		},
		Evict: func(context.Context, string, int32, time.Duration, string) error {
			return plimsoll.Errorf(plimsoll.CodeUnimplemented, "nothing is evicted here")
		},
		Report: func(plimsoll.NodeReport) {},
	})
	if err != nil {
		return nil, err
	}
	loop.SetPolicies(policies(m))
	return loop, nil
}

// reading is the state of the kernel's counters.
type reading struct {
	at                  time.Time
	waited, batch, idle time.Duration
}

func (s *setup) read() (r reading, err error) {
	if r.waited, err = waited(s.children[0].Process.Pid); err != nil {
		return r, err
	}
	for _, g := range s.tasks[1:] {
		u, err := g.Usage()
		if err != nil {
			return r, err
		}
		r.batch += u.CPU
	}
	r.idle, err = idleTime()
	r.at = time.Now()
	return r, err
}

// table prints the medians.
func table(out io.Writer, p *plan, all []mode, results [][]outcome) error {
	median := func(i int, f func(o *outcome) float64) float64 {
		var values []float64
		for j := range results[i] {
			values = append(values, f(&results[i][j]))
		}
		slices.Sort(values)
		return (values[len(values)/2] + values[(len(values)-1)/2]) / 2
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	stopped := median(0, func(o *outcome) float64 { return ms(o.wait) })
	idle := median(0, func(o *outcome) float64 { return o.idle })
	_, err := fmt.Fprintf(out, "%d processors, of which others use %.1f; %d rounds of %v for each mode in shuffled order, medians.\n\n"+
		"| burners | wait for a processor per request | × stopped | p50 | p95 | batch cores | of the otherwise idle |\n|---|---|---|---|---|---|---|\n",
		runtime.NumCPU(), p.others, p.rounds, p.measure)
	for i := range all {
		wait := median(i, func(o *outcome) float64 { return ms(o.wait) })
		batch := median(i, func(o *outcome) float64 { return o.batch })
		p50 := median(i, func(o *outcome) float64 { return ms(o.p50) })
		p95 := median(i, func(o *outcome) float64 { return ms(o.p95) })
		_, e := fmt.Fprintf(out, "| %s | %.2f ms | %.2f | %.1f ms | %.1f ms | %.2f | %.0f %% |\n",
			all[i].name, wait, wait/stopped, p50, p95, batch, 100*batch/idle)
		err = errors.Join(err, e)
	}
	return err
}
