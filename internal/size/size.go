// Package size bounds the bytes of the vocabulary's objects as records and events, without
// encoding them. The state uses it to count the bytes of a turn's batch, and to refuse objects
// that no batch has room for:
//
//	bytes += size.Of(&spec) + size.JobStatus(spec.ID, spec.Owner, spec.Queue, reason, group)
//
// Of examines a value by reflection, so a field that is added to the vocabulary is counted at
// once. It is for objects that change seldom: specifications, nodes, policies, the tree of queues.
// Task, JobStatus, GroupStatus and Event are for objects that change in every turn. Their numbers
// are counted at their largest, once, and only their texts are added.
//
// A bound is never below the bytes that package wire and package ring write. For large values it
// is at most a fifth above them. The tests of this package compare it with both, with every field
// filled.
//
// Cost: Of is linear in the value, some 50 ns a field; the others are a few additions. The package
// owns nothing. Package state calls it.
package size

import (
	"math/bits"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	longTag      = 2 // bytes of the tag of a field from the 16th on; an earlier one has one byte
	shortFields  = 15
	most         = 10 // bytes of the largest number; a negative one takes as many
	float        = 8
	lengthPrefix = 2 // bytes of the length of a text in a record that changes often; such texts are below 16 KiB
	listFlag     = 3 // a field beside a list may distinguish an empty list from a missing one
)

// Of returns the most bytes that package wire writes for a value. A pointer is followed.
func Of(v any) int { return content(reflect.ValueOf(v), 1) }

// content returns the size of a message's content. For a list or a map, tag is the length of its
// elements' tags.
func content(v reflect.Value, tag int) int {
	sum := 0
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return content(v.Elem(), tag)
		}
	case reflect.Struct:
		tag := tagOf(v.Type())
		for i := range v.NumField() {
			sum += field(v.Field(i), tag)
		}
	case reflect.Slice:
		for i := range v.Len() {
			sum += element(v.Index(i), tag)
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			sum += message(element(entry.Key(), 1)+element(entry.Value(), 1), tag)
		}
	default:
		return element(v, 0)
	}
	return sum
}

func tagOf(t reflect.Type) int {
	if t.NumField() > shortFields {
		return longTag
	}
	return 1
}

// field returns the size of a field of a message. A zero field is not written, except for a
// struct.
func field(v reflect.Value, tag int) int {
	switch v.Kind() {
	case reflect.Struct:
		return element(v, tag)
	case reflect.Slice:
		if v.IsNil() {
			return 0
		}
		if v.Type().Elem().Kind() == reflect.Int32 {
			return message(packed(v), tag) + listFlag
		}
		return content(v, tag) + listFlag
	}
	if v.IsZero() {
		return 0
	}
	return element(v, tag)
}

// packed returns the size of numbers that are written one behind the other, without tags.
func packed(v reflect.Value) int {
	sum := 0
	for i := range v.Len() {
		sum += varint(uint64(v.Index(i).Int()))
	}
	return sum
}

// element returns the size of a value that is always written, such as an entry of a list.
func element(v reflect.Value, tag int) int {
	switch v.Kind() {
	case reflect.String:
		return message(length(v.String()), tag)
	case reflect.Bool:
		return tag + 1
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return tag + varint(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return tag + varint(v.Uint())
	case reflect.Float32, reflect.Float64:
		return tag + float
	case reflect.Array: // a uid
		return message(plimsoll.UIDText, tag)
	case reflect.Pointer, reflect.Struct, reflect.Slice, reflect.Map:
		return message(content(v, 1), tag)
	}
	panic("size: the vocabulary has no values of kind " + v.Kind().String())
}

// message returns the size of a text or message of n bytes, with its tag and length.
func message(n, tag int) int { return tag + varint(uint64(n)) + n }

func varint(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

// length returns the encoded length of a text. Invalid UTF-8 is replaced by something longer.
func length(s string) int {
	if utf8.ValidString(s) {
		return len(s)
	}
	return len(strings.ToValidUTF8(s, "\uFFFD"))
}

// fixed returns the size of a message of a type with all numbers at their largest. Its texts,
// lists and maps are empty, but have their tags and lengths.
func fixed(t reflect.Type) int {
	sum := max(0, t.NumField()-shortFields) // the number of long tags
	for i := range t.NumField() {
		sum++
		switch f := t.Field(i).Type; f.Kind() {
		case reflect.Bool:
			sum++
		case reflect.Uint8, reflect.Uint16:
			sum += varint(1<<f.Bits() - 1)
		case reflect.Struct:
			sum += lengthPrefix + fixed(f)
		case reflect.Array:
			sum += lengthPrefix + plimsoll.UIDText
		case reflect.String, reflect.Slice, reflect.Map:
			sum += lengthPrefix
		case reflect.Pointer: // the caller adds what it points to
		default:
			sum += most
		}
	}
	return sum
}

const (
	taskKey = 9 // bytes of a task's key beside job and group
	// ringRow is written by package ring for each event beside its fields: a new shape, and the
	// prefix shared by its texts.
	ringRow = 4
	chunk   = 21 // bytes before the events of a batch
)

var (
	taskFixed   = fixed(reflect.TypeFor[plimsoll.Task]()) + taskKey
	statusFixed = fixed(reflect.TypeFor[plimsoll.JobStatus]())
	groupFixed  = fixed(reflect.TypeFor[plimsoll.GroupStatus]()) + 1 + lengthPrefix
	eventFixed  = fixed(reflect.TypeFor[plimsoll.Event]()) + ringRow

	attemptsFixed = fixed(reflect.TypeFor[plimsoll.NodeAttempts]()) + longTag + lengthPrefix
	attemptFixed  = fixed(reflect.TypeFor[plimsoll.Attempt]()) + longTag + lengthPrefix
	stepFixed     = fixed(reflect.TypeFor[plimsoll.JobStep]()) + 1 + lengthPrefix
)

// Task bounds the record of a task with its key, without its former attempts. The arguments are all
// texts of the record.
func Task(job, group, node, message string) int {
	return taskFixed + 2*(len(job)+len(group)) + len(node) + len(message)
}

// NodeAttempts bounds an entry of the earlier attempts of a task.
func NodeAttempts(node string) int { return attemptsFixed + len(node) }

// Attempt bounds a former attempt of a task. The arguments are all texts of the attempt.
func Attempt(node, message string) int { return attemptFixed + len(node) + len(message) }

// JobStep bounds an entry of the history in a job's status.
func JobStep() int { return stepFixed }

// JobStatus bounds the record of a job's status with its key, without groups and history. The
// arguments are all texts of the record.
func JobStatus(id, owner, queue, reason, group string) int {
	return statusFixed + 2*len(id) + length(owner) + len(queue) + len(reason) + len(group)
}

// GroupStatus bounds a group in the status of its job. The arguments have all texts of the group.
func GroupStatus(name string, w *plimsoll.WaitCause) int {
	return groupFixed + len(name) + len(w.Queue) + len(w.Resource) + len(w.Known) + len(w.UserOrGroup)
}

// Event bounds an event without its resources, which package ring writes once in a batch; Of
// bounds those, and JobHead.Size a head. The arguments are all texts of the event.
func Event(object, reference, message string) int {
	return eventFixed + len(object) + len(reference) + len(message)
}

// Chunk bounds the bytes before the events of a batch.
func Chunk() int { return chunk }
