package simulate

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Config says under which policy a workload runs.
type Config struct {
	Name string // of the policy, for the report
	// Queues is the tree. A job goes to the leaf that its arrival names, by path or by its last
	// part. If there is none, the placement rules of the tree decide. Without rules it goes to
	// root.default, or if there is none to a leaf by the number of its owner.
	Queues plimsoll.QueueConfig
	// Changes are later trees, in the order of their times.
	Changes []QueueChange
	Chain   *placement.Chain // nil: that of a cluster
	Seed    uint64
	// Until is when the simulation ends, in nanoseconds from the beginning; 0: when nothing can
	// happen any more.
	Until int64
	// Clock returns a time in nanoseconds, by which the turns of the engine are measured; nil: they
	// are not.
	Clock func() int64
}

// QueueChange is a tree of queues that replaces the one before, at a time from the beginning.
type QueueChange struct {
	At     int64
	Queues plimsoll.QueueConfig
}

// Samples is how many points the series of a report have.
const Samples = 200

// Timing says how fast the engine was. It is not part of the report, which is the same each time.
type Timing struct {
	Decisions  int   // tasks that were bound
	Turns      int   // of the engine
	Scheduling int64 // nanoseconds in turns
}

// happening is something that is to happen at a time.
type happening struct {
	at    int64
	order int // of equal times the lower is first
	do    func(r *runner) []engine.Operation
}

type happenings []happening

func (h happenings) Len() int { return len(h) }

func (h happenings) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].at, h[j].at), cmp.Compare(h[i].order, h[j].order)) < 0
}
func (h happenings) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *happenings) Push(x any)   { *h = append(*h, x.(happening)) }

func (h *happenings) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// runner runs a workload.
type runner struct {
	*cluster
	cfg      *Config
	workload *Workload
	coming   happenings
	order    int
	jobs     map[string]*jobRun
	leaves   []string
	owners   map[string]int
	report   *Report
	sampler  sampler
	lastAt   int64

	differences []int64 // between the waits of tasks here and then, each without a sign
}

// Run runs a workload and reports on it. The workload stays as it is.
func Run(cfg *Config, w *Workload) (*Report, *Timing, error) {
	c, err := newCluster(state.Config{
		Chain: cfg.Chain, KeepEnded: second, MaxNodes: max(len(w.Nodes), 1),
	}, cfg.Queues, cfg.Seed, scenarioBase)
	if err != nil {
		return nil, nil, err
	}
	c.clock = cfg.Clock
	r := &runner{
		cluster: c, cfg: cfg, workload: w, jobs: map[string]*jobRun{},
		owners: map[string]int{},
	}
	r.state().Tree().Root.Walk(func(q *queue.Queue) {
		if q.Leaf {
			r.leaves = append(r.leaves, q.Path)
		}
	})
	slices.Sort(r.leaves)
	r.report = newReport(cfg, w, r.leaves)
	c.started, c.ended = r.taskStarted, r.taskEnded
	if err := r.plan(); err != nil {
		return nil, nil, err
	}
	r.sampler = newSampler(w, r.span())
	r.loop()
	r.finish()
	return r.report, &Timing{Decisions: c.bound, Turns: c.turns, Scheduling: c.spent}, nil
}

func (r *runner) at(t int64, do func(r *runner) []engine.Operation) {
	r.order++
	heap.Push(&r.coming, happening{t, r.order, do})
}

// plan plans the nodes, the changes of queues, and the arrivals.
func (r *runner) plan() error {
	for i := range r.workload.Nodes {
		r.planNode(&r.workload.Nodes[i])
	}
	for i := range r.cfg.Changes {
		c := &r.cfg.Changes[i]
		r.at(c.At, func(*runner) []engine.Operation {
			return []engine.Operation{&engine.SetQueueConfig{Config: c.Queues}}
		})
	}
	for i := range r.workload.Arrivals {
		if err := r.planJob(&r.workload.Arrivals[i]); err != nil {
			return err
		}
	}
	return nil
}

// span is the time from the beginning to the last arrival, over which samples are taken.
func (r *runner) span() int64 {
	last := int64(1)
	for i := range r.workload.Arrivals {
		a := &r.workload.Arrivals[i]
		last = max(last, a.At)
	}
	if r.cfg.Until > 0 {
		last = r.cfg.Until
	}
	return last
}

// loop lets everything happen, in the order of time.
func (r *runner) loop() {
	for {
		next := int64(-1)
		if len(r.coming) > 0 {
			next = r.coming[0].at
		}
		if wake := r.wake - scenarioBase; r.wake != 0 && (next < 0 || wake < next) {
			if next < 0 && r.idle() {
				return
			}
			next = wake
		}
		if next < 0 || r.cfg.Until > 0 && next > r.cfg.Until {
			return
		}
		r.sampler.until(r, next)
		r.now = scenarioBase + next
		var operations []engine.Operation
		for len(r.coming) > 0 && r.coming[0].at == next {
			operations = append(operations, heap.Pop(&r.coming).(happening).do(r)...)
		}
		for i, err := range r.do(operations...) {
			if err != nil {
				r.refuse(operations[i], err)
			}
		}
		r.lastAt = next
	}
}

// patience is how long a task that waits may be the only thing that is left.
const patience = 30 * 24 * 3600 * second

// idle reports whether no task waits any more, or one has waited for too long.
func (r *runner) idle() bool {
	return r.out.Totals.Tasks[plimsoll.TaskPending] == 0 || r.now-scenarioBase > r.sampler.span+patience
}

// finish completes the report at the end.
func (r *runner) finish() {
	r.sampler.until(r, r.sampler.span+1)
	r.report.end(r)
}

// describeError returns the part of a refusal without the names in it, to count equal ones.
func describeError(err error) string {
	text := err.Error()
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		text = text[:i]
	}
	return fmt.Sprintf("%s (%s)", text, plimsoll.CodeOf(err))
}
