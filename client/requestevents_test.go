package client_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
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

// requestServer answers each stream of a resource manager with the next of its streams.
type requestServer struct {
	plimsollv1connect.UnimplementedRequestEventServiceHandler
	mu      sync.Mutex
	streams []requestStream
}

// requestStream is an answer: messages, and then an error.
type requestStream struct {
	messages []*pb.FollowRequestEventsResponse
	end      plimsoll.Code
}

func (s *requestServer) FollowRequestEvents(
	_ context.Context, _ *connect.Request[pb.FollowRequestEventsRequest],
	to *connect.ServerStream[pb.FollowRequestEventsResponse],
) error {
	s.mu.Lock()
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

func requestNews(in string, lost uint64, sequences ...uint64) *pb.FollowRequestEventsResponse {
	m := &pb.FollowRequestEventsResponse{Store: in, Lost: lost}
	for _, n := range sequences {
		m.Events = append(m.Events, &pb.RequestEvent{Sequence: n})
	}
	return m
}

// Events that were not acknowledged are sent again by the next stream. A call that has seen them
// leaves them out, and tells what lies between as lost; in another store the numbers begin anew. A
// leader that has forgotten the manager is asked again. A conflict is for the caller.
func TestRequestEventsGoOnOverBreaksAndLossesAreTold(t *testing.T) {
	s := &requestServer{streams: []requestStream{
		{[]*pb.FollowRequestEventsResponse{
			requestNews("s1", 0, 1, 2), {WaitingEnd: true, Revision: 7}, requestNews("s1", 0, 3),
		}, plimsoll.CodeUnavailable},
		{[]*pb.FollowRequestEventsResponse{requestNews("s1", 0, 1, 2, 3, 4)}, plimsoll.CodeUnavailable},
		{[]*pb.FollowRequestEventsResponse{requestNews("s1", 9, 10, 11)}, plimsoll.CodeStale},
		{[]*pb.FollowRequestEventsResponse{requestNews("s2", 0), requestNews("s2", 0, 1)}, plimsoll.CodeConflict},
	}}
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	l, err := transport.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewRequestEventServiceHandler(s))
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- transport.Serve(ctx, l, mux, transport.ServeConfig{}) }()
	c, err := client.New(client.Config{Server: address})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for news, err := range c.FollowRequestEvents(t.Context(), client.ResourceManager{Name: "shim"}) {
		if err != nil {
			got = append(got, plimsoll.CodeOf(err).String())
			continue
		}
		var numbers []uint64
		for _, e := range news.Events {
			numbers = append(numbers, e.Sequence)
		}
		got = append(got, fmt.Sprintf(
			"%s %v %d %v %v", news.Store, numbers, news.Lost, news.LostUnknown, news.WaitingEnd,
		))
	}
	c.Close()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	want := []string{
		"s1 [1 2] 0 false false", "s1 [] 0 false true", "s1 [3] 0 false false", "s1 [4] 0 false false",
		"s1 [10 11] 5 false false", "s2 [] 0 true false", "s2 [1] 0 false false", "conflict",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the news were\n%q, want\n%q", got, want)
	}
}
