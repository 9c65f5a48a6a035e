package calltest

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/plimsoll-dev/plimsoll"
)

// Call is a call of a client as far as it is about one job.
type Call struct {
	Job    string
	Kind   Kind
	Count  int32  // of CreateJob and ScaleJob; 40 calls in a row have different ones
	Reason string // of KillJob
}

// Kind is the kind of a call.
type Kind string

// The kinds.
const (
	ReadJob    Kind = "read"
	ReadActive Kind = "read active" // of a list without the archive
	CreateJob  Kind = "create"
	ScaleJob   Kind = "scale"
	KillJob    Kind = "kill"
)

// Seen holds the part of a job that a read is checked for.
type Seen struct {
	Exists bool
	Count  int32  // tasks wanted
	Reason string // of the kill; empty: it was not killed
}

// ended reports whether the job may have left for the archive. No node has room for its tasks, so
// that a kill ends it.
func (s Seen) ended() bool { return s.Reason != "" }

// The answers of calls that change a job. An output of nil stands for an unknown one.
const (
	Done    = "done"
	Refused = "refused" // the job exists, or it has been killed
	Missing = "missing" // there is no such job
)

// Model is the model of the calls about a job. A job that has left for the archive exists, but it
// can be changed no more. Its id may be refused to a new job, or taken. Lists and the snapshots of
// watches are a read of each job; one that has ended may be missing from those of active jobs. That
// they show one instant of all jobs is checked apart, by their versions.
var Model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byJob := map[string][]porcupine.Operation{}
		for _, op := range history {
			job := op.Input.(Call).Job
			byJob[job] = append(byJob[job], op)
		}
		var parts [][]porcupine.Operation
		for _, job := range slices.Sorted(maps.Keys(byJob)) {
			parts = append(parts, byJob[job])
		}
		return parts
	},
	Init: func() any { return Seen{} },
	Step: func(state, input, output any) (bool, any) {
		at, call := state.(Seen), input.(Call)
		want, next := Done, at
		switch {
		case call.Kind == ReadActive && at.ended() && output == Seen{}:
			return true, at
		case call.Kind == ReadJob, call.Kind == ReadActive:
			return output == at, at
		case call.Kind == CreateJob && at.ended() && output != Refused:
			next = Seen{Exists: true, Count: call.Count}
		case call.Kind == CreateJob && at.Exists:
			want = Refused
		case call.Kind == CreateJob:
			next = Seen{Exists: true, Count: call.Count}
		case !at.Exists:
			want = Missing
		case at.ended() && call.Kind == KillJob && output == Done:
			// its tasks still stop: a further kill has no effect, and the first reason stays
		case at.ended() && output == Missing: // only the archive has it
			want = Missing
		case at.ended():
			want = Refused
		case call.Kind == ScaleJob:
			next.Count = call.Count
		case call.Kind == KillJob:
			next.Reason = call.Reason
		}
		return output == nil || output == want, next
	},
	DescribeOperation: func(input, output any) string {
		call := input.(Call)
		return fmt.Sprintf("%s %s %d %s: %v", call.Kind, call.Job, call.Count, call.Reason, output)
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}

// Answer is one call of a client with its answer.
type Answer struct {
	Client       int
	Began, Ended int64 // in the order of all calls and answers
	Calls        []porcupine.Operation

	Read    bool
	Version plimsoll.Version              // of a read
	Jobs    map[string]plimsoll.JobStatus // shown by a read, by id
	Whole   bool                          // a read of all active jobs
	// Archived says that the read may show jobs of the archive too.
	Archived bool

	Changed  string // job that was changed; empty: none, or it is not known
	Revision uint64 // of the change
}

// Operations returns the history for porcupine.
func Operations(answers []Answer) (all []porcupine.Operation) {
	for _, a := range answers {
		for _, op := range a.Calls {
			op.ClientId, op.Call, op.Return = a.Client, a.Began, a.Ended
			if op.Output == nil {
				op.Return = math.MaxInt64
			}
			all = append(all, op)
		}
	}
	return all
}

// StrictByVersion checks the order of answers in real time: a read shows at least the version of
// each read, and each change, that was answered before the read began.
func StrictByVersion(answers []Answer) error {
	type instant struct {
		at     int64
		begins bool
		of     *Answer
	}
	var instants []instant
	for i := range answers {
		if a := &answers[i]; a.Read || a.Changed != "" {
			instants = append(instants, instant{a.Began, true, a}, instant{a.Ended, false, a})
		}
	}
	slices.SortFunc(instants, func(a, b instant) int { return int(a.at - b.at) })
	var shown plimsoll.Version
	var changed uint64
	floors := map[*Answer]struct {
		shown   plimsoll.Version
		changed uint64
	}{}
	for _, i := range instants {
		a := i.of
		switch {
		case i.begins:
			floors[a] = struct {
				shown   plimsoll.Version
				changed uint64
			}{shown, changed}
		case a.Read:
			floor := floors[a]
			if a.Version.Before(floor.shown) || a.Version.Revision < floor.changed {
				return fmt.Errorf(
					"a read of client %d shows %+v, and %+v was shown and the revision %d acknowledged before it began",
					a.Client, a.Version, floor.shown, floor.changed,
				)
			}
			if a.Version.Compare(shown) > 0 {
				shown = a.Version
			}
		default:
			changed = max(changed, a.Revision)
		}
	}
	return nil
}
