package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
)

// phases says which phases of RFD 60 a placement uses.
type phases struct {
	query  bool // 1: the source leaves out what is not for the request
	lazy   bool // 2: what runs on a server is loaded when it is needed
	batch  bool // 3: servers are looked at in batches of fifty
	beside bool // 4: batches are evaluated beside the data
}

// distantFleet is a fleet whose data is behind HTTP: the servers as JSON, with or without their
// instances, the instances of one server, and an evaluator for each third of the fleet. It counts
// the bytes that cross the connections of its caller.
type distantFleet struct {
	w      *world
	url    string
	client *http.Client
	parts  []*remote.Client
	wire   atomic.Int64
	loads  atomic.Int64
}

type countedConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.Add(int64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.n.Add(int64(n))
	return n, err
}

// newDistantFleet makes a fleet of n servers with fifty instances each. One server in six is
// eligible.
func newDistantFleet(b *testing.B, n int) (*distantFleet, *remote.Order) {
	f := &distantFleet{w: &world{instances: map[string][]placement.Instance{}, errs: map[string]error{}, heed: true}}
	for i := range n {
		s := placement.NewServer(fmt.Sprintf("server-%05d", i),
			plimsoll.Resources{"cpu": 64_000, "memory": 256 << 30, "disk": 4 << 40})
		s.Labels = map[string]string{"rack": fmt.Sprint("r", i%40), "row": fmt.Sprint("w", i%4), "model": "r7525"}
		s.Networks = map[string]bool{"external": true, "internal": true, "storage": i%7 != 0}
		s.Release, s.Platform = "7.0", "20260114T101500Z"
		if i%6 == 0 {
			s.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
		}
		f.w.servers = append(f.w.servers, s)
		for k := range 50 {
			f.w.instances[s.ID] = append(f.w.instances[s.ID], placement.Instance{
				ID: fmt.Sprintf("8f2b-%05d-%02d-c1d4e5f60718", i, k), Owner: fmt.Sprintf("owner-%04d", (i+k)%300),
				Job: "web", Group: "front",
				Resources: plimsoll.Resources{"cpu": 500, "memory": 1 << 30, "disk": 10 << 30}, Modified: 1_700_000_000,
			})
		}
	}
	source := http.NewServeMux()
	source.HandleFunc("/servers", f.serveServers)
	source.HandleFunc("/instances", func(w http.ResponseWriter, r *http.Request) {
		f.loads.Add(1)
		_, _ = w.Write(instancesJSON(f.w.instances[r.FormValue("server")])) // the benchmark reads it
	})
	server := httptest.NewServer(source)
	b.Cleanup(server.Close)
	f.url = server.URL
	dialer := &net.Dialer{}
	transport := &http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, to)
			return countedConn{c, &f.wire}, err
		},
	}
	b.Cleanup(transport.CloseIdleConnections)
	f.client = &http.Client{Transport: transport}
	for _, part := range f.w.deal(3, func(i int) int { return i % 3 }) {
		mux := http.NewServeMux()
		mux.Handle(remote.NewHandler(part.beside(b), remote.Serving{}))
		server := httptest.NewServer(mux)
		b.Cleanup(server.Close)
		f.parts = append(f.parts, remote.NewClient(f.client, server.URL))
	}
	o := &remote.Order{Request: placement.Request{
		Owner:     "alice",
		Resources: plimsoll.Resources{"cpu": 1000, "memory": 4 << 30},
	}}
	o.Request.Constraints.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
	return f, o
}

// instancesJSON writes instances as fleetjson reads them.
func instancesJSON(list []placement.Instance) []byte {
	s := placement.NewServer("s", nil)
	s.Instances = list
	data, err := fleetjson.WriteServer(&s)
	if err != nil {
		panic(err)
	}
	var record struct{ Instances json.RawMessage }
	if err := json.Unmarshal(data, &record); err != nil {
		panic(err)
	}
	return record.Instances
}

// serveServers answers with the servers that match a query, and with their instances if asked.
func (f *distantFleet) serveServers(w http.ResponseWriter, r *http.Request) {
	var q placement.Query
	if text := r.FormValue("query"); text != "" {
		if err := json.Unmarshal([]byte(text), &q); err != nil {
			panic(err)
		}
	}
	list, err := f.w.list(r.Context(), q)
	if err != nil {
		panic(err)
	}
	out := make([]placement.Server, len(list))
	copy(out, list)
	for i := range out {
		if r.FormValue("with") == "instances" {
			f.loads.Add(1)
			out[i].Instances = f.w.instances[out[i].ID]
		}
	}
	data, err := fleetjson.WriteServers(out)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(data) // the benchmark reads it
}

func (f *distantFleet) get(ctx context.Context, path string, values url.Values) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+path+"?"+values.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := f.client.Do(r)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(response.Body)
	return data, errors.Join(err, response.Body.Close())
}

// place places an order by some of the phases.
func (f *distantFleet) place(
	b *testing.B, p phases, pool *remote.Pool, o *remote.Order, seed uint64,
) (server string, loads int) {
	settings := placement.DefaultSettings()
	settings.All = !p.batch
	chain, err := placement.NewChain(placement.DefaultExpression(), placement.Stages(), nil, settings)
	if err != nil {
		b.Fatal(err)
	}
	order := *o
	order.Chain, order.Everything = chain, !p.query
	rng := rand.NewPCG(seed, 1)
	if p.beside {
		fleet := mustFleet(b, remote.FleetOptions{}, f.parts[0], f.parts[1], f.parts[2])
		got, err := fleet.Place(b.Context(), rng, &order)
		if err != nil {
			b.Fatal(err)
		}
		return got.Server, got.Loads
	}
	before := f.loads.Load()
	fleet := placement.NewFleet(placement.NewNames())
	r, err := chain.Prepare(fleet, &order.Request)
	if err != nil {
		b.Fatal(err)
	}
	values := url.Values{}
	if p.query {
		q, err := json.Marshal(r.Query())
		if err != nil {
			b.Fatal(err)
		}
		values.Set("query", string(q))
	}
	if !p.lazy {
		values.Set("with", "instances")
	}
	data, err := f.get(b.Context(), "/servers", values)
	if err != nil {
		b.Fatal(err)
	}
	list, err := fleetjson.ReadServers(data)
	if err != nil {
		b.Fatal(err)
	}
	for i := range list {
		fleet.Put(int32(i), &list[i])
	}
	if p.lazy {
		fleet.Loader = pool.Loader(b.Context(),
			remote.Source{Instances: func(ctx context.Context, server string) ([]placement.Instance, error) {
				data, err := f.get(ctx, "/instances", url.Values{"server": {server}})
				if err != nil {
					return nil, err
				}
				return fleetjson.ReadInstances(data)
			}})
	}
	choice := placement.NewPlacer(fleet, rng).Place(r, 0)
	if choice.Slot < 0 {
		b.Fatal("no server takes it")
	}
	return fleet.ID(choice.Slot), int(f.loads.Load() - before)
}

// BenchmarkPhases measures what RFD 60's phases spare: a placement on 1,000 servers with fifty
// instances each, of which one server in six is for the request. wireKB/op is all that crosses the
// connections of the process that places, and loads/op the servers whose instances were loaded:
// from there over the wire, or with phase 4 beside the data. placement/DESIGN.md has the table.
func BenchmarkPhases(b *testing.B) {
	for _, row := range []struct {
		name string
		with phases
	}{
		{"none", phases{}},
		{"1", phases{query: true}},
		{"1+2", phases{query: true, lazy: true}},
		{"1+2+3", phases{query: true, lazy: true, batch: true}},
		{"1+2+3+4", phases{query: true, lazy: true, batch: true, beside: true}},
		{"without-1", phases{lazy: true, batch: true, beside: true}},
		{"without-2", phases{query: true, batch: true}}, // then nothing is left for an evaluator to load
		{"without-3", phases{query: true, lazy: true, beside: true}},
	} {
		b.Run(row.name, func(b *testing.B) {
			f, o := newDistantFleet(b, 1000)
			pool, err := remote.NewPool(remote.Options{})
			if err != nil {
				b.Fatal(err)
			}
			f.place(b, row.with, pool, o, 0) // opens the connections
			f.wire.Store(0)
			loads, seed := 0, uint64(0)
			for b.Loop() {
				seed++
				server, n := f.place(b, row.with, pool, o, seed)
				if server == "" {
					b.Fatal("no server takes it")
				}
				loads += n
			}
			b.ReportMetric(float64(f.wire.Load())/1024/float64(b.N), "wireKB/op")
			b.ReportMetric(float64(loads)/float64(b.N), "loads/op")
		})
	}
}

// BenchmarkCapacities calculates the amounts left on 1,000 servers, from instances sent over the
// wire and beside the data.
func BenchmarkCapacities(b *testing.B) {
	f, _ := newDistantFleet(b, 1000)
	b.Run("instances", func(b *testing.B) {
		f.wire.Store(0)
		for b.Loop() {
			data, err := f.get(b.Context(), "/servers", url.Values{"with": {"instances"}})
			if err != nil {
				b.Fatal(err)
			}
			list, err := fleetjson.ReadServers(data)
			if err != nil {
				b.Fatal(err)
			}
			fleet, slots := placement.NewFleet(placement.NewNames()), []int32{}
			for i := range list {
				slots = append(slots, fleet.Add(&list[i]))
			}
			chain, err := placement.CapacityChain(placement.Stages())
			if err != nil {
				b.Fatal(err)
			}
			if got, err := placement.NewPlacer(fleet, nil).Capacities(chain, slots, 0); err != nil || len(got) != 1000 {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(f.wire.Load())/1024/float64(b.N), "wireKB/op")
	})
	b.Run("beside", func(b *testing.B) {
		fleet := mustFleet(b, remote.FleetOptions{}, f.parts[0], f.parts[1], f.parts[2])
		list, err := fleet.List(b.Context(), placement.Query{})
		if err != nil {
			b.Fatal(err)
		}
		var ids []string
		for i := range list {
			ids = append(ids, list[i].ID)
		}
		f.wire.Store(0)
		for b.Loop() {
			for id, c := range fleet.Capacities(b.Context(), ids, nil, 0) {
				if c.Uncounted != "" {
					b.Fatal(id, c.Uncounted)
				}
			}
		}
		b.ReportMetric(float64(f.wire.Load())/1024/float64(b.N), "wireKB/op")
	})
}
