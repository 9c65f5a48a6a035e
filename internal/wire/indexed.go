package wire

import (
	"iter"

	"github.com/plimsoll-dev/plimsoll"
)

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

// PeekLife returns the uid of the encoded status of a job, in text, and whether readers may have to
// look past the record: the job is to be deleted, or has begun to leave the active store. ok is
// false if the record cannot be read.
func PeekLife(data []byte) (uid string, leaving, ok bool) {
	facts, err := LookAtJob(data)
	if err != nil {
		return "", false, false
	}
	leaving = facts.Deleted || plimsoll.JobState(enumOf(facts.State)) == plimsoll.JobExpired
	if len(facts.UID) > 0 {
		return string(facts.UID), leaving, true
	}
	return plimsoll.MakeUID(facts.Submitted, 0).String(), leaving, true
}

// PeekLabels yields the labels of the encoded specification of a job, as slices of it. It yields
// none of a record that cannot be read.
func PeekLabels(data []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for len(data) > 0 {
			f, rest, err := nextField(data)
			if err != nil || f.tag>>3 > 4 {
				return
			}
			data = rest
			if f.tag != 4<<3|bytesType {
				continue
			}
			if key, value, ok := entryOf(f.b); !ok || !yield(key, value) {
				return
			}
		}
	}
}

// entryOf reads an entry of a map from text to text.
func entryOf(data []byte) (key, value []byte, ok bool) {
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return nil, nil, false
		}
		data = rest
		switch f.tag {
		case 1<<3 | bytesType:
			key = f.b
		case 2<<3 | bytesType:
			value = f.b
		}
	}
	return key, value, true
}
