package replica

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func keysOf(s *Snapshot, kind wire.Kind, prefix, after string) string {
	var keys []string
	for key, value := range s.Scan(kind, prefix, after) {
		keys = append(keys, key+"="+string(value))
	}
	return strings.Join(keys, " ")
}

func tasksOf(s *Snapshot, node string) string {
	var keys []string
	for key, value := range s.NodeTasks(node) {
		keys = append(keys, key+"="+string(value))
	}
	return strings.Join(keys, " ")
}

// fingerprint is all that a snapshot shows, as text.
func fingerprint(s *Snapshot) string {
	var b strings.Builder
	fmt.Fprintf(
		&b, "epoch %d revision %d time %d of %s, %d bytes, %d lacking\n", s.Epoch(), s.Revision(), s.Time(),
		s.InstanceUUID(), s.Bytes(), s.JobsLacking(),
	)
	for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
		fmt.Fprintf(&b, "kind %d (%d): %s\n", kind, s.Len(kind), keysOf(s, kind, "", ""))
	}
	for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
		for _, index := range s.kinds[kind].Indexes() {
			values, err := s.kinds[kind].IndexValues(index)
			if err != nil {
				panic(err)
			}
			for value, count := range values {
				keys, err := s.kinds[kind].IndexKeys(index, "", "", value)
				if err != nil {
					panic(err)
				}
				fmt.Fprintf(&b, "kind %d, %s %q (%d): %q\n", kind, index, value, count, slices.Collect(keys))
			}
		}
	}
	low, high, ok := s.Events().Range()
	fmt.Fprintf(&b, "events %d to %d: %v\n", low, high, ok)
	return b.String()
}

func taskPut(key, value, node string) wire.Mutation {
	return wire.Mutation{Kind: wire.KindTask, Key: key, Value: []byte(value), Node: node}
}

func remove(kind wire.Kind, key string) wire.Mutation { return wire.Mutation{Kind: kind, Key: key} }

// mustApply applies a batch. An error is a broken invariant, as in Source.Publish.
func mustApply(t *Tables, b *wire.Batch) {
	if err := t.Apply(b); err != nil {
		panic(err)
	}
}

func apply(t *Tables, revision uint64, mutations ...wire.Mutation) *Snapshot {
	mustApply(t, &wire.Batch{Epoch: 1, Revision: revision, Time: int64(revision), Mutations: mutations})
	return t.Snapshot()
}

func TestScanIsOrderedAndBounded(t *testing.T) {
	tables := NewTables()
	s := apply(tables, 1, put("b1", "x"), put("a2", "y"), put("b3", ""), put("b2", "z"), put("c", "w"), put("", "root"))
	for _, test := range []struct{ prefix, after, want string }{
		{"", "", "=root a2=y b1=x b2=z b3= c=w"},
		{"b", "", "b1=x b2=z b3="},
		{"b", "b1", "b2=z b3="},
		{"b", "b11", "b2=z b3="}, // a key that is not there
		{"b", "a", "b1=x b2=z b3="},
		{"b", "c", ""},
		{"", "c", ""},
		{"d", "", ""},
	} {
		if got := keysOf(s, wire.KindJobStatus, test.prefix, test.after); got != test.want {
			t.Errorf("Scan(%q after %q) = %q, want %q", test.prefix, test.after, got, test.want)
		}
	}
	if n := s.Len(wire.KindJobStatus); n != 6 {
		t.Errorf("Len = %d, want 6", n)
	}
	if value, ok := s.Get(wire.KindJobStatus, "b3"); !ok || len(value) != 0 {
		t.Errorf("an empty record is a record: got %q, %v", value, ok)
	}
	if _, ok := s.Get(wire.KindNode, "b3"); ok {
		t.Error("kinds share keys")
	}
}

func TestNodeTasksFollowTheBinding(t *testing.T) {
	tables, history := NewTables(), NewHistory(0)
	for i, step := range []struct {
		mutation wire.Mutation
		n1, n2   string
		changes  string
	}{
		{taskPut("t1", "pending", ""), "", "", ""},
		{taskPut("t1", "bound", "n1"), "t1=bound", "", "n1"},
		{taskPut("t0", "bound", "n1"), "t0=bound t1=bound", "", "n1"},
		{taskPut("t1", "running", "n1"), "t0=bound t1=running", "", "n1"},
		{taskPut("t1", "moved", "n2"), "t0=bound", "t1=moved", "n1 n2"},
		{taskPut("t1", "finished", ""), "t0=bound", "", "n2"},
		{remove(wire.KindTask, "t0"), "", "", "n1"},
		{remove(wire.KindTask, "t0"), "", "", ""},
	} {
		before := history.View().End(wire.KindTask)
		if err := history.Apply(tables, &wire.Batch{Mutations: []wire.Mutation{step.mutation}}); err != nil {
			t.Fatal(err)
		}
		s := tables.Snapshot()
		if n1, n2 := tasksOf(s, "n1"), tasksOf(s, "n2"); n1 != step.n1 || n2 != step.n2 {
			t.Errorf("step %d: n1 has %q, n2 has %q; want %q, %q", i, n1, n2, step.n1, step.n2)
		}
		var nodes []string
		changes, _ := history.View().From(wire.KindTask, before)
		for _, c := range changes {
			for _, node := range []string{c.Old.Node, c.New.Node} {
				if node != "" && !slices.Contains(nodes, node) {
					nodes = append(nodes, node)
				}
			}
		}
		if got := strings.Join(nodes, " "); got != step.changes {
			t.Errorf("step %d: changes at %q, want %q", i, got, step.changes)
		}
	}
}

// A snapshot never changes, whatever is applied after it, and equals a plain map at its revision.
func TestSnapshotsAreImmutable(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		tables, model := NewTables(), map[string]string{}
		type frozen struct {
			snapshot *Snapshot
			model    map[string]string
		}
		var all []frozen
		for revision := range uint64(rapid.IntRange(1, 40).Draw(t, "batches")) {
			var mutations []wire.Mutation
			for range rapid.IntRange(0, 60).Draw(t, "mutations") {
				key := fmt.Sprint("t", rapid.IntRange(0, 300).Draw(t, "key"))
				node := fmt.Sprint("n", rapid.IntRange(0, 3).Draw(t, "node"))
				if rapid.IntRange(0, 3).Draw(t, "kind of change") == 0 {
					mutations = append(mutations, remove(wire.KindTask, key))
					delete(model, key)
					continue
				}
				mutations = append(mutations, taskPut(key, fmt.Sprint(revision), node))
				model[key] = fmt.Sprint(revision, node)
			}
			all = append(all, frozen{apply(tables, revision, mutations...), maps.Clone(model)})
		}
		for _, f := range all {
			got := map[string]string{}
			for n := range 4 {
				node := fmt.Sprint("n", n)
				for key, value := range f.snapshot.NodeTasks(node) {
					got[key] = string(value) + node
				}
			}
			if !maps.Equal(got, f.model) {
				t.Fatalf("revision %d changed: got %v, want %v", f.snapshot.Revision(), got, f.model)
			}
			keys := []string{}
			for key := range f.snapshot.Scan(wire.KindTask, "", "") {
				keys = append(keys, key)
			}
			if want := slices.Sorted(
				maps.Keys(f.model),
			); !slices.Equal(keys, want) || f.snapshot.Len(wire.KindTask) != len(want) {
				t.Fatalf("revision %d has the keys %v, want %v", f.snapshot.Revision(), keys, want)
			}
		}
	})
}

func TestBytesAreCounted(t *testing.T) {
	tables := NewTables()
	apply(tables, 1, put("ab", "cde"), put("x", "y"))
	apply(tables, 2, put("ab", "c"), remove(wire.KindJobStatus, "x"), remove(wire.KindJobStatus, "nothing"))
	if got := tables.Snapshot().Bytes(); got != 3 {
		t.Errorf("Bytes = %d, want 3", got)
	}
}

func TestJobsThatMayLackAResourceAreCounted(t *testing.T) {
	waits := func(id string, cause plimsoll.WaitCode) wire.Mutation {
		status := plimsoll.JobStatus{ID: id, Groups: []plimsoll.GroupStatus{
			{Name: "map", Count: 1, Wait: plimsoll.WaitCause{Code: cause, Resource: "gpu"}},
		}}
		return put(id, string(wire.AppendJobStatus(nil, &status)))
	}
	tables := NewTables()
	for i, step := range []struct {
		mutations []wire.Mutation
		want      int
	}{
		{[]wire.Mutation{waits("a", plimsoll.WaitNoResource), waits("b", plimsoll.WaitQueueMax)}, 1},
		{[]wire.Mutation{waits("b", plimsoll.WaitNoResource), waits("c", plimsoll.WaitNoResource)}, 3},
		{[]wire.Mutation{waits("a", plimsoll.WaitNoResource), waits("a", plimsoll.WaitQueueMax)}, 2},
		{[]wire.Mutation{remove(wire.KindJobStatus, "b"), remove(wire.KindJobStatus, "nothing")}, 1},
		{[]wire.Mutation{waits("c", plimsoll.WaitQueueMax)}, 0},
	} {
		before := tables.Snapshot()
		kept := before.JobsLacking()
		apply(tables, uint64(i), step.mutations...)
		if got := tables.Snapshot().JobsLacking(); got != step.want {
			t.Errorf("step %d: %d jobs may lack a resource, want %d", i, got, step.want)
		}
		if before.JobsLacking() != kept {
			t.Errorf("step %d changed the count of an earlier snapshot", i)
		}
	}
	last := []wire.Mutation{}
	for _, id := range []string{"e", "f", "g", "h"} {
		last = append(last, waits(id, plimsoll.WaitNoResource))
	}
	apply(tables, 8, last...) // most of the records stay
	last = append(last, waits("a", plimsoll.WaitNoResource), waits("d", plimsoll.WaitQueueMax))
	for what, was := range map[string]*Tables{"those of before": tables, "nothing": nil} {
		r := Replace(was)
		if err := r.Put(last); err != nil {
			t.Fatal(err)
		}
		if err := r.Complete(plimsoll.Version{Epoch: 2, Revision: 9}, 9); err != nil {
			t.Fatal(err)
		}
		if got := r.Tables().Snapshot().JobsLacking(); got != 5 {
			t.Errorf("after a replacement of %s %d jobs may lack a resource, want 5", what, got)
		}
	}
}

// randomRecords draws tasks and statuses of jobs with several values of each index, in any order.
func randomRecords(t *rapid.T, label string) []wire.Mutation {
	task := rapid.Custom(func(t *rapid.T) wire.Mutation {
		task := plimsoll.Task{
			Job: "j", Group: "g", Index: rapid.Int32Range(0, 30).Draw(t, "index"),
			State: rapid.SampledFrom([]plimsoll.TaskState{
				plimsoll.TaskPending, plimsoll.TaskRunning, plimsoll.TaskFinished,
			}).Draw(t, "state"),
		}
		if task.State == plimsoll.TaskRunning {
			task.Node = rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")
		}
		return taskPut(wire.TaskKey(task.Job, task.Group, task.Index), string(wire.AppendTask(nil, &task)), task.Node)
	})
	status := rapid.Custom(func(t *rapid.T) wire.Mutation {
		job := plimsoll.JobStatus{
			ID:    rapid.StringMatching("[a-e]-?[a-e]").Draw(t, "id"),
			Queue: rapid.SampledFrom([]string{"root.a", "root.b"}).Draw(t, "queue"),
		}
		return put(job.ID, string(wire.AppendJobStatus(nil, &job)))
	})
	return rapid.SliceOfNDistinct(rapid.OneOf(task, status), 0, 40, func(m wire.Mutation) string {
		return fmt.Sprint(m.Kind, m.Key)
	}).Draw(t, label)
}

// randomParts cuts records into parts, in which they come in any order.
func randomParts(t *rapid.T, records []wire.Mutation) (parts [][]wire.Mutation) {
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b wire.Mutation) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), cmp.Compare(a.Kind, b.Kind))
	})
	for len(records) > 0 {
		n := rapid.IntRange(1, len(records)).Draw(t, "records of a part")
		parts = append(parts, rapid.Permutation(records[:n]).Draw(t, "part"))
		records = records[n:]
	}
	return parts
}

// Tables that replace others are the same, with every index, as those that took the new records in
// a batch. A snapshot of the others does not change.
func TestReplacedTablesAreThoseOfALoad(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		old, now := NewTables(), randomRecords(t, "now")
		was := randomRecords(t, "was")
		before := fingerprint(apply(old, 1, append(was, now[:len(now)/2]...)...))
		kept := old.Snapshot()

		loaded := NewTables()
		mustApply(loaded, &wire.Batch{Epoch: 2, Revision: 3, Time: 4, Mutations: now})
		for what, was := range map[string]*Tables{"replaced": old, "filled": nil} {
			r := Replace(was)
			for _, part := range randomParts(t, now) {
				if err := r.Put(part); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Complete(plimsoll.Version{Epoch: 2, Revision: 3}, 4); err != nil {
				t.Fatal(err)
			}
			if got, want := fingerprint(r.Tables().Snapshot()), fingerprint(loaded.Snapshot()); got != want {
				t.Errorf("%s:\n%s\nloaded:\n%s", what, got, want)
			}
		}
		if after := fingerprint(kept); after != before {
			t.Errorf("the earlier snapshot was\n%s\nand is\n%s", before, after)
		}
	})
}
