package gateway

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// nodeService serves NodeService.
type nodeService struct {
	plimsollv1connect.UnimplementedNodeServiceHandler // for the read in Gateway.encodedReads

	g *Gateway
}

// listNodes answers with every node and its status, which holds its allocation.
func (s nodeService) listNodes(ctx context.Context, req *pb.ListNodesRequest, a *answer) error {
	v, err := a.view(ctx, req)
	if err != nil {
		return err
	}
	a.share(v.Snapshot)
	for id, data := range v.Scan(wire.KindNode, "", "") {
		node, err := a.encoded(wire.KindNode, id, data)
		if err != nil {
			return err
		}
		info := append(make([]wire.Encoded, 0, 2), wire.Encoded{Field: fieldNode, Data: node})
		if status, has := v.Get(wire.KindNodeStatus, id); has {
			if status, err = a.encoded(wire.KindNodeStatus, id, status); err != nil {
				return err
			}
			info = append(info, wire.Encoded{Field: fieldStatus, Data: status})
		}
		a.AddNested(fieldNodes, info...)
	}
	return a.Finish(&pb.ListNodesResponse{Revision: v.Revision(), Epoch: v.Epoch()}, v.age)
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
