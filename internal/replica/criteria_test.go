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
	s := apply(NewTables(), 1,
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
	s := apply(NewTables(), 1,
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
	s := apply(NewTables(), 1,
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
		tables := NewTables()
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
		loaded := NewTables()
		loaded.begin()
		for key, r := range tables.Snapshot().kinds[wire.KindTask].All() {
			m := wire.Mutation{Kind: wire.KindTask, Key: key, Value: r.value, Node: r.node.String()}
			if err := loaded.put(&m); err != nil {
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

// life is the status and the specification of a job with its lifetime and labels.
func life(id string, submitted int64, labels map[string]string, change func(*plimsoll.JobStatus)) []wire.Mutation {
	status := plimsoll.JobStatus{
		ID: id, State: plimsoll.JobRunning, Submitted: submitted, UID: plimsoll.MakeUID(submitted, 1),
	}
	if change != nil {
		change(&status)
	}
	spec := plimsoll.JobSpec{ID: id, Labels: labels}
	return []wire.Mutation{
		{Kind: wire.KindJobStatus, Key: id, Value: wire.AppendJobStatus(nil, &status)},
		{Kind: wire.KindJobSpec, Key: id, Value: wire.AppendJobSpec(nil, &spec)},
	}
}

func TestJobsAreFoundByUIDLabelAndID(t *testing.T) {
	s := apply(NewTables(), 1, slices.Concat(
		life("a", 3, map[string]string{"team": "red", "night": ""}, nil),
		life("b", 1, map[string]string{"team": "blue"}, nil),
		life("c", 2, map[string]string{"team": "red"}, func(s *plimsoll.JobStatus) { s.UID = plimsoll.UID{} }),
		life("d", 5, nil, func(s *plimsoll.JobStatus) { s.Deleted = true }),
		life("e", 4, nil, func(s *plimsoll.JobStatus) { s.State = plimsoll.JobExpired }),
	)...)
	for _, test := range []struct {
		want        JobCriteria
		after, keys string
	}{
		{JobCriteria{Labels: []string{"team"}}, "", "a b c"},
		{JobCriteria{Labels: []string{"team=red"}}, "", "a c"},
		{JobCriteria{Labels: []string{"team=red", "night"}}, "", "a"},
		{JobCriteria{Labels: []string{"night="}}, "", "a"},
		{JobCriteria{Labels: []string{"night=no"}}, "", ""},
		{JobCriteria{IDs: []string{"e", "b", "x", "b"}}, "", "b e"},
		{JobCriteria{IDs: []string{"e", "b", "x"}}, "b", "e"},
		{JobCriteria{IDs: []string{"e", "b", "c"}, Labels: []string{"team=blue"}}, "", "b"},
	} {
		if got := keysIn(s.Jobs(test.want, test.after)); got != test.keys {
			t.Errorf("Jobs(%+v, %q) walks %q, want %q", test.want, test.after, got, test.keys)
		}
	}
	uid := func(submitted int64, revision uint64) string { return plimsoll.MakeUID(submitted, revision).String() }
	for text, want := range map[string]string{
		uid(3, 1): "a", uid(2, 0): "c", uid(5, 1): "d", uid(9, 9): "", "": "", leaving: "", unreadable: "",
	} {
		if id, ok := s.JobOf(text); id != want || ok != (want != "") {
			t.Errorf("the uid %q is of %q, %v; want %q", text, id, ok, want)
		}
	}
	if n := s.JobsLeaving(); n != 2 {
		t.Errorf("%d jobs leave, want 2", n)
	}
	for _, test := range []struct {
		after      string
		descending bool
		keys       string
	}{
		{"", false, "b c a e d"},
		{"", true, "d e a c b"},
		{uid(2, 0), false, "a e d"},
		{uid(2, 0), true, "b"},
		{uid(2, 7), true, "c b"},
		{uid(2, 7), false, "a e d"},
	} {
		if got := keysIn(s.JobsBySubmit(test.after, test.descending)); got != test.keys {
			t.Errorf("by submit behind %q, descending %v: %q, want %q", test.after, test.descending, got, test.keys)
		}
	}
	if got := keysIn(s.JobsFrom("c", true)) + "|" + keysIn(s.JobsFrom("", true)) + "|" + keysIn(s.JobsFrom("c",
		false)); got != "b a|e d c b a|d e" {
		t.Errorf("by id: %s", got)
	}
}

// The index of labels stays small whatever users write into them: their values share a bounded
// number of index values.
func TestLabelsTakeABoundedNumberOfIndexValues(t *testing.T) {
	tables := NewTables()
	var batch []wire.Mutation
	for i := range 2000 {
		labels := map[string]string{}
		for k := range plimsoll.MaxLabels {
			labels[fmt.Sprint("k", i, k)] = strings.Repeat("v", 100)
		}
		batch = append(batch, life(fmt.Sprint("j", i), int64(i+1), labels, nil)...)
	}
	s := apply(tables, 1, batch...)
	values, err := s.kinds[wire.KindJobSpec].IndexValues(indexLabel)
	if err != nil {
		t.Fatal(err)
	}
	count, bytes := 0, 0
	for value := range values {
		count++
		bytes += len(value)
	}
	if count > 1<<16 || bytes > 2<<16 {
		t.Errorf("%d values of %d bytes", count, bytes)
	}
}

// WrittenSince counts the records that a kept snapshot holds alone.
func TestWrittenSinceCountsTheRecordsThatWereReplaced(t *testing.T) {
	tables := NewTables()
	first := apply(tables, 1, put("a", strings.Repeat("x", 1000)), put("b", "y"))
	second := apply(tables, 2, put("a", "z"))
	third := apply(tables, 3, remove(wire.KindJobStatus, "a"), put("c", strings.Repeat("x", 5000)))
	for _, c := range []struct {
		earlier *Snapshot
		want    int64
	}{{first, 1000 + 1 + 3*writtenOverhead}, {second, 1 + 2*writtenOverhead}, {third, 0}} {
		if n, same := third.WrittenSince(c.earlier); n != c.want || !same {
			t.Errorf("%d bytes, %v; want %d", n, same, c.want)
		}
	}
	if _, same := third.WrittenSince(apply(NewTables(), 3)); same {
		t.Error("snapshots of other tables are taken for the same")
	}
	if _, same := (*Snapshot)(nil).WrittenSince(first); same {
		t.Error("no snapshot is taken for one of the same tables")
	}
}
