package agent

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// Executor is the node's supervisor as the agent sees it. Calls may be concurrent. An error with CodeUnavailable,
// CodeDeadline, CodeCanceled or CodeAlreadyRunning leaves open whether the call had its effect; after any other one it had none.
type Executor interface {
	// Watch calls each with every attempt that is held, then with synced set, then with changes, from one goroutine. It connects
	// first, and starts the supervisor if none runs. It returns when ctx ends or the connection is lost.
	Watch(ctx context.Context, each func(attempts []Attempt, synced bool) error) error
	// Start returns when the process runs or could not be started. A repeated start of an attempt that is held starts nothing.
	// If the attempt's directory is there already but the attempt is not held, the error is CodeAlreadyExists.
	Start(ctx context.Context, start Start) (Attempt, error)
	// Stop begins SIGTERM, grace, SIGKILL and returns at once. A repeated stop changes nothing.
	Stop(ctx context.Context, stop Stop) error
	// Cgroups says how tasks are confined: v1, v2 … or nothing, and for people what is not limited, and why. It is known when Watch has
	// synced.
	Cgroups() (kind, missing string)
	// Subtree opens the node's control group, in which executor.CgroupName names an attempt's; nil: there is none. It is known when Watch has
	// synced.
	Subtree() (*cgroup.Subtree, error)
	// Forget drops an ended attempt. One that is not held is CodeNotFound.
	Forget(ctx context.Context, task string, attempt int32) error
}

// Attempt is what the supervisor says about an attempt. Times are Unix nanoseconds, zero if it has not happened.
type Attempt struct {
	Task     string
	Attempt  int32
	State    plimsoll.TaskState
	Result   plimsoll.TaskResult
	ExitCode int32
	Message  string
	Started  int64
	Finished int64
	PID      int
}

// Start asks for one attempt.
type Start struct {
	Task    string
	Attempt int32
	Job     string
	Node    string
	Spec    plimsoll.GroupSpec
}

// Stop asks to end one attempt.
type Stop struct {
	Task    string
	Attempt int32
	Grace   time.Duration       // between SIGTERM and SIGKILL; 0: that of the spec that it was started with
	Result  plimsoll.TaskResult // how the attempt ended, if this stop ends it
	Message string
}
