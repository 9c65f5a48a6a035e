package qos

import (
	"github.com/plimsoll-dev/plimsoll"
)

// Core is one processor core in nanocores, the unit of all processor time in this package.
const Core = int64(1_000_000_000)

// Unlimited is a quota that limits nothing.
const Unlimited = int64(-1)

// Snapshot holds the measurements of one node at one instant. This package does not change it.
type Snapshot struct {
	Sequence uint64 // of the sample; each sample is planned at most once
	At       int64  // Unix nanoseconds
	Cores    int64  // nanocores that the node has
	Memory   int64  // bytes that the node has
	// Values holds the measured values of the node, by metric, in the metric's finest unit. A
	// metric without a value is missing.
	Values map[string]int64
	// Times holds the time of measurement of values, by metric, in Unix nanoseconds. A value
	// without a time was measured with the sample. A rule counts and acts on each measurement once.
	Times map[string]int64
	// ExtCPU and ExtMemory are the current offers of extended resources; 0: none.
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
	Bias     int8 // order within class and priority: -1 is acted on earlier, 1 later; Plan sets it by TaskQOS
	Owner    string
	Queue    string
	Labels   map[string]string // of its job
	Started  int64             // Unix nanoseconds; 0: it has not started, which makes it the youngest

	CPU         int64 // nanocores in use, all groups together
	CPUKnown    bool
	Memory      int64 // bytes
	MemoryKnown bool
	ExtCPU      int64 // nanocores of ext-cpu that it holds; 0: none
	ExtMemory   int64 // bytes of ext-memory that it holds

	CPUPressure    int64 // share of time in which a part of it waits for a processor, in thousandths of a percent
	MemoryPressure int64
	PressureKnown  bool
	// OwnQuota is set if the task's own quota has held it up since the last sample. Its pressure
	// then says nothing about the node.
	OwnQuota bool

	Stopping bool             // it is being stopped already, by this loop or another program
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

// Group is a control group of a task. Groups without a name (the pause containers of pods) are left
// alone.
type Group struct {
	Name    string
	CPU     int64 // nanocores that it uses
	Quota   int64 // nanocores; 0 or less: no quota
	Period  int64 // length of a quota's period in nanoseconds; 0: DefaultPeriod
	Limit   int64 // limit of its specification in nanocores; 0: none
	Request int64 // nanocores below which it is never throttled
	Ext     int64 // nanocores of ext-cpu that it holds
	Shares  int64 // weight, in the units of cpu.shares
	Idle    bool  // it runs only on otherwise idle processors
	Frozen  bool
}

// DefaultPeriod is the kernel's default period of a quota.
const DefaultPeriod = int64(100_000_000)

// leastQuota returns the least quota that the kernel accepts: a millisecond a period
// (kernel/sched/core.c, min_cfs_quota_period).
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
