package remote_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
)

// deal gives each server of a world, with its instances, to one of n worlds.
func (w *world) deal(n int, to func(server int) int) []*world {
	parts := make([]*world, n)
	for i := range parts {
		parts[i] = &world{instances: map[string][]placement.Instance{}, errs: w.errs, heed: true}
	}
	for i, s := range w.servers {
		p := parts[to(i)]
		p.servers = append(p.servers, s)
		p.instances[s.ID] = w.instances[s.ID]
	}
	return parts
}

// beside returns the evaluator that stands beside a world.
func (w *world) beside(t testing.TB) *remote.Local {
	return mustLocal(t, remote.Config{Source: w.source(), Servers: w.list})
}

func mustFleet(t testing.TB, o remote.FleetOptions, parts ...remote.PartEvaluator) *remote.Fleet {
	t.Helper()
	var list []remote.Part
	for i, e := range parts {
		list = append(list, remote.Part{Name: string(rune('a' + i)), Evaluator: e})
	}
	f, err := remote.NewFleet(list, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// overHTTP serves three evaluators over HTTP, each of which can be exchanged.
func overHTTP(t testing.TB) (beside *[3]remote.PartEvaluator, clients []remote.PartEvaluator) {
	beside = &[3]remote.PartEvaluator{}
	for i := range beside {
		clients = append(clients, serve(t, exchangeable{func() remote.PartEvaluator { return beside[i] }},
			remote.Serving{}))
	}
	return beside, clients
}

type exchangeable struct{ now func() remote.PartEvaluator }

func (e exchangeable) Evaluate(ctx context.Context, b *remote.Batch) (*remote.Evaluation, error) {
	return e.now().Evaluate(ctx, b)
}

func (e exchangeable) ListServers(ctx context.Context, q placement.Query) ([]placement.Server, error) {
	return e.now().ListServers(ctx, q)
}

func (e exchangeable) CountSpread(ctx context.Context, q *remote.SpreadQuestion) ([]placement.SpreadTally, error) {
	return e.now().CountSpread(ctx, q)
}

func (e exchangeable) Capacity(ctx context.Context, q *remote.CapacityQuestion) ([]remote.Capacity, error) {
	return e.now().Capacity(ctx, q)
}

// whole is the same fleet in one process, with everything booked.
func (w *world) whole(tickets []placement.Ticket) *placement.Fleet {
	f := placement.NewFleet(placement.NewNames())
	for i := range w.servers {
		s := w.servers[i]
		s.Instances = w.instances[s.ID]
		f.Put(int32(i), &s)
	}
	for _, ticket := range tickets {
		if err := f.AddTicket(ticket); err != nil {
			panic(err)
		}
	}
	return f
}

// A spread is kept over all evaluators. Each chosen server is one that the filters keep where the
// whole fleet is in one process. None is chosen only if the filters keep none there. The domains of
// a spread by rack lie across evaluators.
func TestSpreadIsCountedAcrossEvaluators(t *testing.T) {
	beside, clients := overHTTP(t)
	testrun.Check(t, func(t *rapid.T) {
		w := &world{}
		w.draw(t)
		clear(w.errs)
		for i := range w.servers {
			if rack := rapid.IntRange(0, 4).Draw(t, "rack"); rack > 0 {
				w.servers[i].Labels = map[string]string{"rack": fmt.Sprint("r", rack)}
			}
			for k := range w.instances[w.servers[i].ID] {
				w.instances[w.servers[i].ID][k].Group = rapid.SampledFrom([]string{"front", "back"}).Draw(t, "group")
			}
		}
		for i, part := range w.deal(3, func(int) int { return rapid.IntRange(0, 2).Draw(t, "part") }) {
			local, err := remote.NewLocal(remote.Config{Source: part.source(), Servers: part.list})
			if err != nil {
				t.Fatal(err)
			}
			beside[i] = local
		}
		o := drawOrder(t, w)
		o.Tickets = nil
		o.Request.Job, o.Request.Group = "web", "front"
		o.Request.Constraints.Spread = []plimsoll.Spread{{
			By:      rapid.SampledFrom([]string{"rack", placement.SpreadByNode}).Draw(t, "by"),
			MaxSkew: rapid.Int32Range(1, 3).Draw(t, "skew"),
		}}
		fleet, err := remote.NewFleet([]remote.Part{
			{Name: "a", Evaluator: clients[0]}, {Name: "b", Evaluator: clients[1]}, {Name: "c", Evaluator: clients[2]},
		}, remote.FleetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range rapid.IntRange(1, 6).Draw(t, "tasks") {
			got, err := fleet.Place(context.Background(), rand.NewPCG(uint64(i), 1), o)
			if err != nil {
				t.Fatal(err)
			}
			here := w.whole(o.Tickets)
			p, err := o.Chain.Prepare(here, &o.Request)
			if err != nil {
				t.Fatal(err)
			}
			placer := placement.NewPlacer(here, rand.NewPCG(1, 1))
			var kept []string
			for slot := range here.Len() {
				if placer.Keeps(p, int32(slot), o.Now) {
					kept = append(kept, here.ID(int32(slot)))
				}
			}
			if got.Server == "" && len(kept) > 0 || got.Server != "" && !slices.Contains(kept, got.Server) {
				t.Fatalf("task %d goes to %q; the whole fleet would take it on %v", i, got.Server, kept)
			}
			if got.Server == "" {
				break
			}
			id := fmt.Sprint("new", i)
			o.Tickets = append(o.Tickets, placement.Ticket{ID: id, Server: got.Server, Instance: &placement.Instance{
				ID: id, Owner: "alice", Job: "web", Group: "front", Resources: o.Request.Resources,
			}})
		}
	})
}

// A capacity call moves three amounts for each server, and they equal those of a placer with all
// data.
func TestCapacityIsThreeNumbersComputedBesideTheData(t *testing.T) {
	w, _ := easy()
	w.servers[3].Status = "unknown"
	w.errs["n004"] = errors.New("its agent is silent")
	tickets := []placement.Ticket{{
		ID: "t", Server: "n005",
		Instance: &placement.Instance{ID: "t", Resources: plimsoll.Resources{"cpu": 250}},
	}}
	var clients []remote.PartEvaluator
	for _, part := range w.deal(3, func(i int) int { return i % 3 }) {
		clients = append(clients, serve(t, part.beside(t), remote.Serving{}))
	}
	fleet := mustFleet(t, remote.FleetOptions{}, clients...)
	if _, err := fleet.List(t.Context(), placement.Query{}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range w.servers {
		ids = append(ids, w.servers[i].ID)
	}
	got := fleet.Capacities(t.Context(), append(ids, "n999"), tickets, 0)
	const used, memory = 25_000, 206 << 30
	for id, want := range map[string]remote.Capacity{
		"n000": {CPU: 64_000 - used, Memory: memory, Disk: 4 << 40},
		"n005": {CPU: 64_000 - used - 250, Memory: memory, Disk: 4 << 40},
		"n003": {Uncounted: "running: unknown"},
		"n004": {Uncounted: "load-instances: its instances could not be loaded: its agent is silent"},
		"n999": {Uncounted: "no evaluator has listed it"},
	} {
		if d := cmp.Diff(want, got[id]); d != "" {
			t.Errorf("%s: -want +got:\n%s", id, d)
		}
	}
	if len(got) != len(ids)+1 {
		t.Errorf("%d capacities of %d servers", len(got), len(ids))
	}
}

// failing is an evaluator that fails, or hangs, the first times that a batch comes.
type failing struct {
	remote.PartEvaluator
	times int32
	hangs bool
	err   error
	calls atomic.Int32
}

func (f *failing) Evaluate(ctx context.Context, b *remote.Batch) (*remote.Evaluation, error) {
	if f.calls.Add(1) > f.times {
		return f.PartEvaluator.Evaluate(ctx, b)
	}
	if f.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, f.err
}

// A batch whose evaluator fails, or hangs, is tried again, and so comes to the same choice. The
// time of a try and their number are bounded.
func TestABatchIsTriedAgain(t *testing.T) {
	away := plimsoll.Errorf(plimsoll.CodeUnavailable, "it is being restarted")
	for name, first := range map[string]*failing{
		"fails": {times: 2, err: away}, "hangs": {times: 2, hangs: true},
		"breaks": {times: 1, err: errors.New("a fault of its own")},
	} {
		t.Run(name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				w, o := easy()
				beside := w.beside(t)
				want, err := mustFleet(t, remote.FleetOptions{}, beside).Place(t.Context(), rand.NewPCG(1, 1), o)
				if err != nil || want.Server == "" {
					t.Fatal(want, err)
				}
				first.PartEvaluator = beside
				told := int32(0)
				options := remote.FleetOptions{Timeout: time.Second, OnRetry: func(string, error) { told++ }}
				began := time.Now()
				got, err := mustFleet(t, options, first).Place(t.Context(), rand.NewPCG(1, 1), o)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("-at once +after tries:\n%s", d)
				}
				if first.calls.Load() != first.times+1 || told != first.times || time.Since(began) > 3*time.Second {
					t.Errorf("%d calls, %d told, after %s", first.calls.Load(), told, time.Since(began))
				}
			})
		})
	}
}

// An evaluator that goes on failing is left out: its tries are bounded, a server of the others is
// chosen, and the result names it. If none of theirs takes the request, that is an error, because
// its own might.
func TestAnEvaluatorThatStaysAwayIsLeftOut(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		w, o := easy()
		parts := w.deal(2, func(i int) int { return i % 2 })
		hangs := &failing{PartEvaluator: parts[0].beside(t), times: 1 << 30, hangs: true}
		fleet := mustFleet(t, remote.FleetOptions{Timeout: time.Second}, hangs, parts[1].beside(t))
		o.Request.Constraints.Traits = nil
		o.Request.Constraints.Nodes = []string{"n00?", "n01?"} // of both
		tried := 0
		for seed := range uint64(20) {
			got, err := fleet.Place(t.Context(), rand.NewPCG(seed, 1), o)
			if err != nil || got.Server == "" {
				t.Fatalf("%+v, %v", got, err)
			}
			if len(got.Failed) == 1 {
				tried++
				text := got.Failed[0].Err.Error()
				if got.Failed[0].Name != "a" || !strings.Contains(text,
					"could not be evaluated by a: there was no answer within 1s") {
					t.Errorf("%s: %s", got.Failed[0].Name, text)
				}
			}
		}
		if tried == 0 || hangs.calls.Load() != remote.DefaultTries {
			t.Errorf("%d placements name it, after %d calls of it", tried, hangs.calls.Load())
		}
		o.Request.Constraints.Nodes = []string{"n000"}
		if got, err := fleet.Place(t.Context(), rand.NewPCG(1, 1), o); plimsoll.CodeOf(err) != plimsoll.CodeDeadline {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// silent is an evaluator that cannot count.
type silent struct{ remote.PartEvaluator }

func (silent) CountSpread(context.Context, *remote.SpreadQuestion) ([]placement.SpreadTally, error) {
	return nil, plimsoll.Errorf(plimsoll.CodeUnavailable, "its database is away")
}

// A bound on the spread needs the count of every evaluator; a preference goes by those that can
// count.
func TestASpreadNeedsTheCountOfEveryEvaluator(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		w, o := easy()
		parts := w.deal(2, func(i int) int { return i % 2 })
		o.Request.Constraints.Traits = nil
		o.Request.Job, o.Request.Group = "web", "front"
		o.Request.Constraints.Spread = []plimsoll.Spread{{By: placement.SpreadByNode, MaxSkew: 1}}
		fleet := mustFleet(t, remote.FleetOptions{}, parts[0].beside(t), silent{parts[1].beside(t)})
		_, err := fleet.Place(t.Context(), rand.NewPCG(1, 1), o)
		if err == nil || !strings.Contains(err.Error(), "constraints.spread: cannot be kept") ||
			!strings.Contains(err.Error(), "evaluator b: its database is away") {
			t.Errorf("a bound: %v", err)
		}
		o.Request.Preferences.Spread, o.Request.Constraints.Spread = o.Request.Constraints.Spread, nil
		fleet = mustFleet(t, remote.FleetOptions{}, parts[0].beside(t), silent{parts[1].beside(t)})
		if got, err := fleet.Place(t.Context(), rand.NewPCG(1, 1), o); err != nil || got.Server == "" ||
			len(got.Failed) != 1 {
			t.Errorf("a preference: %+v, %v", got, err)
		}
	})
}

// The query of a request goes to the evaluators: they list what matches, once for requests that are
// alike, and every batch that comes to one is of its own servers.
func TestEvaluatorsListWhatTheQueryAsksFor(t *testing.T) {
	w, o := easy()
	parts := w.deal(3, func(i int) int { return i / 6 % 3 })
	var clients []remote.PartEvaluator
	for _, part := range parts {
		clients = append(clients, serve(t, part.beside(t), remote.Serving{}))
	}
	fleet := mustFleet(t, remote.FleetOptions{}, clients...)
	seen := map[string]bool{}
	for seed := range uint64(60) {
		got, err := fleet.Place(t.Context(), rand.NewPCG(seed, 1), o)
		if err != nil || got.Servers != 20 || got.Loads > 7 || got.Batches != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		seen[got.Server] = true
	}
	for _, part := range parts {
		if d := cmp.Diff(o.Request.Constraints.Traits, part.query.Traits); d != "" || !part.query.Running {
			t.Errorf("%+v", part.query)
		}
		if !slices.ContainsFunc(part.servers, func(s placement.Server) bool { return seen[s.ID] }) {
			t.Errorf("no server of an evaluator with %s was chosen in 60 placements", part.servers[0].ID)
		}
	}
}

// An evaluator of batches alone says that it cannot do more.
func TestAnEvaluatorOfBatchesAlone(t *testing.T) {
	client := serve(t, evaluatorFunc(nil), remote.Serving{})
	_, list := client.ListServers(t.Context(), placement.Query{})
	_, count := client.CountSpread(t.Context(), &remote.SpreadQuestion{Chain: remote.Chain{Name: "any"}})
	_, capacity := client.Capacity(t.Context(), &remote.CapacityQuestion{})
	for _, err := range []error{list, count, capacity} {
		if plimsoll.CodeOf(err) != plimsoll.CodeUnimplemented {
			t.Error(err)
		}
	}
}
