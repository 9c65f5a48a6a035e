package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// capacity returns a question about the room that is left on all nodes.
func capacity() *pb.Command {
	return &pb.Command{Kind: &pb.Command_NodeCapacity{NodeCapacity: &pb.NodeCapacityRequest{}}}
}

// A client that has submitted a job and then asks finds the job. The answer's revision holds all
// that was acknowledged before the question came, with any number of other clients.
func TestAQuestionSeesAllThatWasAcknowledged(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	l.must(register("n", 1))
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for i := range 10 {
				id := fmt.Sprintf("j%d-%d", k, i)
				submitted := l.must(submit(job(id, 1))).GetRevision()
				x := l.must(explain(id + ".work.0")).GetExplainTask()
				if x.GetTask().GetJob() != id || x.GetRevision() < submitted {
					t.Errorf(
						"%s was acknowledged at revision %d and explained at %d: %v", id, submitted, x.GetRevision(),
						x.GetTask(),
					)
				}
				if p := l.must(place(job("x", 1), "", 0)).GetPlaceJob(); p.GetRevision() < submitted {
					t.Errorf(
						"%s was acknowledged at revision %d, and a dry run is of %d", id, submitted, p.GetRevision(),
					)
				}
			}
		})
	}
	all.Wait()
}

// copier stands for the writer loop: it begins a copy when one is wanted.
type copier struct {
	*questions
	engine *engine.Engine
	term   *term
	begun  int
	wanted chan struct{}
}

func newCopier(t *testing.T, limit int) *copier {
	t.Helper()
	c := &copier{wanted: make(chan struct{}, 100)}
	m := newMetrics(newStatus(), func() uint64 { return 0 })
	c.questions = newQuestions(limit, func() { c.wanted <- struct{}{} }, m)
	s := state.New(state.Config{}, plimsoll.DefaultQueues())
	c.engine = engine.New(engine.Config{Seed: 1}, s, 0, 1)
	source, err := replica.NewSource(replica.SourceConfig{Epoch: 1, Leader: "x"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.term = &term{
		commands: newCommandTable(), questions: c.questions, source: source, metrics: c.metrics,
		proofs: newProofs(func(context.Context) error { return nil }),
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.term.proofs.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

// write makes copies until ctx ends.
func (c *copier) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wanted:
		}
		if copied := c.begin(c.engine); copied != nil {
			c.begun++
			for c.proceed() {
			}
			c.published(copied, c.term.source.Snapshot())
		}
	}
}

// Questions share a copy: all that wait when it is made, and all that come within 100 ms. Later
// questions get another copy. At any rate of questions, copies begin at least 50 ms apart.
func TestQuestionsShareACopyThatIsAtMost100MillisecondsOld(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCopier(t, 100)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { c.write(ctx) })
		for range 2 {
			running.Go(func() { c.work(ctx) })
		}
		ask := func(n int, cmd *pb.Command) {
			t.Helper()
			answered := make(chan *pb.Reply, n)
			for range n {
				c.term.exec(ctx, "gw", cmd, func(r *pb.Reply) { answered <- r })
			}
			for range n {
				if r := <-answered; r.GetError() != nil && cmd.GetExplainTask() == nil {
					t.Fatal(r.GetError())
				}
			}
		}
		ask(16, capacity())
		if c.begun > 2 {
			t.Errorf("%d copies for 16 who asked at once", c.begun)
		}
		begun := c.begun
		time.Sleep(90 * time.Millisecond)
		if ask(16, capacity()); c.begun != begun {
			t.Errorf("%d copies more for those who asked within 100 ms", c.begun-begun)
		}
		time.Sleep(20 * time.Millisecond)
		if ask(1, capacity()); c.begun != begun+1 {
			t.Errorf("%d copies more for one who asked after 100 ms, want 1", c.begun-begun)
		}
		began := time.Now()
		begun = c.begun
		for range 10 {
			ask(1, explain("a.b.0")) // each wants a copy that was begun after it
		}
		if took := time.Since(began); c.begun != begun+10 || took < 9*copyPause {
			t.Errorf("%d copies in %s", c.begun-begun, took)
		}
	})
}

// A copy is not used if its revision is older than the one that the caller may have seen, even if
// the copy is young.
func TestACopyOlderThanTheRequestIsNotUsed(t *testing.T) {
	c := newCopier(t, 1)
	now := time.Now()
	c.mu.latest = &fleetCopy{revision: 7, began: now, whole: true}
	for least, want := range map[uint64]bool{6: true, 7: true, 8: false} {
		if got, _, _ := c.usable(&question{arrived: now.Add(time.Millisecond), least: least}); (got != nil) != want {
			t.Errorf("a copy of revision 7 for one who has seen %d: %v", least, got != nil)
		}
	}
}

// Questions beyond the bound are refused at once. Commands are not.
func TestTooManyQuestionsAreRefused(t *testing.T) {
	c := idle(t, Config{MaxQuestions: 3})
	var replies []*pb.Reply
	respond := func(r *pb.Reply) { replies = append(replies, r) }
	for _, cmd := range []*pb.Command{capacity(), explain("a.b.0"), place(job("a", 1), "", 0)} {
		c.exec(context.Background(), "gw", cmd, respond)
	}
	if len(replies) != 0 {
		t.Fatalf("there is room, but the answer was %v", replies)
	}
	c.exec(context.Background(), "gw", capacity(), respond)
	if len(replies) != 1 || code(replies[0]) != plimsoll.CodeExhausted ||
		!strings.Contains(replies[0].GetError().GetMessage(), "3 questions waiting; try again") {
		t.Fatalf("the answer was %v", replies)
	}
	if c.exec(context.Background(), "gw", kill("x"), respond); len(replies) != 1 {
		t.Errorf("a command was answered %v", replies[1])
	}
}

// A question whose caller has gone is dropped without an answer, and makes room for others.
func TestAQuestionOfOneWhoHasGoneIsDropped(t *testing.T) {
	c := newCopier(t, 1)
	ctx, leave := context.WithCancel(t.Context())
	c.term.exec(ctx, "gw", explain("a.b.0"), func(r *pb.Reply) { t.Errorf("it was answered %v", r) })
	leave()
	if <-c.arrived; c.pop() != nil {
		t.Error("it is to be answered")
	}
	if len(c.mu.waiting) != 0 || len(c.mu.explains) != 0 {
		t.Errorf("%d and %d are left", len(c.mu.waiting), len(c.mu.explains))
	}
}

// A term that ends while questions wait leaves no worker running.
func TestQuestionsEndWithTheTerm(t *testing.T) {
	l := lead(t, Config{Workers: 3}, openStore(t, vfs.NewMem(), store.Limits{}))
	var asking sync.WaitGroup
	for range 16 {
		asking.Go(func() {
			for {
				if _, err := l.Do(context.Background(), place(job("x", 1000), "", 0)); err != nil {
					if !lost(err) && !errors.Is(err, context.Canceled) {
						t.Errorf("it ended with %v", err)
					}
					return
				}
			}
		})
	}
	l.must(submit(job("a", 1)))
	l.must(explain("a.work.0"))
	l.stop()
	asking.Wait()
}
