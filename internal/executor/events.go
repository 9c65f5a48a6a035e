package executor

// Events are callbacks for events of a supervisor. A nil function is not called. Calls come from
// any goroutine, some of them under a lock, so a function must neither block nor call the
// supervisor.
type Events struct {
	// Started is called once per run, when the capabilities are known and before attempts are taken
	// over.
	Started func(Capabilities)
	// Thawed is called when a frozen attempt was thawed because no agent watched.
	Thawed func(task string, attempt int32)
	// Trouble is called after a failure. The supervisor continues without the operation, or
	// retries.
	Trouble func(Trouble)
}

func (e Events) withDefaults() Events {
	if e.Started == nil {
		e.Started = func(Capabilities) {}
	}
	if e.Thawed == nil {
		e.Thawed = func(string, int32) {}
	}
	if e.Trouble == nil {
		e.Trouble = func(Trouble) {}
	}
	return e
}

// Trouble is a failure that does not end the supervisor.
type Trouble struct {
	Kind    TroubleKind
	Task    string // the task concerned; empty: none
	Attempt int32
	Group   string // the control group, of TroubleLeftOver
	Op      string // the operation, of TroubleRequest
	Err     error
}

// TroubleKind describes the failed operation in words.
type TroubleKind string

// Kinds of trouble.
const (
	TroubleOOMKills    TroubleKind = "out-of-memory kills cannot be counted"
	TroubleRecord      TroubleKind = "the end of an attempt could not be recorded"
	TroubleRest        TroubleKind = "processes of an ended attempt cannot be killed"
	TroubleTrim        TroubleKind = "logs could not be cut to their limit"
	TroubleTimes       TroubleKind = "the times of a log could not be noted"
	TroubleRemove      TroubleKind = "a control group could not be removed"
	TroubleUnlock      TroubleKind = "a lock could not be given back"
	TroubleTerminate   TroubleKind = "an attempt could not be asked to end; it will be killed"
	TroubleKill        TroubleKind = "an attempt cannot be killed; trying again"
	TroubleStart       TroubleKind = "an attempt could not be started"
	TroubleClose       TroubleKind = "a file of an attempt could not be closed"
	TroubleForget      TroubleKind = "an attempt could not be marked as forgotten"
	TroubleThaw        TroubleKind = "an attempt that stands still without an agent cannot be thawed; trying again"
	TroubleLeftOver    TroubleKind = "a control group that was left over cannot be removed"
	TroubleNodeGroups  TroubleKind = "the node's control groups could not be removed"
	TroubleTasksMemory TroubleKind = "the common memory limit of the node's tasks could not be set"
	TroubleDisk        TroubleKind = "the disk usage of an attempt cannot be measured completely"
	TroubleDiskLate    TroubleKind = "the disk usage of an attempt is measured late"
	TroubleAdopt       TroubleKind = "an attempt of an earlier supervisor cannot be taken over; trying again"
	TroubleProtect     TroubleKind = "the directory of a task cannot be protected"
	TroubleRequest     TroubleKind = "a request failed"
)

// trouble reports a failure that concerns an attempt.
func (s *Supervisor) trouble(kind TroubleKind, key attemptKey, err error) {
	s.cfg.Events.Trouble(Trouble{Kind: kind, Task: key.task, Attempt: key.attempt, Err: err})
}
