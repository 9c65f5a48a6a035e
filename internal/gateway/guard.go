package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// guard is the interceptor of every RPC: it catches panics, gives errors their code, reports faults
// and counts outcomes.
type guard struct{ g *Gateway }

// WrapUnary implements connect.Interceptor.
func (gd guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (resp connect.AnyResponse, err error) {
		defer func() {
			if err = gd.outcome(ctx, req.Spec().Procedure, recover(), err); err != nil {
				resp = nil
			}
		}()
		if err := checkRequest(req.Spec().Procedure, req.Any()); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// call is WrapUnary for a read that is served without connect. The request is checked.
func (gd guard) call(ctx context.Context, procedure string, read func() error) (err error) {
	defer func() { err = gd.outcome(ctx, procedure, recover(), err) }()
	return read()
}

// checkRequest fails for unknown enumeration numbers in a user's request, and for unknown fields in
// one for a read. An agent may be of a
// newer version, so AgentService checks its own enumerations.
func checkRequest(procedure string, request any) error {
	m, ok := request.(proto.Message)
	if !ok || strings.HasPrefix(procedure, agentPaths) {
		return nil
	}
	if err := checkKnown(procedure, m); err != nil {
		return err
	}
	return wire.CheckEnums(m)
}

// checkKnown fails for a read with a field that this version does not know. Such a field comes from
// a newer caller: a criterion that was ignored would choose too much. Writes are left to the
// leader.
func checkKnown(procedure string, m proto.Message) error {
	unknown := m.ProtoReflect().GetUnknown()
	if len(unknown) == 0 {
		return nil
	}
	_, method, _ := strings.Cut(strings.TrimPrefix(procedure, "/"), "/")
	if !strings.HasPrefix(method, "Get") && !strings.HasPrefix(method, "List") && !strings.HasPrefix(method, "Watch") {
		return nil
	}
	number, _, _ := protowire.ConsumeTag(unknown)
	return plimsoll.Invalid(fmt.Sprintf("field %d", number),
		"of %s is not known to this gateway, which may be older than the caller; leave it out, or ask a newer one",
		m.ProtoReflect().Descriptor().Name())
}

// WrapStreamingHandler implements connect.Interceptor.
func (gd guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
		kept := &keptStream{StreamingHandlerConn: conn, ctx: ctx, done: func() {}}
		defer func() {
			kept.done()
			err = gd.outcome(ctx, conn.Spec().Procedure, recover(), err)
		}()
		return next(ctx, kept)
	}
}

// WrapStreamingClient implements connect.Interceptor; a gateway's handlers are no clients.
func (gd guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// outcome returns the error for the caller of an RPC that returned err or panicked.
func (gd guard) outcome(ctx context.Context, procedure string, panicked any, err error) error {
	if e, ok := panicked.(error); ok && errors.Is(e, http.ErrAbortHandler) {
		panic(panicked) // net/http expects this panic
	}
	if panicked != nil {
		err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
	}
	if err == nil {
		gd.g.metrics.count(procedure, "ok")
		return nil
	}
	// An unwrapped error of connect comes from connect itself, which could not read or not send.
	if _, spoken := err.(*connect.Error); spoken { //nolint:errorlint // a wrapped one is a handler's
		code := plimsoll.CodeOf(wire.FromConnectError(err))
		if ctx.Err() != nil {
			code = plimsoll.CodeCanceled
		}
		gd.g.metrics.count(procedure, code.String())
		return err
	}
	told := wire.ConnectError(err)
	code := plimsoll.CodeOf(wire.FromConnectError(told))
	if code == plimsoll.CodeInternal || code == plimsoll.CodeCorrupt {
		gd.g.cfg.Events.Fault(procedure, err)
	}
	gd.g.metrics.count(procedure, code.String())
	if code == plimsoll.CodeUnavailable {
		retryLater(told)
	}
	if code == plimsoll.CodeCanceled { // the caller has not canceled: it still waits
		return wire.ConnectError(errStopping)
	}
	return told
}

// retryLater tells the caller of an RPC when to try again.
func retryLater(told error) {
	var rpc *connect.Error
	if errors.As(told, &rpc) {
		rpc.Meta().Set("Retry-After", retryAfter)
	}
}

// errStopping is the error for a caller whose call the gateway has ended.
var errStopping = plimsoll.Errorf(plimsoll.CodeUnavailable,
	"the gateway ended the call, as one does that is being stopped; try again")
