package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// Every code says whether the call had an effect, or that the server does not know.
func TestErrorsGiveTheReasonThatTellsOfTheEffect(t *testing.T) {
	for i := range plimsoll.NumCodes {
		want := ReasonNoEffect
		switch code := plimsoll.Code(i); code {
		case plimsoll.CodeInternal, plimsoll.CodeCorrupt:
			want = ""
		case plimsoll.CodeOutcomeUnknown:
			want = ReasonOutcomeUnknown
		}
		m := ErrorToProto(plimsoll.Errorf(plimsoll.Code(i), "no"))
		if m.GetReason() != want {
			t.Errorf("%s: the reason is %q, want %q", plimsoll.Code(i), m.GetReason(), want)
		}
	}
}

// told is an error of a server as its client gets it.
func told(m *pb.Error) error {
	err := connect.NewWireError(connect.CodeUnavailable, errors.New("told"))
	detail, _ := connect.NewErrorDetail(m)
	err.AddDetail(detail)
	return err
}

// Of a change, only a server that says so, or one that was never reached, had no effect. A
// connection that was cut does not read as canceled.
func TestOnlyWhatIsKnownToHaveHadNoEffectSaysSo(t *testing.T) {
	const unknown = plimsoll.CodeOutcomeUnknown
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, test := range []struct {
		name string
		err  error
		want plimsoll.Code
	}{
		{"nobody listens", connect.NewError(connect.CodeUnavailable, dial), plimsoll.CodeUnavailable},
		{"a refusal", told(&pb.Error{Code: "conflict", Reason: "no_effect"}), plimsoll.CodeConflict},
		{"no leader", told(&pb.Error{Code: "unavailable", Reason: "no_effect"}), plimsoll.CodeUnavailable},
		{"the gateway does not know", told(&pb.Error{Code: "outcome_unknown", Reason: "outcome_unknown"}), unknown},
		{"a newer gateway does not know", told(&pb.Error{Code: "new", Reason: "outcome_unknown"}), unknown},
		{"a fault", told(&pb.Error{Code: "internal"}), unknown},
		{"a refusal of an older gateway", told(&pb.Error{Code: "conflict"}), plimsoll.CodeConflict},
		{"an older gateway without a leader", told(&pb.Error{Code: "unavailable"}), unknown},
		{"the connection was cut", connect.NewError(connect.CodeUnavailable, io.ErrUnexpectedEOF), unknown},
		{"the connection was reset", connect.NewError(connect.CodeCanceled, syscall.ECONNRESET), unknown},
		{"the server was stopped", told(&pb.Error{Code: "canceled"}), unknown},
		{"the caller gave up", connect.NewError(connect.CodeCanceled, context.Canceled), unknown},
		{"the time ran out", context.DeadlineExceeded, unknown},
		{"a proxy without a server", connect.NewError(connect.CodeUnavailable, errors.New("502")), unknown},
		{
			"a proxy that refuses", connect.NewError(connect.CodePermissionDenied, errors.New("403")),
			plimsoll.CodeDenied,
		},
		{"an answer that is too large", connect.NewError(connect.CodeResourceExhausted, errors.New("large")), unknown},
		{
			"no token to send",
			connect.NewError(connect.CodeUnavailable, plimsoll.Errorf(plimsoll.CodeUnauthenticated, "no file")),
			plimsoll.CodeUnauthenticated,
		},
	} {
		if err := FromChangeError(test.err); plimsoll.CodeOf(err) != test.want {
			t.Errorf("%s: %v of code %s, want %s", test.name, err, plimsoll.CodeOf(err), test.want)
		}
	}
	if err := FromChangeError(nil); err != nil {
		t.Error(err)
	}
}

// A read whose server is stopped is unavailable, not canceled: nobody here has given it up.
func TestAReadThatWasCutIsUnavailable(t *testing.T) {
	stopped := ConnectError(plimsoll.Errorf(plimsoll.CodeCanceled, "the caller went away"))
	if err := FromReadError(t.Context(), stopped); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := FromReadError(gone, stopped); plimsoll.CodeOf(err) != plimsoll.CodeCanceled {
		t.Error(err)
	}
}

// The same over real connections: a handler that breaks off, and a server that is gone.
func TestAChangeOverAConnectionThatBreaks(t *testing.T) {
	server, client := serve(t, func() error { panic(http.ErrAbortHandler) })
	call := func(options ...connect.ClientOption) error {
		_, err := client(server, options...).GetJob(t.Context(), connect.NewRequest(&pb.GetJobRequest{}))
		return FromChangeError(err)
	}
	for _, err := range []error{call(), call(connect.WithGRPC())} {
		if plimsoll.CodeOf(err) != plimsoll.CodeOutcomeUnknown {
			t.Errorf("broken off: %v", err)
		}
	}
	server.Close()
	if err := call(); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("gone: %v", err)
	}
}
