package wire

import (
	"math"
	"strconv"
	"strings"
)

const taskKeyDigits = 7

// TaskKey returns the key of a task's record: job, group and index, so that the tasks of a job lie
// together and in order.
func TaskKey(job, group string, index int32) string {
	var digits [taskKeyDigits]byte
	n := index
	for i := taskKeyDigits - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	if n != 0 || index < 0 { // no valid job has such a task; its key is unique all the same
		return job + "\x00" + group + "\x00" + strconv.FormatInt(int64(index), 10)
	}
	return job + "\x00" + group + "\x00" + string(digits[:])
}

// TaskKeyPrefix returns the common prefix of the keys of a job's tasks. No other key has it.
func TaskKeyPrefix(job string) string { return job + "\x00" }

// IsTaskKeyOf reports whether a key is that of a task of a job: whether it begins with
// TaskKeyPrefix(job).
func IsTaskKeyOf(key, job string) bool {
	return len(key) > len(job) && key[len(job)] == 0 && key[:len(job)] == job
}

// JobOfTaskKey returns the job of a task's key, which it shares.
func JobOfTaskKey(key string) string {
	job, _, _ := strings.Cut(key, "\x00")
	return job
}

// SplitTaskKey is the inverse of TaskKey.
func SplitTaskKey(key string) (job, group string, index int32, ok bool) {
	job, rest, found := strings.Cut(key, "\x00")
	if !found {
		return "", "", 0, false
	}
	group, digits, found := strings.Cut(rest, "\x00")
	if !found {
		return "", "", 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || TaskKey(job, group, int32(n)) != key {
		return "", "", 0, false
	}
	return job, group, int32(n), true
}

// SplitTaskID splits a task's id from the right, because a job's id may hold dots and a group's
// name may not. The index must have the form in which plimsoll.TaskID writes it.
func SplitTaskID(id string) (job, group string, index int32, ok bool) {
	dot := strings.LastIndexByte(id, '.')
	if dot < 0 {
		return "", "", 0, false
	}
	index, ok = parseIndex(id[dot+1:])
	if !ok {
		return "", "", 0, false
	}
	rest := id[:dot]
	if dot = strings.LastIndexByte(rest, '.'); dot <= 0 || dot == len(rest)-1 {
		return "", "", 0, false
	}
	return rest[:dot], rest[dot+1:], index, true
}

func parseIndex(s string) (index int32, ok bool) {
	if s == "" || len(s) > 10 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	n := int64(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return int32(n), n <= math.MaxInt32
}
