package client_test

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// levels is a gateway that answers each read of an event page with the consistency that it was
// asked for.
type levels struct {
	gateway
	asked []plimsoll.Consistency
}

func (l *levels) ListEvents(
	_ context.Context, req *connect.Request[pb.ListEventsRequest],
) (*connect.Response[pb.ListEventsResponse], error) {
	l.asked = append(l.asked, wire.ConsistencyFromProto(req.Msg.GetConsistency()))
	return connect.NewResponse(&pb.ListEventsResponse{Epoch: 3, Revision: 1042, AgeNanos: 5}), nil
}

func TestAReadCarriesTheConsistencyOfItsContextOrElseOfTheClient(t *testing.T) {
	l := &levels{}
	eventual := plimsoll.Consistency{Level: plimsoll.FreshnessEventual}
	c, stop, err := startGateway(l, client.Config{Consistency: eventual})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var stamp client.Stamp
	for _, ctx := range []context.Context{
		t.Context(), client.WithConsistency(t.Context(), plimsoll.AtLeast(3, 7)),
		client.WithStamp(client.WithConsistency(t.Context(), plimsoll.Consistency{}), &stamp),
	} {
		if _, err := c.Events(ctx, client.EventFilter{}); err != nil {
			t.Fatal(err)
		}
	}
	want := []plimsoll.Consistency{eventual, plimsoll.AtLeast(3, 7), {}}
	for i := range want {
		if l.asked[i] != want[i] {
			t.Errorf("read %d asked for %s, want %s", i, l.asked[i], want[i])
		}
	}
	if stamp != (client.Stamp{Version: plimsoll.Version{Epoch: 3, Revision: 1042}, Age: 5 * time.Nanosecond}) {
		t.Errorf("the stamp is %+v", stamp)
	}
}

func TestAConsistencyOfTheClientIsChecked(t *testing.T) {
	_, err := client.New(client.Config{Consistency: plimsoll.Consistency{Revision: 4}})
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("New: %v", err)
	}
}
