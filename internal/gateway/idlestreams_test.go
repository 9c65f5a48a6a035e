package gateway

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A stream that waits may wait for days. A snapshot that it kept would keep every record and index
// entry that was changed since.
func TestAStreamThatWaitsKeepsNoSnapshot(t *testing.T) {
	f := cluster()
	f.put(putTask(plimsoll.Task{Job: "a", Group: "map", Index: 7, State: plimsoll.TaskPending, Revision: 1}))
	f.emit(plimsoll.Event{Object: "a"})
	s := serve(t, Config{}, f)
	watches := watchClient(t, s)
	receive(t, open(t, s.agents.WatchAssignments, &pb.WatchAssignmentsRequest{Node: "n1", Incarnation: 3}))
	receive(t, open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Id: "a"}))
	receive(t, open(t, watches.WatchTasks, &pb.WatchTasksRequest{}))
	receive(t, open(t, watches.WatchJobs, &pb.WatchJobsRequest{Owner: "alice"}))
	receive(t, open(t, watches.WatchEvents, &pb.WatchEventsRequest{}))
	open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.7", Follow: true})
	old := weak.Make(f.Latest())
	f.put(putStatus(plimsoll.JobStatus{ID: "other", State: plimsoll.JobRunning}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // before the streams end
	defer cancel()
	for old.Value() != nil {
		if ctx.Err() != nil {
			t.Fatal("a stream that waits keeps a snapshot")
		}
		runtime.GC()
	}
}

// watchOf runs a watch of a part until the test ends, and counts what it is sent.
func watchOf(t *testing.T, g *Gateway, kind wire.Kind, want criteria) (messages func() int) {
	t.Helper()
	var mu sync.Mutex
	sent := 0
	w := watch{g: g, rpc: "WatchTasks", kind: kind, want: want, send: func([]byte) error {
		mu.Lock()
		defer mu.Unlock()
		sent++
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = w.run(ctx) }) // it is canceled
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return sent
	}
}

// The watches of parts are told of their own changes alone: those of others are not even looked at.
func TestAWatchOfAPartLooksAtNoChangeOfOthers(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		f := newFake()
		g := newGateway(t, Config{}, f)
		sent := map[string]func() int{
			"node":  watchOf(t, g, wire.KindTask, criteria{node: "n1"}),
			"job":   watchOf(t, g, wire.KindTask, criteria{job: "w2"}),
			"owner": watchOf(t, g, wire.KindJobStatus, criteria{owner: "alice"}),
			"queue": watchOf(t, g, wire.KindJobStatus, criteria{queue: "root.a"}),
		}
		synctest.Wait() // all have begun
		others := func(i int32) []wire.Mutation {
			return []wire.Mutation{
				taskIn(i, plimsoll.TaskRunning, "n2"),
				putStatus(plimsoll.JobStatus{ID: "w", Owner: "bob", Queue: "root.ab", Revision: uint64(i)}),
			}
		}
		for i := range int32(100) {
			f.put(others(i)...)
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if n := metricOf(t, g, "plimsoll_gateway_watch_encoded_total", ""); n != 0 {
			t.Errorf("%v changes of others were looked at", n)
		}
		if lag := g.watchers.lag(f.Changes()); lag != 0 {
			t.Errorf("watches that have nothing to look at lag by %d changes", lag)
		}
		f.put(taskIn(0, plimsoll.TaskRunning, "n1"),
			putStatus(plimsoll.JobStatus{ID: "v", Owner: "alice", Queue: "root.a.b"}),
			putTask(plimsoll.Task{Job: "w2", Group: "map", State: plimsoll.TaskPending}))
		time.Sleep(time.Second)
		synctest.Wait()
		for name, messages := range sent {
			if n := messages(); n != 2 {
				t.Errorf("the watch of a part by %s was sent %d messages, want the snapshot and a change", name, n)
			}
		}
		if n := metricOf(t, g, "plimsoll_gateway_watch_encoded_total", ""); n != 3 {
			t.Errorf("%v changes were looked at, want 3", n)
		}
	})
}

// Many watches that have caught up are sent fewer and fuller messages, and none waits for long.
func TestThePauseOfWatchesGrowsWithTheirNumberUpToABound(t *testing.T) {
	ws := &watchers{}
	for _, step := range []struct {
		watches int
		want    time.Duration
	}{{0, watchPause}, {100, watchPause}, {1000, 50 * time.Millisecond}, {10_000, longWatchPause}} {
		for len(ws.mu.set) < step.watches {
			ws.add(&watch{})
		}
		if got := ws.pause(); got != step.want {
			t.Errorf("%d watches pause for %s, want %s", step.watches, got, step.want)
		}
	}
}
