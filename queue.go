package plimsoll

import "strings"

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
}

// Validate returns an error about the first wrong queue, named by its path. It checks names, depth
// and negative amounts. By YuniKorn's rules, a child's maximum is at most its parent's, and
// guaranteed is at most max. The guaranteed amounts of children add up to at most their parent's.
func (c *QueueConfig) Validate() error {
	if c.Name != RootQueue {
		return Invalid("queues", "the top queue is named %q; it must be %q", c.Name, RootQueue)
	}
	if len(c.Guaranteed) > 0 || len(c.Max) > 0 {
		return Invalid(
			RootQueue+".resources", "root has no resources of its own: they are those of the nodes; remove them",
		)
	}
	count := 0
	return c.validate(RootQueue, nil, 1, &count)
}

func (c *QueueConfig) validate(path string, parentMax Resources, depth int, count *int) error {
	if *count++; *count > MaxQueues {
		return Invalid("queues", "there are more than %d queues", MaxQueues)
	}
	if depth > MaxQueueDepth {
		return Invalid(path, "is deeper than %d levels", MaxQueueDepth)
	}
	if c.MaxJobs < 0 {
		return Invalid(path+".maxapplications", "is negative; give zero for no limit, or more")
	}
	if c.MaxTasks < 0 {
		return Invalid(path+".maxtasks", "is negative; give zero for no limit, or more")
	}
	if err := c.Guaranteed.Validate(path + ".resources.guaranteed"); err != nil {
		return err
	}
	if err := c.Max.Validate(path + ".resources.max"); err != nil {
		return err
	}
	effective := Resources{}
	for _, name := range parentMax.Names() {
		effective[name] = parentMax[name]
	}
	for _, name := range c.Max.Names() {
		limit, limited := parentMax[name]
		if limited && c.Max[name] > limit {
			return Invalid(path+".resources.max."+name, "is %s, more than the %s of the queue above",
				FormatQuantity(name, c.Max[name]), FormatQuantity(name, limit))
		}
		effective[name] = c.Max[name]
	}
	for _, name := range c.Guaranteed.Names() {
		if limit, limited := effective[name]; limited && c.Guaranteed[name] > limit {
			return Invalid(path+".resources.guaranteed."+name, "is %s, more than the maximum of %s",
				FormatQuantity(name, c.Guaranteed[name]), FormatQuantity(name, limit))
		}
	}
	return c.validateChildren(path, effective, depth, count)
}

func (c *QueueConfig) validateChildren(path string, limits Resources, depth int, count *int) error {
	sum := Resources{}
	for i := range c.Queues {
		child := &c.Queues[i]
		if err := validateQueueName(path+".queues", child.Name); err != nil {
			return err
		}
		for j := range i {
			if strings.EqualFold(c.Queues[j].Name, child.Name) {
				return Invalid(path+"."+child.Name, "stands twice; give each queue its own name")
			}
		}
		if err := child.validate(path+"."+child.Name, limits, depth+1, count); err != nil {
			return err
		}
		for _, name := range child.Guaranteed.Names() {
			if sum[name] += child.Guaranteed[name]; sum[name] > MaxAmount {
				return Invalid(
					path+".queues", "are guaranteed more %s together than the largest amount, %s", name,
					FormatQuantity(name, MaxAmount),
				)
			}
		}
	}
	for _, name := range sum.Names() {
		if own, set := c.Guaranteed[name]; set && sum[name] > own {
			return Invalid(
				path+".resources.guaranteed."+name, "is %s, less than the %s that its queues are guaranteed together",
				FormatQuantity(name, own), FormatQuantity(name, sum[name]),
			)
		}
		if limit, limited := limits[name]; limited && sum[name] > limit {
			return Invalid(
				path+".resources.max."+name, "is %s, less than the %s that its queues are guaranteed together",
				FormatQuantity(name, limit), FormatQuantity(name, sum[name]),
			)
		}
	}
	return nil
}
