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

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
)

func wholeBatch() *remote.Batch {
	s := placement.NewServer("n1", plimsoll.Resources{"cpu": 8000, "gpu": 0})
	s.Setup, s.Status, s.Reserved, s.Fault, s.Labels = false, "unknown", "cordoned", "torn", map[string]string{
		"rack": "r1",
	}
	s.NodeFacts = plimsoll.NodeFacts{
		Traits: map[string]plimsoll.Trait{
			"ssd": {Flag: true}, "none": {Words: []string{}}, "gpu": {Words: []string{"a100"}},
		},
		Networks: map[string]bool{"a": true, "b": false}, Release: "7.0",
		Platform: "20260114T101500Z", Headnode: true, Reservoir: true, Reserve: map[string]float64{"memory": 0.15},
		Overprovision: map[string]float64{"cpu": 4}, LastBoot: 1, NextReboot: 2,
	}
	bare := placement.Server{
		ID: "n2", NodeFacts: plimsoll.NodeFacts{Networks: map[string]bool{}}, Labels: map[string]string{},
	}
	settings := placement.DefaultSettings()
	settings.Batch, settings.Capness, settings.Headnodes, settings.NoRoom = 0, true, true, true
	settings.MaxInstances, settings.SickFor = 7, 60
	settings.Strategy, settings.OwnerRules = plimsoll.StrategyRandom, map[string]string{"bob": "node.id == 'n1'"}
	settings.Weights.OwnerInstances = -3
	return &remote.Batch{
		Servers: []placement.Server{s, bare},
		Request: placement.Request{
			Owner: "alice", Job: "web", Group: "front", Resources: plimsoll.Resources{"cpu": 1},
			Needs: plimsoll.Resources{"cpu": 2},
			Constraints: plimsoll.Constraints{
				Networks: [][]string{}, Reservoir: plimsoll.ReservoirNever, Where: "true",
			},
			Preferences: plimsoll.Preferences{Strategy: plimsoll.StrategyPack, Far: []plimsoll.Selector{{Job: "db"}}},
			Platforms: []plimsoll.PlatformRange{
				{Min: map[string]string{"7.0": "a"}, Max: map[string]string{"": "b"}},
			},
			OwnOnly: true, AnyClass: true,
			Except: []placement.Exclusion{{Server: "n7", Why: "evicted"}},
		},
		Tickets: []placement.Ticket{{ID: "t1", Server: "n1"}, {ID: "t2", Server: "n2", Instance: &placement.Instance{
			ID: "t2", Owner: "bob", Job: "j", Group: "g", Labels: map[string]string{"a": "b"},
			Resources: plimsoll.Resources{"disk": 3}, Failed: true,
			Left: plimsoll.Resources{"disk": 1}, Modified: 9,
		}}},
		Chain: remote.Chain{Text: placement.DefaultExpression(), Settings: settings}, Names: []string{"cpu", "gpu"},
		Seed: 1 << 63, Now: 5,
	}
}

// Everything that a batch and its evaluation say goes over the wire, over HTTP/1.1 and HTTP/2.
func TestBatchesAndEvaluationsGoOverTheWire(t *testing.T) {
	answer := &remote.Evaluation{
		Survivors: []remote.Survivor{{Place: 1, Score: 2.5}, {Place: 0, Score: -1}}, Loads: 3, Peak: 4,
		Steps: []remote.Step{{Place: 6, Step: placement.Step{
			Stage: "traits", Kind: placement.NotEligible, Received: 5, Remaining: 3, Dropped: 2,
			Reasons: []placement.Reason{{Text: "why", Servers: 2, Examples: []string{"a", "b"}}},
		}}},
	}
	for _, http2 := range []bool{false, true} {
		var got *remote.Batch
		var proto int
		mux := http.NewServeMux()
		path, handler := remote.NewHandler(evaluatorFunc(func(
			_ context.Context, b *remote.Batch,
		) (*remote.Evaluation, error) {
			got = b
			return answer, nil
		}), remote.Serving{})
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			proto = r.ProtoMajor
			handler.ServeHTTP(w, r)
		})
		server := httptest.NewUnstartedServer(mux)
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!http2)
		protocols.SetUnencryptedHTTP2(http2)
		server.Config.Protocols = protocols
		server.Start()
		transport := &http.Transport{Protocols: protocols}
		e, err := remote.NewClient(&http.Client{Transport: transport}, server.URL).Evaluate(t.Context(), wholeBatch())
		transport.CloseIdleConnections()
		server.Close()
		if err != nil || (proto == 2) != http2 {
			t.Fatalf("HTTP/%d: %v", proto, err)
		}
		if d := cmp.Diff(answer, e); d != "" {
			t.Errorf("answer: -want +got:\n%s", d)
		}
		if d := cmp.Diff(wholeBatch(), got, emptyLabels); d != "" {
			t.Errorf("batch: -want +got:\n%s", d)
		}
	}
}

// emptyLabels takes labels that are empty for none: they say the same.
var emptyLabels = cmp.FilterValues(func(a, b map[string]string) bool { return len(a)+len(b) == 0 }, cmp.Ignore())

// Bytes that are no text do not keep a batch from being sent.
func TestBytesThatAreNoText(t *testing.T) {
	w, o := easy()
	w.servers = w.servers[:2]
	w.servers[1].ID, w.servers[1].Status = "n\xff", "\xfe"
	client := serve(t, mustLocal(t, remote.Config{Source: w.source()}), remote.Serving{})
	if got, err := remote.Place(t.Context(), client, w.list, rand.NewPCG(1, 1), o); err != nil || got.Server != "n000" {
		t.Errorf("%q, %v", got.Server, err)
	}
}

// A batch that an evaluator cannot evaluate is refused with the field at fault, in the same process
// and over HTTP.
func TestBatchesAreRefused(t *testing.T) {
	local := mustLocal(t, remote.Config{Source: (&world{}).source()})
	client := serve(t, local, remote.Serving{})
	for want, change := range map[string]func(*remote.Batch){
		"servers: has 1001 entries; at most 1000": func(
			b *remote.Batch,
		) {
			b.Servers = make([]placement.Server, 1001)
		},
		"tickets: has 10001 entries": func(
			b *remote.Batch,
		) {
			b.Tickets = make([]placement.Ticket, 10_001)
		},
		"resourceNames: has 17 entries":       func(b *remote.Batch) { b.Names = make([]string, 17) },
		"resourceNames.: a resource name has": func(b *remote.Batch) { b.Names = []string{""} },
		"now: is negative":                    func(b *remote.Batch) { b.Now = -1 },
		"constraints.spread: needs the instances of the whole": func(
			b *remote.Batch,
		) {
			b.Request.Constraints.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 1}}
		},
		"preferences.spread: needs the instances of the whole": func(
			b *remote.Batch,
		) {
			b.Request.Preferences.Spread = []plimsoll.Spread{{By: "rack"}}
		},
		"resources.cpu: is negative": func(
			b *remote.Batch,
		) {
			b.Request.Resources = plimsoll.Resources{"cpu": -1}
		},
		"constraints.where: the expression": func(
			b *remote.Batch,
		) {
			b.Request.Constraints.Where = "node.nothing"
		},
		`chain.name: the evaluator has no chain "mine"`: func(
			b *remote.Batch,
		) {
			b.Chain = remote.Chain{Name: "mine"}
		},
		`"no-such" is not the name of a stage`: func(
			b *remote.Batch,
		) {
			b.Chain.Text = placement.Named("no-such")
		},
		"owner-rules.bob": func(
			b *remote.Batch,
		) {
			b.Chain.Settings.OwnerRules = map[string]string{"bob": "("}
		},
		"weights": func(
			b *remote.Batch,
		) {
			b.Chain.Settings.Weights.Near = 1e9
		},
		`ticket.server: there is no server "n9"`: func(b *remote.Batch) { b.Tickets[0].Server = "n9" },
		"ownerRules: hold 80000 bytes; at most 65536 are possible together": func(b *remote.Batch) {
			b.Chain.Settings.OwnerRules = map[string]string{}
			for i := range 20 {
				b.Chain.Settings.OwnerRules[fmt.Sprint("o", i)] = fmt.Sprintf("%-4000s", "true")
			}
		},
		"ownerRules: has 1001 entries": func(b *remote.Batch) {
			b.Chain.Settings.OwnerRules = map[string]string{}
			for i := range 1001 {
				b.Chain.Settings.OwnerRules[fmt.Sprint(i)] = "true"
			}
		},
	} {
		for name, e := range map[string]remote.Evaluator{"in process": local, "HTTP": client} {
			b := wholeBatch()
			change(b)
			got, err := e.Evaluate(t.Context(), b)
			if err == nil || !strings.Contains(err.Error(), want) ||
				plimsoll.CodeOf(err) != plimsoll.CodeInvalid || got != nil {
				t.Errorf("%s, %s: %v", name, want, err)
			}
		}
	}
}

// A body above the bound is refused by the one that would send it.
func TestBodiesAreBounded(t *testing.T) {
	client := serve(t, mustLocal(t, remote.Config{Source: (&world{}).source()}), remote.Serving{})
	b := wholeBatch()
	b.Servers[0].Labels["note"] = strings.Repeat("x", remote.MaxBody)
	if _, err := client.Evaluate(t.Context(), b); plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
		t.Errorf("a body that is too large: %v", err)
	}
	o := &remote.Order{Chain: placement.Default()}
	settings := placement.DefaultSettings()
	settings.Batch = remote.MaxServers + 1
	chain, err := placement.NewChain(placement.DefaultExpression(), placement.Stages(), nil, settings)
	if err != nil {
		t.Fatal(err)
	}
	o.Chain = chain
	if _, err := remote.Place(
		t.Context(), client, (&world{}).list, rand.NewPCG(1, 1), o,
	); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("a batch that is too large: %v", err)
	}
}

// A chain may go by the name that the evaluator has for it; if it is not known here, every server
// is listed.
func TestChainsByName(t *testing.T) {
	w, o := easy()
	loose, err := placement.NewChain(
		placement.Pipe(placement.Named("setup"), placement.Named("running")), placement.Stages(), nil,
		placement.DefaultSettings(),
	)
	if err != nil {
		t.Fatal(err)
	}
	o.Name = "loose"
	client := serve(
		t, mustLocal(t, remote.Config{Source: w.source(), Chains: map[string]*placement.Chain{"loose": loose}}),
		remote.Serving{},
	)
	got, err := remote.Place(t.Context(), client, w.list, rand.NewPCG(1, 1), o)
	if err != nil || got.Server == "" || len(got.Steps) != 2 || got.Loads != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if d := cmp.Diff(placement.Query{}, w.query); d != "" {
		t.Errorf("the query: -want +got:\n%s", d)
	}
}

// When the time for a batch is over, that is an error, and not that no server was left: those that
// were not loaded in time might be.
func TestABatchHasADeadline(t *testing.T) {
	w, o := easy()
	released := make(chan struct{})
	pool := mustPool(t, remote.Options{Timeout: time.Hour})
	slow := remote.Source{Instances: func(ctx context.Context, _ string) ([]placement.Instance, error) {
		<-ctx.Done()
		<-released
		return nil, ctx.Err()
	}}
	client := serve(t, mustLocal(t, remote.Config{Source: slow, Pool: pool, Servers: w.list}),
		remote.Serving{Deadline: time.Millisecond})
	once, err := remote.NewFleet([]remote.Part{{Evaluator: client}}, remote.FleetOptions{Tries: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = once.Place(t.Context(), rand.NewPCG(1, 1), o)
	if plimsoll.CodeOf(err) != plimsoll.CodeDeadline || !strings.Contains(err.Error(), "batch 1") {
		t.Errorf("the handler's deadline: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = remote.Place(ctx, client, w.list, rand.NewPCG(1, 1), o)
	if plimsoll.CodeOf(err) != plimsoll.CodeDeadline {
		t.Errorf("the caller's deadline: %v", err)
	}
	close(released)
	if err := pool.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// The text of an error that is not ours goes to the one who serves, and not to the caller.
func TestErrorsThatAreNotOursStayInside(t *testing.T) {
	var told error
	e := evaluatorFunc(func(context.Context, *remote.Batch) (*remote.Evaluation, error) {
		return nil, errors.New("password of the database")
	})
	client := serve(t, e, remote.Serving{Failed: func(err error) { told = err }})
	_, err := client.Evaluate(t.Context(), wholeBatch())
	if err == nil || strings.Contains(err.Error(), "password") || told == nil ||
		told.Error() != "password of the database" {
		t.Errorf("the caller hears %v, the one who serves %v", err, told)
	}
}

// An evaluator needs to know what runs on the servers.
func TestALocalEvaluatorNeedsASource(t *testing.T) {
	if _, err := remote.NewLocal(remote.Config{}); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("%v", err)
	}
}

// BenchmarkPlace places the easy case: 120 servers with fifty instances each, twenty of which pass
// the filters on records. A load takes a millisecond. It runs in the same process and over HTTP.
func BenchmarkPlace(b *testing.B) {
	w, o := easy()
	inner := w.source()
	local := mustLocal(b, remote.Config{Source: remote.Source{Instances: func(
		ctx context.Context, server string,
	) ([]placement.Instance, error) {
		<-time.After(time.Millisecond)
		return inner.Instances(ctx, server)
	}}})
	client := serve(b, local, remote.Serving{})
	for name, e := range map[string]remote.Evaluator{"in-process": local, "http": client} {
		for _, heed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/heed-query=%t", name, heed), func(b *testing.B) {
				w.heed = heed
				rng := rand.NewPCG(1, 2)
				loads := 0
				for b.Loop() {
					got, err := remote.Place(b.Context(), e, w.list, rng, o)
					if err != nil || got.Server == "" {
						b.Fatalf("%+v, %v", got, err)
					}
					loads += got.Loads
				}
				b.ReportMetric(float64(loads)/float64(b.N), "loads/op")
			})
		}
	}
}
