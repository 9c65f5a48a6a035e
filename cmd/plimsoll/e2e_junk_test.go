package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

const junkBytes = 1 << 20

// TestJunk: junk on every port and socket, bare or inside a request, stops nothing and changes
// nothing.
func TestJunk(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d, address := s.devOnPort("--keep-ended", "1h") // longer than the junk takes
	s.works("before")
	agent := filepath.Join(s.data(), "agent")
	supervisor, standing := s.supervisor(agent), s.standing()
	junk := make([]byte, junkBytes)
	draw := rand.NewChaCha8([32]byte{byte(testrun.Seed(t))})
	_, _ = draw.Read(junk) // it never fails
	t.Run("places", func(t *testing.T) {
		for _, place := range []string{
			address, "unix:" + filepath.Join(s.data(), "coordinator.sock"),
			"unix:" + filepath.Join(agent, "agent.sock"),
			"unix:" + filepath.Join(agent, "supervisor.sock"),
		} {
			t.Run(filepath.Base(place), func(t *testing.T) {
				t.Parallel()
				flood(t, place, junk)
			})
		}
	})
	select {
	case <-d.ended:
		t.Fatal("dev has ended")
	default:
	}
	if now := s.supervisor(agent); now != supervisor {
		t.Errorf("the supervisor was %d and is %d", supervisor, now)
	}
	if now := s.standing(); now != standing {
		t.Errorf("junk has changed something:\n%s\n%s", standing, now)
	}
	s.works("after")
	d.stop()
}

// flood sends junk to a place: bare, after the beginning of a request, and as the body of every
// call.
func flood(t *testing.T, place string, junk []byte) {
	for _, opening := range []string{
		"", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nX: ",
		"POST /plimsoll.v1.JobService/SubmitJob HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n",
	} {
		pour(t, place, append([]byte(opening), junk...))
	}
	var calls errgroup.Group
	calls.SetLimit(4)
	for _, method := range methods() {
		calls.Go(func() error { return call(t, place, method, "application/proto", junk) })
		for _, kind := range []string{"application/json", "application/grpc", "application/connect+proto"} {
			calls.Go(func() error { return call(t, place, method, kind, junk[:4096]) })
		}
	}
	if err := calls.Wait(); err != nil {
		t.Errorf("%s: %v", place, err)
	}
}

// methods returns the path of every method of every service.
func methods() (paths []string) {
	protoregistry.GlobalFiles.RangeFilesByPackage("plimsoll.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				paths = append(paths, "/"+string(service.FullName())+"/"+string(service.Methods().Get(j).Name()))
			}
		}
		return true
	})
	slices.Sort(paths)
	return paths
}

// pour writes to a place until it has taken everything or closed the connection.
func pour(t *testing.T, place string, data []byte) {
	t.Helper()
	network, address, err := transport.Split(place)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatalf("%s no longer answers: %v", place, err)
	}
	defer func() { _ = conn.Close() }() // it may be closed by the other side
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write(data) // it may refuse to take everything
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // as above
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s keeps a connection that sent junk", place)
	}
}

// call sends junk as the body of a request. The answer does not matter, but there must be an end.
func call(t *testing.T, place, method, kind string, junk []byte) error {
	c, url, err := transport.Client(place)
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	whose := token.User
	if strings.Contains(method, "AgentService") {
		whose = token.Agent
	}
	transport.SendToken(c, token.Finder{Kind: whose}.For(place))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+method, bytes.NewReader(junk))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	res, err := c.Do(req)
	if err != nil {
		return ctx.Err() // cut off in the middle of the body is as good as an answer
	}
	_, _ = io.Copy(io.Discard, res.Body) // as above
	_ = res.Body.Close()                 // nothing more is wanted of it
	return ctx.Err()
}
