package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, g *gateway) *client.Client {
	t.Helper()
	c, stop, err := g.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return c
}

func spec(id string) plimsoll.JobSpec {
	return plimsoll.JobSpec{
		ID: id, Queue: "root.default",
		Groups: []plimsoll.GroupSpec{{Name: "main", Count: 1, Command: []string{"true"}}},
	}
}

func TestARepeatedSubmitCarriesTheSameToken(t *testing.T) {
	g := &gateway{}
	g.mu.failures = 2
	c := start(t, g)
	job, err := c.SubmitJob(t.Context(), spec("a"))
	if err != nil || job.Status.State != plimsoll.JobAccepted {
		t.Fatalf("%+v, %v", job, err)
	}
	if _, err := c.SubmitJob(t.Context(), spec("b")); err != nil {
		t.Fatal(err)
	}
	tokens := g.mu.tokens
	if len(
		tokens,
	) != 4 || tokens[0] == "" || tokens[0] != tokens[1] || tokens[1] != tokens[2] || tokens[3] == tokens[0] {
		t.Errorf("tokens %q; want three alike for the first job and another for the second", tokens)
	}
}

func TestAnErrorOfTheServerComesBackWhole(t *testing.T) {
	c := start(t, &gateway{})
	_, err := c.SubmitJob(t.Context(), plimsoll.JobSpec{ID: "a", Queue: "batch"})
	want := (&plimsoll.JobSpec{ID: "a", Queue: "batch"}).Validate()
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || err.Error() != want.Error() {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestListsAreReadInPages(t *testing.T) {
	g := &gateway{}
	g.mu.failures = 1
	c := start(t, g)
	n := 0
	for job, err := range c.Jobs(t.Context(), client.JobFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; job.State != plimsoll.JobRunning {
			t.Errorf("%+v", job)
		}
	}
	if n != 25 || g.mu.pages != 3 {
		t.Errorf("%d jobs in %d pages, want 25 in 3", n, g.mu.pages)
	}
	for _, err := range c.Jobs(t.Context(), client.JobFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if g.mu.pages != 4 {
		t.Errorf("%d pages; what is not wanted is not read", g.mu.pages)
	}
}

func TestAWatchOutlivesItsStream(t *testing.T) {
	g := &gateway{}
	c := start(t, g)
	var states []string
	for status, err := range c.WatchJob(t.Context(), "a") {
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, status.State.String())
	}
	if d := cmp.Diff([]string{"Running", "Running", "Completed"}, states); d != "" || g.mu.watches != 2 {
		t.Errorf("%d watches: %s", g.mu.watches, d)
	}
}

func TestLogsAreNotReadTwice(t *testing.T) {
	c := start(t, &gateway{})
	read := func(task string) (string, error) {
		var b strings.Builder
		for chunk, err := range c.Logs(t.Context(), task, client.LogOptions{}) {
			if err != nil {
				return b.String(), err
			}
			b.WriteString(chunk.Stream + ":" + string(chunk.Data))
		}
		return b.String(), nil
	}
	if got, err := read("a.g.0"); err != nil || got != "stdout:hello\nstderr:oops\n" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := read("broken.g.0"); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || got != "stdout:hello\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestEventsAreFollowedOverANewLeader(t *testing.T) {
	g := &gateway{}
	event := func(object string) *pb.Event { return &pb.Event{Type: int32(plimsoll.EventApp), Object: object} }
	g.mu.instance = "first"
	g.mu.events = []*pb.Event{event("a"), event("b"), event("c")}
	c := start(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	for r, err := range c.FollowEvents(ctx, client.EventFilter{}, time.Millisecond) {
		if err != nil {
			if plimsoll.CodeOf(err) != plimsoll.CodeCanceled {
				t.Error(err)
			}
			break
		}
		got = append(got, r.Event.Object)
		switch r.Event.Object {
		case "c":
			g.mu.Lock()
			g.mu.instance, g.mu.events = "second", []*pb.Event{event("d"), event("e")}
			g.mu.Unlock()
		case "e":
			cancel()
		}
	}
	if d := cmp.Diff([]string{"a", "b", "c", "d", "e"}, got); d != "" {
		t.Error(d)
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	c, err := client.New(client.Config{Server: "unix:" + t.TempDir() + "/none", RetryBudget: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Job(t.Context(), "a"); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("got %v", err)
	}
	for _, err := range c.WatchJob(t.Context(), "a") {
		if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
			t.Errorf("got %v", err)
		}
	}
}

func TestAnImpossibleAddressIsRefused(t *testing.T) {
	for _, server := range []string{"http://", "example", "unix:", "ftp://a:1:2"} {
		if _, err := client.New(client.Config{Server: server}); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%q: %v", server, err)
		}
	}
}
