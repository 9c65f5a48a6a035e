package replica

import (
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// pending holds the barrier's rounds and the commands that a gateway has under way on its stream,
// as pure steps. Its owner calls it under one lock. Ids are never used twice, not even on different
// streams, so an answer on one stream never matches a question on another.
//
// A reader joins the round that has not been sent yet. Sending seals the round, so a round is
// acknowledged only by a sync that was sent after each of its readers came (O4). One round is under
// way at a time; the next is sent after its acknowledgement.
type pending struct {
	open   bool // the leader has answered on the current stream
	held   bool // the leader hands leadership over: nothing more is sent until the next one answers
	lastID uint64
	stream uint64 // number of the current stream, or of the last one

	inFlight *round // sent, not acknowledged
	waiting  *round // not sent; readers may join

	calls    map[uint64]*call // every unanswered command, by id
	queue    []*call          // unsent commands and news, oldest first; an entry with neither was dropped
	news     int              // news in queue, which Relay.admits bounds
	bytes    int              // encoded bytes of the commands in queue
	maxCalls int              // bound on calls; a quarter of it, and of maxBytes, is kept for agents
	maxBytes int
}

// round is one sync and all the readers that share it.
type round struct {
	id   uint64
	done chan struct{} // closed when snapshot or err is set
	// snapshot holds everything that was committed when the round was sealed.
	snapshot *Snapshot
	err      error
}

// call is a command under way.
type call struct {
	id      uint64
	command *pb.Command // nil once it was sent or dropped
	bytes   int         // encoded size of the command
	sent    bool
	done    chan struct{} // closed when reply or err is set
	reply   *pb.Reply
	err     error
	// deliver is called with the reply in place of done, for a command that a relay passes on.
	deliver func(*pb.Reply)
	// news is sent in place of a command, and has no reply.
	news *pb.ReplicateDownstream
}

// requestOverhead is an upper bound on the bytes around a command in its message.
const requestOverhead = 64

func errNotConnected() error {
	return plimsoll.Errorf(plimsoll.CodeUnavailable, "this gateway is not connected to the leader; try again")
}

// errHeld is the error while the leader hands leadership over, until the next one has answered.
func errHeld() error {
	return &plimsoll.Error{Code: plimsoll.CodeUnavailable, Msg: "try again", Err: ErrHandover}
}

// join returns the round for which a reader that arrives now has to wait.
func (l *pending) join() (*round, error) {
	if l.held {
		return nil, errHeld()
	}
	if !l.open {
		return nil, errNotConnected()
	}
	if l.waiting == nil {
		l.waiting = &round{done: make(chan struct{})}
	}
	return l.waiting, nil
}

// add queues a command.
func (l *pending) add(command *pb.Command) (*call, error) {
	if l.held {
		return nil, errHeld()
	}
	if !l.open {
		return nil, errNotConnected()
	}
	maxCalls, maxBytes := l.maxCalls, l.maxBytes
	if !ofAgents(command) {
		maxCalls, maxBytes = maxCalls-maxCalls/4, maxBytes-maxBytes/4
	}
	if max(len(l.calls), len(l.queue)-l.news) >= maxCalls {
		return nil, plimsoll.Errorf(
			plimsoll.CodeExhausted, "%d commands are under way at this gateway; try again later", maxCalls,
		)
	}
	bytes := proto.Size(command)
	if bytes > requestBounds.Bytes-requestOverhead { // the leader would end the stream
		return nil, wire.TooLong(requestBounds.Bytes - requestOverhead)
	}
	if l.bytes > 0 && l.bytes+bytes > maxBytes {
		return nil, plimsoll.Errorf(plimsoll.CodeExhausted,
			"commands of %d bytes wait at this gateway to be sent to the leader, and there is room for %d; try again later", l.bytes, maxBytes)
	}
	l.lastID++
	c := &call{id: l.lastID, bytes: bytes, done: make(chan struct{})}
	c.command = &pb.Command{Id: c.id, Kind: command.GetKind(), Gateway: command.GetGateway()}
	if l.calls == nil {
		l.calls = map[uint64]*call{}
	}
	l.calls[c.id] = c
	l.queue = append(l.queue, c)
	l.bytes += bytes
	return c, nil
}

// pass queues a command of a gateway below. It came while the given stream was the current one: on
// another stream the leader does not know the gateway.
func (l *pending) pass(stream uint64, gateway string, command *pb.Command, deliver func(*pb.Reply)) error {
	if stream != l.stream {
		return errNotConnected()
	}
	c, err := l.add(&pb.Command{Kind: command.GetKind(), Gateway: gateway})
	if err != nil {
		return err
	}
	c.deliver = deliver
	return nil
}

// announce queues the news of a gateway below, unless the stream to which it belongs has ended.
func (l *pending) announce(stream uint64, news *pb.ReplicateDownstream) {
	if l.open && stream == l.stream {
		l.queue = append(l.queue, &call{news: news})
		l.news++
	}
}

// ofAgents reports whether a command comes from an agent, or is a gateway's report on one. Users'
// commands must not keep such a command waiting.
func ofAgents(command *pb.Command) bool {
	switch command.GetKind().(type) {
	case *pb.Command_RegisterNode, *pb.Command_NodeLiveness, *pb.Command_ReportTasks, *pb.Command_ReportNode,
		*pb.Command_LeaveNode:
		return true
	}
	return false
}

// drop removes a command whose caller has gone, and reports whether it had been sent. A command
// that was answered is left alone.
func (l *pending) drop(c *call) (sent bool) {
	delete(l.calls, c.id)
	if !c.sent {
		l.release(c)
	}
	return c.sent
}

// release takes the bytes of a command off the queue's count. A second call has no effect.
func (l *pending) release(c *call) {
	l.bytes -= c.bytes
	c.command, c.bytes = nil, 0
}

// next returns the next message to send, or nil. It seals the round, or marks the command as sent.
func (l *pending) next() *pb.ReplicateRequest {
	if l.held {
		return nil
	}
	if l.waiting != nil && l.inFlight == nil {
		l.inFlight, l.waiting = l.waiting, nil
		l.lastID++
		l.inFlight.id = l.lastID
		return &pb.ReplicateRequest{Kind: &pb.ReplicateRequest_Sync{Sync: &pb.ReplicateSync{Id: l.inFlight.id}}}
	}
	for len(l.queue) > 0 {
		c := l.queue[0]
		l.queue[0] = nil
		if l.queue = l.queue[1:]; len(l.queue) == 0 {
			l.queue = nil
		}
		if c.news != nil {
			l.news--
			return &pb.ReplicateRequest{Kind: &pb.ReplicateRequest_Downstream{Downstream: c.news}}
		}
		if l.calls[c.id] == c {
			c.sent = true
			command := c.command
			l.release(c)
			return &pb.ReplicateRequest{Kind: &pb.ReplicateRequest_Command{Command: command}}
		}
	}
	return nil
}

// acknowledges reports whether an id is that of the round under way.
func (l *pending) acknowledges(id uint64) bool { return l.inFlight != nil && l.inFlight.id == id }

// acknowledge releases the readers of the round under way, and reports whether another round waits
// to be sent. The snapshot must have been published before (O3). An id other than the round's
// releases nobody.
func (l *pending) acknowledge(id uint64, snapshot *Snapshot) (more bool) {
	if r := l.inFlight; l.acknowledges(id) {
		l.inFlight = nil
		r.snapshot = snapshot
		close(r.done)
	}
	return l.waiting != nil
}

// answer passes a reply to its call. A reply whose call was dropped is ignored. deliver, if it is
// not nil, is to be called with the reply.
func (l *pending) answer(reply *pb.Reply) (deliver func(*pb.Reply)) {
	c, ok := l.calls[reply.GetId()]
	if !ok {
		return nil
	}
	delete(l.calls, c.id)
	c.reply = reply
	close(c.done)
	return c.deliver
}

// connect begins to accept rounds and commands on a new stream. disconnect fails everything under
// way; commands of gateways below are dropped, because their streams end too.
func (l *pending) connect() {
	l.open, l.held = true, false
	l.stream++
}

func (l *pending) disconnect() {
	l.open = false
	for _, r := range []*round{l.inFlight, l.waiting} {
		if r != nil {
			r.err = plimsoll.Errorf(plimsoll.CodeUnavailable, "the connection to the leader broke; try again")
			if l.held {
				r.err = errHeld()
			}
			close(r.done)
		}
	}
	for _, c := range l.calls {
		c.err = plimsoll.Errorf(plimsoll.CodeUnavailable,
			"the connection to the leader broke before the command was sent; try again")
		if l.held {
			c.err = errHeld()
		}
		if c.sent {
			c.err = plimsoll.Errorf(plimsoll.CodeOutcomeUnknown,
				"the connection to the leader broke: the outcome is not known; ask again")
		}
		l.release(c)
		close(c.done)
	}
	l.inFlight, l.waiting, l.calls, l.queue, l.news = nil, nil, nil, nil, 0
}
