package engine

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// Command is an operation with an id for its reply.
type Command struct {
	ID uint64
	Do Operation
	// Token is the same in all repetitions of the command; empty: there are none. Digest is another
	// one for each other command.
	Token  string
	Digest uint64
}

// Operation is the effect of a command: one of the types below, with its apply method in apply.go.
type Operation interface {
	// apply applies the operation. It appends the reply to the command with the id to out, or a
	// later turn does.
	apply(e *Engine, id uint64, out *Batch)
}

// Answering is an Operation whose reply holds an A. All operations but GatewayLost, DiskShortage,
// Archived, ArchiveTrouble and QueuesUnread implement it; those have no reply.
type Answering[A any] interface {
	Operation
	answer(A) any // for Reply.Answer
}

// answers makes a type that embeds it Answering[A].
type answers[A any] struct{}

func (answers[A]) answer(a A) any { return a }

// Done is the empty answer.
type Done struct{}

// Registration is the number of a node's registration.
type Registration uint64

// Reply is the reply to a command: an error, or the answer of its operation.
type Reply struct {
	ID     uint64
	Err    error
	Answer any // nil beside an error
}

// reply appends the reply to an operation.
func reply[A any](out *Batch, id uint64, do Answering[A], answer A, err error) {
	r := Reply{ID: id, Err: err}
	if err == nil {
		r.Answer = do.answer(answer)
	}
	out.Replies = append(out.Replies, r)
}

// The operations.
type (
	// SubmitJob takes in a job; the specification must not be changed afterwards. With Replace, an
	// earlier job with its id that has ended gives way.
	SubmitJob struct {
		answers[Done]

		Spec    *plimsoll.JobSpec
		Replace bool
	}
	// KillJob begins to stop a job. A zero UID is the present lifetime of the id.
	KillJob struct {
		answers[Done]

		ID, Reason string
		UID        plimsoll.UID
	}
	// ScaleJob changes how many tasks a group has; an empty group is the only one. UID is as in
	// KillJob.
	ScaleJob struct {
		answers[Done]

		ID, Group string
		UID       plimsoll.UID
		Count     int32
	}
	// DeleteJob deletes a job that has ended. A zero UID is the present lifetime of the id.
	DeleteJob struct {
		answers[Done]

		ID  string
		UID plimsoll.UID
	}
	// Archived says that the archive with an ID holds the Written jobs, and that it has deleted the
	// Deleted ones. Sequence is that of its last write. It has no reply.
	Archived struct {
		ID               string
		Sequence         uint64
		Written, Deleted []state.JobName
		Attempts         []state.AttemptsName // attempts of jobs that go on, which the archive holds
		// Accept makes ID and Sequence the ones that the store needs, even if they are lower.
		Accept bool
	}
	// ArchiveTrouble says why the archive takes no jobs; an empty Why says that it takes them. It
	// has no reply.
	ArchiveTrouble struct{ Why string }
	// SetNodeMode opens a node for tasks, closes it, or drains it.
	SetNodeMode struct {
		answers[Done]

		ID   string
		Mode plimsoll.NodeMode
	}
	// RemoveNode deletes a node that has no task.
	RemoveNode struct {
		answers[Done]

		ID string
	}
	// SetQueueConfig replaces the tree of queues. A dry run only checks it. Other refusals are told
	// by an event too.
	SetQueueConfig struct {
		answers[Done]

		Config plimsoll.QueueConfig
		DryRun bool
	}
	// QueuesUnread says why a queue file could not be read, which is told by an event. It has no
	// reply.
	QueuesUnread struct{ Why string }
	// SetEventSettings changes settings of the events, by name.
	SetEventSettings struct {
		answers[Done]

		Settings map[string]string
	}
	// ReportHistorian registers a historian, or says how far it has come.
	ReportHistorian struct {
		answers[Done]

		Name, Instance string
		Next           uint64
	}
	// RemoveHistorian ends the registration of a historian.
	RemoveHistorian struct {
		answers[Done]

		Name string
	}
	// RegisterNode makes a node known through a gateway.
	RegisterNode struct {
		answers[Registration]

		Node    plimsoll.Node
		Gateway string
	}
	// NodeSilent says that a gateway no longer hears a node.
	NodeSilent struct {
		answers[Done]

		ID           string
		Registration uint64
	}
	// GatewayLost says that a gateway is gone. It has no reply.
	GatewayLost struct{ Gateway string }
	// DiskShortage says why the disk of the store has no room for more records; an empty Why says
	// that it has room. It has no reply.
	DiskShortage struct{ Why string }
	// ReportTasks applies an agent's reports about attempts.
	ReportTasks struct {
		answers[Done]

		Node        string
		Incarnation uint64
		Reports     []Report
	}
	// ReportNode applies a report of a node's QoS agent.
	ReportNode struct {
		answers[Done]

		Node        string
		Incarnation uint64
		Sequence    uint64
		Report      plimsoll.NodeReport
	}
	// LeaveNode says that the agent of a node has stopped. Running attempts go on there; an empty
	// node has none, and starts none before it registers again.
	LeaveNode struct {
		answers[Done]

		Node        string
		Incarnation uint64
		Running     int32
		Empty       bool
	}
	// ApplyPolicies creates and replaces policies, all of them or none. A dry run only returns the
	// changes that it would make. The policies must not be changed afterwards.
	ApplyPolicies struct {
		answers[[]state.PolicyOutcome]

		Policies []plimsoll.Policy
		DryRun   bool
	}
	// DeletePolicy deletes a policy that no other names.
	DeletePolicy struct {
		answers[Done]

		Ref plimsoll.PolicyRef
	}
)

// Report is a task report with the job, group and index of its task.
type Report struct {
	Job, Group string
	Index      int32
	plimsoll.TaskReport
}
