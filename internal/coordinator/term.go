package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// term is a period in which this process leads, or only reads (refusal).
type term struct {
	epoch       uint64
	now         func() int64 // Unix nanoseconds; see termClock
	store       store.Store
	reads       storeReads
	metrics     *metrics
	commands    *commandTable
	inbox       *inbox
	questions   *questions
	proofs      *proofs
	workers     int // goroutines that answer questions
	requests    *requestStore
	watch       *diskWatch
	archiver    *archiver // nil: there is no archive
	refusal     error     // error for all commands of a read-only term; nil in others
	source      *replica.Source
	replication http.Handler   // handler of source
	engine      *engine.Engine // only makeTurns uses it once run has begun
	revision    uint64         // revision of the last loaded batch
	totals      lastTotals
	address     string        // of this process, for gateways
	began       int64         // Unix nanoseconds
	leaving     chan struct{} // capacity 1: the term was asked to hand leadership over

	// The stored events. Only beginCommits uses these fields once run has begun.
	events        eventLog
	nextEvent     uint64        // id of the next event
	ids           wire.EventIDs // what the ids of the events count
	newIDs        bool          // the store does not have ids yet
	counts        counter
	eventSettings plimsoll.EventSettings
	historians    replica.Historians

	queuesRefused func(err error) // Events.QueueConfigRefused

	unread uint64 // ring.View.Unread as far as it is counted. Only finishCommits uses it once run has begun.
}

// turn is one turn on its way through the pipeline.
type turn struct {
	batch    engine.Batch
	requests []request  // requests of the batch's replies, in the same order
	copy     *fleetCopy // copy that was begun when the turn ended; nil: none
	revision uint64     // revision of the last batch when the turn ended
}

// run leads until ctx ends, another process leads or a commit fails. It returns why.
func (t *term) run(ctx context.Context) error {
	ctx, lose := context.WithCancel(ctx)
	defer lose()
	// Proofs go on until the replies that are due have been sent.
	proving, endProofs := context.WithCancel(context.WithoutCancel(ctx))
	defer endProofs()
	g, ctx := errgroup.WithContext(ctx)
	fresh, made, begun := make(chan *turn, pipeline), make(chan *turn, pipeline), make(chan *commit, pipeline)
	for range pipeline {
		fresh <- new(turn)
	}
	g.Go(func() error {
		defer close(made)
		t.makeTurns(ctx, fresh, made)
		return nil
	})
	g.Go(func() error {
		defer close(begun)
		return t.beginCommits(made, begun)
	})
	g.Go(func() error {
		defer endProofs()
		defer t.source.Close(nil) // gateways are told at once, but after the replies that are due
		return t.finishCommits(begun, fresh, lose)
	})
	g.Go(func() error { return t.proofs.run(proving) })
	g.Go(func() error {
		select {
		case <-ctx.Done():
		case <-t.store.Deposed():
			t.source.Close(nil) // before the replies that are due: they may not be sent any more
			endProofs()
			lose()
		}
		return nil
	})
	g.Go(func() error {
		t.watch.run(ctx)
		return nil
	})
	g.Go(func() error {
		t.requests.run(ctx)
		return nil
	})
	if t.archiver != nil {
		g.Go(func() error {
			t.archiver.run(ctx)
			return nil
		})
	}
	for range t.workers {
		g.Go(func() error {
			t.questions.work(ctx)
			return nil
		})
	}
	handedOver := false
	g.Go(func() error {
		if handedOver = t.handOver(ctx); handedOver {
			lose()
		}
		return nil
	})
	err := ended(t.store, g.Wait())
	if err == nil && handedOver {
		return errSteppedDown
	}
	return err
}

// errDeposed says that a term ended because another process leads, or because this one could no
// longer prove that it leads.
var errDeposed = errors.New("this process does not lead any more")

// ended returns why a term on a store has ended, or could not begin. It returns errDeposed if the
// process was deposed, whatever failed for that reason.
func ended(st store.Store, err error) error {
	select {
	case <-st.Deposed():
	default:
		if plimsoll.CodeOf(err) != plimsoll.CodeStale {
			return err
		}
	}
	if err == nil {
		return errDeposed
	}
	return fmt.Errorf("%w: %w", errDeposed, err)
}

// commandBytes is the memory of a command in bytes, beside its decoded message.
const commandBytes = 512

// exec takes a command from a gateway (replica.Exec).
func (t *term) exec(ctx context.Context, gateway string, cmd *pb.Command, respond func(*pb.Reply)) {
	c, err := t.commands.find(cmd)
	switch {
	case err != nil:
	case t.refusal != nil && c.inquire == nil:
		err = t.refusal
	case c.inquire != nil:
		err = t.inquire(ctx, c, cmd, respond)
	case c.ofTerm != nil && t.proofs.full():
		err = plimsoll.Errorf(
			plimsoll.CodeExhausted, "%d answers wait until the leader has proved that it leads; try again", maxProofs,
		)
	case c.ofTerm != nil:
		respond := t.proven(respond)
		c.ofTerm(t, cmd, func(reply *pb.Reply, err error) {
			t.metrics.answered(c.name, err)
			if err != nil {
				reply = refusal(err)
			}
			reply.Revision = t.source.Snapshot().Revision()
			respond(reply)
		})
	default:
		err = t.command(ctx, c, gateway, cmd, respond)
	}
	if err != nil {
		t.metrics.answered(c.name, err)
		respond(refusal(err))
	}
}

// command puts a command into the inbox.
func (t *term) command(
	ctx context.Context, c *command, gateway string, cmd *pb.Command, respond func(*pb.Reply),
) error {
	do, err := c.decode(gateway, cmd)
	if err != nil {
		return err
	}
	if report, is := do.(*engine.ReportHistorian); is {
		if err := checkPosition(t.source.Snapshot(), report); err != nil {
			return err
		}
	}
	t.nameJob(do)
	again, err := t.commands.repetitionOf(cmd)
	if err != nil {
		return err
	}
	r := request{
		command: c, do: do, respond: respond, bytes: commandBytes + replica.FootprintOf(ctx), repetition: again,
	}
	r.respond = t.archiver.orDelete(&r)
	if set, is := do.(*engine.SetQueueConfig); is && !set.DryRun {
		r.respond = t.tellRefusal(respond)
	}
	if bound := t.inbox.push(r); bound != "" {
		t.metrics.inboxRefused.WithLabelValues(bound).Inc()
		return t.inbox.inboxFull(bound)
	}
	return nil
}

// tellRefusal tells the process too why a tree of queues by a user was refused.
func (t *term) tellRefusal(respond func(*pb.Reply)) func(*pb.Reply) {
	return func(reply *pb.Reply) {
		if err := wire.ErrorFromProto(reply.GetError()); err != nil {
			t.queuesRefused(err)
		}
		respond(reply)
	}
}

// inquire queues a question for the workers. The answer must hold all that is published now,
// because the caller may have seen it.
func (t *term) inquire(ctx context.Context, c *command, cmd *pb.Command, respond func(*pb.Reply)) error {
	inquiry, err := c.inquire(cmd)
	if err != nil {
		return err
	}
	a := &question{
		inquiry: inquiry, task: inquiry.about(), command: c, canceled: ctx.Err, arrived: time.Now(),
		least: t.source.Snapshot().Revision(),
		respond: func(reply *pb.Reply) { // a worker calls it, and has one answer at a time
			if t.proofs.get(ctx) == nil {
				respond(reply) // without a proof the stream ends with the term
			}
		},
	}
	if !t.questions.push(a) {
		return plimsoll.Errorf(
			plimsoll.CodeExhausted, "the leader has %d questions waiting; try again", t.questions.limit,
		)
	}
	return nil
}

// makeTurns is the writer loop. It ends with ctx.
func (t *term) makeTurns(ctx context.Context, fresh <-chan *turn, made chan<- *turn) {
	pending := pendingCommands{waiting: map[uint64]request{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	revision := t.revision
	for {
		var next *turn
		select {
		case <-ctx.Done():
			return
		case next = <-fresh:
		}
		t.metrics.depth.Inc()
		pending.take(t.inbox.drain(pending.requests[:0], maxTurn-len(pending.commands)))
		taken, wake, more := t.engine.Turn(t.now(), pending.commands, &next.batch)
		t.inbox.taken(pending.bytes(taken))
		next.requests = pending.done(next.requests[:0], taken, next.batch.Replies)
		if next.batch.Revision != 0 {
			revision = next.batch.Revision
		}
		next.revision = revision
		next.copy = t.questions.begin(t.engine)
		made <- next // never blocks: the channel has room for all turns
		more = t.questions.proceed() || more
		if !more && !t.sleep(ctx, timer, wake) {
			return
		}
	}
}

// pendingCommands holds the commands that the writer loop has drained, and the requests without a
// reply.
type pendingCommands struct {
	id       uint64             // id of the last command
	commands []engine.Command   // commands that the engine has not taken; Invariant: at most maxTurn
	sizes    []int              // bytes of commands, in their order
	waiting  map[uint64]request // requests without a reply, by command id
	requests []request          // buffer
}

func (d *pendingCommands) take(requests []request) {
	for _, r := range requests {
		d.id++
		if r.respond != nil {
			d.waiting[d.id] = request{command: r.command, respond: r.respond} // only the engine keeps the operation
		}
		d.commands = append(d.commands, r.engineCommand(d.id))
		d.sizes = append(d.sizes, r.bytes)
	}
	clear(requests)
	d.requests = requests
}

// bytes returns the bytes of the first n commands.
func (d *pendingCommands) bytes(n int) int {
	sum := 0
	for _, size := range d.sizes[:n] {
		sum += size
	}
	return sum
}

// done drops the commands that the engine has taken, and appends the request of each reply to
// asked.
func (d *pendingCommands) done(asked []request, taken int, replies []engine.Reply) []request {
	rest := copy(d.commands, d.commands[taken:])
	clear(d.commands[rest:])
	d.commands = d.commands[:rest]
	d.sizes = d.sizes[:copy(d.sizes, d.sizes[taken:])]
	for i := range replies {
		id := replies[i].ID
		asked = append(asked, d.waiting[id])
		delete(d.waiting, id)
	}
	return asked
}

// sleep waits until the inbox has a command or the engine's timer is due. It returns false if ctx
// has ended.
func (t *term) sleep(ctx context.Context, timer *time.Timer, wake int64) bool {
	var due <-chan time.Time
	if wake != 0 {
		timer.Reset(time.Duration(max(0, wake-t.now())))
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-t.inbox.wake:
	case <-due:
	}
	return true
}
