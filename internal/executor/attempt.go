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

// Status is what is known of an attempt. Times are Unix nanoseconds, zero if it has not happened.
type Status struct {
	Task     string
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
	task    string
	attempt int32
}

func (k attemptKey) String() string { return fmt.Sprintf("attempt %d of %s", k.attempt, k.task) }

func (k attemptKey) validate() error {
	if !fs.ValidPath(k.task) || k.task == "." || strings.Contains(k.task, "/") || len(k.task) > 240 {
		return plimsoll.Invalid("task", "%q is not a task id; it looks like job.group.0", k.task)
	}
	if k.attempt < 1 {
		return plimsoll.Invalid("attempt", "is %d; attempts count from 1", k.attempt)
	}
	return nil
}

// marks returns the variables that every process of the attempt carries that has not cleared them.
// The directory tells it apart from an attempt of the same name under another agent on this
// machine.
func (a *attempt) marks() []string {
	return []string{
		"PLIMSOLL_TASK_DIR=" + filepath.Join(filepath.Dir(a.dir), workDir),
		"PLIMSOLL_ATTEMPT=" + strconv.Itoa(int(a.key.attempt)),
	}
}

// attempt is one attempt that the supervisor answers for. Mutable fields are guarded by
// Supervisor.mu.
type attempt struct {
	key    attemptKey
	dir    string
	limits attemptLimits
	group  *cgroup.Group // nil: none
	uid    uint32        // of its own; 0: none. Set before its process runs.
	lock   *os.File      // held from the start to the end; nil for one that had ended when it was found
	logs   []*os.File    // what its program writes to, held as lock is, to be cut; set before it runs

	settled  chan struct{} // closed when the start is over, well or not
	startErr error         // set before settled is closed, if nothing was started and nothing is known

	tenancy tenancy
	hidden  bool // it has no directory yet, and may be given up: watchers are not told
	status  Status
	adopted *adopted      // its process is not our child; nil: it is
	stop    *stopRequest  // first wins
	killAt  time.Time     // when SIGKILL is due; zero: not asked for
	timers  []*time.Timer // stopped at the end
	ending  bool          // its main process has ended and the rest is under way
}

// attemptLimits is what the supervisor enforces itself. It is recorded, so that the next supervisor
// goes on with it.
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

// groupLimits is what an attempt may use at the most: what it has asked for, and what it was lent.
func groupLimits(r plimsoll.Resources) cgroup.Limits {
	return cgroup.Limits{
		CPUMilli: r[plimsoll.CPU] + r[plimsoll.ExtCPU], MemoryBytes: r[plimsoll.Memory] + r[plimsoll.ExtMemory],
	}
}

// yieldingShares is the weight of an attempt that must let others go first on a busy machine: one
// that was lent processors, which belong to others, and a best-effort one that asked for none. Only
// what it has asked for itself counts, and one that has nothing of its own gets the least there is.
// 0: its weight follows its quota.
func yieldingShares(spec *plimsoll.GroupSpec) int64 {
	own := spec.Resources[plimsoll.CPU]
	if spec.Resources[plimsoll.ExtCPU] <= 0 && (own > 0 || spec.Worth() != plimsoll.ClassBestEffort) {
		return 0
	}
	return min(max(own*1024/1000, cgroup.MinShares), cgroup.MaxShares)
}

// stopRequest says why an attempt is being stopped.
type stopRequest struct {
	result  plimsoll.TaskResult
	message string
}

func newAttempt(key attemptKey, dir string) *attempt {
	return &attempt{
		key: key, dir: dir, settled: make(chan struct{}),
		status: Status{Task: key.task, Attempt: key.attempt, State: plimsoll.TaskStarting, Dir: dir},
	}
}
