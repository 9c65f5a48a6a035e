package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// patience bounds a test's wait for an event. Only a failing test reaches it.
const patience = 20 * time.Second

// world is the environment of an agent: gateways on a real network, and a supervisor.
type world struct {
	*testing.T
	ctx      context.Context //nolint:containedctx // it ends with the world's test
	dir      string
	cluster  *cluster
	super    *supervisor
	executor Executor // super, unless a test uses a real one
	qos      *qosFake
	address  string
	log      *logBuffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	dir, err := os.MkdirTemp("", "agent") // short: it holds a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	w := &world{
		T: t, ctx: ctx, dir: dir, cluster: newCluster(), super: newSupervisor(dir), log: &logBuffer{},
		qos: newQOSFake(),
	}
	w.executor = w.super
	w.address = w.serve(w.cluster)
	return w
}

// serve opens a gateway of a cluster.
func (w *world) serve(c *cluster) (address string) {
	w.Helper()
	l, err := transport.Listen("127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewAgentServiceHandler(served{c}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- transport.Serve(ctx, l, mux, transport.ServeConfig{Access: transport.AnyCaller()}) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
	return l.Addr().String()
}

func (w *world) config() Config {
	return Config{
		Node: "n1", Dir: w.dir, Gateways: []string{w.address}, Attributes: map[string]string{"rack": "r7"},
		Facts:    plimsoll.NodeFacts{Traits: map[string]plimsoll.Trait{"ssd": {Flag: true}}},
		Networks: map[string]string{"back": "none0"},
	}
}

// run runs an agent until stop is called; stop returns the result of Run.
func (w *world) run(cfg Config) (stop func() error, ended <-chan struct{}) {
	w.Helper()
	deps := Deps{Executor: w.executor, Events: eventsTo(w.log)}
	if s, ok := w.executor.(interface {
		Retire(ctx context.Context) (running int, err error)
	}); ok {
		deps.Retire = s.Retire
	}
	a, err := New(cfg, deps)
	if err != nil {
		w.Fatal(err)
	}
	a.newLoop = w.qos.make
	return w.start(a)
}

// eventsTo writes events to a log, one line each.
func eventsTo(log io.Writer) Events {
	// A buffer returns no error.
	write := func(words ...any) { _, _ = fmt.Fprintln(log, words...) }
	return Events{
		Registered:        func(gateway string, _ *plimsoll.Node) { write("registered at", gateway) },
		Disconnected:      func(gateway string, err error, _ time.Duration) { write("no session with", gateway, err) },
		SupervisorLost:    func(err error, _ time.Duration) { write("no supervisor", err) },
		Limited:           func(cgroups, reason string) { write("limited", cgroups, reason) },
		ReportsCut:        func(bytes int64) { write("reports cut", bytes) },
		NodeReportRefused: func(events int, err error) { write("report of the node refused", events, err) },
		Left:              func(running int, err error) { write("left", running, err) },
		Trouble:           func(t Trouble) { write(t.Kind, t.Task, t.Attempt, t.Policy, t.Err) },
	}
}

func (w *world) start(a *Agent) (stop func() error, ended <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() { defer close(done); err = a.Run(ctx) }()
	stop = func() error { cancel(); <-done; return err }
	w.Cleanup(func() { _ = stop() }) // a test that needs the result has read it
	return stop, done
}

func (w *world) await(what string, so func() bool) {
	w.Helper()
	if !w.cluster.until(w.ctx, so) {
		w.Fatalf("%s: it did not come\n%s", what, w.log.String())
	}
}

func (w *world) awaitSupervisor(what string, so func() bool) {
	w.Helper()
	if !w.super.until(w.ctx, so) {
		w.Fatalf("%s: it did not come\n%s", what, w.log.String())
	}
}

func (w *world) awaitEnd(task string, attempt int32, result plimsoll.TaskResult, code int32) {
	w.Helper()
	var r plimsoll.TaskReport
	w.await("the end of "+task, func() (ok bool) { r, ok = w.cluster.end(task, attempt); return ok })
	if r.Result != result || r.ExitCode != code {
		w.Errorf(
			"%s ended as %q with code %d (%s), want %q with %d", task, r.Result, r.ExitCode, r.Message, result, code,
		)
	}
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
func (l *logBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

func TestATaskFromBindingToItsEnd(t *testing.T) {
	w := newWorld(t)
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
	stop, _ := w.run(w.config())
	w.await("the report that it runs", func() bool { return w.cluster.has("j.g.0", 1, plimsoll.TaskRunning) > 0 })
	w.super.finish("j.g.0", 1, plimsoll.ResultFailed, 3)
	w.awaitEnd("j.g.0", 1, plimsoll.ResultFailed, 3)
	w.awaitSupervisor("the attempt is forgotten", func() bool { return len(w.super.attempts) == 0 })
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	node := w.cluster.node
	if node.ID != "n1" || node.Address != "unix:"+filepath.Join(w.dir, "agent.sock") ||
		node.Capacity[plimsoll.CPU] <= 0 {
		t.Errorf("registered as %+v", node)
	}
	if node.Attributes["cgroup"] != CgroupNone || node.Attributes["rack"] != "r7" {
		t.Errorf("attributes %v", node.Attributes)
	}
	if up, known := node.Facts.Networks["back"]; up || !known ||
		!node.Facts.Traits["ssd"].Flag || node.Facts.LastBoot <= 0 {
		t.Errorf("facts %+v", node.Facts)
	}
	if n := strings.Count(w.log.String(), "limited"); n != 1 {
		t.Errorf("that there are no cgroups was said %d times, want once:\n%s", n, w.log)
	}
	for i, r := range w.cluster.requests {
		if r.Sequence != uint64(i+1) || r.Incarnation != node.Incarnation || r.Node != "n1" {
			t.Errorf("request %d has node %s, incarnation %d, sequence %d", i, r.Node, r.Incarnation, r.Sequence)
		}
	}
}

func TestStops(t *testing.T) {
	w := newWorld(t)
	w.run(w.config())
	for _, task := range []string{"j.killed.0", "j.gone.0", "j.again.0", "j.kept.0"} {
		w.cluster.assign(task, 1, plimsoll.TaskBound)
		w.await(task+" runs", func() bool { return w.cluster.has(task, 1, plimsoll.TaskRunning) > 0 })
	}
	w.cluster.assign("j.killed.0", 1, plimsoll.TaskStopping)
	w.cluster.unassign("j.gone.0")
	w.cluster.assign("j.again.0", 2, plimsoll.TaskBound)
	w.cluster.assign("j.never.0", 1, plimsoll.TaskStopping)
	w.awaitEnd("j.killed.0", 1, plimsoll.ResultKilled, 143)
	w.awaitEnd("j.gone.0", 1, plimsoll.ResultKilled, 143)
	w.awaitEnd("j.again.0", 1, plimsoll.ResultKilled, 143)
	w.awaitEnd("j.never.0", 1, plimsoll.ResultKilled, -1)
	w.await("the newer attempt", func() bool { return w.cluster.has("j.again.0", 2, plimsoll.TaskRunning) > 0 })
	w.super.look(func() {
		for _, s := range w.super.stops {
			if unknown := s.Task == "j.gone.0"; s.Grace != 3*time.Second && !unknown || s.Grace != 0 && unknown {
				t.Errorf("stop %+v, want the task's own grace, or none if only the supervisor knows it", s)
			}
		}
		if w.super.stopped("j.kept.0", 1) {
			t.Error("a task that is still assigned was stopped")
		}
	})
}

func TestTheNetworkIsAway(t *testing.T) {
	w := newWorld(t)
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
	w.run(w.config())
	w.await("it runs", func() bool { return w.cluster.has("j.g.0", 1, plimsoll.TaskRunning) > 0 })
	w.cluster.disconnect(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"))
	// Ends while no gateway can be reached.
	w.super.finish("j.g.0", 1, plimsoll.ResultSucceeded, 0)
	w.cluster.assign("j.g.1", 1, plimsoll.TaskBound) // bound while the agent cannot know
	var watches int
	w.cluster.look(func() { watches = w.cluster.watches })
	w.cluster.disconnect(nil)
	w.awaitEnd("j.g.0", 1, plimsoll.ResultSucceeded, 0)
	w.await(
		"the other one runs",
		func() bool { return w.cluster.has("j.g.1", 1, plimsoll.TaskRunning) > 0 && w.cluster.watches > watches },
	)
	w.super.look(func() {
		if len(w.super.stops) != 0 {
			t.Errorf("tasks were stopped because the network was away: %+v", w.super.stops)
		}
	})
}

func TestGatewaysFailOver(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Gateways = []string{"127.0.0.1:1", "unix:" + filepath.Join(w.dir, "nobody.sock"), w.address}
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
	w.run(cfg)
	w.await("it runs", func() bool { return w.cluster.has("j.g.0", 1, plimsoll.TaskRunning) > 0 })
}

func TestANewAgentOverRunningTasks(t *testing.T) {
	w := newWorld(t)
	for _, task := range []string{"j.g.0", "j.g.1", "j.g.2"} {
		w.cluster.assign(task, 1, plimsoll.TaskBound)
	}
	stop, _ := w.run(w.config())
	w.await("all run", func() bool {
		return w.cluster.has("j.g.0", 1, plimsoll.TaskRunning)*w.cluster.has("j.g.1", 1, plimsoll.TaskRunning)*
			w.cluster.has("j.g.2", 1, plimsoll.TaskRunning) > 0
	})
	w.cluster.disconnect(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"))
	// While the agent lives but cannot report.
	w.super.finish("j.g.0", 1, plimsoll.ResultFailed, 4)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	first := w.cluster.incarnation
	w.super.finish("j.g.1", 1, plimsoll.ResultOutOfMemory, 137) // while no agent lives
	w.cluster.disconnect(nil)
	before := len(w.cluster.requests)
	stop, _ = w.run(w.config())
	w.awaitEnd("j.g.0", 1, plimsoll.ResultFailed, 4)
	w.awaitEnd("j.g.1", 1, plimsoll.ResultOutOfMemory, 137)
	w.super.finish("j.g.2", 1, plimsoll.ResultSucceeded, 0) // under the new agent
	w.awaitEnd("j.g.2", 1, plimsoll.ResultSucceeded, 0)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if w.cluster.incarnation != first+1 {
		t.Errorf("incarnation %d, want %d", w.cluster.incarnation, first+1)
	}
	if s := w.cluster.requests[before].Sequence; s != 1 {
		t.Errorf("the new incarnation's first report has sequence %d, want 1", s)
	}
	for key, n := range w.super.starts {
		if n != 1 {
			t.Errorf("%v was started %d times", key, n)
		}
	}
}

func TestAnAttemptThatIsNotHereIsLost(t *testing.T) {
	w := newWorld(t)
	w.cluster.assign("j.g.0", 2, plimsoll.TaskRunning) // never started here
	w.cluster.assign("j.g.1", 1, plimsoll.TaskBound)   // its directory exists, but no process
	w.cluster.assign("j.g.2", 1, plimsoll.TaskBound)
	write(t, filepath.Join(w.dir, "tasks", "j.g.1", "1", "stdout"), []byte("torn"))
	w.run(w.config())
	w.awaitEnd("j.g.0", 2, plimsoll.ResultLost, -1)
	w.awaitEnd("j.g.1", 1, plimsoll.ResultLost, -1)
	w.await("the healthy one runs", func() bool { return w.cluster.has("j.g.2", 1, plimsoll.TaskRunning) > 0 })
	w.super.look(func() {
		if n := w.super.starts[attemptKey{"j.g.1", 1}]; n != 0 {
			t.Errorf("an attempt with a directory was started %d times", n)
		}
	})
}

func TestAnotherAgentTakesOver(t *testing.T) {
	w := newWorld(t)
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
	stop, ended := w.run(w.config())
	w.await("it runs", func() bool { return w.cluster.has("j.g.0", 1, plimsoll.TaskRunning) > 0 })
	w.cluster.change(func() { w.cluster.incarnation += 5 })
	select {
	case <-ended:
	case <-w.ctx.Done():
		t.Fatal("the older agent goes on")
	}
	err := stop()
	if plimsoll.CodeOf(err) != plimsoll.CodeStale || !strings.Contains(err.Error(), `"n1"`) {
		t.Errorf("Run: %v", err)
	}
	if len(w.super.stops) != 0 {
		t.Errorf("it stopped tasks: %v", w.super.stops)
	}
}

func TestTheSupervisorIsAway(t *testing.T) {
	w := newWorld(t)
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
	w.run(w.config())
	w.await("it runs", func() bool { return w.cluster.has("j.g.0", 1, plimsoll.TaskRunning) > 0 })
	w.super.change(func() {
		w.super.cut++
		w.super.failing = plimsoll.Errorf(plimsoll.CodeUnavailable, "the supervisor is away")
	})
	w.cluster.assign("j.g.0", 1, plimsoll.TaskStopping)
	w.cluster.assign("j.g.1", 1, plimsoll.TaskBound)
	w.super.change(func() { w.super.failing = nil; w.super.cut++ })
	w.awaitEnd("j.g.0", 1, plimsoll.ResultKilled, 143)
	w.await("the other runs", func() bool { return w.cluster.has("j.g.1", 1, plimsoll.TaskRunning) > 0 })
}

// A start that the supervisor refuses is the task's fault if the request is wrong, and else the
// node's.
func TestAStartThatIsRefused(t *testing.T) {
	for _, c := range []struct {
		err     error
		result  plimsoll.TaskResult
		message string
	}{
		{plimsoll.Invalid("user", "there is no user nobody2"), plimsoll.ResultNeverStarted, "nobody2"},
		{plimsoll.Errorf(plimsoll.CodeConflict, "the directory cannot be made"), plimsoll.ResultNodeFault, "directory"},
		{errors.New("disk on fire"), plimsoll.ResultNodeFault, "fire"},
	} {
		t.Run(c.message, func(t *testing.T) {
			w := newWorld(t)
			w.super.failing = c.err
			w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
			w.run(w.config())
			w.awaitEnd("j.g.0", 1, c.result, -1)
			w.cluster.look(func() {
				if r, _ := w.cluster.end("j.g.0", 1); !strings.Contains(r.Message, c.message) {
					t.Errorf("message %q does not say why", r.Message)
				}
			})
		})
	}
}

func TestAnAgentThatCannotBegin(t *testing.T) {
	w := newWorld(t)
	stop, _ := w.run(w.config())
	w.await("the first has registered", func() bool { return w.cluster.registers > 0 })
	second, err := New(w.config(), Deps{Executor: w.super})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(w.ctx); plimsoll.CodeOf(err) != plimsoll.CodeAlreadyRunning {
		t.Errorf("a second agent in the directory: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	cfg := w.config()
	cfg.Dir = filepath.Join(w.dir, identityFile, "below") // a file is in the way
	third, err := New(cfg, Deps{Executor: w.super})
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Run(w.ctx); err == nil || !strings.Contains(err.Error(), cfg.Dir) {
		t.Errorf("an agent without a directory: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	good := Config{Dir: "d", Gateways: []string{"127.0.0.1:9080"}}
	tests := []struct {
		field  string
		change func(*Config)
	}{
		{"dir", func(c *Config) { c.Dir = "" }},
		{"gateways", func(c *Config) { c.Gateways = nil }},
		{"gateways[0]", func(c *Config) { c.Gateways = []string{"nonsense"} }},
		{"node", func(c *Config) { c.Node = "../up" }},
		{"listen", func(c *Config) { c.Listen = "nonsense" }},
		{"listen", func(c *Config) { c.Listen = "0.0.0.0:9081" }},
		{"listen", func(c *Config) { c.Dir = strings.Repeat("long/", 30) }},
		{"capacity.cpu", func(c *Config) { c.Capacity = plimsoll.Resources{plimsoll.CPU: -1} }},
		{"traits.gpu", func(c *Config) { c.Facts.Traits = map[string]plimsoll.Trait{"gpu": {Words: []string{}}} }},
		{"networks", func(c *Config) { c.Networks = map[string]string{"": "eth0"} }},
		{"reserve.memory", func(c *Config) { c.Facts.Reserve = map[string]float64{"memory": 1} }},
		{"overprovision.cpu", func(c *Config) { c.Facts.Overprovision = map[string]float64{"cpu": -4} }},
		{"platform", func(c *Config) { c.Facts.Platform = "new" }},
		{"heartbeatInterval", func(c *Config) { c.HeartbeatInterval = -1 }},
		{"callTimeout", func(c *Config) { c.CallTimeout = -1 }},
		{"qos.interval", func(c *Config) { c.QOS.Interval = time.Millisecond }},
		{"qos.extended.cpuReserve", func(c *Config) { c.QOS.Extended.CPUReserve = 101 }},
		{"logs.bytes", func(c *Config) { c.Logs.Bytes = AttemptBytes - 1 }},
		{"logs.age", func(c *Config) { c.Logs.Age = -1 }},
		{"logs.failedAge", func(c *Config) { c.Logs.FailedAge = -1 }},
		{"logs.failedAge", func(c *Config) { c.Logs.FailedAge = time.Hour }},
	}
	for _, test := range tests {
		cfg := good
		test.change(&cfg)
		_, err := New(cfg, Deps{Executor: newSupervisor("")})
		var e *plimsoll.Error
		if !errors.As(err, &e) || e.Field != test.field || e.Code != plimsoll.CodeInvalid {
			t.Errorf("%s: error %v", test.field, err)
		}
	}
	if _, err := New(good, Deps{}); err == nil {
		t.Error("an agent without a supervisor was made")
	}
}

// runWithLogs runs an agent with the task j.g.0, and returns a client of its logs at its own
// address.
func runWithLogs(t *testing.T, w *world) plimsollv1connect.LogServiceClient {
	t.Helper()
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
	w.run(w.config())
	w.await("it runs", func() bool { return w.cluster.has("j.g.0", 1, plimsoll.TaskRunning) > 0 })
	var address string
	w.cluster.look(func() { address = w.cluster.node.Address })
	client, base, err := transport.Client(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return plimsollv1connect.NewLogServiceClient(client, base)
}

// TestLogsOverTheNetwork reads a task's output from the agent's own address.
func TestLogsOverTheNetwork(t *testing.T) {
	w := newWorld(t)
	logs := runWithLogs(t, w)
	read := func(m *pb.ReadTaskLogRequest) (string, error) {
		stream, err := logs.ReadTaskLog(w.ctx, connect.NewRequest(m))
		if err != nil {
			return "", wire.FromConnectError(err)
		}
		var text strings.Builder
		for stream.Receive() {
			text.Write(stream.Msg().Data)
			if m.Follow {
				w.super.change(func() { // it ends while it is followed
					if a := *w.super.attempts[attemptKey{"j.g.0", 1}]; a.State != plimsoll.TaskFinished {
						a.State, a.Result = plimsoll.TaskFinished, plimsoll.ResultSucceeded
						w.super.put(a)
					}
				})
			}
		}
		return text.String(), errors.Join(wire.FromConnectError(stream.Err()), stream.Close())
	}
	if got, err := read(&pb.ReadTaskLogRequest{Task: "j.g.0"}); err != nil || got != "hello from j.g.0\n" {
		t.Errorf("read %q, error %v", got, err)
	}
	if got, err := read(
		&pb.ReadTaskLogRequest{Task: "j.g.0", Attempt: 1, Stream: "stdout", TailBytes: 6},
	); err != nil || got != "j.g.0\n" {
		t.Errorf("tail %q, error %v", got, err)
	}
	for task, code := range map[string]plimsoll.Code{
		"j.g.1": plimsoll.CodeNotFound, "../../etc.passwd.0": plimsoll.CodeInvalid, "a/b.g.0": plimsoll.CodeInvalid,
		"j.../x.0": plimsoll.CodeInvalid, "": plimsoll.CodeInvalid,
	} {
		if _, err := read(&pb.ReadTaskLogRequest{Task: task}); plimsoll.CodeOf(err) != code {
			t.Errorf("task %q: error %v, want %s", task, err, code)
		}
	}
	if _, err := read(
		&pb.ReadTaskLogRequest{Task: "j.g.0", Stream: "../lock"},
	); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("a stream that is none: error %v", err)
	}
	if got, err := read(
		&pb.ReadTaskLogRequest{Task: "j.g.0", Follow: true},
	); err != nil || got != "hello from j.g.0\n" {
		t.Errorf("followed %q, error %v", got, err)
	}
}
