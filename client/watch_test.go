package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// watchServer answers each watch of tasks with the next of its streams.
type watchServer struct {
	plimsollv1connect.UnimplementedWatchServiceHandler
	mu      sync.Mutex
	streams []watchStream
	from    []string // points of the requests
}

// watchStream is an answer: messages, and then an error.
type watchStream struct {
	messages []*pb.WatchTasksResponse
	end      plimsoll.Code
}

func (s *watchServer) WatchTasks(
	ctx context.Context, req *connect.Request[pb.WatchTasksRequest], to *connect.ServerStream[pb.WatchTasksResponse],
) error {
	s.mu.Lock()
	p := req.Msg.GetFrom()
	s.from = append(s.from, fmt.Sprintf("%d.%d+%d", p.GetEpoch(), p.GetRevision(), p.GetPart()))
	if len(s.streams) == 0 {
		s.mu.Unlock()
		<-ctx.Done()
		return nil
	}
	stream := s.streams[0]
	s.streams = s.streams[1:]
	s.mu.Unlock()
	for _, m := range stream.messages {
		if err := to.Send(m); err != nil {
			return err
		}
	}
	return wire.ConnectError(plimsoll.Errorf(stream.end, "the test ends the stream"))
}

// start serves the streams on a socket in a directory, until stop is called.
func (s *watchServer) start(dir string) (c *client.Client, stop func(), err error) {
	address := "unix:" + filepath.Join(dir, "s")
	l, err := transport.Listen(address)
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewWatchServiceHandler(s))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- transport.Serve(ctx, l, mux, transport.ServeConfig{}) }()
	c, err = client.New(client.Config{Server: address})
	return c, func() {
		c.Close()
		cancel()
		if err := <-served; err != nil {
			log.Print(err)
		}
	}, err
}

func watchedTasks(change pb.WatchChange, revision uint64, indexes ...int32) (tasks []*pb.WatchedTask) {
	for _, i := range indexes {
		tasks = append(tasks, &pb.WatchedTask{
			Change: change, Revision: revision, Task: &pb.Task{Job: "a", Group: "map", Index: i},
		})
	}
	return tasks
}

func at(epoch, revision uint64, part uint32) *pb.WatchPoint {
	return &pb.WatchPoint{Epoch: epoch, Revision: revision, Part: part}
}

func TestWatchGoesOnAtItsPointAndBeginsAgainWhenTheHistoryIsTooShort(t *testing.T) {
	s := &watchServer{streams: []watchStream{
		{[]*pb.WatchTasksResponse{
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_PRESENT, 0, 0, 1)},
		}, plimsoll.CodeUnavailable}, // the snapshot is not complete
		{[]*pb.WatchTasksResponse{
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_PRESENT, 0, 0, 1), Point: at(1, 10, 0), SnapshotEnd: true},
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_ADDED, 11, 2, 3), Point: at(1, 10, 2)},
		}, plimsoll.CodeUnavailable},
		{[]*pb.WatchTasksResponse{
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_LEFT, 11, 4), Point: at(1, 11, 0)},
			{Point: at(1, 20, 0)},
		}, plimsoll.CodeExhausted},
		{nil, plimsoll.CodeStale},
		{[]*pb.WatchTasksResponse{
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_PRESENT, 0, 5), Point: at(2, 30, 0), SnapshotEnd: true},
			{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_DELETED, 31, 5), Point: at(2, 31, 0)},
		}, plimsoll.CodeInvalid},
	}}
	c, stop, err := s.start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var got []string
	for change, err := range c.WatchTasks(t.Context(), client.TaskFilter{}, client.WatchPoint{}) {
		if err != nil {
			got = append(got, plimsoll.CodeOf(err).String())
			break
		}
		text := change.Type.String()
		if change.Object.Job != "" {
			text += fmt.Sprint(" ", change.Object.Index)
		}
		if change.Point != (client.WatchPoint{}) {
			text += fmt.Sprintf(" (%d.%d+%d)", change.Point.Epoch, change.Point.Revision, change.Point.Part)
		}
		got = append(got, text)
	}
	want := []string{
		"reset", "present 0", "present 1", "reset", "present 0", "present 1", "synced (1.10+0)",
		"added 2 (1.10+0)", "added 3 (1.10+2)", "left 4 (1.11+0)", "bookmark (1.20+0)",
		"reset", "present 5", "synced (2.30+0)", "deleted 5 (2.31+0)", "invalid",
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if from := strings.Join(s.from, " "); from != "0.0+0 0.0+0 1.10+2 1.20+0 0.0+0" {
		t.Errorf("the requests are from %s", from)
	}
}

// A point that is too old is met with a new snapshot at once. That takes nothing from the time in
// which the watch waits for the next leader.
func TestWatchWithAPointThatIsTooOldWaitsForTheNextLeader(t *testing.T) {
	s := &watchServer{streams: []watchStream{
		{nil, plimsoll.CodeStale},
		{nil, plimsoll.CodeUnavailable},
		{nil, plimsoll.CodeUnavailable},
		{[]*pb.WatchTasksResponse{{Point: at(2, 30, 0), SnapshotEnd: true}}, plimsoll.CodeInvalid},
	}}
	c, stop, err := s.start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var last error
	for _, last = range c.WatchTasks(t.Context(), client.TaskFilter{}, client.WatchPoint{Epoch: 1, Revision: 20}) {
		continue
	}
	if plimsoll.CodeOf(last) != plimsoll.CodeInvalid {
		t.Errorf("the watch ended with %v", last)
	}
	if from := strings.Join(s.from, " "); from != "1.20+0 0.0+0 0.0+0 0.0+0" {
		t.Errorf("the requests are from %s", from)
	}
}

func TestWatchEndsWhenItsCallerWantsNoMore(t *testing.T) {
	s := &watchServer{streams: []watchStream{{[]*pb.WatchTasksResponse{
		{Tasks: watchedTasks(pb.WatchChange_WATCH_CHANGE_PRESENT, 0, 0, 1), Point: at(1, 10, 0), SnapshotEnd: true},
	}, plimsoll.CodeUnavailable}}}
	c, stop, err := s.start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for change, err := range c.WatchTasks(t.Context(), client.TaskFilter{}, client.WatchPoint{}) {
		if err != nil {
			t.Fatal(err)
		}
		if change.Type == client.ChangePresent {
			break
		}
	}
	if len(s.from) != 1 {
		t.Errorf("%d watches were opened", len(s.from))
	}
}
