package agent

import (
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// Events are callbacks for events of an agent. A nil function is not called. Calls come from any
// goroutine, so a function must not block.
type Events struct {
	// Registered is called when a gateway has registered the node with this description.
	Registered func(gateway string, node *plimsoll.Node)
	// Disconnected is called when a session with a gateway ended or failed to begin. The next
	// session follows after the pause.
	Disconnected func(gateway string, err error, pause time.Duration)
	// SupervisorLost is called when the connection to the supervisor has ended. The next try
	// follows after the pause.
	SupervisorLost func(err error, pause time.Duration)
	// Limited is called once per run if some limits are missing, with the kind of control groups
	// and the reason.
	Limited func(cgroups, reason string)
	// Users is called once per run, with a sentence that names the users of tasks.
	Users func(sentence string)
	// ReportsCut is called when the end of the reports on disk could not be read. The supervisor's
	// records replace the lost ones.
	ReportsCut func(bytes int64)
	// NodeReportRefused is called when a report of the node was refused for good. The faulty part
	// is left out.
	NodeReportRefused func(events int, err error)
	// Left is called when an agent has left after ctx ended. running attempts run on; err says why
	// no gateway could be told.
	Left func(running int, err error)
	// Trouble is called after a failure. The agent continues without the operation, or retries.
	Trouble func(Trouble)
	// QOS are the callbacks of the node's QoS loop.
	QOS nodeqos.Events
}

func (e Events) withDefaults() Events {
	if e.Registered == nil {
		e.Registered = func(string, *plimsoll.Node) {}
	}
	if e.Disconnected == nil {
		e.Disconnected = func(string, error, time.Duration) {}
	}
	if e.SupervisorLost == nil {
		e.SupervisorLost = func(error, time.Duration) {}
	}
	if e.Limited == nil {
		e.Limited = func(string, string) {}
	}
	if e.Users == nil {
		e.Users = func(string) {}
	}
	if e.ReportsCut == nil {
		e.ReportsCut = func(int64) {}
	}
	if e.Left == nil {
		e.Left = func(int, error) {}
	}
	if e.NodeReportRefused == nil {
		e.NodeReportRefused = func(int, error) {}
	}
	if e.Trouble == nil {
		e.Trouble = func(Trouble) {}
	}
	return e
}

// Trouble is a failure that does not end the agent.
type Trouble struct {
	Kind    TroubleKind
	Task    string // the task concerned; empty: none
	Attempt int32  // 0: no particular attempt
	Policy  string // of TroublePolicy
	Err     error  // nil if the kind says it all
}

// TroubleKind describes the failed operation in words.
type TroubleKind string

// Kinds of trouble.
const (
	TroubleScan         TroubleKind = "the directory of a task cannot be read; the supervisor's records are used for it"
	TroubleOldDirs      TroubleKind = "directories of old tasks could not be removed"
	TroubleSupervisor   TroubleKind = "the supervisor could not carry out a request"
	TroubleDisk         TroubleKind = "the disk of the agent's directory is too full; no new tasks are taken, and those that run go on"
	TroubleKeepReports  TroubleKind = "reports are not kept on disk"
	TroubleNoteWorth    TroubleKind = "the worth of a task could not be noted in its directory"
	TroubleNoteEnd      TroubleKind = "the end of an attempt could not be noted in its directory"
	TroubleForeign      TroubleKind = "the supervisor holds an attempt that cannot be ours"
	TroubleAssignment   TroubleKind = "an assignment was left out"
	TroubleSendLog      TroubleKind = "a log could not be sent"
	TroubleSendOutputs  TroubleKind = "the outputs of a task could not be sent"
	TroubleUnread       TroubleKind = "a stream was cut because its caller did not read it"
	TroubleNetworks     TroubleKind = "the networks of this machine cannot be read; their last known state stays"
	TroubleIncarnation  TroubleKind = "another incarnation of the node could not be noted"
	TroubleReport       TroubleKind = "a report was refused for good and is dropped"
	TroubleNodeReport   TroubleKind = "a report of the node is not taken; tasks go on, and it is tried again and again"
	TroubleOldGateway   TroubleKind = "this gateway does not take reports of the node; it may be of an older version"
	TroublePolicy       TroubleKind = "a policy was left out"
	TroubleKeepPolicies TroubleKind = "the node's policies are not kept on disk"
	TroubleReadPolicies TroubleKind = "the policies that were kept on disk cannot be read; there are none until a gateway tells them"
	TroubleRetire       TroubleKind = "the supervisor, which has nothing to do any more, could not be ended"
	TroubleQOS          TroubleKind = "the node is no longer kept at its lines; restart the agent"
	TroubleGroups       TroubleKind = "the control groups of tasks cannot be opened: " +
		"only evictions and closing the node are left to keep it at its lines"
	TroubleOldSupervisor TroubleKind = "the supervisor is of an earlier version and does not say where the control groups of tasks are: " +
		"until it is started again, only evictions and closing the node are left to keep it at its lines"
)
