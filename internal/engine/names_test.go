package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

const gpu = "nvidia.com/gpu"

// askingFor returns a job whose tasks ask for one of each named resource, and for cpu.
func askingFor(id string, count int32, names ...string) *engine.SubmitJob {
	do := job(id, count, 100)
	for _, name := range names {
		do.Spec.Groups[0].Resources[name] = 1
	}
	return do
}

// having returns a node with four of each named resource, and with cpu.
func having(id string, names ...string) *engine.RegisterNode {
	do := machine(id, 8000)
	for _, name := range names {
		do.Node.Capacity[name] = 4
	}
	return do
}

// madeUp returns names of resources that no node has.
func madeUp(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("example.com/%s%d", prefix, i))
	}
	return names
}

// gone lets a node fall silent, and removes it after its tasks were given up.
func (b *bench) gone(id string) {
	b.t.Helper()
	b.send(&engine.NodeSilent{ID: id, Registration: b.engine.State().Node(id).Registration})
	b.settle()
	b.now += 120e9
	b.settle()
	done := b.send(&engine.RemoveNode{ID: id})
	b.settle()
	if err := b.reply(done); err != nil {
		b.t.Fatal(err)
	}
}

// taken fails if a command was refused.
func (b *bench) taken(do engine.Operation) {
	b.t.Helper()
	id := b.send(do)
	b.settle()
	if err := b.reply(id); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) wait(job string) plimsoll.WaitCause {
	return b.engine.State().Job(job).Groups[0].Wait
}

func (b *bench) running(job string) int32 {
	return b.engine.State().Job(job).Groups[0].Counts.Bound
}

// A job may ask for a resource name that no node and no queue has. The name takes no slot, before
// and after a load.
func TestUnknownResourceTakesNoSlot(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.taken(machine("n", 4000))
	b.taken(askingFor("a", 2, gpu))
	for range 2 {
		if n := b.engine.State().Names.Len(); n != 3 {
			t.Fatalf("%d names have slots, want those that every node has", n)
		}
		if want := (plimsoll.WaitCause{Code: plimsoll.WaitNoResource, Resource: gpu, Asked: 1}); b.wait("a") != want {
			t.Fatalf("the group waits with %+v, want %+v", b.wait("a"), want)
		}
		b.crash()
		b.settle()
	}
	b.same()
}

// Thirteen made-up names in jobs do not keep a node with gpus out, before and after a load. The
// jobs may have tasks or none.
func TestThirteenMadeUpNamesDoNotShutOutGPUs(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	names := madeUp("r", 13)
	b.taken(askingFor("a", 0, names[:8]...))
	b.taken(askingFor("b", 3, names[5:]...))
	b.crash()
	b.settle()
	b.taken(having("n", gpu))
	b.taken(askingFor("c", 2, gpu))
	if b.running("c") != 2 {
		t.Fatalf("%d of two tasks are bound; they wait with %v", b.running("c"), b.wait("c"))
	}
}

// A job has at most eight names that no node and no queue has. Other names do not count.
func TestAJobHasAtMostEightUnknownNames(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	names := madeUp("r", 13)
	b.taken(having("n", names[:4]...))
	b.taken(askingFor("a", 1, names[:12]...))
	refused := b.send(askingFor("b", 1, names...))
	b.settle()
	b.wantRefused(refused, plimsoll.CodeInvalid, "groups[0].resources.example.com/r9", "8 of them", "known: ", names[0])
}

// A store with jobs of more names than there are slots loads, as older versions left it. The names
// have no slots.
func TestAStoreWithMoreNamesThanSlotsLoads(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.taken(machine("n", 4000))
	for i := range 20 {
		b.taken(askingFor(fmt.Sprintf("j%d", i), 1))
	}
	for i := range 20 {
		b.records.specs[fmt.Sprintf("j%d", i)].Groups[0].Resources[fmt.Sprintf("example.com/r%d", i)] = 1
	}
	for name, task := range b.records.tasks {
		task.State, task.Node = plimsoll.TaskPending, ""
		b.records.tasks[name] = task
	}
	b.crash()
	b.settle()
	if n := b.engine.State().Names.Len(); n != 3 {
		t.Fatalf("%d names have slots, want 3", n)
	}
}

// A group that waits for a resource is placed when a node with the resource joins. From then on its
// whole request counts in its queue.
func TestGroupWakesWhenANodeBringsItsResource(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.taken(machine("n", 4000))
	b.taken(askingFor("a", 6, gpu))
	b.taken(askingFor("b", 1, gpu, "example.com/fpga"))
	root := b.engine.State().Tree().Root
	if status := b.engine.State().QueueStatus(root); status.Pending[gpu] != 0 || status.Pending["cpu"] != 700 {
		t.Fatalf("pending are %v, want cpu 700m and no gpus", status.Pending)
	}
	b.taken(having("m", gpu))
	if b.running("a") != 4 || b.wait("a").Code != plimsoll.WaitNoNode {
		t.Fatalf("%d tasks are bound and the others wait with %v; want 4, no_node", b.running("a"), b.wait("a"))
	}
	if status := b.engine.State().QueueStatus(root); status.Pending[gpu] != 3 || status.Allocated[gpu] != 4 {
		t.Fatalf("pending are %v and allocated %v, want 3 and 4 gpus", status.Pending, status.Allocated)
	}
	if got := b.wait("b"); got.Code != plimsoll.WaitNoResource || got.Resource != "example.com/fpga" {
		t.Fatalf("the other group waits with %+v, want example.com/fpga", got)
	}
	b.taken(having("o", "example.com/fpga", gpu))
	if b.running("b") != 1 {
		t.Fatalf("the other group waits with %v", b.wait("b"))
	}
}

// A group that lacks two resources waits for the second when a node brings the first.
func TestTheNextMissingResourceIsTold(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.taken(machine("n", 4000))
	b.taken(askingFor("a", 1, "example.com/a", "example.com/b"))
	if got := b.wait("a"); got.Resource != "example.com/a" {
		t.Fatalf("waits with %+v, want example.com/a", got)
	}
	b.taken(having("m", "example.com/a"))
	if got := b.wait("a"); got.Resource != "example.com/b" {
		t.Fatalf("waits with %+v, want example.com/b", got)
	}
}

// A queue that limits a resource brings its name, but no node has it yet.
func TestAQueueBringsANameAndNoNodeHasIt(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	tree := plimsoll.DefaultQueues()
	tree.Queues[0].Max = plimsoll.Resources{gpu: 8}
	b.taken(machine("n", 4000))
	b.taken(askingFor("a", 1, gpu))
	b.taken(&engine.SetQueueConfig{Config: tree})
	if got := b.wait("a"); got.Code != plimsoll.WaitNoResource || b.engine.State().Names.Index(gpu) < 0 {
		t.Fatalf("waits with %+v, want no_resource, and the name has index %d", got, b.engine.State().Names.Index(gpu))
	}
	b.taken(having("m", gpu))
	if b.running("a") != 1 {
		t.Fatalf("waits with %v", b.wait("a"))
	}
}

// A name loses its slot when the last node, queue and task on a node with it are gone. Another name
// can have the slot then.
func TestANameThatNothingHasAnyMoreIsFreeAgain(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	first, second := madeUp("a", 13), madeUp("b", 13)
	b.taken(having("n", first...))
	b.taken(askingFor("waits", 9, first[0]))
	b.taken(askingFor("later", 1, second[0]))
	if b.running("waits") != 4 {
		t.Fatalf("%d tasks are bound, want 4", b.running("waits"))
	}
	refused := b.send(having("m", second...))
	b.settle()
	b.wantRefused(refused, plimsoll.CodeInvalid, "16 different resource names")
	b.gone("n")
	b.taken(having("m", second...))
	if b.running("later") != 1 || b.wait("waits").Code != plimsoll.WaitNoResource {
		t.Fatalf(
			"%d tasks of the other job are bound, and the first waits with %v", b.running("later"), b.wait("waits"),
		)
	}
	b.same()

	tree := plimsoll.DefaultQueues()
	b.gone("m")
	for _, names := range [][]string{first, second, first} { // queues hold them too, and let them go
		tree.Queues[0].Max = plimsoll.Resources{}
		b.taken(&engine.SetQueueConfig{Config: tree})
		for _, name := range names {
			tree.Queues[0].Max[name] = 100
		}
		b.taken(&engine.SetQueueConfig{Config: tree})
		b.crash()
		b.settle()
	}
}

// A task on a node keeps the slot of a resource name that its node no longer has, also over a load.
func TestATaskOnANodeKeepsTheNameOfItsResource(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.taken(having("n", gpu))
	b.taken(askingFor("a", 5, gpu))
	b.taken(machine("n", 8000)) // its gpus were taken out
	for range 2 {
		if used := b.engine.State().NodeStatus(b.engine.State().Node("n")).Allocated[gpu]; used != 4 {
			t.Fatalf("%d gpus are allocated, want 4", used)
		}
		b.crash()
		b.settle()
	}
	if got := b.wait("a"); got.Code != plimsoll.WaitNoResource {
		t.Fatalf("the fifth task waits with %+v", got)
	}
	b.send(&engine.KillJob{ID: "a"})
	for i := range int32(4) {
		b.taken(finished("n", "a", i))
	}
	if k := b.engine.State().Names.Index(gpu); k >= 0 {
		t.Fatalf("the name still has slot %d", k)
	}
	b.same()
}

// Requests for a resource that no node has are added up too, so that no sum overflows when a node
// brings the resource.
func TestSumsOfAnUnknownResourceDoNotOverflow(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	var last uint64
	for i := range 5 { // four are as much as can be counted
		do := askingFor(fmt.Sprintf("j%d", i), 128, gpu)
		do.Spec.Groups[0].Resources[gpu] = plimsoll.MaxAmount
		last = b.send(do)
	}
	b.settle()
	b.wantCode(last, plimsoll.CodeExhausted)
	b.taken(having("n", gpu))
	b.taken(&engine.ScaleJob{ID: "j0", Count: 120})
	more := askingFor("j5", 9, gpu)
	more.Spec.Groups[0].Resources[gpu] = plimsoll.MaxAmount
	last = b.send(more)
	b.settle()
	b.wantCode(last, plimsoll.CodeExhausted)
}

// explain, place and the plans of defrag name the resource that no node has, the known ones, and
// the one that may be meant. They give no name a slot.
func TestQuestionsSayWhichResourceNoNodeHas(t *testing.T) {
	const want = "no node has nvidia.com/gpus (known: cpu, disk, memory, nvidia.com/gpu; did you mean nvidia.com/gpu?)"
	b := newBench(t, state.Config{}, state.Limits{})
	b.taken(having("n", gpu))
	b.taken(askingFor("a", 1, "nvidia.com/gpus"))
	b.settle()
	subject, err := b.engine.Subject("a", "g", 0)
	if err != nil {
		t.Fatal(err)
	}
	view := b.engine.View()
	x, err := view.Explain(&subject, "")
	if err != nil {
		t.Fatal(err)
	}
	if x.Code != plimsoll.WaitNoResource || x.Summary != want {
		t.Errorf("explain says %s %q, want %q", x.Code, x.Summary, want)
	}
	if x.Servers != 1 || x.Fit != 0 || len(x.Steps) != 0 {
		t.Errorf("explain counts %+v, as if a node could take it", x.Explanation)
	}
	trial, err := view.Try(askingFor("b", 3, "nvidia.com/gpus").Spec, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if g := trial.Groups[0]; g.Code != plimsoll.WaitNoResource || g.Summary != want || len(g.Placed) != 0 ||
		g.Asked != 3 {
		t.Errorf("place says %s %q and places %d", g.Code, g.Summary, len(g.Placed))
	}
	plan, err := view.PlanMoves(askingFor("b", 3, "nvidia.com/gpus").Spec, "", 10)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Refusal != want {
		t.Errorf("the plan says %q", plan.Refusal)
	}
	names := madeUp("r", 16)
	many := askingFor("c", 1).Spec
	many.Groups[0].Resources = plimsoll.Resources{}
	for _, name := range names {
		many.Groups[0].Resources[name] = 1
	}
	if trial, err = view.Try(many, "", 0); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(trial.Groups[0].Summary, "no node has example.com/r0 (") {
		t.Errorf("place says %q of a job with 16 names", trial.Groups[0].Summary)
	}
	if n := b.engine.State().Names.Len(); n != 4 {
		t.Errorf("%d names have slots, want 4", n)
	}
}
