package replica

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func jobPut(id, queue, owner string, state plimsoll.JobState) wire.Mutation {
	status := plimsoll.JobStatus{ID: id, Queue: queue, Owner: owner, State: state}
	return wire.Mutation{Kind: wire.KindJobStatus, Key: id, Value: wire.AppendJobStatus(nil, &status)}
}

func realTask(
	job string, index int32, node string, state plimsoll.TaskState, result plimsoll.TaskResult,
) wire.Mutation {
	t := plimsoll.Task{Job: job, Group: "g", Index: index, State: state, Result: result, Node: node}
	m := wire.Mutation{Kind: wire.KindTask, Key: wire.TaskKey(job, "g", index), Value: wire.AppendTask(nil, &t)}
	if state.OnNode() {
		m.Node = node
	}
	return m
}

func keysIn(records iter.Seq2[string, []byte]) string {
	var keys []string
	for key := range records {
		keys = append(keys, strings.ReplaceAll(key, "\x00", "."))
	}
	return strings.Join(keys, " ")
}

// A choice walks the records of the criterion that leaves the fewest, in key order.
func TestJobsAreWalkedByTheCriterionThatLeavesTheFewest(t *testing.T) {
	s := apply(NewTables(0), 1,
		jobPut("a", "root.x.y", "ann", plimsoll.JobRunning), jobPut("b", "root.x", "bob", plimsoll.JobCompleted),
		jobPut("c", "root.x.z.v", "ann", plimsoll.JobFailed), jobPut("d", "root.w", "ann", plimsoll.JobRunning),
		jobPut("e", "root", "bob", plimsoll.JobNew), jobPut("f", "", "", 0),
	)
	running := []plimsoll.JobState{plimsoll.JobRunning}
	ended := []plimsoll.JobState{plimsoll.JobFailed, plimsoll.JobCompleted}
	for _, test := range []struct {
		want        JobCriteria
		after, keys string
	}{
		{JobCriteria{}, "", "a b c d e f"},
		{JobCriteria{}, "c", "d e f"},
		{JobCriteria{Queue: "root"}, "", "a b c d e f"},
		{JobCriteria{Queue: "root.x"}, "", "a b c"},
		{JobCriteria{Queue: "root.x.z"}, "", "c"},
		{JobCriteria{Queue: "root.x.z.v"}, "", "c"},
		{JobCriteria{Queue: "root.x"}, "a", "b c"},
		{JobCriteria{Queue: "root.none"}, "", ""},
		{JobCriteria{Owner: "ann"}, "", "a c d"},
		{JobCriteria{Owner: "bob", Queue: "root.x"}, "", "b e"}, // 2 jobs of bob, 3 of the queue
		{JobCriteria{Owner: "ann", States: running}, "", "a d"},
		{JobCriteria{States: ended}, "", "b c"},
		{JobCriteria{States: append(ended, running...)}, "b", "c d"},
		{JobCriteria{States: []plimsoll.JobState{200}}, "", ""},
	} {
		if got := keysIn(s.Jobs(test.want, test.after)); got != test.keys {
			t.Errorf("Jobs(%+v, %q) walks %q, want %q", test.want, test.after, got, test.keys)
		}
	}
	for queue, want := range map[string]int{"root.x": 3, "root.w": 1, "root": 0, "": 0, "root.none": 0} {
		if n := s.JobsIn(queue); n != want {
			t.Errorf("%d jobs in %q, want %d", n, queue, want)
		}
	}
}

func TestTasksAreWalkedByTheCriterionThatLeavesTheFewest(t *testing.T) {
	s := apply(NewTables(0), 1,
		realTask("a", 1, "n1", plimsoll.TaskRunning, 0), realTask("a", 2, "n2", plimsoll.TaskRunning, 0),
		realTask("a", 3, "n1", plimsoll.TaskFinished, plimsoll.ResultSucceeded),
		realTask("b", 1, "n1", plimsoll.TaskFinished, plimsoll.ResultFailed),
		realTask("b", 2, "n1", plimsoll.TaskBound, 0),
		realTask("b", 3, "", plimsoll.TaskPending, plimsoll.ResultFailed),
	)
	running := []plimsoll.TaskState{plimsoll.TaskRunning}
	finished := []plimsoll.TaskState{plimsoll.TaskFinished}
	failed := []plimsoll.TaskResult{plimsoll.ResultFailed}
	for _, test := range []struct {
		want        TaskCriteria
		after, keys string
	}{
		{TaskCriteria{}, "", "1a 2a 3a 1b 2b 3b"},
		{TaskCriteria{Job: "b"}, "", "1b 2b 3b"},
		{TaskCriteria{Node: "n1"}, "", "1a 2b"},
		{TaskCriteria{Node: "n1"}, wire.TaskKey("a", "g", 1), "2b"},
		{TaskCriteria{Node: "n1", Job: "b"}, "", "2b"},
		{TaskCriteria{States: running}, "", "1a 2a 2b"},
		{TaskCriteria{States: finished}, "", "3a 1b"},
		{TaskCriteria{States: finished, Job: "b"}, "", "1b"},
		{TaskCriteria{States: append(finished, running...)}, wire.TaskKey("a", "g", 2), "3a 1b 2b"},
		{TaskCriteria{Results: failed}, "", "1b 3b"},
		{TaskCriteria{Results: failed, States: finished}, "", "1b"},
		{TaskCriteria{States: []plimsoll.TaskState{99}}, "", ""},
	} {
		var want []string
		for key := range s.Tasks(test.want, test.after) {
			value, _ := s.Get(wire.KindTask, key)
			task, err := wire.DecodeTask(value)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprint(task.Index, task.Job))
		}
		if got := strings.Join(want, " "); got != test.keys {
			t.Errorf("Tasks(%+v, %q) walks %q, want %q", test.want, test.after, got, test.keys)
		}
	}
}

// A list of all records fails at one that cannot be read; so does one with criteria.
func TestARecordThatCannotBeReadIsInEveryChoice(t *testing.T) {
	s := apply(NewTables(0), 1,
		put("bad", "\xff"), jobPut("good", "root.x", "ann", plimsoll.JobRunning),
		jobPut("other", "root.w", "bob", plimsoll.JobFailed), taskPut("bad", "\xff", ""),
		realTask("a", 1, "n1", plimsoll.TaskRunning, 0), realTask("a", 2, "n1", plimsoll.TaskPending, 0),
		realTask("a", 3, "n1", plimsoll.TaskPending, 0),
	)
	for _, want := range []JobCriteria{
		{Queue: "root.x"}, {Owner: "ann"}, {States: []plimsoll.JobState{plimsoll.JobRunning}},
	} {
		if got := keysIn(s.Jobs(want, "")); got != "bad good" {
			t.Errorf("Jobs(%+v) walks %q", want, got)
		}
	}
	running := TaskCriteria{States: []plimsoll.TaskState{plimsoll.TaskRunning}}
	if got := keysIn(s.Tasks(running, "")); !strings.HasSuffix(got, " bad") {
		t.Errorf("the running tasks are %q", got)
	}
}

// After any changes, a choice has every record that meets the criteria, in key order. The indexes
// of changed tables equal those of loaded ones.
func TestAChoiceHasEveryRecordThatMeetsTheCriteria(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		tables := NewTables(0)
		state := func() plimsoll.TaskState {
			return plimsoll.TaskState(rapid.IntRange(1, plimsoll.NumTaskStates-1).Draw(t, "state"))
		}
		for revision := range uint64(rapid.IntRange(1, 10).Draw(t, "batches")) {
			var mutations []wire.Mutation
			for range rapid.IntRange(0, 30).Draw(t, "mutations") {
				job := fmt.Sprint("j", rapid.IntRange(0, 4).Draw(t, "job"))
				index := int32(rapid.IntRange(0, 9).Draw(t, "index"))
				result := plimsoll.TaskResult(rapid.IntRange(0, plimsoll.NumTaskResults-1).Draw(t, "result"))
				m := realTask(job, index, fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "node")), state(), result)
				if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
					m = remove(wire.KindTask, m.Key)
				}
				mutations = append(mutations, m)
			}
			s := apply(tables, revision+1, mutations...)
			want := TaskCriteria{Job: rapid.SampledFrom([]string{"", "j1"}).Draw(t, "of job")}
			want.Node = rapid.SampledFrom([]string{"", "n1"}).Draw(t, "on node")
			if rapid.Bool().Draw(t, "states") {
				want.States = []plimsoll.TaskState{state(), state()}
			}
			checkChoice(t, s, want)
		}
		loaded := NewTables(0)
		loaded.begin()
		for key, r := range tables.Snapshot().kinds[wire.KindTask].All() {
			m := wire.Mutation{Kind: wire.KindTask, Key: key, Value: r.value, Node: r.node.String()}
			if err := loaded.load([]wire.Mutation{m}, loaded.count); err != nil {
				t.Fatal(err)
			}
		}
		if err := loaded.complete(); err != nil {
			t.Fatal(err)
		}
		loaded.epoch, loaded.revision, loaded.time = tables.epoch, tables.revision, tables.time
		if was, is := fingerprint(tables.Snapshot()), fingerprint(loaded.Snapshot()); was != is {
			t.Fatalf("the changed tables are\n%s, the loaded ones\n%s", was, is)
		}
	})
}

func checkChoice(t *rapid.T, s *Snapshot, want TaskCriteria) {
	meets := func(value []byte) bool {
		task, err := wire.DecodeTask(value)
		if err != nil {
			t.Fatal(err)
		}
		return (want.Job == "" || task.Job == want.Job) &&
			(want.Node == "" || task.Node == want.Node && task.State.OnNode()) &&
			(len(want.States) == 0 || slices.Contains(want.States, task.State))
	}
	var all, chosen []string
	for key, value := range s.Scan(wire.KindTask, "", "") {
		if meets(value) {
			all = append(all, key)
		}
	}
	for key, value := range s.Tasks(want, "") {
		if meets(value) {
			chosen = append(chosen, key)
		}
	}
	if !slices.Equal(all, chosen) {
		t.Fatalf("Tasks(%+v) has %q, want %q", want, chosen, all)
	}
}
