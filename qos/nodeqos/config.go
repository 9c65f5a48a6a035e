package nodeqos

import (
	"context"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Task is one attempt of a task that runs on the node, or will run soon.
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
	Stopping  bool // it is being stopped already
}

// Key names the attempt.
func (t *Task) Key() qos.Key { return qos.Key{Task: t.ID, Attempt: t.Attempt} }

// Config configures a Loop. Every field but Dir has a usable zero value.
type Config struct {
	Dir      string        // the agent's directory; the ledger is Dir/qos/ledger.json
	Node     string        // id of the node, for Status
	Interval time.Duration // between two samples; 0: DefaultInterval
	// Subtree holds the tasks' control groups. nil: there are none. Then metrics, their own
	// Actions, evictions and the gate work, but the tasks' use of processors and memory is not
	// known.
	Subtree     *Subtree
	Proc        string // where proc is mounted; empty: /proc
	Attributes  map[string]string
	Allocatable plimsoll.Resources // of the node; bounds the offer of extended resources
	Extended    ExtendedConfig
	Metrics     []Metric    // user-defined ones; see LoadMetrics
	Options     qos.Options // options of policies override these
}

// Bounds on Config.Interval, and its default.
const (
	DefaultInterval = time.Second
	MinInterval     = 50 * time.Millisecond
	MaxInterval     = time.Minute
)

// ExtendedConfig sets the part of a node that is lent to best-effort tasks as ext-cpu and
// ext-memory.
type ExtendedConfig struct {
	Enabled       bool
	CPUReserve    int32         // percent of the allocatable processors that are never offered
	MemoryReserve int32         // percent of the allocatable memory that is never offered
	HalfLife      time.Duration // age at which observed use counts half; 0: the predictor's default
	// WarmUp is the time of observation before the first offer; 0: the predictor's default.
	WarmUp time.Duration
}

// Deps holds the functions that a Loop calls.
type Deps struct {
	// Tasks returns the attempts on the node. It is called at every sample and must answer at once.
	Tasks func() []Task
	// Evict stops a task, which goes back to its queue. It is called in the background and may take
	// its time, until ctx ends. Grace 0 is the task's own.
	Evict func(ctx context.Context, task string, attempt int32, grace time.Duration, reason string) error
	// Report receives the node's condition and offers when they change, and new events. It must not
	// block. nil: no reports; Status and Events have the same facts.
	Report func(plimsoll.NodeReport)
	Events Events           // for logs and metrics
	Now    func() time.Time // nil: time.Now
}

// Validate returns an error for the first wrong field, with its name and the fix.
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

// directory is the directory of the loop's records.
func (c *Config) directory() string { return filepath.Join(c.Dir, "qos") }
