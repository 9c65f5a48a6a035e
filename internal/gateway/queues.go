package gateway

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// queueService serves QueueService.
type queueService struct {
	plimsollv1connect.UnimplementedQueueServiceHandler // for the reads in Gateway.encodedReads

	g *Gateway
}

// listQueues answers with every queue of the tree, in the order of their paths.
func (s queueService) listQueues(ctx context.Context, req *pb.ListQueuesRequest, a *answer) error {
	v, err := a.view(ctx, req)
	if err != nil {
		return err
	}
	a.share(v.Snapshot)
	for path, data := range v.Scan(wire.KindQueueStatus, "", "") {
		if err := a.add(fieldQueues, wire.KindQueueStatus, path, data); err != nil {
			return err
		}
	}
	return a.Finish(&pb.ListQueuesResponse{Revision: v.Revision(), Epoch: v.Epoch()}, v.age)
}

// getQueueConfig answers with the configured tree.
func (s queueService) getQueueConfig(ctx context.Context, req *pb.GetQueueConfigRequest, a *answer) error {
	v, err := a.view(ctx, req)
	if err != nil {
		return err
	}
	a.share(v.Snapshot)
	data, ok := v.Get(wire.KindQueueConfig, "")
	if !ok {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "the leader has no queue configuration; set one")
	}
	if err := a.add(fieldConfig, wire.KindQueueConfig, "", data); err != nil {
		return err
	}
	return a.Finish(&pb.GetQueueConfigResponse{Revision: v.Revision(), Epoch: v.Epoch()}, v.age)
}

// SetQueueConfig replaces the configured tree: all of it or nothing. A dry run only checks it. The
// leader checks the tree, because it tells a refusal by an event and logs it; a dry run is refused
// here already if it can be.
func (s queueService) SetQueueConfig(
	ctx context.Context, req *connect.Request[pb.SetQueueConfigRequest],
) (*connect.Response[pb.SetQueueConfigResponse], error) {
	if req.Msg.GetConfig() == nil {
		return nil, plimsoll.Invalid("config", "is missing; give the whole tree of queues")
	}
	if req.Msg.GetDryRun() {
		checked := wire.QueueConfigFromProto(req.Msg.GetConfig())
		if err := checked.Validate(); err != nil {
			return nil, err
		}
	}
	cmd := &pb.Command{Kind: &pb.Command_SetQueueConfig{SetQueueConfig: req.Msg}}
	if _, err := s.g.change(ctx, req.Msg.GetToken(), cmd); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.SetQueueConfigResponse{}), nil
}
