package executor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Status is the present state of an attempt. Times are Unix nanoseconds, zero before the event.
type Status struct {
	Task     string // its local name
	Attempt  int32
	State    plimsoll.TaskState // TaskStarting, TaskRunning, TaskStopping or TaskFinished
	Result   plimsoll.TaskResult
	ExitCode int32 // 128+n if signal n ended it; -1 if unknown
	Message  string
	Started  int64
	Finished int64
	PID      int
	Dir      string
}

// Ended reports whether the attempt has ended.
func (s *Status) Ended() bool { return s.State == plimsoll.TaskFinished }

func statusToProto(s *Status) *pb.AttemptStatus {
	return &pb.AttemptStatus{
		Task: s.Task, Attempt: s.Attempt, State: pb.TaskState(s.State), Result: pb.TaskResult(s.Result),
		ExitCode: s.ExitCode,
		Message:  strings.ToValidUTF8(s.Message, "?"), Started: s.Started, Finished: s.Finished, Pid: int64(s.PID),
		Dir: s.Dir,
	}
}

func statusFromProto(m *pb.AttemptStatus) Status {
	return Status{
		Task: m.GetTask(), Attempt: m.GetAttempt(), State: wire.EnumFromProto[plimsoll.TaskState](m.GetState()),
		Result: wire.EnumFromProto[plimsoll.TaskResult](m.GetResult()), ExitCode: m.GetExitCode(),
		Message: m.GetMessage(),
		Started: m.GetStarted(), Finished: m.GetFinished(), PID: int(m.GetPid()), Dir: m.GetDir(),
	}
}

// Names in the agent's directory.
const (
	tasksDir    = "tasks"
	workDir     = "work"
	lockFile    = "lock"
	attemptFile = "attempt.json"
	exitFile    = "exit.json"
	forgotten   = "forgotten"
)

// AttemptDir returns the directory of an attempt below the agent's directory.
func AttemptDir(dir, task string, attempt int32) string {
	return filepath.Join(dir, tasksDir, task, strconv.Itoa(int(attempt)))
}

// TaskDir returns the task's own directory, PLIMSOLL_TASK_DIR.
func TaskDir(dir, task string) string { return filepath.Join(dir, tasksDir, task, workDir) }

// CgroupName returns the name of an attempt's control group below the node's own.
func CgroupName(task string, attempt int32) string { return fmt.Sprintf("%s-%d", task, attempt) }

// attemptKey names an attempt.
type attemptKey struct {
	task    string // its local name
	attempt int32
}

func (k attemptKey) String() string {
	return fmt.Sprintf("attempt %d of %s", k.attempt, TaskOf(k.task))
}

func (k attemptKey) validate() error {
	if !fs.ValidPath(k.task) || k.task == "." || strings.Contains(k.task, "/") || len(k.task) > 240 {
		return plimsoll.Invalid("task", "%q is not a task id; it looks like job.group.0", k.task)
	}
	if k.attempt < 1 {
		return plimsoll.Invalid("attempt", "is %d; attempts count from 1", k.attempt)
	}
	return nil
}

// environmentMarks returns environment variables that identify the attempt's processes, unless a
// process has cleared them. The directory tells the attempt apart from one of the same name under
// another agent.
func (a *attempt) environmentMarks() []string {
	return []string{
		"PLIMSOLL_TASK_DIR=" + filepath.Join(filepath.Dir(a.dir), workDir),
		"PLIMSOLL_ATTEMPT=" + strconv.Itoa(int(a.key.attempt)),
	}
}

// attempt is one attempt that the supervisor is responsible for. Supervisor.mu guards the fields
// from ownership on.
type attempt struct {
	key attemptKey
	dir string

	// The start, or the adoption, sets limits, group, uid, lock and logs before the process is
	// followed. They do not change while it runs.
	limits attemptLimits
	group  *cgroup.Group // nil: none
	uid    uint32        // own uid; 0: none
	lock   *os.File      // held until the end; nil if the attempt had ended when it was found
	logs   []*os.File    // stdout and stderr, held as lock is, so that they can be cut

	startDone chan struct{} // closed when the start is over, whether or not it succeeded
	startErr  error         // set before startDone is closed, and only if the attempt was given up

	// ownership is set before the task's own directory is handed to the attempt.
	ownership ownership
	// hidden is true until the directory is made. Watchers do not see the attempt, because it may
	// be given up.
	hidden bool
	// status does not change once its state is TaskFinished.
	status Status
	// adopted is the process, if an earlier supervisor started it. For a child it is nil.
	adopted *adopted
	// stop is the first request, which decides the result. Later requests do not replace it.
	stop *stopRequest
	// killAt is the time of SIGKILL; zero: not requested.
	killAt time.Time
	// timers are stopped when the main process ends.
	timers []*time.Timer
	// ending is true once the main process has ended and the other processes are being killed.
	ending bool
}

// attemptLimits are the limits that the supervisor enforces itself. They are recorded for the next
// supervisor.
type attemptLimits struct {
	MaxRuntime time.Duration `json:"maxRuntimeNanos,omitempty"`
	KillGrace  time.Duration `json:"killGraceNanos"`
	LogLimit   int64         `json:"logLimitBytes"`
	Memory     int64         `json:"memoryBytes,omitempty"`
	Disk       int64         `json:"diskBytes,omitempty"`
}

func limitsOf(spec *plimsoll.GroupSpec) attemptLimits {
	l := attemptLimits{
		MaxRuntime: spec.MaxRuntime, KillGrace: spec.KillGrace, LogLimit: spec.LogLimit,
		Memory: groupLimits(spec.Resources).MemoryBytes,
		Disk:   spec.Resources[plimsoll.Disk],
	}
	if l.KillGrace <= 0 {
		l.KillGrace = plimsoll.DefaultKillGrace
	}
	if l.LogLimit <= 0 {
		l.LogLimit = plimsoll.DefaultLogLimit
	}
	return l
}

// groupLimits returns the most that an attempt may use: its own request and the lent resources.
func groupLimits(r plimsoll.Resources) cgroup.Limits {
	return cgroup.Limits{
		CPUMilli: r[plimsoll.CPU] + r[plimsoll.ExtCPU], MemoryBytes: r[plimsoll.Memory] + r[plimsoll.ExtMemory],
	}
}

// yieldingShares returns the weight of an attempt that yields to others on a busy machine: a
// best-effort attempt without processors of its own, or one on lent processors. Only its own
// request counts; without one it gets the least weight. Zero means that the weight follows the
// quota.
func yieldingShares(spec *plimsoll.GroupSpec) int64 {
	own := spec.Resources[plimsoll.CPU]
	if spec.Resources[plimsoll.ExtCPU] <= 0 && (own > 0 || spec.Worth() != plimsoll.ClassBestEffort) {
		return 0
	}
	return min(max(own*1024/1000, cgroup.MinShares), cgroup.MaxShares)
}

// stopRequest is the reason for stopping an attempt.
type stopRequest struct {
	result  plimsoll.TaskResult
	message string
}

func newAttempt(key attemptKey, dir string) *attempt {
	return &attempt{
		key: key, dir: dir, startDone: make(chan struct{}),
		status: Status{Task: key.task, Attempt: key.attempt, State: plimsoll.TaskStarting, Dir: dir},
	}
}
