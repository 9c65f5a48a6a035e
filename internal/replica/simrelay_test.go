package replica

import (
	"slices"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// simSource has the state of a Source, at a leader or at a relay.
type simSource struct {
	world     *simWorld
	leader    *simLeader  // nil at a relay
	relay     *simGateway // nil at a leader
	log       *batchLog
	latest    func() *Snapshot
	transfers *transfers
	recent    decoded
	open      bool     // streams are served
	above     uint64   // at a relay: number of its own stream
	late      []func() // batches that are not in the log yet
	conns     []*simConn
}

// simConn is one stream. It goes on at the source's end when the gateway has given it up.
type simConn struct {
	source  *simSource
	gateway *simGateway
	session session
	above   uint64
	leads   bool           // at a leader: what the proof that runs will say
	round   *round         // at a relay: what the proof that runs waits for
	below   map[string]int // nil once the source has ended the stream
	up      []*pb.ReplicateRequest
	down    []*pb.ReplicateResponse
}

// simGateway is a gateway; with a source it is a relay.
type simGateway struct {
	world     *simWorld
	id        string
	asks      *pb.ReplicateFilter
	filter    *filter
	parents   []*simGateway // nil among them: the leader
	source    *simSource
	mirror    mirror
	pending   pending
	conn      *simConn // nil: not connected
	behind    bool     // conn is to a relay
	published *Snapshot
	readers   []simReader
	writers   []simWriter
}

func (w *simWorld) gateway(id string, asks *pb.ReplicateFilter, parents ...*simGateway) *simGateway {
	if len(parents) == 0 {
		parents = []*simGateway{nil}
	}
	g := &simGateway{world: w, id: id, asks: asks, parents: parents}
	var err error
	if g.filter, err = readFilter(asks); err != nil {
		w.fail("%v", err)
	}
	g.pending.maxCalls = 8
	w.gateways = append(w.gateways, g)
	return g
}

func (w *simWorld) relay(id string, asks *pb.ReplicateFilter, parents ...*simGateway) *simGateway {
	g := w.gateway(id, asks, parents...)
	g.pending.maxCalls = 20
	g.newSource()
	w.relays = append(w.relays, g)
	return g
}

func (g *simGateway) newSource() {
	w := g.world
	s := &simSource{world: w, relay: g, log: &batchLog{limit: 100 + w.rng.IntN(1500)}}
	s.latest = func() *Snapshot { return g.mirror.latest }
	s.transfers = w.newTransfers(s)
	g.source = s
}

func (w *simWorld) newTransfers(s *simSource) *transfers {
	return &transfers{
		log: s.log, latest: s.latest, most: 1 + w.rng.IntN(2), mostWaiting: 3, limit: w.rng.IntN(600),
	}
}

func (g *simGateway) send() {
	if g.conn == nil {
		return
	}
	if request := g.pending.next(); request != nil {
		g.conn.up = append(g.conn.up, request)
	}
}

// connect opens a stream to one of the gateway's parents.
func (g *simGateway) connect(l *simLeader) {
	source := &l.simSource
	if parent := g.parents[g.world.rng.IntN(len(g.parents))]; parent != nil {
		source = parent.source
	}
	if !source.open {
		return
	}
	conn := &simConn{source: source, gateway: g, above: source.above, below: map[string]int{}}
	conn.session = session{
		log: source.log, transfers: source.transfers, maxReplies: 20, proof: true, recent: &source.recent,
	}
	if source.relay != nil {
		conn.session.relayed = true
		if conn.session.holds = source.relay.filter; g.world.mutant == answersForMore {
			conn.session.holds = nil
		}
	}
	hello := g.mirror.open(g.id).GetHello()
	hello.Protocol = protocol
	hello.Filter = g.asks
	if err := conn.session.hello(hello, source.latest()); err != nil {
		return // an older leader refuses, and so does a relay that is behind or holds less
	}
	g.conn, g.behind = conn, source.relay != nil
	source.news(conn, &pb.ReplicateDownstream{Gateway: g.id})
	source.conns = append(source.conns, conn)
}

// reap ends a stream that its gateway has given up, of which the source learns late.
func (s *simSource) reap() {
	for i, conn := range s.conns {
		if conn.gateway.conn != conn && s.world.rng.IntN(2) == 0 {
			s.end(conn)
			s.conns = slices.Delete(s.conns, i, i+1)
			return
		}
	}
}

// end ends a stream at the source, as the handler of it does.
func (s *simSource) end(conn *simConn) {
	conn.session.end(errStreamEnded)
	for gateway, streams := range conn.below {
		for range streams {
			s.news(conn, &pb.ReplicateDownstream{Gateway: gateway, Gone: true})
		}
	}
	conn.below = nil
	s.news(conn, &pb.ReplicateDownstream{Gateway: conn.gateway.id, Gone: true})
}

// news passes what a leader has to know of a stream up.
func (s *simSource) news(conn *simConn, news *pb.ReplicateDownstream) {
	if s.relay != nil {
		s.relay.pending.announce(conn.above, news)
	}
}

// reset ends the stream of a gateway. A relay ends those below it.
func (g *simGateway) reset() {
	if g.source != nil && g.world.mutant != keepsStreams {
		g.source.open = false
		for _, conn := range g.source.conns {
			g.source.end(conn)
		}
	}
	g.conn = nil
	g.pending.disconnect()
}

// restart loses all that a gateway holds.
func (g *simGateway) restart() {
	g.reset()
	g.mirror, g.published = mirror{}, nil
	if g.source != nil {
		for _, conn := range g.source.conns {
			if conn.gateway.conn == conn {
				conn.gateway.reset()
			}
		}
		g.newSource()
	}
}

// receive takes one message of one of the source's streams.
func (s *simSource) receive() {
	conn := s.pick()
	if conn == nil || len(conn.up) == 0 || conn.below == nil {
		return
	}
	request := conn.up[0]
	conn.up = conn.up[1:]
	switch {
	case request.GetSync() != nil:
		if err := conn.session.sync(request.GetSync().GetId()); err != nil {
			s.world.fail("%v", err)
		}
	case request.GetCommand() != nil:
		s.command(conn, request.GetCommand())
	case request.GetDownstream() != nil:
		s.downstream(conn, request.GetDownstream())
	}
}

func (s *simSource) command(conn *simConn, command *pb.Command) {
	gateway := conn.gateway.id
	if from := command.GetGateway(); from != "" {
		if gateway = from; conn.below[from] == 0 {
			s.world.fail("a command of %s came up a stream that has no news of it", from)
		}
	}
	if s.leader != nil {
		s.leader.inbox = append(s.leader.inbox, simCommand{conn, command})
		return
	}
	id := command.GetId()
	respond := func(reply *pb.Reply) {
		reply.Id = id
		conn.session.reply(reply)
	}
	// A command that there is no room for is dropped: the gateway counts it as not answered.
	_ = s.relay.pending.pass(conn.above, gateway, command, respond)
}

func (s *simSource) downstream(conn *simConn, news *pb.ReplicateDownstream) {
	if !news.GetGone() {
		conn.below[news.GetGateway()]++
	} else if conn.below[news.GetGateway()]--; conn.below[news.GetGateway()] < 0 {
		s.world.fail("a stream of %s ended that had not begun", news.GetGateway())
	}
	s.news(conn, news)
}

// pick chooses a stream, mostly one that its gateway has not given up.
func (s *simSource) pick() *simConn {
	rng := s.world.rng
	for range 3 {
		if len(s.conns) == 0 {
			return nil
		}
		if conn := s.conns[rng.IntN(len(s.conns))]; conn.gateway.conn == conn || rng.IntN(8) == 0 {
			return conn
		}
	}
	return nil
}

// prove begins or ends a proof. A leader knows whether it led when the proof began; a relay waits
// for a barrier that began then.
func (s *simSource) prove() {
	conn := s.pick()
	if conn == nil {
		return
	}
	if !conn.session.proofRuns {
		if !conn.session.takeProof() {
			return
		}
		if s.leader != nil {
			conn.leads = s.leader == s.world.leader // the earliest instant that counts
			return
		}
		round, err := s.relay.pending.join()
		if conn.round = round; err != nil {
			conn.session.proofDone(err)
		}
		return
	}
	switch {
	case s.leader != nil && conn.leads, s.relay != nil && s.world.mutant == noParent:
		conn.session.proofDone(nil)
	case s.leader != nil:
		conn.session.proofDone(errDeposed)
	case conn.round != nil && released(conn.round):
		conn.session.proofDone(conn.round.err)
	}
}

func (s *simSource) send() {
	conn := s.pick()
	if conn == nil || len(conn.down) > 6 { // a gateway that does not read
		return
	}
	for range 1 + s.world.rng.IntN(4) {
		out, ok := conn.session.next()
		if !ok {
			break
		}
		if out.narrow != nil && s.world.mutant == keepsTasksThatAre {
			clear(out.narrow.held)
		}
		message, err := received(out)
		if err != nil {
			s.world.fail("%v", err)
		}
		if message != nil {
			conn.down = append(conn.down, message)
		}
	}
	if conn.session.err != nil && conn.gateway.conn == conn && len(conn.down) == 0 {
		conn.gateway.reset()
	}
}

// receive takes one message as Follower.receive does.
func (g *simGateway) receive(w *simWorld) {
	if g.conn == nil || len(g.conn.down) == 0 {
		return
	}
	conn := g.conn
	response := conn.down[0]
	conn.down = conn.down[1:]
	e, err := g.mirror.step(response)
	if err != nil {
		if conn.source.leader == w.leader {
			w.fail("%s: %v", g.id, err)
		}
		g.reset() // an older leader than the one that the gateway has seen
		return
	}
	if e.snapshot != nil {
		w.checkSnapshot(g, e.snapshot)
		g.published = e.snapshot
	}
	if g.source != nil {
		g.feed(&e)
	}
	if e.connected {
		g.pending.connect()
	}
	if e.live && g.source != nil {
		g.source.above = g.pending.stream
	}
	if e.ack != 0 {
		g.pending.acknowledge(e.ack, g.mirror.latest)
	}
	if e.reply != nil {
		if deliver := g.pending.answer(e.reply); deliver != nil {
			deliver(&pb.Reply{Revision: e.reply.GetRevision()})
		}
	}
}

// feed makes an effect visible to the streams below, as Follower.publish does.
func (g *simGateway) feed(e *effect) {
	s := g.source
	switch {
	case e.live:
		if s.late = nil; e.snapshot != nil || s.log.revision() != g.mirror.latest.revision {
			*s.log = batchLog{limit: s.log.limit, base: g.mirror.latest.revision}
		}
		s.open = true
	case e.batch != nil:
		revision, batch := e.snapshot.revision, e.batch
		s.late = append(s.late, func() { s.log.add(revision, batch) })
		if g.world.mutant == ackTooEarly && len(s.late) == 1 {
			return
		}
		s.late[0]()
		s.late = s.late[1:]
	}
}
