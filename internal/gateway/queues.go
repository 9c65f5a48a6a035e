package gateway

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// queueService serves QueueService.
type queueService struct{ g *Gateway }

// ListQueues answers with every queue of the tree, in the order of their paths.
func (s queueService) ListQueues(
	ctx context.Context, _ *connect.Request[pb.ListQueuesRequest],
) (*connect.Response[pb.ListQueuesResponse], error) {
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return nil, err
	}
	resp := &pb.ListQueuesResponse{Revision: snapshot.Revision()}
	for path, data := range snapshot.Scan(wire.KindQueueStatus, "", "") {
		if err := holding(ctx, len(data)); err != nil {
			return nil, err
		}
		queue := &pb.QueueStatus{}
		if err := decode(wire.KindQueueStatus, path, data, queue); err != nil {
			return nil, err
		}
		resp.Queues = append(resp.Queues, queue)
	}
	return connect.NewResponse(resp), nil
}

// GetQueueConfig answers with the configured tree.
func (s queueService) GetQueueConfig(
	ctx context.Context, _ *connect.Request[pb.GetQueueConfigRequest],
) (*connect.Response[pb.GetQueueConfigResponse], error) {
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := holdRecord(ctx, snapshot, wire.KindQueueConfig, ""); err != nil {
		return nil, err
	}
	config, err := load[pb.QueueConfig](snapshot, wire.KindQueueConfig, "")
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, plimsoll.Errorf(plimsoll.CodeNotFound, "the leader has no queue configuration; set one")
	}
	return connect.NewResponse(&pb.GetQueueConfigResponse{Config: config}), nil
}

// SetQueueConfig replaces the configured tree: all of it or nothing.
func (s queueService) SetQueueConfig(
	ctx context.Context, req *connect.Request[pb.SetQueueConfigRequest],
) (*connect.Response[pb.SetQueueConfigResponse], error) {
	if req.Msg.GetConfig() == nil {
		return nil, plimsoll.Invalid("config", "is missing; give the whole tree of queues")
	}
	checked := wire.QueueConfigFromProto(req.Msg.GetConfig())
	if err := checked.Validate(); err != nil {
		return nil, err
	}
	cmd := &pb.Command{Kind: &pb.Command_SetQueueConfig{SetQueueConfig: req.Msg}}
	if _, err := s.g.change(ctx, req.Msg.GetToken(), cmd); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.SetQueueConfigResponse{}), nil
}
