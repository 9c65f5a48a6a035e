package coordinator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// TestMain looks for leaked goroutines. The tests take half a minute and more with the race
// detector. They show that acknowledged commands are durable, and that durable records are whole:
// many clients send random loads, and a crash comes in any step. The next leader and a new gateway
// must read the live state.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny holds limits that most turns would exceed without parts.
var tiny = store.Limits{Ops: 64, Bytes: 64 << 10}

// openStore opens the store of a file system.
func openStore(t testing.TB, fs vfs.FS, limits store.Limits) *pebble.Store {
	t.Helper()
	s, err := pebble.Open(pebble.Config{Dir: "store", FS: fs, Limits: limits})
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	return s
}

// spy records the batches that go into a store, and lets the n-th commit or the n-th wait fail.
type spy struct {
	store.Store
	failCommit, failWait int
	at                   func(what string) // called around each step, if not nil

	mu struct {
		sync.Mutex
		commits, waits int
		times          []int64
		events         []uint64 // number of events of each batch
		failed         uint64   // revision of the batch that failed
		durable        uint64   // revision of the newest batch whose wait has ended
	}
}

var errInjected = errors.New("injected")

func (s *spy) step(what string) {
	if s.at != nil {
		s.at(what)
	}
}

func (s *spy) Commit(b *wire.Batch) (store.Pending, error) {
	s.mu.Lock()
	s.mu.commits++
	s.mu.times = append(s.mu.times, b.Time)
	s.mu.events = append(s.mu.events, b.Events.Count)
	fail := s.mu.commits == s.failCommit
	if fail {
		s.mu.failed = b.Revision
	}
	s.mu.Unlock()
	if fail {
		return nil, errInjected
	}
	if err := s.Limits().Check(b); err != nil {
		return nil, err
	}
	s.step("before a commit")
	p, err := s.Store.Commit(b)
	s.step("after a commit")
	return &spied{p, s, b.Revision}, err
}

type spied struct {
	store.Pending
	spy      *spy
	revision uint64
}

func (p *spied) Wait() error {
	err := p.Pending.Wait()
	p.spy.step("after a wait")
	p.spy.mu.Lock()
	defer p.spy.mu.Unlock()
	if p.spy.mu.waits++; p.spy.mu.waits == p.spy.failWait {
		p.spy.mu.failed = p.revision
		return errInjected
	}
	p.spy.mu.durable = p.revision
	return err
}

// leader is a coordinator that leads, with a gateway's follower on its socket.
type leader struct {
	*replica.Follower
	t       testing.TB
	of      *Coordinator
	term    *term
	address string
	cancel  context.CancelFunc // ends the leader and the follower
	led     chan error         // error with which the leader ended
	follows sync.WaitGroup
}

// only returns an Open for a store that is open already.
func only(st store.Store) Open { return func(context.Context) (store.Store, error) { return st, nil } }

// lead runs one term like Coordinator.Run, and keeps it so that the test can inspect it afterwards.
func lead(t testing.TB, cfg Config, st store.Store) *leader {
	t.Helper()
	return leadWith(t, cfg, st, func(*term) {})
}

// leadWith is lead with a change of the term before it runs.
func leadWith(t testing.TB, cfg Config, st store.Store, change func(*term)) *leader {
	t.Helper()
	dir, err := os.MkdirTemp("", "p") // the test's own directory may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // left-overs in the temporary directory do no harm
	cfg.Listen = "unix:" + filepath.Join(dir, "s")
	c, err := New(cfg, only(st))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &leader{t: t, of: c, address: cfg.Listen, cancel: cancel, led: make(chan error, 1)}
	if l.term, err = c.begin(ctx, st); err != nil {
		t.Fatal(err)
	}
	change(l.term)
	listener, err := transport.Listen(cfg.Listen)
	if err != nil {
		t.Fatal(err)
	}
	c.status.leading(l.term)
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return l.term.run(running) })
	group.Go(func() error { return transport.Serve(running, listener, c.routes(), transport.ServeConfig{}) })
	go func() { l.led <- errors.Join(group.Wait(), st.Close()) }()
	l.Follower = l.follow(ctx, "gw")
	return l
}

// follow starts another follower.
func (l *leader) follow(ctx context.Context, gateway string) *replica.Follower {
	l.t.Helper()
	f, err := replica.NewFollower(
		replica.FollowerConfig{Gateway: gateway, Leader: l.address},
	)
	if err != nil {
		l.t.Fatal(err)
	}
	l.follows.Go(func() {
		if err := f.Run(ctx); err != nil {
			l.t.Error(err)
		}
	})
	if err := f.Ready(ctx); err != nil {
		l.t.Fatal(err)
	}
	return f
}

// stop ends the leader and its followers, and waits for them.
func (l *leader) stop() {
	l.t.Helper()
	l.cancel()
	if err := <-l.led; err != nil && !errors.Is(err, errSteppedDown) {
		l.t.Errorf("the leader ended with %v", err)
	}
	l.follows.Wait()
}

// must sends a command, and fails if it is refused.
func (l *leader) must(cmd *pb.Command) *pb.Reply {
	l.t.Helper()
	reply, err := l.Do(context.Background(), cmd)
	if err != nil {
		l.t.Fatalf("%T: %v", cmd.GetKind(), err)
	}
	return reply
}

// settle returns when the engine has no work left at this time. A turn with work left is followed
// by one that changes something, and each command is answered in a later turn than the one before.
// So two equal revisions in a row show that no work is left.
func (l *leader) settle() {
	l.t.Helper()
	ask := func() uint64 {
		reply, err := l.Do(context.Background(), explain("no.such.0"))
		if reply == nil {
			l.t.Fatal(err)
		}
		return reply.GetRevision()
	}
	for before, after := ask(), ask(); before != after; {
		before, after = after, ask()
	}
}

// lost reports whether a command was not sent, or its reply was lost with the stream.
func lost(err error) bool {
	code := plimsoll.CodeOf(err)
	return code == plimsoll.CodeUnavailable || code == plimsoll.CodeOutcomeUnknown
}

// The commands.

func submit(spec *plimsoll.JobSpec) *pb.Command {
	return &pb.Command{Kind: &pb.Command_SubmitJob{SubmitJob: &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(spec)}}}
}

func kill(id string) *pb.Command {
	return &pb.Command{Kind: &pb.Command_KillJob{KillJob: &pb.KillJobRequest{Id: id, Reason: "test"}}}
}

func scale(id string, count int32) *pb.Command {
	return &pb.Command{Kind: &pb.Command_ScaleJob{ScaleJob: &pb.ScaleJobRequest{Id: id, Group: "work", Count: count}}}
}

func explain(task string) *pb.Command {
	return &pb.Command{Kind: &pb.Command_ExplainTask{ExplainTask: &pb.ExplainTaskRequest{Id: task}}}
}

func register(id string, incarnation uint64) *pb.Command {
	node := plimsoll.Node{
		ID: id, Address: "127.0.0.1:1", Incarnation: incarnation,
		Capacity: plimsoll.Resources{"cpu": 4000, "memory": 8 << 30},
	}
	return &pb.Command{
		Kind: &pb.Command_RegisterNode{RegisterNode: &pb.RegisterNodeRequest{Node: wire.NodeToProto(&node)}},
	}
}

func reportTasks(node string, reports ...*pb.TaskReport) *pb.Command {
	return &pb.Command{Kind: &pb.Command_ReportTasks{
		ReportTasks: &pb.ReportTasksRequest{Node: node, Incarnation: 1, Reports: reports},
	}}
}

func setQueues(tree *plimsoll.QueueConfig) *pb.Command {
	return &pb.Command{
		Kind: &pb.Command_SetQueueConfig{
			SetQueueConfig: &pb.SetQueueConfigRequest{Config: wire.QueueConfigToProto(tree)},
		},
	}
}

func job(id string, count int) *plimsoll.JobSpec {
	return &plimsoll.JobSpec{ID: id, Owner: "alice", Queue: "root.batch", Groups: []plimsoll.GroupSpec{{
		Name: "work", Count: int32(count), Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 100},
	}}}
}

// reload loads the store of a file system as a new leader does, and checks the state.
func reload(t testing.TB, fs vfs.FS, cfg Config) *term {
	t.Helper()
	t2, err := tryReload(fs, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return t2
}

func tryReload(fs vfs.FS, cfg Config) (_ *term, err error) {
	st, err := pebble.Open(pebble.Config{Dir: "store", FS: fs})
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	cfg.Listen, cfg.Metrics = "127.0.0.1:0", nil
	c, err := New(cfg, only(st))
	if err != nil {
		return nil, err
	}
	t, err := c.begin(context.Background(), st)
	if err != nil {
		return nil, err
	}
	return t, t.engine.State().Check()
}
