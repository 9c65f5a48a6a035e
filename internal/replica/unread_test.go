package replica

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A gateway that does not read its stream holds up neither the leader nor other gateways, and is
// cut off after a minute.
func TestAGatewayThatDoesNotReadIsCutOff(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		lost, unread := make(chan error, 1), make(chan string, 1)
		source, err := NewSource(SourceConfig{Epoch: 1, Leader: "leader", Events: SourceEvents{
			Disconnected: func(_ string, err error) { lost <- err },
			Unread:       func(gateway string) { unread <- gateway },
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.Handle(NewHandler(source, func(context.Context, string, *pb.Command, func(*pb.Reply)) {}))
		network := faultnet.NewPipes(0)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- transport.Serve(ctx, network, mux, transport.ServeConfig{}) }()

		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		carrier := &http.Transport{
			Protocols:   protocols,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return network.Dial(ctx) },
		}
		stream := plimsollv1connect.NewReplicationServiceClient(
			&http.Client{Transport: carrier}, "http://leader",
		).Replicate(ctx)
		hello := &pb.ReplicateRequest{Kind: &pb.ReplicateRequest_Hello{Hello: &pb.ReplicateHello{Gateway: "deaf"}}}
		if err := stream.Send(hello); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(time.Hour) // of the bubble: a quiet stream lasts
		began := time.Now()
		for r := range uint64(10) { // more than a connection holds for a caller that does not read
			source.Publish(&wire.Batch{Epoch: 1, Revision: r + 1, Mutations: []wire.Mutation{
				{Kind: wire.KindNode, Key: "n", Value: bytes.Repeat([]byte{1}, 1<<20)},
			}})
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the leader was held up for %s", took)
		}
		if got := <-unread; got != "deaf" {
			t.Errorf("%q was cut off", got)
		}
		err = <-lost
		if took := time.Since(began); took < time.Minute || took > 62*time.Second {
			t.Errorf("it was cut off after %s", took)
		}
		if plimsoll.CodeOf(err) != plimsoll.CodeExhausted || !strings.Contains(err.Error(), "not read its stream") {
			t.Errorf("it was cut off with %v", err)
		}
		_ = stream.CloseRequest() // it was cut off
		carrier.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
