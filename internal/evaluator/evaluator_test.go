package evaluator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// serve starts an evaluator that has read its servers, and returns a client of it.
func serve(t *testing.T, cfg Config) (*Evaluator, *remote.Client) {
	t.Helper()
	cfg.Now = time.Now
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.source.now(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(e.handler)
	t.Cleanup(func() {
		server.Close()
		e.source.client.CloseIdleConnections()
	})
	return e, remote.NewClient(server.Client(), server.URL)
}

// place places a request over one evaluator.
func place(t *testing.T, e remote.PartEvaluator, o *remote.Order) (remote.Result, error) {
	t.Helper()
	f, err := remote.NewFleet([]remote.Part{{Evaluator: e}}, remote.FleetOptions{Tries: 1})
	if err != nil {
		t.Fatal(err)
	}
	return f.Place(t.Context(), rand.NewPCG(1, 2), o)
}

func ids(servers []placement.Server) string {
	var out []string
	for i := range servers {
		out = append(out, servers[i].ID)
	}
	return strings.Join(out, " ")
}

// database serves a list of servers, and the instances on each server under a URL of its own.
type database struct {
	*httptest.Server
	mu struct {
		sync.Mutex
		servers string
		asked   []string // in order, with their queries
	}
}

func newDatabase(t *testing.T, servers string) *database {
	d := &database{}
	d.mu.servers = servers
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mu.asked = append(d.mu.asked, r.URL.String())
		switch {
		case r.URL.Path == "/servers":
			_, _ = io.WriteString(w, d.mu.servers) // a test reads it
		case r.FormValue("server") == "broken":
			http.Error(w, "no", http.StatusInternalServerError)
		default:
			_, _ = fmt.Fprintf(w, `[{"id": "i-%s", "job": "web", "group": "front", "resources": {"cpu": 1}}]`,
				r.FormValue("server"))
		}
	}))
	t.Cleanup(d.Close)
	return d
}

func (d *database) asks() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked := d.mu.asked
	d.mu.asked = nil
	return asked
}

func fleetOf(n int, more string) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"id": "n%d", "capacity": {"cpu": 4}, "labels": {"rack": "r%d"}%s}`, i,
			i%2, more))
	}
	return "[" + strings.Join(list, ",\n") + "]"
}

// The instances on a server are loaded only when a batch needs them, and only for servers that
// pass the filters by record. Listing loads nothing. Of sixty servers, half of which are for the
// request, at most thirty are loaded.
func TestInstancesAreLoadedWhenABatchNeedsThem(t *testing.T) {
	d := newDatabase(t, fleetOf(60, ""))
	_, client := serve(t, Config{
		Servers: d.URL + "/servers", Instances: d.URL + "/vms?server={server}",
		Refresh: time.Hour,
	})
	if asked := d.asks(); !slices.Equal(asked, []string{"/servers"}) {
		t.Fatalf("asked at the start: %v", asked)
	}
	o := &remote.Order{Request: placement.Request{Resources: plimsoll.Resources{"cpu": 1000}}}
	o.Request.Constraints.Where = `node.labels.rack == "r1"`
	got, err := place(t, client, o)
	if err != nil || got.Server == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	if asked := d.asks(); len(asked) != got.Loads || got.Loads == 0 || got.Loads > 30 ||
		slices.Contains(asked, "/vms?server=n0") {
		t.Errorf("%d loads, asked: %v", got.Loads, asked)
	}
	o.Request.Constraints.Where = ""
	o.Request.Constraints.Nodes = []string{"n7"}
	if _, err := place(t, client, o); err != nil {
		t.Fatal(err)
	}
	if asked := d.asks(); !slices.Equal(asked, []string{"/vms?server=n7"}) {
		t.Errorf("one server is for the request, asked: %v", asked)
	}
}

// A password in a URL does not stand in the errors that callers read.
func TestErrorsDoNotTellThePasswordOfAURL(t *testing.T) {
	d := newDatabase(t, `[{"id": "n1"`)
	address := strings.Replace(d.URL, "http://", "http://me:secret@", 1)
	for name, read := range map[string]func() error{
		"an answer that is an error": func() error {
			_, err := Read(t.Context(), address+"/vms?server=broken")
			return err
		},
		"no answer": func() error {
			_, err := Read(t.Context(), "http://me:secret@127.0.0.1:1/servers")
			return err
		},
		"no URL": func() error {
			_, err := Read(t.Context(), "http://me:secret@[/servers")
			return err
		},
		"a document that is wrong": func() error {
			cfg := Config{Servers: address + "/servers", Now: time.Now}
			s := newSource(&cfg)
			defer s.client.CloseIdleConnections()
			_, err := s.now(t.Context())
			return err
		},
	} {
		if err := read(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A spread is counted from loaded instances too. An instance that cannot be loaded is an error.
func TestASpreadOfLoadedInstancesIsCounted(t *testing.T) {
	d := newDatabase(t, fleetOf(3, ""))
	_, client := serve(t, Config{
		Servers: d.URL + "/servers", Instances: d.URL + "/vms?server={server}",
		Refresh: time.Hour,
	})
	q := &remote.SpreadQuestion{Chain: remote.Chain{
		Text:     placement.DefaultExpression(),
		Settings: placement.DefaultSettings(),
	}}
	q.Request = placement.Request{Job: "web", Group: "front"}
	q.Request.Constraints.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 1}}
	q.Tickets = []placement.Ticket{
		{ID: "new", Server: "n1", Instance: &placement.Instance{ID: "new", Job: "web", Group: "front"}},
		{ID: "i-n0", Server: "n0", Instance: &placement.Instance{ID: "i-n0", Job: "web", Group: "front"}},
		// it is counted already
		{ID: "far", Server: "elsewhere", Instance: &placement.Instance{ID: "far", Job: "web", Group: "front"}},
	}
	tallies, err := client.CountSpread(t.Context(), q)
	if err != nil || len(tallies) != 1 || tallies[0]["r0"].Instances != 2 || tallies[0]["r1"].Instances != 2 {
		t.Errorf("%+v, %v", tallies, err)
	}
	d = newDatabase(t, `[{"id": "broken"}]`)
	_, client = serve(t, Config{Servers: d.URL + "/servers", Instances: d.URL + "/vms?server={server}"})
	_, err = client.CountSpread(t.Context(), q)
	if err == nil || !strings.Contains(err.Error(), `the instances of server "broken" could not be loaded`) {
		t.Errorf("%v", err)
	}
}

// A caller names the servers of a batch. It cannot make the evaluator read another file or another
// URL.
func TestOnlyServersOfTheDocumentAreLoaded(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "secret.json"), `[]`)
	write(t, filepath.Join(dir, "vms", "n1.json"), `[]`)
	servers := write(t, filepath.Join(dir, "servers.json"), `[{"id": "n1"}, {"id": "../secret"}]`)
	_, client := serve(t, Config{Servers: servers, Instances: filepath.Join(dir, "vms", "{server}.json")})
	q := &remote.CapacityQuestion{}
	for _, id := range []string{"n1", "n2", "../secret"} {
		q.Servers = append(q.Servers, placement.NewServer(id, plimsoll.Resources{"cpu": 1000}))
	}
	got, err := client.Capacity(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Uncounted != "" || got[0].CPU != 1000 {
		t.Errorf("n1: %+v", got[0])
	}
	if !strings.Contains(got[1].Uncounted, `server "n2" is not one of this evaluator`) {
		t.Errorf("n2: %+v", got[1])
	}
	if !strings.Contains(got[2].Uncounted, `the server id "../secret" cannot be part of a file name`) {
		t.Errorf("../secret: %+v", got[2])
	}
	for template, want := range map[string]string{"http://db/{server}/vms": "", "http://db/vms?of={server}": "ok"} {
		if got, err := fill(template, ".."); (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", template, got, err)
		}
	}
	for template, want := range map[string]string{
		"http://db/vms/{server}?of={server}": "http://db/vms/a%2F..%3Fb&c?of=a%2F..%3Fb%26c", "dir/{server}/x": "",
	} {
		if got, err := fill(template, "a/..?b&c"); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", template, got, err)
		}
	}
}

// A file is read again when it has changed, and a URL when its content is older than
// Config.Refresh.
func TestServersAreReadAgain(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "servers.json"), `[{"id": "n1"}]`)
	_, client := serve(t, Config{Servers: file})
	list := func() string {
		t.Helper()
		got, err := client.ListServers(t.Context(), placement.Query{})
		if err != nil {
			return err.Error()
		}
		return ids(got)
	}
	first := list()
	write(t, file, `[{"id": "n1"}, {"id": "n2"}]`)
	second := list()
	write(t, file, `[{"id": "n1"`)
	torn := list()
	write(t, file, `[{"id": "n3"}]`)
	if third := list(); first != "n1" || second != "n1 n2" || third != "n3" ||
		!strings.Contains(torn, "line 1, column 12") {
		t.Errorf("%s, %s, %s, %s", first, second, torn, third)
	}

	d := newDatabase(t, `[{"id": "n1"}]`)
	for refresh, want := range map[time.Duration]string{time.Hour: "n1", time.Nanosecond: "n2"} {
		d.mu.servers = `[{"id": "n1"}]`
		_, client = serve(t, Config{Servers: d.URL + "/servers", Refresh: refresh})
		d.mu.Lock()
		d.mu.servers = `[{"id": "n2"}]`
		d.mu.Unlock()
		if got := list(); got != want {
			t.Errorf("with a refresh of %s: %s", refresh, got)
		}
	}
}

// The evaluator applies the query of a request, so servers that do not match are not transferred.
// A profile compares releases in its own way, so Triton's records are not left out by release.
func TestServersThatDoNotMatchAreNotListed(t *testing.T) {
	servers := `{"servers": [{"id": "n1"}, {"id": "n2", "status": "unknown"}, {"id": "n3", "headnode": true}, {"id": "n4"}]}`
	_, client := serve(t, Config{Servers: write(t, filepath.Join(t.TempDir(), "servers.json"), servers)})
	q := placement.Query{Running: true, NoHeadnodes: true}
	if got, err := client.ListServers(t.Context(), q); err != nil || ids(got) != "n1 n4" {
		t.Errorf("%s, %v", ids(got), err)
	}
	q = placement.Query{Platforms: []plimsoll.PlatformRange{{Min: map[string]string{"7.0": "20240101T000000Z"}}}}
	_, client = serve(t, Config{Servers: write(t, filepath.Join(t.TempDir(), "triton.json"), `[{"uuid": "cn1"}]`)})
	if got, err := client.ListServers(t.Context(), q); err != nil || ids(got) != "cn1" {
		t.Errorf("%s, %v", ids(got), err)
	}
}

// Up to the bound, calls are processed. Further calls are refused at once, before their body has
// arrived.
func TestCallsBeyondTheBoundAreRefused(t *testing.T) {
	e, _ := serve(t, Config{Servers: write(t, filepath.Join(t.TempDir(), "servers.json"), `[]`), Calls: 1})
	entered, leave := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(e.bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	})))
	defer server.Close()
	client := remote.NewClient(server.Client(), server.URL)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		response, err := server.Client().Post(server.URL, "application/json", strings.NewReader("{}"))
		if err == nil {
			_ = response.Body.Close() // its body is empty
		}
	}()
	<-entered
	_, err := client.Capacity(t.Context(), &remote.CapacityQuestion{})
	if plimsoll.CodeOf(err) != plimsoll.CodeExhausted ||
		!strings.Contains(err.Error(), "has as many calls as it may") {
		t.Errorf("%v", err)
	}
	if _, err := client.ListServers(t.Context(), placement.Query{}); err == nil {
		t.Error("a listing was not refused")
	}
	close(leave)
	<-ended
}

// Run reads the servers before it answers the first call, and waits for the loads that it has
// begun.
func TestRunServesUntilItsContextEnds(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan int, 1)
	e, err := New(Config{
		Now: time.Now, Servers: write(t, filepath.Join(dir, "servers.json"), `[{"id": "n1"}]`),
		Listen: "unix:" + filepath.Join(dir, "e.sock"),
		Events: Events{Serving: func(_ string, servers int) { served <- servers }},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	if n := <-served; n != 1 {
		t.Errorf("%d servers", n)
	}
	client, url, err := transport.CallClient(e.cfg.Listen)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := remote.NewClient(client, url).ListServers(t.Context(), placement.Query{}); err != nil ||
		ids(got) != "n1" {
		t.Errorf("%s, %v", ids(got), err)
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	e, err = New(
		Config{Now: time.Now, Servers: filepath.Join(dir, "none.json"), Listen: "unix:" + filepath.Join(dir, "e.sock")},
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "none.json: no such file or directory") {
		t.Errorf("without servers: %v", err)
	}
}
