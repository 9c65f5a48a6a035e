package client_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// cutLogs answers each read of a log with the next of its streams, and cuts all but the last.
type cutLogs struct {
	plimsollv1connect.UnimplementedJobServiceHandler
	streams [][]*pb.ReadLogsResponse
	asked   []string
}

// ReadLogs implements plimsollv1connect.JobServiceHandler.
func (l *cutLogs) ReadLogs(
	_ context.Context, req *connect.Request[pb.ReadLogsRequest], stream *connect.ServerStream[pb.ReadLogsResponse],
) error {
	m := req.Msg
	l.asked = append(l.asked, fmt.Sprintf("%s/%d of %q from %d and %d", m.GetTask(), m.GetAttempt(), m.GetJobUid(),
		m.GetStdoutFrom(), m.GetStderrFrom()))
	now := l.streams[0]
	l.streams = l.streams[1:]
	for _, m := range now {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	if len(l.streams) > 0 {
		panic(http.ErrAbortHandler)
	}
	return nil
}

func piece(stream, data string, next int64) *pb.ReadLogsResponse {
	return &pb.ReadLogsResponse{Stream: stream, Data: []byte(data), Next: next, Attempt: 2, JobUid: "u"}
}

// A log that is cut is read on from where it was: in the same attempt of the same job, also if
// there is a newer one by then. Without a place, as a server of before them sends, it breaks off.
func TestALogGoesOnAfterItWasCut(t *testing.T) {
	for name, test := range map[string]struct {
		streams [][]*pb.ReadLogsResponse
		text    string
		asked   []string
		broken  bool
	}{
		"cut twice": {
			streams: [][]*pb.ReadLogsResponse{
				{piece("stdout", "one ", 4), piece("stderr", "err ", 1004)}, {}, {piece("stdout", "two", 7)},
			},
			text: "one err two",
			asked: []string{
				`a.map.0/0 of "" from 0 and 0`, `a.map.0/2 of "u" from 4 and 1004`, `a.map.0/2 of "u" from 4 and 1004`,
			},
		},
		"cut before the first piece": {
			streams: [][]*pb.ReadLogsResponse{{}, {piece("stdout", "one", 3)}},
			text:    "one", asked: []string{`a.map.0/0 of "" from 0 and 0`, `a.map.0/0 of "" from 0 and 0`},
		},
		"no place": {
			streams: [][]*pb.ReadLogsResponse{{{Stream: "stdout", Data: []byte("one")}}, {}},
			text:    "one", asked: []string{`a.map.0/0 of "" from 0 and 0`}, broken: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := &cutLogs{streams: test.streams}
			address := "unix:" + filepath.Join(t.TempDir(), "s")
			l, err := transport.Listen(address)
			if err != nil {
				t.Fatal(err)
			}
			mux := http.NewServeMux()
			mux.Handle(plimsollv1connect.NewJobServiceHandler(server))
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- transport.Serve(ctx, l, mux, transport.ServeConfig{}) }()
			c, err := client.New(client.Config{Server: address})
			if err != nil {
				t.Fatal(err)
			}
			text, broken := "", false
			for chunk, err := range c.Logs(t.Context(), "a.map.0", client.LogOptions{}) {
				if text += string(chunk.Data); err != nil {
					broken = true
					if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
						t.Error(err)
					}
				}
			}
			c.Close()
			stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
			if got, want := strings.Join(server.asked, "; "), strings.Join(test.asked, "; "); text != test.text ||
				broken != test.broken || got != want {
				t.Errorf("%q came, broken: %t; asked was %s, want %s", text, broken, got, want)
			}
		})
	}
}
