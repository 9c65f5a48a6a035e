package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
)

func TestCodeTable(t *testing.T) {
	for i := range plimsoll.NumCodes {
		code := plimsoll.Code(i)
		if codes[code].rpc == 0 || codes[code].http == 0 {
			t.Errorf("%s has no row in the table codes of error.go", code)
			continue
		}
		if ConnectCode(code) == 0 || http.StatusText(HTTPStatus(code)) == "" && code != plimsoll.CodeCanceled {
			t.Errorf("%s has the RPC code %d and the HTTP status %d", code, ConnectCode(code), HTTPStatus(code))
		}
		// CodeConflict has the RPC code of the first too, and that of the second stands for nothing
		// alone.
		alone := code != plimsoll.CodeAlreadyRunning && code != plimsoll.CodeOutcomeUnknown
		if alone && codeOfRPC(ConnectCode(code)) != code {
			t.Errorf("%s became %s through the RPC code alone", code, codeOfRPC(ConnectCode(code)))
		}
	}
	if ConnectCode(200) != connect.CodeInternal || HTTPStatus(200) != http.StatusInternalServerError {
		t.Error("an unknown code is not internal")
	}
	for rpc, want := range map[connect.Code]plimsoll.Code{
		connect.CodeOutOfRange: plimsoll.CodeInvalid, connect.CodeUnknown: plimsoll.CodeInternal,
	} {
		if got := codeOfRPC(rpc); got != want {
			t.Errorf("%s became %s, want %s", rpc, got, want)
		}
	}
}

// The error of a handler comes out of the client as the same error, for every code and over every
// protocol.
func TestErrorsOverRPC(t *testing.T) {
	var answer error
	server, client := serve(t, func() error { return answer })
	for i := range plimsoll.NumCodes {
		sent := &plimsoll.Error{Code: plimsoll.Code(i), Op: "submit job", Field: "groups[0].count", Msg: "is ünlikely"}
		answer = ConnectError(fmt.Errorf("handle request: %w", sent))
		for name, c := range map[string]plimsollv1connect.JobServiceClient{
			"Connect":  client(server),
			"gRPC":     client(server, connect.WithGRPC()),
			"gRPC-Web": client(server, connect.WithGRPCWeb()),
		} {
			_, err := c.GetJob(t.Context(), connect.NewRequest(&pb.GetJobRequest{}))
			var got *plimsoll.Error
			if !errors.As(FromConnectError(err), &got) || got.Code != sent.Code {
				t.Fatalf("%s: %v became %v", name, sent, err)
			}
			if sent.Code == plimsoll.CodeInternal {
				if strings.Contains(got.Error(), "ünlikely") {
					t.Errorf("%s: the text of an internal error was sent: %v", name, got)
				}
			} else if *got != *sent {
				t.Errorf("%s: %+v became %+v", name, sent, got)
			}
			if connect.CodeOf(err) != ConnectCode(sent.Code) {
				t.Errorf("%s: %s was answered as %s", name, sent.Code, connect.CodeOf(err))
			}
		}
	}
}

type jobs struct {
	plimsollv1connect.UnimplementedJobServiceHandler
	answer func() error
}

func (j jobs) GetJob(
	context.Context, *connect.Request[pb.GetJobRequest],
) (*connect.Response[pb.GetJobResponse], error) {
	return nil, j.answer()
}

func serve(t *testing.T, answer func() error) (
	*httptest.Server, func(*httptest.Server, ...connect.ClientOption) plimsollv1connect.JobServiceClient,
) {
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewJobServiceHandler(jobs{answer: answer}))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, func(s *httptest.Server, options ...connect.ClientOption) plimsollv1connect.JobServiceClient {
		return plimsollv1connect.NewJobServiceClient(s.Client(), s.URL, options...)
	}
}

func TestFailuresOfTheTransport(t *testing.T) {
	server, client := serve(t, func() error { panic(http.ErrAbortHandler) })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithTimeout(t.Context(), 0)
	defer cancelLate()
	call := func(ctx context.Context, options ...connect.ClientOption) error {
		_, err := client(server, options...).GetJob(ctx, connect.NewRequest(&pb.GetJobRequest{}))
		return FromConnectError(err)
	}
	check := func(name string, err error, want plimsoll.Code) {
		t.Helper()
		var e *plimsoll.Error
		if !errors.As(err, &e) || e.Code != want || e.Msg == "" {
			t.Errorf("%s gave %v, want %s", name, err, want)
		}
	}
	check("a handler that broke off", call(t.Context()), plimsoll.CodeUnavailable)
	check("a handler that broke off, over gRPC", call(t.Context(), connect.WithGRPC()), plimsoll.CodeUnavailable)
	check("a canceled call", call(ended), plimsoll.CodeCanceled)
	check("a call that is too late", call(late), plimsoll.CodeDeadline)
	_, err := client(server).ListJobs(t.Context(), connect.NewRequest(&pb.ListJobsRequest{}))
	check("a call that is not implemented", FromConnectError(err), plimsoll.CodeUnimplemented)
	server.Close()
	check("a server that is gone", call(t.Context()), plimsoll.CodeUnavailable)
	check("a stream that broke", FromConnectError(io.ErrUnexpectedEOF), plimsoll.CodeUnavailable)
	check(
		"a connection that was reset", FromConnectError(connect.NewError(connect.CodeCanceled, syscall.ECONNRESET)),
		plimsoll.CodeUnavailable,
	)
	check("a canceled context", FromConnectError(context.Canceled), plimsoll.CodeCanceled)
	check("a context that ran out", FromConnectError(context.DeadlineExceeded), plimsoll.CodeDeadline)
}

// A stream that breaks off is said in our own words, wherever it is cut.
func TestAStreamThatIsCutIsUnavailable(t *testing.T) {
	message, err := proto.Marshal(&pb.WatchJobResponse{Status: &pb.JobStatus{Id: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	whole := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	sent := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/connect+proto")
		_, _ = w.Write(whole[:sent]) // the client sees what comes
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	client := plimsollv1connect.NewJobServiceClient(server.Client(), server.URL)
	for sent = range len(whole) + 1 {
		stream, err := client.WatchJob(t.Context(), connect.NewRequest(&pb.WatchJobRequest{Id: "a"}))
		if err != nil {
			t.Fatal(err)
		}
		received := 0
		for stream.Receive() {
			received++
		}
		got := FromConnectError(stream.Err())
		if plimsoll.CodeOf(got) != plimsoll.CodeUnavailable ||
			got.Error() != "the connection to the server broke; try again: its answer ended early" {
			t.Errorf("after %d bytes: %d messages, %v", sent, received, got)
		}
		if !errors.Is(got, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: %v has lost its cause", sent, got)
		}
		if err := stream.Close(); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	}
	reset := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	got := FromConnectError(connect.NewError(connect.CodeInternal, fmt.Errorf("protocol error: incomplete envelope: %w", reset)))
	if got.Error() != "the connection to the server broke; try again: connection reset by peer" {
		t.Errorf("a reset: %v", got)
	}
}

// An error that is no plimsoll.Error is internal, and its text is not sent to the caller.
func TestWhatIsTold(t *testing.T) {
	inner := &plimsoll.Error{
		Code: plimsoll.CodeNotFound, Field: "queue", Msg: "there is no queue root.x", Err: errors.New("secret"),
	}
	foreign, err := connect.NewErrorDetail(&emptypb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	remote := connect.NewError(connect.CodeNotFound, errors.New("told by another"))
	remote.AddDetail(foreign)
	for _, test := range []struct {
		name string
		err  error
		want *pb.Error
	}{
		{"nothing", nil, nil},
		{"another's error", errors.New(
			"secret",
		), &pb.Error{Code: "internal", Message: "something went wrong inside the server; its log has the cause"}},
		{"an internal error", plimsoll.Errorf(
			plimsoll.CodeInternal, "secret",
		), &pb.Error{Code: "internal", Message: "something went wrong inside the server; its log has the cause"}},
		{
			"a cause that is not ours", inner,
			&pb.Error{Code: "not_found", Field: "queue", Message: "there is no queue root.x"},
		},
		{
			"wrapped", fmt.Errorf("secret: %w", inner),
			&pb.Error{Code: "not_found", Field: "queue", Message: "there is no queue root.x"},
		},
		{
			"ours in ours", &plimsoll.Error{Code: plimsoll.CodeConflict, Op: "kill job", Msg: "cannot", Err: inner},
			&pb.Error{Code: "conflict", Op: "kill job", Message: "cannot: queue: there is no queue root.x"},
		},
		{
			"ours in ours without a message", &plimsoll.Error{Code: plimsoll.CodeConflict, Err: inner},
			&pb.Error{Code: "conflict", Message: "queue: there is no queue root.x"},
		},
		{
			"ours around an internal one",
			&plimsoll.Error{
				Code: plimsoll.CodeConflict, Msg: "cannot", Err: plimsoll.Errorf(plimsoll.CodeInternal, "secret"),
			},
			&pb.Error{Code: "conflict", Message: "cannot"},
		},
		{
			"a canceled context", fmt.Errorf("secret: %w", context.Canceled),
			&pb.Error{Code: "canceled", Message: "the call was canceled"},
		},
		{
			"a context that ran out", context.DeadlineExceeded,
			&pb.Error{Code: "deadline", Message: "the time allowed for the call ran out; try again, or allow more"},
		},
		{
			"what another process answered", fmt.Errorf("ask the agent: %w", remote),
			&pb.Error{Code: "not_found", Message: "told by another"},
		},
	} {
		got := ErrorToProto(test.err)
		if got.GetCode() != test.want.GetCode() || got.GetMessage() != test.want.GetMessage() ||
			got.GetField() != test.want.GetField() || got.GetOp() != test.want.GetOp() {
			t.Errorf("%s: told %v, want %v", test.name, got, test.want)
		}
		if out := ConnectError(test.err); test.err != nil && strings.Contains(out.Error(), "secret") {
			t.Errorf("%s: an RPC tells %v", test.name, out)
		}
	}
	if ConnectError(nil) != nil || FromConnectError(nil) != nil || ErrorFromProto(nil) != nil {
		t.Error("no error became one")
	}
	if err := FromConnectError(inner); !errors.Is(err, inner) {
		t.Errorf("an error of ours became %v", err)
	}
	if got := ErrorFromProto(
		&pb.Error{Code: "of a newer version", Message: "m"},
	); plimsoll.CodeOf(got) != plimsoll.CodeInternal {
		t.Errorf("an unknown code became %v", got)
	}
}

// An http.Client of ours that knows better than connect why a call failed is believed.
func TestErrorsOfTheHTTPClient(t *testing.T) {
	denied := plimsoll.Errorf(plimsoll.CodeDenied, "not this host")
	err := FromConnectError(connect.NewError(connect.CodeUnavailable, fmt.Errorf("call: %w", denied)))
	if plimsoll.CodeOf(err) != plimsoll.CodeDenied || err.Error() != denied.Error() {
		t.Errorf("%v", err)
	}
}
