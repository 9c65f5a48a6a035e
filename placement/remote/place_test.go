package remote_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves an evaluator over HTTP and returns a client of it.
func serve(t testing.TB, e remote.Evaluator, s remote.Serving) *remote.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(remote.NewHandler(e, s))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return remote.NewClient(server.Client(), server.URL)
}

func mustLocal(t testing.TB, c remote.Config) *remote.Local {
	t.Helper()
	l, err := remote.NewLocal(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// world is a fleet with its instances, and a source of both.
type world struct {
	servers   []placement.Server
	instances map[string][]placement.Instance // by server
	errs      map[string]error                // of loads, by server
	query     placement.Query                 // of the last listing
	heed      bool                            // leave out what does not match the query
}

func (w *world) list(_ context.Context, q placement.Query) ([]placement.Server, error) {
	w.query = q
	if !w.heed {
		return w.servers, nil
	}
	var out []placement.Server
	for i := range w.servers {
		if q.Matches(&w.servers[i]) {
			out = append(out, w.servers[i])
		}
	}
	return out, nil
}

func (w *world) source() remote.Source {
	return remote.Source{
		Instances: func(_ context.Context, server string) ([]placement.Instance, error) {
			return w.instances[server], w.errs[server]
		},
		Instance: func(_ context.Context, id string) (string, string, error) {
			for i := range w.servers {
				for _, in := range w.instances[w.servers[i].ID] {
					if in.ID == id {
						return w.servers[i].ID, in.Owner, nil
					}
				}
			}
			return "", "", nil
		},
	}
}

// draw draws a world: servers, some of them closed or with traits, gpus or labels, and their
// instances.
func (w *world) draw(t *rapid.T) {
	*w = world{instances: map[string][]placement.Instance{}, errs: map[string]error{}}
	for i := range rapid.IntRange(0, 40).Draw(t, "servers") {
		s := placement.NewServer(
			fmt.Sprint("n", i), plimsoll.Resources{"cpu": 4000, "memory": 8 << 30, "disk": 100 << 30},
		)
		switch rapid.IntRange(0, 12).Draw(t, "kind") {
		case 0:
			s.Status = "unknown"
		case 1:
			s.Reserved = "cordoned"
		case 2:
			s.Fault = "its record is torn"
		case 3:
			s.Reserve = map[string]float64{"memory": 2} // found out only when it is put into a fleet
		case 4, 5:
			s.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
		case 6:
			s.Capacity["gpu"] = 2
		case 7:
			s.Headnode = true
		case 8:
			s.Reservoir = true
		}
		s.Networks = rapid.SampledFrom([]map[string]bool{nil, {}, {"a": true}}).Draw(t, "networks")
		s.Platform = rapid.SampledFrom([]string{"", "20250101T000000Z", "20260101T000000Z"}).Draw(t, "platform")
		w.servers = append(w.servers, s)
		for k := range rapid.IntRange(0, 4).Draw(t, "instances") {
			w.instances[s.ID] = append(w.instances[s.ID], placement.Instance{
				ID: fmt.Sprintf("i%d.%d", i, k), Owner: rapid.SampledFrom([]string{"alice", "bob"}).Draw(t, "owner"),
				Job:       "web",
				Labels:    map[string]string{"app": rapid.SampledFrom([]string{"db", "cache"}).Draw(t, "app")},
				Resources: plimsoll.Resources{"cpu": 1000, "memory": rapid.Int64Range(1, 3).Draw(t, "memory") << 30},
				Failed:    rapid.IntRange(0, 3).Draw(t, "failed") == 0, Modified: 1000,
			})
		}
		if rapid.IntRange(0, 9).Draw(t, "error") == 0 {
			w.errs[s.ID] = errors.New("its agent is silent")
		}
	}
}

func drawOrder(t *rapid.T, w *world) *remote.Order {
	o := &remote.Order{Now: 2000, Request: placement.Request{
		Owner:     "alice",
		Resources: plimsoll.Resources{"cpu": 500, "memory": rapid.Int64Range(1, 6).Draw(t, "asked") << 30},
	}}
	c, p := &o.Request.Constraints, &o.Request.Preferences
	switch rapid.IntRange(0, 9).Draw(t, "request") {
	case 0:
		c.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
	case 1:
		o.Request.Resources["gpu"] = 1
	case 2:
		c.Far = []plimsoll.Selector{{Label: "app=db"}}
	case 3:
		c.Near = []plimsoll.Selector{{Task: "i3.0"}}
	case 4:
		p.Near, p.Far = []plimsoll.Selector{{Job: "web"}}, []plimsoll.Selector{{Label: "app=cache"}}
	case 5:
		c.Networks = rapid.SampledFrom([][][]string{{}, {{"a", "b"}}}).Draw(t, "asked networks")
	case 6:
		c.Where, p.Strategy = "node.platform > '20250601'", plimsoll.StrategySpread
	}
	settings := placement.DefaultSettings()
	settings.Batch = rapid.IntRange(1, 12).Draw(t, "batch")
	settings.Capness, settings.MaxInstances = rapid.Bool().Draw(t, "capness"), rapid.IntRange(0, 4).Draw(t, "most")
	settings.OwnerRules = rapid.SampledFrom([]map[string]string{nil, {"bob": "node.id == 'n1'"}}).Draw(t, "rules")
	chain, err := placement.NewChain(placement.DefaultExpression(), placement.Stages(), nil, settings)
	if err != nil {
		t.Fatal(err)
	}
	o.Chain = chain
	for i := range rapid.IntRange(0, 3).Draw(t, "tickets") {
		if len(w.servers) == 0 {
			break
		}
		ticket := placement.Ticket{ID: fmt.Sprint("t", i), Server: rapid.SampledFrom(w.servers).Draw(t, "ticket").ID}
		if rapid.Bool().Draw(t, "sized") {
			ticket.Instance = &placement.Instance{
				ID: ticket.ID, Owner: "alice", Resources: plimsoll.Resources{"memory": 4 << 30},
			}
		}
		o.Tickets = append(o.Tickets, ticket)
	}
	return o
}

// here places as a program does that holds the fleet itself, with the same source behind its
// loader.
func here(t *rapid.T, w *world, o *remote.Order, list []placement.Server, seed uint64) remote.Result {
	f := placement.NewFleet(placement.NewNames())
	for i := range list {
		f.Put(int32(i), &list[i])
	}
	p, err := remote.NewPool(remote.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f.Loader = p.Loader(context.Background(), w.source())
	for _, ticket := range o.Tickets {
		if f.Slot(ticket.Server) >= 0 {
			if err := f.AddTicket(ticket); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, err := o.Chain.Prepare(f, &o.Request)
	if err != nil {
		t.Fatal(err)
	}
	c, steps := placement.NewPlacer(f, rand.NewPCG(seed, 1)).PlaceRecorded(r, o.Now)
	result := remote.Result{
		Score: c.Score, Servers: len(list), Looked: c.Looked, Batches: c.Batches, Loads: c.Loads, Peak: c.Peak,
		Steps: steps,
	}
	if c.Slot >= 0 {
		result.Server = f.ID(c.Slot)
	}
	return result
}

// An evaluator behind HTTP, one in the same process, and a placer that holds the fleet come to the
// same: the same server with the same score, after the same batches, loads and steps. That is so
// for a source that heeds the query and for one that does not.
func TestRemoteAndLocalAgree(t *testing.T) {
	w := &world{}
	var beside remote.Evaluator
	client := serve(
		t,
		evaluatorFunc(
			func(ctx context.Context, b *remote.Batch) (*remote.Evaluation, error) { return beside.Evaluate(ctx, b) },
		),
		remote.Serving{},
	)
	testrun.Check(t, func(t *rapid.T) {
		w.draw(t)
		w.heed = rapid.Bool().Draw(t, "heed")
		o, seed := drawOrder(t, w), rapid.Uint64().Draw(t, "seed")
		local, err := remote.NewLocal(remote.Config{Source: w.source()})
		if err != nil {
			t.Fatal(err)
		}
		beside = local
		for name, e := range map[string]remote.Evaluator{"HTTP": client, "in process": local} {
			got, err := remote.Place(context.Background(), e, w.list, rand.NewPCG(seed, 1), o)
			if err != nil {
				t.Fatal(err)
			}
			list, err := w.list(context.Background(), w.query)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(here(t, w, o, list, seed), got); d != "" {
				t.Fatalf("%s: -here +there:\n%s", name, d)
			}
		}
	})
}

type evaluatorFunc func(context.Context, *remote.Batch) (*remote.Evaluation, error)

func (f evaluatorFunc) Evaluate(ctx context.Context, b *remote.Batch) (*remote.Evaluation, error) {
	return f(ctx, b)
}

// easy is the design's easy case: 120 servers, of which the filters by record leave twenty to a
// request for the trait.
func easy() (*world, *remote.Order) {
	w := &world{instances: map[string][]placement.Instance{}, errs: map[string]error{}}
	for i := range 120 {
		s := placement.NewServer(
			fmt.Sprintf("n%03d", i), plimsoll.Resources{"cpu": 64_000, "memory": 256 << 30, "disk": 4 << 40},
		)
		if i%6 == 0 {
			s.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
		}
		w.servers = append(w.servers, s)
		for k := range 50 {
			w.instances[s.ID] = append(w.instances[s.ID], placement.Instance{
				ID: fmt.Sprintf("%s.%d", s.ID, k), Owner: fmt.Sprint("owner", k%7),
				Resources: plimsoll.Resources{"cpu": 500, "memory": 1 << 30},
			})
		}
	}
	o := &remote.Order{
		Request: placement.Request{Owner: "alice", Resources: plimsoll.Resources{"cpu": 1000, "memory": 4 << 30}},
	}
	o.Request.Constraints.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
	return w, o
}

// Instances are loaded only for servers that pass the filters before them. In the easy case these
// are at most twenty of 120 servers, even if nothing fits and all are looked at. At most one batch
// is held at once.
func TestOnlySurvivorsAreLoaded(t *testing.T) {
	w, o := easy()
	client := serve(t, mustLocal(t, remote.Config{Source: w.source()}), remote.Serving{})
	for seed := range uint64(20) {
		got, err := remote.Place(t.Context(), client, w.list, rand.NewPCG(seed, 1), o)
		if err != nil || got.Server == "" || got.Loads > 20 || got.Peak > 50*50 {
			t.Errorf("seed %d: %q, %d loads, peak %d, %v", seed, got.Server, got.Loads, got.Peak, err)
		}
	}
	o.Request.Resources = plimsoll.Resources{"memory": 1 << 40}
	got, err := remote.Place(t.Context(), client, w.list, rand.NewPCG(1, 1), o)
	if err != nil || got.Server != "" || got.Loads != 20 || got.Batches != 3 || got.Looked != 120 || got.Peak >= 20*50 {
		t.Errorf("nothing fits: %+v, %v", got, err)
	}
	var told []string
	for _, s := range got.Steps {
		for _, r := range s.Reasons {
			told = append(told, fmt.Sprintf("%s %d: %s", s.Stage, r.Servers, r.Text))
		}
	}
	want := []string{"traits 100: lacks trait ssd", "min-memory 20: not enough memory"}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("steps over all batches: -want +got:\n%s", d)
	}
	w.heed = true
	if got, err = remote.Place(t.Context(), client, w.list, rand.NewPCG(1, 1), o); err != nil || got.Servers != 20 {
		t.Errorf("a source that heeds the query lists %d servers, %v", got.Servers, err)
	}
}

// A server whose instances cannot be loaded, or make no sense, is dropped with the error; the
// others are not.
func TestALoadThatFailsDropsItsServer(t *testing.T) {
	w, o := easy()
	w.servers = w.servers[:13]
	w.errs["n000"] = errors.New("its agent is silent")
	w.instances["n006"][3].Resources["cpu"] = -1
	client := serve(t, mustLocal(t, remote.Config{Source: w.source()}), remote.Serving{})
	got, err := remote.Place(t.Context(), client, w.list, rand.NewPCG(1, 1), o)
	if err != nil || got.Server != "n012" {
		t.Fatalf("%q, %v", got.Server, err)
	}
	reasons := map[string]string{}
	for _, s := range got.Steps {
		for _, r := range s.Reasons {
			reasons[strings.Join(r.Examples, " ")] = r.Text
		}
	}
	if text := reasons["n000"]; text != "its instances could not be loaded: its agent is silent" {
		t.Errorf("n000 is dropped because %q", text)
	}
	if text := reasons["n006"]; !strings.Contains(text, "resources.cpu: is negative") {
		t.Errorf("n006 is dropped because %q", text)
	}
}

// A load that hangs, and does not heed its context, drops its server when its time is over; the
// placement goes on with the others.
func TestALoadThatHangsDropsItsServer(t *testing.T) {
	w, o := easy()
	w.servers = w.servers[:7]
	released := make(chan struct{})
	inner := w.source()
	pool := mustPool(t, remote.Options{Timeout: 20 * time.Millisecond})
	hanging := remote.Source{Instances: func(ctx context.Context, server string) ([]placement.Instance, error) {
		if server == "n000" {
			<-released
		}
		return inner.Instances(ctx, server)
	}}
	client := serve(t, mustLocal(t, remote.Config{Source: hanging, Pool: pool}), remote.Serving{})
	got, err := remote.Place(t.Context(), client, w.list, rand.NewPCG(1, 1), o)
	close(released)
	if err != nil || got.Server != "n006" {
		t.Errorf("%q, %v", got.Server, err)
	}
	if text := fmt.Sprint(got.Steps); !strings.Contains(
		text, "its instances could not be loaded: there was no answer within 20ms 1 [n000]",
	) {
		t.Errorf("steps: %s", text)
	}
	if err := pool.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// A batch has at most as many closed servers as it may hold, and the others are counted.
func TestClosedServersDoNotOverfillABatch(t *testing.T) {
	w := &world{}
	for i := range 5000 {
		s := placement.NewServer(fmt.Sprint("n", i), nil)
		s.Setup = i%250 == 0
		w.servers = append(w.servers, s)
	}
	client := serve(t, mustLocal(t, remote.Config{Source: w.source()}), remote.Serving{})
	got, err := remote.Place(
		t.Context(), client, w.list, rand.NewPCG(1, 1), &remote.Order{Request: placement.Request{Owner: "a"}},
	)
	if err != nil || got.Server == "" || got.Looked != 20 || got.Batches != 1 || got.Unsent != 5000-20-(1000-50) {
		t.Errorf("%+v, %v", got, err)
	}
}

// An error of a batch is an error of the placement and names the batch; an answer that belongs to
// another batch is one too.
func TestAnErrorOfABatchIsAnError(t *testing.T) {
	w, o := easy()
	for text, evaluate := range map[string]evaluatorFunc{
		"the chain is wrong": func(context.Context, *remote.Batch) (*remote.Evaluation, error) {
			return nil, plimsoll.Invalid("chain", "the chain is wrong")
		},
		"the database is away": func(context.Context, *remote.Batch) (*remote.Evaluation, error) {
			return nil, plimsoll.Errorf(plimsoll.CodeUnavailable, "the database is away")
		},
		"names server 50 of a batch of 50": func(context.Context, *remote.Batch) (*remote.Evaluation, error) {
			return &remote.Evaluation{Survivors: []remote.Survivor{{Place: 50}}}, nil
		},
		"names stage -1": func(context.Context, *remote.Batch) (*remote.Evaluation, error) {
			return &remote.Evaluation{Steps: []remote.Step{{Place: -1}}}, nil
		},
	} {
		calls := 0
		e := evaluatorFunc(func(ctx context.Context, b *remote.Batch) (*remote.Evaluation, error) {
			if calls++; calls == 1 {
				return &remote.Evaluation{}, nil
			}
			return evaluate(ctx, b)
		})
		got, err := remote.Place(t.Context(), serve(t, e, remote.Serving{}), w.list, rand.NewPCG(1, 1), o)
		if err == nil || !strings.Contains(err.Error(), "place: batch 2, of 50 servers with \"n") ||
			!strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
		want := 1 + remote.DefaultTries
		if plimsoll.CodeOf(err) == plimsoll.CodeInvalid {
			want = 2 // it would be as wrong another time
		}
		if got.Server != "" || calls != want {
			t.Errorf("%s: %d calls, want %d, %+v", text, calls, want, got)
		}
	}
	away := errors.New("no list")
	_, err := remote.Place(
		t.Context(), nil, func(context.Context, placement.Query) ([]placement.Server, error) { return nil, away },
		rand.NewPCG(1, 1), o,
	)
	if !errors.Is(err, away) {
		t.Errorf("a list that fails: %v", err)
	}
}
