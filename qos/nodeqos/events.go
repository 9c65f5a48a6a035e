package nodeqos

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Events tells what happens in a Loop, to whoever has nothing but this machine. A nil function is
// not called. They must not block.
type Events struct {
	// Happened is called with what is reported of the node and is large enough to be told here too.
	Happened func(plimsoll.QOSEvent)
	// StepFailed is called when something that was decided could not be done.
	StepFailed func(step *qos.Step, err error)
	// Adopted is called when a task has less than its specification says and no record says why: it
	// is given back.
	Adopted func(Adopted)
	// OtherBoot is called when the record of what was taken from tasks is of another boot, which
	// nothing has outlived.
	OtherBoot func(boot string)
	// Trouble is called when something could not be done. The loop goes on without it, or tries
	// again.
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

// Adopted is what a task was found to have.
type Adopted struct {
	Task    string
	Attempt int32
	Quota   string // of processor time
	Shares  int64
	Idle    bool
}

// Trouble is something that a Loop could not do.
type Trouble struct {
	Kind     TroubleKind
	Task     string // that it is about; empty: it is about none
	Attempt  int32
	Group    string // of TroubleClose
	Resource string // of TroubleNoPressure and TroublePressureEnded
	Path     string // of TroubleLedger: where the record was moved
	Err      error
}

// TroubleKind says in words what could not be done.
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
	TroubleSavePredictors TroubleKind = "what was learnt of the use of the node cannot be recorded"
	TroubleLoadPredictors TroubleKind = "what was learnt of the use of the node cannot be read; it is learnt anew"
	TroubleSaveLedger     TroubleKind = "what is taken from tasks cannot be recorded"
	TroubleLedger         TroubleKind = "the record of what was taken from tasks cannot be read; " +
		"it is moved aside, and the tasks' groups tell what to give back"
)

func (l *Loop) trouble(kind TroubleKind, err error) {
	l.deps.Events.Trouble(Trouble{Kind: kind, Err: err})
}
