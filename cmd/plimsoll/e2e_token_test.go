package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/token"
)

// userToken is the token of users that a server keeps in its directory.
func userToken(t testing.TB, dir string) token.Token {
	t.Helper()
	found, err := token.Load(token.User, filepath.Join(dir, "user.token"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// cluster is a coordinator, a gateway and an agent, each a process that listens on TCP.
type cluster struct {
	*site
	leader, gateway, agent string
	daemons                []*daemon
}

// newCluster starts the roles with the command lines of docs/concepts/tokens.md, which name no
// tokens.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	ports := freePorts(t, 3)
	c := &cluster{site: newSite(t), leader: ports[0], gateway: ports[1], agent: ports[2]}
	c.address = c.gateway
	coordinator := start(t, "coordinator", "--data", c.path("store"), "--listen", c.leader)
	coordinator.says("msg=leading")
	gateway := start(t, "gateway", "--data", c.path("gateway"), "--leader", c.leader, "--listen", c.gateway)
	agent := start(t, "agent", "--data", c.path("agent"), "--gateways", c.gateway, "--listen", c.agent, "--node", "n1")
	c.daemons = []*daemon{coordinator, gateway, agent}
	gateway.says("msg=serving")
	c.nodeReady("n1")
	return c
}

func (c *cluster) token(t *testing.T, kind token.Kind, dir string) token.Token {
	t.Helper()
	found, err := token.Load(kind, c.path(dir, kind.FileName()))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// tokens returns the token of each kind.
func (c *cluster) tokens(t *testing.T) map[token.Kind]token.Token {
	t.Helper()
	return map[token.Kind]token.Token{
		token.User: c.token(t, token.User, "gateway"), token.Agent: c.token(t, token.Agent, "gateway"),
		token.Gateway: c.token(t, token.Gateway, "store"), token.Log: c.token(t, token.Log, "agent"),
	}
}

// request sends a request whose body never comes, and returns the status and the body of the
// answer.
func request(t *testing.T, listener, line, authorization string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", listener)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // the answer is there
	head := line + " HTTP/1.1\r\nHost: " + listener + "\r\n"
	if authorization != "" {
		head += "Authorization: " + authorization + "\r\n"
	}
	if strings.HasPrefix(line, "POST") {
		head += "Content-Type: application/json\r\nContent-Length: 1000\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// TestEveryPathOfEveryTCPListenerWantsAToken: a caller without a token, or with a wrong one, is
// refused before the body comes, on every known path and on others.
func TestEveryPathOfEveryTCPListenerWantsAToken(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.works("own") // the roles and the command line know their tokens
	d := newSite(t)
	_, address := d.devOnPort()
	var lines []string
	for _, method := range methods() {
		lines = append(lines, "POST "+method, "GET "+method+"?encoding=json&message=%7B%7D")
	}
	lines = append(lines,
		"POST /", "GET /no/such/path", "POST /no/such/path", "GET /ws/v1/events/batch", "POST /healthz", "POST /readyz",
		"POST /metrics", "OPTIONS *",
		"GET /debug/pprof/", "GET //metrics", "CONNECT /metrics", "PUT /metrics",
	)
	for role, listener := range map[string]string{
		"coordinator": c.leader, "gateway": c.gateway, "agent": c.agent, "dev": strings.TrimPrefix(address, "http://"),
	} {
		lines := slices.Clone(lines)
		if role == "coordinator" || role == "agent" { // they have no pages
			lines = append(lines, "GET /", "GET /docs/")
		}
		t.Run(role, func(t *testing.T) {
			for _, line := range lines {
				for _, authorization := range []string{"", "Bearer x", token.New(token.User).Header()} {
					if status, body := request(
						t, listener, line, authorization,
					); status != http.StatusUnauthorized || !strings.Contains(body, "unauthenticated") {
						t.Errorf("%s: %d %s", line, status, body)
					}
				}
			}
		})
	}
	c.works("after")
}

// TestTokenOfAnotherKindIsRefused: a token is good for its own kind of listener only.
func TestTokenOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const agents, users = "/plimsoll.v1.AgentService/Heartbeat", "/plimsoll.v1.JobService/ListJobs"
	for _, test := range []struct {
		listener, path string
		takes          token.Kind
		known          []token.Kind // there, for something else
	}{
		{c.leader, "/plimsoll.v1.ReplicationService/Replicate", token.Gateway, nil},
		{c.gateway, users, token.User, []token.Kind{token.Agent}},
		{c.gateway, "/ws/v1/events/batch", token.User, []token.Kind{token.Agent}},
		{c.gateway, "/no/such/path", token.User, []token.Kind{token.Agent}},
		{c.gateway, agents, token.Agent, []token.Kind{token.User}},
		{c.agent, "/plimsoll.v1.LogService/ReadTaskLog", token.Log, nil},
	} {
		for kind, has := range c.tokens(t) {
			status, body := request(t, test.listener, "GET "+test.path, has.Header())
			switch {
			case kind == test.takes:
				if status == http.StatusUnauthorized || status == http.StatusForbidden {
					t.Errorf("%s with its own token: %d %s", test.path, status, body)
				}
			case slices.Contains(test.known, kind):
				if status != http.StatusForbidden ||
					!strings.Contains(body, "which does not allow this call; it takes a") {
					t.Errorf("%s with %v: %d %s", test.path, has, status, body)
				}
			case status != http.StatusUnauthorized:
				t.Errorf("%s with %v: %d %s", test.path, has, status, body)
			}
		}
	}
	for _, command := range [][]string{
		{"node", "list"},
		{"submit", c.write("job.json", `{"job": "a", "groups": [{"name": "main", "command": ["true"]}]}`)},
	} {
		_, stderr, code := c.cli(append(command, "--token-file", c.path("gateway", "agent.token"))...)
		if code != exitUsage ||
			!strings.Contains(stderr, "agent.token holds an agent token; a user token is needed here") {
			t.Errorf("%v: exit code %d, %s", command, code, stderr)
		}
	}
}

// TestSocketNeedsNoToken: only the user of a socket can open it.
func TestSocketNeedsNoToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.dev()
	s.works("one")
	if found, err := filepath.Glob(s.path("data", "*.token")); err != nil || found != nil {
		t.Errorf("tokens were made: %v, %v", found, err)
	}
	for _, socket := range []string{
		s.path("gateway.sock"), s.path("data", "coordinator.sock"), s.path("data", "agent", "agent.sock"),
	} {
		if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", socket, info.Mode(), err)
		}
	}
}

// TestTokenFileThatOthersReadIsRefused: the server that keeps the file refuses it, and so do
// callers.
func TestTokenFileThatOthersReadIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d, _ := s.devOnPort()
	file := s.path("data", "user.token")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	want := "plimsoll: the token file " + file + " can be used by other users (its mode is 0644), so the token may be known: run chmod 600 " + file
	_, stderr, code := s.cli("node", "list", "--token-file", file)
	if code != exitFailed || !strings.HasPrefix(stderr, want) {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	d.stop()
	d = start(t, "dev", "--data", s.data(), "--listen", "127.0.0.1:0", "--node", "n1")
	if code := d.exit(); code != exitFailed || !strings.Contains(d.stderr(), want) {
		t.Errorf("exit code %d, %s", code, d.stderr())
	}
}

// TestTokenIsNotInTheEnvironmentOfTasks: nor is it in that of the supervisor, which tasks of the
// same user can read.
func TestTokenIsNotInTheEnvironmentOfTasks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	secret := strings.TrimPrefix(token.New(token.User).Header(), "Bearer ")
	d := &daemon{
		t: t, cmd: exec.Command("plimsoll", "dev", "--data", s.data(), "--listen", "127.0.0.1:0", "--node", "n1"),
		ended: make(chan struct{}),
	}
	d.cmd.Env, d.cmd.Stderr = append(environment(), "PLIMSOLL_TOKEN="+secret), d
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait() // the test stops it
		close(d.ended)
	}()
	t.Cleanup(d.kill)
	s.address = d.says(readyLine)[1]
	s.nodeReady("n1")
	own := strings.TrimPrefix(userToken(t, s.data()).Header(), "Bearer ")
	stdout, stderr, code := s.cli("run", "--", "sh", "-c", "env; { tr '\\0' '\\n' </proc/$PPID/environ; } 2>&1 || true")
	if code != 0 || !strings.Contains(stdout, "PLIMSOLL_TASK_ID=") {
		t.Fatalf("exit code %d, %s %s", code, stdout, stderr)
	}
	if strings.Contains(stdout, secret) || strings.Contains(stdout, own) || strings.Contains(stdout, "PLIMSOLL_TOKEN") {
		t.Errorf("a task sees %s", stdout)
	}
	// A task with a uid of its own cannot read the supervisor's environment; a task of root can.
	environ := processes("environ")[s.supervisor(s.path("data", "agent"))]
	if !strings.Contains(environ, "PATH=") || strings.Contains(environ, secret) || strings.Contains(environ, own) {
		t.Errorf("the supervisor has %q", environ)
	}
}

// TestNothingShowsTheTokens: no log, event, metric, error or list of processes shows a token.
func TestNothingShowsTheTokens(t *testing.T) {
	t.Parallel()
	ports := freePorts(t, 3)
	c := &cluster{site: newSite(t), leader: ports[0], gateway: ports[1], agent: ports[2]}
	c.address = c.gateway
	said := map[string]*daemon{
		"coordinator": start(t, "coordinator", "--data", c.path("store"), "--listen", c.leader, "--log-level", "debug"),
		"gateway": start(
			t, "gateway", "--data", c.path("gateway"), "--leader", c.leader, "--listen", c.gateway, "--log-level",
			"debug",
		),
		"agent": start(
			t, "agent", "--data", c.path("agent"), "--gateways", c.gateway, "--listen", c.agent, "--node", "n1",
			"--log-level", "debug",
		),
	}
	said["gateway"].says("msg=serving")
	c.nodeReady("n1")
	c.works("one")
	seen := map[string]string{}
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/x"} {
		for _, listener := range []string{c.leader, c.gateway, c.agent} {
			_, seen[listener+path] = request(t, listener, "GET "+path, "")
		}
	}
	for _, command := range []string{
		"events -o json", "node list -o json", "node show n1 -o json", "job list -o json", "config print", "version",
	} {
		seen[command], _, _ = c.cli(strings.Fields(command)...)
	}
	for pid, words := range cmdlines() {
		seen[fmt.Sprint("process ", pid)] = words
	}
	tokens := slices.Collect(maps.Values(c.tokens(t)))
	for name, d := range said {
		d.stop()
		seen["log of the "+name] = d.stderr()
	}
	err := filepath.WalkDir(c.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && filepath.Ext(path) != ".token" {
			var data []byte
			data, err = os.ReadFile(path)
			seen[path] = string(data)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, has := range tokens {
		secret := strings.TrimPrefix(has.Header(), "Bearer plimsoll_"+has.Kind().String()+"_")
		for where, text := range seen {
			if strings.Contains(text, secret) {
				t.Errorf("%v is in %s", has, where)
			}
		}
	}
}

// TestOpenListenersSaySo: each start warns of --no-token and --open-ws at any log level. The
// metrics show them too.
func TestOpenListenersSaySo(t *testing.T) {
	t.Parallel()
	for flag, test := range map[string]struct{ says, metric string }{
		"--no-token": {
			"everybody who reaches the address may do everything there, without a token", "plimsoll_gateway_no_token 1",
		},
		"--open-ws": {
			"everybody who reaches the address may read events, jobs, nodes and queues under /ws/v1, without a token",
			"plimsoll_gateway_open_ws 1",
		},
	} {
		s := newSite(t)
		for _, level := range []string{"info", "error"} {
			d := start(
				t, "dev", "--data", s.data(), "--listen", "127.0.0.1:0", "--node", "n1", "--log-level", level, flag,
			)
			address := d.says(readyLine)[1]
			if said := d.stderr(); strings.Count(
				said, test.says,
			) != 1 || !strings.Contains(said, flag) || level == "info" && !strings.Contains(said, "level=WARN") {
				t.Errorf("%s at %s: %s", flag, level, said)
			}
			listener := strings.TrimPrefix(address, "http://")
			for _, path := range rest.Paths() {
				if strings.HasSuffix(path, "/") {
					path += "events/batch"
				}
				if status, body := request(t, listener, "GET "+path, ""); status != http.StatusOK {
					t.Errorf("%s: %s: %d %s", flag, path, status, body)
				}
			}
			want := map[string]int{"--no-token": http.StatusNotFound, "--open-ws": http.StatusUnauthorized}[flag]
			if status, body := request(t, listener, "GET /x", ""); status != want {
				t.Errorf("%s: %d %s, want %d", flag, status, body, want)
			}
			response, err := http.Get(address + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(response.Body)
			if err := errors.Join(err, response.Body.Close()); err != nil ||
				!strings.Contains(string(data), "\n"+test.metric+"\n") {
				t.Errorf("%s: /metrics does not say %s: %v", flag, test.metric, err)
			}
			s.address = address
			s.nodeReady("n1")
			s.works("with-" + level)
			d.stop()
		}
	}
}

// TestTokensOfOtherMachines: where the loopback is not used, the roles read copies of the token
// files. Without a copy they name the file that is missing.
func TestTokensOfOtherMachines(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ports := freePorts(t, 3)
	leader, gateway, agent := ports[0], ports[1], ports[2]
	s.address = gateway
	elsewhere := t.TempDir() // a home directory for each role
	begin := func(role string, args ...string) *daemon {
		d := &daemon{
			t: t, cmd: exec.Command("plimsoll", append([]string{role, "--data", s.path(role)}, args...)...),
			ended: make(chan struct{}),
		}
		home := filepath.Join(elsewhere, role)
		if err := os.MkdirAll(home, 0o700); err != nil {
			t.Fatal(err)
		}
		d.cmd.Env, d.cmd.Stderr = append(environment(), "HOME="+home), d
		if err := d.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = d.cmd.Wait() // the test stops it
			close(d.ended)
		}()
		t.Cleanup(d.kill)
		return d
	}
	begin("coordinator", "--listen", leader).says("msg=leading")
	alone := begin("gateway", "--leader", leader, "--listen", gateway)
	alone.says("this server wants a gateway token; .*--gateway-token-file or PLIMSOLL_GATEWAY_TOKEN_FILE")
	alone.stop()
	shared := s.path("log.token")
	begin(
		"gateway", "--leader", leader, "--listen", gateway, "--gateway-token-file",
		s.path("coordinator", "gateway.token"), "--log-token-file", shared,
	)
	lost := begin("agent", "--gateways", gateway, "--listen", agent, "--node", "n1", "--log-token-file", shared)
	lost.says("this server wants an agent token; .*--agent-token-file or PLIMSOLL_AGENT_TOKEN_FILE")
	lost.stop()
	known := begin(
		"agent", "--gateways", gateway, "--listen", agent, "--node", "n1", "--agent-token-file",
		s.path("gateway", "agent.token"),
	)
	user, err := client.New(
		client.Config{Server: gateway, TokenFile: s.path("gateway", "user.token"), RetryBudget: patience},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	eventually(t, "wait for the node", func() error {
		nodes, err := user.Nodes(t.Context())
		if err != nil || len(nodes) != 1 || !nodes[0].Node.Ready {
			return fmt.Errorf("%v, %w", nodes, err)
		}
		return nil
	})
	stdout, stderr, _ := s.cli("run", "--token-file", s.path("gateway", "user.token"), "--", "echo", "hello")
	if stdout != "" || !strings.Contains(
		stderr,
		"does not let this gateway in; start the gateway with --log-token-file and a copy of that agent's file log.token",
	) {
		t.Errorf("%s, %s", stdout, stderr)
	}
	known.stop()
	begin(
		"agent", "--gateways", gateway, "--listen", agent, "--node", "n1", "--agent-token-file",
		s.path("gateway", "agent.token"), "--log-token-file", shared,
	)
	eventually(t, "read a log", func() error {
		stdout, stderr, code := s.cli("run", "--token-file", s.path("gateway", "user.token"), "--", "echo", "hello")
		if stdout != "hello\n" || code != 0 {
			return fmt.Errorf("exit code %d, %s", code, stderr)
		}
		return nil
	})
}
