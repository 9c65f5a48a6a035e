package coordinator

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	// copyFor is how old a copy may be that is used for one more question.
	copyFor = 100 * time.Millisecond
	// copyPause is the least time between the beginnings of two copies, and copyShare the least
	// share of time that the turns have for themselves: so many times as long as the last copy has
	// held them up.
	copyPause = 50 * time.Millisecond
	copyShare = 10
	// copyNodes is how many nodes are copied between two turns; it takes some 3 ms.
	copyNodes = 10_000
	// copyIdle is how long a copy is kept that nobody asks.
	copyIdle = 10 * time.Second
	// defaultQuestions is how many questions may wait.
	defaultQuestions = 64
)

// inquiry is a question as it was read.
type inquiry interface {
	// about returns the task that the question is about; nil: it is about none.
	about() *taskName
	// ask puts the answer, with its revision, into the reply. task is nil unless the question is
	// about one.
	ask(v *scheduler.View, task *scheduler.Subject, revision uint64, reply *pb.Reply) error
}

type taskName struct {
	job, group string
	index      int32
}

// question is one that waits for its answer.
type question struct {
	inquiry inquiry
	task    *taskName // that it is about; nil: about none
	command *command
	respond func(*pb.Reply)
	gone    func() error // why nobody waits for the answer any more; nil: somebody does
	came    time.Time
	least   uint64 // what was published when it came: whoever asks may have seen that

	// Under questions.mu until a worker has its copy.
	of      *copied // copy at whose beginning the task was looked up; nil: none yet
	subject scheduler.Subject
	err     error // why there is no subject
}

// copied is a copy with the records of its revision.
type copied struct {
	copy     *scheduler.Copy
	revision uint64
	began    time.Time
	took     time.Duration // for which it has held up the turns
	whole    bool
	records  *replica.Snapshot // nil until the revision is published
}

// questions answers dry runs, explanations, capacities and plans of moves beside the turns of a
// term, from copies that all who ask share. A copy is at most 100 ms old when it is used for a
// question, or was begun after the question came; and it holds all that was published when the
// question came, so that whoever has submitted a job, and knows that, finds it. An explanation
// wants a copy that was begun after it came, because its task is looked up then.
//
// The writer loop makes the copies (begin, proceed); the records that belong to them come once they
// are durable (published). Workers answer.
type questions struct {
	limit int
	wake  func() // the writer loop
	notes *metrics

	arrived chan struct{} // a token for each question that waits

	mu struct {
		sync.Mutex
		waiting  []*question   // Invariant: at most limit
		explains []*question   // about tasks: those that have no copy yet
		latest   *copied       // whole, with its records; nil: there is none
		making   *copied       // that is not yet so; nil: none
		wanted   bool          // a worker waits for a copy that is not begun yet
		due      time.Time     // no copy begins before
		fresh    chan struct{} // closed when latest is replaced
	}
}

func newQuestions(limit int, wake func(), notes *metrics) *questions {
	q := &questions{limit: limit, wake: wake, notes: notes, arrived: make(chan struct{}, limit)}
	q.mu.fresh = make(chan struct{})
	return q
}

// push takes a question in; false says that too many wait.
func (q *questions) push(a *question) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.waiting) >= q.limit {
		return false
	}
	q.mu.waiting = append(q.mu.waiting, a)
	if a.task != nil {
		q.mu.explains = append(q.mu.explains, a)
	}
	q.arrived <- struct{}{} // there is room for each that waits
	return true
}

// pop takes the first question out; nil if nobody waits for its answer any more.
func (q *questions) pop() *question {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.mu.waiting[0]
	q.mu.waiting = slices.Delete(q.mu.waiting, 0, 1)
	if a.gone() != nil {
		q.settled(a)
		return nil
	}
	return a
}

// settled says that a question needs no other copy. The caller holds mu.
func (q *questions) settled(a *question) {
	if a.task != nil {
		q.mu.explains = slices.DeleteFunc(q.mu.explains, func(o *question) bool { return o == a })
	}
}

// work answers questions, one after the other, until ctx ends.
func (q *questions) work(ctx context.Context) {
	var d desktop
	idle := time.NewTimer(copyIdle)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-idle.C: // nobody asks: give the memory back
			d = desktop{}
			q.forget()
			continue
		case <-q.arrived:
		}
		a := q.pop()
		if a == nil {
			continue
		}
		c, err := q.copyFor(ctx, a)
		if err != nil {
			return
		}
		q.answer(a, d.view(c), c.revision)
		idle.Reset(copyIdle)
	}
}

func (q *questions) answer(a *question, v *scheduler.View, revision uint64) {
	reply, err := &pb.Reply{Revision: revision}, a.err
	if err == nil {
		err = a.inquiry.ask(v, &a.subject, revision, reply)
	}
	if err != nil {
		reply = &pb.Reply{Revision: revision, Error: wire.ErrorToProto(err)}
	}
	q.notes.answered(a.command.name, err)
	a.respond(reply)
}

// desktop keeps the view that a worker used last.
type desktop struct {
	of   *copied
	last *scheduler.View
}

func (d *desktop) view(c *copied) *scheduler.View {
	if d.of != c {
		d.of, d.last = c, nil // the one before may go first
		d.last = c.copy.View(records{c.records})
	}
	return d.last
}

// copyFor returns a copy from which a question may be answered, and waits for one if there is none.
func (q *questions) copyFor(ctx context.Context, a *question) (*copied, error) {
	for {
		c, fresh, due := q.usable(a)
		if c != nil {
			return c, nil
		}
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-fresh:
			timer.Stop()
			continue
		case <-timer.C:
		}
		q.want(a)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-fresh:
		}
	}
}

// usable returns the latest copy if a question may be answered from it; otherwise when the next one
// may begin, and what is closed when there is one.
func (q *questions) usable(a *question) (c *copied, fresh <-chan struct{}, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c = q.mu.latest; c != nil && (a.suits(c) || a.task == nil && c.revision >= a.least && time.Since(
		c.began,
	) <= copyFor) {
		q.settled(a)
		return c, nil, due
	}
	return nil, q.mu.fresh, q.mu.due
}

// suits reports whether a copy was begun after the question came and, if it is about a task, for
// that task too.
func (a *question) suits(c *copied) bool {
	if a.task != nil {
		return a.of == c
	}
	return !c.began.Before(a.came)
}

// want asks the writer loop for a copy, unless the one that is being made will do.
func (q *questions) want(a *question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.making == nil || !a.suits(q.mu.making) {
		q.mu.wanted = true
		q.wake()
	}
}

// forget drops the latest copy.
func (q *questions) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.latest = nil
}

// begin begins a copy of what is after the last turn, if one is wanted and none is being made. The
// writer loop calls it.
func (q *questions) begin(e *engine.Engine) *copied {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.wanted || q.mu.making != nil {
		return nil
	}
	c := &copied{began: time.Now()}
	c.copy, c.revision = e.Copy()
	for _, a := range q.mu.explains {
		a.subject, a.err = e.Subject(a.task.job, a.task.group, a.task.index)
		a.of = c
	}
	c.took = time.Since(c.began)
	q.mu.wanted, q.mu.making = false, c
	return c
}

// proceed goes on with the copy that is being made and reports whether there is more of it to do.
// The writer loop calls it between turns.
func (q *questions) proceed() (more bool) {
	q.mu.Lock()
	c := q.mu.making
	q.mu.Unlock()
	if c == nil || c.whole {
		return false
	}
	began := time.Now()
	whole := c.copy.Continue(copyNodes)
	c.took += time.Since(began)
	if whole {
		q.mu.Lock()
		defer q.mu.Unlock()
		c.whole = true
		q.ready(c)
	}
	return !whole
}

// published gives a copy the records of its revision.
func (q *questions) published(c *copied, records *replica.Snapshot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.records = records
	q.ready(c)
}

// ready lets a copy be used once nothing of it is missing. The caller holds mu.
func (q *questions) ready(c *copied) {
	if !c.whole || c.records == nil {
		return
	}
	q.mu.latest, q.mu.making = c, nil
	q.mu.due = c.began.Add(max(copyPause, copyShare*c.took))
	close(q.mu.fresh)
	q.mu.fresh = make(chan struct{})
}
