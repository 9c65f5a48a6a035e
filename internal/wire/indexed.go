package wire

import "github.com/plimsoll-dev/plimsoll"

// The functions of this file read the few fields of an encoded record by which gateways find it.
// They allocate nothing and stop behind the last of these fields: records are encoded by this
// package, which writes fields in the order of their numbers.

// PeekTask returns the state and the result of an encoded task. ok is false if the record cannot be
// read.
func PeekTask(data []byte) (state plimsoll.TaskState, result plimsoll.TaskResult, ok bool) {
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return 0, 0, false
		}
		data = rest
		switch {
		case f.tag == 6<<3|varintType:
			state = plimsoll.TaskState(enum(&f))
		case f.tag == 7<<3|varintType:
			result = plimsoll.TaskResult(enum(&f))
		case f.tag>>3 > 7:
			data = nil
		}
	}
	ok = checkEnum[plimsoll.TaskState]("state", state) == nil && checkEnum[plimsoll.TaskResult]("result", result) == nil
	return state, result, ok
}

// PeekJob returns the owner, the queue and the state of the encoded status of a job, as slices of
// it. ok is false if the record cannot be read.
func PeekJob(data []byte) (owner, queue []byte, state plimsoll.JobState, ok bool) {
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return nil, nil, 0, false
		}
		data = rest
		switch {
		case f.tag == 2<<3|bytesType:
			owner = f.b
		case f.tag == 3<<3|bytesType:
			queue = f.b
		case f.tag == 4<<3|varintType:
			state = plimsoll.JobState(enum(&f))
		case f.tag>>3 > 4:
			data = nil
		}
	}
	return owner, queue, state, checkEnum[plimsoll.JobState]("state", state) == nil
}
