package gateway

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ReportHistorian registers a historian, or says how far it has come. It carries no token: each
// repetition has the same effect, and the leader keeps nothing of it but the position.
func (s eventService) ReportHistorian(
	ctx context.Context, req *connect.Request[pb.ReportHistorianRequest],
) (*connect.Response[pb.ReportHistorianResponse], error) {
	said := plimsoll.Historian{Name: req.Msg.GetName(), InstanceUUID: req.Msg.GetInstanceUuid()}
	if err := said.Validate(); err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	_, err := s.g.do(ctx, &pb.Command{Kind: &pb.Command_ReportHistorian{ReportHistorian: req.Msg}})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.ReportHistorianResponse{}), nil
}

// RemoveHistorian ends the registration of a historian.
func (s eventService) RemoveHistorian(
	ctx context.Context, req *connect.Request[pb.RemoveHistorianRequest],
) (*connect.Response[pb.RemoveHistorianResponse], error) {
	if err := plimsoll.ValidateID("name", req.Msg.GetName()); err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	_, err := s.g.change(
		ctx, req.Msg.GetToken(), &pb.Command{Kind: &pb.Command_RemoveHistorian{RemoveHistorian: req.Msg}},
	)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.RemoveHistorianResponse{}), nil
}

// ListHistorians answers with the registered historians, and with the events that are kept.
func (s eventService) ListHistorians(
	ctx context.Context, req *connect.Request[pb.ListHistoriansRequest],
) (*connect.Response[pb.ListHistoriansResponse], error) {
	v, err := s.g.view(ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	recent := v.Events()
	all := &pb.RegisteredHistorians{InstanceUuid: v.InstanceUUID(), LowestId: recent.Next(), Next: recent.Next()}
	if low, _, ok := recent.Range(); ok {
		all.LowestId = low
	}
	for name, data := range v.Scan(wire.KindHistorian, "", "") { // at most plimsoll.MaxHistorians
		h, err := wire.DecodeHistorian(data)
		if err != nil {
			return nil, undecodable(wire.KindHistorian, name, err)
		}
		all.Historians = append(all.Historians, wire.HistorianToProto(&h))
	}
	return connect.NewResponse(&pb.ListHistoriansResponse{
		Registered: all, Revision: v.Revision(), Epoch: v.Epoch(), AgeNanos: int64(v.age),
	}), nil
}
