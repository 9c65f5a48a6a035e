package gateway

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// watchClient returns a client of the watches of a gateway.
func watchClient(t testing.TB, s *served, options ...connect.ClientOption) plimsollv1connect.WatchServiceClient {
	t.Helper()
	client, url, err := transport.Client(s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return plimsollv1connect.NewWatchServiceClient(client, url, options...)
}

// metricOf returns a counter of a gateway; label is the value of its label, if it has one.
func metricOf(t testing.TB, g *Gateway, name, label string) float64 {
	t.Helper()
	families, err := g.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("there is no metric %s %s", name, label)
	return 0
}

func taskIn(index int32, state plimsoll.TaskState, node string) wire.Mutation {
	return putTask(plimsoll.Task{Job: "w", Group: "map", Index: index, State: state, Node: node})
}

func describeTasks(m *pb.WatchTasksResponse) string {
	var b strings.Builder
	for _, c := range m.GetTasks() {
		word := strings.ToLower(strings.TrimPrefix(c.GetChange().String(), "WATCH_CHANGE_"))
		fmt.Fprintf(&b, "%s %s %s@%s; ", word, taskID(c.GetTask()), plimsoll.TaskState(c.GetTask().GetState()),
			c.GetTask().GetNode())
	}
	if m.GetSnapshotEnd() {
		b.WriteString("end")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestWatchTasksSendsASnapshotAMarkerAndEachChange(t *testing.T) {
	for _, form := range []struct {
		name    string
		options []connect.ClientOption
	}{
		{"Connect", nil},
		{"gRPC", []connect.ClientOption{connect.WithGRPC()}},
		{"JSON", []connect.ClientOption{connect.WithProtoJSON()}},
	} {
		t.Run(form.name, func(t *testing.T) {
			f := newFake()
			f.put(taskIn(0, plimsoll.TaskRunning, "n1"), taskIn(1, plimsoll.TaskPending, ""),
				taskIn(2, plimsoll.TaskRunning, "n2"))
			watch := watchClient(t, serve(t, Config{}, f), form.options...)
			stream := open(t, watch.WatchTasks, &pb.WatchTasksRequest{
				Job: "w", States: []pb.TaskState{pb.TaskState_TASK_STATE_RUNNING},
			})
			var point *pb.WatchPoint
			for _, step := range []struct {
				name string
				do   func()
				want string
			}{
				{"those that run", func() {}, "present w.map.0 Running@n1; present w.map.2 Running@n2; end"},
				{"one begins to run", func() {
					f.put(taskIn(1, plimsoll.TaskBound, "n1"), taskIn(3, plimsoll.TaskPending, ""))
					f.put(taskIn(1, plimsoll.TaskRunning, "n1"))
				}, "added w.map.1 Running@n1"},
				{
					"one changes, one leaves, one goes, one of another job comes", func() {
						f.put(taskIn(0, plimsoll.TaskRunning, "n3"), taskIn(1, plimsoll.TaskFinished, "n1"),
							deleted(taskIn(2, 0, "")),
							putTask(plimsoll.Task{Job: "other", Group: "map", State: plimsoll.TaskRunning}))
					}, "updated w.map.0 Running@n3; left w.map.1 Finished@n1; deleted w.map.2 Running@n2",
				},
			} {
				step.do()
				m := receive(t, stream)
				if got := describeTasks(m); got != step.want {
					t.Errorf("%s: %q, want %q", step.name, got, step.want)
				}
				point = m.GetPoint()
			}
			f.put(taskIn(0, plimsoll.TaskFinished, "n3"))
			again := open(t, watch.WatchTasks, &pb.WatchTasksRequest{
				Job: "w", States: []pb.TaskState{pb.TaskState_TASK_STATE_RUNNING}, From: point,
			})
			if got := describeTasks(receive(t, again)); got != "left w.map.0 Finished@n3" {
				t.Errorf("resumed at %v: %q", point, got)
			}
		})
	}
}

func TestWatchJobsSendsSpecificationsOnRequest(t *testing.T) {
	f := cluster()
	watch := watchClient(t, serve(t, Config{}, f))
	plain := open(t, watch.WatchJobs, &pb.WatchJobsRequest{Queue: "root.batch"})
	whole := open(t, watch.WatchJobs, &pb.WatchJobsRequest{Queue: "root.batch", Specs: true})
	describe := func(m *pb.WatchJobsResponse) (text string) {
		for _, c := range m.GetJobs() {
			text += fmt.Sprintf("%d %s %s spec=%t; ", c.GetChange(), c.GetJob().GetStatus().GetId(),
				plimsoll.JobState(c.GetJob().GetStatus().GetState()), c.GetJob().GetSpec() != nil)
		}
		return text
	}
	if got := describe(receive(t, plain)); strings.Contains(got, "spec=true") || !strings.Contains(got, "1 a Running") {
		t.Errorf("without specifications: %s", got)
	}
	if got := describe(receive(t, whole)); !strings.Contains(got, "1 a Running spec=true") {
		t.Errorf("with specifications: %s", got)
	}
	changed := specNamed("a")
	changed.Groups[0].Count = 5
	f.put(putSpec(changed)) // the status is as it was
	if got := describe(receive(t, whole)); got != "3 a Running spec=true; " {
		t.Errorf("a specification: %s", got)
	}
	f.put(putStatus(plimsoll.JobStatus{ID: "a", Queue: "root.other", State: plimsoll.JobRunning}))
	if got := describe(receive(t, plain)); got != "4 a Running spec=false; " {
		t.Errorf("moved to another queue: %s", got)
	}
	if got := describe(receive(t, whole)); got != "4 a Running spec=true; " {
		t.Errorf("moved to another queue: %s", got)
	}
}

func TestWatchNodesJoinsBothRecordsAndWatchQueuesSendsThem(t *testing.T) {
	f := newFake()
	use := func(tasks int32) wire.Mutation {
		s := plimsoll.NodeStatus{ID: "n1", Tasks: tasks}
		return wire.Mutation{Kind: wire.KindNodeStatus, Key: "n1", Value: wire.AppendNodeStatus(nil, &s)}
	}
	f.put(putNode(plimsoll.Node{ID: "n1"}), use(1))
	watch := watchClient(t, serve(t, Config{}, f))
	nodes := open(t, watch.WatchNodes, &pb.WatchNodesRequest{})
	queues := open(t, watch.WatchQueues, &pb.WatchQueuesRequest{})
	if m := receive(t, nodes); len(m.GetNodes()) != 1 || !m.GetSnapshotEnd() ||
		m.GetNodes()[0].GetNode().GetStatus().GetTasks() != 1 {
		t.Errorf("the snapshot is %v", m)
	}
	f.put(use(2))
	if m := receive(t, nodes); m.GetNodes()[0].GetNode().GetNode().GetId() != "n1" ||
		m.GetNodes()[0].GetNode().GetStatus().GetTasks() != 2 {
		t.Errorf("the change is %v", m)
	}
	if m := receive(t, queues); len(m.GetQueues()) != 0 || !m.GetSnapshotEnd() {
		t.Errorf("the queues are %v", m)
	}
	q := plimsoll.QueueStatus{Path: "root.new", Jobs: 3}
	f.put(wire.Mutation{Kind: wire.KindQueueStatus, Key: q.Path, Value: wire.AppendQueueStatus(nil, &q)})
	if m := receive(t, queues); m.GetQueues()[0].GetQueue().GetJobs() != 3 ||
		m.GetQueues()[0].GetChange() != pb.WatchChange_WATCH_CHANGE_ADDED {
		t.Errorf("the change is %v", m)
	}
}

func TestWatchIsRefusedWithoutALeaderAndEndsIfTheHistoryBeginsAnew(t *testing.T) {
	f := cluster()
	s := serve(t, Config{}, f)
	watch := watchClient(t, s)
	stream := open(t, watch.WatchNodes, &pb.WatchNodesRequest{})
	point := receive(t, stream).GetPoint()
	f.elect()
	if err := ending(t, stream); plimsoll.CodeOf(err) != plimsoll.CodeStale ||
		!strings.Contains(err.Error(), "begin again") {
		t.Errorf("after a change of the leader: %v", err)
	}
	resumed := open(t, watch.WatchNodes, &pb.WatchNodesRequest{From: point})
	if err := ending(t, resumed); plimsoll.CodeOf(err) != plimsoll.CodeStale {
		t.Errorf("a point of the leader before: %v", err)
	}
	f.set(func(f *fake) { f.down = errNoLeader })
	stream = open(t, watch.WatchNodes, &pb.WatchNodesRequest{})
	if err := ending(t, stream); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("without a leader: %v", err)
	}
	for reason, want := range map[string]float64{cutEpoch: 1, cutPoint: 1, cutBehind: 0} {
		if got := metricOf(t, s.gateway, "plimsoll_gateway_watches_cut_total", reason); got != want {
			t.Errorf("%v watches were cut for %s, want %v", got, reason, want)
		}
	}
}

// A watch goes on when another leader takes over: it is sent what differs, in a message of its own.
// It goes on too if it comes back behind the takeover with a point from before.
func TestAWatchGoesOnWhenAnotherLeaderTakesOver(t *testing.T) {
	f := cluster()
	s := serve(t, Config{}, f)
	watch := watchClient(t, s)
	stream := open(t, watch.WatchNodes, &pb.WatchNodesRequest{})
	before := receive(t, stream).GetPoint()
	f.takeOver(putNode(plimsoll.Node{ID: "n9"}))
	f.put(putNode(plimsoll.Node{ID: "n10"}))
	resumed := open(t, watch.WatchNodes, &pb.WatchNodesRequest{From: before})
	for name, stream := range map[string]*connect.ServerStreamForClient[pb.WatchNodesResponse]{
		"a watch over the takeover": stream, "one that resumes behind it": resumed,
	} {
		for revision, id := range []string{"n9", "n10"} {
			m := receive(t, stream)
			p := m.GetPoint()
			if len(m.GetNodes()) != 1 || m.GetNodes()[0].GetNode().GetNode().GetId() != id || m.GetSnapshotEnd() ||
				p.GetEpoch() != before.GetEpoch()+1 || p.GetRevision() != before.GetRevision()+uint64(revision)+1 {
				t.Errorf("%s: %v, want node %s", name, m, id)
			}
		}
	}
	if got := metricOf(t, s.gateway, "plimsoll_gateway_watches_cut_total", cutEpoch); got != 0 {
		t.Errorf("%v watches were cut", got)
	}
}

// collected runs a watch of tasks in a bubble, and returns its messages.
func collected(ctx context.Context, g *Gateway, want criteria, got func(*pb.WatchTasksResponse)) error {
	w := watch{g: g, rpc: "WatchTasks", kind: wire.KindTask, want: want, send: func(data []byte) error {
		m := &pb.WatchTasksResponse{}
		err := proto.Unmarshal(data, m)
		got(m)
		return err
	}}
	return w.run(ctx)
}

// 1,000 watchers with three criteria share the work on each change.
func TestAThousandWatchersShareTheEncodingOfAChange(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		const watchers, changes = 1000, 50
		f := newFake()
		g := newGateway(t, Config{}, f)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		var mu sync.Mutex
		received := 0
		for i := range watchers {
			want := []criteria{{}, {node: "n1"}, {node: "n2"}}[i%3]
			group.Go(func() {
				err := collected(ctx, g, want, func(m *pb.WatchTasksResponse) {
					mu.Lock()
					defer mu.Unlock()
					received += len(m.GetTasks())
				})
				if plimsoll.CodeOf(err) != plimsoll.CodeCanceled {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for i := range int32(changes) {
			f.put(taskIn(i, plimsoll.TaskRunning, "n1"))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := metricOf(t, g, "plimsoll_gateway_watch_encoded_total", ""); n != changes {
			t.Errorf("%d changes were prepared %v times for %d watchers", changes, n, watchers)
		}
		if want := changes * (334 + 333); received != want {
			t.Errorf("%d changes were received, want %d", received, want)
		}
		if n := metricOf(t, g, "plimsoll_gateway_watch_changes_total", ""); n != float64(received) {
			t.Errorf("%v changes are counted, want %d", n, received)
		}
		cancel()
		group.Wait()
	})
}

func TestAQuietWatchIsSentBookmarks(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		f := newFake()
		g := newGateway(t, Config{}, f)
		ctx, cancel := context.WithCancel(t.Context())
		var points []uint64
		var group sync.WaitGroup
		group.Go(func() {
			_ = collected(ctx, g, criteria{node: "n1"}, func(m *pb.WatchTasksResponse) { // it is canceled
				points = append(points, m.GetPoint().GetRevision())
			})
		})
		time.Sleep(3 * bookmarkInterval)
		synctest.Wait()
		if fmt.Sprint(points) != "[0]" {
			t.Errorf("without a change of the revision there are the points %v", points)
		}
		f.emit(plimsoll.Event{}) // a revision without a change of a task
		f.put(taskIn(1, plimsoll.TaskRunning, "n2"))
		time.Sleep(2 * bookmarkInterval)
		synctest.Wait()
		if fmt.Sprint(points) != "[0 2]" {
			t.Errorf("behind changes of others there are the points %v", points)
		}
		for range bookmarkChanges + 1 { // all within a moment: no time passes
			f.put(taskIn(2, plimsoll.TaskRunning, "n2"))
			f.put(taskIn(2, plimsoll.TaskFinished, "n2"))
			synctest.Wait()
		}
		if len(points) < 3 {
			t.Errorf("a watch that passes over many changes has only the points %v", points)
		}
		cancel()
		group.Wait()
	})
}

func TestAWatchThatIsReadTooSlowlyIsToldSo(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		f := newFake()
		f.history = replica.NewHistory(10_000)
		f.history.Reset(1, 0)
		f.changes = f.history.View()
		g := newGateway(t, Config{}, f)
		reads := make(chan struct{})
		ended := make(chan error)
		go func() {
			ended <- collected(t.Context(), g, criteria{}, func(*pb.WatchTasksResponse) { <-reads })
		}()
		reads <- struct{}{} // the snapshot
		for i := range int32(100) {
			f.put(taskIn(i, plimsoll.TaskRunning, "n1"))
			synctest.Wait()
			if lag := g.watchers.lag(f.Changes()); i == 50 && lag < 40 {
				t.Errorf("the lag is %d", lag)
			}
		}
		reads <- struct{}{}
		err := <-ended
		if plimsoll.CodeOf(err) != plimsoll.CodeStale || !strings.Contains(err.Error(), "read so slowly") {
			t.Errorf("the watch ends with %v", err)
		}
		if n := metricOf(t, g, "plimsoll_gateway_watches_cut_total", cutBehind); n != 1 {
			t.Errorf("%v watches were cut", n)
		}
	})
}

func TestMessagesOfAllWatchesHaveTheSameFields(t *testing.T) {
	fields := func(d protoreflect.MessageDescriptor) (numbers [3]protoreflect.Kind) {
		for i := range d.Fields().Len() {
			if f := d.Fields().Get(i); f.Number() == fieldArchived && f.Name() == "archived" {
				continue // of jobs alone
			}
			numbers[d.Fields().Get(i).Number()-1] = d.Fields().Get(i).Kind()
		}
		return numbers
	}
	var response, change [3]protoreflect.Kind
	response[fieldChanges-1], response[fieldPoint-1] = protoreflect.MessageKind, protoreflect.MessageKind
	response[fieldSnapshotEnd-1] = protoreflect.BoolKind
	change[fieldChange-1], change[fieldObject-1] = protoreflect.EnumKind, protoreflect.MessageKind
	change[fieldRevision-1] = protoreflect.Uint64Kind
	for _, m := range []proto.Message{
		&pb.WatchJobsResponse{}, &pb.WatchTasksResponse{}, &pb.WatchNodesResponse{}, &pb.WatchQueuesResponse{},
	} {
		d := m.ProtoReflect().Descriptor()
		if got := fields(d); got != response {
			t.Errorf("%s has the fields %v, want %v", d.Name(), got, response)
		}
		if got := fields(d.Fields().ByNumber(fieldChanges).Message()); got != change {
			t.Errorf("%s has changes with the fields %v, want %v", d.Name(), got, change)
		}
	}
	encoded := watchMessage{}
	encoded.end(replica.Point{Epoch: 3, Revision: 5, Part: 7}, true)
	m := &pb.WatchTasksResponse{}
	want := &pb.WatchTasksResponse{Point: &pb.WatchPoint{Epoch: 3, Revision: 5, Part: 7}, SnapshotEnd: true}
	if err := proto.Unmarshal(encoded.data, m); err != nil || !proto.Equal(m, want) {
		t.Errorf("a point is decoded as %v: %v", m, err)
	}
}

func TestWatchEventsSendsRecentEventsAndNewOnes(t *testing.T) {
	f := newFake()
	f.emit(plimsoll.Event{Object: "a"}, plimsoll.Event{Object: "b"})
	watch := watchClient(t, serve(t, Config{}, f))
	stream := open(t, watch.WatchEvents, &pb.WatchEventsRequest{Object: "a"})
	if m := receive(t, stream); fmt.Sprint(m.GetIds()) != "[0]" || m.GetNext() != 2 {
		t.Errorf("recent events: %v", m)
	}
	f.emit(plimsoll.Event{Object: "c"}, plimsoll.Event{Object: "a"})
	if m := receive(t, stream); fmt.Sprint(m.GetIds()) != "[3]" || m.GetNext() != 4 {
		t.Errorf("a new event: %v", m)
	}
	later := uint64(3)
	stream = open(t, watch.WatchEvents, &pb.WatchEventsRequest{Start: &later})
	if m := receive(t, stream); fmt.Sprint(m.GetIds()) != "[3]" {
		t.Errorf("from 3 on: %v", m)
	}
}

// A task keeps the name of its node when it has ended, and is not on it any more. Lists and watches
// of a node agree on that, whichever other criteria they have.
func TestTheTasksOfANodeAreThoseOnItNow(t *testing.T) {
	f := newFake()
	f.put(putNode(plimsoll.Node{ID: "n1"}), putStatus(plimsoll.JobStatus{ID: "w"}),
		taskIn(0, plimsoll.TaskRunning, "n1"), taskIn(1, plimsoll.TaskFinished, "n1"),
		taskIn(2, plimsoll.TaskFinished, "n2"), taskIn(3, plimsoll.TaskFinished, "n2"))
	s := serve(t, Config{}, f)
	finished := []pb.TaskState{pb.TaskState_TASK_STATE_FINISHED}
	for _, c := range []struct {
		req  *pb.ListTasksRequest
		want int
	}{
		{&pb.ListTasksRequest{Node: "n1"}, 1},
		{&pb.ListTasksRequest{Node: "n1", Job: "w"}, 1},
		{&pb.ListTasksRequest{Node: "n1", States: finished}, 0},
		{&pb.ListTasksRequest{Node: "n1", Job: "w", States: finished}, 0},
		{&pb.ListTasksRequest{Job: "w", States: finished}, 3},
	} {
		res, err := s.jobs.ListTasks(t.Context(), connect.NewRequest(c.req))
		if err != nil || len(res.Msg.GetTasks()) != c.want {
			t.Errorf("%v: %v, %v; want %d", c.req, res, err, c.want)
		}
	}
	stream := open(t, watchClient(t, s).WatchTasks, &pb.WatchTasksRequest{Node: "n1"})
	if got := describeTasks(receive(t, stream)); got != "present w.map.0 Running@n1; end" {
		t.Errorf("at first: %q", got)
	}
	f.put(taskIn(0, plimsoll.TaskFinished, "n1"))
	if got := describeTasks(receive(t, stream)); got != "left w.map.0 Finished@n1" {
		t.Errorf("at its end: %q", got)
	}
}
