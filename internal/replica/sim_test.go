package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// simSteps is the length of one simulation.
const simSteps = 4000

// simLeader is one incarnation of the leader. A deposed one lives on: it serves its streams and
// does not know.
type simLeader struct {
	bench
	world   *simWorld
	inbox   []simCommand
	durable []simTurn // committed, not published yet
	conns   []*simConn
	events  uint64
}

type simCommand struct {
	conn    *simConn
	command *pb.Command
}

type simTurn struct {
	batch    wire.Batch
	commands []simCommand
}

// simConn is one stream. It goes on at the leader's end when the gateway has given it up.
type simConn struct {
	leader  *simLeader
	gateway *simGateway
	session session
	leads   bool // what the proof that runs will say
	up      []*pb.ReplicateRequest
	down    []*pb.ReplicateResponse
}

type simGateway struct {
	id        string
	mirror    mirror
	pending   pending
	conn      *simConn // nil: not connected
	published *Snapshot
	readers   []simReader
	writers   []*call
}

// simReader is a read under way; floor is the highest revision that was acknowledged to anybody
// when it began.
type simReader struct {
	round *round
	floor uint64
}

type simWorld struct {
	t        *testing.T
	rng      *rand.Rand
	leader   *simLeader   // the one that the store accepts
	deposed  []*simLeader // latest first
	gateways []*simGateway
	stored   *Tables              // what is durable
	history  map[[2]uint64]string // epoch and revision → fingerprint of what that leader had published
	floor    uint64               // highest revision acknowledged to anybody
	writes   int
	reads    int // reads released
	acked    int // writes acknowledged
}

// TestSimulation drives the pure steps of one leader after another and of several gateways.
// Messages are late, lost with their stream, or arrive at a deposed leader. After each step it
// checks:
//   - a barrier never returns a snapshot older than what was acknowledged before it began
//     (gateways.md 3.1, O1–O5);
//   - the effect of a reply is in the snapshot that its gateway shows;
//   - a copy equals what the leader had at the same revision (O6), and a gateway never goes back
//     (O8).
func TestSimulation(t *testing.T) {
	first, runs := testrun.Seed(t), testrun.Count(10, 30, 3000)
	reads, acked := 0, 0
	for i := range runs {
		seed := first + uint64(i)
		w := newSimWorld(t, seed)
		for step := range simSteps {
			w.step()
			if t.Failed() {
				t.Fatalf(
					"at step %d; replay with: PLIMSOLL_SEED=%d go test ./internal/replica -run TestSimulation", step,
					seed,
				)
			}
		}
		reads, acked = reads+w.reads, acked+w.acked
	}
	t.Logf("%d reads were released and %d writes acknowledged", reads, acked)
	if reads < 50*runs || acked < 25*runs {
		t.Errorf("the simulation did too little: %d reads, %d writes in %d runs", reads, acked, runs)
	}
}

func newSimWorld(t *testing.T, seed uint64) *simWorld {
	w := &simWorld{t: t, rng: rand.New(rand.NewPCG(seed, 0)), stored: NewTables(50), history: map[[2]uint64]string{}}
	for i := range 3 {
		g := &simGateway{id: fmt.Sprint("g", i)}
		g.mirror.eventCapacity, g.pending.maxCalls = 50, 8
		w.gateways = append(w.gateways, g)
	}
	w.elect()
	return w
}

// elect makes a new leader from the durable batches. The one before is not told.
func (w *simWorld) elect() {
	epoch := uint64(1)
	if w.leader != nil {
		epoch = w.leader.tables.epoch + 1
		w.deposed = append([]*simLeader{w.leader}, w.deposed...)
		w.deposed = w.deposed[:min(2, len(w.deposed))]
	}
	l := &simLeader{world: w}
	l.tables = NewTables(50)
	l.tables.instance = fmt.Sprint("instance-", epoch)
	loaded := wire.Batch{Epoch: epoch, Revision: w.stored.revision, Time: w.stored.time}
	s := w.stored.Snapshot()
	for kind := range s.kinds {
		for key, r := range s.kinds[kind].All() {
			loaded.Mutations = append(
				loaded.Mutations, wire.Mutation{Kind: wire.Kind(kind), Key: key, Value: r.value, Node: r.node.String()},
			)
		}
	}
	mustApply(l.tables, &loaded)
	l.log = batchLog{limit: 100 + w.rng.IntN(1500), base: loaded.Revision}
	l.proof = true
	w.leader = l
	l.remember()
}

func (l *simLeader) remember() {
	l.world.history[[2]uint64{l.tables.epoch, l.tables.revision}] = fingerprint(l.tables.Snapshot())
}

func (w *simWorld) step() {
	g := w.gateways[w.rng.IntN(len(w.gateways))]
	leader := w.leader
	if len(w.deposed) > 0 && w.rng.IntN(6) == 0 {
		leader = w.deposed[w.rng.IntN(len(w.deposed))]
	}
	switch dice := w.rng.IntN(2000); {
	case dice < 200:
		w.read(g)
	case dice < 400:
		w.write(g)
	case dice < 600:
		g.send()
	case dice < 900:
		leader.receive()
	case dice < 1000:
		leader.commit()
	case dice < 1150:
		leader.publish()
	case dice < 1350:
		leader.prove()
	case dice < 1650:
		leader.send()
	case dice < 1990:
		for range w.rng.IntN(4) {
			g.receive(w)
		}
	case dice < 1996:
		g.reset() // what is on its way down is lost; what goes up may still arrive
	case dice < 1998:
		w.elect()
	}
	if g.conn == nil && w.rng.IntN(4) == 0 {
		g.connect(leader)
	}
	w.check(g)
}

func (w *simWorld) read(g *simGateway) {
	if round, err := g.pending.join(); err == nil {
		g.readers = append(g.readers, simReader{round, w.floor})
	}
}

func (w *simWorld) write(g *simGateway) {
	w.writes++
	command := submit(fmt.Sprint("job", w.rng.IntN(12)))
	command.GetSubmitJob().Spec.Token = fmt.Sprint(w.writes)
	if c, err := g.pending.add(command); err == nil {
		g.writers = append(g.writers, c)
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

// receive takes one message of one of the leader's streams.
func (l *simLeader) receive() {
	conn := l.pick()
	if conn == nil || len(conn.up) == 0 {
		return
	}
	request := conn.up[0]
	conn.up = conn.up[1:]
	switch {
	case request.GetSync() != nil:
		if err := conn.session.sync(request.GetSync().GetId()); err != nil {
			l.world.t.Error(err)
		}
	case request.GetCommand() != nil:
		l.inbox = append(l.inbox, simCommand{conn, request.GetCommand()})
	}
}

// pick chooses a stream, mostly one that its gateway has not given up.
func (l *simLeader) pick() *simConn {
	rng := l.world.rng
	for range 3 {
		if len(l.conns) == 0 {
			return nil
		}
		if conn := l.conns[rng.IntN(len(l.conns))]; conn.gateway.conn == conn || rng.IntN(8) == 0 {
			return conn
		}
	}
	return nil
}

// commit makes a turn of the commands in the inbox and stores it. The store refuses a deposed
// leader.
func (l *simLeader) commit() {
	w := l.world
	if l != w.leader {
		return
	}
	revision := w.stored.revision + 1 + uint64(w.rng.IntN(2))
	turn := simTurn{
		commands: l.inbox, batch: wire.Batch{Epoch: l.tables.epoch, Revision: revision, Time: int64(revision)},
	}
	l.inbox = nil
	for _, c := range turn.commands {
		spec := c.command.GetSubmitJob().GetSpec()
		turn.batch.Mutations = append(turn.batch.Mutations, put(spec.GetId(), spec.GetToken()), l.randomTask())
	}
	if len(turn.batch.Mutations) > 0 {
		turn.batch.Events = wire.EventChunk{FirstID: l.events, Count: 1, Data: []byte("e")}
		l.events++
	}
	mustApply(w.stored, &turn.batch)
	l.durable = append(l.durable, turn)
}

func (l *simLeader) randomTask() wire.Mutation {
	rng := l.world.rng
	key := fmt.Sprint("task", rng.IntN(10))
	if rng.IntN(4) == 0 {
		return remove(wire.KindTask, key)
	}
	return taskPut(key, fmt.Sprint(l.world.writes), []string{"", "n1", "n2"}[rng.IntN(3)])
}

// publish does what Source.Publish does, and then replies. A deposed leader still publishes what it
// had stored before.
func (l *simLeader) publish() {
	if len(l.durable) == 0 {
		return
	}
	turn := l.durable[0]
	l.durable = l.durable[1:]
	l.log.add(turn.batch.Revision, wire.AppendBatch(nil, &turn.batch))
	mustApply(l.tables, &turn.batch)
	l.remember()
	for _, c := range turn.commands {
		c.conn.session.reply(&pb.Reply{Id: c.command.GetId(), Revision: turn.batch.Revision})
	}
}

var errDeposed = errors.New("deposed")

func (l *simLeader) prove() {
	conn := l.pick()
	if conn == nil {
		return
	}
	if !conn.session.proofRuns {
		conn.session.takeProof()
		conn.leads = l == l.world.leader // the earliest instant that counts
		return
	}
	if conn.leads {
		conn.session.proofDone(nil)
		return
	}
	conn.session.proofDone(errDeposed)
}

func (l *simLeader) send() {
	conn := l.pick()
	if conn == nil || len(conn.down) > 6 { // a gateway that does not read
		return
	}
	for range 1 + l.world.rng.IntN(4) {
		if out, ok := conn.session.next(); ok {
			conn.down = append(conn.down, out.response())
		}
	}
	if conn.session.err != nil && conn.gateway.conn == conn && len(conn.down) == 0 {
		conn.gateway.reset()
	}
}

func (g *simGateway) connect(l *simLeader) {
	conn := &simConn{leader: l, gateway: g}
	conn.session = session{log: &l.log, maxReplies: 20, proof: true}
	hello := g.mirror.open(g.id).GetHello()
	if err := conn.session.hello(hello, l.tables.Snapshot()); err != nil {
		return // an older leader refuses
	}
	g.conn = conn
	l.conns = append(l.conns, conn)
	if len(l.conns) > 6 {
		l.conns = l.conns[1:]
	}
}

func (g *simGateway) reset() {
	g.conn = nil
	g.pending.disconnect()
}

// receive takes one message as Follower.take does.
func (g *simGateway) receive(w *simWorld) {
	if g.conn == nil || len(g.conn.down) == 0 {
		return
	}
	response := g.conn.down[0]
	g.conn.down = g.conn.down[1:]
	e, err := g.mirror.step(response)
	if err != nil {
		if g.conn.leader == w.leader {
			w.t.Errorf("%s: %v", g.id, err)
		}
		g.reset() // an older leader than the one that the gateway has seen
		return
	}
	if e.snapshot != nil {
		w.checkSnapshot(g, e.snapshot)
		g.published = e.snapshot
	}
	if e.connected {
		g.pending.connect()
	}
	if e.ack != 0 {
		g.pending.acknowledge(e.ack, g.mirror.latest)
	}
	if e.reply != nil {
		g.pending.answer(e.reply)
	}
}

func (w *simWorld) checkSnapshot(g *simGateway, s *Snapshot) {
	if old := g.published; old != nil && (s.epoch < old.epoch || s.epoch == old.epoch && s.revision < old.revision) {
		w.t.Errorf(
			"%s went back from revision %d of epoch %d to %d of %d", g.id, old.revision, old.epoch, s.revision, s.epoch,
		)
	}
	want := w.history[[2]uint64{s.epoch, s.revision}]
	if got := fingerprint(s); got != want {
		w.t.Errorf("%s holds\n%s\nbut the leader had\n%s", g.id, got, want)
	}
}

// check ends the reads and writes of a gateway that have been answered.
func (w *simWorld) check(g *simGateway) {
	readers := g.readers[:0]
	for _, r := range g.readers {
		switch {
		case !released(r.round):
			readers = append(readers, r)
		case r.round.err == nil:
			w.reads++
			if got := r.round.snapshot.Revision(); got < r.floor {
				w.t.Errorf(
					"%s: a barrier returned revision %d, but %d was acknowledged before it began", g.id, got, r.floor,
				)
			}
		}
	}
	g.readers = readers
	writers := g.writers[:0]
	for _, c := range g.writers {
		select {
		case <-c.done:
			w.checkWrite(g, c)
		default:
			writers = append(writers, c)
		}
	}
	g.writers = writers
}

func (w *simWorld) checkWrite(g *simGateway, c *call) {
	if c.err != nil {
		return
	}
	w.acked++
	w.floor = max(w.floor, c.reply.GetRevision())
	if shown := g.published.Revision(); shown < c.reply.GetRevision() {
		w.t.Errorf(
			"%s: a command was answered at revision %d, but the gateway shows %d", g.id, c.reply.GetRevision(), shown,
		)
	}
}
