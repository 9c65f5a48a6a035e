package archive

import (
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Bounds of a question and its answer.
const (
	MaxLimit     = 10_000  // jobs or tasks of a page; 0 in a query is this
	MaxPageBytes = 4 << 20 // bytes of the records of a page; 0 in a query is this
	MaxIDs       = 1_000   // ids of a query
	MaxLabels    = 16      // labels of a query
)

// Sort is the order of a list of jobs. Jobs that are equal in it are in the order of their uids.
type Sort uint8

// The orders.
const (
	SortSubmitted Sort = iota
	SortFinished
	SortID

	numSorts
)

// NumSorts is one more than the highest order, for tables.
const NumSorts = int(numSorts)

// JobQuery says which jobs are wanted. Fields that are empty ask for nothing. A job has to meet
// all others.
type JobQuery struct {
	IDs     []string // one of these
	Owner   string
	Queue   string                // this one, or below it
	Labels  []string              // all of these: key, or key=value
	States  []plimsoll.JobState   // one of these
	Results []plimsoll.TaskResult // one of these
	// Ended within these, in Unix nanoseconds: from the first on, before the second; 0: no bound.
	FinishedFrom, FinishedTo int64
	Failed                   bool // with a task that ended without success

	// UpTo leaves out jobs that were submitted in a batch of a later revision; 0: no bound.
	UpTo uint64
	// Skip leaves out the jobs for which it is true; it may be nil. It must not change between the
	// pages of a list.
	Skip func(plimsoll.UID) bool

	Sort      Sort
	Ascending bool     // the smallest first; otherwise the greatest, so the newest
	After     Position // where the last page ended
	Limit     int      // jobs at most
	MaxBytes  int      // of heads, specifications and statuses; but for the first job of a page
	Heads     bool     // without specifications and statuses
}

// Position is a place between two jobs of a list. The zero value is the beginning.
type Position struct {
	UID      plimsoll.UID
	Finished int64  // with SortFinished
	ID       string // with SortID
}

// IsZero reports whether the position is the beginning of a list.
func (p Position) IsZero() bool { return p == Position{} }

// PositionOf returns the place behind a job in a list of an order.
func PositionOf(order Sort, h *Head) Position {
	p := Position{UID: h.UID}
	switch order {
	case SortFinished:
		p.Finished = h.Finished
	case SortID:
		p.ID = h.ID
	}
	return p
}

// Compare returns a negative number if p comes before o in an ascending list, and 0 if they are
// the same.
func (p Position) Compare(o Position) int {
	if p.Finished != o.Finished {
		if p.Finished < o.Finished {
			return -1
		}
		return 1
	}
	if c := strings.Compare(p.ID, o.ID); c != 0 {
		return c
	}
	return slices.Compare(p.UID[:], o.UID[:])
}

// Compare returns a negative number if a comes before b in a list of the query.
func (q *JobQuery) Compare(a, b Position) int {
	if q.Ascending {
		return a.Compare(b)
	}
	return b.Compare(a)
}

// Page is a part of a list, with the place where the next part begins.
type Page[T, P any] struct {
	Items   []T
	Next    P              // pass it as After
	More    bool           // the list may go on; without it, Items is the rest
	Partial bool           // the work for one page was done before the limit was reached
	Damaged []plimsoll.UID // of jobs of this part that cannot be read
}

// TaskQuery says which tasks are wanted.
type TaskQuery struct {
	UID      plimsoll.UID // of their job; zero: those of the jobs of Jobs
	Jobs     JobQuery     // its After, Limit, MaxBytes and Heads are not used
	Keys     []string     // one of these
	Results  []plimsoll.TaskResult
	Outcome  Outcome
	After    TaskPosition
	Limit    int // tasks at most
	MaxBytes int // of keys and records; but for the first task of a page
}

// Outcome selects tasks by their success.
type Outcome uint8

// The outcomes. A list with failed tasks first is one of Failed, then one of Succeeded.
const (
	AnyOutcome Outcome = iota
	Failed
	Succeeded

	numOutcomes
)

// TaskPosition is a place between two tasks of a list. The zero value is the beginning.
type TaskPosition struct {
	Job  Position
	Task int32 // tasks of that job that lie before the place
}

// Task is a task of the archive with its job.
type Task struct {
	Job plimsoll.UID
	TaskRecord
}

// Normalize checks a query and puts in the bounds that it leaves open.
func (q *JobQuery) Normalize() error {
	switch {
	case q.Sort >= numSorts:
		return plimsoll.Invalid("sort", "%d is unknown", q.Sort)
	case len(q.IDs) > MaxIDs:
		return plimsoll.Invalid("ids", "there are %d; give at most %d", len(q.IDs), MaxIDs)
	case len(q.Labels) > MaxLabels:
		return plimsoll.Invalid("labels", "there are %d; give at most %d", len(q.Labels), MaxLabels)
	case q.FinishedFrom < 0 || q.FinishedTo < 0:
		return plimsoll.Invalid("since", "is before 1970")
	}
	return bound(&q.Limit, &q.MaxBytes)
}

// Normalize checks a query and puts in the bounds that it leaves open.
func (q *TaskQuery) Normalize() error {
	if q.Outcome >= numOutcomes {
		return plimsoll.Invalid("outcome", "%d is unknown", q.Outcome)
	}
	if len(q.Keys) > MaxIDs {
		return plimsoll.Invalid("keys", "there are %d; give at most %d", len(q.Keys), MaxIDs)
	}
	if q.After.Task < 0 {
		return plimsoll.Invalid("after", "has the negative number of tasks %d", q.After.Task)
	}
	if err := q.Jobs.Normalize(); err != nil {
		return plimsoll.Within("jobs", err)
	}
	return bound(&q.Limit, &q.MaxBytes)
}

func bound(limit, bytes *int) error {
	if *limit < 0 || *limit > MaxLimit {
		return plimsoll.Invalid("limit", "%d is not possible; give 1 to %d", *limit, MaxLimit)
	}
	if *bytes < 0 || *bytes > MaxPageBytes {
		return plimsoll.Invalid("maxBytes", "%d is not possible; give 1 to %d", *bytes, MaxPageBytes)
	}
	if *limit == 0 {
		*limit = MaxLimit
	}
	if *bytes == 0 {
		*bytes = MaxPageBytes
	}
	return nil
}

// Matches reports whether a job meets the criteria, but for UpTo and Skip.
func (q *JobQuery) Matches(h *Head) bool {
	switch {
	case len(q.IDs) > 0 && !slices.Contains(q.IDs, h.ID),
		q.Owner != "" && q.Owner != h.Owner,
		q.Queue != "" && !Below(h.Queue, q.Queue),
		len(q.States) > 0 && !slices.Contains(q.States, h.State),
		len(q.Results) > 0 && !slices.Contains(q.Results, h.Result),
		q.FinishedFrom > 0 && h.Finished < q.FinishedFrom,
		q.FinishedTo > 0 && h.Finished >= q.FinishedTo,
		q.Failed && h.Failed == 0:
		return false
	}
	return !slices.ContainsFunc(q.Labels, func(l string) bool { return !hasLabel(h.Labels, l) })
}

// Below reports whether a queue is another one or below it.
func Below(queue, above string) bool {
	return strings.HasPrefix(queue, above) && (len(queue) == len(above) || queue[len(above)] == '.')
}

func hasLabel(labels map[string]string, wanted string) bool {
	key, value, withValue := strings.Cut(wanted, "=")
	have, ok := labels[key]
	return ok && (!withValue || have == value)
}

// Matches reports whether a task meets the criteria.
func (q *TaskQuery) Matches(r *TaskRecord) bool {
	return (q.Outcome == AnyOutcome || r.Failed() == (q.Outcome == Failed)) &&
		(len(q.Results) == 0 || slices.Contains(q.Results, r.Result)) &&
		(len(q.Keys) == 0 || slices.Contains(q.Keys, r.Key))
}

// Bytes returns how much of a page's MaxBytes a head takes.
func (h *Head) Bytes() int {
	n := 64 + len(h.ID) + len(h.Owner) + len(h.Queue)
	for k, v := range maps.All(h.Labels) {
		n += len(k) + len(v)
	}
	return n
}

// Bytes returns how much of a page's MaxBytes the task takes.
func (r *TaskRecord) Bytes() int { return 16 + len(r.Key) + len(r.Value) }

// Measure walks the records once: it sets Tasks and Failed, and Bytes need not walk them again.
func (j *Job) Measure() {
	j.Tasks, j.Failed, j.recordBytes = 0, 0, 0
	for r := range j.Records {
		j.Tasks++
		if r.Failed() {
			j.Failed++
		}
		j.recordBytes += r.Bytes()
	}
}

// Bytes returns how much of MaxWriteBytes the job takes. It walks the records if they are not
// measured.
func (j *Job) Bytes() int {
	n := j.Head.Bytes() + len(j.Spec) + len(j.Status)
	if j.recordBytes > 0 {
		return n + j.recordBytes
	}
	for r := range j.Records {
		n += r.Bytes()
	}
	return n
}
