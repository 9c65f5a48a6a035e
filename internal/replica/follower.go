package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

// responseBounds are those of one message of a leader. A batch is as large as its store lets it be, which is 16 MiB by default, and
// comes as one field of bytes; a part of a snapshot is of 256 KiB, or one record.
var responseBounds = wire.Bounds{Bytes: 256 << 20, Decoded: 512 << 20}

// FollowerConfig says how a gateway follows the leader. Zero values stand for the defaults.
type FollowerConfig struct {
	Gateway string // this gateway's id
	Leader  string // the leader's address, as package transport reads it
	// Tokens finds the token for the leader.
	Tokens token.Finder
	// EventCapacity is the size of the copy's event ring; default ring.DefaultCapacity.
	EventCapacity int
	// MaxCommands bounds the commands that are under way; default DefaultMaxCommands, below the leader's bound on replies.
	// A quarter of it, and of MaxCommandBytes, is for what agents say.
	MaxCommands int
	// MaxCommandBytes bounds, encoded, the commands that wait to be sent; default DefaultMaxCommandBytes.
	MaxCommandBytes int
	// MinBackoff and MaxBackoff bound the pause before the follower connects again: it doubles with
	// each failure in a row, and half of it is random. While nobody listens at the address it is a
	// quarter of a second at most. Defaults DefaultMinBackoff and DefaultMaxBackoff.
	MinBackoff, MaxBackoff time.Duration
	// Events tells what happens.
	Events FollowerEvents
}

// FollowerEvents tells what happens at a follower. A nil function is not called. They must not block.
type FollowerEvents struct {
	// Live is called when the copy follows a leader: after a snapshot, or at once if it could be resumed.
	Live func(epoch, revision uint64, resumed bool)
	// Disconnected is called when a stream has ended or could not be opened, with the pause before
	// the next try: 0 if the leader has already answered on another connection.
	Disconnected func(err error, pause time.Duration)
}

// Validate reports the first field that is wrong.
func (c *FollowerConfig) Validate() error {
	switch {
	case c.Gateway == "":
		return plimsoll.Invalid("gateway", "is empty; give each gateway its own id")
	case c.EventCapacity < 0 || c.MaxCommands < 0 || c.MaxCommandBytes < 0 || c.MinBackoff < 0 || c.MaxBackoff < 0:
		return plimsoll.Invalid("replication", "a bound is negative; give 0 for the default, or more")
	}
	if _, _, err := transport.Split(c.Leader); err != nil {
		return fmt.Errorf("read the leader's address: %w", err)
	}
	return nil
}

// Follower keeps a copy of the leader's state. Its methods may be called from any goroutine.
type Follower struct {
	config FollowerConfig
	dial   dial

	mirror  mirror // the receiving goroutine's alone
	latest  atomic.Pointer[Snapshot]
	watches watches
	wake    chan struct{} // capacity 1: the sender has to look
	doubt   chan struct{} // capacity 1: a barrier has timed out

	mu struct {
		sync.Mutex
		link link
		live chan struct{} // closed while the copy follows a leader
	}
}

// NewFollower makes a follower; Run makes it follow.
func NewFollower(config FollowerConfig) (*Follower, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure the replica: %w", err)
	}
	tokens := config.Tokens.For(config.Leader)
	return newFollower(config, func(ctx context.Context) (*transport.ConnClient, error) {
		return transport.Dial(ctx, config.Leader, tokens)
	}), nil
}

func newFollower(config FollowerConfig, dial dial) *Follower {
	if config.MinBackoff == 0 {
		config.MinBackoff = DefaultMinBackoff
	}
	if config.MaxBackoff == 0 {
		config.MaxBackoff = max(DefaultMaxBackoff, config.MinBackoff)
	}
	f := &Follower{config: config, dial: dial, wake: make(chan struct{}, 1), doubt: make(chan struct{}, 1)}
	f.mirror.eventCapacity = config.EventCapacity
	f.mu.link.maxCalls = orDefault(config.MaxCommands, DefaultMaxCommands)
	f.mu.link.maxBytes = orDefault(config.MaxCommandBytes, DefaultMaxCommandBytes)
	f.mu.live = make(chan struct{})
	return f
}

// Run follows the leader, connecting again whenever the stream ends, until ctx ends; then it returns nil.
func (f *Follower) Run(ctx context.Context) error {
	redial := newRedial(f.config.MinBackoff, f.config.MaxBackoff)
	var next *transport.ConnClient // on which the leader has answered
	for {
		link, lived, err := next, false, error(nil)
		if next = nil; link == nil {
			link, err = f.reach(ctx)
		}
		if err == nil {
			next, lived, err = f.follow(ctx, link)
		}
		if ctx.Err() != nil {
			if next != nil {
				next.Cut()
			}
			return nil
		}
		var pause time.Duration
		if next == nil {
			pause = redial.after(lived, err, rand.Int64N)
		}
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

// follow opens a stream on a connection, follows it to its end and ends the connection. lived
// reports whether the copy became live; next is the connection to go on with, if there is one.
func (f *Follower) follow(ctx context.Context, link *transport.ConnClient) (
	next *transport.ConnClient, lived bool, err error,
) {
	defer link.Cut()
	ctx, cancelCause := context.WithCancelCause(ctx)
	cancel := func() { cancelCause(nil) }
	defer cancel()
	// A leader that takes the stream and then says nothing on it is as good as none.
	silence := time.AfterFunc(helloTimeout, func() { cancelCause(errSilent) })
	defer silence.Stop()
	client := plimsollv1connect.NewReplicationServiceClient(link.HTTP, link.URL,
		wire.BoundedClient(responseBounds), connect.WithAcceptCompression("gzip", nil, nil))
	stream := client.Replicate(ctx)
	if err := stream.Send(f.mirror.open(f.config.Gateway)); err != nil && !errors.Is(err, io.EOF) {
		_, _ = stream.CloseRequest(), stream.CloseResponse() // there is no stream; Send has said why
		return nil, false, fmt.Errorf("connect to the leader: %w", wire.FromConnectError(err))
	}
	var group errgroup.Group
	group.Go(func() error {
		defer cancel()
		f.send(ctx, stream)
		// Without it the transport, which reads the request's body, would not see that the context has ended. Receive finds out more.
		_ = stream.CloseRequest()
		return nil
	})
	group.Go(func() error {
		defer cancel()
		var err error
		lived, err = f.receive(stream, silence)
		return err
	})
	group.Go(func() error {
		var err error
		if next, err = f.watch(ctx, link); err != nil {
			cancelCause(err)
			link.Cut() // what is written to it waits for ever
		}
		return nil
	})
	err = group.Wait()
	f.disconnect()
	_ = stream.CloseResponse() // the stream has ended, and Receive has said why
	for _, cause := range []error{errSilent, errLost, errReplaced} {
		if errors.Is(context.Cause(ctx), cause) {
			err = cause
		}
	}
	return next, lived, err
}

// send sends syncs and commands until the stream ends. Why it ended is for the receiver to find.
func (f *Follower) send(ctx context.Context, stream *clientStream) {
	for {
		request := f.nextRequest()
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
	return f.mu.link.next()
}

func (f *Follower) receive(stream *clientStream, silence *time.Timer) (lived bool, err error) {
	for {
		response, err := stream.Receive()
		if err != nil {
			return lived, fmt.Errorf("follow the leader: %w", wire.FromConnectError(err))
		}
		silence.Stop()
		effect, err := f.mirror.step(response)
		if err != nil {
			return lived, fmt.Errorf("follow the leader: %w", err)
		}
		lived = lived || effect.live
		f.take(&effect)
	}
}

// take makes an effect visible: first the snapshot, then the signals, then those who wait (O3).
func (f *Follower) take(e *effect) {
	if e.snapshot != nil {
		f.latest.Store(e.snapshot)
	}
	if e.live {
		f.watches.signalAll()
		if report := f.config.Events.Live; report != nil {
			report(f.mirror.latest.epoch, f.mirror.latest.revision, e.snapshot == nil)
		}
	} else if len(e.changes) > 0 {
		f.watches.signal(e.changes)
	}
	if !e.connected && !e.live && e.ack == 0 && e.reply == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.connected {
		f.mu.link.connect()
	}
	if e.live {
		close(f.mu.live)
	}
	if e.ack != 0 && f.mu.link.acknowledge(e.ack, f.mirror.latest) {
		notify(f.wake)
	}
	if e.reply != nil {
		f.mu.link.answer(e.reply)
	}
}

func (f *Follower) disconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.link.disconnect()
	select {
	case <-f.mu.live:
		f.mu.live = make(chan struct{})
	default: // it had not become live
	}
}

// Latest returns the newest snapshot, which may be behind the leader by any amount; nil before the first.
func (f *Follower) Latest() *Snapshot { return f.latest.Load() }

// Connected reports whether the copy follows a leader now.
func (f *Follower) Connected() bool {
	select {
	case <-f.liveNow():
		return true
	default:
		return false
	}
}

func (f *Follower) liveNow() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.live
}

// Ready returns nil once the copy follows a leader.
func (f *Follower) Ready(ctx context.Context) error {
	select {
	case <-f.liveNow():
		return nil
	case <-ctx.Done():
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "this gateway has not reached the leader at %s yet; try again", f.config.Leader)
	}
}

// Watch returns a channel of capacity one that gets a signal after a record with that key has changed and the change can be seen in
// Latest; several changes may give one signal. wire.KindTask is watched by node id: the signal comes when a task that is or was
// bound to the node changes; wire.KindPolicy by the empty key: the signal comes when any policy changes. After each (re)connection every channel gets one. Who watches calls Watch first and reads then, so
// as to miss nothing, and calls cancel at the end.
func (f *Follower) Watch(kind wire.Kind, key string) (changed <-chan struct{}, cancel func()) {
	return f.watches.add(kind, key)
}

// Barrier returns a snapshot that holds everything that was committed when the call began. It costs one round trip to the leader,
// shared with all who wait at the same time. Without a leader it fails at once with CodeUnavailable; it never answers from a copy
// that may be stale. One that times out makes the follower check its connection.
func (f *Follower) Barrier(ctx context.Context) (*Snapshot, error) {
	r, err := f.join()
	if err != nil {
		return nil, err
	}
	notify(f.wake)
	select {
	case <-r.done:
		return r.snapshot, r.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			notify(f.doubt)
		}
		return nil, ended(ctx, "the leader did not confirm in time that this gateway's copy is fresh; try again")
	}
}

func (f *Follower) join() (*round, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.link.join()
}

// Do sends a command to the leader and returns its reply; it gives the command an id of its own. By then the command's effect
// stands in Latest. What the leader refused is returned as its error, beside the reply. CodeUnavailable says that the gateway
// is not connected, or that the connection broke before the reply; the error says whether the outcome is known.
func (f *Follower) Do(ctx context.Context, command *pb.Command) (*pb.Reply, error) {
	c, err := f.addCall(command)
	if err != nil {
		return nil, err
	}
	notify(f.wake)
	select {
	case <-c.done:
	case <-ctx.Done():
		if f.dropCall(c) {
			return nil, ended(ctx, "the leader has not replied: the outcome is not known; ask again")
		}
		return nil, ended(ctx, "the command was not sent; try again")
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.reply, wire.ErrorFromProto(c.reply.GetError())
}

func (f *Follower) addCall(command *pb.Command) (*call, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.link.add(command)
}

func (f *Follower) dropCall(c *call) (sent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.link.drop(c)
}

// ended turns the end of a caller's context into our error.
func ended(ctx context.Context, msg string) error {
	code := plimsoll.CodeCanceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = plimsoll.CodeDeadline
	}
	return &plimsoll.Error{Code: code, Msg: msg, Err: context.Cause(ctx)}
}
