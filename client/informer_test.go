package client_test

import (
	"context"
	"expvar"
	"fmt"
	"log"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/informer"
)

// An informer resumes behind the last whole revision, and takes a snapshot when the history is too
// short. A task that left the filter is not in the copy, and one that two parts of a revision
// changed is in its last state.
func TestAnInformerFollowsAWatchThroughItsBreaks(t *testing.T) {
	s := &watchServer{streams: []watchStream{
		{[]*pb.WatchTasksResponse{
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_PRESENT, 0, 0)},
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_PRESENT, 0, 1), Point: at(1, 10, 0), SnapshotEnd: true},
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_ADDED, 11, 2, 3), Point: at(1, 10, 2)},
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_LEFT, 11, 0, 3), Point: at(1, 11, 0)},
			{Point: at(1, 11, 0)},
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_ADDED, 12, 9), Point: at(1, 11, 1)}, // in part only
		}, plimsoll.CodeUnavailable},
		{nil, plimsoll.CodeStale},
		{[]*pb.WatchTasksResponse{
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_PRESENT, 0, 2, 5), Point: at(2, 30, 0), SnapshotEnd: true},
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_DELETED, 31, 5), Point: at(2, 31, 0)},
			{Point: at(2, 40, 0)},
		}, plimsoll.CodeUnavailable},
	}}
	c, stop, err := s.start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var config informer.Config[plimsoll.Task]
	config.Backoff = plimsoll.Backoff{First: 1, Longest: 1}
	tasks, err := c.TaskInformer(client.TaskFilter{}, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tasks.Run(ctx) }()
	for _, step := range []struct {
		at   informer.Version
		want string
	}{{informer.Version{Epoch: 2, Revision: 40}, "a.map.2"}} {
		if err := tasks.Indexer().WaitFor(ctx, step.at); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(slices.Collect(tasks.Indexer().Keys()), " "); got != step.want {
			t.Errorf("at %s it has %q, want %q", step.at, got, step.want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if from := strings.Join(s.from[:3], " "); from != "0.0+0 1.11+0 0.0+0" {
		t.Errorf("the streams began at %s", from)
	}
}

func TestAnInformerRefusesASourceOfItsCaller(t *testing.T) {
	c, err := client.New(client.Config{Server: "unix:/nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.QueueInformer(informer.Config[plimsoll.QueueStatus]{
		Key: func(q plimsoll.QueueStatus) (string, error) { return q.Path, nil },
	})
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Error(err)
	}
}

// A program keeps a copy of the running tasks of a job. It waits for a revision that it has seen
// elsewhere, and counts by an index. Handlers are told of each change (informer.Handler).
func ExampleClient_TaskInformer() {
	c, stop, err := new(gateway).start()
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	running := client.TaskFilter{Job: "wordcount", States: []plimsoll.TaskState{plimsoll.TaskRunning}}
	tasks, err := c.TaskInformer(running, informer.Config[plimsoll.Task]{
		Indexes: []informer.Index[plimsoll.Task]{{
			Name: "job",
			Values: func(t plimsoll.Task, to []string) ([]string, error) {
				return append(to, t.Job), nil
			},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tasks.Run(ctx) }()
	if err := tasks.Indexer().WaitFor(ctx, informer.Version{Epoch: 1, Revision: 9}); err != nil {
		log.Fatal(err)
	}
	now := tasks.Indexer().Snapshot()
	for id := range now.All() {
		fmt.Println(id)
	}
	fmt.Println(now.CountByIndex("job", "wordcount"))
	cancel()
	fmt.Println(<-ended)
	// Output:
	// wordcount.map.1
	// 1 <nil>
	// <nil>
}

// A program exports how far its informer is, with the metrics package of the standard library. The
// rate of changes is the growth of "queued".
func ExampleClient_NodeInformer() {
	c, err := client.New(client.Config{Server: "unix:/run/plimsoll/gateway.sock"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	nodes, err := c.NodeInformer(informer.Config[client.NodeInfo]{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := nodes.AddHandler(informer.Handler[client.NodeInfo]{
		Add: func(n client.NodeInfo, _ bool) { log.Print(n.Node.ID) },
	}, informer.HandlerOptions{Name: "printer"}); err != nil {
		log.Fatal(err)
	}

	exported := expvar.NewMap("nodes")
	exported.Set("informer", expvar.Func(func() any {
		stats := nodes.Stats()
		values := map[string]any{
			"objects": stats.Objects, "revision": stats.Shown.Revision,
			"depth": stats.Queue.Depth, "oldest_seconds": stats.Queue.Oldest.Seconds(), "queued": stats.Queue.Queued,
			"overflows": stats.Queue.Overflows, "faults": stats.Faults,
		}
		for _, h := range stats.Handlers {
			values[h.Name+"_pending"], values[h.Name+"_delivered"] = h.Pending, h.Delivered
		}
		return values
	}))
	fmt.Println(exported)
	// Output:
	// {"informer": {"depth":0,"faults":0,"objects":0,"oldest_seconds":0,"overflows":0,"printer_delivered":0,"printer_pending":0,"queued":0,"revision":0}}
}
