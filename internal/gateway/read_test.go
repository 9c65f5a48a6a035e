package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// cluster holds two jobs of two tasks, a node, queues and events.
func cluster() *fake {
	f := newFake()
	f.put(
		putSpec(specNamed("a")),
		putStatus(
			plimsoll.JobStatus{ID: "a", Owner: "alice", Queue: "root.batch", State: plimsoll.JobRunning, Revision: 1},
		),
		putSpec(specNamed("b.2")),
		putStatus(
			plimsoll.JobStatus{
				ID: "b.2", Owner: "bob", Queue: "root.batch.low", State: plimsoll.JobAccepted, Revision: 1,
			},
		),
		putStatus(
			plimsoll.JobStatus{ID: "c", Owner: "bob", Queue: "root.batches", State: plimsoll.JobCompleted, Revision: 1},
		),
		putTask(
			plimsoll.Task{
				Job: "a", Group: "map", Index: 0, Attempt: 1, State: plimsoll.TaskRunning, Node: "n1", Revision: 1,
			},
		),
		putTask(plimsoll.Task{Job: "a", Group: "map", Index: 1, State: plimsoll.TaskPending, Revision: 1}),
		putTask(
			plimsoll.Task{
				Job: "b.2", Group: "map", Index: 0, Attempt: 2, State: plimsoll.TaskFinished, Node: "n1", Revision: 1,
			},
		),
		putTask(plimsoll.Task{Job: "b.2", Group: "map", Index: 10, State: plimsoll.TaskPending, Revision: 1}),
		putNode(plimsoll.Node{ID: "n1", Incarnation: 3, Mode: plimsoll.NodeActive, Ready: true, Revision: 1}),
		putNode(plimsoll.Node{ID: "n2", Incarnation: 1, Mode: plimsoll.NodeCordoned, Revision: 1}),
		wire.Mutation{
			Kind: wire.KindNodeStatus, Key: "n1", Ephemeral: true,
			Value: wire.AppendNodeStatus(
				nil, &plimsoll.NodeStatus{ID: "n1", Tasks: 1, Allocated: plimsoll.Resources{"cpu": 500}},
			),
		},
		wire.Mutation{Kind: wire.KindQueueConfig, Value: wire.AppendQueueConfig(nil, new(plimsoll.DefaultQueues()))},
		wire.Mutation{
			Kind: wire.KindQueueStatus, Key: "root",
			Value: wire.AppendQueueStatus(nil, &plimsoll.QueueStatus{Path: "root"}),
		},
		wire.Mutation{
			Kind: wire.KindQueueStatus, Key: "root.batch",
			Value: wire.AppendQueueStatus(nil, &plimsoll.QueueStatus{Path: "root.batch", Leaf: true, Jobs: 2}),
		},
		wire.Mutation{
			Kind: wire.KindQueueStatus, Key: "root.empty",
			Value: wire.AppendQueueStatus(nil, &plimsoll.QueueStatus{Path: "root.empty", Leaf: true}),
		},
	)
	return f
}

func TestGetJobAndTask(t *testing.T) {
	s := directly(newGateway(t, Config{}, cluster()))
	job := must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "b.2"})
	if job.GetJob().GetStatus().GetOwner() != "bob" || job.GetJob().GetSpec().GetGroups()[0].GetEnv()["A"] != "b" || job.GetRevision() != 1 {
		t.Errorf("got %v", job)
	}
	got := must(t, s.jobs.GetTask, &pb.GetTaskRequest{Id: "b.2.map.10"})
	task := got.GetTask()
	if task.GetIndex() != 10 || task.GetState() != pb.TaskState_TASK_STATE_PENDING || got.GetRevision() != 1 {
		t.Errorf("got %v", got)
	}
}

func TestListJobs(t *testing.T) {
	s := directly(newGateway(t, Config{}, cluster()))
	tests := []struct {
		name string
		req  *pb.ListJobsRequest
		want []string
		next string
	}{
		{"all, in the order of ids", &pb.ListJobsRequest{}, []string{"a", "b.2", "c"}, ""},
		{"of an owner", &pb.ListJobsRequest{Owner: "bob"}, []string{"b.2", "c"}, ""},
		{"of a queue and below it", &pb.ListJobsRequest{Queue: "root.batch"}, []string{"a", "b.2"}, ""},
		{"of the whole tree", &pb.ListJobsRequest{Queue: "root"}, []string{"a", "b.2", "c"}, ""},
		{"of a queue without jobs", &pb.ListJobsRequest{Queue: "root.empty"}, nil, ""},
		{"of a queue that is gone", &pb.ListJobsRequest{Queue: "root.batches", Owner: "alice"}, nil, ""},
		{"in one of two states", &pb.ListJobsRequest{States: []pb.JobState{2, 6}}, []string{"b.2", "c"}, ""},
		{
			"by all filters", &pb.ListJobsRequest{Owner: "bob", Queue: "root.batch", States: []pb.JobState{2, 6}},
			[]string{"b.2"},
			"",
		},
		{"a page", &pb.ListJobsRequest{Limit: 2}, []string{"a", "b.2"}, "b.2"},
		{"the page after", &pb.ListJobsRequest{Limit: 2, After: "b.2"}, []string{"c"}, ""},
		{"a full last page", &pb.ListJobsRequest{Limit: 3}, []string{"a", "b.2", "c"}, ""},
		{"after an id that is gone", &pb.ListJobsRequest{After: "aa"}, []string{"b.2", "c"}, ""},
		{"a page of a filtered list", &pb.ListJobsRequest{Limit: 1, Owner: "bob"}, []string{"b.2"}, "b.2"},
		{"nothing more to come behind the filter", &pb.ListJobsRequest{Limit: 1, Owner: "alice"}, []string{"a"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			resp := must(t, s.jobs.ListJobs, test.req)
			var got []string
			for _, job := range resp.GetJobs() {
				got = append(got, job.GetId())
			}
			if !slices.Equal(got, test.want) || resp.GetNext() != test.next || resp.GetRevision() != 1 {
				t.Errorf(
					"got %v, next %q, revision %d; want %v, next %q", got, resp.GetNext(), resp.GetRevision(),
					test.want, test.next,
				)
			}
		})
	}
}

func TestListTasks(t *testing.T) {
	s := directly(newGateway(t, Config{}, cluster()))
	tests := []struct {
		name string
		req  *pb.ListTasksRequest
		want []string
		next string
	}{
		{"all", &pb.ListTasksRequest{}, []string{"a.map.0", "a.map.1", "b.2.map.0", "b.2.map.10"}, ""},
		{"of a job", &pb.ListTasksRequest{Job: "b.2"}, []string{"b.2.map.0", "b.2.map.10"}, ""},
		{"of a job without tasks", &pb.ListTasksRequest{Job: "c"}, nil, ""},
		{"of a node without tasks", &pb.ListTasksRequest{Node: "n2"}, nil, ""},
		{"of a job on a node without tasks of it", &pb.ListTasksRequest{Node: "n2", Job: "a"}, nil, ""},
		{"of a node", &pb.ListTasksRequest{Node: "n1"}, []string{"a.map.0"}, ""},
		{"of a job on a node", &pb.ListTasksRequest{Node: "n1", Job: "a"}, []string{"a.map.0"}, ""},
		{"in a state", &pb.ListTasksRequest{States: []pb.TaskState{1}}, []string{"a.map.1", "b.2.map.10"}, ""},
		{"a page", &pb.ListTasksRequest{Limit: 3}, []string{"a.map.0", "a.map.1", "b.2.map.0"}, "b.2.map.0"},
		{"the page after", &pb.ListTasksRequest{Limit: 3, After: "b.2.map.0"}, []string{"b.2.map.10"}, ""},
		{
			"after a task in the middle of the number order", &pb.ListTasksRequest{After: "b.2.map.9"},
			[]string{"b.2.map.10"},
			"",
		},
		{"of a node after a task", &pb.ListTasksRequest{Node: "n1", After: "a.late.0"}, []string{"a.map.0"}, ""},
		{"a page of a job", &pb.ListTasksRequest{Job: "a", Limit: 1}, []string{"a.map.0"}, "a.map.0"},
		{"of a job after a later job's task", &pb.ListTasksRequest{Job: "a", After: "b.2.map.0"}, nil, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			resp := must(t, s.jobs.ListTasks, test.req)
			var got []string
			for _, task := range resp.GetTasks() {
				got = append(got, taskID(task))
			}
			if !slices.Equal(got, test.want) || resp.GetNext() != test.next {
				t.Errorf("got %v, next %q; want %v, next %q", got, resp.GetNext(), test.want, test.next)
			}
		})
	}
}

func TestListsAreBoundedByThePageSize(t *testing.T) {
	s := directly(newGateway(t, Config{PageSize: 2}, cluster()))
	for _, limit := range []int32{0, 2, 3, 1 << 30} {
		if jobs := must(
			t, s.jobs.ListJobs, &pb.ListJobsRequest{Limit: limit},
		); len(jobs.GetJobs()) != 2 || jobs.GetNext() != "b.2" {
			t.Errorf("limit %d: got %v", limit, jobs)
		}
		if tasks := must(
			t, s.jobs.ListTasks, &pb.ListTasksRequest{Limit: limit},
		); len(tasks.GetTasks()) != 2 || tasks.GetNext() != "a.map.1" {
			t.Errorf("limit %d: got %v", limit, tasks)
		}
	}
}

func TestListNodesAndQueues(t *testing.T) {
	s := directly(newGateway(t, Config{}, cluster()))
	nodes := must(t, s.nodes.ListNodes, &pb.ListNodesRequest{}).GetNodes()
	if len(nodes) != 2 || nodes[0].GetStatus().GetAllocated().GetAmounts()["cpu"] != 500 || nodes[1].GetNode().GetId() != "n2" || nodes[1].GetStatus() != nil {
		t.Errorf("nodes are %v", nodes)
	}
	queues := must(t, s.queues.ListQueues, &pb.ListQueuesRequest{}).GetQueues()
	if len(queues) != 3 || queues[1].GetPath() != "root.batch" || queues[1].GetJobs() != 2 {
		t.Errorf("queues are %v", queues)
	}
	config := must(t, s.queues.GetQueueConfig, &pb.GetQueueConfigRequest{}).GetConfig()
	if config.GetName() != "root" || len(config.GetQueues()) != 2 {
		t.Errorf("the configuration is %v", config)
	}
}

func TestListEvents(t *testing.T) {
	f := cluster()
	var events []plimsoll.Event
	for _, pair := range [][2]string{
		{"a", ""}, {"root.batch", "a"}, {"n1", "a.map.0"}, {"ab", ""}, {"a", "a.map.1"}, {"n1", "ab.map.0"},
	} {
		events = append(events, plimsoll.Event{
			Type: plimsoll.EventApp, Time: int64(len(events)), Object: pair[0], Reference: pair[1], Message: pair[0],
		})
	}
	f.emit(events...)
	s := directly(newGateway(t, Config{PageSize: 5}, f))
	tests := []struct {
		name string
		req  *pb.ListEventsRequest
		ids  []uint64
		next uint64
	}{
		{"from the oldest, as many as a page has", &pb.ListEventsRequest{}, []uint64{0, 1, 2, 3, 4}, 5},
		{"from the next on", &pb.ListEventsRequest{Start: new(uint64(5))}, []uint64{5}, 6},
		{"nothing new", &pb.ListEventsRequest{Start: new(uint64(6))}, nil, 6},
		{"far beyond, and never back", &pb.ListEventsRequest{Start: new(uint64(99))}, nil, 99},
		{"some", &pb.ListEventsRequest{Start: new(uint64(1)), Count: 2}, []uint64{1, 2}, 3},
		{"more than there are", &pb.ListEventsRequest{Start: new(uint64(4)), Count: 1 << 63}, []uint64{4, 5}, 6},
		{"of a job and its tasks", &pb.ListEventsRequest{Object: "a"}, []uint64{0, 1, 2, 4}, 6},
		{"of a task", &pb.ListEventsRequest{Object: "a.map.1"}, []uint64{4}, 6},
		{"of a node", &pb.ListEventsRequest{Object: "n1"}, []uint64{2, 5}, 6},
		{"some of a job", &pb.ListEventsRequest{Object: "a", Count: 3}, []uint64{0, 1, 2}, 3},
		{"since a time", &pb.ListEventsRequest{Since: 3}, []uint64{3, 4, 5}, 6},
		{"since a time to come", &pb.ListEventsRequest{Since: 99}, nil, 6},
		{
			"about jobs", &pb.ListEventsRequest{Types: []pb.EventSubject{pb.EventSubject_EVENT_SUBJECT_JOB}},
			[]uint64{0, 3},
			6,
		},
		{
			"about tasks of a job, since a time", &pb.ListEventsRequest{
				Object: "a", Since: 2, Types: []pb.EventSubject{pb.EventSubject_EVENT_SUBJECT_TASK},
			}, []uint64{2, 4}, 6,
		},
		{"of nobody", &pb.ListEventsRequest{Object: "nobody"}, nil, 6},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			resp := must(t, s.events.ListEvents, test.req)
			if !slices.Equal(
				resp.GetIds(), test.ids,
			) || resp.GetNext() != test.next || resp.GetLowestId() != 0 || resp.GetHighestId() != 5 {
				t.Errorf("got %v, next %d; want %v, next %d", resp.GetIds(), resp.GetNext(), test.ids, test.next)
			}
			for i, ev := range resp.GetEvents() {
				want := events[resp.GetIds()[i]]
				if ev.GetObject() != want.Object || ev.GetReference() != want.Reference || ev.GetTime() != want.Time {
					t.Errorf("event %d is %v, want %+v", resp.GetIds()[i], ev, want)
				}
			}
		})
	}
	empty := must(t, directly(newGateway(t, Config{}, newFake())).events.ListEvents, &pb.ListEventsRequest{})
	if len(empty.GetIds()) != 0 || empty.GetNext() != 0 {
		t.Errorf("without events: %v", empty)
	}
}

// reads are all calls that must be strict.
func reads(s *served) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"GetJob": func(ctx context.Context) error {
			_, err := callIn(ctx, s.jobs.GetJob, &pb.GetJobRequest{Id: "a"})
			return err
		},
		"ListJobs": func(ctx context.Context) error {
			_, err := callIn(ctx, s.jobs.ListJobs, &pb.ListJobsRequest{})
			return err
		},
		"GetTask": func(ctx context.Context) error {
			_, err := callIn(ctx, s.jobs.GetTask, &pb.GetTaskRequest{Id: "a.map.0"})
			return err
		},
		"ListTasks": func(ctx context.Context) error {
			_, err := callIn(ctx, s.jobs.ListTasks, &pb.ListTasksRequest{})
			return err
		},
		"ListNodes": func(ctx context.Context) error {
			_, err := callIn(ctx, s.nodes.ListNodes, &pb.ListNodesRequest{})
			return err
		},
		"ListQueues": func(ctx context.Context) error {
			_, err := callIn(ctx, s.queues.ListQueues, &pb.ListQueuesRequest{})
			return err
		},
		"GetQueueConfig": func(ctx context.Context) error {
			_, err := callIn(ctx, s.queues.GetQueueConfig, &pb.GetQueueConfigRequest{})
			return err
		},
		"ListEvents": func(ctx context.Context) error {
			_, err := callIn(ctx, s.events.ListEvents, &pb.ListEventsRequest{})
			return err
		},
	}
}

// "During a leader failover all reads of active data are rejected": a copy is there, and nobody
// gets it.
func TestWithoutALeaderNoReadIsAnswered(t *testing.T) {
	f := cluster()
	f.down = errNoLeader
	for name, read := range reads(directly(newGateway(t, Config{}, f))) {
		if err := read(context.Background()); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || !strings.Contains(
			err.Error(), "try again",
		) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestALeaderThatHangsCostsAReadTheBarrierTimeout(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		f := cluster()
		f.hang = true
		for name, read := range reads(directly(newGateway(t, Config{}, f))) {
			began := time.Now()
			err := read(context.Background())
			if waited := time.Since(
				began,
			); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || waited != 3*time.Second {
				t.Errorf("%s: %v after %s", name, err, waited)
			}
		}
	})
}

func TestACallersOwnEndIsNotTheLeadersFault(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		f := cluster()
		f.hang = true
		g := newGateway(t, Config{}, f)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := g.read(ctx); plimsoll.CodeOf(err) != plimsoll.CodeDeadline {
			t.Errorf("after the caller's time: %v", err)
		}
		ctx, cancel = context.WithCancel(context.Background())
		cancel()
		if _, err := g.read(ctx); plimsoll.CodeOf(err) != plimsoll.CodeCanceled {
			t.Errorf("after the caller went away: %v", err)
		}
	})
}

func TestACorruptRecordIsAnErrorThatNamesIt(t *testing.T) {
	f := cluster()
	f.put(wire.Mutation{Kind: wire.KindJobStatus, Key: "bad", Value: []byte{0xff}})
	var faults []string
	g := newGateway(
		t, Config{Events: Events{Fault: func(rpc string, err error) { faults = append(faults, fmt.Sprint(rpc, err)) }}},
		f,
	)
	s := directly(g)
	for _, err := range []error{
		second(call(s.jobs.GetJob, &pb.GetJobRequest{Id: "bad"})), second(call(s.jobs.ListJobs, &pb.ListJobsRequest{})),
	} {
		if plimsoll.CodeOf(err) != plimsoll.CodeCorrupt || !strings.Contains(err.Error(), `"bad"`) {
			t.Errorf("got %v", err)
		}
	}
	if len(faults) != 2 {
		t.Errorf("the log was told %q", faults)
	}
	must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "a"})
}

func second[A any](_ A, err error) error { return err }
