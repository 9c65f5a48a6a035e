package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/nodekey"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const keyFile = "node.key"

// openKey reads the key of the node, or makes one that is durable before it is used. The process
// with the key is the node's agent.
func openKey(dir string) (*nodekey.Key, error) {
	path := filepath.Join(dir, keyFile)
	seed, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		seed = nodekey.Random(nodekey.SeedSize)
		if err := writeDurably(path, seed); err != nil {
			return nil, fmt.Errorf("record the node's key: %w", err)
		}
	case err != nil:
		return nil, fmt.Errorf("read the node's key: %w", err)
	default:
		// A copy of the directory may have a wider mode.
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, fmt.Errorf("protect the node's key: %w", err)
		}
	}
	key, err := nodekey.New(seed)
	if err != nil {
		return nil, &plimsoll.Error{
			Code: plimsoll.CodeCorrupt, Op: "read the node's key", Err: err,
			Msg: path + " is damaged; bring it back from a copy, or remove it to begin with a new one, which can register when the tasks of the " +
				"node are given up, or the node is removed",
		}
	}
	return key, nil
}

// proofHandler proves to gateways that this process is the node's agent.
type proofHandler struct {
	node string
	key  *nodekey.Key
}

// ProveNode signs a gateway's nonce.
func (h proofHandler) ProveNode(
	_ context.Context, req *connect.Request[pb.ProveNodeRequest],
) (*connect.Response[pb.ProveNodeResponse], error) {
	if node := req.Msg.GetNode(); node != h.node {
		return nil, wire.ConnectError(
			plimsoll.Errorf(plimsoll.CodeNotFound, "this is the agent of another node than %.128q", node),
		)
	}
	if n := len(req.Msg.GetNonce()); n != nodekey.NonceSize {
		return nil, wire.ConnectError(plimsoll.Invalid("nonce", "has %d bytes, not %d", n, nodekey.NonceSize))
	}
	return connect.NewResponse(&pb.ProveNodeResponse{Signature: h.key.Answer(h.node, req.Msg.GetNonce())}), nil
}
