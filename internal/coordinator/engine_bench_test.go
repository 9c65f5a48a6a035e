package coordinator

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const gib = int64(1) << 30

// fleet returns an engine over nodes that are filled to the given percentage.
type fleet struct {
	engine *engine.Engine
	out    engine.Batch
	enc    encoder
	bytes  []byte
	now    int64
	nextID uint64
	placed []plimsoll.Task // those that were bound, unless it is nil
}

func newFleet(b *testing.B, nodes, percent int) *fleet {
	b.Helper()
	f := &fleet{now: 1e18, enc: encoder{epoch: 1}}
	s := state.New(state.Config{TrustOwner: true}, plimsoll.DefaultQueues())
	f.engine = engine.New(engine.Config{Seed: 1}, s, 0, f.now)
	for i := range nodes {
		f.turn(b, &engine.RegisterNode{Gateway: "gw", Node: plimsoll.Node{
			ID: fmt.Sprintf("node-%05d", i), Incarnation: 1,
			Capacity: plimsoll.Resources{"cpu": 64_000, "memory": 256 * gib, "disk": 4096 * gib},
		}})
	}
	// Fill with tasks of a fiftieth of a node each.
	f.submit(b, "filler", "root.default", nodes*percent/2, plimsoll.Resources{"cpu": 1280, "memory": 5 * gib})
	return f
}

// turn applies commands and makes turns until no work is left. It returns the number of bound
// tasks.
func (f *fleet) turn(b *testing.B, do ...engine.Operation) int {
	b.Helper()
	var commands []engine.Command
	for _, d := range do {
		f.nextID++
		commands = append(commands, engine.Command{ID: f.nextID, Do: d})
	}
	bound := 0
	for more := true; more; {
		var taken int
		taken, _, more = f.engine.Turn(f.now, commands, &f.out)
		commands = commands[taken:]
		for _, r := range f.out.Replies {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
		if f.out.Revision != 0 {
			f.bytes = wire.AppendBatch(f.bytes[:0], f.enc.encode(&f.out))
		}
		for i := range f.out.Changes.Tasks {
			if t := &f.out.Changes.Tasks[i]; t.State == plimsoll.TaskBound {
				bound++
				if f.placed != nil {
					f.placed = append(f.placed, *t)
				}
			}
		}
	}
	return bound
}

func spec(id, queue string, count int, r plimsoll.Resources) *engine.SubmitJob {
	return &engine.SubmitJob{Spec: &plimsoll.JobSpec{
		ID: id, Owner: "alice", Queue: queue,
		Groups: []plimsoll.GroupSpec{
			{Name: "work", Count: int32(count), Command: []string{"sleep", "1"}, Resources: r},
		},
	}}
}

func (f *fleet) submit(b *testing.B, id, queue string, count int, r plimsoll.Resources) {
	b.Helper()
	if bound := f.turn(b, spec(id, queue, count, r)); bound != count {
		b.Fatalf("%d of %d tasks of %s were bound", bound, count, id)
	}
}

// BenchmarkCycle places 100,000 tasks of one leaf, 1,000 jobs of 100, on a fleet that is 80 % full.
// It measures all costs of a placement for the leader but the disk and the network: the turn, the
// events, and the encoding of records and batch. Submitting the jobs is not measured. The nodes are
// large enough that the fleet stays between 80 and 96 % full.
func BenchmarkCycle(b *testing.B) {
	for _, nodes := range []int{1000, 10_000} {
		tasks := 10 * nodes
		b.Run(fmt.Sprintf("nodes=%d/tasks=%d", nodes, tasks), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				b.StopTimer()
				f := newFleet(b, nodes, 80)
				blocked := plimsoll.Resources{"cpu": 1000, "memory": 4 * gib}
				// While no node is ready for them, the jobs wait; one turn then places them all.
				f.setModes(b, nodes, plimsoll.NodeCordoned)
				for j := range tasks / 100 {
					f.turn(b, spec(fmt.Sprintf("job-%04d", j), "root.batch", 100, blocked))
				}
				commands := f.modes(nodes, plimsoll.NodeActive)
				b.StartTimer()
				if bound := f.turn(b, commands...); bound != tasks/2 && bound != tasks {
					b.Fatalf("%d of %d tasks were bound", bound, tasks)
				} else {
					b.ReportMetric(float64(bound)*float64(b.N)/b.Elapsed().Seconds(), "placements/s")
				}
			}
		})
	}
}

func (f *fleet) modes(nodes int, mode plimsoll.NodeMode) []engine.Operation {
	commands := make([]engine.Operation, nodes)
	for i := range commands {
		commands[i] = &engine.SetNodeMode{ID: fmt.Sprintf("node-%05d", i), Mode: mode}
	}
	return commands
}

func (f *fleet) setModes(b *testing.B, nodes int, mode plimsoll.NodeMode) {
	b.Helper()
	f.turn(b, f.modes(nodes, mode)...)
}

// BenchmarkLifecycle measures the whole life of tasks in the engine: submit, bind, start, finish,
// in jobs of 100.
func BenchmarkLifecycle(b *testing.B) {
	f := newFleet(b, 1000, 50)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		id := fmt.Sprintf("life-%d", i)
		f.turn(b, spec(id, "root.batch", 100, plimsoll.Resources{"cpu": 100, "memory": gib / 4}))
		for _, st := range []plimsoll.TaskState{plimsoll.TaskRunning, plimsoll.TaskFinished} {
			f.report(b, id, st)
		}
	}
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "tasks/s")
}

func (f *fleet) report(b *testing.B, id string, st plimsoll.TaskState) {
	b.Helper()
	job := f.engine.State().Job(id)
	var commands []engine.Operation
	for i := range job.Groups[0].Tasks {
		t := &job.Groups[0].Tasks[i]
		r := engine.Report{Job: id, Group: "work", Index: int32(i)}
		r.Attempt, r.State, r.Result = t.Attempt, st, plimsoll.ResultSucceeded
		commands = append(commands, &engine.ReportTasks{Node: t.Node, Incarnation: 1, Reports: []engine.Report{r}})
	}
	f.turn(b, commands...)
}
