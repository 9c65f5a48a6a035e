package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func TestWatchJobSendsNowAfterEachChangeAndEndsWithTheJob(t *testing.T) {
	f := cluster()
	s := serve(t, Config{}, f)
	stream := open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Id: "a"})
	if got := receive(
		t, stream,
	).GetStatus(); got.GetState() != pb.JobState_JOB_STATE_RUNNING || got.GetOwner() != "alice" {
		t.Errorf("now it is %v", got)
	}
	f.reconnect() // signals, and nothing has changed: nothing is sent
	f.put(putStatus(plimsoll.JobStatus{ID: "b.2", State: plimsoll.JobRunning, Revision: 2}))
	f.put(putStatus(plimsoll.JobStatus{ID: "a", State: plimsoll.JobCompleting, Revision: 3}))
	if got := receive(t, stream).GetStatus().GetState(); got != pb.JobState_JOB_STATE_COMPLETING {
		t.Errorf("then it is %v", got)
	}
	f.put(putStatus(plimsoll.JobStatus{ID: "a", State: plimsoll.JobCompleted, Revision: 4}))
	if got := receive(t, stream).GetStatus().GetState(); got != pb.JobState_JOB_STATE_COMPLETED {
		t.Errorf("at last it is %v", got)
	}
	if err := ending(t, stream); err != nil {
		t.Errorf("it ends with %v", err)
	}
}

func TestWatchJobOfWhatHasEndedOrIsGone(t *testing.T) {
	f := cluster()
	s := serve(t, Config{}, f)
	stream := open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Id: "c"})
	receive(t, stream)
	if err := ending(t, stream); err != nil {
		t.Errorf("of a job that has ended: %v", err)
	}
	if err := ending(
		t, open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Id: "gone"}),
	); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("of a job that is not there: %v", err)
	}
	if err := ending(t, open(t, s.jobs.WatchJob, &pb.WatchJobRequest{})); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("of no id: %v", err)
	}
	stream = open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Id: "a"})
	receive(t, stream)
	f.put(deleted(putStatus(plimsoll.JobStatus{ID: "a"})))
	if err := ending(t, stream); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("of a job that goes: %v", err)
	}
	f.set(func(f *fake) { f.down = errNoLeader })
	if err := ending(
		t, open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Id: "b.2"}),
	); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("without a leader: %v", err)
	}
}

func assignedTask(index int32, state plimsoll.TaskState, revision uint64) wire.Mutation {
	return putTask(
		plimsoll.Task{Job: "a", Group: "map", Index: index, Attempt: 1, State: state, Node: "n1", Revision: revision},
	)
}

func describe(m *pb.WatchAssignmentsResponse) string {
	var b strings.Builder
	for _, a := range m.GetChanged() {
		fmt.Fprintf(&b, "%s/%d %s owner=%s command=%s; ", taskID(
			a.GetTask(),
		), a.GetTask().GetAttempt(), plimsoll.TaskState(a.GetTask().GetState()),
			a.GetOwner(), strings.Join(a.GetSpec().GetCommand(), " "))
	}
	for _, id := range slices.Sorted(slices.Values(m.GetRemoved())) {
		fmt.Fprintf(&b, "-%s; ", id)
	}
	if m.GetSnapshotEnd() {
		b.WriteString("end")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestWatchAssignmentsSendsAllThenAMarkerThenChanges(t *testing.T) {
	f := cluster()
	s := serve(t, Config{}, f)
	stream := open(t, s.agents.WatchAssignments, &pb.WatchAssignmentsRequest{Node: "n1", Incarnation: 3})
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{"what is there; a finished task is not", func() {}, "a.map.0/1 Running owner=alice command=true; end"},
		{
			"a new task", func() { f.put(assignedTask(1, plimsoll.TaskBound, 2)) },
			"a.map.1/1 Bound owner=alice command=true",
		},
		{"a task of another node, then a task to be stopped", func() {
			f.put(
				putTask(
					plimsoll.Task{Job: "a", Group: "map", Index: 5, State: plimsoll.TaskBound, Node: "n2", Revision: 3},
				),
			)
			f.put(assignedTask(1, plimsoll.TaskStopping, 4))
		}, "a.map.1/1 Stopping owner=alice command=true"},
		{"a task that ends", func() { f.put(assignedTask(1, plimsoll.TaskFinished, 5)) }, "-a.map.1"},
		{"a task that goes back to wait for its next attempt", func() {
			f.put(
				putTask(
					plimsoll.Task{
						Job: "a", Group: "map", Index: 0, Attempt: 1, State: plimsoll.TaskPending, Revision: 6,
					},
				),
			)
		}, "-a.map.0"},
		{"its next attempt here", func() {
			f.put(
				putTask(
					plimsoll.Task{
						Job: "a", Group: "map", Index: 0, Attempt: 2, State: plimsoll.TaskBound, Node: "n1",
						Revision: 7,
					},
				),
			)
		}, "a.map.0/2 Bound owner=alice command=true"},
		{"its next attempt elsewhere", func() {
			f.put(
				putTask(
					plimsoll.Task{
						Job: "a", Group: "map", Index: 0, Attempt: 3, State: plimsoll.TaskBound, Node: "n2",
						Revision: 8,
					},
				),
			)
		}, "-a.map.0"},
		{"one goes as another comes", func() {
			f.put(assignedTask(2, plimsoll.TaskBound, 9), assignedTask(3, plimsoll.TaskBound, 9))
		}, "a.map.2/1 Bound owner=alice command=true; a.map.3/1 Bound owner=alice command=true"},
		{"records that are deleted", func() {
			f.put(deleted(assignedTask(2, 0, 0)), deleted(assignedTask(3, 0, 0)))
		}, "-a.map.2; -a.map.3"},
	}
	for _, step := range steps {
		step.do()
		if got := describe(receive(t, stream)); got != step.want {
			t.Fatalf("%s: got %q, want %q", step.name, got, step.want)
		}
	}
}

func TestWatchAssignmentsIsForTheNewestIncarnationOnly(t *testing.T) {
	f := cluster()
	s := serve(t, Config{}, f)
	watch := func(node string, incarnation uint64) error {
		return ending(
			t, open(t, s.agents.WatchAssignments, &pb.WatchAssignmentsRequest{Node: node, Incarnation: incarnation}),
		)
	}
	for name, test := range map[string]struct {
		err  error
		code plimsoll.Code
	}{
		"older":          {watch("n1", 2), plimsoll.CodeStale},
		"not registered": {watch("n1", 4), plimsoll.CodeNotFound},
		"no such node":   {watch("n9", 1), plimsoll.CodeNotFound},
		"no node":        {watch("", 1), plimsoll.CodeInvalid},
	} {
		if plimsoll.CodeOf(test.err) != test.code {
			t.Errorf("%s: %v", name, test.err)
		}
	}
	stream := open(t, s.agents.WatchAssignments, &pb.WatchAssignmentsRequest{Node: "n1", Incarnation: 3})
	receive(t, stream)
	f.put(putNode(plimsoll.Node{ID: "n1", Incarnation: 4, Revision: 2}))
	if err := ending(t, stream); plimsoll.CodeOf(err) != plimsoll.CodeStale {
		t.Errorf("once another agent has started: %v", err)
	}
	stream = open(t, s.agents.WatchAssignments, &pb.WatchAssignmentsRequest{Node: "n1", Incarnation: 4})
	receive(t, stream)
	f.put(deleted(putNode(plimsoll.Node{ID: "n1"})))
	if err := ending(t, stream); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("once the node is removed: %v", err)
	}
}

func TestAnEndedWatchLeavesNothingBehind(t *testing.T) {
	f := cluster()
	t.Cleanup(func() { // runs after the gateway has ended
		if n := f.watching(); n != 0 {
			t.Errorf("%d watches are left", n)
		}
	})
	s := serve(t, Config{}, f)
	receive(t, open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Id: "a"}))
	receive(t, open(t, s.agents.WatchAssignments, &pb.WatchAssignmentsRequest{Node: "n1", Incarnation: 3}))
}

// differ drives the difference without a network.
type differ struct {
	assignments
	messages []*pb.WatchAssignmentsResponse
	skipped  []error
}

func newDiffer() *differ {
	d := &differ{}
	d.assignments = assignments{
		node:  "n1",
		specs: &specCache{},
		send: func(m *pb.WatchAssignmentsResponse) error {
			d.messages = append(d.messages, m)
			return nil
		},
		skip: func(err error) { d.skipped = append(d.skipped, err) },
	}
	return d
}

func (d *differ) step(t *testing.T, f *fake, mark bool) []*pb.WatchAssignmentsResponse {
	t.Helper()
	d.messages = nil
	if err := d.sendChanges(f.Latest(), mark); err != nil {
		t.Fatal(err)
	}
	return d.messages
}

func TestManyAssignmentsGoInBoundedMessages(t *testing.T) {
	f := newFake()
	spec := specNamed("a")
	batch := []wire.Mutation{putSpec(spec)}
	for i := range int32(1000) {
		batch = append(batch, assignedTask(i, plimsoll.TaskBound, 1))
	}
	f.put(batch...)
	d := newDiffer()
	sizes := func(messages []*pb.WatchAssignmentsResponse) (sizes []int) {
		for _, m := range messages {
			sizes = append(sizes, len(m.GetChanged())+len(m.GetRemoved()))
		}
		return sizes
	}
	messages := d.step(t, f, true)
	if got := sizes(messages); !slices.Equal(
		got, []int{256, 256, 256, 232},
	) || !messages[3].GetSnapshotEnd() || messages[2].GetSnapshotEnd() {
		t.Errorf("1,000 tasks went in %v", got)
	}
	if got := d.step(t, f, false); len(got) != 0 {
		t.Errorf("without a change, %d messages went", len(got))
	}
	for i := range batch {
		batch[i] = deleted(batch[i])
	}
	f.put(batch...)
	if got := sizes(d.step(t, f, false)); !slices.Equal(got, []int{256, 256, 256, 232}) {
		t.Errorf("1,000 removals went in %v", got)
	}
	if len(d.seen) != 0 {
		t.Errorf("%d tasks are remembered for nothing", len(d.seen))
	}
}

func TestLargeAssignmentsGoInBoundedMessages(t *testing.T) {
	f := newFake()
	spec := specNamed("a")
	spec.Groups[0].Env = map[string]string{"LARGE": strings.Repeat("x", 100<<10)}
	batch := []wire.Mutation{putSpec(spec)}
	for i := range int32(30) {
		batch = append(batch, assignedTask(i, plimsoll.TaskBound, 1))
	}
	f.put(batch...)
	messages := newDiffer().step(t, f, true)
	if len(messages) != 3 || len(messages[0].GetChanged()) != 11 {
		t.Errorf(
			"30 tasks of 100 KiB went in %d messages, the first with %d", len(messages), len(messages[0].GetChanged()),
		)
	}
}

// A leader that sends its snapshot again sends the same records in other bytes: nothing has
// changed.
func TestTheSameRecordsAgainAreNoChange(t *testing.T) {
	f := cluster()
	d := newDiffer()
	if got := d.step(t, f, true); len(got) != 1 {
		t.Fatalf("%d messages went", len(got))
	}
	again := cluster()
	if got := d.step(t, again, false); len(got) != 0 {
		t.Errorf("%d messages went for the same records", len(got))
	}
}

// An id may be used again once its job is forgotten: the tasks then come with the new job's
// command.
func TestASpecificationIsThatOfTheJobAsItIs(t *testing.T) {
	f := cluster()
	d := newDiffer()
	d.step(t, f, true)
	spec := specNamed("a")
	spec.Groups[0].Command = []string{"false"}
	f.put(putSpec(spec), assignedTask(0, plimsoll.TaskBound, 2))
	if got := describe(d.step(t, f, false)[0]); got != "a.map.0/1 Bound owner=alice command=false" {
		t.Errorf("got %q", got)
	}
}

// One record that cannot be sent does not keep the others back, is told, and goes out once it can.
func TestABrokenRecordKeepsNobodyBack(t *testing.T) {
	f := cluster()
	f.put(putTask(
		plimsoll.Task{Job: "aa", Group: "map", Attempt: 1, State: plimsoll.TaskBound, Node: "n1", Revision: 2},
	),
		wire.Mutation{Kind: wire.KindTask, Key: "a\x00bad", Value: []byte{0xff}, Node: "n1"})
	d := newDiffer()
	if got := describe(
		d.step(t, f, true)[0],
	); got != "a.map.0/1 Running owner=alice command=true; end" || len(d.skipped) != 2 {
		t.Errorf("got %q, skipped %v", got, d.skipped)
	}
	f.put(putSpec(specNamed("aa")))
	if got := describe(d.step(t, f, false)[0]); got != "aa.map.0/1 Bound owner=alice command=true" {
		t.Errorf("got %q", got)
	}
}

// Streams share what is decoded, and however many jobs there are, and however large, only so much
// is kept.
func TestTheCacheOfSpecificationsIsSharedAndBounded(t *testing.T) {
	f := cluster()
	one, other := newDiffer(), newDiffer()
	other.specs = one.specs
	if a, b := one.step(
		t, f, true,
	), other.step(t, f, true); a[0].GetChanged()[0].GetSpec() != b[0].GetChanged()[0].GetSpec() {
		t.Error("two streams have decoded the same specification")
	}
	large := specNamed("large")
	large.Groups[0].Env = map[string]string{"LARGE": strings.Repeat("x", 100<<10)}
	data, small := wire.AppendJobSpec(nil, &large), wire.AppendJobSpec(nil, new(specNamed("small")))
	cache := &specCache{}
	for i := range 1000 {
		for _, version := range [][]byte{small, data} {
			if _, err := cache.get(fmt.Sprint("job", i), version); err != nil {
				t.Fatal(err)
			}
		}
		kept := 0
		for _, spec := range cache.mu.byJob {
			kept += len(spec.data) + specOverhead
		}
		if kept == 0 || kept > maxSpecBytesKept || kept != cache.mu.size {
			t.Fatalf("after %d jobs %d bytes are kept, counted as %d", i+1, kept, cache.mu.size)
		}
	}
}
