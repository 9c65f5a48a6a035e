package qos

import (
	"github.com/plimsoll-dev/plimsoll"
)

// Core is one processor core in nanocores, the unit of all processor time here.
const Core = int64(1_000_000_000)

// Unlimited is a quota that limits nothing.
const Unlimited = int64(-1)

// Snapshot is what was measured on one node at one instant. It is not changed by anything here.
type Snapshot struct {
	Sequence uint64 // of the sample; a plan is made of each at most once
	At       int64  // Unix nanoseconds
	Cores    int64  // nanocores that the node has
	Memory   int64  // bytes that the node has
	// Values holds what was measured of the node, by metric, in the metric's finest unit. What is
	// not in it is missing.
	Values map[string]int64
	// Times holds when a value was measured, by metric, in Unix nanoseconds. A metric that is not
	// in it was measured with the sample. A rule counts and acts on each measurement once.
	Times map[string]int64
	// What is offered of the extended resources now; 0: nothing.
	ExtCPU    int64 // nanocores
	ExtMemory int64 // bytes
	Tasks     []Task
}

// Task is one task of the node.
type Task struct {
	ID       string
	Attempt  int32
	Class    plimsoll.Class
	Priority int32
	Bias     int8 // among those of its class and priority: -1 is acted on earlier, 1 later; Plan sets it by TaskQOS
	Owner    string
	Queue    string
	Labels   map[string]string // of its job
	Started  int64             // Unix nanoseconds; 0: it has not started, which makes it the youngest

	CPU         int64 // nanocores that it uses, all groups together
	CPUKnown    bool
	Memory      int64 // bytes
	MemoryKnown bool
	ExtCPU      int64 // nanocores of ext-cpu that it holds; 0: it uses none
	ExtMemory   int64 // bytes of ext-memory that it holds

	CPUPressure    int64 // share of time in which some of it waits for a processor, in thousandths of a percent
	MemoryPressure int64
	PressureKnown  bool
	// it was held up by its own quota since the last sample, so that its pressure says nothing
	// about the node
	OwnQuota bool

	Stopping bool             // it is being stopped already, by whomever
	Gone     bool             // its groups have vanished since the sample
	Values   map[string]int64 // of user-defined metrics
	Groups   []Group
}

// Key names one attempt of a task.
type Key struct {
	Task    string
	Attempt int32
}

// Key returns the task's key.
func (t *Task) Key() Key { return Key{t.ID, t.Attempt} }

// Group is a control group of a task. Those without a name (the pause containers of pods) are left
// alone.
type Group struct {
	Name    string
	CPU     int64 // nanocores that it uses
	Quota   int64 // nanocores; 0 or less: Unlimited
	Period  int64 // nanoseconds in which the quota is counted; 0: DefaultPeriod
	Limit   int64 // nanocores that its specification allows; 0: no limit
	Request int64 // nanocores that it is never throttled below
	Ext     int64 // nanocores of ext-cpu that it holds
	Shares  int64 // its weight, in the units of cpu.shares
	Idle    bool  // it runs only when nothing else wants to
	Frozen  bool
}

// DefaultPeriod is the kernel's.
const DefaultPeriod = int64(100_000_000)

// leastQuota is what the kernel takes at the least: a millisecond a period (kernel/sched/core.c,
// min_cfs_quota_period).
func (g *Group) leastQuota() int64 {
	period := g.Period
	if period <= 0 {
		period = DefaultPeriod
	}
	return mulDiv(Core, 1_000_000, period)
}

func (g *Group) limited() bool { return g.Quota > 0 }

// Amount is an amount of a dimension, such as cpu or memory.
type Amount struct {
	Dimension string
	Value     int64
}
