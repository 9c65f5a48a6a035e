package gateway

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// GetEventSettings answers with the settings of the events.
func (s eventService) GetEventSettings(
	ctx context.Context, req *connect.Request[pb.GetEventSettingsRequest],
) (*connect.Response[pb.GetEventSettingsResponse], error) {
	v, err := s.g.view(ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	settings, err := v.EventSettings()
	if err != nil {
		return nil, undecodable(wire.KindEventSettings, "", err)
	}
	return connect.NewResponse(&pb.GetEventSettingsResponse{
		Settings: wire.EventSettingsToProto(&settings),
		Revision: v.Revision(), Epoch: v.Epoch(), AgeNanos: int64(v.age),
	}), nil
}

// SetEventSettings changes settings of the events: all that are named, or none.
func (s eventService) SetEventSettings(
	ctx context.Context, req *connect.Request[pb.SetEventSettingsRequest],
) (*connect.Response[pb.SetEventSettingsResponse], error) {
	if len(req.Msg.GetSettings()) == 0 {
		return nil, plimsoll.Invalid(
			"settings", "is empty; give the settings to change, such as %sringBufferCapacity",
			plimsoll.EventSettingPrefix,
		)
	}
	checked := plimsoll.DefaultEventSettings()
	if err := checked.Set(req.Msg.GetSettings()); err != nil {
		return nil, err //nolint:wrapcheck // it names the setting
	}
	reply, err := s.g.change(
		ctx, req.Msg.GetToken(), &pb.Command{Kind: &pb.Command_SetEventSettings{SetEventSettings: req.Msg}},
	)
	if err != nil {
		return nil, err
	}
	v, err := s.g.after(ctx, reply)
	if err != nil {
		return nil, err
	}
	settings, err := v.EventSettings()
	if err != nil {
		return nil, unseen(undecodable(wire.KindEventSettings, "", err))
	}
	return connect.NewResponse(&pb.SetEventSettingsResponse{Settings: wire.EventSettingsToProto(&settings)}), nil
}
