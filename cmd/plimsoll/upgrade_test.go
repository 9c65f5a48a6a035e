package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/calltest"
)

// readDeadline bounds one strict read during an upgrade. A read takes milliseconds; a deadline that
// a slow machine never reaches keeps the test from failing by the clock.
const readDeadline = 2 * time.Minute

// upgrade is a cluster under load whose processes are replaced.
type upgrade struct {
	*failoverCluster
	users   sync.WaitGroup
	over    func()          // ends the users
	reads   [3]atomic.Int64 // of each reader
	slowest atomic.Int64    // read, in nanoseconds
	writes  atomic.Int64
	held    atomic.Bool     // the job that is read was acknowledged
	taken   map[string]bool // jobs that were acknowledged; the writer has it until over has returned
}

// startUpgrade starts the cluster, with a gateway that is a relay and one behind it. Two users read
// strictly at the cluster's gateways, one at the gateway behind the relay, and one submits jobs.
// None of their calls may fail.
func startUpgrade(t *testing.T) *upgrade {
	t.Helper()
	u := &upgrade{failoverCluster: newFailoverCluster(t, 3*time.Second), taken: map[string]bool{}}
	u.addRelay()
	ctx, cancel := context.WithCancel(t.Context())
	u.over = sync.OnceFunc(func() {
		cancel()
		u.users.Wait()
	})
	t.Cleanup(u.over)
	patient := func(servers string) *client.Client {
		c, err := client.New(client.Config{Server: servers, RetryBudget: readDeadline})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	for i, servers := range [len(u.reads)]string{u.address, u.address, "unix:" + u.path("behind.users")} {
		reader := patient(servers)
		u.users.Go(func() { u.read(ctx, reader, &u.reads[i]) })
	}
	writer := patient(u.address)
	u.users.Go(func() { u.write(ctx, writer) })
	return u
}

// addRelay starts a gateway that others follow, and one of these.
func (u *upgrade) addRelay() {
	var leaders []string
	for _, name := range coordinatorNames {
		leaders = append(leaders, "unix:"+u.path(name))
	}
	add := func(name, leader string, more ...string) {
		u.command[name] = slices.Concat([]string{"plimsoll"}, u.gatewayWords(name, leader), more)
		u.names, u.gateways = append(u.names, name), append(u.gateways, name)
		u.begin(name)
	}
	add("relay", strings.Join(leaders, ","), "--listen-replication", "unix:"+u.path("down"))
	add("behind", "unix:"+u.path("down"))
	u.serves()
}

func (u *upgrade) read(ctx context.Context, reader *client.Client, reads *atomic.Int64) {
	for ctx.Err() == nil {
		began, held := time.Now(), u.held.Load()
		call, cancel := context.WithTimeout(ctx, readDeadline)
		_, err := reader.Job(call, "held")
		cancel()
		if err != nil && ctx.Err() == nil && (held || plimsoll.CodeOf(err) != plimsoll.CodeNotFound) {
			u.t.Errorf("a strict read failed %v later: %v", time.Since(began), err)
		}
		took := int64(time.Since(began))
		for at := u.slowest.Load(); at < took && !u.slowest.CompareAndSwap(at, took); at = u.slowest.Load() {
		}
		reads.Add(1)
		pause(ctx, 10*time.Millisecond)
	}
}

func (u *upgrade) write(ctx context.Context, writer *client.Client) {
	for i := 0; ctx.Err() == nil; i++ {
		spec := calltest.Spec(fmt.Sprintf("w%05d", i), "writer", 1)
		if _, err := writer.SubmitJob(ctx, spec); err == nil {
			u.taken[spec.ID] = true
		} else if ctx.Err() == nil {
			u.t.Errorf("submit %s: %v", spec.ID, err)
		}
		u.writes.Add(1)
		pause(ctx, 50*time.Millisecond)
	}
}

// replace ends a process as an upgrade does, and starts another one in its place.
func (u *upgrade) replace(name string) {
	u.t.Helper()
	u.running[name].stop()
	u.begin(name)
}

// goesOn waits until the users have read and written more. It wants the held tasks to run in their
// first processes.
func (u *upgrade) goesOn(behind string, held map[string]int) {
	u.t.Helper()
	var reads [len(u.reads)]int64
	for i := range reads {
		reads[i] = u.reads[i].Load() + 7
	}
	writes := u.writes.Load() + 3
	u.await("users go on behind the replacement of "+behind, func(context.Context) error {
		for i, want := range reads {
			if r := u.reads[i].Load(); r < want {
				return fmt.Errorf("reader %d has read %d times, want %d", i, r, want)
			}
		}
		if w := u.writes.Load(); w < writes {
			return fmt.Errorf("%d writes of %d", w, writes)
		}
		return nil
	})
	for task, pid := range held {
		u.alive(task, pid)
	}
}

// replaceCoordinators replaces those that stand by, and then the leader, which steps down first.
func (u *upgrade) replaceCoordinators(held map[string]int) {
	u.t.Helper()
	left := map[string]bool{}
	for _, name := range coordinatorNames {
		left[name] = true
	}
	for range coordinatorNames {
		leader, epoch := u.leads(0), u.last.Epoch
		next := leader
		for _, name := range coordinatorNames {
			if left[name] && name != leader {
				next = name
			}
		}
		if next == leader {
			u.stepDown(epoch)
			u.leads(epoch)
		}
		delete(left, next)
		u.replace(next)
		u.await(next+" serves or stands by", func(ctx context.Context) error {
			h, err := healthOf(ctx, "unix:"+u.path(next))
			if err == nil && h.Status != "standby" && h.Status != "ok" {
				err = fmt.Errorf("%+v", h)
			}
			return err
		})
		u.goesOn(next, held)
	}
}

// TestRolesAreReplacedOneByOne replaces each process of a cluster under load, as an upgrade does:
// the coordinators that stand by, the leader behind its step-down, the gateways, a relay and the
// gateway behind it, the agent and the historian. No strict read and no submission fails, tasks go
// on in their first attempt and their first process, and the history has all events.
func TestRolesAreReplacedOneByOne(t *testing.T) {
	u := startUpgrade(t)
	held := map[string]int{}
	spec := calltest.Spec("held", "keeper", 2)
	spec.Groups[0].Resources = plimsoll.Resources{"cpu": 100}
	spec.Groups[0].Command = []string{"sh", "-c", gatedTask(u.dir)}
	tasks := []string{plimsoll.TaskID("held", "main", 0), plimsoll.TaskID("held", "main", 1)}
	for _, task := range tasks {
		u.gate(task)
	}
	u.await("the held job is taken in", func(ctx context.Context) error {
		_, err := u.asked.SubmitJob(ctx, spec)
		if plimsoll.CodeOf(err) == plimsoll.CodeAlreadyExists {
			return nil
		}
		return err
	})
	u.held.Store(true)
	for _, task := range tasks {
		held[task] = u.pid(task)
	}
	u.goesOn("nothing", held)
	u.replaceCoordinators(held)
	for _, name := range u.gateways {
		u.replace(name)
		u.serves()
		u.goesOn(name, held)
	}
	for _, name := range []string{"agent", "historian"} {
		u.replace(name)
		u.goesOn(name, held)
	}
	for i, task := range tasks {
		u.open(task, 7+i)
		u.await(task+" ends", func(ctx context.Context) error {
			found, err := u.asked.Task(ctx, task)
			if err == nil && found.State != plimsoll.TaskFinished {
				err = errors.New("it has not ended")
			}
			if err == nil && (found.ExitCode != int32(7+i) || found.Attempt != 1) {
				t.Errorf("%s ended as %+v", task, found)
			}
			return err
		})
	}
	u.over()
	u.recorded(u.taken)
	u.epochsRise()
	t.Logf("%d, %d and %d strict reads, the slowest took %v; %d jobs were taken in",
		u.reads[0].Load(), u.reads[1].Load(), u.reads[2].Load(), time.Duration(u.slowest.Load()).Round(time.Millisecond), len(u.taken))
}
