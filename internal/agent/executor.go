package agent

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// Executor is the node's supervisor as the agent sees it. Calls may be concurrent. An error with
// CodeUnavailable, CodeDeadline, CodeCanceled or CodeAlreadyRunning leaves open whether the call
// had its effect; after any other one it had none.
type Executor interface {
	// Watch calls each with every attempt that is held, then with synced set, then with changes,
	// from one goroutine. It connects first, and starts the supervisor if none runs. It returns
	// when ctx ends or the connection is lost.
	Watch(ctx context.Context, each func(attempts []executor.Status, synced bool) error) error
	// Start returns when the process runs or could not be started. A repeated start of an attempt
	// that is held starts nothing. If the attempt's directory is there already but the attempt is
	// not held, the error is CodeAlreadyExists.
	Start(ctx context.Context, start Start) (executor.Status, error)
	// Stop begins SIGTERM, grace, SIGKILL and returns at once. A repeated stop changes nothing.
	Stop(ctx context.Context, stop Stop) error
	// Capabilities says how tasks are confined, and where the node's control group is. They are
	// known when Watch has synced.
	Capabilities() executor.Capabilities
	// Forget drops an ended attempt. One that is not held is CodeNotFound.
	Forget(ctx context.Context, task string, attempt int32) error
}

// Start asks for one attempt.
type Start struct {
	Task    string
	Attempt int32
	Job     string
	Node    string
	Spec    plimsoll.GroupSpec
	Owner   string // of the job

	Pids        int64 // the most processes and threads of the attempt at once
	TasksMemory int64 // bytes that all tasks of the node may use together
}

// Stop asks to end one attempt.
type Stop struct {
	Task    string
	Attempt int32
	Grace   time.Duration       // between SIGTERM and SIGKILL; 0: that of the spec that it was started with
	Result  plimsoll.TaskResult // how the attempt ended, if this stop ends it
	Message string
}
