package client

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// EventSettings reads the settings of the events.
func (c *Client) EventSettings(ctx context.Context) (plimsoll.EventSettings, error) {
	res, err := call(ctx, c, c.events.GetEventSettings, &pb.GetEventSettingsRequest{Consistency: c.consistency(ctx)})
	if err != nil {
		return plimsoll.EventSettings{}, err
	}
	return wire.EventSettingsFromProto(res.GetSettings()), nil
}

// SetEventSettings changes the settings that values names, all of them or none, and returns all
// settings. The names are those that plimsoll.EventSettings.Set knows.
//
//	c.SetEventSettings(ctx, map[string]string{"service.event.ringBufferCapacity": "200000"})
func (c *Client) SetEventSettings(ctx context.Context, values map[string]string) (plimsoll.EventSettings, error) {
	req := &pb.SetEventSettingsRequest{Settings: values, Token: tokenOf(ctx)}
	res, err := change(ctx, c, c.events.SetEventSettings, req)
	if err != nil {
		return plimsoll.EventSettings{}, err
	}
	return wire.EventSettingsFromProto(res.GetSettings()), nil
}
