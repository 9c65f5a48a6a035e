package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// memory is a store without a disk, for tests in virtual time. It begins empty and keeps no record.
type memory struct{ stall <-chan struct{} } // each Wait waits for it, if it is not nil

func (m *memory) Limits() store.Limits { return store.Limits{} }

func (m *memory) Lead(context.Context, func(string)) (uint64, error) { return 1, nil }

func (m *memory) Load(
	context.Context, func(wire.Kind, string, []byte) error, func(uint64, wire.EventChunk) error,
) (uint64, int64, error) {
	return 0, 0, nil
}

func (m *memory) Deposed() <-chan struct{} { return nil }

func (m *memory) LoadSince(
	context.Context, uint64, func(wire.Kind, string, []byte) error, func(uint64, wire.EventChunk) error,
) (uint64, int64, error) {
	return 0, 0, plimsoll.Errorf(plimsoll.CodeNotFound, "nothing is kept")
}

func (m *memory) Commit(*wire.Batch) (store.Pending, error) { return m, nil }

func (m *memory) Wait() error {
	if m.stall != nil {
		<-m.stall
	}
	return nil
}

func (m *memory) Confirm(context.Context) error { return nil }

func (m *memory) TrimEvents(uint64) error { return nil }

func (m *memory) Close() error { return nil }

// begun starts a leader without a network, which runs until the test ends.
func begun(t *testing.T, cfg Config, st store.Store) *term {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	c, err := New(cfg, only(st))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	led, err := c.begin(ctx, st)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- led.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return led
}

func ask(t *testing.T, led *term, cmd *pb.Command) {
	t.Helper()
	answered := make(chan *pb.Reply, 1)
	led.exec(context.Background(), "gw", cmd, func(r *pb.Reply) { answered <- r })
	if reply := <-answered; reply.GetError() != nil {
		t.Fatalf("%T: %v", cmd.GetKind(), reply.GetError())
	}
}

func turns(t *testing.T, led *term) int {
	t.Helper()
	synctest.Wait()
	return int(value(t, led.metrics.turns))
}

// value returns the value of a counter or gauge.
func value(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d metrics, %v", len(families), err)
	}
	m := families[0].GetMetric()[0]
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}

func taskOf(t *testing.T, led *term) plimsoll.Task {
	t.Helper()
	synctest.Wait()
	data, _ := led.source.Snapshot().Get(wire.KindTask, wire.TaskKey("a", "work", 0))
	task, err := wire.DecodeTask(data)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// An idle loop sleeps, even for days. A retry delay wakes it once, at the right time.
func TestLoopSleepsUntilItIsNeeded(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		led := begun(t, Config{}, &memory{})
		ask(t, led, register("n", 1))
		spec := job("a", 1)
		spec.Groups[0].Retry = plimsoll.RetryPolicy{Kind: plimsoll.RetryBackoff, Limit: 3}
		ask(t, led, submit(spec))
		idle := turns(t, led)
		time.Sleep(24 * time.Hour) // of virtual time
		if more := turns(t, led) - idle; more != 0 {
			t.Errorf("%d turns were made in an idle day", more)
		}
		ask(t, led, reportTasks("n", &pb.TaskReport{
			Task: "a.work.0", Attempt: taskOf(t, led).Attempt, State: pb.TaskState(plimsoll.TaskFinished),
			Result: pb.TaskResult(plimsoll.ResultFailed), ExitCode: 1,
		}))
		failed := taskOf(t, led)
		delay := time.Duration(failed.NotBefore - time.Now().UnixNano())
		if failed.State != plimsoll.TaskPending || delay <= 0 {
			t.Fatalf("the task does not wait: %+v", failed)
		}
		before := turns(t, led)
		time.Sleep(delay - 1)
		if more := turns(t, led) - before; more != 0 {
			t.Errorf("%d turns were made while the task waited", more)
		}
		time.Sleep(time.Nanosecond)
		if task := taskOf(t, led); task.State != plimsoll.TaskBound || task.Attempt != failed.Attempt+1 {
			t.Errorf("the delay has passed, but the task is %+v", task)
		}
		if more := turns(t, led) - before; more > 2 {
			t.Errorf("%d turns were made for one task", more)
		}
	})
}

// While the disk hangs at most four turns are in the pipeline. Further commands collect in the
// inbox, up to its bound.
func TestPipelineIsBounded(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		stall := make(chan struct{})
		led := begun(t, Config{MaxInbox: 100}, &memory{stall: stall})
		answers := make(chan *pb.Reply, 1000)
		for range 400 {
			led.exec(context.Background(), "gw", kill("nope"), func(r *pb.Reply) { answers <- r })
			synctest.Wait()
		}
		// the rest is for agents
		if depth, waiting := value(
			t, led.metrics.depth,
		), led.inbox.waiting().commands; depth != pipeline || waiting != 75 {
			t.Errorf("%v turns are on their way, and %d commands wait", depth, waiting)
		}
		refused := len(answers)
		for range refused {
			if got := code(<-answers); got != plimsoll.CodeExhausted {
				t.Errorf("answered with %s although nothing is durable", got)
			}
		}
		close(stall)
		synctest.Wait()
		for range 400 - refused {
			if got := code(<-answers); got != plimsoll.CodeNotFound {
				t.Errorf("answered with %s", got)
			}
		}
		if refused < 400-75-pipeline || value(t, led.metrics.depth) != 0 {
			t.Errorf("%d of 400 were refused; %v turns are still on their way", refused, value(t, led.metrics.depth))
		}
	})
}
