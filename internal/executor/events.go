package executor

// Events tells what happens in a supervisor. A nil function is not called. They are called from any
// goroutine, some of them under a lock, and must neither block nor call the supervisor.
type Events struct {
	// Started is called once a run, when it is known what the machine can do and before attempts
	// are taken over.
	Started func(Capabilities)
	// Thawed is called when an attempt stood still while no agent watched, and runs again.
	Thawed func(task string, attempt int32)
	// Trouble is called when something could not be done. The supervisor goes on without it, or
	// tries again.
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

// Trouble is something that a supervisor could not do.
type Trouble struct {
	Kind    TroubleKind
	Task    string // of the attempt that it is about; empty: it is about none
	Attempt int32
	Group   string // the control group, of TroubleLeftOver
	Op      string // the operation, of TroubleRequest
	Err     error
}

// TroubleKind says in words what could not be done.
type TroubleKind string

// The kinds of trouble.
const (
	TroubleOOMKills    TroubleKind = "out-of-memory kills cannot be counted"
	TroubleRecord      TroubleKind = "the end of an attempt could not be recorded"
	TroubleRest        TroubleKind = "processes of an ended attempt cannot be killed"
	TroubleTrim        TroubleKind = "logs could not be cut to their limit"
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
	TroubleDisk        TroubleKind = "what an attempt takes of the disk cannot be measured whole"
	TroubleDiskLate    TroubleKind = "what an attempt takes of the disk is measured late"
	TroubleAdopt       TroubleKind = "an attempt of an earlier supervisor cannot be taken over; trying again"
	TroubleProtect     TroubleKind = "the directory of a task cannot be protected"
	TroubleRequest     TroubleKind = "a request failed"
)

// trouble tells of something that could not be done for an attempt.
func (s *Supervisor) trouble(kind TroubleKind, key attemptKey, err error) {
	s.cfg.Events.Trouble(Trouble{Kind: kind, Task: key.task, Attempt: key.attempt, Err: err})
}
