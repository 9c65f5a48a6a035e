package wire

import "github.com/plimsoll-dev/plimsoll"

// The functions of this file read the few fields of an encoded record by which gateways find it.
// They allocate nothing and stop behind the last of these fields: records are encoded by this
// package, which writes fields in the order of their numbers.

// PeekTask returns the state and the result of an encoded task. ok is false if the record cannot be
// read.
func PeekTask(data []byte) (state plimsoll.TaskState, result plimsoll.TaskResult, ok bool) {
	var facts TaskFacts
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return 0, 0, false
		}
		if data = rest; f.tag>>3 > 7 {
			break
		}
		facts.take(&f)
	}
	state, result = plimsoll.TaskState(enumOf(facts.State)), plimsoll.TaskResult(enumOf(facts.Result))
	ok = checkEnum[plimsoll.TaskState]("state", state) == nil && checkEnum[plimsoll.TaskResult]("result", result) == nil
	return state, result, ok
}

// PeekJob returns the owner, the queue and the state of the encoded status of a job, as slices of
// it. ok is false if the record cannot be read.
func PeekJob(data []byte) (owner, queue []byte, state plimsoll.JobState, ok bool) {
	var facts JobFacts
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return nil, nil, 0, false
		}
		if data = rest; f.tag>>3 > 4 {
			break
		}
		facts.take(&f)
	}
	state = plimsoll.JobState(enumOf(facts.State))
	return facts.Owner, facts.Queue, state, checkEnum[plimsoll.JobState]("state", state) == nil
}
