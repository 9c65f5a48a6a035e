package replica

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// readWorld is a history with a writer, and readers of its changes.
type readWorld struct {
	rng     *rand.Rand
	tables  *Tables
	history *History
	view    *Changes
	readers ChangeReaders
}

func newReadWorld(rng *rand.Rand, limit int) *readWorld {
	w := &readWorld{rng: rng, tables: NewTables(), history: NewHistory(limit)}
	w.history.Reset(1, 0)
	w.view = w.history.View()
	w.readers.Replaced(w.view)
	return w
}

func (w *readWorld) latest() *Changes { return w.view }

func (w *readWorld) commit(mutations ...wire.Mutation) {
	batch := &wire.Batch{Epoch: w.history.version.Epoch, Revision: w.history.version.Revision + 1, Mutations: mutations}
	mustHistory(w.history, w.tables, batch)
	w.view = w.history.View()
	w.readers.Publish(w.view)
}

// jobIn is the record of a job in a queue.
func jobIn(id, owner, queue string, revision uint64) wire.Mutation {
	status := plimsoll.JobStatus{ID: id, Owner: owner, Queue: queue, Revision: revision}
	return wire.Mutation{Kind: wire.KindJobStatus, Key: id, Value: wire.AppendJobStatus(nil, &status)}
}

// taskOf is the record of a task on a node.
func taskOf(job string, index int, node string, revision uint64) wire.Mutation {
	return wire.Mutation{
		Kind: wire.KindTask, Key: wire.TaskKey(job, "map", int32(index)), Value: fmt.Append(nil, revision), Node: node,
	}
}

func (w *readWorld) commitRandom() {
	var mutations []wire.Mutation
	revision := w.history.version.Revision + 1
	most := 4
	if w.rng.IntN(10) == 0 {
		most = 6 * maxSpans // more than a part keeps alone
	}
	for range w.rng.IntN(most) {
		m := taskOf(fmt.Sprint("j", w.rng.IntN(3)), w.rng.IntN(200), []string{"", "n1", "n2"}[w.rng.IntN(3)], revision)
		if w.rng.IntN(2) == 0 {
			queue := []string{"root", "root.a", "root.a.b", "root.ab"}[w.rng.IntN(4)]
			m = jobIn(fmt.Sprint("j", w.rng.IntN(200)), fmt.Sprint("o", w.rng.IntN(2)), queue, revision)
		}
		if w.rng.IntN(5) == 0 {
			m.Value, m.Node = nil, ""
		}
		mutations = append(mutations, m)
	}
	w.commit(mutations...)
}

// concerns reports whether a change concerns the part, without an index.
func (p Part) concerns(c *Change) bool {
	for _, o := range []Object{c.Old, c.New} {
		if o.Value == nil {
			continue
		}
		owner, queue, _, _ := wire.PeekJob(o.Value)
		switch p.By {
		case Every:
			return true
		case ByNode:
			if o.Node == p.Value {
				return true
			}
		case ByJob:
			if wire.IsTaskKeyOf(c.Key, p.Value) {
				return true
			}
		case ByOwner:
			if string(owner) == p.Value {
				return true
			}
		case ByQueue:
			if string(queue) == p.Value || strings.HasPrefix(string(queue), p.Value+".") {
				return true
			}
		}
	}
	return false
}

// The readers read at their own pace, and take as many changes as they like.
func TestReadersSeeEveryChangeOfTheirPartOnceAndInOrder(t *testing.T) {
	first, runs := testrun.Seed(t), testrun.Count(4, 9, 1000)
	lost, seen := 0, 0
	little := func() bool { return lost < runs || seen < 100*runs }
	for run := 0; run < runs || run < 5*runs && little(); run++ {
		seed := first + uint64(run)
		rng := rand.New(rand.NewPCG(seed, 0))
		w := newReadWorld(rng, changeOverhead*(100+rng.IntN(4000)))
		parts := []Part{
			{Kind: wire.KindTask},
			{wire.KindTask, ByNode, "n1"},
			{wire.KindTask, ByJob, "j2"},
			{wire.KindJobStatus, ByOwner, "o1"},
			{wire.KindJobStatus, ByQueue, "root.a"},
			{wire.KindJobStatus, ByQueue, "root"},
		}
		for range rng.IntN(20) {
			w.commitRandom()
		}
		for _, part := range parts {
			for range 2 {
				r := &readTest{world: w, part: part, reader: w.readers.Read(part, w.latest, rng.IntN(2) == 0)}
				r.begin()
				defer r.reader.Close()
				for range 60 {
					w.commitRandom()
					if rng.IntN(4) > 0 {
						continue
					}
					if err := r.read(); err != nil {
						t.Fatalf("PLIMSOLL_SEED=%d: %+v: %v", seed, part, err)
					}
				}
				lost, seen = lost+r.lost, seen+r.seen
			}
		}
	}
	t.Logf("%d changes were seen, and %d times some were lost", seen, lost)
	if little() {
		t.Errorf("the runs did too little: %d changes seen, %d times lost", seen, lost)
	}
}

// readTest is a reader, and the position up to which it has seen everything.
type readTest struct {
	world      *readWorld
	part       Part
	reader     *ChangeReader
	next       uint64
	caughtUp   bool // the read before took everything
	seen, lost int
}

func (r *readTest) begin() {
	first, end := r.world.view.First(r.part.Kind), r.world.view.End(r.part.Kind)
	r.next, r.caughtUp = first+r.world.rng.Uint64N(end-first+1), false
	r.reader.Begin(r.next)
}

// read reads if the reader is signalled, and compares what it yields with the history.
func (r *readTest) read() error {
	signalled := false
	select {
	case <-r.reader.Changed():
		signalled = true
	default: // nothing came
	}
	view, limit := r.reader.View(), 1+r.world.rng.IntN(300)
	var got []*Change
	var last uint64
	whole, err := r.reader.Each(view, func(c *Change) (bool, error) {
		if limit == 0 {
			return false, nil
		}
		limit--
		if r.part.concerns(c) {
			got = append(got, c)
		}
		last = r.reader.Position()
		return true, nil
	})
	if err != nil {
		return err
	}
	if !whole {
		r.lost++
		if r.next >= view.First(r.part.Kind) {
			return fmt.Errorf("it has lost changes, and the history has all from %d on", r.next)
		}
		r.begin()
		return nil
	}
	position := r.reader.Position()
	if last > position || position > view.End(r.part.Kind) {
		return fmt.Errorf("its position is %d behind a change at %d", position, last)
	}
	changes, ok := view.From(r.part.Kind, max(r.next, view.First(r.part.Kind)))
	if !ok {
		return fmt.Errorf("the position %d is not in the view", r.next)
	}
	var want []*Change
	for i, c := range changes {
		if max(r.next, view.First(r.part.Kind))+uint64(i) < position && r.part.concerns(c) {
			want = append(want, c)
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("from %d to %d it has seen %d changes, want %d", r.next, position, len(got), len(want))
	}
	if len(got) > 0 && !signalled && r.caughtUp {
		return fmt.Errorf("%d changes came without a signal", len(got))
	}
	r.seen, r.caughtUp = r.seen+len(got), limit > 0
	r.next = position
	return nil
}

func TestAReaderIsSignalledForItsPartAlone(t *testing.T) {
	w := newReadWorld(rand.New(rand.NewPCG(1, 1)), 0)
	node := w.readers.Read(Part{wire.KindTask, ByNode, "n1"}, w.latest, false)
	job := w.readers.Read(Part{wire.KindTask, ByJob, "j"}, w.latest, false)
	owner := w.readers.Read(Part{wire.KindJobStatus, ByOwner, "alice"}, w.latest, false)
	queue := w.readers.Read(Part{wire.KindJobStatus, ByQueue, "root.a"}, w.latest, false)
	for _, step := range []struct {
		name                    string
		mutation                wire.Mutation
		node, job, owner, queue int
	}{
		{"a task of the job waits", taskOf("j", 0, "", 1), 0, 1, 0, 0},
		{"it is bound", taskOf("j", 0, "n1", 2), 1, 1, 0, 0},
		{"it moves away", taskOf("j", 0, "n2", 3), 1, 1, 0, 0},
		{"a task of another job, elsewhere", taskOf("j2", 0, "n2", 4), 0, 0, 0, 0},
		{"a job of the owner", jobIn("j", "alice", "root.b", 5), 0, 0, 1, 0},
		{"it moves to a queue below", jobIn("j", "alice", "root.a.c", 6), 0, 0, 1, 1},
		{"and to one of a similar name", jobIn("j", "alice", "root.ac", 7), 0, 0, 1, 1},
		{"a job of another owner", jobIn("k", "bob", "root.ac", 8), 0, 0, 0, 0},
	} {
		w.commit(step.mutation)
		got := [4]int{}
		for i, r := range []*ChangeReader{node, job, owner, queue} {
			if got[i] = len(r.Changed()); got[i] > 0 {
				<-r.Changed()
				r.View()
			}
		}
		if got != [4]int{step.node, step.job, step.owner, step.queue} {
			t.Errorf("%s: node, job, owner and queue have %v signals", step.name, got)
		}
	}
	for _, r := range []*ChangeReader{node, job, owner, queue} {
		r.Close()
		r.Close() // a second time does nothing
	}
	w.commit(taskOf("j", 0, "n1", 9))
	if w.readers.Len() != 0 || len(w.readers.mu.byPart) != 0 || len(node.Changed()) != 0 {
		t.Error("a reader that was closed goes on")
	}
}

func TestTheMemoryOfAPartIsBoundedWhateverItsReadersDo(t *testing.T) {
	const n = 20 * maxSpans
	w := newReadWorld(rand.New(rand.NewPCG(1, 1)), 0)
	r := w.readers.Read(Part{wire.KindTask, ByNode, "n1"}, w.latest, false)
	r.Begin(w.view.End(wire.KindTask))
	for i := range n {
		w.commit(taskOf("j", i, "n1", 1), taskOf("k", i, "n2", 1))
		if i%100 == 0 && i > n/2 {
			r.View()
		}
		if kept := cap(r.log.mu.spans); kept > maxSpans {
			t.Fatalf("%d spans are kept", kept)
		}
	}
	seen := 0
	whole, err := r.Each(r.View(), func(c *Change) (bool, error) {
		if c.New.Node == "n1" {
			seen++
		}
		return true, nil
	})
	if !whole || err != nil || seen != n {
		t.Errorf("%d changes of %d were seen: %t, %v", seen, n, whole, err)
	}
}

// Only the spans far behind are joined: a reader that keeps up looks at what concerns it.
func TestAReaderThatKeepsUpLooksAtItsOwnChangesOnly(t *testing.T) {
	w := newReadWorld(rand.New(rand.NewPCG(1, 1)), 0)
	r := w.readers.Read(Part{wire.KindTask, ByNode, "n1"}, w.latest, false)
	for i := range 10 * maxSpans {
		w.commit(taskOf("k", i, "n2", 1), taskOf("j", i, "n1", 1), taskOf("l", i, "n2", 1))
		if i%8 != 0 {
			continue
		}
		whole, err := r.Each(r.View(), func(c *Change) (bool, error) {
			if c.New.Node != "n1" {
				t.Errorf("it looks at a task of %q", c.New.Node)
			}
			return true, nil
		})
		if !whole || err != nil {
			t.Fatalf("whole: %t, %v", whole, err)
		}
	}
}

// Nobody can tell whom the lost changes of a batch concern that is larger than the history.
func TestABatchLargerThanTheHistoryIsALossForEveryReaderOfAPart(t *testing.T) {
	w := newReadWorld(rand.New(rand.NewPCG(1, 1)), 10*changeOverhead)
	r := w.readers.Read(Part{wire.KindTask, ByNode, "n1"}, w.latest, false)
	var batch []wire.Mutation
	for i := range 100 {
		batch = append(batch, taskOf("j", i, "n2", 1))
	}
	w.commit(batch...)
	<-r.Changed()
	if whole, err := r.Each(r.View(), func(*Change) (bool, error) { return true, nil }); whole || err != nil {
		t.Errorf("the history is whole: %t, %v", whole, err)
	}
	r.Begin(w.view.End(wire.KindTask) - 3) // of the batch, and still in the history
	seen := 0
	whole, err := r.Each(r.View(), func(*Change) (bool, error) {
		seen++
		return true, nil
	})
	if !whole || err != nil || seen != 3 {
		t.Errorf("a reader within the batch sees %d changes of 3: %t, %v", seen, whole, err)
	}
}

// A reader whose caller keeps a point is woken now and then, so that the point stays in the
// history.
func TestAReaderWithAPointIsSignalledBehindManyChangesOfOthers(t *testing.T) {
	w := newReadWorld(rand.New(rand.NewPCG(1, 1)), 0)
	with := w.readers.Read(Part{wire.KindTask, ByNode, "n1"}, w.latest, true)
	without := w.readers.Read(Part{wire.KindTask, ByNode, "n1"}, w.latest, false)
	with.Begin(w.view.End(wire.KindTask))
	for i := range farChanges + 1 {
		w.commit(taskOf("j", i, "n2", 1))
	}
	if len(with.Changed()) != 1 || len(without.Changed()) != 0 {
		t.Errorf("there are %d and %d signals", len(with.Changed()), len(without.Changed()))
	}
	view := with.View()
	whole, err := with.Each(view, func(*Change) (bool, error) {
		t.Error("it looks at changes of others")
		return true, nil
	})
	if !whole || err != nil {
		t.Error(whole, err)
	}
	if with.Position() != view.End(wire.KindTask) {
		t.Errorf("its position is %d, want %d", with.Position(), view.End(wire.KindTask))
	}
}

// A reader that looks while a batch is told sees it as a whole or not at all.
func TestAReaderSeesABatchAsAWhole(t *testing.T) {
	w := newReadWorld(rand.New(rand.NewPCG(1, 1)), 0)
	var latest atomic.Pointer[Changes]
	latest.Store(w.view)
	node := w.readers.Read(Part{wire.KindTask, ByNode, "n1"}, latest.Load, false)
	const batches, tasks = 2000, 20
	var group sync.WaitGroup
	group.Go(func() {
		for i := range batches {
			batch := &wire.Batch{Epoch: 1, Revision: uint64(i + 1)}
			for task := range tasks {
				batch.Mutations = append(batch.Mutations, taskOf("j", task, "n1", batch.Revision))
			}
			mustHistory(w.history, w.tables, batch)
			latest.Store(w.history.View())
			w.readers.Publish(latest.Load())
		}
	})
	for seen := 0; seen < batches*tasks; {
		<-node.Changed()
		whole, err := node.Each(node.View(), func(*Change) (bool, error) {
			seen++
			return true, nil
		})
		if !whole || err != nil || seen%tasks != 0 {
			t.Errorf("%d changes of batches of %d were seen: %t, %v", seen, tasks, whole, err)
			break
		}
	}
	group.Wait()
}

// BenchmarkCommit is the processor time that a gateway takes to apply a batch of 100 tasks among
// 100,000 and to tell the streams of it: idle ones of other nodes, and those of all tasks.
func BenchmarkCommit(b *testing.B) {
	for _, test := range []struct{ idle, wide int }{{0, 0}, {100, 0}, {2000, 0}, {0, 1000}} {
		b.Run(fmt.Sprintf("idle=%d/wide=%d", test.idle, test.wide), func(b *testing.B) {
			const tasks, batch = 100_000, 100
			w := newReadWorld(nil, 0)
			value := make([]byte, 120)
			key := func(i int) string { return wire.TaskKey(fmt.Sprint("job-", i/batch), "map", int32(i%batch)) }
			w.commit(taskBatch(key, value, 0, tasks)...)
			for i := range test.idle {
				w.readers.Read(Part{wire.KindTask, ByNode, fmt.Sprint("idle-", i)}, w.latest, false)
			}
			for range test.wide {
				w.readers.Read(Part{Kind: wire.KindTask}, w.latest, false)
			}
			n, cpu := 0, cpuTime(b)
			b.ReportAllocs()
			for b.Loop() {
				next := append(value[:len(value)-8:len(value)-8], fmt.Sprintf("%08d", n)...)
				w.commit(taskBatch(key, next, n*batch%tasks, batch)...)
				n++
			}
			b.ReportMetric(float64(cpuTime(b)-cpu)/float64(n)/1e3, "cpu-us/op")
		})
	}
}

// BenchmarkBroadPart is the processor time that a gateway takes to tell many readers of a batch of
// 500 jobs: readers of one queue that all of them are in, and readers of all jobs.
func BenchmarkBroadPart(b *testing.B) {
	for _, part := range []Part{{Kind: wire.KindJobStatus}, {wire.KindJobStatus, ByQueue, "root"}} {
		for _, readers := range []int{1, 8000} {
			b.Run(fmt.Sprintf("part=%s/readers=%d", cmp.Or(part.Value, "every"), readers), func(b *testing.B) {
				w := newReadWorld(nil, 0)
				var all []*ChangeReader
				for range readers {
					all = append(all, w.readers.Read(part, w.latest, false))
				}
				var batch []wire.Mutation
				for i := range 500 {
					batch = append(batch, jobIn(fmt.Sprint("j", i), "alice", "root.a.b", 0))
				}
				n, cpu := uint64(0), time.Duration(0)
				for b.Loop() {
					n++
					for i := range batch {
						batch[i] = jobIn(batch[i].Key, "alice", "root.a.b", n)
					}
					before := cpuTime(b)
					w.commit(batch...)
					cpu += cpuTime(b) - before
					for _, r := range all {
						<-r.Changed()
						if whole, err := r.Each(r.View(), func(*Change) (bool, error) { return true, nil }); !whole {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(cpu)/float64(n)/1e3, "cpu-us/op")
			})
		}
	}
}

// BenchmarkPlacements is the work of a gateway on a batch of 1,000 placements on 2,000 nodes whose
// agents follow it: looks are the changes that a stream looks at.
func BenchmarkPlacements(b *testing.B) {
	const nodes, batch = 2000, 1000
	w := newReadWorld(rand.New(rand.NewPCG(1, 1)), 0)
	var streams []*ChangeReader
	for i := range nodes {
		streams = append(streams, w.readers.Read(Part{wire.KindTask, ByNode, fmt.Sprint("node-", i)}, w.latest, false))
	}
	looks, placed, cpu := 0, 0, cpuTime(b)
	for b.Loop() {
		mutations := make([]wire.Mutation, batch)
		for i := range mutations {
			mutations[i] = taskOf("j", placed%100_000, fmt.Sprint("node-", w.rng.IntN(nodes)), uint64(placed))
			placed++
		}
		w.commit(mutations...)
		for _, r := range streams {
			if len(r.Changed()) == 0 {
				continue
			}
			<-r.Changed()
			whole, err := r.Each(r.View(), func(*Change) (bool, error) {
				looks++
				return true, nil
			})
			if !whole || err != nil {
				b.Fatal(whole, err)
			}
		}
	}
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(placed), "cpu-ns/placement")
	b.ReportMetric(float64(looks)/float64(placed), "looks/placement")
}
