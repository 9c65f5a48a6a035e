// Program qos-loop is a proxy that protects itself: it runs the node loop of Plimsoll with a metric
// and actions of its own. It is a module of its own, as a program of yours would be.
//
// The proxy serves clients. All of them together may make 1,000 requests in a second. When they
// make more, guests are held to lower rates, the least important first. If that is not enough, the
// proxy hangs up on some. When there is room again, everybody gets back what was taken. The proxy
// gives the loop five functions for that: measure, sort, throttle, restore and evict.
//
// Here the clients are only imagined, so that there is something to see:
//
//	cd examples/qos-loop && go run .
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

func main() {
	dir, err := os.MkdirTemp("", "qos-loop-")
	if err == nil {
		err = run(context.Background(), dir, 100*time.Millisecond, os.Stdout)
		if removeErr := os.RemoveAll(dir); err == nil {
			err = removeErr
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves the clients through a calm time, a busy one and a calm one again, each of 20 samples.
func run(ctx context.Context, dir string, interval time.Duration, out io.Writer) error {
	p := newProxy(out)
	loop, err := nodeqos.New(nodeqos.Config{
		Dir: dir, Node: "proxy", Interval: interval, Metrics: []nodeqos.Metric{p.requests(interval)},
		Options: qos.Options{Lag: 3 * interval / 2}, // a new limit shows in the second sample after it
	}, nodeqos.Deps{Tasks: p.tasks, Evict: p.hangUp, Report: p.report})
	if err != nil {
		return err
	}
	loop.SetPolicies(policies())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }()
	for _, phase := range []struct {
		name string
		want float64 // requests in a second of each client
	}{{"calm", 150}, {"busy", 500}, {"calm", 100}} {
		p.demand(phase.name, phase.want)
		select {
		case err := <-ended:
			return err
		case <-time.After(20 * interval):
		}
	}
	stop()
	return <-ended
}

// policies say from which line on something is done, what, and to whom.
func policies() []plimsoll.Policy {
	guests := plimsoll.Requirement{Scope: plimsoll.ScopeClass, Values: []string{"best-effort"}}
	return []plimsoll.Policy{
		{Action: &plimsoll.Action{
			Name: "slow-guests", CoolDown: time.Second,
			Throttle: &plimsoll.ThrottleAction{Step: 50}, Evict: &plimsoll.EvictAction{},
		}},
		{TaskQOS: &plimsoll.TaskQOS{
			Name: "guests", Match: []plimsoll.Requirement{guests}, Allowed: []string{"slow-guests"},
		}},
		{NodeQOS: &plimsoll.NodeQOS{Name: "proxy", Rules: []plimsoll.Rule{
			{Name: "requests", Metric: "requests", Waterline: "1000", Action: "slow-guests"},
		}}},
	}
}

// leastRate is what each guest keeps who is not hung up on.
const leastRate = 200

// requests is the proxy's metric. The loop measures it for each client, and adds it up.
func (p *proxy) requests(interval time.Duration) nodeqos.Metric {
	byRate := qos.OrderedBy(qos.ClassAndPriority, qos.ByValue("requests"), qos.RunningTime)
	return nodeqos.Metric{
		Metric: qos.Metric{
			Name: "requests", Help: "requests of all clients", Unit: "requests/s", Scale: 1, ActionPriority: 7,
			Sort:         &byRate,
			Throttleable: true, ThrottleQuantified: true, Limit: &qos.Limit{Throttle: halve},
			Evictable: true, EvictQuantified: true,
		},
		PerTask: true, Sum: true, Every: interval,
		Measure: p.measure,
		Actions: nodeqos.Actions{Throttle: p.setLimit, Restore: p.setLimit, Evict: p.kick},
	}
}

// halve plans a step down: a part of the rate that the client has, but not below leastRate.
func halve(t *qos.Task, before int64, by qos.Throttling) (after, release int64) {
	rate := t.Values["requests"]
	if before < 0 {
		before = rate
	}
	after = max(before*int64(100-by.Step)/100, leastRate)
	return after, max(rate-after, 0)
}

// proxy is the program that runs the loop.
type proxy struct {
	out io.Writer
	mu  struct {
		sync.Mutex
		clients []*client
	}
}

type client struct {
	nodeqos.Task
	wants float64 // requests in a second that it would make
	limit float64 // that it may make; 0: as many as it likes
}

func newProxy(out io.Writer) *proxy {
	p := &proxy{out: out}
	began := time.Now().UnixNano()
	for i, name := range []string{"shop", "guest-1", "guest-2", "guest-3"} {
		class := plimsoll.ClassBestEffort
		if name == "shop" {
			class = plimsoll.ClassGuaranteed
		}
		task := nodeqos.Task{ID: name, Attempt: 1, Class: class, Priority: int32(i), Started: began}
		p.mu.clients = append(p.mu.clients, &client{Task: task})
	}
	return p
}

// demand says how many requests each client would make.
func (p *proxy) demand(name string, want float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%s: each client wants %v requests/s\n", name, want)
	for _, c := range p.mu.clients {
		c.wants = want
	}
}

// tasks tells the loop who is there.
func (p *proxy) tasks() []nodeqos.Task {
	p.mu.Lock()
	defer p.mu.Unlock()
	tasks := make([]nodeqos.Task, len(p.mu.clients))
	for i, c := range p.mu.clients {
		tasks[i] = c.Task
	}
	return tasks
}

// find returns a client; nil if it has gone. p.mu is held.
func (p *proxy) find(id string) *client {
	for _, c := range p.mu.clients {
		if c.ID == id {
			return c
		}
	}
	return nil
}

func (p *proxy) measure(_ context.Context, task *nodeqos.Task) (float64, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.find(task.ID)
	switch {
	case c == nil:
		return 0, false, nil
	case c.limit > 0:
		return min(c.wants, c.limit), true, nil
	}
	return c.wants, true, nil
}

// setLimit is how a client is throttled, and how it gets back what was taken: no limit is infinite.
func (p *proxy) setLimit(_ context.Context, task *nodeqos.Task, limit float64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.find(task.ID)
	if c == nil {
		return nodeqos.ErrGone
	}
	c.limit = limit
	return nil
}

// kick is how a client is evicted for too many requests.
func (p *proxy) kick(ctx context.Context, task *nodeqos.Task, grace time.Duration, reason string) error {
	return p.hangUp(ctx, task.ID, task.Attempt, grace, reason)
}

// hangUp is how a client is evicted for any other metric, such as the memory of the machine.
func (p *proxy) hangUp(_ context.Context, id string, _ int32, _ time.Duration, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.mu.clients {
		if c.ID == id {
			p.mu.clients = append(p.mu.clients[:i:i], p.mu.clients[i+1:]...)
			return nil
		}
	}
	return nodeqos.ErrGone
}

// report prints what the loop has done.
func (p *proxy) report(r plimsoll.NodeReport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range r.Events {
		change := ""
		if e.Before != "" {
			change = " " + e.Before + " → " + e.After
		}
		fmt.Fprintf(p.out, "  %s %s%s: %s\n", e.Kind, e.Task, change, e.Message)
	}
}
