package wire

import (
	"context"
	"errors"
	"net"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// The values of the field reason of the message Error.
const (
	ReasonNoEffect       = "no_effect"
	ReasonOutcomeUnknown = "outcome_unknown"
)

// reasonOf returns the reason that a code implies for the effect of the call; empty: none.
func reasonOf(code plimsoll.Code) string {
	switch code {
	case plimsoll.CodeOutcomeUnknown:
		return ReasonOutcomeUnknown
	case plimsoll.CodeInternal, plimsoll.CodeCorrupt: // a fault may come before the change or after it
		return ""
	}
	return ReasonNoEffect
}

// FromReadError is FromConnectError for a call that changes nothing. If the call was canceled
// although the caller's ctx has not ended, the server or the connection cut it: CodeUnavailable.
func FromReadError(ctx context.Context, err error) error {
	err = FromConnectError(err)
	if err == nil || ctx.Err() != nil || !endsWithContext(plimsoll.CodeOf(err)) {
		return err
	}
	return plimsoll.Errorf(plimsoll.CodeUnavailable, // the caller has not canceled, whatever the server says
		"the server ended the call, as one does that is being stopped; jobs go on: try again")
}

// FromChangeError is FromConnectError for a call that changes something. Every error but
// CodeOutcomeUnknown says that the call had no effect. The server states this itself. After a
// broken connection, a caller that gave up, or an answer of another program, the effect is unknown,
// unless the server was never reached.
func FromChangeError(err error) error {
	if err == nil {
		return nil
	}
	var rpc *connect.Error
	out := FromConnectError(err)
	if hadNoEffect(err, out) {
		return out
	}
	if errors.As(err, &rpc) {
		if m := detailOf(rpc); m != nil && m.GetReason() == ReasonOutcomeUnknown {
			told := fromProto(m)
			told.Code = plimsoll.CodeOutcomeUnknown // even if a newer server has another code for it
			return told
		}
	}
	return &plimsoll.Error{
		Code: plimsoll.CodeOutcomeUnknown, Err: out,
		Msg: "the outcome is not known: the change was made or not; look before you try again",
	}
}

// hadNoEffect reports whether the error of a call proves that nothing was changed. out is the
// user's form of err.
func hadNoEffect(err error, out error) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return true
	}
	var rpc *connect.Error
	if !errors.As(err, &rpc) {
		return false
	}
	if m := detailOf(rpc); m != nil {
		return m.GetReason() == ReasonNoEffect || m.GetReason() == "" && refuses(m)
	}
	var own *plimsoll.Error
	if errors.As(err, &own) && !errors.Is(own, rpc) { // the call was not sent, for example for lack of a token
		return true
	}
	switch plimsoll.CodeOf(out) { // from a proxy or a listener, which did not pass the request on
	case plimsoll.CodeDenied, plimsoll.CodeUnauthenticated, plimsoll.CodeUnimplemented:
		return true
	case plimsoll.CodeInvalid, plimsoll.CodeExhausted: // this side has the same codes for an answer that is too large
		return connect.IsWireError(rpc)
	}
	return false
}

// refuses reports whether an error of an older server, which gives no reason, is a refusal. Such a
// server used the other codes for unknown outcomes too.
func refuses(m *pb.Error) bool {
	switch plimsoll.ParseCode(m.GetCode()) {
	case plimsoll.CodeInternal, plimsoll.CodeCorrupt, plimsoll.CodeUnavailable, plimsoll.CodeDeadline,
		plimsoll.CodeCanceled:
		return false
	}
	return true
}

func endsWithContext(code plimsoll.Code) bool {
	return code == plimsoll.CodeCanceled || code == plimsoll.CodeDeadline
}
