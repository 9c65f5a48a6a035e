package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// reaper is the only place that waits for children. It waits for all at once. So it keeps the
// status of an unknown process for the launcher that may claim it.
type reaper struct {
	mu struct {
		sync.Mutex
		children  map[int]*child      // by pid
		starting  int                 // launches between begin and end
		seq       uint64              // number of the newest launch
		unclaimed map[int][]pidStatus // statuses of unknown pids while launches are under way
	}
}

// pidStatus is one status of a process, with the number of the newest launch at that time. A launch
// that began later has a different process with the same pid.
type pidStatus struct {
	status syscall.WaitStatus
	seq    uint64
}

// child is a process that was started. reaper.mu guards its fields, but for changed.
type child struct {
	events  []syscall.WaitStatus
	changed chan struct{}            // capacity 1
	exited  func(syscall.WaitStatus) // called once, without the lock; nil: a launcher still waits for events
}

func newReaper() *reaper {
	r := &reaper{}
	r.mu.children = map[int]*child{}
	r.mu.unclaimed = map[int][]pidStatus{}
	return r
}

// run reaps until ctx ends.
func (r *reaper) run(ctx context.Context) error {
	signals := make(chan os.Signal, 1) // a full channel means that a drain is due anyway
	signal.Notify(signals, syscall.SIGCHLD)
	defer signal.Stop(signals)
	for {
		if err := r.drain(); err != nil {
			return err
		}
		select {
		case <-signals:
		case <-ctx.Done():
			return r.drain() // no caller needs the status of a child that ends later
		}
	}
}

// drain takes every status that is waiting.
func (r *reaper) drain() error {
	var calls []func()
	defer func() {
		for _, call := range calls {
			call()
		}
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|syscall.WALL, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.ECHILD) || err == nil && pid == 0:
			return nil
		case err != nil:
			return fmt.Errorf("wait for children: %w", err)
		}
		if call := r.deliver(pid, ws); call != nil {
			calls = append(calls, call)
		}
	}
}

// deliver returns a function for the caller to call without the lock, or nil.
func (r *reaper) deliver(pid int, ws syscall.WaitStatus) func() {
	c := r.mu.children[pid]
	if c == nil {
		if r.mu.starting > 0 {
			r.mu.unclaimed[pid] = append(r.mu.unclaimed[pid], pidStatus{ws, r.mu.seq})
		}
		// Otherwise an orphan of a task, of which this process is the nearest subreaper.
		return nil
	}
	over := ws.Exited() || ws.Signaled()
	if over {
		delete(r.mu.children, pid)
	}
	if c.exited == nil {
		c.push(ws)
		return nil
	}
	if !over {
		return nil
	}
	return func() { c.exited(ws) }
}

func (c *child) push(ws syscall.WaitStatus) {
	c.events = append(c.events, ws)
	select {
	case c.changed <- struct{}{}:
	default: // a wake-up is due already
	}
}

// begin announces a fork. end must follow, after claim or after the fork has failed.
func (r *reaper) begin() (seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.starting++
	r.mu.seq++
	return r.mu.seq
}

func (r *reaper) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.starting--; r.mu.starting == 0 {
		clear(r.mu.unclaimed)
	}
}

// claim makes the pid that launch seq has forked a child, whose events next returns.
func (r *reaper) claim(pid int, seq uint64) *child {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &child{changed: make(chan struct{}, 1)}
	r.mu.children[pid] = c
	for _, s := range r.mu.unclaimed[pid] {
		if s.seq < seq {
			continue
		}
		c.push(s.status)
		if s.status.Exited() || s.status.Signaled() {
			delete(r.mu.children, pid)
		}
	}
	delete(r.mu.unclaimed, pid)
	return c
}

// next waits for the next event of a claimed child.
func (r *reaper) next(c *child) (syscall.WaitStatus, error) {
	for {
		if err := r.drain(); err != nil {
			return 0, err
		}
		r.mu.Lock()
		if len(c.events) > 0 {
			ws := c.events[0]
			c.events = c.events[1:]
			r.mu.Unlock()
			return ws, nil
		}
		r.mu.Unlock()
		<-c.changed
	}
}

// follow arranges a call of exited at the end of the claimed child, or calls it now if the child
// has ended.
func (r *reaper) follow(c *child, exited func(syscall.WaitStatus)) {
	r.mu.Lock()
	c.exited = exited
	var over *syscall.WaitStatus
	for i := range c.events {
		if c.events[i].Exited() || c.events[i].Signaled() {
			over = &c.events[i]
		}
	}
	c.events = nil
	r.mu.Unlock()
	if over != nil {
		exited(*over)
	}
}

// signal sends signals to the process group of a child. The child is not reaped yet, so its pid is
// not reused. sent is false if the child has ended.
func (r *reaper) signal(pid int, signals ...syscall.Signal) (sent bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.children[pid] == nil {
		return false, nil
	}
	p, ok, err := readProcess(pid)
	if err != nil || !ok || p.dead() {
		return false, err
	}
	for _, sig := range signals {
		if err := syscall.Kill(-pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return false, fmt.Errorf("send %v to process group %d: %w", sig, pid, err)
		}
	}
	return true, nil
}
