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

// reasonOf says what a code tells of the effect of the call; empty: nothing.
func reasonOf(code plimsoll.Code) string {
	switch code {
	case plimsoll.CodeOutcomeUnknown:
		return ReasonOutcomeUnknown
	case plimsoll.CodeInternal, plimsoll.CodeCorrupt: // a fault may have come before the change or after it
		return ""
	}
	return ReasonNoEffect
}

// FromReadError is FromConnectError for a call that changes nothing. A call that ended although the
// caller's ctx has not was cut by the server or by the connection: CodeUnavailable.
func FromReadError(ctx context.Context, err error) error {
	err = FromConnectError(err)
	if err == nil || ctx.Err() != nil || !endsWithContext(plimsoll.CodeOf(err)) {
		return err
	}
	return plimsoll.Errorf(plimsoll.CodeUnavailable, // what the server says of its caller is not so
		"the server ended the call, as one does that is being stopped; jobs go on: try again")
}

// FromChangeError is FromConnectError for a call that changes something. Every error but
// CodeOutcomeUnknown says that the call had no effect. The server says so itself; of a connection
// that broke, a caller that gave up, or an answer of another program it is not known, unless the
// server was never reached.
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
			told.Code = plimsoll.CodeOutcomeUnknown // also if a newer server has another code for it
			return told
		}
	}
	return &plimsoll.Error{
		Code: plimsoll.CodeOutcomeUnknown, Err: out,
		Msg: "the outcome is not known: the change was made or not; look before you try again",
	}
}

// hadNoEffect reports whether an error of a call, which is out to a user, says that nothing was
// changed.
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
	if errors.As(err, &own) && !errors.Is(own, rpc) { // it was not sent: there is no token, for example
		return true
	}
	switch plimsoll.CodeOf(out) { // of a proxy, or of the guard of a listener: it did not pass the request on
	case plimsoll.CodeDenied, plimsoll.CodeUnauthenticated, plimsoll.CodeUnimplemented:
		return true
	case plimsoll.CodeInvalid, plimsoll.CodeExhausted: // this side says it too, of an answer that is too large
		return connect.IsWireError(rpc)
	}
	return false
}

// refuses reports whether an error of an older server, which gives no reason, is a refusal. With
// other codes it told also of outcomes that are not known.
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
