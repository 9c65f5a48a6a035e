package main

import (
	"math"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/memory"
	working "github.com/plimsoll-dev/plimsoll/internal/state"
)

// stateFlags are the settings of a coordinator's state. The default bounds follow from the memory
// that the process may use.
type stateFlags struct {
	StateTasks int    `help:"Most tasks in the state. A submit that would exceed it is refused. Default: (memory limit - 512Mi) / 1.5Ki." env:"PLIMSOLL_STATE_TASKS" placeholder:"COUNT"`
	StateBytes string `help:"Most memory of the specifications of jobs, such as 1Gi. A submit that would exceed it is refused. Default: an eighth of the memory limit." env:"PLIMSOLL_STATE_BYTES" placeholder:"AMOUNT"`
	TrustOwner bool   `help:"Believe that the owner and the groups of a submitted job are true. Without it no queue may have limits of users or access lists with names, because nobody checks who a caller is." env:"PLIMSOLL_TRUST_OWNER"`

	eventFlags
}

// apply sets the settings in a configuration.
func (f *stateFlags) apply(c *working.Config) error {
	if err := f.applyEvents(c); err != nil {
		return err
	}
	c.TrustOwner = f.TrustOwner
	limit, known := memory.Limit()
	if !known {
		limit = working.UnknownMemory
	}
	return f.within(c, limit)
}

// within is apply for a given limit of memory.
func (f *stateFlags) within(c *working.Config, limit uint64) error {
	c.MaxTasks, c.MaxBytes, c.MaxNodeBytes = working.TasksWithin(
		limit,
	), working.BytesWithin(limit), working.NodeBytesWithin(limit)
	if f.StateTasks < 0 {
		return plimsoll.Invalid(
			working.TasksBound, "is negative; give how many tasks the state may hold, or leave it out",
		)
	}
	if f.StateTasks > 0 {
		c.MaxTasks = f.StateTasks
	}
	if f.StateBytes == "" {
		return nil
	}
	bytes, err := plimsoll.ParseQuantity(plimsoll.Memory, f.StateBytes)
	if err != nil {
		return plimsoll.Invalid(working.BytesBound, "%s", err)
	}
	if bytes <= 0 || bytes > math.MaxInt {
		return plimsoll.Invalid(working.BytesBound, "is %s; give an amount above zero, such as 256Mi", f.StateBytes)
	}
	c.MaxBytes = int(bytes)
	return nil
}
