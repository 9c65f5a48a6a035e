package gateway

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// nodeService serves NodeService.
type nodeService struct{ g *Gateway }

// ListNodes answers with every node and its status, which holds its allocation.
func (s nodeService) ListNodes(
	ctx context.Context, _ *connect.Request[pb.ListNodesRequest],
) (*connect.Response[pb.ListNodesResponse], error) {
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return nil, err
	}
	resp := &pb.ListNodesResponse{Revision: snapshot.Revision()}
	for id, data := range snapshot.Scan(wire.KindNode, "", "") {
		if err := holding(ctx, len(data)); err != nil {
			return nil, err
		}
		node := &pb.Node{}
		if err := decode(wire.KindNode, id, data, node); err != nil {
			return nil, err
		}
		status, err := load[pb.NodeStatus](snapshot, wire.KindNodeStatus, id)
		if err != nil {
			return nil, err
		}
		resp.Nodes = append(resp.Nodes, &pb.NodeInfo{Node: node, Status: status})
	}
	return connect.NewResponse(resp), nil
}

// SetNodeMode sets whether a node takes new tasks.
func (s nodeService) SetNodeMode(
	ctx context.Context, req *connect.Request[pb.SetNodeModeRequest],
) (*connect.Response[pb.SetNodeModeResponse], error) {
	if err := plimsoll.ValidateID("id", req.Msg.GetId()); err != nil {
		return nil, err
	}
	if mode := req.Msg.GetMode(); mode < pb.NodeMode_NODE_MODE_ACTIVE || mode > pb.NodeMode_NODE_MODE_DRAINING {
		return nil, plimsoll.Invalid("mode", "%d is not a mode; give active, cordoned or draining", mode)
	}
	reply, err := s.g.change(ctx, req.Msg.GetToken(), &pb.Command{Kind: &pb.Command_SetNodeMode{SetNodeMode: req.Msg}})
	if err != nil {
		return nil, err
	}
	snapshot, err := s.g.after(ctx, reply)
	if err != nil {
		return nil, err
	}
	node, err := loadNode(snapshot, req.Msg.GetId())
	switch {
	case plimsoll.CodeOf(err) == plimsoll.CodeNotFound: // the node was removed meanwhile
		node = &pb.Node{Id: req.Msg.GetId(), Mode: req.Msg.GetMode()}
	case err != nil:
		return nil, unseen(err)
	}
	return connect.NewResponse(&pb.SetNodeModeResponse{Node: node}), nil
}

// RemoveNode removes a node from the cluster.
func (s nodeService) RemoveNode(
	ctx context.Context, req *connect.Request[pb.RemoveNodeRequest],
) (*connect.Response[pb.RemoveNodeResponse], error) {
	if err := plimsoll.ValidateID("id", req.Msg.GetId()); err != nil {
		return nil, err
	}
	cmd := &pb.Command{Kind: &pb.Command_RemoveNode{RemoveNode: req.Msg}}
	if _, err := s.g.change(ctx, req.Msg.GetToken(), cmd); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.RemoveNodeResponse{}), nil
}
