package nodeqos

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Events is a set of functions that a Loop calls for logs and metrics on this machine. A nil
// function is not called. They must not block.
type Events struct {
	// Happened is called with the reported events that also matter to operators of this machine
	// alone.
	Happened func(plimsoll.QOSEvent)
	// StepFailed is called when a planned step has failed.
	StepFailed func(step *qos.Step, err error)
	// Adopted is called when a task has less than its specification allows, without a record of the
	// change. The difference is given back.
	Adopted func(Adopted)
	// OtherBoot is called when the ledger is of another boot. Control groups do not outlive a boot,
	// so the ledger is dropped. boot is the id of this boot.
	OtherBoot func(boot string)
	// Trouble is called when the loop fails at something. It goes on without, or tries again.
	Trouble func(Trouble)
}

func (e Events) withDefaults() Events {
	if e.Happened == nil {
		e.Happened = func(plimsoll.QOSEvent) {}
	}
	if e.StepFailed == nil {
		e.StepFailed = func(*qos.Step, error) {}
	}
	if e.Adopted == nil {
		e.Adopted = func(Adopted) {}
	}
	if e.OtherBoot == nil {
		e.OtherBoot = func(string) {}
	}
	if e.Trouble == nil {
		e.Trouble = func(Trouble) {}
	}
	return e
}

// Adopted holds the settings of a task that were found without a record.
type Adopted struct {
	Task    string
	Attempt int32
	Quota   string // of processor time
	Shares  int64
	Idle    bool
}

// Trouble is a failure of the loop itself.
type Trouble struct {
	Kind     TroubleKind
	Task     string // of the task concerned; empty: none
	Attempt  int32
	Group    string // of TroubleClose
	Resource string // of TroubleNoPressure and TroublePressureEnded
	Path     string // of TroubleLedger: where the record was moved
	Err      error
}

// TroubleKind describes the failure in words.
type TroubleKind string

// The kinds of trouble.
const (
	TroubleMeasure        TroubleKind = "the node cannot be measured"
	TroubleUnwatched      TroubleKind = "a control group is not watched"
	TroubleOpen           TroubleKind = "a control group cannot be opened"
	TroubleThaw           TroubleKind = "a control group cannot be thawed"
	TroubleRead           TroubleKind = "a control group cannot be read"
	TroubleClose          TroubleKind = "a control group could not be closed"
	TroubleCloseAll       TroubleKind = "the QoS loop could not close all its files"
	TroubleBurst          TroubleKind = "a protected task got no burst"
	TroubleNoPressure     TroubleKind = "the kernel tells no pressure at once; it is read at every sample"
	TroublePressureEnded  TroubleKind = "the kernel tells pressure no more at once; it is read at every sample"
	TroubleSavePredictors TroubleKind = "the predicted use of the node cannot be recorded"
	TroubleLoadPredictors TroubleKind = "the predicted use of the node cannot be read; it is learnt anew"
	TroubleSaveLedger     TroubleKind = "the resources taken from tasks cannot be recorded"
	TroubleLedger         TroubleKind = "the record of resources taken from tasks cannot be read; " +
		"it is moved aside, and the tasks' groups show the changes to give back"
)

func (l *Loop) trouble(kind TroubleKind, err error) {
	l.deps.Events.Trouble(Trouble{Kind: kind, Err: err})
}
