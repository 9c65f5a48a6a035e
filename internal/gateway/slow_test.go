package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// inBubble runs a test against a gateway that is served over pipes, with the time of the bubble.
func inBubble(
	t *testing.T, cfg Config, f *fake, test func(t *testing.T, network *faultnet.Pipes, client *http.Client),
) {
	t.Helper()
	testrun.Bubble(t, func(t *testing.T) {
		network := faultnet.NewPipes(0)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		handler := newGateway(t, cfg, f).Handler()
		go func() { ended <- transport.Serve(ctx, network, handler, transport.ServeConfig{}) }()
		client := &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return network.Dial(ctx) },
		}}
		test(t, network, client)
		client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// begin opens a connection, writes the beginning of a request and no more.
func begin(t *testing.T, network *faultnet.Pipes, lines ...string) net.Conn {
	t.Helper()
	c, err := network.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(strings.Join(lines, "\r\n"))); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c
}

func status(t *testing.T, client *http.Client, path string) int {
	t.Helper()
	resp, err := client.Get("http://gateway" + path)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	return resp.StatusCode
}

func TestACallerThatNeverReadsGivesItsPlaceBack(t *testing.T) {
	f := cluster()
	for range 100 {
		f.emit(
			plimsoll.Event{Type: plimsoll.EventRequest, Object: "wordcount.map.0", Message: strings.Repeat("x", 100)},
		)
	}
	const path = "/ws/v1/events/batch"
	for _, stuck := range []string{path, "/metrics"} {
		inBubble(t, Config{MaxRequests: 1}, f, func(t *testing.T, network *faultnet.Pipes, client *http.Client) {
			c := begin(t, network, "GET "+stuck+" HTTP/1.1", "Host: gateway", "", "")
			if stuck == path {
				if got := status(t, client, path); got != http.StatusTooManyRequests {
					t.Errorf("while the answer is not taken: %d", got)
				}
			}
			time.Sleep(3*time.Minute + time.Second) // of the bubble: nobody waits
			if got := status(t, client, path); got != http.StatusOK {
				t.Errorf("after the time for the answer: %d", got)
			}
			if n, err := c.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s: the connection is still open: read %d", stuck, n)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestACallerThatNeverSendsItsBodyGivesItsPlaceBack(t *testing.T) {
	watch := plimsollv1connect.JobServiceWatchJobProcedure
	inBubble(t, Config{MaxStreams: 1}, cluster(), func(t *testing.T, network *faultnet.Pipes, client *http.Client) {
		c := begin(
			t, network, "POST "+watch+" HTTP/1.1", "Host: gateway", "Content-Type: application/connect+proto",
			"Content-Length: 100", "", "",
		)
		said := make(chan string, 1)
		go func() { // what the gateway answers must be taken off the pipe
			text, _ := io.ReadAll(c)
			said <- string(text)
		}()
		began := time.Now()
		text := <-said
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("the connection was kept for %s", took)
		}
		if !strings.Contains(text, "did not come in time") {
			t.Errorf("the caller was told %q", text)
		}
		jobs := plimsollv1connect.NewJobServiceClient(client, "http://gateway")
		receive(t, open(t, jobs.WatchJob, &pb.WatchJobRequest{Id: "a"}))
		if err := ending(
			t, open(t, jobs.WatchJob, &pb.WatchJobRequest{Id: "a"}),
		); plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
			t.Errorf("while another watches: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAStreamLastsLongerThanAnyRequestMay(t *testing.T) {
	f := cluster()
	inBubble(t, Config{}, f, func(t *testing.T, _ *faultnet.Pipes, client *http.Client) {
		if got := status(t, client, "/healthz"); got != http.StatusOK { // leaves its deadlines on the connection
			t.Fatal(got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		jobs := plimsollv1connect.NewJobServiceClient(client, "http://gateway")
		stream, err := jobs.WatchJob(ctx, connect.NewRequest(&pb.WatchJobRequest{Id: "a"}))
		if err != nil {
			t.Fatal(err)
		}
		receive(t, stream)
		time.Sleep(time.Hour) // of the bubble: nobody waits
		f.put(putStatus(plimsoll.JobStatus{ID: "a", Owner: "bob"}))
		if got := receive(t, stream).GetStatus().GetOwner(); got != "bob" {
			t.Errorf("after an hour: %q", got)
		}
		cancel()
		_ = stream.Close() // it was given up
	})
}
