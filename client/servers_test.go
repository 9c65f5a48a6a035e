package client_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// place is one of several servers. It writes down the ids of the jobs that it was asked to kill.
type place struct {
	plimsollv1connect.UnimplementedJobServiceHandler
	address string
	stop    func()

	mu struct {
		sync.Mutex
		killed []string
		err    error // its answer; nil: success
		cut    bool  // it reads requests and cuts the connection
	}
}

// KillJob implements plimsollv1connect.JobServiceHandler.
func (p *place) KillJob(
	_ context.Context, req *connect.Request[pb.KillJobRequest],
) (*connect.Response[pb.KillJobResponse], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.killed = append(p.mu.killed, req.Msg.GetId())
	if p.mu.cut {
		panic(http.ErrAbortHandler)
	}
	if p.mu.err != nil {
		return nil, wire.ConnectError(p.mu.err)
	}
	return connect.NewResponse(&pb.KillJobResponse{Status: &pb.JobStatus{Id: req.Msg.GetId()}}), nil
}

// asked returns the ids since the last call.
func (p *place) asked() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := strings.Join(p.mu.killed, " ")
	p.mu.killed = nil
	return ids
}

func (p *place) set(err error, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.err, p.mu.cut = err, cut
}

// open serves the place until it is stopped, by the test or at its end.
func open(t *testing.T, address string) *place {
	t.Helper()
	l, err := transport.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{address: address}
	if l.Addr().Network() == "tcp" {
		p.address = l.Addr().String()
	}
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewJobServiceHandler(p))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- transport.Serve(ctx, l, mux, transport.ServeConfig{Access: transport.AnyCaller()}) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(p.stop)
	return p
}

func inTurn(t *testing.T, budget time.Duration, servers ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Server: strings.Join(servers, ","), RetryBudget: budget})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// nobody returns an address at which no server listens.
func nobody(t *testing.T) string { return "unix:" + filepath.Join(t.TempDir(), "nobody") }

func kill(t *testing.T, c *client.Client, id string) error {
	t.Helper()
	_, err := c.KillJob(t.Context(), id, "")
	return err
}

// If no connection can be made, a command goes to the next server at once, without a retry: it had
// no effect. The order is that of the list.
func TestServersThatCannotBeReachedAreTriedInTurn(t *testing.T) {
	second, third := open(t, "127.0.0.1:0"), open(t, "unix:"+filepath.Join(t.TempDir(), "s"))
	c := inTurn(t, -1, nobody(t), " "+second.address, third.address)
	if err := kill(t, c, "a"); err != nil || second.asked() != "a" || third.asked() != "" {
		t.Errorf("the second of three: %v", err)
	}
	second.stop()
	c.Close() // a connection that is kept for the next command would be found broken by it
	if err := kill(t, c, "b"); err != nil || third.asked() != "b" {
		t.Errorf("when it has gone too: %v", err)
	}
	third.stop()
	err := kill(t, c, "c")
	if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || strings.Count(err.Error(), ": dial ") != 3 {
		t.Errorf("without any: %v; want why for each", err)
	}
}

// A command whose connection was cut may have had its effect. The transport sends it to no other
// server.
func TestACommandThatMayHaveHadAnEffectGoesToNoOtherServer(t *testing.T) {
	first, second := open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0")
	first.set(nil, true)
	c := inTurn(t, -1, first.address, second.address)
	err := kill(t, c, "a")
	if plimsoll.CodeOf(err) == plimsoll.CodeInternal || err == nil || first.asked() != "a" || second.asked() != "" {
		t.Errorf("the answer is %v", err)
	}
	if err := kill(t, c, "b"); err != nil || first.asked() != "" || second.asked() != "b" {
		t.Errorf("the next command went elsewhere, or failed: %v", err)
	}
}

// After a server has asked to come back later, a call that may be retried goes to the next server.
func TestAfterARefusalForNowTheNextServerIsAsked(t *testing.T) {
	first, second := open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0")
	first.set(
		plimsoll.Errorf(plimsoll.CodeUnavailable, "this gateway is not connected to the leader; try again"), false,
	)
	c := inTurn(t, 10*time.Second, first.address, second.address)
	if err := kill(t, c, "a"); err != nil || first.asked() != "a" || second.asked() != "a" {
		t.Errorf("%v", err)
	}
	first.set(plimsoll.Errorf(plimsoll.CodeConflict, "no"), false)
	c = inTurn(t, 10*time.Second, first.address, second.address)
	if err := kill(t, c, "b"); plimsoll.CodeOf(err) != plimsoll.CodeConflict || second.asked() != "" {
		t.Errorf("what is refused for good: %v", err)
	}
}

// Each address is checked, also one that is empty.
func TestEachOfSeveralServersIsAnAddress(t *testing.T) {
	for server, wrong := range map[string]string{"127.0.0.1:1,nowhere": `"nowhere"`, "127.0.0.1:1,": `""`, ",": `""`} {
		_, err := client.New(client.Config{Server: server})
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), wrong+" is not an address") {
			t.Errorf("%q: %v", server, err)
		}
	}
}

// A large request reaches the next server whole.
func TestARequestReachesTheNextServerWhole(t *testing.T) {
	var got []byte
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body) // what is missing shows below
	})
	go func() {
		served <- transport.Serve(ctx, l, handler, transport.ServeConfig{Access: transport.AnyCaller()})
	}()
	c := inTurn(t, -1, nobody(t), l.Addr().String())
	job := spec("a")
	job.Groups[0].Command = slices.Repeat([]string{strings.Repeat("x", 1000)}, 100)
	_, _ = c.SubmitJob(t.Context(), job) // an empty answer is none
	cancel()
	if err := <-served; err != nil || !strings.Contains(string(got), strings.Repeat("x", 1000)) || len(got) < 100_000 {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
}
