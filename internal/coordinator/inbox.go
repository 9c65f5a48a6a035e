package coordinator

import (
	"sync"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
)

// request is a command and where its reply goes.
type request struct {
	command *command // how it is answered; nil if nobody waits
	do      engine.Operation
	respond func(*pb.Reply) // nil: nobody waits
	bytes   int             // about what do takes

	repetition repetition
}

// inboxLoad is what waits for a turn.
type inboxLoad struct {
	commands int
	bytes    int // also of commands that the writer loop has before it
}

// inbox holds what waits for a turn of one term. A quarter of it, by number and by bytes, is for
// what agents say: how much users send does not keep a report out.
type inbox struct {
	most inboxLoad
	wake chan struct{} // capacity 1: something is in it

	mu struct {
		sync.Mutex
		requests []request
		load     inboxLoad      // Invariant: load.commands is len(requests)
		streams  map[string]int // by gateway: those that are open
	}
}

func newInbox(commands, bytes int) *inbox {
	b := &inbox{most: inboxLoad{commands, bytes}, wake: make(chan struct{}, 1)}
	b.mu.streams = map[string]int{}
	return b
}

// gatewayConnected is called before the first command of a stream. A gateway that connects knows no
// node yet: those that had registered over an earlier connection must register again, whether that
// has ended or not.
func (b *inbox) gatewayConnected(gateway string, _ bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.streams[gateway]++
	b.add(gatewayLost(gateway))
}

// gatewayDisconnected is called when a stream has ended. If there is a newer one the nodes that
// have registered over it stay.
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

// The bounds of an inbox, as metrics name them.
const (
	boundCommands = "commands"
	boundBytes    = "bytes"
)

// push puts a request in, unless the inbox is full: then it returns the bound that it is at.
func (b *inbox) push(r request) (bound string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := b.most
	if r.command == nil || !r.command.ofAgents {
		most = inboxLoad{most.commands - most.commands/4, most.bytes - most.bytes/4}
	}
	switch {
	case b.mu.load.commands >= most.commands:
		return boundCommands
	case b.mu.load.bytes > 0 && b.mu.load.bytes+r.bytes > most.bytes: // the first always has room
		return boundBytes
	}
	b.add(r)
	return ""
}

// inboxFull is the refusal of a command that an inbox at a bound has no room for.
func (b *inbox) inboxFull(bound string) error {
	if bound == boundBytes {
		return plimsoll.Errorf(plimsoll.CodeExhausted, "the leader has commands of %d bytes waiting, with %d as its bound; try again",
			b.waiting().bytes, b.most.bytes)
	}
	return plimsoll.Errorf(
		plimsoll.CodeExhausted, "the leader has %d commands waiting; try again", b.waiting().commands,
	)
}

// taken gives back the bytes of commands that were drained and now belong to the engine.
func (b *inbox) taken(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.load.bytes -= bytes
}

// insist puts a request in even if the inbox is full: one that this process makes itself.
func (b *inbox) insist(r request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(r)
}

// add puts a request in even if the inbox is full, which only what a connection or this process
// itself brings about may do. The caller holds mu.
func (b *inbox) add(r request) {
	b.mu.requests = append(b.mu.requests, r)
	b.mu.load.commands++
	b.mu.load.bytes += r.bytes
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

// drain appends at most n requests of the inbox. Their bytes still count, until they are taken.
func (b *inbox) drain(requests []request, n int) []request {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(len(b.mu.requests), n)
	requests = append(requests, b.mu.requests[:n]...)
	rest := copy(b.mu.requests, b.mu.requests[n:])
	clear(b.mu.requests[rest:])
	b.mu.requests = b.mu.requests[:rest]
	b.mu.load.commands = rest
	if rest > 0 {
		b.wakeUp()
	}
	return requests
}

// waiting returns what waits for a turn.
func (b *inbox) waiting() inboxLoad {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.load
}
