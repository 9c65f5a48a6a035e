package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/watchtest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// errCut is the error of a stream that a test cuts.
var errCut = errors.New("the stream is cut")

// watchWorld is a gateway whose copy one writer changes, and the writes that it has made.
type watchWorld struct {
	f       *fake
	g       *Gateway
	history watchtest.History
	tasks   map[int32]plimsoll.Task
	counts  struct {
		sync.Mutex
		resumed, stale, messages, parts int
	}
}

// digest is the state of a task as text.
func digest(t *pb.Task) string {
	return fmt.Sprint(t.GetNode(), "/", t.GetState(), "/", t.GetRevision())
}

// write commits one batch of random changes of tasks.
func (w *watchWorld) write(rng *rand.Rand) {
	mutations, writes := w.change(rng)
	w.history.Add(w.f.epoch, w.f.revision+1, writes...)
	w.f.put(mutations...)
}

// takeOver lets another leader take over, which has changed tasks.
func (w *watchWorld) takeOver(rng *rand.Rand) {
	mutations, writes := w.change(rng)
	slices.SortFunc(writes, func(a, b watchtest.Write) int { // as their keys, by index
		return cmp.Or(cmp.Compare(len(a.Key), len(b.Key)), cmp.Compare(a.Key, b.Key))
	})
	w.history.Add(w.f.epoch+1, w.f.revision+1, writes...)
	w.f.takeOver(mutations...)
}

// change returns random changes of tasks.
func (w *watchWorld) change(rng *rand.Rand) (mutations []wire.Mutation, writes []watchtest.Write) {
	most := 4
	if rng.IntN(20) == 0 {
		most = 400 // more than fits in a message
	}
	for _, index := range rng.Perm(400)[:1+rng.IntN(most)] {
		i := int32(index)
		task, exists := w.tasks[i]
		revision := w.f.revision + 1
		switch {
		case exists && rng.IntN(5) == 0:
			delete(w.tasks, i)
			mutations = append(mutations, deleted(putTask(plimsoll.Task{Job: "a", Group: "map", Index: i})))
			writes = append(writes, watchtest.Write{Key: plimsoll.TaskID("a", "map", i)})
			continue
		case !exists:
			task = plimsoll.Task{Job: "a", Group: "map", Index: i}
		}
		task.Revision, task.Node = revision, fmt.Sprint("n", rng.IntN(3))
		task.State, task.Message = plimsoll.TaskState(1+rng.IntN(5)), strings.Repeat("m", rng.IntN(700))
		w.tasks[i] = task
		mutations = append(mutations, putTask(task))
		message := wire.TaskToProto(&task)
		writes = append(writes, watchtest.Write{Key: plimsoll.TaskID("a", "map", i), Value: digest(message)})
	}
	return mutations, writes
}

// TestRandomWatchesAreOrderedUniqueReliableBookmarkableAndResumable runs watches with random
// criteria against a random history. Some are cut and resume, some read slowly, the leader changes,
// and the history is short.
func TestRandomWatchesAreOrderedUniqueReliableBookmarkableAndResumable(t *testing.T) {
	first, runs := testrun.Seed(t), testrun.Count(4, 8, 1000)
	resumed, stale, parts := 0, 0, 0
	for i := range runs {
		testrun.Bubble(t, func(t *testing.T) {
			w := runWatches(t, first+uint64(i))
			resumed, stale, parts = resumed+w.counts.resumed, stale+w.counts.stale, parts+w.counts.parts
		})
	}
	t.Logf("%d resumes, %d watches begun again, %d messages with a part of a batch", resumed, stale, parts)
	if resumed < 10*runs || stale < runs || parts < runs {
		t.Errorf("the runs did too little: %d resumes, %d begun again, %d parts", resumed, stale, parts)
	}
}

func runWatches(t *testing.T, seed uint64) *watchWorld {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := &watchWorld{f: newFake(), tasks: map[int32]plimsoll.Task{}}
	w.f.history = replica.NewHistory(1 << (19 + rng.IntN(4)))
	w.f.history.Reset(1, 0)
	w.f.changes = w.f.history.View()
	w.g = newGateway(t, Config{}, w.f)
	var group sync.WaitGroup
	over := make(chan struct{})
	for i := range 8 {
		group.Go(func() {
			if err := w.watcher(rand.New(rand.NewPCG(seed, uint64(i+1))), over); err != nil {
				t.Errorf("PLIMSOLL_SEED=%d: watcher %d: %v", seed, i, err)
			}
		})
	}
	for range 150 {
		w.write(rng)
		if rng.IntN(100) == 0 {
			w.history.Add(w.f.epoch+1, w.f.revision+1)
			w.f.elect()
		}
		if rng.IntN(30) == 0 {
			w.takeOver(rng)
		}
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
	}
	time.Sleep(5 * time.Minute) // the slowest watcher has read everything
	close(over)
	group.Wait()
	return w
}

// watcher watches until the end, through cuts.
func (w *watchWorld) watcher(rng *rand.Rand, over <-chan struct{}) error {
	want := criteria{}
	if rng.IntN(3) > 0 {
		want.node = fmt.Sprint("n", rng.IntN(3))
	}
	if rng.IntN(2) > 0 {
		want.states = []int32{1 + rng.Int32N(5), 1 + rng.Int32N(5)}
	}
	c := watchtest.NewChecker(&w.history, func(value string) bool {
		node, rest, _ := strings.Cut(value, "/")
		state, _, _ := strings.Cut(rest, "/")
		if !plimsoll.TaskState(pb.TaskState_value[state]).OnNode() {
			node = ""
		}
		return want.met(&facts{node: []byte(node), state: pb.TaskState_value[state]})
	})
	slow := time.Duration(rng.IntN(3)*rng.IntN(400)) * time.Millisecond
	for {
		call := watch{g: w.g, rpc: "WatchTasks", kind: wire.KindTask, want: want}
		if p := c.Point(); p == (watchtest.Point{}) {
			c.Open(w.f.Latest().Revision())
		} else {
			call.from = &pb.WatchPoint{Epoch: p.Epoch, Revision: p.Revision, Part: p.Part}
			w.count(func() { w.counts.resumed++ })
		}
		ctx, cancel := context.WithCancel(context.Background())
		lasts := 1 + rng.IntN(40) // messages until the cut
		var failed error
		call.send = func(data []byte) error {
			if lasts--; lasts == 0 && w.writing(over) {
				return errCut
			}
			time.Sleep(time.Duration(rng.Int64N(int64(slow + 1))))
			failed = w.receive(c, data)
			return failed
		}
		var ends sync.WaitGroup
		ends.Go(func() {
			select {
			case <-over:
				cancel()
			case <-ctx.Done():
			}
		})
		err := call.run(ctx)
		cancel()
		ends.Wait()
		switch {
		case failed != nil:
			return failed
		case plimsoll.CodeOf(err) == plimsoll.CodeCanceled:
			return c.Complete()
		case plimsoll.CodeOf(err) == plimsoll.CodeStale:
			w.count(func() { w.counts.stale++ })
			c.Open(0)
		case !errors.Is(err, errCut):
			return err
		case rng.IntN(4) == 0 && w.writing(over):
			time.Sleep(time.Duration(rng.IntN(10_000)) * time.Millisecond) // away for longer than the history
		}
	}
}

func (w *watchWorld) writing(over <-chan struct{}) bool {
	select {
	case <-over:
		return false
	default:
		return true
	}
}

func (w *watchWorld) count(add func()) {
	w.counts.Lock()
	defer w.counts.Unlock()
	add()
}

func (w *watchWorld) receive(c *watchtest.Checker, data []byte) error {
	m := &pb.WatchTasksResponse{}
	if err := proto.Unmarshal(data, m); err != nil {
		return err
	}
	p := m.GetPoint()
	received := watchtest.Message{
		Point:       watchtest.Point{Epoch: p.GetEpoch(), Revision: p.GetRevision(), Part: p.GetPart()},
		SnapshotEnd: m.GetSnapshotEnd(),
	}
	for _, change := range m.GetTasks() {
		received.Changes = append(received.Changes, watchtest.Change{
			Type: watchtest.Type(change.GetChange()), Key: taskID(change.GetTask()), Value: digest(change.GetTask()),
			Revision: change.GetRevision(),
		})
	}
	w.count(func() {
		w.counts.messages++
		if p.GetPart() > 0 {
			w.counts.parts++
		}
	})
	return c.Receive(received)
}
