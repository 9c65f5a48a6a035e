package replica

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testLeader is a source behind a real server. Its commands put a job status: the value is the
// command's job.
type testLeader struct {
	t       testing.TB
	source  *Source
	address string
	stop    func()
	lost    chan string

	mu       sync.Mutex // makes the commands of several streams one writer
	revision uint64
	exec     Exec // nil: put
}

func put(key, value string) wire.Mutation {
	return wire.Mutation{Kind: wire.KindJobStatus, Key: key, Value: []byte(value)}
}

func submit(job string) *pb.Command {
	return &pb.Command{Kind: &pb.Command_SubmitJob{SubmitJob: &pb.SubmitJobRequest{Spec: &pb.JobSpec{Id: job}}}}
}

// startLeader serves a source on an address such as tcp or unix until the test ends or stop is
// called.
func startLeader(t testing.TB, network, address string, config SourceConfig) *testLeader {
	t.Helper()
	if config.Epoch == 0 {
		config.Epoch = 1
	}
	if config.Leader == "" {
		config.Leader = fmt.Sprintf("instance-%d", config.Epoch)
	}
	source, err := NewSource(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &testLeader{t: t, source: source, lost: make(chan string, 100)}
	if address == "" {
		address = "127.0.0.1:0"
		if network == "unix" {
			address = "unix:" + filepath.Join(t.TempDir(), "leader.sock")
		}
	}
	listener, err := transport.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	if l.address = address; network == "tcp" {
		l.address = listener.Addr().String()
	}
	l.serve(listener)
	return l
}

func (l *testLeader) serve(listener net.Listener) {
	mux := http.NewServeMux()
	mux.Handle(newHandler(&handler{
		source: l.source, exec: l.execute, onGatewayLost: func(g string) { l.lost <- g },
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- transport.Serve(ctx, listener, mux, transport.ServeConfig{Access: transport.AnyCaller()})
	}()
	l.stop = sync.OnceFunc(func() {
		l.source.Close(nil)
		cancel()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
	})
	l.t.Cleanup(l.stop)
}

func (l *testLeader) execute(ctx context.Context, gateway string, command *pb.Command, respond func(*pb.Reply)) {
	if l.exec != nil {
		l.exec(ctx, gateway, command, respond)
		return
	}
	revision := l.publish(put(command.GetSubmitJob().GetSpec().GetId(), gateway))
	respond(&pb.Reply{Revision: revision})
}

func (l *testLeader) publish(mutations ...wire.Mutation) (revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision = max(l.revision, l.source.Snapshot().Revision()) + 1
	l.source.Publish(
		&wire.Batch{Epoch: l.source.config.Epoch, Revision: l.revision, Time: int64(l.revision), Mutations: mutations},
	)
	return l.revision
}

// startFollower runs a follower of an address until the test ends or stop is called.
func startFollower(t testing.TB, config FollowerConfig) (f *Follower, stop func()) {
	t.Helper()
	if config.Gateway == "" {
		config.Gateway = "gateway-1"
	}
	if config.MinBackoff == 0 {
		config.MinBackoff, config.MaxBackoff = time.Millisecond, 20*time.Millisecond
	}
	f, err := NewFollower(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return f, stop
}

// testContext bounds a test; it is far longer than anything takes.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustReady(ctx context.Context, t testing.TB, f *Follower) {
	t.Helper()
	if err := f.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}
