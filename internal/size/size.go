// Package size bounds how many bytes the objects of the vocabulary take as records and events,
// without encoding them. The state counts with it what a turn puts into a batch, and refuses what
// no batch has room for.
//
// Of looks at a value by reflection, so a field that is added to the vocabulary is counted as soon
// as it is there. It is for what changes seldom: specifications, nodes, policies, the tree of
// queues. Task, JobStatus, GroupStatus and Event are for what changes in every turn: their numbers
// are counted at their largest, once, and only their texts are added.
//
// A bound is never below what package wire and package ring write, and for large values at most a
// fifth above it; the tests of this package hold it against both, with every field filled. Cost: Of
// is linear in the value, some 50 ns a field; the others are a few additions. It owns nothing.
// Package state calls it.
package size

import (
	"math/bits"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	longTag      = 2 // bytes of the tag of a field from the 16th on; one below is a byte
	shortFields  = 15
	most         = 10 // bytes of a number at its largest; a negative one takes as many
	float        = 8
	lengthPrefix = 2 // bytes of the length of a text of a record that changes often; those are below 16 KiB
	listFlag     = 3 // a field beside a list may tell an empty one from one that is missing
)

// Of returns the most bytes that package wire writes for a value, or for what v points to.
func Of(v any) int { return content(reflect.ValueOf(v), 1) }

// content is the size of what stands in a message. tag is how long the tags of elements are, if it
// is a list or a map.
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

// field is the size of a field of a message: one that is zero is not written, but a struct may be.
func field(v reflect.Value, tag int) int {
	switch v.Kind() {
	case reflect.Struct:
		return element(v, tag)
	case reflect.Slice:
		if v.IsNil() {
			return 0
		}
		return content(v, tag) + listFlag
	}
	if v.IsZero() {
		return 0
	}
	return element(v, tag)
}

// element is the size of what is written whatever its value, such as an entry of a list.
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
	case reflect.Pointer, reflect.Struct, reflect.Slice, reflect.Map:
		return message(content(v, 1), tag)
	}
	panic("size: the vocabulary has no values of kind " + v.Kind().String())
}

// message is the size of a text or message of n bytes with its tag and length.
func message(n, tag int) int { return tag + varint(uint64(n)) + n }

func varint(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

// length is that of a text as it is written: what is not UTF-8 is replaced by something longer.
func length(s string) int {
	if utf8.ValidString(s) {
		return len(s)
	}
	return len(strings.ToValidUTF8(s, "\uFFFD"))
}

// fixed is the size of a message of a type whose numbers are at their largest and whose texts,
// lists and maps are empty, but with the tags and lengths of their own.
func fixed(t reflect.Type) int {
	sum := max(0, t.NumField()-shortFields) // that many tags are long
	for i := range t.NumField() {
		sum++
		switch f := t.Field(i).Type; f.Kind() {
		case reflect.Bool:
			sum++
		case reflect.Uint8, reflect.Uint16:
			sum += varint(1<<f.Bits() - 1)
		case reflect.Struct:
			sum += lengthPrefix + fixed(f)
		case reflect.String, reflect.Slice, reflect.Map:
			sum += lengthPrefix
		default:
			sum += most
		}
	}
	return sum
}

const (
	taskKey = 9 // what a task's key has beside job and group
	// what package ring writes of an event beside its fields: a new shape, and what the texts have
	// in common
	ringRow = 4
	chunk   = 21 // and before the events of a batch
)

var (
	taskFixed   = fixed(reflect.TypeFor[plimsoll.Task]()) + taskKey
	statusFixed = fixed(reflect.TypeFor[plimsoll.JobStatus]())
	groupFixed  = fixed(reflect.TypeFor[plimsoll.GroupStatus]()) + 1 + lengthPrefix
	eventFixed  = fixed(reflect.TypeFor[plimsoll.Event]()) + ringRow

	attemptsFixed = fixed(reflect.TypeFor[plimsoll.NodeAttempts]()) + longTag + lengthPrefix
)

// Task bounds the record of a task with its key, without its earlier attempts. The arguments are
// all the texts in it.
func Task(job, group, node, message string) int {
	return taskFixed + 2*(len(job)+len(group)) + len(node) + len(message)
}

// NodeAttempts bounds an entry of the earlier attempts of a task.
func NodeAttempts(node string) int { return attemptsFixed + len(node) }

// JobStatus bounds the record of a job's status with its key, without its groups. The arguments are
// all the texts in it.
func JobStatus(id, owner, queue, reason string) int {
	return statusFixed + 2*len(id) + length(owner) + len(queue) + len(reason)
}

// GroupStatus bounds a group in the status of its job. The arguments are all the texts in it.
func GroupStatus(name, waitQueue, waitResource, waitKnown string) int {
	return groupFixed + len(name) + len(waitQueue) + len(waitResource) + len(waitKnown)
}

// Event bounds an event without its resources, which package ring writes once in a batch and which
// Of bounds. The arguments are all the texts in it.
func Event(object, reference, message string) int {
	return eventFixed + len(object) + len(reference) + len(message)
}

// Chunk bounds what stands before the events of a batch.
func Chunk() int { return chunk }
