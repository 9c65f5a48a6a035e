package client

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// RegisteredHistorians are the registered historians, and the events that are kept.
type RegisteredHistorians struct {
	Historians   []plimsoll.Historian // by name
	InstanceUUID string               // of Lowest and Next
	Lowest       uint64               // id of the oldest event that is kept; Next: none is
	Next         uint64               // id of the next event
}

// Behind returns how many of the kept events a historian lacks, and how many it lacks that are gone
// already. Of another instance's events it is not known how many are gone; then missed is 0.
func (r *RegisteredHistorians) Behind(h *plimsoll.Historian) (behind, missed uint64) {
	from := min(h.LacksFrom(r.InstanceUUID), r.Next)
	if from < r.Lowest && h.InstanceUUID == r.InstanceUUID {
		missed = r.Lowest - from
	}
	return r.Next - max(from, r.Lowest), missed
}

// Historians reads the registered historians.
func (c *Client) Historians(ctx context.Context) (RegisteredHistorians, error) {
	res, err := call(ctx, c, c.events.ListHistorians, &pb.ListHistoriansRequest{Consistency: c.consistency(ctx)})
	if err != nil {
		return RegisteredHistorians{}, err
	}
	return registeredHistorians(res.GetRegistered()), nil
}

func registeredHistorians(res *pb.RegisteredHistorians) RegisteredHistorians {
	r := RegisteredHistorians{InstanceUUID: res.GetInstanceUuid(), Lowest: res.GetLowestId(), Next: res.GetNext()}
	for _, m := range res.GetHistorians() {
		r.Historians = append(r.Historians, wire.HistorianFromProto(m))
	}
	return r
}

// ReportHistorian registers a historian, or says how far it has come. The events from h.Next on are
// then held back for it, within plimsoll.EventSettings.RingBufferHeldBytes. h.Heard is not sent.
func (c *Client) ReportHistorian(ctx context.Context, h plimsoll.Historian) error {
	_, err := call(ctx, c, c.events.ReportHistorian, &pb.ReportHistorianRequest{
		Name: h.Name, InstanceUuid: h.InstanceUUID, Next: h.Next,
	})
	return err
}

// RemoveHistorian ends the registration of a historian. One that still runs registers again.
func (c *Client) RemoveHistorian(ctx context.Context, name string) error {
	req := &pb.RemoveHistorianRequest{Name: name, Token: tokenOf(ctx)}
	_, err := change(ctx, c, c.events.RemoveHistorian, req)
	return err
}
