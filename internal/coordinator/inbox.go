package coordinator

import (
	"sync"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
)

// request is a command with the function for its reply.
type request struct {
	command *command // kind of the command; nil if nobody waits for the reply
	do      engine.Operation
	respond func(*pb.Reply) // nil: nobody waits for the reply
	bytes   int             // approximate bytes of do
	drained func()          // called when the writer loop takes the request; may be nil; must not block

	repetition repetition
}

// own reports whether a request is one of this process itself.
func (r *request) own() bool { return r.command == nil }

// inboxLoad is the number and the bytes of the commands that wait for a turn.
type inboxLoad struct {
	commands int
	bytes    int // includes commands that are drained and not yet taken by the engine
	own      int // requests of this process itself, which are not counted in commands
}

// maxOwn bounds the requests of this process itself that wait, at about 4 MiB. At the bound a
// stream that begins is refused or waits. One that ends has room: it is one of those that began.
const maxOwn = 16_384

// inbox holds the commands that wait for a turn of one term. A quarter of it, by number and by
// bytes, is for commands of agents: commands of users never keep a report out.
type inbox struct {
	most inboxLoad
	wake chan struct{} // capacity 1; full while the writer loop has a reason to make a turn

	mu struct {
		sync.Mutex
		requests []request
		load     inboxLoad      // Invariant: load.commands + load.own is len(requests)
		streams  map[string]int // number of open streams, by gateway
	}
}

func newInbox(commands, bytes int) *inbox {
	b := &inbox{most: inboxLoad{commands: commands, bytes: bytes}, wake: make(chan struct{}, 1)}
	b.mu.streams = map[string]int{}
	return b
}

// gatewayConnected is called before the first command of a stream. A gateway that connects knows no
// node yet. Nodes that have registered over an earlier stream must register again, even if that
// stream has not ended.
func (b *inbox) gatewayConnected(gateway string, _ bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.streams[gateway]++
	b.add(gatewayLost(gateway))
}

// admit returns the error for a stream for whose beginning there is no room.
func (b *inbox) admit() error {
	if b.waiting().own < maxOwn {
		return nil
	}
	return plimsoll.Errorf(plimsoll.CodeExhausted,
		"the leader has yet to note %d beginnings and ends of gateways' streams; try again later", maxOwn)
}

// gatewayDisconnected is called when a stream has ended. If the gateway has a newer stream, the
// nodes that have registered over that one stay.
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

// push adds a request. If the inbox is full, it returns the bound that is reached.
func (b *inbox) push(r request) (bound string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := b.most
	if r.command == nil || !r.command.ofAgents {
		most.commands, most.bytes = most.commands-most.commands/4, most.bytes-most.bytes/4
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

// inboxFull returns the error for a command that was refused at a bound.
func (b *inbox) inboxFull(bound string) error {
	if bound == boundBytes {
		return plimsoll.Errorf(
			plimsoll.CodeExhausted, "the leader has commands of %d bytes waiting, with %d as its bound; try again",
			b.waiting().bytes, b.most.bytes,
		)
	}
	return plimsoll.Errorf(
		plimsoll.CodeExhausted, "the leader has %d commands waiting; try again", b.waiting().commands,
	)
}

// taken subtracts the bytes of drained commands once the engine has taken them.
func (b *inbox) taken(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.load.bytes -= bytes
}

// pushAlways adds a request of this process itself, even if the inbox is full.
func (b *inbox) pushAlways(r request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(r)
}

// add adds a request even if the inbox is full. Only requests of this process itself may do so,
// such as those at the begin and the end of a stream. The caller holds mu.
func (b *inbox) add(r request) {
	b.mu.requests = append(b.mu.requests, r)
	if r.own() {
		b.mu.load.own++
	} else {
		b.mu.load.commands++
	}
	b.mu.load.bytes += r.bytes
	b.wakeUp()
}

// notify wakes the writer loop, even if the inbox is empty.
func (b *inbox) notify() { b.wakeUp() }

func (b *inbox) wakeUp() {
	select {
	case b.wake <- struct{}{}:
	default: // the writer loop is awake already
	}
}

// drain removes the first n requests and appends them to requests. Their bytes count until taken is
// called.
func (b *inbox) drain(requests []request, n int) []request {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(len(b.mu.requests), n)
	requests = append(requests, b.mu.requests[:n]...)
	for _, r := range b.mu.requests[:n] {
		if r.own() {
			b.mu.load.own--
		} else {
			b.mu.load.commands--
		}
		if r.drained != nil {
			r.drained()
		}
	}
	rest := copy(b.mu.requests, b.mu.requests[n:])
	clear(b.mu.requests[rest:])
	b.mu.requests = b.mu.requests[:rest]
	if rest > 0 {
		b.wakeUp()
	}
	return requests
}

// waiting returns the load of the inbox.
func (b *inbox) waiting() inboxLoad {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.load
}
