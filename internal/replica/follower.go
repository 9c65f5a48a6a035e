package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Defaults of FollowerConfig.
const (
	DefaultMinBackoff  = 50 * time.Millisecond
	DefaultMaxBackoff  = time.Second
	DefaultMaxCommands = 8_192

	DefaultMaxCommandBytes = 64 << 20
)

// responseBounds are the bounds of one message of a leader. A batch comes as one field of bytes, as
// large as the leader's store allows: 16 MiB by default. A part of a snapshot has 256 KiB, or is
// one record.
var responseBounds = wire.Bounds{Bytes: 256 << 20, Decoded: 512 << 20}

// FollowerConfig holds the settings of a Follower. Zero values stand for the defaults.
type FollowerConfig struct {
	Gateway string // this gateway's id
	Leader  string // addresses of the leader or of a relay, as ParseFinder reads them
	// Finder finds the addresses in place of Leader; nil: Leader has them.
	Finder Finder
	// Standby is the address of a coordinator that stands by and keeps this copy. It sends no
	// commands. Empty: the follower is a gateway's.
	Standby string
	// Tokens finds the token for the leader.
	Tokens token.Finder
	// Dial makes a connection to an address, without a token; nil: transport.Dial does, with the
	// token. A simulation has a network of its own.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// HistoryBytes bounds the changes that are kept for watches; default DefaultHistoryBytes. A
	// watch that is behind by more begins again with a snapshot.
	HistoryBytes int
	// MaxCommands bounds the commands that are under way; default DefaultMaxCommands, below the
	// leader's bound on replies. A quarter of it, and of MaxCommandBytes, is kept for agents'
	// commands.
	MaxCommands int
	// MaxCommandBytes bounds the encoded bytes of the commands that wait to be sent; default
	// DefaultMaxCommandBytes.
	MaxCommandBytes int
	// MinBackoff and MaxBackoff bound the pause before the follower connects again. The pause
	// doubles with each failure in a row, and half of it is random. While nobody listens at the
	// address it is at most a quarter of a second. Defaults DefaultMinBackoff and
	// DefaultMaxBackoff.
	MinBackoff, MaxBackoff time.Duration
	// Filter is the part of the state to copy; nil: everything.
	Filter *Filter
	// Version is the version of this program, which a refusal of another one names; default: the
	// one that the Go tool wrote into it.
	Version string
	// Events are the callbacks of the follower.
	Events FollowerEvents
}

// FollowerEvents are the callbacks of a Follower. A nil function is not called. None may block.
type FollowerEvents struct {
	// Live is called when the copy begins to follow a leader: after a snapshot, or at once if the
	// copy could be resumed.
	Live func(epoch, revision uint64, resumed bool)
	// Disconnected is called when a stream has ended or could not be opened. The pause before the
	// next try is 0 if the leader has already answered on another connection.
	Disconnected func(err error, pause time.Duration)
}

// Validate reports the first field that is wrong.
func (c *FollowerConfig) Validate() error {
	switch {
	case c.Gateway == "":
		return plimsoll.Invalid("gateway", "is empty; give each gateway its own id")
	case c.HistoryBytes < 0 ||
		c.MaxCommands < 0 || c.MaxCommandBytes < 0 || c.MinBackoff < 0 || c.MaxBackoff < 0:
		return plimsoll.Invalid("replication", "a bound is negative; give 0 for the default, or more")
	}
	if c.Finder == nil {
		if _, err := ParseFinder(c.Leader); err != nil {
			return err
		}
	}
	_, err := readFilter(c.Filter.toProto())
	return err
}

// Follower keeps a copy of the leader's state. Its methods may be called from any goroutine.
type Follower struct {
	config FollowerConfig
	filter *filter // of config
	finder Finder
	dial   dial
	relay  *Relay // nil: no gateway follows this one

	mirror  mirror // belongs to the receiving goroutine
	latest  atomic.Pointer[Snapshot]
	history atomic.Pointer[Changes] // Invariant: at the revision of latest, or a later one
	watches watches
	readers ChangeReaders // of history

	arrivals arrivals
	fresh    freshness
	metrics  *followerMetrics

	wake    chan struct{} // capacity 1: the sender has something to send
	suspect chan struct{} // capacity 1: a barrier has timed out

	mu struct {
		sync.Mutex
		pending pending
		asked   time.Time     // instant at which the round under way was sealed
		live    chan struct{} // closed while the copy follows a leader
	}
}

// NewFollower makes a Follower. It does nothing until Run is called.
func NewFollower(config FollowerConfig) (*Follower, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure the replica: %w", err)
	}
	return newFollower(config, func(ctx context.Context, address string) (*transport.ConnClient, error) {
		if config.Dial == nil {
			return transport.Dial(ctx, address, config.Tokens.For(address))
		}
		conn, err := config.Dial(ctx, address)
		if err != nil {
			return nil, err
		}
		return transport.NewWatchedClient(conn, address), nil
	}), nil
}

func newFollower(config FollowerConfig, dial dial) *Follower {
	if config.MinBackoff == 0 {
		config.MinBackoff = DefaultMinBackoff
	}
	if config.MaxBackoff == 0 {
		config.MaxBackoff = max(DefaultMaxBackoff, config.MinBackoff)
	}
	f := &Follower{config: config, dial: dial, wake: make(chan struct{}, 1), suspect: make(chan struct{}, 1)}
	f.filter, _ = readFilter(config.Filter.toProto()) // Validate has read it
	if f.finder = config.Finder; f.finder == nil {
		f.finder = addressList{places: []string{config.Leader}} // a test's address need not be one
		if places, err := ParseFinder(config.Leader); err == nil {
			f.finder = places
		}
	}
	if f.config.Version == "" {
		f.config.Version = builtVersion()
	}
	f.fresh.began = time.Now()
	f.metrics = newFollowerMetrics()
	f.mirror.historyBytes = config.HistoryBytes
	f.mu.pending.maxCalls = orDefault(config.MaxCommands, DefaultMaxCommands)
	f.mu.pending.maxBytes = orDefault(config.MaxCommandBytes, DefaultMaxCommandBytes)
	f.mu.live = make(chan struct{})
	return f
}

// Run follows the leader until ctx ends, and connects again whenever the stream ends. Then it
// returns nil.
func (f *Follower) Run(ctx context.Context) error {
	redial := newRedial(f.config.MinBackoff, f.config.MaxBackoff)
	var next *transport.ConnClient // a connection on which the leader has answered
	for {
		conn, wasLive, err := next, false, error(nil)
		if next = nil; conn == nil {
			conn, err = f.reach(ctx)
		}
		if err == nil {
			next, wasLive, err = f.follow(ctx, conn)
		}
		if ctx.Err() != nil {
			if next != nil {
				next.Cut()
			}
			return nil
		}
		if f.relay != nil {
			f.relay.suspend(unreadyPath(err))
		}
		var pause time.Duration
		if next == nil {
			pause = redial.after(wasLive, err, rand.Int64N)
		}
		f.metrics.ended(err)
		if report := f.config.Events.Disconnected; report != nil {
			report(err, pause)
		}
		if next == nil {
			wait(ctx, pause)
		}
	}
}

func wait(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

type clientStream = connect.BidiStreamForClient[pb.ReplicateRequest, pb.ReplicateResponse]

// follow opens a stream on a connection, follows it to its end and ends the connection. wasLive
// reports whether the copy became live. next is the connection to continue with, if there is one.
func (f *Follower) follow(ctx context.Context, conn *transport.ConnClient) (
	next *transport.ConnClient, wasLive bool, err error,
) {
	defer conn.Cut()
	ctx, cancelCause := context.WithCancelCause(ctx)
	cancel := func() { cancelCause(nil) }
	defer cancel()
	// A leader that accepts the stream and sends nothing on it counts as lost.
	helloTimer := time.AfterFunc(helloTimeout, func() { cancelCause(errSilent) })
	defer helloTimer.Stop()
	client := plimsollv1connect.NewReplicationServiceClient(conn.HTTP, conn.URL,
		wire.BoundedClient(responseBounds), connect.WithAcceptCompression("gzip", nil, nil))
	stream := client.Replicate(ctx)
	if err := stream.Send(f.hello()); err != nil && !errors.Is(err, io.EOF) {
		_, _ = stream.CloseRequest(), stream.CloseResponse() // there is no stream; Send has returned the cause
		return nil, false, fmt.Errorf("connect to the leader: %w", wire.FromConnectError(err))
	}
	var group errgroup.Group
	group.Go(func() error {
		defer cancel()
		f.send(ctx, stream)
		// Unless the request is closed, the transport that reads its body does not see the end of
		// the context. Receive returns the error, if there is one.
		_ = stream.CloseRequest()
		return nil
	})
	group.Go(func() error {
		defer cancel()
		var err error
		wasLive, err = f.receive(stream, helloTimer)
		return err
	})
	group.Go(func() error {
		var err error
		if next, err = f.monitor(ctx, conn); err != nil {
			cancelCause(err)
			conn.Cut() // a write to it might block for ever
		}
		return nil
	})
	err = group.Wait()
	f.disconnect()
	_ = stream.CloseResponse() // the stream has ended; Receive has returned the cause
	for _, cause := range []error{errSilent, errLost, errReplaced} {
		if errors.Is(context.Cause(ctx), cause) {
			err = cause
		}
	}
	return next, wasLive, err
}

// ErrHandover is in the error of Do for a command that was not sent because the leader hands
// leadership over. It can be sent once Ready returns nil.
var ErrHandover = errors.New("the leader hands leadership over")

// hold sends nothing more to a leader that hands leadership over.
func (f *Follower) hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.pending.held = true
	f.notLive()
	notify(f.wake)
}

// notLive makes Ready wait. The caller holds mu.
func (f *Follower) notLive() {
	select {
	case <-f.mu.live:
		f.mu.live = make(chan struct{})
	default: // the copy was not live
	}
}

// closing reports whether the leader of the current stream hands leadership over.
func (f *Follower) closing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.pending.held && f.mu.pending.open
}

// send sends syncs and commands until the stream ends. The receiver returns the cause of the end.
func (f *Follower) send(ctx context.Context, stream *clientStream) {
	for {
		request := f.nextRequest()
		if request == nil && f.closing() {
			_ = stream.CloseRequest() // the leader answers what was sent, and ends the stream
			<-ctx.Done()
			return
		}
		if request == nil {
			select {
			case <-ctx.Done():
				return
			case <-f.wake:
			}
			continue
		}
		if err := stream.Send(request); err != nil {
			return
		}
	}
}

func (f *Follower) nextRequest() *pb.ReplicateRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	request := f.mu.pending.next()
	if request.GetSync() != nil {
		f.mu.asked = time.Now()
	}
	return request
}

func (f *Follower) receive(stream *clientStream, helloTimer *time.Timer) (wasLive bool, err error) {
	for {
		response, err := stream.Receive()
		if err != nil {
			return wasLive, fmt.Errorf("follow the leader: %w", wire.FromConnectError(err))
		}
		helloTimer.Stop()
		if err := f.admissible(response); err != nil {
			return wasLive, fmt.Errorf("follow the leader: %w", err)
		}
		effect, err := f.mirror.step(response)
		if err != nil {
			return wasLive, fmt.Errorf("follow the leader: %w", err)
		}
		f.metrics.received(response, &effect)
		wasLive = wasLive || effect.live
		f.publish(&effect)
	}
}

// hello returns the first message of a stream.
func (f *Follower) hello() *pb.ReplicateRequest {
	request := f.mirror.open(f.config.Gateway)
	hello := request.GetHello()
	hello.Protocol, hello.OldestProtocol, hello.Version = protocol, oldestProtocolBelow, f.config.Version
	hello.Filter, hello.Standby = f.config.Filter.toProto(), f.config.Standby
	return request
}

// admissible returns an error for the answer of a process that this gateway cannot follow.
func (f *Follower) admissible(response *pb.ReplicateResponse) error {
	switch kind := response.GetKind().(type) {
	case *pb.ReplicateResponse_Unready:
		if i := slices.Index(kind.Unready.Path, f.config.Gateway); i >= 0 {
			ids := append([]string{f.config.Gateway}, kind.Unready.Path[:i+1]...)
			slices.Reverse(ids)
			return circle(ids)
		}
		return &unreadyError{kind.Unready.Path}
	case *pb.ReplicateResponse_Welcome:
		if i := slices.Index(kind.Welcome.Path, f.config.Gateway); i >= 0 {
			return circle(append(slices.Clone(kind.Welcome.Path[i:]), f.config.Gateway))
		}
		return accept(kind.Welcome, f.config.Version)
	}
	return nil
}

// unreadyError is the refusal of a relay that follows no leader.
type unreadyError struct{ path []string }

func (e *unreadyError) Error() string {
	return "this gateway follows " + strings.Join(e.path, ", which follows ") + ", which has no leader now"
}

// unreadyPath returns the relays that a refusal names; nil for any other error.
func unreadyPath(err error) []string {
	var unready *unreadyError
	if errors.As(err, &unready) {
		return unready.path
	}
	return nil
}

// publish makes an effect visible: it stores the history and the snapshot, then signals the
// watchers, then releases the round or the call (O3). At a relay the batch is in the log before. So
// at the gateways below it is in front of the acknowledgement or the reply (O1, O2).
func (f *Follower) publish(e *effect) {
	stream := f.connected(e)
	if e.snapshot != nil {
		f.history.Store(e.history)
		f.latest.Store(e.snapshot)
		f.arrivals.published()
	}
	switch {
	case f.relay == nil:
	case e.live:
		f.relay.begin(f.mirror.latest, e.snapshot == nil, f.mirror.path, stream)
	case e.batch != nil:
		f.relay.source.append(e.snapshot, e.batch)
	}
	if e.live {
		f.watches.signalAll()
		f.readers.Replaced(f.history.Load())
		if report := f.config.Events.Live; report != nil {
			report(f.mirror.latest.epoch, f.mirror.latest.revision, e.snapshot == nil)
		}
	} else if e.batch != nil {
		f.watches.signal(e.changes)
		f.readers.Publish(e.history)
	}
	if e.closing {
		f.hold()
	}
	if !e.live && e.ack == 0 && e.reply == nil {
		return
	}
	if deliver := f.release(e); deliver != nil {
		deliver(e.reply)
	}
}

// connected accepts rounds and commands once the leader has answered. For the effect that makes the
// copy live it returns the number of the stream.
func (f *Follower) connected(e *effect) (stream uint64) {
	if !e.connected && !e.live {
		return 0 // most messages: nobody asks
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.connected {
		f.mu.pending.connect()
	}
	return f.mu.pending.stream
}

// release releases the round or the call of an effect. deliver, if it is not nil, is to be called
// with the reply.
func (f *Follower) release(e *effect) (deliver func(*pb.Reply)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.live {
		close(f.mu.live)
	}
	if e.ack != 0 && f.mu.pending.acknowledges(e.ack) {
		f.fresh.prove(f.mu.asked)
		f.metrics.syncs.Observe(time.Since(f.mu.asked).Seconds())
		f.arrivals.published()
	}
	if e.ack != 0 && f.mu.pending.acknowledge(e.ack, f.mirror.latest) {
		notify(f.wake)
	}
	if e.reply != nil {
		return f.mu.pending.answer(e.reply)
	}
	return nil
}

// pass passes a command of a gateway below up. It came while the given stream was the current one.
func (f *Follower) pass(stream uint64, gateway string, command *pb.Command, respond func(*pb.Reply)) {
	f.mu.Lock()
	err := f.mu.pending.pass(stream, gateway, command, respond)
	f.mu.Unlock()
	if err != nil {
		respond(&pb.Reply{Error: wire.ErrorToProto(err)})
		return
	}
	notify(f.wake)
}

// announce tells the leader of a gateway below. The news belongs to the given stream.
func (f *Follower) announce(stream uint64, news *pb.ReplicateDownstream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.pending.announce(stream, news)
	notify(f.wake)
}

// unannounced returns how many news wait to be sent.
func (f *Follower) unannounced() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.pending.news
}

func (f *Follower) disconnect() {
	if f.relay != nil {
		f.relay.suspend(nil)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.pending.disconnect()
	f.notLive()
}
