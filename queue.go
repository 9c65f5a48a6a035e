package plimsoll

// RootQueue is the path of the root of the queue tree. The others are the leaves of DefaultQueues.
const (
	RootQueue    = "root"
	DefaultQueue = RootQueue + "." + defaultLeaf // the queue of a job that names none
	BatchQueue   = RootQueue + "." + batchLeaf

	defaultLeaf = "default"
	batchLeaf   = "batch"
)

// Bounds on the tree of queues.
const (
	MaxQueueDepth = 16
	MaxQueues     = 10_000
)

// QueueConfig is one queue of the configured tree, in YuniKorn's terms. Names and limits are
// checked by Validate.
type QueueConfig struct {
	Name       string // last part of the path
	Parent     bool   // it may hold queues; implied if Queues is not empty
	Guaranteed Resources
	Max        Resources // a missing amount is not limited
	MaxJobs    int32     // jobs that may run at once; 0: no limit
	MaxTasks   int32     // tasks of all its jobs that have not ended; 0: no limit
	// SubmitAccess and AdminAccess are the users who may submit to the queue and all below it, and
	// those who may also administer it. nil: the file states none.
	SubmitAccess, AdminAccess *AccessList
	Limits                    []QueueLimit
	// Properties are YuniKorn's properties as the file states them, and Plimsoll's own.
	Properties map[string]string
	Template   *QueueTemplate // of queues that a rule makes below it
	Dynamic    bool           // made by a placement rule; it disappears when it is empty
	// Partition holds the settings of the whole tree. Only root has them.
	Partition *PartitionConfig
	// Draining marks a queue that was removed from the configuration. It disappears when its jobs
	// have ended. The field is ignored in a configuration that a user sets.
	Draining bool
	Queues   []QueueConfig
}

// DefaultQueues returns the tree without a configuration file: DefaultQueue and BatchQueue.
func DefaultQueues() QueueConfig {
	return QueueConfig{Name: RootQueue, Parent: true, Queues: []QueueConfig{{Name: defaultLeaf}, {Name: batchLeaf}}}
}

// QueueStatus is the derived state of a queue. It is replicated but not stored.
type QueueStatus struct {
	Path       string
	Leaf       bool
	Draining   bool // removed from the configuration; it disappears when its jobs have ended
	Guaranteed Resources
	Max        Resources
	Allocated  Resources
	Pending    Resources
	Jobs       int32 // jobs that have not ended
	Running    int32 // tasks that hold resources
	Waiting    int32 // tasks that wait
	Tasks      int64 // all tasks of jobs that have not ended, in any state
	MaxTasks   int32 // bound on Tasks; 0: no limit
	// JobsWaiting are the jobs whose tasks may not be placed yet: they are being taken in, or they
	// wait until fewer jobs run, by MaxJobs of the queue or one above it.
	JobsWaiting int32
	// Past is the past use of the queue: a mean in which use that is fairness.halflife old weighs
	// half as much as that of now. It is nil if the queue above has no half-life.
	Past map[string]float64
}
