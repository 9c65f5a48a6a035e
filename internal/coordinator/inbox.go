package coordinator

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
)

// request is a command and where its reply goes.
type request struct {
	name    string // of the command, for metrics
	do      any
	respond func(*pb.Reply) // nil: nobody waits
}

// exec takes a command from a gateway (replica.Exec).
func (c *Coordinator) exec(_ context.Context, gateway string, cmd *pb.Command, respond func(*pb.Reply)) {
	name, do, err := decodeCommand(gateway, cmd)
	if err == nil && !c.push(request{name, do, respond}) {
		err = plimsoll.Errorf(plimsoll.CodeExhausted, "the leader has %d commands waiting; try again", c.cfg.MaxInbox)
	}
	if err != nil {
		c.metrics.answered(name, err)
		respond(encodeReply(&engine.Reply{Err: err}, 0))
	}
}

// gatewayConnected is called before the first command of a stream. A gateway that connects knows no node yet: those that had
// registered over an earlier connection must register again, whether that has ended or not.
func (c *Coordinator) gatewayConnected(gateway string, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.streams[gateway]++
	c.add(gatewayLost(gateway))
}

// gatewayDisconnected is called when a stream has ended. If there is a newer one the nodes that have registered over it stay.
func (c *Coordinator) gatewayDisconnected(gateway string, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.streams[gateway]--; c.mu.streams[gateway] <= 0 {
		delete(c.mu.streams, gateway)
		c.add(gatewayLost(gateway))
	}
}

func gatewayLost(gateway string) request {
	return request{name: "gateway_lost", do: &engine.GatewayLost{Gateway: gateway}}
}

// push puts a request in the inbox; false says that it is full.
func (c *Coordinator) push(r request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.inbox) >= c.cfg.MaxInbox {
		return false
	}
	c.add(r)
	return true
}

// add puts a request in the inbox even if it is full, which only what a connection brings about may do. The caller holds mu.
func (c *Coordinator) add(r request) {
	c.mu.inbox = append(c.mu.inbox, r)
	select {
	case c.wake <- struct{}{}:
	default: // it is awake already
	}
}

// drain appends at most n requests of the inbox.
func (c *Coordinator) drain(requests []request, n int) []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(len(c.mu.inbox), n)
	requests = append(requests, c.mu.inbox[:n]...)
	rest := copy(c.mu.inbox, c.mu.inbox[n:])
	clear(c.mu.inbox[rest:])
	c.mu.inbox = c.mu.inbox[:rest]
	if rest > 0 {
		select {
		case c.wake <- struct{}{}:
		default: // it is awake already
		}
	}
	return requests
}

func (c *Coordinator) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.inbox)
}
