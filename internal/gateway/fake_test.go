package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// fake is a Replica with its leader in the same process: records are put into it, commands are
// written down and answered by answer.
type fake struct {
	mu       sync.Mutex
	tables   *replica.Tables
	history  *replica.History
	changes  *replica.Changes
	latest   *replica.Snapshot
	epoch    uint64
	revision uint64
	events   uint64
	down     error         // what Barrier and Do return instead of an answer
	hang     bool          // Barrier and Do wait for their context
	entered  chan struct{} // gets a token when a Barrier begins to wait; may be nil
	commands []*pb.Command // all that were sent
	answer   func(*pb.Command) *pb.Reply
	behind   *replica.Snapshot // what Latest returns; nil: the latest
	watches  map[watchKey][]chan struct{}
	readers  replica.ChangeReaders
}

type watchKey struct {
	kind wire.Kind
	key  string
}

func newFake() *fake {
	f := &fake{
		tables: replica.NewTables(), history: replica.NewHistory(0), watches: map[watchKey][]chan struct{}{}, epoch: 1,
	}
	f.apply(&wire.Batch{Epoch: f.epoch})
	f.history.Reset(f.epoch, 0)
	f.latest, f.changes = f.tables.Snapshot(), f.history.View()
	f.readers.Replaced(f.changes)
	f.answer = func(*pb.Command) *pb.Reply { return &pb.Reply{} }
	return f
}

// apply applies a batch that no index refuses.
func (f *fake) apply(b *wire.Batch) {
	if err := f.tables.Apply(b); err != nil {
		panic(err)
	}
}

// put commits a batch, as the leader does.
func (f *fake) put(mutations ...wire.Mutation) {
	f.commit(mutations, wire.EventChunk{})
}

// emit commits events.
func (f *fake) emit(events ...plimsoll.Event) {
	encoder := &ring.Encoder{}
	for i := range events {
		encoder.Append(&events[i])
	}
	f.commit(nil, wire.EventChunk{FirstID: f.events, Count: uint64(len(events)), Data: encoder.Finish(nil)})
	f.events += uint64(len(events))
}

func (f *fake) commit(mutations []wire.Mutation, events wire.EventChunk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	before := f.changes
	batch := &wire.Batch{Epoch: f.epoch, Revision: f.revision, Mutations: mutations, Events: events}
	if err := f.history.Apply(f.tables, batch); err != nil {
		panic(err)
	}
	f.latest, f.changes = f.tables.Snapshot(), f.history.View()
	if events.Count > 0 {
		f.signal(replica.KindEvents, "")
	}
	for kind := range wire.Kind(wire.NumKinds) {
		made, _ := f.changes.From(kind, before.End(kind))
		for _, c := range made {
			f.signalChange(c)
		}
	}
	f.readers.Publish(f.changes)
}

// signalChange signals the watches of a changed object, as a follower does.
func (f *fake) signalChange(c *replica.Change) {
	switch c.Kind {
	case wire.KindPolicy:
		f.signal(wire.KindPolicy, "")
	case wire.KindTask: // they have readers
	default:
		f.signal(c.Kind, c.Key)
	}
}

// elect begins another epoch with the same records, as a follower does that gets a snapshot of a
// new leader.
func (f *fake) elect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	f.revision++
	f.apply(&wire.Batch{Epoch: f.epoch, Revision: f.revision})
	f.history.Reset(f.epoch, f.revision)
	f.latest, f.changes = f.tables.Snapshot(), f.history.View()
	f.signalAll()
}

// takeOver begins a term of another leader, whose snapshot differs from the copy by mutations.
func (f *fake) takeOver(mutations ...wire.Mutation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.tables.Snapshot()
	var records []wire.Mutation
	for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
		for key, value := range was.Scan(kind, "", "") {
			m := wire.Mutation{Kind: kind, Key: key, Value: value}
			if kind == wire.KindTask {
				m.Node = was.NodeOf(key)
			}
			records = append(records, m)
		}
	}
	f.epoch++
	f.revision++
	f.tables = replica.NewTables()
	f.apply(&wire.Batch{Epoch: f.epoch, Revision: f.revision, Mutations: append(records, mutations...)})
	f.latest = f.tables.Snapshot()
	f.history.Follow(was, f.latest)
	f.changes = f.history.View()
	f.signalAll()
}

// reconnect signals every watch, as a follower does that has another stream.
func (f *fake) reconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signalAll()
}

func (f *fake) signalAll() {
	for at := range f.watches {
		f.signal(at.kind, at.key)
	}
	f.readers.Replaced(f.changes)
}

func (f *fake) signal(kind wire.Kind, key string) {
	for _, ch := range f.watches[watchKey{kind, key}] {
		select {
		case ch <- struct{}{}:
		default: // one is there already
		}
	}
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) state() (latest *replica.Snapshot, hang bool, down error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest, f.hang, f.down
}

func (f *fake) Barrier(ctx context.Context) (*replica.Snapshot, error) {
	latest, hang, down := f.state()
	if hang {
		select {
		case f.entered <- struct{}{}:
		default: // nobody wants to know
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return latest, down
}

// Recent answers also without a leader, as a follower does that has a copy.
func (f *fake) Recent() (*replica.Snapshot, time.Duration, error) {
	s := f.Latest()
	if s.Version() == (plimsoll.Version{}) {
		return nil, 0, errNoLeader
	}
	return s, copyAge, nil
}

func (f *fake) AtLeast(ctx context.Context, version plimsoll.Version) (*replica.Snapshot, time.Duration, error) {
	if s := f.Latest(); s.Version().Holds(version) {
		return s, copyAge, nil
	}
	<-ctx.Done()
	return nil, 0, ctx.Err()
}

// copyAge is the age of a fake's copy.
const copyAge = 7 * time.Millisecond

func (f *fake) Latest() *replica.Snapshot {
	latest, _, _ := f.state()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.behind != nil {
		return f.behind
	}
	return latest
}

func (f *fake) Changes() *replica.Changes {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes
}

func (f *fake) Collectors() []prometheus.Collector { return nil }

func (f *fake) Connected() bool {
	_, _, down := f.state()
	return down == nil
}

func (f *fake) Ready(ctx context.Context) error { return ctx.Err() }

func (f *fake) Do(ctx context.Context, cmd *pb.Command) (*pb.Reply, error) {
	_, hang, down := f.state()
	if hang {
		<-ctx.Done()
		return nil, plimsoll.Errorf(plimsoll.CodeOutcomeUnknown, "the leader has not replied")
	}
	if down != nil {
		return nil, down
	}
	f.set(func(f *fake) { f.commands = append(f.commands, cmd) })
	reply := f.answer(cmd)
	if reply.GetRevision() == 0 {
		reply.Revision = f.Latest().Revision()
	}
	return reply, wire.ErrorFromProto(reply.GetError())
}

func (f *fake) Watch(kind wire.Kind, key string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	at := watchKey{kind, key}
	f.set(func(f *fake) { f.watches[at] = append(f.watches[at], ch) })
	return ch, func() {
		f.set(func(f *fake) {
			f.watches[at] = slices.DeleteFunc(f.watches[at], func(c chan struct{}) bool { return c == ch })
			if len(f.watches[at]) == 0 {
				delete(f.watches, at)
			}
		})
	}
}

func (f *fake) ReadChanges(part replica.Part, pointed bool) *replica.ChangeReader {
	return f.readers.Read(part, f.Changes, pointed)
}

// sent returns the commands since the last call.
func (f *fake) sent() []*pb.Command {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent := f.commands
	f.commands = nil
	return sent
}

func (f *fake) watching() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watches) + f.readers.Len()
}

var errNoLeader = plimsoll.Errorf(plimsoll.CodeUnavailable, "this gateway is not connected to the leader; try again")

func putStatus(s plimsoll.JobStatus) wire.Mutation {
	return wire.Mutation{Kind: wire.KindJobStatus, Key: s.ID, Value: wire.AppendJobStatus(nil, &s)}
}

func putSpec(s plimsoll.JobSpec) wire.Mutation {
	return wire.Mutation{Kind: wire.KindJobSpec, Key: s.ID, Value: wire.AppendJobSpec(nil, &s)}
}

func putTask(t plimsoll.Task) wire.Mutation {
	t.ID = plimsoll.TaskID(t.Job, t.Group, t.Index)
	m := wire.Mutation{
		Kind: wire.KindTask, Key: wire.TaskKey(t.Job, t.Group, t.Index), Value: wire.AppendTask(nil, &t),
	}
	if t.State.OnNode() {
		m.Node = t.Node // as the coordinator does
	}
	return m
}

func putNode(n plimsoll.Node) wire.Mutation {
	return wire.Mutation{Kind: wire.KindNode, Key: n.ID, Value: wire.AppendNode(nil, &n)}
}

func deleted(m wire.Mutation) wire.Mutation {
	m.Value, m.Node = nil, ""
	return m
}

// specNamed is a job of one group, map, that runs a command.
func specNamed(id string) plimsoll.JobSpec {
	return plimsoll.JobSpec{
		ID: id, Owner: "alice", Queue: "root.batch",
		Groups: []plimsoll.GroupSpec{
			{Name: "map", Count: 2, Command: []string{"true"}, Env: map[string]string{"A": "b"}},
		},
	}
}

// served is a gateway behind a loopback address, with a client of each service.
type served struct {
	gateway *Gateway
	address string
	url     string
	plain   *http.Client // HTTP/1.1
	jobs    plimsollv1connect.JobServiceClient
	nodes   plimsollv1connect.NodeServiceClient
	queues  plimsollv1connect.QueueServiceClient
	events  plimsollv1connect.EventServiceClient
	agents  plimsollv1connect.AgentServiceClient

	policies plimsollv1connect.PolicyServiceClient
}

func newGateway(t testing.TB, cfg Config, r Replica) *Gateway {
	t.Helper()
	if cfg.ID == "" {
		cfg.ID = "g1"
	}
	g, err := New(cfg, r)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// serve runs a gateway until the test ends.
func serve(t testing.TB, cfg Config, r Replica) *served {
	t.Helper()
	address := make(chan string, 1)
	cfg.Listen = "127.0.0.1:0"
	if cfg.Access == nil {
		cfg.Access = transport.AnyCaller()
	}
	cfg.Events.Serving = func(a string) { address <- a }
	if cfg.Events.Fault == nil {
		cfg.Events.Fault = func(rpc string, err error) { t.Errorf("a fault in %s: %v", rpc, err) }
	}
	g := newGateway(t, cfg, r)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return clients(t, g, <-address)
}

func clients(t testing.TB, g *Gateway, address string) *served {
	t.Helper()
	client, url, err := transport.Client(address)
	if err != nil {
		t.Fatal(err)
	}
	plain := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		plain.CloseIdleConnections()
	})
	return &served{
		gateway: g, address: address, url: url, plain: plain,
		jobs:   plimsollv1connect.NewJobServiceClient(client, url),
		nodes:  plimsollv1connect.NewNodeServiceClient(client, url),
		queues: plimsollv1connect.NewQueueServiceClient(client, url),
		events: plimsollv1connect.NewEventServiceClient(client, url),
		agents: plimsollv1connect.NewAgentServiceClient(client, url),

		policies: plimsollv1connect.NewPolicyServiceClient(client, url),
	}
}

// direct calls a handler without a network: unary RPCs only.
type direct struct{ handler http.Handler }

func (d direct) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

func directly(g *Gateway) *served {
	d := direct{g.Handler()}
	const url = "http://gateway"
	return &served{
		gateway: g, url: url,
		jobs:   plimsollv1connect.NewJobServiceClient(d, url),
		nodes:  plimsollv1connect.NewNodeServiceClient(d, url),
		queues: plimsollv1connect.NewQueueServiceClient(d, url),
		events: plimsollv1connect.NewEventServiceClient(d, url),
		agents: plimsollv1connect.NewAgentServiceClient(d, url),

		policies: plimsollv1connect.NewPolicyServiceClient(d, url),
	}
}

// call makes a unary call and returns our kind of error.
func call[Q, A any](rpc func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), req *Q) (*A, error) {
	return callIn(context.Background(), rpc, req)
}

func callIn[Q, A any](
	ctx context.Context, rpc func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), req *Q,
) (*A, error) {
	resp, err := rpc(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, wire.FromConnectError(err)
	}
	return resp.Msg, nil
}

// must makes a unary call that has to succeed.
func must[Q, A any](
	t testing.TB, rpc func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), req *Q,
) *A {
	t.Helper()
	msg, err := call(rpc, req)
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// open begins a server stream that ends with the test.
func open[Q, A any](
	t testing.TB, rpc func(context.Context, *connect.Request[Q]) (*connect.ServerStreamForClient[A], error), req *Q,
) *connect.ServerStreamForClient[A] {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	stream, err := rpc(ctx, connect.NewRequest(req))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = stream.Close() // its context has ended: that is what it says
	})
	return stream
}

// receive returns the next message of a stream.
func receive[A any](t testing.TB, stream *connect.ServerStreamForClient[A]) *A {
	t.Helper()
	if !stream.Receive() {
		t.Fatalf("the stream ended: %v", stream.Err())
	}
	return stream.Msg()
}

// ending returns the error with which a stream ends now.
func ending[A any](t testing.TB, stream *connect.ServerStreamForClient[A]) error {
	t.Helper()
	if stream.Receive() {
		t.Fatalf("the stream goes on: %v", stream.Msg())
	}
	return wire.FromConnectError(stream.Err())
}
