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
	// copyFor is the age up to which a copy may answer a new question.
	copyFor = 100 * time.Millisecond
	// copyPause is the least time between the beginnings of two copies. If the last copy held up
	// the turns for long, the time is at least copyShare times as long.
	copyPause = 50 * time.Millisecond
	copyShare = 10
	// copyNodes is the number of nodes that are copied between two turns, in about 3 ms.
	copyNodes = 10_000
	// copyIdle is the time after the last question at which the copy is dropped.
	copyIdle = 10 * time.Second
	// defaultQuestions is the default of Config.MaxQuestions.
	defaultQuestions = 64
)

// inquiry is a decoded question.
type inquiry interface {
	// about returns the task of the question; nil if the question is not about a task.
	about() *taskName
	// ask writes the answer and its revision into the reply. task is used only if the question is
	// about a task.
	ask(v *scheduler.View, task *scheduler.Subject, revision uint64, reply *pb.Reply) error
}

type taskName struct {
	job, group string
	index      int32
}

// question is a question that waits for its answer.
type question struct {
	inquiry  inquiry
	task     *taskName // task of the question; nil: the question is not about a task
	command  *command
	respond  func(*pb.Reply)
	canceled func() error // error once nobody waits for the answer any more; nil before
	arrived  time.Time
	least    uint64 // revision that was published when the question came; the answer must hold it

	// questions.mu guards these fields until a worker has the copy.
	copy    *fleetCopy // copy at whose begin the task was looked up; nil: not yet
	subject scheduler.Subject
	err     error // error of the look-up; subject is empty then
}

// fleetCopy is a copy of the fleet with the records of its revision.
type fleetCopy struct {
	copy     *scheduler.Copy
	revision uint64
	began    time.Time
	took     time.Duration // time for which the copy has held up the turns
	whole    bool
	records  *replica.Snapshot // nil until the revision is published
}

// questions answers dry runs, explanations, capacities and plans of moves beside the turns of a
// term, from shared copies. A copy for a question is at most 100 ms old, or was begun after the
// question came. It holds everything that was published before the question came: a client that has
// submitted a job finds it in the answer. An explanation needs a copy that was begun after it came,
// because its task is looked up at that moment.
//
// The writer loop makes the copies (begin, proceed). The records of a copy are added once they are
// durable (published). Workers answer.
type questions struct {
	limit   int
	wake    func() // wakes the writer loop
	metrics *metrics

	arrived chan struct{} // an element for each waiting question

	mu struct {
		sync.Mutex
		waiting  []*question   // Invariant: at most limit
		explains []*question   // waiting questions about tasks that have no copy yet
		latest   *fleetCopy    // last complete copy, with its records; nil: there is none
		making   *fleetCopy    // copy that is not complete, or lacks its records; nil: none
		wanted   bool          // a worker waits for a copy that has not begun
		due      time.Time     // no copy begins before this time
		fresh    chan struct{} // closed, and replaced, when latest is replaced
	}
}

func newQuestions(limit int, wake func(), notes *metrics) *questions {
	q := &questions{limit: limit, wake: wake, metrics: notes, arrived: make(chan struct{}, limit)}
	q.mu.fresh = make(chan struct{})
	return q
}

// push adds a question. It returns false if too many questions wait.
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
	q.arrived <- struct{}{} // never blocks: the capacity is the limit of waiting questions
	return true
}

// pop removes the first question. It returns nil if nobody waits for the answer any more.
func (q *questions) pop() *question {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.mu.waiting[0]
	q.mu.waiting = slices.Delete(q.mu.waiting, 0, 1)
	if a.canceled() != nil {
		q.dropExplain(a)
		return nil
	}
	return a
}

// dropExplain removes a question from explains, because it needs no other copy. The caller holds
// mu.
func (q *questions) dropExplain(a *question) {
	if a.task != nil {
		q.mu.explains = slices.DeleteFunc(q.mu.explains, func(o *question) bool { return o == a })
	}
}

// work answers questions, one after the other, until ctx ends.
func (q *questions) work(ctx context.Context) {
	var d viewCache
	idle := time.NewTimer(copyIdle)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-idle.C: // nobody asks: give the memory back
			d = viewCache{}
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
	q.metrics.answered(a.command.name, err)
	a.respond(reply)
}

// viewCache keeps the last view of a worker, for further questions about the same copy.
type viewCache struct {
	copy *fleetCopy
	last *scheduler.View
}

func (d *viewCache) view(c *fleetCopy) *scheduler.View {
	if d.copy != c {
		d.copy, d.last = c, nil // drop the earlier view before the next is made
		d.last = c.copy.View(records{c.records})
	}
	return d.last
}

// copyFor returns a copy that may answer a question, and waits for one if there is none.
func (q *questions) copyFor(ctx context.Context, a *question) (*fleetCopy, error) {
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
		q.want(a, fresh)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-fresh:
		}
	}
}

// usable returns the latest copy if it may answer a question. Otherwise it returns the channel that
// is closed at the next copy, and the time before which that copy does not begin.
func (q *questions) usable(a *question) (c *fleetCopy, fresh <-chan struct{}, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c = q.mu.latest
	if c == nil || !a.canUse(c) && !a.canShare(c) {
		return nil, q.mu.fresh, q.mu.due
	}
	q.dropExplain(a)
	return c, nil, due
}

// canUse reports whether a copy was begun after the question came. For a question about a task, the
// task must have been looked up for that copy.
func (a *question) canUse(c *fleetCopy) bool {
	if a.task != nil {
		return a.copy == c
	}
	return !c.began.Before(a.arrived)
}

// canShare reports whether a copy that was begun before the question came is recent enough.
func (a *question) canShare(c *fleetCopy) bool {
	return a.task == nil && c.revision >= a.least && time.Since(c.began) <= copyFor
}

// want asks the writer loop for a copy, unless the question can use the one that is being made.
// It does nothing if fresh, which came with the latest copy, is closed: another copy came since.
func (q *questions) want(a *question, fresh <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.fresh != fresh {
		return
	}
	if q.mu.making == nil || !a.canUse(q.mu.making) {
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

// begin begins a copy of the fleet after the last turn, if one is wanted and none is being made.
// The writer loop calls it.
func (q *questions) begin(e *engine.Engine) *fleetCopy {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.wanted || q.mu.making != nil {
		return nil
	}
	c := &fleetCopy{began: time.Now()}
	c.copy, c.revision = e.Copy()
	for _, a := range q.mu.explains {
		a.subject, a.err = e.Subject(a.task.job, a.task.group, a.task.index)
		a.copy = c
	}
	c.took = time.Since(c.began)
	q.mu.wanted, q.mu.making = false, c
	return c
}

// proceed continues the copy that is being made, and reports whether a part of it is left. The
// writer loop calls it between turns.
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
func (q *questions) published(c *fleetCopy, records *replica.Snapshot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.records = records
	q.ready(c)
}

// ready makes a copy the latest one if it is complete and has its records. The caller holds mu.
func (q *questions) ready(c *fleetCopy) {
	if !c.whole || c.records == nil {
		return
	}
	q.mu.latest, q.mu.making = c, nil
	q.mu.due = c.began.Add(max(copyPause, copyShare*c.took))
	close(q.mu.fresh)
	q.mu.fresh = make(chan struct{})
}
