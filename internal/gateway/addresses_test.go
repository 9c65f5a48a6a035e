package gateway

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/nodekey"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// counting counts the connections to a listener that stands for another service of the machine.
type counting struct {
	net.Listener
	accepted atomic.Int32
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.accepted.Add(1)
	}
	return conn, err //nolint:wrapcheck // it is only counted
}

// victim is a service on a socket that is no agent: docker.sock.
func victim(t *testing.T) (address string, connections *atomic.Int32) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	counted := &counting{Listener: l}
	serveOn(t, counted, http.NotFoundHandler())
	return "unix:" + path, &counted.accepted
}

// serveOn serves any caller until the test ends.
func serveOn(t *testing.T, l net.Listener, handler http.Handler) {
	t.Helper()
	t.Cleanup(serveUntil(t, l, handler, transport.ServeConfig{Access: transport.AnyCaller()}))
}

// serveUntil serves until stop is called.
func serveUntil(t *testing.T, l net.Listener, handler http.Handler, cfg transport.ServeConfig) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- transport.Serve(ctx, l, handler, cfg) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestDockerSocketIsNoLogAddress(t *testing.T) {
	docker, connections := victim(t)
	dir := t.TempDir()
	link := "unix:" + filepath.Join(dir, "agent.sock")
	nameAgent(t, link, "n1")
	if err := os.Symlink(strings.TrimPrefix(docker, "unix:"), filepath.Join(dir, "agent.sock")); err != nil {
		t.Fatal(err)
	}
	f := registering()
	s := serve(t, Config{}, f)
	for address, says := range map[string]string{
		docker:                                   "not in the directory of an agent: it has no node.json",
		link:                                     "no socket that this gateway can open",
		"unix:" + dir + "/node.json":             "it is of another type",
		"unix:" + dir + "/../nowhere/agent.sock": "no such file",
		"unix:" + dir + "/other.sock":            "no such file",
		"unix:agent.sock":                        "not an absolute path",
		"unix:" + dir + "/":                      "no such file",
	} {
		t.Run(address, func(t *testing.T) {
			key := newKey(t, 1)
			for _, node := range []plimsoll.Node{{ID: "n1", Incarnation: 3}, keyed(key)} {
				node.Address = address
				_, err := call(
					s.agents.RegisterNode,
					&pb.RegisterNodeRequest{Node: wire.NodeToProto(&node), Signature: key.SignRegistration(&node)},
				)
				wantRefusal(t, f, err, plimsoll.CodeDenied)
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%q does not say %q", err, says)
				}
				f.put(putNode(node), running("n1")) // a store of before may hold it
				err = ending(t, open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.0"}))
				if code := plimsoll.CodeOf(
					err,
				); code != plimsoll.CodeDenied && (code != plimsoll.CodeUnavailable || says != "no such file") {
					t.Errorf("its logs: %v", err)
				}
			}
		})
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections were made to it", n)
	}
}

func TestSocketOfAnotherUserIsNoLogAddress(t *testing.T) {
	_, address := startAgent(t)
	mine := "uid:" + strconv.Itoa(os.Geteuid())
	tests := []struct{ name, node, peer, says string }{
		{"of the user who registers", "n1", mine, ""},
		{"when it is not known who registers", "n1", "127.0.0.1", ""},
		{"of another user than who registers", "n1", "uid:4242", "the agent runs as 4242"},
		{"of another node", "n2", mine, "not in the directory of this node's agent"},
	}
	a := newAgentAddresses(nil)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := a.check(&pb.Node{Id: test.node, Peer: test.peer, Address: address})
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %q", err, test.says)
			}
		})
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a socket to another user")
	}
	path := strings.TrimPrefix(address, "unix:")
	if err := os.Chown(path, 4242, 4242); err != nil {
		t.Fatal(err)
	}
	node := &pb.Node{Id: "n1", Peer: "127.0.0.1", Address: address}
	says := func(text string) {
		t.Helper()
		if err := a.check(node); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	says("in a directory of another user")
	chown := func(name string) {
		t.Helper()
		if err := os.Chown(name, 4242, 4242); err != nil {
			t.Fatal(err)
		}
	}
	chown(filepath.Dir(path))
	says("not in the directory of this node's agent")
	chown(filepath.Join(filepath.Dir(path), "node.json"))
	node.Peer = mine
	says("the agent runs as")
	// The process that listens may be another user's.
	if _, err := a.dial(
		t.Context(), &pb.Node{Id: "n1", Peer: "uid:4242", Address: address},
	); err == nil || !strings.Contains(err.Error(), "another one listens") {
		t.Errorf("a socket that another user listens on: %v", err)
	}
}

// An agent of another machine that listens on a socket there is taken in; only its logs cannot be
// read here.
func TestSocketOfAnotherMachineOnlyLacksLogs(t *testing.T) {
	a := newAgentAddresses(nil)
	node := &pb.Node{
		Id: "n1", Peer: "192.0.2.7", Address: "unix:" + filepath.Join(t.TempDir(), "nowhere", "agent.sock"),
	}
	if err := a.check(node); err != nil {
		t.Errorf("the registration: %v", err)
	}
	if _, err := a.dial(t.Context(), node); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("the call: %v", err)
	}
	docker, connections := victim(t)
	node.Address = docker
	if err := a.check(node); plimsoll.CodeOf(err) != plimsoll.CodeDenied || connections.Load() != 0 {
		t.Errorf("a socket that is there: %v", err)
	}
	node.Peer, node.Address = "127.0.0.1", "unix:/nowhere/agent.sock"
	if err := a.check(node); plimsoll.CodeOf(err) != plimsoll.CodeDenied {
		t.Errorf("one that should be here and is not: %v", err)
	}
}

func TestAddressThatIsNotThePeersIsNoLogAddress(t *testing.T) {
	cidrs := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}
	tests := []struct {
		address, peer string
		allowed       []netip.Prefix
		code          plimsoll.Code // CodeInternal: it is taken
	}{
		{"192.0.2.7:9081", "192.0.2.7", nil, 0},
		{"http://192.0.2.7:9081/", "192.0.2.7", nil, 0},
		{"[::ffff:192.0.2.7]:9081", "192.0.2.7", nil, 0},
		{"192.0.2.8:9081", "192.0.2.7", nil, plimsoll.CodeDenied},
		{"169.254.169.254:80", "192.0.2.7", nil, plimsoll.CodeDenied},
		{"127.0.0.1:2375", "192.0.2.7", nil, plimsoll.CodeDenied},
		{"127.0.0.1:2375", "192.0.2.7", cidrs, plimsoll.CodeDenied},
		{"10.1.2.3:9081", "192.0.2.7", nil, plimsoll.CodeDenied},
		{"10.1.2.3:9081", "192.0.2.7", cidrs, 0},
		{"10.2.2.3:9081", "192.0.2.7", cidrs, plimsoll.CodeDenied},
		{"[fd00::7]:9081", "192.0.2.7", cidrs, 0},
		{"10.1.2.3:9081", "", nil, plimsoll.CodeDenied},
		{"127.0.0.1:9081", "127.0.0.1", nil, 0},
		{"[::1]:9081", "127.0.0.1", nil, 0},
		{"127.0.0.1:9081", "uid:1000", nil, 0},
		{"192.0.2.7:9081", "127.0.0.1", nil, plimsoll.CodeDenied},
		{"198.51.100.1:9081", "127.0.0.1", nil, 0}, // of this machine, for an agent on it
		{"198.51.100.1:9081", "192.0.2.7", nil, plimsoll.CodeDenied},
		{"0.0.0.0:9081", "127.0.0.1", []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, plimsoll.CodeDenied},
		{"224.0.0.1:9081", "127.0.0.1", []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, plimsoll.CodeDenied},
		{":9081", "127.0.0.1", nil, plimsoll.CodeInvalid},
		{"a/b?c:9081", "127.0.0.1", nil, plimsoll.CodeInvalid},
		{"user@10.1.2.3:9081", "10.1.2.3", nil, plimsoll.CodeInvalid},
		{"192.0.2.7:0", "192.0.2.7", nil, plimsoll.CodeInvalid},
		{"nowhere", "192.0.2.7", nil, plimsoll.CodeInvalid},
		{"n1.example.org:9081", "192.0.2.7", nil, 0}, // looked at when it is called
	}
	for _, test := range tests {
		a := newAgentAddresses(test.allowed)
		a.owns = func(ip netip.Addr) bool { return ip == netip.MustParseAddr("198.51.100.1") }
		err := a.check(&pb.Node{Id: "n1", Address: test.address, Peer: test.peer})
		if test.code == 0 && err != nil || test.code != 0 && plimsoll.CodeOf(err) != test.code {
			t.Errorf("%s from %q with %v: %v, want %s", test.address, test.peer, test.allowed, err, test.code)
		}
		if test.code == plimsoll.CodeDenied && !strings.Contains(err.Error(), "--agent-addresses") {
			t.Errorf("%q does not say what to do", err)
		}
	}
}

// A name that was resolved to one address must not be called at another.
func TestNameThatIsResolvedElsewhereIsNotCalled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counted := &counting{Listener: l}
	serveOn(t, counted, http.NotFoundHandler())
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	lookups := 0
	a := newAgentAddresses(nil)
	a.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		lookups++
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	node := &pb.Node{Id: "n1", Address: "rebinds.example.org:" + port, Peer: "192.0.2.7"}
	if _, err := a.dial(
		t.Context(), node,
	); plimsoll.CodeOf(err) != plimsoll.CodeDenied || counted.accepted.Load() != 0 {
		t.Errorf("error %v, %d connections", err, counted.accepted.Load())
	}
	node.Peer = "127.0.0.1"
	c, err := a.dial(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if lookups != 2 || c.RemoteAddr().String() != l.Addr().String() {
		t.Errorf("%d lookups for two calls, and %s was called", lookups, c.RemoteAddr())
	}
}

// prover answers the challenge with a key.
type prover struct {
	key   *nodekey.Key
	asked atomic.Int32
}

func (p *prover) ProveNode(
	_ context.Context, req *connect.Request[pb.ProveNodeRequest],
) (*connect.Response[pb.ProveNodeResponse], error) {
	p.asked.Add(1)
	return connect.NewResponse(
		&pb.ProveNodeResponse{Signature: p.key.Answer(req.Msg.GetNode(), req.Msg.GetNonce())},
	), nil
}

// startProver serves an agent's logs, and answers of a key unless it is nil, until stop is called.
func startProver(t *testing.T, address string, p *prover, logs *agentLogs) (stop func()) {
	t.Helper()
	nameAgent(t, address, "n1")
	l, err := transport.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewLogServiceHandler(logs))
	if p != nil {
		mux.Handle(plimsollv1connect.NewProofServiceHandler(p))
	}
	return serveUntil(t, l, mux, transport.ServeConfig{Access: transport.AnyCaller()})
}

func TestLogAddressMustAnswerTheChallenge(t *testing.T) {
	key := newKey(t, 1)
	for name, test := range map[string]struct {
		prover *prover
		proven bool
	}{
		"the node's agent": {&prover{key: key}, true},
		"another key":      {&prover{key: newKey(t, 2)}, false},
		"no answer":        {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			logs := &agentLogs{asked: make(chan *pb.ReadTaskLogRequest, 10)}
			address := "unix:" + filepath.Join(t.TempDir(), "agent.sock")
			defer startProver(t, address, test.prover, logs)()
			f := cluster()
			node := keyed(key)
			node.Address = address
			f.put(putNode(node), running("n1"))
			s := serve(t, Config{}, f)
			stream := open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.0"})
			if test.proven {
				receive(t, stream)
				return
			}
			err := ending(t, stream)
			if plimsoll.CodeOf(err) != plimsoll.CodeDenied ||
				!strings.Contains(err.Error(), "does not have the node's key") {
				t.Errorf("error %v", err)
			}
			if len(logs.asked) != 0 {
				t.Error("it was asked for logs before it had answered")
			}
		})
	}
}

// The errors for an agent that refuses the gateway's token and for a process without the node's key
// differ.
func TestRefusedTokenIsToldFromAFailedProof(t *testing.T) {
	key := newKey(t, 1)
	l, err := transport.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewProofServiceHandler(&prover{key: key}))
	mux.Handle(plimsollv1connect.NewLogServiceHandler(&agentLogs{asked: make(chan *pb.ReadTaskLogRequest, 10)}))
	path := filepath.Join(t.TempDir(), "log.token")
	access := transport.NewAccess(transport.AccessConfig{Grants: func() ([]transport.Grant, error) {
		t, err := token.Make(token.Log, path)
		return []transport.Grant{{Token: t}}, err
	}})
	defer serveUntil(t, l, mux, transport.ServeConfig{Access: access.For(address)})()
	other, shared := filepath.Join(t.TempDir(), "other.token"), filepath.Join(t.TempDir(), "shared.token")
	for _, file := range []string{other, shared} {
		if _, err := token.Make(token.Log, file); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(shared, 0o644); err != nil {
		t.Fatal(err)
	}
	f := cluster()
	node := keyed(key)
	node.Address, node.Peer = address, "127.0.0.1"
	f.put(putNode(node), running("n1"))
	for file, says := range map[string]string{
		path:     "",
		other:    "does not let this gateway in; start the gateway with --log-token-file",
		shared:   "run chmod 600",
		"/no/it": "there is no file /no/it",
	} {
		s := serve(t, Config{LogTokens: token.Finder{Kind: token.Log, File: file, PerServer: true}}, f)
		stream := open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.0"})
		if says == "" {
			receive(t, stream)
			continue
		}
		if err := ending(t, stream); plimsoll.CodeOf(err) != plimsoll.CodeConflict || !strings.Contains(
			err.Error(), says,
		) {
			t.Errorf("%s: error %v, want %s", file, err, says)
		}
	}
}

// A fact learned about one connection does not hold for the next one: another process may listen by
// then.
func TestEachConnectionIsChallenged(t *testing.T) {
	key := newKey(t, 1)
	logs := &agentLogs{asked: make(chan *pb.ReadTaskLogRequest, 10)}
	address := "unix:" + filepath.Join(t.TempDir(), "agent.sock")
	p := &prover{key: key}
	stop := startProver(t, address, p, logs)
	f := cluster()
	node := keyed(key)
	node.Address = address
	f.put(putNode(node), running("n1"))
	s := serve(t, Config{}, f)
	for range 3 {
		receive(t, open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.0"}))
	}
	if n := p.asked.Load(); n != 1 {
		t.Errorf("%d challenges for three logs over one connection", n)
	}
	stop()
	defer startProver(t, address, &prover{key: newKey(t, 2)}, logs)()
	for len(logs.asked) > 0 {
		<-logs.asked
	}
	if err := ending(
		t, open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.0"}),
	); err == nil || len(logs.asked) != 0 {
		t.Errorf("another process gave logs: %v", err)
	}
}
