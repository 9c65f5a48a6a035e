package nodeqos

import (
	"context"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Task is one attempt of a task that runs on the node, or is about to.
type Task struct {
	ID        string
	Attempt   int32
	Group     string // name of its control group in Config.Subtree; empty: it has none
	Class     plimsoll.Class
	Priority  int32
	Owner     string
	Queue     string
	Labels    map[string]string // of its job
	Started   int64             // Unix nanoseconds; 0: it does not run yet
	Resources plimsoll.Resources
	Stopping  bool // somebody stops it already
}

// Key names the attempt.
func (t *Task) Key() qos.Key { return qos.Key{Task: t.ID, Attempt: t.Attempt} }

// Config says how a Loop works. Every field but Dir has a usable zero value.
type Config struct {
	Dir      string        // the agent's; the ledger is Dir/qos/ledger.json
	Node     string        // id of the node, for Status
	Interval time.Duration // between two samples; 0: DefaultInterval
	// Subtree is where the tasks' groups are. nil: no control groups. Then metrics, their own
	// Actions, evictions and the gate work; tasks' use of processors and memory is not known.
	Subtree     *Subtree
	Proc        string // where proc is mounted; empty: /proc
	Attributes  map[string]string
	Allocatable plimsoll.Resources // of the node, for what is offered as extended resources
	Extended    ExtendedConfig
	Metrics     []Metric    // user-defined ones; see LoadMetrics
	Options     qos.Options // options of policies count over these
}

// Bounds on Config.Interval, and what it is when it is zero.
const (
	DefaultInterval = time.Second
	MinInterval     = 50 * time.Millisecond
	MaxInterval     = time.Minute
)

// ExtendedConfig says what of a node is lent to best-effort tasks as ext-cpu and ext-memory.
type ExtendedConfig struct {
	Enabled       bool
	CPUReserve    int32         // percent of the allocatable processors that are never offered
	MemoryReserve int32         // percent of the allocatable memory that is never offered
	HalfLife      time.Duration // after which use that was seen counts half; 0: the predictor's own default
	// how much must have been seen before anything is offered; 0: the predictor's own default
	WarmUp time.Duration
}

// Deps is what a Loop works with.
type Deps struct {
	// Tasks returns the attempts on the node. It is called at every sample and must answer at once.
	Tasks func() []Task
	// Evict stops a task: it goes back to its queue. It is called beside the loop and may take its
	// time, until ctx ends. Grace 0 is the task's own.
	Evict func(ctx context.Context, task string, attempt int32, grace time.Duration, reason string) error
	// Report gets what the node says of itself: when the condition or the offers change, and with
	// new events. It must not block. nil: nobody is told; Status and Events tell the same.
	Report func(plimsoll.NodeReport)
	Events Events           // tells what happens
	Now    func() time.Time // nil: time.Now
}

// Validate reports the first field that is wrong, with what to do about it.
func (c *Config) Validate() error {
	if c.Dir == "" {
		return plimsoll.Invalid("dir", "is empty; name the directory that the agent keeps its state in")
	}
	if c.Interval != 0 && (c.Interval < MinInterval || c.Interval > MaxInterval) {
		return plimsoll.Invalid(
			"interval", "is %v; give %v to %v, or 0 for %v", c.Interval, MinInterval, MaxInterval, DefaultInterval,
		)
	}
	for _, percent := range []struct {
		name  string
		value int32
	}{{"extended.cpuReserve", c.Extended.CPUReserve}, {"extended.memoryReserve", c.Extended.MemoryReserve}} {
		if percent.value < 0 || percent.value > 100 {
			return plimsoll.Invalid(percent.name, "is %d; give a percentage, 0 to 100", percent.value)
		}
	}
	if c.Extended.HalfLife < 0 {
		return plimsoll.Invalid(
			"extended.halfLife", "is %v; give a duration above 0, or 0 for the default", c.Extended.HalfLife,
		)
	}
	if c.Extended.WarmUp < 0 {
		return plimsoll.Invalid(
			"extended.warmUp", "is %v; give a duration above 0, or 0 for the default", c.Extended.WarmUp,
		)
	}
	return nil
}

func (c *Config) interval() time.Duration {
	if c.Interval == 0 {
		return DefaultInterval
	}
	return c.Interval
}

// directory is where the loop keeps what it must remember.
func (c *Config) directory() string { return filepath.Join(c.Dir, "qos") }
