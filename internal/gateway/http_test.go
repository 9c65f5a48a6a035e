package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// do makes a plain HTTP/1.1 request and returns the status and the body.
func (s *served) do(t *testing.T, method, path, contentType string, body []byte) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, s.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := s.plain.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read to its end
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func ask(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), method, path, nil))
	return w
}

func TestOnePortSpeaksEveryProtocol(t *testing.T) {
	f := cluster()
	f.emit(plimsoll.Event{Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Object: "a", Time: 7})
	s := serve(t, Config{}, f)
	status, body := s.do(
		t, http.MethodPost, plimsollv1connect.JobServiceGetJobProcedure, "application/json", []byte(`{"id":"a"}`),
	)
	if status != http.StatusOK || !strings.Contains(body, `"owner":"alice"`) {
		t.Errorf("Connect with JSON: %d %s", status, body)
	}
	client, url, err := transport.Client(s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	for name, option := range map[string]connect.ClientOption{
		"gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	} {
		jobs := plimsollv1connect.NewJobServiceClient(client, url, option)
		if got := must(t, jobs.GetJob, &pb.GetJobRequest{Id: "a"}); got.GetJob().GetStatus().GetOwner() != "alice" {
			t.Errorf("%s: %v", name, got)
		}
		if _, err := call(jobs.GetJob, &pb.GetJobRequest{Id: "gone"}); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	status, body = s.do(t, http.MethodGet, "/ws/v1/events/batch?count=5", "", nil)
	if want := `{"InstanceUUID":"","LowestID":0,"HighestID":0,"EventRecords":[{"type":2,"objectID":"a","timestampNano":7,"eventChangeType":2,"resource":{}}]}` + "\n"; status != http.StatusOK || body != want {
		t.Errorf("YuniKorn's batch: %d %s", status, body)
	}
}

func TestHealthSaysWhetherAReadWouldBeAnswered(t *testing.T) {
	f := cluster()
	g := newGateway(t, Config{}, f)
	w := ask(g.Handler(), http.MethodGet, "/healthz")
	if want := `{"status":"ok","gateway":"g1","epoch":1,"revision":1}` + "\n"; w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	f.down = errNoLeader
	w = ask(g.Handler(), http.MethodGet, "/healthz")
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(
		w.Body.String(), `"reason":"no read can be answered: this gateway is not connected`,
	) {
		t.Errorf("without a leader: %d %s", w.Code, w.Body)
	}
	testrun.Bubble(t, func(t *testing.T) {
		f := cluster()
		f.hang = true
		began := time.Now()
		w := ask(newGateway(t, Config{}, f).Handler(), http.MethodGet, "/healthz")
		waited := time.Since(began)
		if w.Code != http.StatusServiceUnavailable || waited != time.Second ||
			!strings.Contains(w.Body.String(), "within 1s") {
			t.Errorf("with a leader that hangs: %d %s after %s", w.Code, w.Body, waited)
		}
	})
}

func TestMetricsTellWhatHappened(t *testing.T) {
	f := cluster()
	g := newGateway(t, Config{}, f)
	s := directly(g)
	must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "a"})
	if _, err := call(s.jobs.GetJob, &pb.GetJobRequest{Id: "gone"}); err == nil {
		t.Fatal("there is a job that is gone")
	}
	must(t, s.agents.RegisterNode, &pb.RegisterNodeRequest{Node: &pb.Node{Id: "n1", Incarnation: 1}})
	ask(g.Handler(), http.MethodGet, "/ws/v1/events/batch?count=0")
	text := ask(g.Handler(), http.MethodGet, "/metrics").Body.String()
	for _, line := range []string{
		`plimsoll_gateway_requests_total{code="ok",rpc="/plimsoll.v1.JobService/GetJob"} 1`,
		`plimsoll_gateway_requests_total{code="not_found",rpc="/plimsoll.v1.JobService/GetJob"} 1`,
		`plimsoll_gateway_requests_total{code="400",rpc="/ws/v1"} 1`,
		`plimsoll_gateway_barrier_seconds_count 2`,
		`plimsoll_gateway_replica_revision 1`,
		`plimsoll_gateway_connected 1`,
		`plimsoll_gateway_nodes_heard 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("there is no line %q", line)
		}
	}
}

func TestUnknownPathsAreAnsweredInJSON(t *testing.T) {
	g := newGateway(t, Config{}, cluster())
	for _, path := range []string{
		"/favicon.ico", "/plimsoll.v1.NoService/Call", "/ws/v1/nothing", "/ws", "/healthz/x",
	} {
		w := ask(g.Handler(), http.MethodGet, path)
		var body struct{ Message string }
		if err := json.Unmarshal(
			w.Body.Bytes(), &body,
		); err != nil || w.Code != http.StatusNotFound || !strings.Contains(body.Message, "/ws/v1/events/batch") {
			t.Errorf("%s: %d %s (%v)", path, w.Code, w.Body, err)
		}
	}
	w := ask(g.Handler(), http.MethodGet, "/")
	if w.Code != http.StatusFound || w.Header().Get("Location") != "/docs/" {
		t.Errorf("/: %d %v", w.Code, w.Header())
	}
}

// A request that no call takes is refused in the same form as any other, with the way to mend it.
func TestWhatIsNoCallIsRefusedInJSON(t *testing.T) {
	const list, watch = plimsollv1connect.JobServiceListJobsProcedure, plimsollv1connect.JobServiceWatchJobProcedure
	const anyJSON, curls = "application/json", "application/x-www-form-urlencoded"
	s := serve(t, Config{}, cluster())
	for _, c := range []struct {
		method, path, kind string
		status             int
		code, want         string
	}{
		{
			"POST", "/plimsoll.v1.JobService/ListJob", anyJSON, 501, "unimplemented",
			`plimsoll.v1.JobService has no call "ListJob"; did you mean "ListJobs"?`,
		},
		{"GET", "/plimsoll.v1.JobService/Nothing", "", 501, "unimplemented", "possible are DeleteJob, "},
		{"POST", "/plimsoll.v1.JobsService/ListJobs", anyJSON, 404, "not_found", ", JobService, NodeService, "},
		{"POST", "/nothing", curls, 404, "not_found", "there is nothing at /nothing; there are /docs, "},
		{"GET", list, "", 405, "invalid_argument", "a call takes POST, and GET came; send its fields as"},
		{"DELETE", watch, anyJSON, 405, "invalid_argument", "a call takes POST, and DELETE came; send its fields as"},
		{"POST", list, curls, 415, "invalid_argument", `Content-Type: is "` + curls + `"; send application/json`},
		{"POST", list, "", 415, "invalid_argument", `Content-Type: is ""; send application/json`},
		{"POST", watch, anyJSON, 415, "invalid_argument", "takes application/connect+json, in which"},
		{"POST", list, anyJSON, 400, "invalid_argument", "the body is not JSON: it ends too early, at line 1,"},
	} {
		status, body := s.do(t, c.method, c.path, c.kind, []byte("{"))
		var said refusal
		if err := json.Unmarshal([]byte(body), &said); err != nil || status != c.status || said.Code != c.code ||
			!strings.Contains(said.Message, c.want) || len(said.Details) != 1 {
			t.Errorf("%s %s as %q: %d %s (%v); want %d %s: %s", c.method, c.path, c.kind, status, body, err, c.status,
				c.code, c.want)
		}
	}
}

// A caller over gRPC gets the status of a call that a server does not know.
func TestAnUnknownCallOverGRPCIsUnimplemented(t *testing.T) {
	s := serve(t, Config{}, cluster())
	client, url, err := transport.Client(s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/plimsoll.v1.JobService/Nothing", "/grpc.health.v1.Health/Check"} {
		nothing := connect.NewClient[pb.GetJobRequest, pb.GetJobResponse](client, url+path, connect.WithGRPC())
		_, err := nothing.CallUnary(t.Context(), connect.NewRequest(&pb.GetJobRequest{}))
		if connect.CodeOf(err) != connect.CodeUnimplemented {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Junk on every procedure and every path, of every content type, is refused, and the next request
// is answered.
func TestJunkIsRefused(t *testing.T) {
	s := serve(t, Config{}, cluster())
	seed := uint64(20)
	random := rand.New(rand.NewPCG(seed, 0))
	junk := make([]byte, 1<<20)
	for i := range junk {
		junk[i] = byte(random.Uint32())
	}
	procedures := []string{
		plimsollv1connect.JobServiceSubmitJobProcedure, plimsollv1connect.JobServiceWatchJobProcedure,
		plimsollv1connect.NodeServiceListNodesProcedure,
		plimsollv1connect.QueueServiceSetQueueConfigProcedure, plimsollv1connect.EventServiceListEventsProcedure,
		plimsollv1connect.AgentServiceReportTasksProcedure, plimsollv1connect.AgentServiceWatchAssignmentsProcedure,
	}
	types := []string{
		"application/proto", "application/json", "application/grpc", "application/grpc+proto",
		"application/grpc-web+json",
		"application/connect+proto", "application/connect+json", "text/plain", "",
	}
	for _, path := range procedures {
		for _, contentType := range types {
			for _, size := range []int{1, 100, 1 << 20} {
				status, _ := s.do(t, http.MethodPost, path, contentType, junk[:size])
				// gRPC and Connect streams say 200 and put the error into the body.
				if status == http.StatusInternalServerError ||
					status == http.StatusOK && contentType == "application/proto" {
					t.Errorf("%s as %q, %d bytes: status %d (seed %d)", path, contentType, size, status, seed)
				}
			}
		}
	}
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write(junk) // the gateway may close the connection before it has read all
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "a"})
}

func TestATooLargeRequestIsRefused(t *testing.T) {
	s := serve(t, Config{MaxRequestBytes: 1 << 20}, cluster())
	spec := specNamed("new")
	spec.Groups[0].Env["LARGE"] = strings.Repeat("x", 1<<20)
	_, err := call(s.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)})
	if plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
		t.Errorf("got %v", err)
	}
}

func TestOnlySoManyRequestsAndStreamsAtOnce(t *testing.T) {
	f := cluster()
	f.hang, f.entered = true, make(chan struct{}, 1)
	s := serve(t, Config{MaxRequests: 1, MaxStreams: 1}, f)
	ctx, cancel := context.WithCancel(context.Background())
	waiting := make(chan error, 1)
	go func() { waiting <- second(callIn(ctx, s.jobs.ListJobs, &pb.ListJobsRequest{})) }()
	<-f.entered
	_, err := call(s.agents.Heartbeat, &pb.HeartbeatRequest{Node: "n1"})
	if plimsoll.CodeOf(err) != plimsoll.CodeExhausted || !strings.Contains(err.Error(), "1 requests under way") {
		t.Errorf("the second request: %v", err)
	}
	if status, body := s.do(t, http.MethodGet, "/ws/v1/events/batch", "", nil); status != http.StatusTooManyRequests {
		t.Errorf("YuniKorn's batch: %d %s", status, body)
	}
	f.set(func(f *fake) { f.hang = false })
	receive(t, open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Id: "a"}))
	if err := ending(
		t, open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Id: "a"}),
	); plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
		t.Errorf("the second stream: %v", err)
	}
	cancel()
	if err := <-waiting; plimsoll.CodeOf(err) != plimsoll.CodeCanceled {
		t.Errorf("the first request: %v", err)
	}
}

// panicking is a replica with a fault.
type panicking struct{ *fake }

func (panicking) Barrier(context.Context) (*replica.Snapshot, error) { panic("secret") }

func TestAPanicCostsOneRequest(t *testing.T) {
	faults := make(chan string, 10)
	cfg := Config{Events: Events{Fault: func(rpc string, err error) { faults <- fmt.Sprint(rpc, err) }}}
	s := serve(t, cfg, panicking{cluster()})
	for name, err := range map[string]error{
		"a request": second(call(s.jobs.GetJob, &pb.GetJobRequest{Id: "a"})),
		"a stream":  ending(t, open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Id: "a"})),
	} {
		if plimsoll.CodeOf(err) != plimsoll.CodeInternal || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		if told := <-faults; !strings.Contains(told, "secret") || !strings.Contains(told, "Barrier") {
			t.Errorf("%s: the log was told %q", name, told)
		}
	}
	must(t, s.agents.Heartbeat, &pb.HeartbeatRequest{Node: "n1"})
}

func TestAPortInUseIsOneClearError(t *testing.T) {
	s := serve(t, Config{}, cluster())
	err := newGateway(t, Config{Listen: s.address}, cluster()).Run(context.Background())
	if plimsoll.CodeOf(err) != plimsoll.CodeAlreadyRunning || !strings.Contains(err.Error(), s.address+" is in use") {
		t.Errorf("got %v", err)
	}
}

func TestConfigIsValidated(t *testing.T) {
	tests := []struct {
		cfg   Config
		field string
	}{
		{Config{}, "gateway.id"},
		{Config{ID: "g1", Listen: "nowhere"}, "address"},
		{Config{ID: "g1", Listen: "0.0.0.0:9080"}, "listen"},
		{Config{ID: "g1", BarrierTimeout: -1}, "gateway.barrierTimeout"},
		{Config{ID: "g1", NodeTimeout: time.Second}, "gateway.nodeTimeout"},
		{Config{ID: "g1", MaxNodes: -1}, "gateway.maxNodes"},
	}
	for _, test := range tests {
		_, err := New(test.cfg, newFake())
		e, ok := err.(*plimsoll.Error) //nolint:errorlint // Validate returns just this
		if !ok || e.Code != plimsoll.CodeInvalid || e.Field != test.field {
			t.Errorf("%+v: got %v, want an error about %s", test.cfg, err, test.field)
		}
	}
	for _, cfg := range []Config{
		{ID: "g1"}, {ID: "g1", Listen: "0.0.0.0:9080", Insecure: true}, {ID: "g1", Listen: "unix:/tmp/x.sock"},
	} {
		if err := cfg.Validate(); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
