package coordinator

import (
	"sync"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
)

// request is a command and where its reply goes.
type request struct {
	command *command // how it is answered; nil if nobody waits
	do      engine.Operation
	respond func(*pb.Reply) // nil: nobody waits
}

// inbox holds what waits for a turn of one term.
type inbox struct {
	limit int
	wake  chan struct{} // capacity 1: something is in it

	mu struct {
		sync.Mutex
		requests []request
		streams  map[string]int // by gateway: those that are open
	}
}

func newInbox(limit int) *inbox {
	b := &inbox{limit: limit, wake: make(chan struct{}, 1)}
	b.mu.streams = map[string]int{}
	return b
}

// gatewayConnected is called before the first command of a stream. A gateway that connects knows no node yet: those that had
// registered over an earlier connection must register again, whether that has ended or not.
func (b *inbox) gatewayConnected(gateway string, _ bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.streams[gateway]++
	b.add(gatewayLost(gateway))
}

// gatewayDisconnected is called when a stream has ended. If there is a newer one the nodes that have registered over it stay.
func (b *inbox) gatewayDisconnected(gateway string, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.streams[gateway]--; b.mu.streams[gateway] <= 0 {
		delete(b.mu.streams, gateway)
		b.add(gatewayLost(gateway))
	}
}

func gatewayLost(gateway string) request {
	return request{do: &engine.GatewayLost{Gateway: gateway}}
}

// push puts a request in; false says that the inbox is full.
func (b *inbox) push(r request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.requests) >= b.limit {
		return false
	}
	b.add(r)
	return true
}

// insist puts a request in even if the inbox is full: one that this process makes itself.
func (b *inbox) insist(r request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(r)
}

// add puts a request in even if the inbox is full, which only what a connection or this process itself brings about may do. The caller holds mu.
func (b *inbox) add(r request) {
	b.mu.requests = append(b.mu.requests, r)
	b.wakeUp()
}

// notify wakes the writer loop although nothing may be in the inbox.
func (b *inbox) notify() { b.wakeUp() }

func (b *inbox) wakeUp() {
	select {
	case b.wake <- struct{}{}:
	default: // the writer loop is awake already
	}
}

// drain appends at most n requests of the inbox.
func (b *inbox) drain(requests []request, n int) []request {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(len(b.mu.requests), n)
	requests = append(requests, b.mu.requests[:n]...)
	rest := copy(b.mu.requests, b.mu.requests[n:])
	clear(b.mu.requests[rest:])
	b.mu.requests = b.mu.requests[:rest]
	if rest > 0 {
		b.wakeUp()
	}
	return requests
}

func (b *inbox) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.requests)
}
