package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// simSteps is the length of one simulation.
const simSteps = 20_000

// mutant is a fault that is built into a simulation on purpose.
type mutant string

const (
	noMutant          mutant = "none"
	replyTooEarly     mutant = "the leader replies before it has enqueued the batch"
	publishTooLate    mutant = "the leader enqueues a batch some time after the reply"
	ackTooEarly       mutant = "a relay acknowledges before it has enqueued the batches"
	joinsInFlight     mutant = "a reader joins a sync in flight"
	noSync            mutant = "a reader is answered without a sync"
	noParent          mutant = "a relay acknowledges without its parent"
	answersForMore    mutant = "a relay with a filter serves a stream that asks for more"
	keepsStreams      mutant = "a relay keeps the streams below when its own has ended"
	keepsTasksThatAre mutant = "a stream of one node's tasks keeps those that have left the node"
)

// simLeader is one incarnation of the leader. A deposed one lives on: it serves its streams and
// does not know.
type simLeader struct {
	bench
	simSource
	inbox   []simCommand
	durable []simTurn // committed, not published yet
	late    func()    // of a mutant: enqueues the last batch
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

// simReader is a read under way; floor is the highest revision that was acknowledged to anybody
// when it began.
type simReader struct {
	round *round
	floor uint64
	began int64
}

// simWriter is a write under way.
type simWriter struct {
	*call
	op    registerOp
	began int64
}

type simWorld struct {
	rng      *rand.Rand
	mutant   mutant
	failure  string       // the first violation
	leader   *simLeader   // the one that the store accepts
	deposed  []*simLeader // latest first
	gateways []*simGateway
	relays   []*simGateway           // those of gateways with a source
	stored   *Tables                 // what is durable
	history  map[[2]uint64]*Snapshot // epoch and revision → what that leader had published
	burst    int                     // how unevenly gateways receive
	floor    uint64                  // highest revision acknowledged to anybody
	writes   int
	reads    int // reads released
	relayed  int // of these, at gateways behind a relay
	narrowed int // of these, at gateways with a filter
	acked    int // writes acknowledged
	decided  int // histories that porcupine has found linearizable
	calls    simCalls
}

// fail notes a violation, unless only the history of calls is to be judged.
func (w *simWorld) fail(format string, args ...any) {
	if w.failure == "" && !w.calls.only {
		w.failure = fmt.Sprintf(format, args...)
	}
}

// TestSimulation drives the pure steps of one leader after another, of gateways, of relays and of
// relays of relays, with filters and without. Messages are late, lost with their stream, or arrive
// at a deposed leader; relays are killed and start anew. After each step it checks:
//   - a barrier never returns a snapshot older than what was acknowledged before it began
//     (gateways.md 3.1, O1–O5), also behind relays;
//   - the effect of a reply is in the snapshot that its gateway shows;
//   - a copy equals what the leader had at the same revision, or its filter's part of that (O6),
//     and a gateway never goes back (O8);
//   - commands of gateways behind a relay reach the leader between the news of their streams.
//
// At the end the history of all reads and writes is linearizable (porcupine).
func TestSimulation(t *testing.T) {
	first, runs := testrun.Seed(t), testrun.Count(10, 18, 3000)
	var all simWorld
	for i := range runs {
		w := simulate(first+uint64(i), noMutant)
		if w.failure != "" {
			t.Fatalf("%s\nreplay with: PLIMSOLL_SEED=%d go test ./internal/replica -run TestSimulation",
				w.failure, first+uint64(i))
		}
		all.reads, all.acked = all.reads+w.reads, all.acked+w.acked
		all.relayed, all.narrowed = all.relayed+w.relayed, all.narrowed+w.narrowed
		all.decided += w.decided
	}
	t.Logf("%d reads were released, %d behind relays and %d with a filter, and %d writes acknowledged; "+
		"%d of %d histories are linearizable, the others porcupine did not decide",
		all.reads, all.relayed, all.narrowed, all.acked, all.decided, runs)
	if all.decided < runs*3/4 {
		t.Errorf("porcupine decided only %d histories of %d", all.decided, runs)
	}
	if all.reads < 80*runs || all.relayed < 10*runs || all.narrowed < 20*runs || all.acked < 30*runs {
		t.Errorf("the simulation did too little in %d runs", runs)
	}
}

func simulate(seed uint64, m mutant) *simWorld { return simulateCalls(seed, m, false) }

// simulateCalls makes one run. With only, no step is checked and the history of calls alone
// decides.
func simulateCalls(seed uint64, m mutant, only bool) (w *simWorld) {
	w = newSimWorld(seed, m)
	w.calls.only = only
	defer func() {
		if broken := recover(); broken != nil {
			if m == noMutant {
				panic(broken)
			}
			w.fail("panic: %v", broken)
		}
	}()
	for step := range simSteps {
		if w.step(); w.failure != "" {
			w.failure = fmt.Sprintf("at step %d: %s", step, w.failure)
			return w
		}
	}
	switch w.calls.check(w.gateways) {
	case porcupine.Ok:
		w.decided++
	case porcupine.Illegal:
		w.failure = "the history of calls is not linearizable"
	}
	return w
}

func newSimWorld(seed uint64, m mutant) *simWorld {
	w := &simWorld{
		rng: rand.New(rand.NewPCG(seed, 0)), mutant: m, stored: NewTables(), history: map[[2]uint64]*Snapshot{},
	}
	settings := plimsoll.DefaultEventSettings()
	settings.RingBufferCapacity = 50
	mustApply(w.stored, &wire.Batch{Revision: 1, Mutations: []wire.Mutation{
		{Kind: wire.KindEventSettings, Value: wire.AppendEventSettings(nil, &settings)},
	}})
	w.burst = 1 + w.rng.IntN(5)
	tasks := &pb.ReplicateFilter{Kinds: []pb.Kind{pb.Kind_KIND_TASK}}
	ofNode := &pb.ReplicateFilter{Kinds: []pb.Kind{pb.Kind_KIND_TASK}, Node: "n1"}
	w.gateway("direct", nil)
	relay := w.relay("relay", nil)
	second := w.relay("second", nil, relay)
	narrow := w.relay("narrow", tasks, relay)
	w.gateway("below", nil, relay, narrow) // narrow refuses it
	w.gateway("roaming", nil, nil, relay, second)
	w.gateway("deep", nil, second)
	w.gateway("tasks", tasks, narrow, relay)
	w.gateway("node", ofNode, narrow, nil)
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
	l := &simLeader{}
	l.tables = NewTables()
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
	l.bench.log = batchLog{limit: 100 + w.rng.IntN(1500), base: loaded.Revision}
	l.simSource = simSource{world: w, leader: l, log: &l.bench.log, latest: l.tables.Snapshot, open: true}
	l.simSource.transfers = w.newTransfers(&l.simSource)
	w.leader = l
	l.remember()
}

func (l *simLeader) remember() {
	l.world.history[[2]uint64{l.tables.epoch, l.tables.revision}] = l.tables.Snapshot()
}

func (w *simWorld) step() {
	g := w.gateways[w.rng.IntN(len(w.gateways))]
	leader := w.leader
	if len(w.deposed) > 0 && w.rng.IntN(6) == 0 {
		leader = w.deposed[w.rng.IntN(len(w.deposed))]
	}
	source := &leader.simSource
	if relays := w.relays; w.rng.IntN(3) > 0 {
		source = relays[w.rng.IntN(len(relays))].source
	}
	switch dice := w.rng.IntN(8000); {
	case dice < 500:
		w.read(g)
	case dice < 800:
		w.write(g)
	case dice < 1600:
		g.send()
	case dice < 3000:
		source.receive()
	case dice < 3100:
		leader.commit()
	case dice < 3250:
		leader.publish()
	case dice < 4350:
		source.prove()
	case dice < 5900:
		source.send()
	case dice < 6000:
		source.reap()
	case dice < 7985:
		if w.rng.IntN(w.burst) > 0 {
			break
		}
		for range w.rng.IntN(6 * w.burst) {
			g.receive(w)
		}
	case dice < 7994:
		g.reset() // what is on its way down is lost; what goes up may still arrive
	case dice < 7996:
		g.restart()
	case dice < 7999:
		w.elect()
	}
	if g.conn == nil && w.rng.IntN(4) == 0 {
		g.connect(leader)
	}
	w.check(g)
}

func (w *simWorld) read(g *simGateway) {
	if w.mutant == noSync && g.pending.open && g.published != nil {
		done := &round{done: make(chan struct{}), snapshot: g.published}
		close(done.done)
		g.readers = append(g.readers, simReader{done, w.floor, w.calls.tick()})
		return
	}
	if w.mutant == joinsInFlight && g.pending.inFlight != nil {
		g.readers = append(g.readers, simReader{g.pending.inFlight, w.floor, w.calls.tick()})
		return
	}
	if round, err := g.pending.join(); err == nil {
		g.readers = append(g.readers, simReader{round, w.floor, w.calls.tick()})
	}
}

func (w *simWorld) write(g *simGateway) {
	w.writes++
	op := registerOp{key: fmt.Sprint("job", w.rng.IntN(simKeys)), value: fmt.Sprint(w.writes), write: true}
	command := submit(op.key)
	command.GetSubmitJob().Spec.Token = op.value
	if c, err := g.pending.add(command); err == nil {
		g.writers = append(g.writers, simWriter{c, op, w.calls.tick()})
	}
}

var errDeposed = errors.New("deposed")

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
	if len(turn.batch.Mutations) > 0 && w.rng.IntN(30) == 0 { // events were lost
		ids := wire.EventIDs{Instance: fmt.Sprint("instance-", l.tables.epoch, "-", revision), First: l.events}
		turn.batch.Mutations = append(
			turn.batch.Mutations, wire.Mutation{Kind: wire.KindEventIDs, Value: wire.AppendEventIDs(nil, ids)},
		)
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
	enqueue := func() {
		l.bench.log.add(turn.batch.Revision, wire.AppendBatch(nil, &turn.batch))
		mustApply(l.tables, &turn.batch)
		l.remember()
	}
	if l.late != nil {
		l.late()
		l.late = nil
	}
	switch l.world.mutant {
	case replyTooEarly:
	case publishTooLate:
		l.late = enqueue
	default:
		enqueue()
	}
	for _, c := range turn.commands {
		c.conn.session.reply(&pb.Reply{Id: c.command.GetId(), Revision: turn.batch.Revision})
	}
	if l.world.mutant == replyTooEarly {
		enqueue()
	}
}

func (w *simWorld) checkSnapshot(g *simGateway, s *Snapshot) {
	if old := g.published; old != nil && (s.epoch < old.epoch || s.epoch == old.epoch && s.revision < old.revision) {
		w.fail(
			"%s went back from revision %d of epoch %d to %d of %d", g.id, old.revision, old.epoch, s.revision, s.epoch,
		)
	}
	want := contents(w.history[[2]uint64{s.epoch, s.revision}], g.filter)
	if got := contents(s, g.filter); got != want {
		w.fail("%s holds at revision %d of epoch %d\n%s\nbut the leader had\n%s", g.id, s.revision, s.epoch, got, want)
	}
	if g.filter == nil {
		return
	}
	for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
		if !g.filter.has(kind) && s.Len(kind) > 0 {
			w.fail("%s holds records of kind %d, which its filter leaves out", g.id, kind)
		}
	}
	if g.filter.node != "" && s.Len(wire.KindTask) != len(keysOfNode(s, g.filter.node)) {
		w.fail("%s holds tasks of other nodes: %s", g.id, keysOf(s, wire.KindTask, "", ""))
	}
}

// contents are the records of a snapshot that a filter lets through, in words.
func contents(s *Snapshot, f *filter) string {
	if s == nil {
		return "nothing: there was no such revision"
	}
	var words []string
	for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
		if !f.has(kind) {
			continue
		}
		for key, value := range s.Scan(kind, "", "") {
			if node := f.ofNode(); kind == wire.KindTask && node != "" && !slices.Contains(keysOfNode(s, node), key) {
				continue
			}
			words = append(words, fmt.Sprintf("kind %d %s=%s", kind, key, value))
		}
	}
	if f == nil {
		low, high, ok := s.Events().Range()
		words = append(words, fmt.Sprint("events ", low, " to ", high, " ", ok, " of ", s.InstanceUUID()))
	}
	return strings.Join(words, ", ")
}

func keysOfNode(s *Snapshot, node string) (keys []string) {
	for key := range s.NodeTasks(node) {
		keys = append(keys, key)
	}
	return keys
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
			if g.behind {
				w.relayed++
			}
			if g.filter != nil {
				w.narrowed++
			}
			if g.filter == nil {
				w.calls.read(r.began, r.round.snapshot)
			}
			if got := r.round.snapshot.Revision(); got < r.floor {
				w.fail(
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

func (w *simWorld) checkWrite(g *simGateway, c simWriter) {
	if c.err != nil {
		w.calls.unanswered(c)
		return
	}
	w.calls.write(c)
	w.acked++
	w.floor = max(w.floor, c.reply.GetRevision())
	if shown := g.published.Revision(); shown < c.reply.GetRevision() {
		w.fail(
			"%s: a command was answered at revision %d, but the gateway shows %d", g.id, c.reply.GetRevision(), shown,
		)
	}
}
