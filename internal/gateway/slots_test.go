package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// asAgent sends requests with an agent's token.
type asAgent struct {
	http.RoundTripper
	token token.Token
}

func (a asAgent) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", a.token.Header())
	return a.RoundTripper.RoundTrip(r)
}

// twoDoors is a gateway with a listener of its own for agents, and one where a credential tells
// them from users.
type twoDoors struct {
	*served
	byListener, byCredential plimsollv1connect.AgentServiceClient
}

func serveTwoDoors(t *testing.T, cfg Config, f *fake) *twoDoors {
	t.Helper()
	cfg.Listen, cfg.ListenAgents = "127.0.0.1:0", "unix:"+filepath.Join(t.TempDir(), "agents.sock")
	agent := token.New(token.Agent)
	cfg.Access = transport.NewAccess(transport.AccessConfig{
		Grants:  func() ([]transport.Grant, error) { return Grants(token.New(token.User), agent), nil },
		NoToken: true,
	})
	g := newGateway(t, cfg, f)
	l, err := g.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	d := &twoDoors{served: clients(t, g, l.Users.Addr().String())}
	own, url, err := transport.Client(cfg.ListenAgents)
	if err != nil {
		t.Fatal(err)
	}
	shared, sharedURL, err := transport.Client(d.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		own.CloseIdleConnections()
		shared.CloseIdleConnections()
	})
	d.byListener = plimsollv1connect.NewAgentServiceClient(own, url)
	d.byCredential = plimsollv1connect.NewAgentServiceClient(
		&http.Client{Transport: asAgent{shared.Transport, agent}}, sharedURL,
	)
	return d
}

// halfSent is how many requests the attack begins, as far as this process has descriptors for both
// ends.
func halfSent() int { return min(testrun.Count(1000, 2000, 5000), transport.OpenFiles()/3) }

// flood opens connections and sends the beginning of a request on each.
func flood(t *testing.T, address, text string) {
	t.Helper()
	for range halfSent() {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // the gateway may have done so
		_, _ = io.WriteString(c, text)      // as above
	}
}

// floodStreams begins requests over HTTP/2, many on each connection.
func floodStreams(t *testing.T, address string) {
	t.Helper()
	const each = 200
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, halfSent())
	begun := 0
	for begun < halfSent() {
		client, url, err := transport.Client(address)
		if err != nil {
			t.Fatal(err)
		}
		for range each {
			begun++
			go func() {
				defer func() { ended <- struct{}{} }()
				req, err := http.NewRequestWithContext(
					ctx, http.MethodPost, url+plimsollv1connect.JobServiceSubmitJobProcedure, endless{ctx.Done()},
				)
				if err != nil {
					return
				}
				req.Header.Set("Content-Type", "application/proto")
				if resp, err := client.Do(req); err == nil {
					_ = resp.Body.Close() // nothing of it is wanted
				}
			}()
		}
		t.Cleanup(client.CloseIdleConnections)
	}
	t.Cleanup(func() {
		cancel()
		for range begun {
			<-ended
		}
	})
}

// endless is a body of which nothing comes until it is done.
type endless struct{ done <-chan struct{} }

func (e endless) Read([]byte) (int, error) {
	<-e.done
	return 0, io.EOF
}

func (p *slotPool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.arriving.Len() + p.mu.working.Len()
}

// The attack: with one bound for all, no heartbeat got through, and after a while every task of
// every node was run again.
func TestHalfSentRequestsOfUsersKeepNoHeartbeatOut(t *testing.T) {
	head := "POST " + plimsollv1connect.JobServiceSubmitJobProcedure +
		" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/proto\r\n"
	for name, attack := range map[string]func(t *testing.T, address string){
		"bodies": func(
			t *testing.T, address string,
		) {
			flood(t, address, head+"Content-Length: 1000\r\n\r\nx")
		},
		"headers":          func(t *testing.T, address string) { flood(t, address, head) },
		"bodies of HTTP/2": floodStreams,
		"bodies of an agent": func(t *testing.T, address string) {
			flood(
				t, address,
				strings.Replace(
					head, "JobService/SubmitJob", "AgentService/Heartbeat", 1,
				)+"Content-Length: 1000\r\n\r\nx",
			)
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The bound on requests is one that the attack reaches with any number of descriptors.
			f := cluster()
			f.answer = func(*pb.Command) *pb.Reply { return &pb.Reply{Registration: 1} }
			d := serveTwoDoors(t, Config{MaxRequests: halfSent() / 2, BodyTimeout: time.Minute}, f)
			register(t, d.byListener, "n1", 3)
			attack(t, d.address)
			for i := 0; i < 100 || name != "headers" && d.gateway.slots.requests.count() < halfSent()/2-1; i++ {
				for door, agents := range map[string]plimsollv1connect.AgentServiceClient{
					"listener": d.byListener, "credential": d.byCredential,
				} {
					if !must(t, agents.Heartbeat, &pb.HeartbeatRequest{Node: "n1", Incarnation: 3}).GetRegistered() {
						t.Fatalf("a heartbeat by %s was not taken", door)
					}
				}
				must(t, d.jobs.GetJob, &pb.GetJobRequest{Id: "a"}) // and other users get through
			}
		})
	}
}

func register(t *testing.T, agents plimsollv1connect.AgentServiceClient, node string, incarnation uint64) {
	t.Helper()
	must(
		t, agents.RegisterNode,
		&pb.RegisterNodeRequest{
			Node: &pb.Node{Id: node, Incarnation: incarnation, Mode: pb.NodeMode_NODE_MODE_ACTIVE, Ready: true},
		},
	)
}

// It is the caller that decides, not the path: a user who calls the service of agents shares the
// slots of users.
func TestSlotsAreKeptByTheCallerNotByThePath(t *testing.T) {
	f := cluster()
	d := serveTwoDoors(t, Config{MaxStreams: 1, MaxAgentStreams: 2}, f)
	watch := &pb.WatchAssignmentsRequest{Node: "n1", Incarnation: 3}
	receive(t, open(t, d.agents.WatchAssignments, watch)) // a user
	for _, refused := range []error{
		ending(t, open(t, d.agents.WatchAssignments, watch)),
		ending(t, open(t, d.jobs.WatchJob, &pb.WatchJobRequest{Id: "a"})),
	} {
		if plimsoll.CodeOf(refused) != plimsoll.CodeExhausted {
			t.Errorf("a second stream of a user: %v", refused)
		}
	}
	receive(t, open(t, d.byListener.WatchAssignments, watch))
	receive(t, open(t, d.byCredential.WatchAssignments, watch))
	if err := ending(
		t, open(t, d.byListener.WatchAssignments, watch),
	); plimsoll.CodeOf(err) != plimsoll.CodeExhausted || !strings.Contains(err.Error(), "agents") {
		t.Errorf("a third watch of an agent: %v", err)
	}
	_, metrics := d.do(t, http.MethodGet, "/metrics", "", nil)
	for _, line := range []string{
		`plimsoll_gateway_refused_total{bound="streams"} 2`, `plimsoll_gateway_refused_total{bound="agent_streams"} 1`,
		`plimsoll_gateway_agent_connections 2`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("/metrics has no %s", line)
		}
	}
}

func TestTheAddressOfAgentsServesNobodyElse(t *testing.T) {
	d := serveTwoDoors(t, Config{}, cluster())
	own, url, err := transport.Client(d.gateway.cfg.ListenAgents)
	if err != nil {
		t.Fatal(err)
	}
	defer own.CloseIdleConnections()
	for path, want := range map[string]int{
		plimsollv1connect.JobServiceListJobsProcedure: http.StatusNotFound, "/ws/v1/events/batch": http.StatusNotFound,
		"/metrics": http.StatusNotFound,
		"/healthz": http.StatusOK,
	} {
		resp, err := own.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A new request displaces the one that has been on its way longest, which is told so.
func TestARequestOnItsWayGivesItsPlaceToOneThatCame(t *testing.T) {
	path := plimsollv1connect.JobServiceGetJobProcedure
	inBubble(t, Config{MaxRequests: 2}, cluster(), func(t *testing.T, network *faultnet.Pipes, client *http.Client) {
		lines := []string{
			"POST " + path + " HTTP/1.1", "Host: gateway", "Content-Type: application/json", "Content-Length: 100", "",
			"{",
		}
		oldest, second := begin(t, network, lines...), begin(t, network, lines...)
		jobs := plimsollv1connect.NewJobServiceClient(client, "http://gateway")
		must(t, jobs.GetJob, &pb.GetJobRequest{Id: "a"})
		text, err := io.ReadAll(oldest)
		if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 429") || !strings.Contains(
			string(text), "longest on its way",
		) {
			t.Errorf("the oldest was told %q, %v", text, err)
		}
		if _, err := second.Write([]byte(`"id":"a"}` + strings.Repeat(" ", 90))); err != nil {
			t.Errorf("the second cannot go on: %v", err)
		}
		answer := make([]byte, 12)
		if _, err := io.ReadFull(second, answer); err != nil || string(answer) != "HTTP/1.1 200" {
			t.Errorf("the second was answered %q, %v", answer, err)
		}
		for _, c := range []net.Conn{oldest, second} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// An answer that its caller has not read for five seconds loses its slot when another request needs
// it.
func TestAnAnswerThatIsNotTakenGivesItsPlaceToOneThatCame(t *testing.T) {
	f := cluster()
	for range 100 {
		f.emit(
			plimsoll.Event{Type: plimsoll.EventRequest, Object: "wordcount.map.0", Message: strings.Repeat("x", 100)},
		)
	}
	const path = "/ws/v1/events/batch"
	inBubble(t, Config{MaxRequests: 1}, f, func(t *testing.T, network *faultnet.Pipes, client *http.Client) {
		c := begin(t, network, "GET "+path+" HTTP/1.1", "Host: gateway", "", "")
		if got := status(t, client, path); got != http.StatusTooManyRequests {
			t.Errorf("at once: %d", got)
		}
		time.Sleep(blockedAnswer) // of the bubble: nobody waits
		if got := status(t, client, path); got != http.StatusOK {
			t.Errorf("after five seconds: %d", got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Each stream that a gateway has is cut when its caller reads nothing of it for a minute, and that
// is told.
func TestAStreamThatIsNotReadIsCutAndTold(t *testing.T) {
	for procedure, req := range map[string]proto.Message{
		plimsollv1connect.JobServiceWatchJobProcedure:      &pb.WatchJobRequest{Id: "a"},
		plimsollv1connect.JobServiceReadLogsProcedure:      &pb.ReadLogsRequest{Task: "a.map.1", Follow: true},
		plimsollv1connect.NodeServiceWatchNodeQOSProcedure: &pb.WatchNodeQOSRequest{Node: "n1"},
		plimsollv1connect.AgentServiceWatchAssignmentsProcedure: &pb.WatchAssignmentsRequest{
			Node: "n1", Incarnation: 3,
		},
	} {
		t.Run(procedure, func(t *testing.T) {
			cut := make(chan string, 1)
			cfg := Config{
				MaxStreams: 1,
				Events: Events{
					Cut: func(rpc, _ string, unread time.Duration) { cut <- rpc + " after " + unread.String() },
				},
			}
			inBubble(t, cfg, cluster(), func(t *testing.T, network *faultnet.Pipes, client *http.Client) {
				body := envelope(t, req)
				c := begin(
					t, network, "POST "+procedure+" HTTP/1.1", "Host: gateway",
					"Content-Type: application/connect+proto",
					fmt.Sprintf("Content-Length: %d", len(body)), "", string(body),
				)
				jobs := plimsollv1connect.NewJobServiceClient(client, "http://gateway")
				time.Sleep(59 * time.Second) // of the bubble: nobody waits
				synctest.Wait()
				if len(cut) > 0 {
					t.Errorf("after 59 s: %s", <-cut)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if len(cut) == 0 {
					t.Error("it was not cut")
				} else if got := <-cut; got != procedure+" after 1m0s" {
					t.Errorf("it was cut: %s", got)
				}
				receive(t, open(t, jobs.WatchJob, &pb.WatchJobRequest{Id: "a"})) // there is room again
				if n, err := c.Read(make([]byte, 1)); err == nil {
					t.Errorf("the connection is still open: read %d", n)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// envelope is the body of a request for a stream.
func envelope(t *testing.T, req proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
}

func TestLogsThatAreReadAreBounded(t *testing.T) {
	s := serve(t, Config{MaxLogs: 1}, cluster())
	follow := &pb.ReadLogsRequest{Task: "a.map.1", Follow: true}
	open(t, s.jobs.ReadLogs, follow) // it is open when the gateway has begun to wait for the attempt
	err := ending(t, open(t, s.jobs.ReadLogs, follow))
	if plimsoll.CodeOf(err) != plimsoll.CodeExhausted || !strings.Contains(err.Error(), "1 logs") {
		t.Errorf("the second reader: %v", err)
	}
	receive(t, open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Id: "a"})) // other streams have room
	_, metrics := s.do(t, http.MethodGet, "/metrics", "", nil)
	if line := `plimsoll_gateway_refused_total{bound="logs"} 1`; !bytes.Contains([]byte(metrics), []byte(line)) {
		t.Errorf("/metrics has no %s", line)
	}
}

// A request for which there is no slot is told when to try again, as one for which there are no
// bytes.
func TestARequestWithoutASlotIsToldToTryAgain(t *testing.T) {
	g := newGateway(t, Config{}, cluster())
	g.slots.requests.most = 0
	r := httptest.NewRequest(http.MethodPost, plimsollv1connect.JobServiceListJobsProcedure, strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
		t.Errorf("the answer is %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
}
