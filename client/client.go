package client

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// DefaultServer is the address at which a gateway listens by default.
const DefaultServer = "http://127.0.0.1:9080"

const (
	defaultRetryBudget = 10 * time.Second
	maxMessageBytes    = 64 << 20
)

// Config says how to reach a gateway. The zero value is the gateway on this machine.
type Config struct {
	// Server is the gateway's address: http://host:port, host:port or unix:/path. Empty:
	// DefaultServer. Several, separated by commas, are tried in turn when one cannot be reached.
	// They must be of one cluster: another does not know the tokens that keep a change from being
	// made twice.
	Server string
	// Token is the user token of the gateway, and TokenFile a file that holds it. At most one of
	// both may be set. If neither is, the token of a gateway on this machine is found by itself:
	// the gateway must listen on a loopback address, and the same user must have started it,
	// directly or through sudo. A unix socket needs no token.
	Token, TokenFile string
	// RetryBudget is how long a call is tried again while no server answers it. The last attempt is
	// made when this time has passed. 0: ten seconds; negative: not at all.
	RetryBudget time.Duration
	// LeaderBudget is RetryBudget for a call that a server refuses for now, as a gateway does for
	// the seconds in which another coordinator takes over. The longer of both counts. A call that
	// is not tried again at all is not for this either.
	LeaderBudget time.Duration
	// FollowBudget is RetryBudget for the break of a stream that has begun: a watch, events or logs
	// that are followed. 0: as RetryBudget.
	FollowBudget time.Duration
	// Broken is called when such a stream breaks, before it is tried again; nil: it is not. Streams
	// call it at the same time.
	Broken func(err error)
	// Consistency is that of all reads; zero: strict. WithConsistency sets another for some of
	// them.
	Consistency plimsoll.Consistency
	// Dial makes a connection to the address of a server; nil: over the network, or to the unix
	// socket.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Compress asks for answers in gzip. That is for slow networks: a gateway needs many times the
	// processor time for a list that it compresses.
	Compress bool
}

// Validate reports the first field that is wrong.
func (c Config) Validate() error {
	if c.Token != "" && c.TokenFile != "" {
		return plimsoll.Invalid("token", "is given beside a tokenFile; give one of them")
	}
	if err := c.Consistency.Validate(); err != nil {
		return err
	}
	for _, address := range c.servers() {
		if _, _, err := transport.Split(address); err != nil {
			return plimsoll.Invalid("server", "%q is not an address; write for example %s or unix:/run/plimsoll.sock",
				address, DefaultServer)
		}
	}
	return nil
}

// tokens returns the source of the token for a gateway; nil if none is known.
func (c Config) tokens(server string) (*token.Source, error) {
	if c.Token == "" {
		return token.Finder{Kind: token.User, File: c.TokenFile}.For(server), nil
	}
	t, err := token.Parse(c.Token)
	if err == nil && t.Kind() != token.User {
		err = plimsoll.Errorf(plimsoll.CodeInvalid, "it is %v", t)
	}
	if err != nil {
		return nil, plimsoll.Invalid("token", "is not the user token of a gateway: %v", err)
	}
	return token.Fixed(t, "the token that was given"), nil
}

// Client calls a gateway, or several in turn.
type Client struct {
	http   *http.Client
	budget time.Duration
	leader time.Duration // Config.LeaderBudget
	follow time.Duration // Config.FollowBudget
	broken func(err error)
	level  plimsoll.Consistency
	jobs   plimsollv1connect.JobServiceClient
	nodes  plimsollv1connect.NodeServiceClient
	queues plimsollv1connect.QueueServiceClient
	events plimsollv1connect.EventServiceClient

	policies plimsollv1connect.PolicyServiceClient
	watches  plimsollv1connect.WatchServiceClient
	requests plimsollv1connect.RequestEventServiceClient
	history  plimsollv1connect.HistoryServiceClient
	leaders  plimsollv1connect.LeaderServiceClient
}

// New makes a client. It connects with the first call.
func New(config Config) (*Client, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.RetryBudget == 0 {
		config.RetryBudget = defaultRetryBudget
	}
	httpClient, base, err := config.dialServers()
	if err != nil {
		return nil, err
	}
	options := []connect.ClientOption{connect.WithReadMaxBytes(maxMessageBytes)}
	if !config.Compress {
		options = append(options, connect.WithAcceptCompression("gzip", nil, nil))
	}
	return &Client{
		http:   httpClient,
		budget: config.RetryBudget,
		leader: config.LeaderBudget,
		follow: config.FollowBudget,
		broken: config.Broken,
		level:  config.Consistency,
		jobs:   plimsollv1connect.NewJobServiceClient(httpClient, base, options...),
		nodes:  plimsollv1connect.NewNodeServiceClient(httpClient, base, options...),
		queues: plimsollv1connect.NewQueueServiceClient(httpClient, base, options...),
		events: plimsollv1connect.NewEventServiceClient(httpClient, base, options...),

		policies: plimsollv1connect.NewPolicyServiceClient(httpClient, base, options...),
		watches:  plimsollv1connect.NewWatchServiceClient(httpClient, base, options...),
		requests: plimsollv1connect.NewRequestEventServiceClient(httpClient, base, options...),
		history:  plimsollv1connect.NewHistoryServiceClient(httpClient, base, options...),
		leaders:  plimsollv1connect.NewLeaderServiceClient(httpClient, base, options...),
	}, nil
}

// Close drops the connections that are idle. Calls that are under way go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// retryable reports whether a call that failed with err may succeed later. A change of unknown
// outcome may be repeated too, because it carries its token.
func retryable(err error) bool {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeUnavailable, plimsoll.CodeExhausted, plimsoll.CodeOutcomeUnknown:
		return true
	}
	return false
}

var retryDelays = plimsoll.Backoff{First: 50 * time.Millisecond, Longest: 2 * time.Second}

// retry counts the failures of one call. Its budget begins with the first failure, and the last
// attempt is made when it has passed: a server that is back within the budget is found.
type retry struct {
	budget   time.Duration // below 0: the call is not tried again
	failures int           // in a row
	first    time.Time     // when the first wait behind a success began; zero: there was none

	leader time.Duration // budget while a server refuses the call for now, if it is longer
	awaits bool          // a server has refused it for now
	follow time.Duration // budget behind a success; 0: the same
	broken func(error)   // called for the first failure behind a success; nil: it is not
	begun  bool          // there was a success
}

func (c *Client) newRetry() *retry {
	return &retry{budget: c.budget, leader: c.leader, follow: c.follow, broken: c.broken}
}

// failed gives a call that a server has refused for now the time in which another coordinator
// takes over. The error is the one that connect has returned.
func (r *retry) failed(err error) {
	if r.budget >= 0 && wire.IsAnswer(err) && plimsoll.CodeOf(wire.FromConnectError(err)) == plimsoll.CodeUnavailable {
		r.awaits = true
	}
}

// longest returns how long the call is tried again.
func (r *retry) longest() time.Duration {
	if r.awaits {
		return max(r.budget, r.leader)
	}
	return r.budget
}

// readError is failed for a read, and returns the error for wait.
func (r *retry) readError(ctx context.Context, err error) error {
	r.failed(err)
	return wire.FromReadError(ctx, err)
}

// wait waits before the next attempt and returns nil. If there is to be no other attempt, it
// returns the error for the caller.
func (r *retry) wait(ctx context.Context, err error) error {
	if !retryable(err) || r.budget < 0 || ctx.Err() != nil {
		return err
	}
	fresh := r.first.IsZero()
	if fresh {
		r.first = time.Now()
	}
	left := time.Until(r.first.Add(r.longest()))
	if !fresh && left <= 0 {
		return err
	}
	if r.begun && fresh && r.broken != nil {
		r.broken(err)
	}
	r.failures++
	pause := time.NewTimer(min(retryDelays.Jittered(r.failures, rand.Int64N), left))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return err
	}
}

// reset is called after a success in the middle of a stream: the next failure has a budget of its
// own.
func (r *retry) reset() {
	if r.follow != 0 {
		r.budget = r.follow
	}
	r.failures, r.first, r.awaits, r.begun = 0, time.Time{}, false, true
}

// call makes a unary call that changes nothing until it succeeds or the retries end.
func call[Req, Res any](
	ctx context.Context, c *Client, f func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error),
	req *Req,
) (*Res, error) {
	for r := c.newRetry(); ; {
		res, err := f(ctx, connect.NewRequest(req))
		if err == nil {
			stamp(ctx, res.Msg)
			return res.Msg, nil
		}
		if err := r.wait(ctx, r.readError(ctx, err)); err != nil {
			return nil, err
		}
	}
}
