package gateway

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/apidoc"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

var _ Replica = (*replica.Follower)(nil)

// Copy is the copy of the leader's state from which reads are answered.
type Copy interface {
	// Barrier returns a snapshot that holds everything that was committed when the call began.
	Barrier(ctx context.Context) (*replica.Snapshot, error)
	// Latest returns the newest snapshot; nil before the first.
	Latest() *replica.Snapshot
	// Recent returns the newest snapshot without a wait, and the time since which the copy is known
	// to be complete. It fails before the first snapshot.
	Recent() (*replica.Snapshot, time.Duration, error)
	// AtLeast is Recent for a snapshot that holds a version. It waits for one until ctx ends.
	AtLeast(ctx context.Context, version plimsoll.Version) (*replica.Snapshot, time.Duration, error)
}

// Replica is the follower's side of a gateway. *replica.Follower implements it.
type Replica interface {
	Copy
	Watched
	Link
	// Do sends a command to the leader and returns its reply. By then Latest shows the effect. A
	// refusal by the leader is returned as an error beside the reply.
	Do(ctx context.Context, cmd *pb.Command) (*pb.Reply, error)
}

// Link is the link to the leader.
type Link interface {
	// Connected reports whether a leader is being followed.
	Connected() bool
	// Ready returns nil once a leader is being followed.
	Ready(ctx context.Context) error
	// Collectors returns the metrics of the link.
	Collectors() []prometheus.Collector
}

// Watched is the history of the copy, from which watches are served.
type Watched interface {
	// Changes returns the newest view of the history of changes; nil before the first snapshot. It
	// is at the revision of the newest snapshot or a later one.
	Changes() *replica.Changes
	// Watch signals, coalesced, that a record with the key has changed. With an empty key it stands
	// for all policies or events. Tasks have no signal.
	Watch(kind wire.Kind, key string) (changed <-chan struct{}, cancel func())
	// ReadChanges returns a reader of the changes of a part of the objects. One that is pointed is
	// also signalled behind many changes of others.
	ReadChanges(part replica.Part, pointed bool) *replica.ChangeReader
}

// Gateway serves one address from one replica.
type Gateway struct {
	cfg      Config
	replica  Replica
	metrics  *metrics
	nodes    *liveness
	agents   *agentClients
	specs    specCache
	rendered jsonCache
	answers  answerCache
	pins     pins
	archived *archived
	few      int // records up to which a list looks at all of a range
	watchers watchers
	explains chan struct{} // a slot for each question to the leader under way
	slots    *slots
	shown    shown

	eventStreams eventStreams
	budgets      budgets           // bounds on the bytes of requests under way
	methods      map[string]method // by path
	inflater     wire.Inflater
	handler      http.Handler
	refuser      *connect.ErrorWriter

	connections *transport.Connections
}

// New makes a Gateway that reads and writes through a replica. The caller runs the replica. New
// starts nothing.
func New(cfg Config, r Replica) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	g := &Gateway{
		cfg:      cfg,
		replica:  r,
		nodes:    newLiveness(cfg.MaxNodes),
		agents:   newAgentClients(cfg.MaxAgents, newAgentAddresses(cfg.AgentAddresses), cfg.LogTokens),
		explains: make(chan struct{}, cfg.MaxExplains),
		slots:    newSlots(&cfg),

		eventStreams: eventStreams{most: cfg.MaxEventStreams, mostOfPeer: cfg.MaxPeerEventStreams},
		archived:     newArchived(cfg.Archive),
		few:          chosenRecords,
		refuser:      connect.NewErrorWriter(),
	}
	g.connections = transport.NewConnections(transport.ConnectionsConfig{
		Users: cfg.MaxConnections, Agents: cfg.MaxAgentConnections, Peer: cfg.MaxPeerConnections,
		Refused: func(bound string) { g.metrics.refused(bound) }, Closed: func() { g.metrics.closed.Inc() },
	})
	g.budgets.users = budget{whose: "users", bound: boundUserBytes, most: int64(cfg.MaxUserBytes)}
	g.budgets.agents = budget{whose: "agents", bound: boundAgentBytes, most: int64(cfg.MaxAgentBytes)}
	g.rendered.most = int64(cfg.MaxJSONBytes)
	g.answers.most = int64(cfg.MaxSharedBytes)
	g.metrics = newMetrics(g)
	g.handler = g.routes()
	return g, nil
}

// Handler returns the handler of all routes that the gateway serves on Config.Listen.
func (g *Gateway) Handler() http.Handler { return g.handler }

// Listeners are the open listeners of a gateway. Those that its Config does not have are nil.
type Listeners struct {
	Users       net.Listener // of Config.Listen
	Agents      net.Listener // of Config.ListenAgents
	Replication net.Listener // of Config.ListenReplication
}

// Run listens on the addresses of Config and serves until ctx ends. Then it returns nil, once all
// its goroutines have ended.
func (g *Gateway) Run(ctx context.Context) error {
	l, err := g.Listen()
	if err != nil {
		return err
	}
	return g.Serve(ctx, l)
}

// Listen opens the addresses of Config.
func (g *Gateway) Listen() (Listeners, error) {
	var l Listeners
	var opened []net.Listener
	for _, of := range []struct {
		address  string
		listener *net.Listener
	}{
		{g.cfg.Listen, &l.Users}, {g.cfg.ListenAgents, &l.Agents}, {g.cfg.ListenReplication, &l.Replication},
	} {
		if of.address == "" {
			continue
		}
		listener, err := transport.Listen(of.address)
		if err != nil {
			for _, other := range opened {
				err = errors.Join(err, other.Close())
			}
			return Listeners{}, err
		}
		*of.listener = listener
		opened = append(opened, listener)
	}
	return l, nil
}

// Serve is Run on listeners that are already open, and closes them.
func (g *Gateway) Serve(ctx context.Context, l Listeners) error {
	defer g.agents.close()
	group, ctx := errgroup.WithContext(ctx)
	serving := transport.ServeConfig{
		Hosts: append(slices.Clone(g.cfg.Hosts), g.cfg.Listen), Access: g.cfg.Access,
		Started:     func() { g.cfg.Events.Serving(l.Users.Addr().String()) },
		Connections: g.connections, BodyTimeout: g.cfg.BodyTimeout, BodyRate: g.cfg.BodyRate,
		AnswerTimeout: g.cfg.AnswerTimeout,
	}
	group.Go(func() error { return transport.Serve(ctx, l.Users, g.handler, serving) })
	if l.Agents != nil {
		forAgents := serving
		forAgents.Started = nil
		forAgents.Hosts, forAgents.Caller = append(slices.Clone(g.cfg.Hosts), g.cfg.ListenAgents), transport.CallerAgent
		group.Go(func() error { return transport.Serve(ctx, l.Agents, g.agentRoutes(g.handler), forAgents) })
	}
	if l.Replication != nil {
		group.Go(func() error {
			return transport.Serve(ctx, l.Replication, g.replicationRoutes(), g.replicationServing())
		})
	}
	group.Go(func() error { return g.watchNodes(ctx) })
	group.Go(func() error { return g.expirePins(ctx) })
	return group.Wait()
}

// replicationServing returns the settings of the listener for gateways. Their connections are few,
// and are bounded apart from those of users and agents.
func (g *Gateway) replicationServing() transport.ServeConfig {
	return transport.ServeConfig{
		Hosts: append(slices.Clone(g.cfg.Hosts), g.cfg.ListenReplication), Access: g.cfg.ReplicationAccess,
		Connections: transport.FewConnections(g.metrics.refused),
	}
}

// compressFrom is the least answer that is compressed, in bytes, for a caller that takes it so.
const compressFrom = 1400

// requestBounds returns the bounds of requests to every service.
func (g *Gateway) requestBounds() wire.Bounds {
	bounds := wire.RequestBounds(g.cfg.MaxRequestBytes)
	bounds.Checked = true // by the intake, which reads every body that connect does
	return bounds
}

// guarded returns the options of every service beside its bounds. Answers are compressed from so
// many bytes on.
func (g *Gateway) guarded(compressFrom int) []connect.HandlerOption {
	return []connect.HandlerOption{connect.WithInterceptors(guard{g}), connect.WithCompressMinBytes(compressFrom)}
}

// routes returns the table of everything served on Config.Listen.
func (g *Gateway) routes() http.Handler {
	options := append(g.guarded(compressFrom), wire.Bounded(g.requestBounds()))
	mux := http.NewServeMux()
	var served []string
	rpc := func(path string, h http.Handler) {
		mux.Handle(path, g.bounded(h))
		served = append(served, strings.Trim(path, "/"))
	}
	rpc(plimsollv1connect.NewJobServiceHandler(jobService{g: g}, options...))
	rpc(plimsollv1connect.NewNodeServiceHandler(nodeService{g: g}, options...))
	rpc(plimsollv1connect.NewQueueServiceHandler(queueService{g: g}, options...))
	rpc(plimsollv1connect.NewPolicyServiceHandler(policyService{g: g}, options...))
	rpc(plimsollv1connect.NewEventServiceHandler(eventService{g}, options...))
	rpc(plimsollv1connect.NewLeaderServiceHandler(leaderService{g}, options...))
	rpc(plimsollv1connect.NewRequestEventServiceHandler(requestService{g}, options...))
	rpc(plimsollv1connect.NewAgentServiceHandler(agentService{g}, options...))
	// A compressed message could not be shared: each watch would compress the same changes again.
	rpc(plimsollv1connect.NewWatchServiceHandler(watchService{g},
		append(g.guarded(math.MaxInt), wire.Bounded(g.requestBounds()))...))
	rpc("/"+plimsollv1connect.HistoryServiceName+"/", g.historyCalls())
	g.methods = methodsOf(served...)
	g.reflection(func(path string, h http.Handler) { mux.Handle(path, g.bounded(h)) })
	g.encodedReads(func(path string, read *plainRead) { mux.Handle(path, g.admitted(read)) }, options)
	yunikorn := rest.New(rest.Config{
		RenderedBytes: g.cfg.MaxRenderedBytes, ObjectStates: g.cfg.EventStates,
		EnterStream: g.enterEventStream, StreamCut: g.eventStreamCut,
		AnswerBytes: g.cfg.MaxAnswerBytes, Version: g.cfg.Version,
		TooLarge: func() { g.metrics.refused(boundAnswerBytes) },
		Fault:    func(err error) { g.cfg.Events.Fault("/ws/v1", err) },
	}, eventSource{g})
	for _, path := range rest.Paths() {
		mux.Handle(path, g.boundedREST(yunikorn))
	}
	g.historyRoutes(mux)
	docs := transport.TimeAnswers(transport.AnswerConfig{Total: metricsTimeout}, apidoc.Handler())
	mux.Handle(apidoc.Root, docs)
	mux.Handle(strings.TrimSuffix(apidoc.Root, "/"), docs)
	mux.HandleFunc("/healthz", g.health)
	mux.HandleFunc("/readyz", g.ready)
	mux.Handle("/metrics", transport.TimeAnswers(transport.AnswerConfig{Total: metricsTimeout}, g.metrics.handler()))
	mux.Handle("GET /{$}", http.RedirectHandler(apidoc.Root, http.StatusFound))
	mux.HandleFunc("/", g.nothingHere(servedToUsers()))
	return g.timed(mux)
}

// agentRoutes returns the table of everything served on Config.ListenAgents.
func (g *Gateway) agentRoutes(all http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(agentPaths, all)
	mux.Handle("/healthz", all)
	mux.HandleFunc("/", g.nothingHere(
		"this address is for agents: there are /healthz and "+plimsollv1connect.AgentServiceName))
	return mux
}

// replicationRoutes returns the table of everything served on Config.ListenReplication.
func (g *Gateway) replicationRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(g.cfg.Relay.Handler())
	timed := func(h http.HandlerFunc) http.Handler {
		return transport.TimeAnswers(transport.AnswerConfig{Total: metricsTimeout}, h)
	}
	mux.Handle("/readyz", timed(g.ready))
	mux.Handle("/healthz", timed(g.health))
	mux.HandleFunc("/", g.nothingHere(
		"this address is for gateways: there are /readyz, /healthz and "+plimsollv1connect.ReplicationServiceName))
	return mux
}

// timed cuts off a caller that does not read its answer in time, which frees its slot.
func (g *Gateway) timed(next http.Handler) http.Handler {
	return transport.TimeAnswers(transport.AnswerConfig{
		Stream: g.streams, Unread: g.cfg.UnreadTimeout,
		Cut: func(r *http.Request) {
			g.metrics.cut.Inc()
			g.cfg.Events.Cut(r.URL.Path, r.RemoteAddr, g.cfg.UnreadTimeout)
		},
	}, next)
}

// read returns a snapshot that holds everything that was committed when read was called.
func (g *Gateway) read(ctx context.Context) (*replica.Snapshot, error) {
	began, least := time.Now(), g.shown.least()
	bounded, cancel := context.WithTimeout(ctx, g.cfg.BarrierTimeout)
	defer cancel()
	snapshot, err := g.replica.Barrier(bounded)
	for g.handedOver(bounded, err) {
		snapshot, err = g.replica.Barrier(bounded)
	}
	g.metrics.barrier.Observe(time.Since(began).Seconds())
	if err == nil {
		err = g.show(snapshot, least)
		return snapshot, err
	}
	if ended := callerGone(ctx); ended != nil {
		return nil, ended
	}
	if bounded.Err() != nil {
		return nil, plimsoll.Errorf(plimsoll.CodeUnavailable,
			"the leader did not confirm within %s that this gateway's copy is fresh; try again", g.cfg.BarrierTimeout)
	}
	return nil, &plimsoll.Error{Code: plimsoll.CodeUnavailable, Msg: "no read can be answered", Err: err}
}

// do sends a command to the leader and returns its reply, or the error in it. CodeOutcomeUnknown
// means that the command was sent and its reply has not come. With any other error the command had
// no effect.
func (g *Gateway) do(ctx context.Context, cmd *pb.Command) (*pb.Reply, error) {
	bounded, cancel := context.WithTimeout(ctx, g.cfg.WriteTimeout)
	defer cancel()
	reply, err := g.replica.Do(bounded, cmd)
	for reply == nil && g.handedOver(bounded, err) {
		reply, err = g.replica.Do(bounded, cmd)
	}
	sent := plimsoll.CodeOf(err) == plimsoll.CodeOutcomeUnknown
	switch {
	case err == nil:
		return reply, nil
	case reply != nil: // the leader refused
		return nil, err
	case ctx.Err() != nil && !sent:
		return nil, callerGone(ctx)
	case ctx.Err() != nil:
		return nil, plimsoll.Errorf(plimsoll.CodeOutcomeUnknown,
			"the call ended before the leader answered: the change was made or not; look before you try again")
	case bounded.Err() != nil && !sent:
		return nil, plimsoll.Errorf(plimsoll.CodeUnavailable,
			"the command could not be sent to the leader within %s; try again", g.cfg.WriteTimeout)
	case bounded.Err() != nil:
		return nil, plimsoll.Errorf(plimsoll.CodeOutcomeUnknown,
			"the leader did not answer within %s: the change was made or not; look before you try again",
			g.cfg.WriteTimeout)
	}
	return nil, err
}

// handedOver waits for the next leader if a call failed because the last one hands leadership over.
// It reports whether the call is to be made again: it had no effect.
func (g *Gateway) handedOver(ctx context.Context, err error) bool {
	return errors.Is(err, replica.ErrHandover) && g.replica.Ready(ctx) == nil
}

// change is do for a command that may carry a token.
func (g *Gateway) change(ctx context.Context, token string, cmd *pb.Command) (*pb.Reply, error) {
	if err := plimsoll.ValidateToken(token); err != nil {
		return nil, err
	}
	return g.do(ctx, cmd)
}

// after returns a snapshot that shows the effect of a reply. The replica has one already, unless
// its copy was replaced meanwhile.
func (g *Gateway) after(ctx context.Context, reply *pb.Reply) (*replica.Snapshot, error) {
	if s := g.replica.Latest(); s != nil && s.Revision() >= reply.GetRevision() {
		return s, nil
	}
	s, err := g.read(ctx)
	if err != nil {
		return nil, unseen(err)
	}
	return s, nil
}

// unseen is the error for a change that was made and cannot be shown. Its code is
// CodeOutcomeUnknown, since any other code would deny the effect.
func unseen(err error) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeOutcomeUnknown, Msg: "the change was made, but it cannot be read", Err: err,
	}
}

// callerGone returns the error for a caller that gave up or ran out of time; nil if it still waits.
func callerGone(ctx context.Context) error {
	switch ctx.Err() {
	case nil:
		return nil
	case context.DeadlineExceeded:
		return wire.OutOfTime()
	}
	return plimsoll.Errorf(plimsoll.CodeCanceled, "the caller went away")
}
