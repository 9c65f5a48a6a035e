package coordinator

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
)

// term is a time in which this process leads.
type term struct {
	epoch       uint64
	now         func() int64 // Unix nanoseconds
	store       store.Store
	metrics     *metrics
	commands    *commandTable
	inbox       *inbox
	questions   *questions
	workers     int // that answer them
	watch       *diskWatch
	refuses     error // why commands are refused; nil: they are not
	source      *replica.Source
	replication http.Handler   // of source
	engine      *engine.Engine // makeTurns's alone, from run on
	revision    uint64         // of the last batch that was loaded

	// Of the events that are stored, beginCommits's alone from run on.
	events        eventLog
	nextEvent     uint64 // id of the next event
	eventCapacity int    // how many are to be kept
}

// turn is one turn on its way through the pipeline.
type turn struct {
	batch    engine.Batch
	asked    []request // as the batch's replies
	copied   *copied   // copy that was begun when the turn ended; nil: none
	revision uint64    // of the last batch when the turn ended
}

// run leads until ctx ends or a commit fails, and returns the failure.
func (t *term) run(ctx context.Context) error {
	ctx, lose := context.WithCancel(ctx)
	defer lose()
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
		defer t.source.Close(nil) // gateways are told at once, but after the replies that are due
		return t.finishCommits(begun, fresh, lose)
	})
	g.Go(func() error {
		t.watch.run(ctx)
		return nil
	})
	for range t.workers {
		g.Go(func() error {
			t.questions.work(ctx)
			return nil
		})
	}
	return g.Wait() //nolint:wrapcheck // each loop says what it was doing
}

// commandBytes is what a command takes beside what was sent of it.
const commandBytes = 512

// exec takes a command from a gateway (replica.Exec).
func (t *term) exec(ctx context.Context, gateway string, cmd *pb.Command, respond func(*pb.Reply)) {
	c, err := t.commands.find(cmd)
	switch {
	case err != nil:
	case t.refuses != nil && c.inquire == nil:
		err = t.refuses
	case c.inquire != nil:
		err = t.inquire(ctx, c, cmd, respond)
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
	again, err := t.commands.repetitionOf(cmd)
	if err != nil {
		return err
	}
	r := request{
		command: c, do: do, respond: respond, bytes: commandBytes + replica.FootprintOf(ctx), repetition: again,
	}
	if bound := t.inbox.push(r); bound != "" {
		t.metrics.inboxRefused.WithLabelValues(bound).Inc()
		return t.inbox.inboxFull(bound)
	}
	return nil
}

// inquire has a question answered beside the turns. Whoever asks may have seen all that is
// published.
func (t *term) inquire(ctx context.Context, c *command, cmd *pb.Command, respond func(*pb.Reply)) error {
	inquiry, err := c.inquire(cmd)
	if err != nil {
		return err
	}
	a := &question{
		inquiry: inquiry, task: inquiry.about(), command: c, respond: respond, gone: ctx.Err, came: time.Now(),
		least: t.source.Snapshot().Revision(),
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
	desk := desk{waiting: map[uint64]request{}}
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
		desk.take(t.inbox.drain(desk.requests[:0], maxTurn-len(desk.commands)))
		taken, wake, more := t.engine.Turn(t.now(), desk.commands, &next.batch)
		t.inbox.taken(desk.bytes(taken))
		next.asked = desk.done(next.asked[:0], taken, next.batch.Replies)
		if next.batch.Revision != 0 {
			revision = next.batch.Revision
		}
		next.revision = revision
		next.copied = t.questions.begin(t.engine)
		made <- next // it has room for every turn there is
		more = t.questions.proceed() || more
		if !more && !t.sleep(ctx, timer, wake) {
			return
		}
	}
}

// desk is what the writer loop has before it.
type desk struct {
	id       uint64             // of the last command
	commands []engine.Command   // not yet taken by the engine; Invariant: at most maxTurn
	sizes    []int              // of commands, in their order
	waiting  map[uint64]request // by command id: those who have not been answered
	requests []request          // reused
}

func (d *desk) take(requests []request) {
	for _, r := range requests {
		d.id++
		if r.respond != nil {
			d.waiting[d.id] = request{command: r.command, respond: r.respond} // what it asks is the engine's alone
		}
		d.commands = append(d.commands, r.asked(d.id))
		d.sizes = append(d.sizes, r.bytes)
	}
	clear(requests)
	d.requests = requests
}

// bytes is what the first n commands take.
func (d *desk) bytes(n int) int {
	sum := 0
	for _, size := range d.sizes[:n] {
		sum += size
	}
	return sum
}

// done drops the commands that were taken and appends the request of each reply.
func (d *desk) done(asked []request, taken int, replies []engine.Reply) []request {
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

// sleep returns when there is something in the inbox, or the engine wants to be woken; false says
// that ctx has ended.
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
