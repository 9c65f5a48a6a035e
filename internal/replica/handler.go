package replica

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	// helloTimeout bounds the silence at the beginning of a stream.
	helloTimeout = 10 * time.Second
	// sendGrace bounds a Send that is still under way when its session ends.
	sendGrace = time.Second
)

// requestBounds are the bounds of one message of a gateway. They exceed a gateway's own bound of 8
// MiB on a request, which it counts in the same way.
var requestBounds = wire.Bounds{Bytes: 10 << 20, Decoded: 48 << 20}

// Exec passes a gateway's command to the engine. It must not block long: the stream's later
// commands wait behind it. FootprintOf(ctx) returns the approximate bytes of the command. ctx ends
// with the stream; the command's outcome does not depend on it.
//
// Exec calls respond once, from any goroutine, after the batch with the command's effect was
// published. respond never blocks, and sets the reply's id.
type Exec func(ctx context.Context, gateway string, command *pb.Command, respond func(*pb.Reply))

type footprintKey struct{}

// FootprintOf returns the approximate bytes of the command that Exec was given with ctx, as
// wire.Footprint counts them. It is 0 for a command that did not come over a stream.
func FootprintOf(ctx context.Context) int {
	n, _ := ctx.Value(footprintKey{}).(int)
	return n
}

// NewHandler returns the handler of a source's replication streams, and its path.
func NewHandler(source *Source, exec Exec) (path string, _ http.Handler) {
	return newHandler(&handler{source: source, exec: exec, onGatewayLost: func(string) {}})
}

func newHandler(h *handler) (path string, _ http.Handler) {
	return "/" + plimsollv1connect.ReplicationServiceName + "/", http.HandlerFunc(func(
		w http.ResponseWriter, r *http.Request,
	) {
		one := *h
		// Nothing is compressed: between machines of one network, compression costs more than
		// bytes.
		_, inner := plimsollv1connect.NewReplicationServiceHandler(
			&one, wire.BoundedWeighed(requestBounds, func(n int) { one.footprint = n }),
		)
		ctx := context.WithValue(r.Context(), controllerKey{}, http.NewResponseController(w))
		ctx = context.WithValue(ctx, arrivalKey{}, transport.ArrivalOf(r))
		inner.ServeHTTP(w, r.WithContext(ctx))
	})
}

// NewRefusal returns a handler, and its path, for a process that does not lead: it answers every
// replication stream with the error that why returns.
func NewRefusal(why func() error) (path string, _ http.Handler) {
	return plimsollv1connect.NewReplicationServiceHandler(refusal{why}, wire.BoundedPlain(requestBounds))
}

type refusal struct{ why func() error }

// Replicate refuses a stream.
func (r refusal) Replicate(context.Context, *bidiStream) error { return wire.ConnectError(r.why()) }

// controllerKey is the context key of a request's http.ResponseController. Connect hands out
// neither the request nor the writer, and only their deadlines end a blocked Receive or Send.
type controllerKey struct{}

// arrivalKey is the context key of a request's transport.Arrival.
type arrivalKey struct{}

// handler serves one stream.
type handler struct {
	source        *Source
	exec          Exec
	onGatewayLost func(gateway string) // called when the last stream of a gateway has ended; for tests
	footprint     int                  // of the newest message; belongs to the receiving goroutine
}

type bidiStream = connect.BidiStream[pb.ReplicateRequest, pb.ReplicateResponse]

// stream runs one session over an RPC: the session decides, the stream does the I/O.
type stream struct {
	gateway string
	standby string // address of the coordinator that stands by and keeps the copy; empty: a gateway
	rpc     *bidiStream
	above   uint64 // at a relay: number of the follower's stream within which this one lasts

	// The gateways behind this one, by id. They belong to the receiving goroutine.
	below  map[string]behind
	behind int // Invariant: the sum of their streams, and at most SourceConfig.MaxGateways

	// Guarded by Source.mu.
	session session
	sending bool // a Send is under way
	owed    int  // commands without an answer
	// halfClosed says that the gateway sends nothing more, because it was asked to.
	halfClosed bool
	control    *http.ResponseController // nil once the handler returns, after which it must not be used

	wake  chan struct{} // capacity 1: the sender has something to send
	prove chan struct{} // capacity 1: a proof of leadership is due
}

// Replicate serves one stream. One goroutine receives, one sends, and a third proves leadership if
// the source has Confirm.
func (h *handler) Replicate(ctx context.Context, rpc *bidiStream) error {
	control, ok := ctx.Value(controllerKey{}).(*http.ResponseController)
	if !ok {
		return wire.ConnectError(errors.New("the replication handler was called without its wrapper"))
	}
	if err := control.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return wire.ConnectError(err)
	}
	first, err := rpc.Receive()
	if h.refused(err) {
		return wire.ConnectError(wire.FromConnectError(err))
	}
	if err != nil {
		return wire.ConnectError(
			plimsoll.Invalid("hello", "did not come within %s of opening the stream", helloTimeout),
		)
	}
	if arrival, _ := ctx.Value(arrivalKey{}).(*transport.Arrival); arrival != nil {
		arrival.Whole() // a stream has no end, so its body counts as arrived
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return wire.ConnectError(err)
	}
	st := &stream{
		gateway: first.GetHello().GetGateway(), standby: first.GetHello().GetStandby(), rpc: rpc, control: control,
		wake:  make(chan struct{}, 1),
		prove: make(chan struct{}, 1),
	}
	if err := h.source.open(st, first.GetHello()); err != nil {
		if unready := h.source.unready(); unready != nil {
			_ = rpc.Send(unready) // the error says the same to a person
		}
		return wire.ConnectError(err)
	}
	if st.standby == "" {
		h.source.connected(st, st.gateway, st.session.welcome.Resumed)
	}
	err = h.run(context.WithValue(ctx, aboveKey{}, st.above), st)
	h.source.countEnd(st, err)
	for gateway, b := range st.below {
		for range b.streams {
			h.source.left(st, gateway, err)
		}
	}
	if st.standby == "" {
		h.source.disconnected(st, st.gateway, err)
	}
	if h.source.remove(st) {
		h.onGatewayLost(st.gateway)
	}
	return wire.ConnectError(err)
}

func (h *handler) run(ctx context.Context, st *stream) error {
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { h.source.cut(st) })
	defer stop()
	group.Go(func() error { return h.receive(ctx, st) })
	group.Go(func() error { return h.source.send(ctx, st) })
	if confirm := h.source.config.Confirm; confirm != nil {
		group.Go(func() error { return h.source.proveLeadership(ctx, st, confirm) })
	}
	err := group.Wait()
	if errors.Is(err, errHalfClosed) {
		return nil
	}
	return h.source.cause(st, err)
}

// errHalfClosed ends the goroutines of a stream that the gateway has ended in good order.
var errHalfClosed = errors.New("the gateway ended the stream")

// cut ends the session of a stream, and makes a blocked Receive or Send return.
func (s *Source) cut(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.end(errStreamEnded)
	if st.control != nil {
		// The only error is that deadlines are not supported, and one was set when the stream was
		// opened.
		_ = st.control.SetReadDeadline(time.Unix(1, 0))
	}
}

// end ends the session. The caller holds Source.mu.
func (st *stream) end(err error) { st.endFor(0, err) }

// endFor is end for a reason that the metrics name. The caller holds Source.mu.
func (st *stream) endFor(reason streamEnd, err error) {
	st.session.endFor(reason, err)
	st.wakeSender()
}

// wakeSender wakes the sender after a step of the session. If the session has ended, a Send under
// way gets sendGrace to finish, so that the sender can send the cause to the gateway. A Send that
// is still blocked then fails. The caller holds Source.mu.
func (st *stream) wakeSender() {
	if st.session.phase == phaseEnded && st.sending && st.control != nil {
		// The only error is that deadlines are not supported, and one was set when the stream was
		// opened.
		_ = st.control.SetWriteDeadline(time.Now().Add(sendGrace))
	}
	notify(st.wake)
}

func (h *handler) receive(ctx context.Context, st *stream) error {
	for {
		request, err := st.rpc.Receive()
		if errors.Is(err, io.EOF) {
			if h.source.halfClose(st) {
				return nil
			}
			return errHalfClosed
		}
		if err != nil {
			h.refused(err)
			return wire.FromConnectError(err)
		}
		if st.standby != "" && request.GetSync() == nil {
			return plimsoll.Invalid("kind", "only syncs may follow the hello of a coordinator that stands by")
		}
		switch kind := request.GetKind().(type) {
		case *pb.ReplicateRequest_Sync:
			err = h.source.sync(st, kind.Sync.GetId())
		case *pb.ReplicateRequest_Command:
			err = h.command(ctx, st, kind.Command)
		case *pb.ReplicateRequest_Downstream:
			err = h.source.downstream(st, kind.Downstream)
		default:
			err = plimsoll.Invalid("kind", "only syncs, commands and gateways behind a relay may follow the hello")
		}
		if err != nil {
			return err
		}
	}
}

// command passes a command on. It comes from the gateway of the stream, or from one behind it.
func (h *handler) command(ctx context.Context, st *stream, command *pb.Command) error {
	gateway, respond := st.gateway, h.source.responder(st, command.GetId())
	h.source.owe(st)
	if from := command.GetGateway(); from != "" {
		if st.below[from].streams == 0 {
			return plimsoll.Invalid("command.gateway", "is none that was announced on this stream")
		}
		if err := h.source.introduce(st, from); err != nil {
			respond(&pb.Reply{Error: wire.ErrorToProto(err)})
			return nil
		}
		gateway = from
	}
	h.exec(context.WithValue(ctx, footprintKey{}, h.footprint), gateway, command, respond)
	return nil
}

// refused reports whether Receive failed because a message was over the bounds or could not be
// decoded, and calls SourceEvents.Refused if so.
func (h *handler) refused(err error) bool {
	code := connect.CodeOf(err)
	if err == nil || code != connect.CodeInvalidArgument && code != connect.CodeResourceExhausted {
		return false
	}
	if f := h.source.config.Events.Refused; f != nil {
		f(err)
	}
	return true
}

// responder returns the function that answers one command; a second call of it does nothing.
func (s *Source) responder(st *stream, id uint64) func(*pb.Reply) {
	var once sync.Once
	return func(reply *pb.Reply) {
		once.Do(func() {
			reply.Id = id
			s.mu.Lock()
			defer s.mu.Unlock()
			st.session.reply(reply)
			st.owed--
			st.wakeSender()
		})
	}
}

func (s *Source) sync(st *stream, id uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := st.session.sync(id); err != nil {
		return err
	}
	if st.session.proof {
		notify(st.prove)
		return nil
	}
	notify(st.wake)
	return nil
}

// proveLeadership calls Confirm once for each sync before its acknowledgement.
func (s *Source) proveLeadership(ctx context.Context, st *stream, confirm func(context.Context) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-st.prove:
		}
		for s.takeProof(st) {
			err := confirm(ctx)
			if ctx.Err() != nil {
				return nil
			}
			s.proofDone(st, err)
		}
	}
}

func (s *Source) takeProof(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.session.takeProof()
}

func (s *Source) proofDone(st *stream, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.session.proofDone(err)
	st.wakeSender()
}

// send sends the session's messages. It is the stream's only sender.
func (s *Source) send(ctx context.Context, st *stream) error {
	timer, turn := s.sendTimer(st), s.turnTimer(st)
	defer timer.Stop()
	defer turn.Stop()
	for {
		out, ok, err := s.next(st)
		if err != nil {
			return err
		}
		if ok {
			message, err := out.response()
			if err != nil {
				return err
			}
			if message == nil {
				continue // the stream's filter leaves nothing
			}
			timer.Reset(unreadTimeout)
			if out.part != nil {
				turn.Reset(turnTimeout)
			}
			err = st.rpc.Send(message)
			timer.Stop()
			turn.Stop()
			if err != nil {
				return wire.FromConnectError(err)
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-st.wake:
		}
	}
}

func (s *Source) next(st *stream) (out outgoing, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, ok = st.session.next()
	if st.sending = ok; !ok {
		s.drains()
	}
	if st.session.proving.id != 0 && !st.session.proofRuns {
		notify(st.prove)
	}
	if !ok {
		err = st.session.err
	}
	return out, ok, err
}
