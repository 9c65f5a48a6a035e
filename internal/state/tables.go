package state

import (
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Config sets the periods and bounds of the state. Zero means the default, which for some is no
// bound.
type Config struct {
	NodeGrace    int64 // ns a node may be silent after a leader or gateway was lost before it counts as not ready; 15 s
	LostAfter    int64 // ns after which the tasks of a node that is not ready are given up; 60 s
	KeepEnded    int64 // ns that an ended job is kept; 72 h
	MaxEnded     int   // ended jobs that are kept at most, the oldest go first; 10,000
	MaxJobs      int   // jobs known at once; 1,000,000
	MaxNodes     int   // nodes known at once; 200,000
	MaxTasks     int   // tasks of all jobs; none
	MaxBytes     int   // of memory that jobs take beside their tasks; none
	MaxNodeBytes int   // of all nodes as they are stored; none
	MaxSpecBytes int   // size of one job's specification; 1 MiB, and never more than a sixteenth of a batch
	EvictedFor   int64 // ns that a group does not go back to a node that evicted a task of it; 5 min

	KeepOutcomes    int64 // ns that the outcome of a command with a token is remembered; 10 min
	MaxOutcomes     int   // outcomes that are, a quarter of them for refusals; 65,536
	MaxOutcomeBytes int   // bytes that they take as they are stored, divided likewise; 16 MiB

	Limits Limits           // of the store; none
	Chain  *placement.Chain // what chooses nodes; placement.ClusterDefault()
}

const second = int64(1e9)

// DefaultEvictedFor is how long a group does not go back to a node that evicted a task of it,
// unless that is configured.
const DefaultEvictedFor = 5 * time.Minute

func (c Config) withDefaults() Config {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	setInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.NodeGrace, 15*second)
	set(&c.LostAfter, 60*second)
	set(&c.KeepEnded, 72*3600*second)
	set(&c.EvictedFor, int64(DefaultEvictedFor))
	set(&c.KeepOutcomes, 600*second)
	setInt(&c.MaxEnded, 10_000)
	setInt(&c.MaxJobs, 1_000_000)
	setInt(&c.MaxNodes, 200_000)
	setInt(&c.MaxSpecBytes, maxSpec)
	setInt(&c.MaxOutcomes, 65_536)
	setInt(&c.MaxOutcomeBytes, 16<<20)
	if c.Chain == nil {
		c.Chain = placement.ClusterDefault()
	}
	return c
}

// State is the working state. It has one owner.
type State struct {
	Names *placement.Names
	Fleet *placement.Fleet // by node slot; a slot may be vacant

	cfg      Config
	bounds   bounds // of what a turn and its steps change
	tree     *queue.Tree
	classes  map[string]*Class
	lanes    table[Group] // by the number that the tree knows
	accounts table[Job]   // the same
	jobs     map[string]*Job
	nodes    map[string]*Node
	slots    []*Node // by slot; nil: vacant
	vacant   []int32

	policies policies
	outcomes outcomes
	metrics  *qos.Registry // that every node's agent has

	total         placement.Amounts // capacity of all nodes
	asked         placement.Amounts // what the jobs that have not ended ask for; no sum in a queue is larger
	names         resourceNames     // who has the names of Names
	eligible      int               // nodes that are ready and active
	held          holdings          // by all jobs
	heldEnded     holdings          // of that, by those that have ended
	made          int               // tasks that are there
	nodeBytes     int               // of all nodes, as storedNode counts them
	lastSubmitted int64
	registrations uint64
	revision      uint64 // of the turn under way
	at            int64  // time of the turn under way

	nodeLog nodeLog
	scratch []byte

	shortage string // why the disk of the store has no room for more state; empty: it has

	growing    []*Job  // tasks are to be created
	stopping   []*Job  // tasks are to be stopped: killed, or scaled down
	emptying   []*Node // tasks are to be stopped or given up: draining, or lost
	forgiving  []*Job  // ended: nodes are to take them again
	forgetting []*Job  // records are to be deleted
	ended      fifo[*Job]
	timers     timerHeap
	tidyTimers int // number of timers at which those that are stale are dropped

	dirty dirtyLists
}

// New returns an empty state with the given queues.
func New(cfg Config, queues plimsoll.QueueConfig) *State {
	names := placement.NewNames()
	s := &State{
		Names:   names,
		Fleet:   placement.NewFleet(names),
		cfg:     cfg.withDefaults(),
		classes: map[string]*Class{},
		jobs:    map[string]*Job{},
		nodes:   map[string]*Node{},
	}
	s.bounds = boundsOf(&s.cfg)
	var err error
	if s.metrics, err = qos.NewRegistry(); err != nil {
		panic(err) // the built-in metrics are a constant
	}
	s.outcomes.byToken = map[string]*Outcome{}
	s.policies.byRef = map[plimsoll.PolicyRef]*plimsoll.Policy{}
	s.Fleet.Loader.Instance, s.Fleet.Loader.Volumes = s.whereIs, s.volumesOf
	s.tree = queue.New(names, &queues)
	s.names.unknown = map[string]*unknownName{}
	s.nameQueues()
	s.names.known = s.names.queues
	return s
}

// Job is a job's row.
type Job struct {
	Spec   *plimsoll.JobSpec
	Queue  *queue.Queue
	Groups []Group
	State  plimsoll.JobState
	Reason string
	Killed bool

	Submitted int64 // strictly increasing over jobs: the order of the queue
	Started   int64
	Finished  int64
	revision  uint64

	account    queue.Account // while it has not ended: its place in the queue
	unfinished int32         // created tasks that are not finished
	failed     int32         // created tasks that failed for good
	growing    bool
	stopping   bool
	forgetting bool
	dirty      bool // status is in dirty.jobs
	persist    bool // its status must be stored, not only replicated
	dirtySpec  bool

	memory    int      // bytes that its specification and rows take in memory, without tasks
	texts     int      // bytes that the messages of its tasks take
	held      holdings // what is counted of it in the sums of the state
	heldEnded bool     // it is counted with those that have ended

	specBytes int32 // what its specification takes in a batch, however it is scaled; 0: not measured yet
}

// specSize returns what the job's specification takes in a batch.
func (j *Job) specSize() int {
	if j.specBytes == 0 {
		j.specBytes = int32(specBytes(j.Spec))
	}
	return int(j.specBytes)
}

// Group is a group's row.
type Group struct {
	Job   *Job
	Index int
	Spec  *plimsoll.GroupSpec
	Tasks []Task
	class *Class          // while its job has not ended: what its tasks ask for
	lane  queue.Lane      // the same: its tasks that may be placed
	kind  *placement.Kind // as the fleet books its tasks
	away  []away          // nodes that it is kept from, by the time until which it is

	missing []string // names that it asks for and that have no slot; kind has nothing of them

	// Refused is why its constraints are not understood, although they were when it was stored;
	// empty: they are. It waits for ever.
	Refused string

	Counts plimsoll.TaskCounts
	Wait   plimsoll.WaitCause

	pending fifo[int32] // tasks that may be placed; stale entries have queued == false
	made    int32       // growing: tasks below it are there and wanted
	stopped int32       // stopping: tasks below it are wanted, or are being stopped

	resourceBytes int32 // what the amounts that a task asks for take in a batch

	// Earlier attempts of tasks, by index. Only few tasks have been on more than one node, so this
	// costs the others nothing. The slices are in records too: they are replaced, never changed.
	earlier map[int32][]plimsoll.NodeAttempts
}

// Task is a task's row.
type Task struct {
	ID       string
	State    plimsoll.TaskState
	Result   plimsoll.TaskResult // of the last attempt; while stopping, the result that the stop asks for
	queued   bool
	dirty    bool
	Attempt  int32
	Failures int32
	ExitCode int32
	slot     int32 // node slot while it is on a node
	place    int32 // position in the node's list of tasks
	Node     string
	Message  string

	Created, Bound, Started, Finished, NotBefore int64
	revision                                     uint64
}

// Ref names a task.
type Ref struct {
	Group *Group
	Index int32
}

// Task returns the row.
func (r Ref) Task() *Task { return &r.Group.Tasks[r.Index] }

// Node is a node's row.
type Node struct {
	plimsoll.Node
	Slot         int32
	Gateway      string // where it is registered; not stored
	Registration uint64 // number of its last registration; not stored

	tasks       []Ref
	heardSince  int64 // ready since then, or since this leader leads; not stored
	deadline    int64 // ready, but its gateway or leader was lost: not ready from then; 0: none
	lostAt      int64 // not ready: its tasks are given up from then; 0: none
	returnAt    int64 // the first of its evictions ends then; 0: there is none
	sickUntil   int64 // it could not start the last two tasks and takes none until then; 0: it is not sick; not stored
	lost        bool  // its tasks are being given up
	left        bool  // the same, because its agent has stopped and nothing runs there
	shrunk      bool  // its capacity became less than what is used
	emptying    bool
	dirty       bool
	dirtyStatus bool
	deleted     bool

	counted int // while dirty: the bytes that it was counted with
	held    int // bytes of it in State.nodeBytes
}

// Amounts returns what one task of the group asks for.
func (g *Group) Amounts() *placement.Amounts { return g.kind.Amounts() }

// Class returns what the tasks of the group ask for; nil if its job has ended.
func (g *Group) Class() *Class { return g.class }

// SetEpoch makes the numbers of registrations differ from those of every leader before.
func (s *State) SetEpoch(epoch uint64) { s.registrations = epoch << 32 }

// Job returns a job by its id, or nil.
func (s *State) Job(id string) *Job { return s.jobs[id] }

// Node returns a node by its id, or nil.
func (s *State) Node(id string) *Node { return s.nodes[id] }

// Seconds returns the time of the turn under way, in Unix seconds.
func (s *State) Seconds() int64 { return s.at / second }

// Total returns the capacity of all nodes.
func (s *State) Total() *placement.Amounts { return &s.total }

// FindTask returns a task by job, group and index; ok is false if there is none, or its job is
// being forgotten.
func (s *State) FindTask(job, group string, index int32) (ref Ref, ok bool) {
	j := s.jobs[job]
	if j == nil || j.forgetting {
		return Ref{}, false
	}
	g := j.group(group)
	if g == nil || index < 0 || int(index) >= len(g.Tasks) {
		return Ref{}, false
	}
	return Ref{g, index}, true
}

func (j *Job) group(name string) *Group {
	for i := range j.Groups {
		if j.Groups[i].Spec.Name == name {
			return &j.Groups[i]
		}
	}
	return nil
}

// fifo is a queue that gives its room back as it is emptied.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int  { return len(f.items) - f.head }
func (f *fifo[T]) push(v T)  { f.items = append(f.items, v) }
func (f *fifo[T]) front() *T { return &f.items[f.head] }

func (f *fifo[T]) pop() T {
	v := f.items[f.head]
	var zero T
	f.items[f.head] = zero
	f.head++
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	} else if f.head > 64 && f.head > len(f.items)/2 {
		f.items = slices.Delete(f.items, 0, f.head)
		f.head = 0
	}
	return v
}
