package engine_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// An object that is deleted and created again in one turn is put and not deleted. The store would
// do both, and the deletes last.
func TestGoneAndBackInOneTurn(t *testing.T) {
	t.Run("node", func(t *testing.T) {
		b := newBench(t, state.Config{}, state.Limits{})
		b.send(machine("n", 4000))
		b.settle()
		b.send(
			&engine.NodeSilent{ID: "n", Registration: b.engine.State().Node("n").Registration},
			&engine.RemoveNode{ID: "n"}, machine("n", 2000),
		)
		b.settle()
		b.same()
	})
	t.Run("queue", func(t *testing.T) {
		b := newBench(t, state.Config{}, state.Limits{})
		without := plimsoll.DefaultQueues()
		without.Queues = without.Queues[:1]
		b.send(&engine.SetQueueConfig{Config: without}, &engine.SetQueueConfig{
			Config: plimsoll.DefaultQueues(),
		}, &engine.SetQueueConfig{Config: without},
			&engine.SetQueueConfig{Config: plimsoll.DefaultQueues()})
		b.turn()
		if len(b.out.Changes.DeletedQueues) != 0 {
			t.Fatalf("deleted %v, which are there", b.out.Changes.DeletedQueues)
		}
		b.same()
	})
	t.Run("job", func(t *testing.T) {
		b := newBench(t, state.Config{KeepEnded: 1e9}, state.Limits{})
		b.send(machine("n", 4000), job("j", 3, 1000))
		b.settle()
		b.send(finished("n", "j", 0), finished("n", "j", 1), finished("n", "j", 2))
		b.settle()
		b.now += 2e9 // it is time to forget it
		id := b.send(job("j", 2, 1000))
		b.settle()
		if err := b.reply(id); err != nil {
			t.Fatal(err)
		}
		if n := len(b.engine.State().Job("j").Groups[0].Tasks); n != 2 {
			t.Fatalf("%d tasks, want 2", n)
		}
		b.same()
	})
}

// Large work of each kind is done in parts, and each part is within the limits of the store.
func TestLargeWorkStaysWithinTinyLimits(t *testing.T) {
	b := newBench(t, state.Config{KeepEnded: 1e9}, state.Limits{Ops: 40, Bytes: 1 << 20})
	const tasks = 500
	b.send(machine("n", 1000*tasks), job("j", tasks, 1000))
	b.settle()
	steps := []struct {
		name string
		do   engine.Operation
		want plimsoll.TaskCounts
	}{
		{
			"scale down what runs", &engine.ScaleJob{ID: "j", Count: 1},
			plimsoll.TaskCounts{Bound: 1, Stopping: tasks - 1},
		},
		{
			"lose the node", &engine.SetNodeMode{ID: "n", Mode: plimsoll.NodeDraining},
			plimsoll.TaskCounts{Stopping: tasks},
		},
		{"scale up again", &engine.ScaleJob{ID: "j", Count: tasks}, plimsoll.TaskCounts{Stopping: tasks}},
		{"report all at once", all(tasks), plimsoll.TaskCounts{Pending: tasks}},
		{"scale down what waits", &engine.ScaleJob{ID: "j", Count: 1}, plimsoll.TaskCounts{Pending: 1}},
		{"bring them back", &engine.ScaleJob{ID: "j", Count: tasks}, plimsoll.TaskCounts{Pending: tasks}},
		{"kill", &engine.KillJob{ID: "j"}, plimsoll.TaskCounts{Failed: tasks}},
	}
	for _, step := range steps {
		id := b.send(step.do)
		b.settle()
		if err := b.reply(id); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := b.engine.State().Job("j").Groups[0].Counts; got != step.want {
			t.Fatalf("%s: %+v, want %+v", step.name, got, step.want)
		}
		b.same()
	}
	b.now += 2e9
	b.settle()
	if b.engine.State().Job("j") != nil || len(b.records.tasks) != 0 {
		t.Fatalf("the job is not forgotten; %d tasks are stored", len(b.records.tasks))
	}
}

func all(tasks int32) *engine.ReportTasks {
	r := &engine.ReportTasks{Node: "n", Incarnation: 1}
	for i := range tasks {
		r.Reports = append(r.Reports, engine.Report{Job: "j", Group: "g", Index: i, TaskReport: plimsoll.TaskReport{
			Attempt: 1, State: plimsoll.TaskFinished, Result: plimsoll.ResultEvicted,
		}})
	}
	return r
}

// Many jobs that expire at the same moment are forgotten in parts too.
func TestManyJobsExpireWithinTinyLimits(t *testing.T) {
	b := newBench(t, state.Config{KeepEnded: 1e9}, state.Limits{Ops: 40})
	for i := range 200 {
		b.send(job(fmt.Sprintf("j%d", i), 0, 1))
	}
	b.settle()
	b.now += 2e9
	if n := b.settle(); n < 10 {
		t.Fatalf("200 jobs were forgotten in %d turns", n)
	}
	if len(b.records.specs)+len(b.records.statuses) != 0 {
		t.Fatal("records are left")
	}
}

// While large work goes on, other commands are taken; a job can be killed while it is submitted.
func TestLargeWorkDoesNotHoldUpCommands(t *testing.T) {
	b := newBench(t, state.Config{KeepEnded: 1e9}, state.Limits{Ops: 40})
	b.send(job("old", 300, 1000))
	b.settle()
	b.send(&engine.KillJob{ID: "old"})
	b.settle()
	b.now += 2e9
	large := b.send(job("large", 1000, 1000))
	node := b.send(machine("n", 4000)) // comes while "old" is being forgotten and "large" created
	for range 10 {
		b.turn()
	}
	if err := b.reply(node); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.replies[large]; ok {
		t.Fatal("the large job was created in ten turns: the test tests nothing")
	}
	kill := b.send(&engine.KillJob{ID: "large"})
	b.settle()
	if err := b.reply(kill); err != nil {
		t.Fatal(err)
	}
	if j := b.engine.State().Job("large"); j.State != plimsoll.JobFailed || len(j.Groups[0].Tasks) == 1000 {
		t.Fatalf("the job is %s with %d tasks", j.State, len(j.Groups[0].Tasks))
	}
	b.same()
}

// A job whose submit spans turns can be read, and its events are told, from its first batch on.
// So that batch makes it certain: whenever the leader crashes, the next one has the job and
// creates the rest of its tasks, and a repeated submit waits for them.
func TestASubmitThatSpansTurnsIsCertainFromItsFirstBatch(t *testing.T) {
	const tasks = 300
	whole := newBench(t, state.Config{}, state.Limits{Ops: 40})
	whole.send(machine("n", 1_000_000), tokened(job("j", tasks, 1000), "t"))
	for crashed, more := 0, true; more; crashed++ {
		more = whole.turn()
		b := whole.crashed()
		if b.engine.State().Job("j") == nil {
			t.Fatalf("after turn %d the job could be read, and a crash took it back", crashed)
		}
		again := b.send(tokened(job("j", tasks, 1000), "t"))
		b.settle()
		if err := b.reply(again); err != nil {
			t.Fatalf("the repeated submit after turn %d: %v", crashed, err)
		}
		if c := b.engine.State().Job("j").Groups[0].Counts; c.Bound != tasks {
			t.Fatalf("after a crash in turn %d the job has %+v", crashed, c)
		}
		b.same()
	}
}

// A job that a crash has left half submitted can be killed and, once it is whole, scaled. Another
// job cannot have its id.
func TestAnInterruptedSubmitIsAJobLikeAnyOther(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{Ops: 40})
	b.send(machine("n", 4000), job("j", 500, 1000), job("k", 500, 1000))
	for range 10 {
		b.turn()
	}
	b.crash()
	kill := b.send(&engine.KillJob{ID: "j"})
	early := b.send(&engine.ScaleJob{ID: "k", Count: 1})
	other := b.send(tokened(job("k", 2, 1000), "other"))
	b.turn()
	b.wantCode(early, plimsoll.CodeUnavailable)
	b.wantCode(other, plimsoll.CodeAlreadyExists)
	b.settle()
	scale := b.send(&engine.ScaleJob{ID: "k", Count: 1})
	b.settle()
	for _, id := range []uint64{kill, scale} {
		if err := b.reply(id); err != nil {
			t.Fatal(err)
		}
	}
	j, k := b.engine.State().Job("j"), b.engine.State().Job("k")
	if j.State != plimsoll.JobFailed || len(k.Groups[0].Tasks) != 500 {
		t.Fatalf("j is %s, k has %d tasks", j.State, len(k.Groups[0].Tasks))
	}
	b.same()
}

// A draining queue with a half-submitted job survives a crash, and is deleted when the job is gone.
func TestDrainingQueueKeepsAnInterruptedSubmit(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{Ops: 40})
	b.send(job("j", 500, 1000))
	b.turn()
	b.send(
		&engine.SetQueueConfig{
			Config: plimsoll.QueueConfig{Name: "root", Parent: true, Queues: []plimsoll.QueueConfig{{Name: "batch"}}},
		},
	)
	b.turn()
	b.crash()
	b.settle()
	if n := len(b.engine.State().Job("j").Groups[0].Tasks); n != 500 {
		t.Fatalf("the job has %d tasks", n)
	}
	b.send(&engine.KillJob{ID: "j"})
	b.settle()
	if b.engine.State().Queue("root.default") != nil {
		t.Fatal("root.default drains for ever")
	}
	b.same()
}

// A submit that an older version was about to drop, with its queue, is dropped.
func TestAnInterruptedSubmitWithoutAQueueIsDropped(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{Ops: 40})
	b.send(job("j", 500, 1000))
	b.turn()
	st := b.records.statuses["j"]
	st.Queue = "root.gone"
	b.records.statuses["j"] = st
	b.crash()
	kill := b.send(&engine.KillJob{ID: "j"})
	again := b.send(job("j", 2, 1000))
	b.turn()
	b.wantCode(kill, plimsoll.CodeNotFound)
	b.wantCode(again, plimsoll.CodeUnavailable)
	b.settle()
	if b.engine.State().Job("j") != nil {
		t.Fatal("the job is still there")
	}
	b.same()
}

// Commands that name the uid of a job do nothing to another job with its id.
func TestACommandForOneLifetimeOfAnID(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.send(machine("n", 4000), job("j", 2, 1000))
	b.settle()
	uid := b.engine.State().Job("j").UID
	other := plimsoll.MakeUID(uid.Submitted()-1, 1)
	for _, do := range []engine.Operation{
		&engine.KillJob{ID: "j", UID: other}, &engine.ScaleJob{ID: "j", Count: 1, UID: other},
	} {
		id := b.send(do)
		b.settle()
		b.wantCode(id, plimsoll.CodeConflict)
	}
	if j := b.engine.State().Job("j"); j.Killed || len(j.Groups[0].Tasks) != 2 {
		t.Fatalf("the job is %+v", j)
	}
	for _, do := range []engine.Operation{
		&engine.ScaleJob{ID: "j", Count: 1, UID: uid}, &engine.KillJob{ID: "j", UID: uid},
	} {
		id := b.send(do)
		b.settle()
		if err := b.reply(id); err != nil {
			t.Fatal(err)
		}
	}
}

// Once a kill or a scaling down is acknowledged, none of the unwanted tasks is placed, even if
// stopping them takes many turns.
func TestUnwantedTasksAreNotPlaced(t *testing.T) {
	for _, do := range []engine.Operation{&engine.KillJob{ID: "j"}, &engine.ScaleJob{ID: "j", Count: 0}} {
		b := newBench(t, state.Config{}, state.Limits{Ops: 40})
		b.send(job("j", 300, 1000))
		b.settle()
		id := b.send(do, machine("n", 1_000_000)) // there is room for all from now on
		b.settle()
		if err := b.reply(id); err != nil {
			t.Fatal(err)
		}
		for i := range b.engine.State().Job("j").Groups[0].Tasks {
			if task := &b.engine.State().Job("j").Groups[0].Tasks[i]; task.Attempt != 0 {
				t.Fatalf("%T: %s was placed", do, task.ID)
			}
		}
	}
}

// A gateway that is lost repeatedly does not keep a silent node alive.
func TestLostGatewayDoesNotProlongGrace(t *testing.T) {
	b := newBench(t, state.Config{NodeGrace: 15e9}, state.Limits{})
	b.send(machine("n", 4000))
	b.settle()
	for range 4 {
		b.send(&engine.GatewayLost{Gateway: "gw"})
		b.settle()
		b.now += 5e9
	}
	b.settle()
	if b.engine.State().Node("n").Ready {
		t.Fatal("the node is ready, 20 s after it was last heard")
	}
}

// A job that has begun goes on after a reload, even if its queue may run fewer jobs by now.
func TestLoweredMaxJobsAndReload(t *testing.T) {
	tree := func(most int32) *engine.SetQueueConfig {
		return &engine.SetQueueConfig{Config: plimsoll.QueueConfig{
			Name: "root", Parent: true, Queues: []plimsoll.QueueConfig{{Name: "default", MaxJobs: most}},
		}}
	}
	b := newBench(t, state.Config{}, state.Limits{})
	b.send(tree(2), machine("n", 4000), job("a", 1, 1000), job("b", 1, 1000))
	b.settle()
	b.send(tree(1), job("c", 1, 1000))
	b.settle()
	b.crash()
	b.settle()
	s := b.engine.State()
	if a, b, c := s.Job("a").Parked(), s.Job("b").Parked(), s.Job("c").Parked(); a != nil || b != nil || c == nil {
		t.Fatalf("parked: a at %v, b at %v, c at %v; want only c", a, b, c)
	}
}

// There are few slots for resource names. A command with more names than slots is refused.
func TestTooManyResourceNames(t *testing.T) {
	many := job("many", 1, 1000)
	tree := plimsoll.DefaultQueues()
	for i := range plimsoll.MaxResourceNames {
		name := fmt.Sprintf("example.com/r%d", i)
		g := many.Spec.Groups[0]
		g.Name, g.Resources = fmt.Sprintf("g%d", i), plimsoll.Resources{name: 1}
		many.Spec.Groups = append(many.Spec.Groups, g)
		tree.Queues = append(
			tree.Queues, plimsoll.QueueConfig{Name: fmt.Sprintf("q%d", i), Max: plimsoll.Resources{name: 1}},
		)
	}
	b := newBench(t, state.Config{}, state.Limits{})
	submit := b.send(many)
	set := b.send(&engine.SetQueueConfig{Config: tree})
	b.settle()
	b.wantCode(submit, plimsoll.CodeInvalid)
	b.wantCode(set, plimsoll.CodeInvalid)
	if _, err := state.NewLoader(state.Config{}, tree).End(1); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Fatalf("a first start with these queues: %v", err)
	}
}

// The sums of requests and of capacities never overflow: a command that would make one is refused.
func TestSumsDoNotOverflow(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	var last uint64
	for i := range 5 { // four are as much as can be counted
		last = b.send(job(fmt.Sprintf("j%d", i), 128, plimsoll.MaxAmount))
	}
	b.settle()
	b.wantCode(last, plimsoll.CodeExhausted)
	if pending := b.engine.State().Tree().Root.Pending[0]; pending != 4*128*plimsoll.MaxAmount {
		t.Fatalf("pending is %d", pending)
	}
	scale := b.send(
		&engine.ScaleJob{ID: "j0", Count: 1}, job("j5", 100, plimsoll.MaxAmount),
		&engine.ScaleJob{ID: "j0", Count: 100},
	)
	b.settle()
	b.wantCode(scale, plimsoll.CodeExhausted)
	for i := range 513 {
		node := machine(fmt.Sprintf("n%d", i), 1)
		node.Node.Capacity[plimsoll.Disk] = plimsoll.MaxAmount
		last = b.send(node)
	}
	b.settle()
	b.wantCode(last, plimsoll.CodeExhausted)
}

// A job of very many tasks is submitted, killed and forgotten within the limits of the store that
// comes with Plimsoll.
func TestVeryLargeJob(t *testing.T) {
	tasks := int32(testrun.Count(20_000, 50_000, plimsoll.MaxTasksPerJob))
	b := newBench(t, state.Config{KeepEnded: 1e9}, state.Limits{Ops: 5_000, Bytes: 1 << 20})
	b.silent = true
	b.send(machine("n", 10_000), job("j", tasks, 1))
	b.settle()
	if c := b.engine.State().Job("j").Groups[0].Counts; c.Bound != 10_000 || c.Pending != tasks-10_000 {
		t.Fatalf("counts %+v", c)
	}
	b.send(&engine.ScaleJob{ID: "j", Count: 1})
	b.settle()
	b.send(&engine.ScaleJob{ID: "j", Count: tasks})
	b.settle()
	b.same()
	b.crash()
	b.send(&engine.KillJob{ID: "j"})
	b.settle()
	if c := b.engine.State().Job("j").Groups[0].Counts; c.Stopping != 10_000 || c.Failed != tasks-10_000 {
		t.Fatalf("counts %+v", c)
	}
	if err := b.engine.State().Check(); err != nil {
		t.Fatal(err)
	}
}

// More nodes free room in one turn than the log of nodes keeps. Tasks that wait for the first of
// them are tried all the same.
func TestMoreFreesThanAreRemembered(t *testing.T) {
	const many = 9000
	b := newBench(t, state.Config{}, state.Limits{})
	b.silent = true
	b.send(machine("small", 500), job("one", 1, 500))
	b.settle()
	b.send(machine("n", many), job("j", many, 1))
	b.settle()
	b.send(&engine.SetNodeMode{ID: "n", Mode: plimsoll.NodeCordoned}, job("waits", 1, 400))
	b.settle()
	ends := all(many)
	for i := range ends.Reports {
		ends.Reports[i].Result = plimsoll.ResultSucceeded
	}
	b.send(finished("small", "one", 0), ends)
	b.settle()
	if c := b.engine.State().Job("waits").Groups[0].Counts; c.Bound != 1 {
		t.Fatalf("it waits on: %+v", c)
	}
}

// After a crash in the middle of a kill or a scaling down, the unwanted tasks are not placed again.
func TestUnwantedTasksAreNotPlacedAfterACrash(t *testing.T) {
	for _, do := range []engine.Operation{&engine.KillJob{ID: "j"}, &engine.ScaleJob{ID: "j", Count: 0}} {
		b := newBench(t, state.Config{}, state.Limits{Ops: 40})
		b.send(job("j", 300, 1000))
		b.settle()
		b.send(do)
		b.turn()
		b.crash()
		b.send(machine("n", 1_000_000))
		b.settle()
		for i := range b.engine.State().Job("j").Groups[0].Tasks {
			if task := &b.engine.State().Job("j").Groups[0].Tasks[i]; task.Attempt != 0 {
				t.Fatalf("%T: %s was placed", do, task.ID)
			}
		}
	}
}

// Dropping stale timers keeps those that have a cause: every task is retried when its time has
// come.
func TestManyRetriesAllHappen(t *testing.T) {
	const tasks = 1000
	b := newBench(t, state.Config{}, state.Limits{})
	do := job("j", tasks, 1)
	do.Spec.Groups[0].Retry = plimsoll.RetryPolicy{Kind: plimsoll.RetryDelayed, Limit: 1}
	b.send(do, machine("n", tasks))
	b.settle()
	for i := range int32(tasks) {
		report := plimsoll.TaskReport{Attempt: 1, State: plimsoll.TaskFinished, Result: plimsoll.ResultFailed}
		b.send(&engine.ReportTasks{Node: "n", Incarnation: 1, Reports: []engine.Report{
			{Job: "j", Group: "g", Index: i, TaskReport: report},
		}})
		if i%10 == 0 {
			b.turn()
			b.now += 1e6
		}
	}
	b.settle()
	b.now += 2e9
	b.settle()
	if c := b.engine.State().Job("j").Groups[0].Counts; c.Bound != tasks {
		t.Fatalf("counts %+v", c)
	}
}
