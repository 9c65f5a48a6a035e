package gateway

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/nodekey"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// proofTimeout bounds how long an agent may take to show that it has its node's key.
const proofTimeout = 5 * time.Second

// agentClients keeps connections to the agents that were called last. On each connection the agent
// has first proved that it has the key of its node.
type agentClients struct {
	limit     int
	addresses *agentAddresses
	tokens    token.Finder

	mu struct {
		sync.Mutex
		uses   uint64
		byNode map[string]*agentClient
	}
}

// agentClient is a connection to an agent, made or under way.
type agentClient struct {
	address, key, peer string // of the node when it was made
	used               uint64 // number of its last use

	made chan struct{} // closed once the fields below are set
	err  error
	conn *transport.ConnClient
	logs plimsollv1connect.LogServiceClient
	qos  plimsollv1connect.QOSServiceClient
}

func newAgentClients(limit int, addresses *agentAddresses, tokens token.Finder) *agentClients {
	c := &agentClients{limit: limit, addresses: addresses, tokens: tokens}
	c.mu.byNode = map[string]*agentClient{}
	return c
}

// get returns a client for the agent of a node. If there are too many clients, the one that was not
// used for the longest time is dropped. Its calls under way are not cut off.
func (c *agentClients) get(ctx context.Context, node *pb.Node) (*agentClient, error) {
	client, mine := c.enter(node)
	if mine {
		client.make(context.WithoutCancel(ctx), c, node) // others may wait for it
	}
	select {
	case <-client.made:
	case <-ctx.Done():
		return nil, callerGone(ctx)
	}
	if client.err != nil {
		c.drop(node.GetId(), client)
		return nil, client.err
	}
	return client, nil
}

// enter returns the client of a node. mine reports that the caller has to connect it.
func (c *agentClients) enter(node *pb.Node) (client *agentClient, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.uses++
	if known := c.mu.byNode[node.GetId()]; known != nil {
		if known.usable(node) {
			known.used = c.mu.uses
			return known, false
		}
		c.remove(node.GetId())
	}
	if len(c.mu.byNode) >= c.limit {
		c.dropOldest()
	}
	added := &agentClient{
		address: node.GetAddress(), key: node.GetKey(), peer: node.GetPeer(), used: c.mu.uses,
		made: make(chan struct{}),
	}
	c.mu.byNode[node.GetId()] = added
	return added, true
}

// usable reports whether a client was made for the node's present record and its connection has not
// ended.
func (a *agentClient) usable(node *pb.Node) bool {
	if a.address != node.GetAddress() || a.key != node.GetKey() || a.peer != node.GetPeer() {
		return false
	}
	select {
	case <-a.made:
		return a.err == nil && a.conn.Alive()
	default:
		return true // the connection is under way
	}
}

// make connects to the agent of a node and has the agent prove its key.
func (a *agentClient) make(ctx context.Context, all *agentClients, node *pb.Node) {
	defer close(a.made)
	c, err := all.addresses.dial(ctx, node)
	if err != nil {
		a.err = err
		return
	}
	client := transport.NewConnClient(c, node.GetAddress())
	source := all.tokens.For(node.GetAddress())
	client.SendToken(source) // the token is good for this address alone
	if a.err = readable(source, node); a.err == nil {
		a.err = prove(ctx, client, node)
	}
	if a.err != nil {
		client.Close()
		return
	}
	a.conn = client
	bounded := wire.BoundedClient(wire.RequestBounds(maxAgentMessage))
	a.logs = plimsollv1connect.NewLogServiceClient(client.HTTP, client.URL, bounded)
	a.qos = plimsollv1connect.NewQOSServiceClient(client.HTTP, client.URL, bounded)
}

// readable fails if the token for an agent cannot be read.
func readable(source *token.Source, node *pb.Node) error {
	if source == nil {
		return nil
	}
	if _, _, err := source.Get(); err != nil {
		return agentDenied(node.GetId(), node.GetAddress(), err)
	}
	return nil
}

// prove has the agent at the other end of a connection prove that it has the key of its node. The
// node of an agent of an older version has no key, and passes.
func prove(ctx context.Context, client *transport.ConnClient, node *pb.Node) error {
	if node.GetKey() == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	nonce := nodekey.Random(nodekey.NonceSize)
	proofs := plimsollv1connect.NewProofServiceClient(
		client.HTTP, client.URL, wire.BoundedClient(wire.RequestBounds(4096)),
	)
	answer, err := proofs.ProveNode(ctx, connect.NewRequest(&pb.ProveNodeRequest{Node: node.GetId(), Nonce: nonce}))
	if err == nil && nodekey.CheckAnswer(node.GetId(), node.GetKey(), nonce, answer.Msg.GetSignature()) {
		return nil
	}
	return unproven(node, err)
}

// unproven is the error for a user when the other end of a connection has not proved that it is the
// node's agent. The text quotes nothing of the answer, which may come from another program.
func unproven(node *pb.Node, err error) error {
	if err != nil {
		cause := wire.FromConnectError(err)
		switch plimsoll.CodeOf(cause) {
		case plimsoll.CodeUnauthenticated:
			return agentDenied(node.GetId(), node.GetAddress(), nil)
		case plimsoll.CodeUnavailable, plimsoll.CodeExhausted, plimsoll.CodeDeadline:
			if connect.IsWireError(err) {
				cause = nil
			}
			return cannotReach(node, cause)
		default: // no agent, or one that does not answer like an agent
		}
	}
	return plimsoll.Errorf(
		plimsoll.CodeDenied,
		"the process at %s, the log address of node %q, does not have the node's key, so it is not the node's agent; "+
			"see that the agent advertises its own address",
		node.GetAddress(), node.GetId(),
	)
}

// drop removes a client, unless another has taken its place.
func (c *agentClients) drop(node string, client *agentClient) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.byNode[node] == client {
		delete(c.mu.byNode, node)
	}
}

// remove removes the client of a node and closes its idle connection. The caller holds the lock.
func (c *agentClients) remove(node string) {
	client := c.mu.byNode[node]
	delete(c.mu.byNode, node)
	select {
	case <-client.made:
		if client.err == nil {
			client.conn.Close()
		}
	default: // the callers that wait for the client may use it once
	}
}

// dropOldest removes the client that was not used for the longest time. The caller holds the lock.
func (c *agentClients) dropOldest() {
	oldest := ""
	for node, client := range c.mu.byNode {
		if oldest == "" || client.used < c.mu.byNode[oldest].used {
			oldest = node
		}
	}
	c.remove(oldest)
}

func (c *agentClients) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for node := range c.mu.byNode {
		c.remove(node)
	}
}
