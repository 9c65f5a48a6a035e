package coordinator

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
)

// term is the time in which a process leads.
type term struct {
	*Coordinator
	*loaded
	epoch  uint64
	engine *engine.Engine // makeTurns's alone
	source *replica.Source
}

// turn is one turn on its way through the pipeline.
type turn struct {
	batch    engine.Batch
	asked    []request // as the batch's replies
	revision uint64    // of the last batch when the turn ended
}

// run leads until ctx ends, or a commit or serve fails, and returns the failure.
func (t *term) run(ctx context.Context, serve func(context.Context) error) error {
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
	g.Go(func() error { return serve(ctx) })
	return g.Wait() //nolint:wrapcheck // each loop says what it was doing
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
		desk.take(t.drain(desk.requests[:0], maxTurn-len(desk.commands)))
		taken, wake, more := t.engine.Turn(t.cfg.Now(), desk.commands, &next.batch)
		next.asked = desk.done(next.asked[:0], taken, next.batch.Replies)
		if next.batch.Revision != 0 {
			revision = next.batch.Revision
		}
		next.revision = revision
		made <- next // it has room for every turn there is
		if !more && !t.sleep(ctx, timer, wake) {
			return
		}
	}
}

// desk is what the writer loop has before it.
type desk struct {
	id       uint64             // of the last command
	commands []engine.Command   // not yet taken by the engine; Invariant: at most maxTurn
	waiting  map[uint64]request // by command id: those who have not been answered
	requests []request          // reused
}

func (d *desk) take(requests []request) {
	for _, r := range requests {
		d.id++
		if r.respond != nil {
			d.waiting[d.id] = r
		}
		d.commands = append(d.commands, engine.Command{ID: d.id, Do: r.do})
	}
	clear(requests)
	d.requests = requests
}

// done drops the commands that were taken and appends the request of each reply.
func (d *desk) done(asked []request, taken int, replies []engine.Reply) []request {
	rest := copy(d.commands, d.commands[taken:])
	clear(d.commands[rest:])
	d.commands = d.commands[:rest]
	for i := range replies {
		id := replies[i].ID
		asked = append(asked, d.waiting[id])
		delete(d.waiting, id)
	}
	return asked
}

// sleep returns when there is something in the inbox, or the engine wants to be woken; false says that ctx has ended.
func (t *term) sleep(ctx context.Context, timer *time.Timer, wake int64) bool {
	var due <-chan time.Time
	if wake != 0 {
		timer.Reset(time.Duration(max(0, wake-t.cfg.Now())))
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-t.wake:
	case <-due:
	}
	return true
}
