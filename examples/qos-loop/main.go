// Program qos-loop is a proxy that limits its own load: it runs the node loop of Plimsoll with a
// metric and actions of its own. It is a module of its own, as a program of yours would be.
//
// The proxy serves clients. All of them together may make 1,000 requests in a second. When they
// make more, the rates of guests are limited, the least important first. If that is not enough, the
// proxy disconnects some. When there is room again, the limits are raised. The proxy gives the loop
// five functions for that: measure, sort, throttle, restore and evict.
//
// Here the clients are simulated, so that there is something to see:
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

// run serves the clients in three phases, calm, busy and calm again, each of 20 samples.
func run(ctx context.Context, dir string, interval time.Duration, out io.Writer) error {
	p := newProxy(out)
	loop, err := nodeqos.New(nodeqos.Config{
		Dir: dir, Node: "proxy", Interval: interval, Metrics: []nodeqos.Metric{p.requests(interval)},
		Options: qos.Options{Lag: 3 * interval / 2}, // a new limit shows in the second sample after it
	}, nodeqos.Deps{Tasks: p.tasks, Evict: p.disconnect, Report: p.report})
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

// policies returns one rule: above 1,000 requests/s, guests are slowed down and, if need be,
// evicted.
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

// leastRate is the lowest limit of a guest.
const leastRate = 200

// requests is the proxy's metric. The loop measures it for each client, and adds the values up.
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
		Actions: nodeqos.Actions{Throttle: p.setLimit, Restore: p.setLimit, Evict: p.evict},
	}
}

// halve lowers the limit of a client by by.Step percent, but not below leastRate. A client without
// a limit starts from its rate.
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
	wants float64 // requests in a second without a limit
	limit float64 // limit of its requests in a second; 0: none
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

// demand sets the number of requests that each client would make.
func (p *proxy) demand(name string, want float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%s: each client wants %v requests/s\n", name, want)
	for _, c := range p.mu.clients {
		c.wants = want
	}
}

// tasks returns the clients that are connected, as tasks of the loop.
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

// setLimit throttles a client, and gives its rate back: an infinite limit is none.
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

// evict disconnects a client for too many requests.
func (p *proxy) evict(ctx context.Context, task *nodeqos.Task, grace time.Duration, reason string) error {
	return p.disconnect(ctx, task.ID, task.Attempt, grace, reason)
}

// disconnect evicts a client for any other metric, such as the memory of the machine.
func (p *proxy) disconnect(_ context.Context, id string, _ int32, _ time.Duration, _ string) error {
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

// report prints the events of the loop.
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
