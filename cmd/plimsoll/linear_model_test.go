package main

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// jobCall is a call of a client as far as it is about one job.
type jobCall struct {
	job    string
	kind   callKind
	count  int32  // of createJob and scaleJob; 40 calls in a row have different ones
	reason string // of killJob
}

type callKind string

const (
	readJob    callKind = "read"
	readActive callKind = "read active" // of a list without the archive
	createJob  callKind = "create"
	scaleJob   callKind = "scale"
	killJob    callKind = "kill"
)

// jobSeen holds the part of a job that a read is checked for.
type jobSeen struct {
	exists bool
	count  int32  // tasks wanted
	reason string // of the kill; empty: it was not killed
}

// ended reports whether the job may have left for the archive. No node has room for its tasks, so
// that a kill ends it.
func (s jobSeen) ended() bool { return s.reason != "" }

// The answers of calls that change a job. An output of nil stands for an unknown one.
const (
	callDone    = "done"
	callRefused = "refused" // the job exists, or it has been killed
	callMissing = "missing" // there is no such job
)

// jobsModel is the model of the calls about a job. A job that has left for the archive exists, but
// it can be changed no more. Its id may be refused to a new job, or taken. Lists and the snapshots
// of watches are a read of each job; one that has ended may be missing from those of active jobs.
// That they show one instant of all jobs is checked apart, by their versions.
var jobsModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byJob := map[string][]porcupine.Operation{}
		for _, op := range history {
			job := op.Input.(jobCall).job
			byJob[job] = append(byJob[job], op)
		}
		var parts [][]porcupine.Operation
		for _, job := range slices.Sorted(maps.Keys(byJob)) {
			parts = append(parts, byJob[job])
		}
		return parts
	},
	Init: func() any { return jobSeen{} },
	Step: func(state, input, output any) (bool, any) {
		at, call := state.(jobSeen), input.(jobCall)
		want, next := callDone, at
		switch {
		case call.kind == readActive && at.ended() && output == jobSeen{}:
			return true, at
		case call.kind == readJob, call.kind == readActive:
			return output == at, at
		case call.kind == createJob && at.ended() && output != callRefused:
			next = jobSeen{exists: true, count: call.count}
		case call.kind == createJob && at.exists:
			want = callRefused
		case call.kind == createJob:
			next = jobSeen{exists: true, count: call.count}
		case !at.exists:
			want = callMissing
		case at.ended() && call.kind == killJob && output == callDone:
			// its tasks still stop: a further kill has no effect, and the first reason stays
		case at.ended() && output == callMissing: // only the archive has it
			want = callMissing
		case at.ended():
			want = callRefused
		case call.kind == scaleJob:
			next.count = call.count
		case call.kind == killJob:
			next.reason = call.reason
		}
		return output == nil || output == want, next
	},
	DescribeOperation: func(input, output any) string {
		call := input.(jobCall)
		return fmt.Sprintf("%s %s %d %s: %v", call.kind, call.job, call.count, call.reason, output)
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}

// answer is one call of a client with its answer.
type answer struct {
	client       int
	began, ended int64 // in the order of all calls and answers
	calls        []porcupine.Operation

	read    bool
	version plimsoll.Version              // of a read
	jobs    map[string]plimsoll.JobStatus // shown by a read, by id
	whole   bool                          // a read of all active jobs
	// archived says that the read may show jobs of the archive too.
	archived bool

	changed  string // job that was changed; empty: none, or it is not known
	revision uint64 // of the change
}

// operations returns the history for porcupine.
func operations(answers []answer) (all []porcupine.Operation) {
	for _, a := range answers {
		for _, op := range a.calls {
			op.ClientId, op.Call, op.Return = a.client, a.began, a.ended
			if op.Output == nil {
				op.Return = math.MaxInt64
			}
			all = append(all, op)
		}
	}
	return all
}

// strictByVersion checks the order of answers in real time: a read shows at least the version of
// each read, and each change, that was answered before the read began.
func strictByVersion(answers []answer) error {
	type instant struct {
		at     int64
		begins bool
		of     *answer
	}
	var instants []instant
	for i := range answers {
		if a := &answers[i]; a.read || a.changed != "" {
			instants = append(instants, instant{a.began, true, a}, instant{a.ended, false, a})
		}
	}
	slices.SortFunc(instants, func(a, b instant) int { return int(a.at - b.at) })
	var shown plimsoll.Version
	var changed uint64
	floors := map[*answer]struct {
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
		case a.read:
			floor := floors[a]
			if a.version.Before(floor.shown) || a.version.Revision < floor.changed {
				return fmt.Errorf(
					"a read of client %d shows %+v, and %+v was shown and the revision %d acknowledged before it began",
					a.client, a.version, floor.shown, floor.changed,
				)
			}
			if a.version.Compare(shown) > 0 {
				shown = a.version
			}
		default:
			changed = max(changed, a.revision)
		}
	}
	return nil
}

// replay is the command that repeats a run.
func replay(seed uint64) string {
	soak := ""
	if testrun.Soak() {
		soak = "PLIMSOLL_SOAK=1 "
	}
	return fmt.Sprintf(
		"%sPLIMSOLL_SEED=%d go test ./cmd/plimsoll -run TestGatewaysAreLinearizableUnderFaults", soak, seed,
	)
}
