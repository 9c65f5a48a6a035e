package agent

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// Executor is the node's supervisor as the agent uses it. Calls may be concurrent. An error with
// CodeUnavailable, CodeDeadline, CodeCanceled or CodeAlreadyRunning leaves open whether the call
// had its effect. After any other error it had none. Tasks go by their local names.
type Executor interface {
	// Watch calls each with all attempts of the supervisor, then with synced set, then with
	// changes, from one goroutine. It connects first, and starts the supervisor if none runs. It
	// returns when ctx ends or the connection is lost.
	Watch(ctx context.Context, each func(attempts []executor.Status, synced bool) error) error
	// Start returns when the process runs or could not be started. A repeated start of a known
	// attempt starts nothing. If only the attempt's directory exists, the error is
	// CodeAlreadyExists.
	Start(ctx context.Context, start Start) (executor.Status, error)
	// Stop begins SIGTERM, grace, SIGKILL and returns at once. A repeated stop changes nothing.
	Stop(ctx context.Context, stop Stop) error
	// Capabilities describes the limits of tasks and locates the node's control group. The result
	// is complete when Watch has synced.
	Capabilities() executor.Capabilities
	// Forget drops an ended attempt. An unknown attempt is CodeNotFound.
	Forget(ctx context.Context, task string, attempt int32) error
}

// Start asks for the start of one attempt.
type Start struct {
	Task    string // its local name
	ID      string // of the task
	Attempt int32
	Job     string
	Node    string
	Spec    plimsoll.GroupSpec
	Owner   string // of the job

	Pids        int64 // most processes and threads of the attempt at once
	TasksMemory int64 // bytes that all tasks of the node may use together
}

// Stop asks for the end of one attempt.
type Stop struct {
	Task    string // its local name
	Attempt int32
	Grace   time.Duration       // between SIGTERM and SIGKILL; 0: the grace of the attempt's own spec
	Result  plimsoll.TaskResult // result of the attempt, if this stop ends it
	Message string
}
