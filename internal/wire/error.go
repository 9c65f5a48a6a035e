package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// statusClientClosed is the status that proxies log for a caller that went away; net/http has no
// name for it.
const statusClientClosed = 499

// codes is the one table from Plimsoll's codes to RPC codes and HTTP statuses. reasonOf has their
// meaning for the effect of a call.
var codes = [plimsoll.NumCodes]struct {
	rpc  connect.Code
	http int
}{
	plimsoll.CodeInternal:       {connect.CodeInternal, http.StatusInternalServerError},
	plimsoll.CodeInvalid:        {connect.CodeInvalidArgument, http.StatusBadRequest},
	plimsoll.CodeNotFound:       {connect.CodeNotFound, http.StatusNotFound},
	plimsoll.CodeAlreadyExists:  {connect.CodeAlreadyExists, http.StatusConflict},
	plimsoll.CodeConflict:       {connect.CodeFailedPrecondition, http.StatusConflict},
	plimsoll.CodeUnavailable:    {connect.CodeUnavailable, http.StatusServiceUnavailable},
	plimsoll.CodeExhausted:      {connect.CodeResourceExhausted, http.StatusTooManyRequests},
	plimsoll.CodeDenied:         {connect.CodePermissionDenied, http.StatusForbidden},
	plimsoll.CodeStale:          {connect.CodeAborted, http.StatusConflict},
	plimsoll.CodeDeadline:       {connect.CodeDeadlineExceeded, http.StatusGatewayTimeout},
	plimsoll.CodeCanceled:       {connect.CodeCanceled, statusClientClosed},
	plimsoll.CodeCorrupt:        {connect.CodeDataLoss, http.StatusInternalServerError},
	plimsoll.CodeAlreadyRunning: {connect.CodeFailedPrecondition, http.StatusConflict},
	plimsoll.CodeUnimplemented:  {connect.CodeUnimplemented, http.StatusNotImplemented},

	plimsoll.CodeUnauthenticated: {connect.CodeUnauthenticated, http.StatusUnauthorized},
	plimsoll.CodeOutcomeUnknown:  {connect.CodeUnknown, http.StatusInternalServerError},
}

// ConnectCode returns the RPC code of a code. Two codes may share one; the detail of ConnectError
// tells them apart.
func ConnectCode(code plimsoll.Code) connect.Code {
	if !code.Known() {
		code = plimsoll.CodeInternal
	}
	return codes[code].rpc
}

// HTTPStatus returns the HTTP status of a code.
func HTTPStatus(code plimsoll.Code) int {
	if !code.Known() {
		code = plimsoll.CodeInternal
	}
	return codes[code].http
}

// codeOfRPC returns the code for an answer without a detail: from a proxy, or from another program
// at that address.
func codeOfRPC(rpc connect.Code) plimsoll.Code {
	switch rpc {
	case connect.CodeOutOfRange:
		return plimsoll.CodeInvalid
	case connect.CodeUnknown: // any HTTP status that connect does not know
		return plimsoll.CodeInternal
	}
	for code := range codes {
		if codes[code].rpc == rpc {
			return plimsoll.Code(code)
		}
	}
	return plimsoll.CodeInternal
}

// ErrorToProto returns the public form of err; nil for nil. A plimsoll.Error has its code,
// operation, field and message, and the messages of the plimsoll.Errors that it wraps. Any other
// error is just internal: its text is for the log.
func ErrorToProto(err error) *pb.Error {
	if err == nil {
		return nil
	}
	e := public(err)
	return &pb.Error{
		Code: e.Code.String(), Op: text(e.Op), Field: text(e.Field), Message: text(e.Msg), Reason: reasonOf(e.Code),
	}
}

// ErrorFromProto is the inverse of ErrorToProto: a *plimsoll.Error, or nil for nil.
func ErrorFromProto(m *pb.Error) error {
	if m == nil {
		return nil
	}
	return fromProto(m)
}

func fromProto(m *pb.Error) *plimsoll.Error {
	return &plimsoll.Error{
		Code: plimsoll.ParseCode(m.GetCode()), Op: m.GetOp(), Field: m.GetField(), Msg: m.GetMessage(),
	}
}

// OutOfTime returns the error of a call whose caller allowed too little time.
func OutOfTime() *plimsoll.Error {
	return plimsoll.Errorf(plimsoll.CodeDeadline, "the time allowed for the call ran out; try again, or allow more")
}

// public returns the part of err that a caller may see. err is not nil.
func public(err error) *plimsoll.Error {
	var e *plimsoll.Error
	var rpc *connect.Error
	switch {
	case errors.As(err, &e):
	case errors.As(err, &rpc): // from another process of Plimsoll, which has sent only the public part
		e = fromRPC(rpc)
	case errors.Is(err, context.Canceled):
		return plimsoll.Errorf(plimsoll.CodeCanceled, "the call was canceled")
	case errors.Is(err, context.DeadlineExceeded):
		return OutOfTime()
	}
	if e == nil || e.Code == plimsoll.CodeInternal {
		return plimsoll.Errorf(plimsoll.CodeInternal, "something went wrong inside the server; its log has the cause")
	}
	told := &plimsoll.Error{Code: e.Code, Op: e.Op, Field: e.Field, Msg: e.Msg}
	var cause *plimsoll.Error
	if errors.As(e.Err, &cause) && cause.Code != plimsoll.CodeInternal {
		inner := public(cause).Error()
		if told.Msg != "" {
			inner = told.Msg + ": " + inner
		}
		told.Msg = inner
	}
	return told
}

// ConnectError returns err as the answer of an RPC; nil for nil. It has the code of the table, and
// the message Error as a detail, from which FromConnectError restores the error.
func ConnectError(err error) error {
	if err == nil {
		return nil
	}
	told := public(err)
	out := connect.NewError(ConnectCode(told.Code), errors.New(text(told.Error())))
	detail, err := connect.NewErrorDetail(ErrorToProto(told))
	if err != nil {
		return out // impossible, since the text is UTF-8; the code remains
	}
	out.AddDetail(detail)
	return out
}

// FromConnectError makes a *plimsoll.Error of the error of a call; nil for nil. An error that the
// other side did not send is a failure of the transport, CodeUnavailable, unless the caller's
// context has ended.
func FromConnectError(err error) error {
	if err == nil {
		return nil
	}
	var e *plimsoll.Error
	var rpc *connect.Error
	isRPC := errors.As(err, &rpc)
	if errors.As(err, &e) {
		if isRPC && !errors.Is(e, rpc) { // from the http.Client of package transport; connect calls it unavailable
			return e
		}
		return err
	}
	if isRPC {
		return fromRPC(rpc)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return &plimsoll.Error{Code: plimsoll.CodeCanceled, Msg: "the call was canceled", Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &plimsoll.Error{Code: plimsoll.CodeDeadline, Msg: "the time allowed for the call ran out", Err: err}
	}
	return unreachable(err)
}

// IsAnswer reports whether a server of Plimsoll has sent an error of connect. Otherwise no server
// was reached, the connection broke, or another program answered.
func IsAnswer(err error) bool {
	var rpc *connect.Error
	return errors.As(err, &rpc) && connect.IsWireError(err) && detailOf(rpc) != nil
}

// detailOf returns the detail that ConnectError has added to an error; nil for an error of another
// program.
func detailOf(err *connect.Error) *pb.Error {
	for _, detail := range err.Details() {
		value, valueErr := detail.Value()
		// A detail of another program, or a malformed one, is ignored.
		if m, ok := value.(*pb.Error); ok && valueErr == nil {
			return m
		}
	}
	return nil
}

func unreachable(err error) *plimsoll.Error {
	var network *net.OpError
	if endsEarly(err) || errors.As(err, &network) && network.Op != "dial" {
		return &plimsoll.Error{
			Code: plimsoll.CodeUnavailable, Msg: "the connection to the server broke; try again", Err: broken{err},
		}
	}
	return &plimsoll.Error{Code: plimsoll.CodeUnavailable, Msg: "the server cannot be reached, or the connection to it broke; try again", Err: err}
}

// broken is the cause of a call whose connection broke, without the words of the libraries between.
type broken struct{ error }

// Unwrap returns the cause with all of its words.
func (b broken) Unwrap() error { return b.error }

// Error names the first cause.
func (b broken) Error() string {
	first := b.error
	for inner := first; inner != nil; inner = errors.Unwrap(inner) {
		first = inner
	}
	if endsEarly(first) {
		return "its answer ended early"
	}
	return first.Error()
}

func endsEarly(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

func fromRPC(err *connect.Error) *plimsoll.Error {
	if m := detailOf(err); m != nil {
		return fromProto(m)
	}
	if !connect.IsWireError(err) {
		if err.Code() != connect.CodeResourceExhausted && endsEarly(err) {
			return unreachable(err)
		}
		switch err.Code() {
		case connect.CodeUnknown, connect.CodeInternal, connect.CodeUnavailable:
			return unreachable(err)
		case connect.CodeCanceled:
			if !errors.Is(err, context.Canceled) { // connect reports a reset by the other side as canceled
				return unreachable(err)
			}
		}
	}
	return &plimsoll.Error{Code: codeOfRPC(err.Code()), Msg: err.Message(), Err: err.Unwrap()}
}
