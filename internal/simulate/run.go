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
	Chain  *placement.Chain // nil: that of a cluster
	Seed   uint64
	// Until is when the simulation ends, in nanoseconds from the beginning; 0: when nothing can
	// happen any more.
	Until int64
	// Clock returns a time in nanoseconds, by which the turns of the engine are measured; nil: they
	// are not.
	Clock func() int64
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
	jobs     map[string]*Arrival
	began    map[string][]bool // by job: tasks whose first attempt has begun
	leaves   []string
	owners   map[string]int
	report   *Report
	sampler  sampler
	lastAt   int64
}

// Run runs a workload and reports on it.
func Run(cfg *Config, w *Workload) (*Report, *Timing, error) {
	c, err := newCluster(state.Config{
		Chain: cfg.Chain, KeepEnded: second, MaxNodes: max(len(w.Nodes), 1),
	}, cfg.Queues, cfg.Seed, scenarioBase)
	if err != nil {
		return nil, nil, err
	}
	c.clock = cfg.Clock
	r := &runner{
		cluster: c, cfg: cfg, workload: w, jobs: map[string]*Arrival{}, began: map[string][]bool{},
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

// plan plans the nodes and arrivals of the workload.
func (r *runner) plan() error {
	for i := range r.workload.Nodes {
		n := &r.workload.Nodes[i]
		r.at(n.From, func(*runner) []engine.Operation { return n.join() })
		if n.Until > 0 {
			r.at(n.Until, func(*runner) []engine.Operation {
				return []engine.Operation{&engine.LeaveNode{Node: n.ID, Incarnation: 1, Empty: true}}
			})
		}
	}
	for i := range r.workload.Arrivals {
		a := &r.workload.Arrivals[i]
		if r.jobs[a.Job] != nil {
			return plimsoll.Invalid("workload", "the job %q stands twice; give each job its own name", a.Job)
		}
		r.jobs[a.Job], r.began[a.Job] = a, make([]bool, len(a.Tasks))
		r.at(a.At, func(r *runner) []engine.Operation { return r.submit(a) })
		if a.Killed > 0 {
			r.at(a.Killed, func(*runner) []engine.Operation {
				return []engine.Operation{&engine.KillJob{ID: a.Job, Reason: "killed, as in the workload"}}
			})
		}
	}
	return nil
}

// join returns the operations by which a node joins.
func (n *Node) join() []engine.Operation {
	op := node(n.ID, n.Capacity, n.Attributes)
	op.Node.Facts = n.Facts
	list := []engine.Operation{op}
	if n.Closed {
		list = append(list, &engine.SetNodeMode{ID: n.ID, Mode: plimsoll.NodeCordoned})
	}
	return list
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

// submit returns the operation that submits a job.
func (r *runner) submit(a *Arrival) []engine.Operation {
	attempts := 0
	for _, t := range a.Tasks {
		attempts = max(attempts, len(t))
	}
	spec := &plimsoll.JobSpec{
		ID: a.Job, Owner: a.Owner, Queue: r.queueOf(a), Labels: a.Labels, Tags: a.Tags,
		Groups: []plimsoll.GroupSpec{{
			Name: "t", Count: int32(len(a.Tasks)), Command: []string{"true"}, Resources: a.Resources,
			Priority: a.Priority, Constraints: a.Constraints,
			Retry: plimsoll.RetryPolicy{Kind: plimsoll.RetryImmediate, Limit: int32(max(attempts-1, 0))},
		}},
	}
	return []engine.Operation{&engine.SubmitJob{Spec: spec, Replace: true}}
}

// queueOf returns the queue of a job; empty: the rules of the tree decide.
func (r *runner) queueOf(a *Arrival) string {
	if slices.Contains(r.leaves, a.Queue) {
		return a.Queue
	}
	if a.Queue != "" {
		for _, leaf := range r.leaves {
			if strings.HasSuffix(leaf, "."+a.Queue) {
				return leaf
			}
		}
	}
	switch p := r.cfg.Queues.Partition; {
	case p != nil && len(p.Rules) > 0:
		return ""
	case slices.Contains(r.leaves, plimsoll.DefaultQueue), len(r.leaves) == 0:
		return plimsoll.DefaultQueue
	}
	n, ok := r.owners[a.Owner]
	if !ok {
		n = len(r.owners)
		r.owners[a.Owner] = n
	}
	return r.leaves[n%len(r.leaves)]
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

func (r *runner) refuse(op engine.Operation, err error) {
	submit, ok := op.(*engine.SubmitJob)
	if !ok {
		return // a job that has ended cannot be killed, and a node that is gone cannot leave
	}
	r.report.refused(len(r.jobs[submit.Spec.ID].Tasks), err)
}

// taskStarted plans the end of an attempt that has begun.
func (r *runner) taskStarted(t *plimsoll.Task) {
	a := r.jobs[t.Job]
	if !r.began[t.Job][t.Index] {
		r.began[t.Job][t.Index] = true
		r.report.began(r.state().Job(t.Job).Queue.Path, a.Owner, t.Bound-t.Created)
	}
	run := a.Tasks[t.Index]
	attempt := run[min(int(t.Attempt), len(run))-1]
	if attempt.Runtime == 0 {
		return
	}
	name := *t
	r.at(r.now-scenarioBase+attempt.Runtime, func(r *runner) []engine.Operation {
		ref, ok := r.state().FindTask(name.Job, name.Group, name.Index)
		if !ok || ref.Task().Attempt != name.Attempt || ref.Task().State != plimsoll.TaskRunning {
			return nil // it was stopped before
		}
		return []engine.Operation{r.finished(&name, attempt.Result)}
	})
}

// finished is the report of an agent that an attempt has ended.
func (r *runner) finished(t *plimsoll.Task, result plimsoll.TaskResult) engine.Operation {
	return &engine.ReportTasks{Node: t.Node, Incarnation: 1, Reports: []engine.Report{{
		Job: t.Job, Group: t.Group, Index: t.Index,
		TaskReport: plimsoll.TaskReport{
			Attempt: t.Attempt, State: plimsoll.TaskFinished, Result: result, At: r.now,
		},
	}}}
}

func (r *runner) taskEnded(t *plimsoll.Task) {
	if t.State != plimsoll.TaskFinished {
		return
	}
	r.report.ended(t)
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
