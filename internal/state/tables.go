package state

import (
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/queuerule"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Config sets the periods and bounds of the state. Zero means the default, which for some is no
// bound.
type Config struct {
	// NodeGrace is the time in ns in which a ready node may register again after its gateway or
	// leader was lost. After it the node counts as not ready. Default: 15 s.
	NodeGrace int64
	LostAfter int64 // ns after which the tasks of a node that is not ready are given up; 60 s
	// KeepEnded is the time in ns that an ended job is kept: from Archived on, 5 min; without an
	// archive from its end on, 72 h.
	KeepEnded int64
	MaxEnded  int // ended jobs that are kept; the oldest are deleted first; 10,000
	// Archive says that an archive keeps ended jobs. A job then leaves the state KeepEnded after
	// Archived has named it, and never before.
	Archive      bool
	MaxToArchive int // ended jobs that may wait for the archive before submits are refused; 100,000
	MaxJobs      int // jobs known at once; 1,000,000
	MaxNodes     int // nodes known at once; 200,000
	MaxTasks     int // tasks of all jobs; none
	MaxBytes     int // bytes of memory that jobs take beside their tasks; none

	MaxNodeBytes int   // bytes of the stored records of all nodes; none
	MaxSpecBytes int   // bytes of one job's specification; 1 MiB, at most a sixteenth of a batch
	EvictedFor   int64 // ns for which a group avoids a node that evicted a task of it; 5 min

	KeepOutcomes    int64 // ns that the outcome of a command with a token is remembered; 10 min
	KeepHistorian   int64 // ns that a historian is registered without being heard; plimsoll.KeepHistorian
	MaxOutcomes     int   // remembered outcomes, a quarter of them for refusals; 65,536
	MaxOutcomeBytes int   // bytes of the stored records of all outcomes, divided likewise; 16 MiB

	// Events are the settings of the events that the flags or the file of the leader give.
	Events map[string]string
	// TrustOwner says that the owner and the groups of a submit are true. Without it no limits of
	// users and no access lists are possible.
	TrustOwner bool

	Limits Limits           // limits of a batch of the store; none
	Chain  *placement.Chain // chain of filters and scorers for choosing nodes; placement.ClusterDefault()
}

const second = int64(1e9)

// Defaults of Config.KeepEnded, with an archive and without.
const (
	DefaultKeepArchived = 5 * time.Minute
	DefaultKeepEnded    = 72 * time.Hour
)

// DefaultEvictedFor is the default of Config.EvictedFor.
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
	if c.Archive {
		set(&c.KeepEnded, int64(DefaultKeepArchived))
	}
	set(&c.KeepEnded, int64(DefaultKeepEnded))
	set(&c.EvictedFor, int64(DefaultEvictedFor))
	set(&c.KeepOutcomes, 600*second)
	set(&c.KeepHistorian, int64(plimsoll.KeepHistorian))
	setInt(&c.MaxEnded, 10_000)
	setInt(&c.MaxToArchive, 100_000)
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

// State is the working state: the rows of jobs, tasks, nodes, queues and policies, with their sums.
// It has one owner, the engine. The fields' invariants hold at the end of each operation.
type State struct {
	Names *placement.Names
	Fleet *placement.Fleet // by node slot; a slot may be vacant

	cfg    Config
	bounds bounds // bounds of the changes of a turn and of a step
	tree   *queue.Tree
	rules  *queuerule.Set // of the configured tree
	trust  string         // why the configured tree needs Config.TrustOwner; empty if it does not
	// treeBytes bounds the bytes of the stored tree. 0: not known.
	treeBytes int

	// classes holds each class with at least one group, by its key.
	classes map[string]*Class
	// lanes holds the groups of jobs that have not ended, by the id of their lane in the tree.
	lanes idTable[Group]
	// accounts holds the jobs that have not ended, by the id of their account in the tree.
	accounts idTable[Job]
	jobs     map[string]*Job  // every known job, by id
	nodes    map[string]*Node // every known node, by id
	// slots holds the same nodes as nodes, by slot; nil marks a vacant slot.
	slots  []*Node
	vacant []int32 // exactly the slots that are nil

	policies policies
	outcomes outcomes

	eventSettings plimsoll.EventSettings
	historians    []historian // by name; at most plimsoll.MaxHistorians

	rejected rejectedJobs

	metrics *qos.Registry // metrics that every node's agent measures

	// total is the sum of the capacities of all nodes.
	total placement.Amounts
	// asked is the sum of the requests of all jobs that have not ended. No sum of a queue is
	// larger.
	asked placement.Amounts
	// names says which resource names have slots, and for which of them the groups are prepared.
	names resourceNames
	// eligible is the number of nodes that are ready, active and not closed by their agent.
	eligible int
	// usage is the sum of Job.usage over all jobs.
	usage usage
	// usageGivable is the part of usage of the jobs with countedGivable.
	usageGivable usage
	// taskCount is the number of task rows of all jobs.
	taskCount int
	totals    Totals // but for the jobs that wait for the archive
	// nodeBytes is the sum of storedNode over all nodes.
	nodeBytes int
	// lastSubmitted is the highest Job.Submitted; the next submit gets a higher one.
	lastSubmitted int64
	// registrations is the number of the last registration. Its high half is the leader's epoch.
	registrations uint64
	revision      uint64 // revision of the current turn
	at            int64  // time of the current turn, in Unix nanoseconds

	nodeLog nodeLog
	scratch []byte // buffer for keys of classes

	// shortage says why the disk of the store has no room for more records; empty if it has room.
	shortage string

	growing []*Job // jobs with tasks to be created; exactly those with Job.growing
	// relimiting are the jobs for which others' limits may hold than the events say: those with
	// Job.relimiting.
	relimiting []*Job
	stopping   []*Job  // killed or scaled-down jobs with tasks to be stopped; those with Job.stopping
	emptying   []*Node // draining or lost nodes that are not yet empty; exactly those with Node.emptying
	excluded   []*Job  // ended jobs whose exclusions from nodes are to be dropped

	// leaving names archived attempts that are still to leave their records; at most maxLeaving.
	leaving []AttemptsName
	// forgetting holds the jobs whose records are being deleted, over one turn or several.
	forgetting []*Job
	// archiving holds the jobs that have ended and are still kept.
	archiving archiving

	timers     timerHeap
	tidyTimers int // number of timers at which stale timers are dropped

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

		eventSettings: plimsoll.DefaultEventSettings(),
	}
	s.bounds = boundsOf(&s.cfg)
	var err error
	if s.metrics, err = qos.NewRegistry(); err != nil {
		panic(err) // the built-in metrics are a constant
	}
	s.outcomes.byToken = map[string]*Outcome{}
	s.rejected.byID = map[string]*rejectedJob{}
	s.policies.byRef = map[plimsoll.PolicyRef]*plimsoll.Policy{}
	s.Fleet.Loader.Instance, s.Fleet.Loader.Volumes = s.locate, s.locateVolumes
	s.tree = queue.New(names, &queues)
	rules, err := queuerule.Compile(&queues)
	if err != nil {
		panic(err) // the caller has checked the queues
	}
	s.setRules(&queues, rules)
	s.sortNodes(queues.Partition)
	s.names.unknown = map[string]*unknownName{}
	s.findQueueNames()
	s.names.known = s.names.queues
	return s
}

// Job is a job's row. Its tasks are in the rows of its groups.
type Job struct {
	Spec   *plimsoll.JobSpec
	Queue  *queue.Queue
	Groups []Group
	State  plimsoll.JobState
	Reason string
	Killed bool

	// Submitted is the time of the submit, in Unix nanoseconds. It is unique and strictly
	// increasing over jobs, so it is also the order of the queue.
	Submitted int64
	Started   int64
	Finished  int64
	// completes is the time at which a completing job completes; 0: it is not completing. A load
	// finds it in the history.
	completes int64
	UID       plimsoll.UID // names this lifetime of the id
	revision  uint64
	// history are the changes of State. Statuses share the slice: its elements are never changed.
	history []plimsoll.JobStep

	limited    queue.LimitedBy // whose limits hold for it, as it was told
	account    queue.Account   // the job in the tree of queues; only while it has not ended
	unfinished int32           // number of created tasks that are not finished
	failed     int32           // number of created tasks that failed for good
	growing    bool            // the job is in State.growing
	stopping   bool            // the job is in State.stopping
	relimiting bool            // the job is in State.relimiting
	forgetting bool            // the records are being deleted
	deleted    bool            // the job is to disappear from the state and the archive
	givable    bool            // the job has ended, and the archive has it or there is none
	dropping   bool            // the job is in archiving.dropping
	dirty      bool            // the status is in dirty.jobs
	persist    bool            // the dirty status must be stored, not only replicated
	dirtySpec  bool            // the specification is in dirty.specs

	memory int // bytes of memory of the specification and the rows, without tasks
	texts  int // bytes of memory of the texts of the tasks
	// usage is the job's part of State.usage, and of State.usageGivable if countedGivable is set.
	usage          usage
	countedGivable bool

	keptUntil int64 // time at which a givable job is forgotten, in Unix nanoseconds

	// specBytes bounds the bytes of the specification in a batch, for any count of its groups.
	// 0: not measured yet.
	specBytes int32
}

// specSize returns the bytes of the job's specification in a batch.
func (j *Job) specSize() int {
	if j.specBytes == 0 {
		j.specBytes = int32(specBytes(j.Spec))
	}
	return int(j.specBytes)
}

// Group is a group's row. It is part of its job's row and never moves.
type Group struct {
	Job   *Job
	Index int
	Spec  *plimsoll.GroupSpec
	Tasks []Task
	// class is the class of the request; nil once the job has ended.
	class *Class
	// lane counts the tasks that may be placed, for the tree; only while the job has not ended.
	lane queue.Lane
	// kind holds the amounts that the fleet books for each task on a node.
	kind *placement.Kind
	// exclusions are the nodes that evicted a task of the group, in the order of their ends. Each
	// stands in the node's Evictions too.
	exclusions []exclusion
	// missing holds the requested resource names without a slot. The amounts of kind leave them
	// out.
	missing []string

	// Refused says why this version does not understand the stored constraints; empty if it does.
	// Such a group waits for ever.
	Refused string

	// Counts is the number of tasks in each state, without finished tasks that were scaled away.
	Counts plimsoll.TaskCounts
	// Wait is the recorded cause of waiting; zero while no task is pending.
	Wait plimsoll.WaitCause

	// pending holds at least the indexes of all queued tasks. Entries of other tasks are stale.
	pending fifo[int32]
	// createCursor is the progress of createTasks: all tasks below it exist and are wanted.
	createCursor int32
	// stopCursor is the progress of stopTasks: all unwanted tasks below it are stopping or
	// finished.
	stopCursor int32

	resourceBytes int32 // bytes of a task's resources in a batch

	// former holds the former attempts of tasks, by index. Few tasks have more than one attempt, so
	// a map costs the others nothing.
	former map[int32]former
}

// Task is a task's row. Its index in the group and its ID never change.
type Task struct {
	ID    string
	State plimsoll.TaskState
	// Result is the result of the last attempt. While Stopping it is the result that the stop asks
	// for.
	Result   plimsoll.TaskResult
	queued   bool   // the task may be placed; it is Pending then, and its index is in Group.pending
	dirty    bool   // the row is in dirty.tasks
	Attempt  int32  // number of the current or last attempt; 0 before the first
	Failures int32  // attempts that were charged to the task
	ExitCode int32  // exit code of the last attempt
	slot     int32  // slot of Node while the task is on it; -1 otherwise
	place    int32  // position in Node.tasks of that node; only while the task is on it
	Node     string // node of the current or last attempt
	Message  string // message of the last attempt or of the stop

	// Times in Unix nanoseconds; 0 if not reached. Bound to Finished are of the last attempt.
	// NotBefore is the earliest time of the next attempt.
	Created, Bound, Starting, Started, Stopping, Finished, NotBefore int64
	revision                                                         uint64 // of the last turn that changed it
}

// Ref is a reference to a task's row. The row itself may move when the group grows.
type Ref struct {
	Group *Group
	Index int32
}

// Task returns the row. The pointer is good until a task of the group is created or deleted.
func (r Ref) Task() *Task { return &r.Group.Tasks[r.Index] }

// Node is a node's row. The embedded record is stored. The fields with "not stored" are empty after
// a load, until the node registers or reports again.
type Node struct {
	plimsoll.Node
	Slot         int32  // index in State.slots, and of the node's server in State.Fleet
	Gateway      string // gateway of the last registration; not stored
	Registration uint64 // number of the last registration; not stored

	// tasks are exactly the tasks with Bound to Stopping whose Task.Node is this node.
	tasks []Ref
	// heardSince is the time since which the node is ready under this leader. A load sets it to its
	// own time.
	heardSince int64
	// deadline is the time at which a ready node without its gateway or leader stops being ready.
	// 0: the gateway hears it, or it is not ready. A load sets it anew.
	deadline int64
	// lostAt is the time at which the tasks of a node that is not ready are given up. 0: the node
	// is ready, or lost. A load sets it anew.
	lostAt int64
	// exclusionEnd is the end of the first of Evictions, which are in the order of their ends; 0:
	// there is none.
	exclusionEnd int64
	// sickUntil is the time until which the node takes no tasks, because it could not start the
	// last two. 0: it is not sick. Not stored.
	sickUntil int64
	// occupied is a reported use outside of tasks that waits until tellAt, because the last event
	// is too recent; nil: none waits. Not stored: an agent that registers again reports it again.
	occupied *plimsoll.NodeUse
	tellAt   int64
	lost     bool // the tasks are given up; until the node registers again
	left     bool // lost because the agent stopped and nothing runs on the node
	// shrunk says that the tasks may take more than the capacity, which became smaller under them.
	shrunk      bool
	emptying    bool          // the node is in State.emptying
	dirty       bool          // the record is in dirty.nodes
	dirtyStatus bool          // the derived status is in dirty.nodeStatuses
	deleted     bool          // the node was removed; only dirty lists and timers still hold the row
	counted     NodeCondition // the condition in which it is in State.totals; 0: it is not there

	dirtyBytes   int // bytes of the record that are counted in dirty.bytes; only while dirty
	countedBytes int // bytes of the record that are counted in State.nodeBytes
}

// Amounts returns the resources that the fleet books for one task of the group.
func (g *Group) Amounts() *placement.Amounts { return g.kind.Amounts() }

// Class returns the class of the group's request; nil if its job has ended.
func (g *Group) Class() *Class { return g.class }

// SetEpoch sets the leader's epoch, so that numbers of registrations are unique over leaders.
func (s *State) SetEpoch(epoch uint64) { s.registrations = epoch << 32 }

// Job returns a job by its id, or nil.
func (s *State) Job(id string) *Job { return s.jobs[id] }

// Node returns a node by its id, or nil.
func (s *State) Node(id string) *Node { return s.nodes[id] }

// Seconds returns the time of the turn under way, in Unix seconds.
func (s *State) Seconds() int64 { return s.at / second }

// Total returns the capacity of all nodes.
func (s *State) Total() *placement.Amounts { return &s.total }

// FindTask returns a task by job, group and index. ok is false if there is no such task, or its job
// is being forgotten.
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

// fifo is a first-in, first-out queue that shrinks its slice as it is emptied.
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
