package client

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Scope is the part of the jobs that a list looks at.
type Scope uint8

// The scopes. The numbers are those of the API.
const (
	ScopeActive Scope = iota + 1 // those in the active store; the default
	ScopeEnded                   // those that have ended, in the active store or the archive
	ScopeAll                     // all, in the active store or the archive
)

// JobSort is the order of a list of jobs.
type JobSort uint8

// The orders. Without one, a list is in the order of ids. With a pin, or with another scope than
// ScopeActive, it has the newest submit first.
const (
	SortSubmitted JobSort = iota + 1
	SortFinished
	SortID
)

// TaskSort is the order of a list of tasks.
type TaskSort uint8

// The orders. Without one, a list is in that of TaskSortID.
const (
	TaskSortID          TaskSort = iota + 1 // by job, group and index
	TaskSortFailedFirst                     // those that ended without success first
	TaskSortFinished                        // by the end of the last attempt; only in ScopeActive
)

// JobFilter chooses jobs. An empty field does not restrict. A watch takes IDs, Queue, Owner,
// Labels, States and Results; the rest is for lists.
type JobFilter struct {
	IDs     []string // one of these
	Queue   string   // this one, or below it
	Owner   string
	Labels  []string // all of these: key, or key=value
	States  []plimsoll.JobState
	Results []plimsoll.TaskResult
	Since   int64 // ended then or later, in Unix nanoseconds
	Until   int64 // ended before
	Scope   Scope

	Sort      JobSort
	Ascending bool     // the oldest, or the lowest id, first; it needs a Sort
	Fields    []string // of a status that are read, such as "state"; id and uid are always
	Count     bool     // count the jobs that the filter chooses
	// Pin asks the server to keep the state of the first page for the next ones, for a minute from
	// the last page. Such a list shows one instant.
	Pin bool
	// PageSize is the largest number of jobs for one request. 0: the server's bound.
	PageSize int32
}

// plain reports whether pages are found by the id of the last job, as servers before cursors do.
func (f *JobFilter) plain() bool { return f.Scope <= ScopeActive && f.Sort == 0 && !f.Pin }

func (f *JobFilter) request(consistency *pb.Consistency) *pb.ListJobsRequest {
	return &pb.ListJobsRequest{
		Ids: f.IDs, Queue: f.Queue, Owner: f.Owner, Labels: f.Labels, States: numbersOf[pb.JobState](f.States),
		Results: numbersOf[pb.TaskResult](f.Results), Since: f.Since, Until: f.Until, Scope: pb.Scope(f.Scope),
		Sort: pb.JobSort(f.Sort), Ascending: f.Ascending, Fields: f.Fields, Count: f.Count, Pin: f.Pin,
		Limit: f.PageSize, Consistency: consistency,
	}
}

// numbersOf converts values of an enumeration to those of the API, which have the same numbers.
func numbersOf[N ~int32, E ~uint8](values []E) []N {
	var numbers []N
	for _, v := range values {
		numbers = append(numbers, N(v))
	}
	return numbers
}

// JobPage is a part of a list of jobs.
type JobPage struct {
	Jobs []plimsoll.JobStatus
	// Next is where the next page begins; empty: there is none. It belongs to the same filter.
	Next string
	// Total is the number of all jobs that the filter chooses, if its Count is set.
	Total        int64
	TotalAtLeast bool // there may be more than Total
	// PinUntil is the time until which the state of a list with a pin is kept, in Unix nanoseconds.
	PinUntil int64
	// Damaged are the uids of jobs that belong to the page and that the archive cannot read.
	Damaged []string
}

// JobPage reads one page of the jobs that the filter chooses: the first, or the one that the page
// before calls Next.
func (c *Client) JobPage(ctx context.Context, filter JobFilter, next string) (JobPage, error) {
	req := filter.request(c.consistency(ctx))
	if filter.plain() {
		req.After = next
	} else {
		req.Cursor = next
	}
	res, err := call(ctx, c, c.jobs.ListJobs, req)
	if err != nil {
		return JobPage{}, err
	}
	page := JobPage{
		Next: res.GetNext(), Total: res.GetTotal(), TotalAtLeast: res.GetTotalAtLeast(), PinUntil: res.GetPinUntil(),
		Damaged: res.GetDamaged(),
	}
	for _, m := range res.GetJobs() {
		page.Jobs = append(page.Jobs, wire.JobStatusFromProto(m))
	}
	return page, nil
}

// Jobs reads the jobs that the filter chooses. It stops after the first error. If the archive
// cannot read some jobs, an error with their uids comes behind all others.
func (c *Client) Jobs(ctx context.Context, filter JobFilter) iter.Seq2[plimsoll.JobStatus, error] {
	return paged(func(next string) ([]plimsoll.JobStatus, string, []string, error) {
		page, err := c.JobPage(ctx, filter, next)
		filter.Count = false
		return page.Jobs, page.Next, page.Damaged, err
	})
}

// TaskFilter chooses tasks. An empty field does not restrict. A watch takes Job, Node, States,
// Results and ExitCodes; the rest is for lists.
type TaskFilter struct {
	Job       string
	JobUID    string // the lifetime of the job; empty: the newest
	Node      string // tasks that are on it now
	LastNode  string // tasks whose last attempt is or was on it, also when they have ended
	States    []plimsoll.TaskState
	Results   []plimsoll.TaskResult // of the last attempt that ended
	ExitCodes []int32               // of the last attempt that ended
	Owner     string                // of the job, as the next two
	Queue     string                // this one, or below it
	Labels    []string              // all of these: key, or key=value
	Since     int64                 // the last attempt ended then or later, in Unix nanoseconds
	Until     int64                 // the last attempt ended before
	Scope     Scope

	Sort      TaskSort
	Ascending bool     // with TaskSortFinished: the oldest first
	Fields    []string // that are read, such as "state"; job, group and index are always
	Count     bool     // count the tasks that the filter chooses
	Pin       bool     // as JobFilter.Pin
	JobUIDs   bool     // read the uids of the tasks' jobs too
	// PageSize is the largest number of tasks for one request. 0: the server's bound.
	PageSize int32
}

func (f *TaskFilter) plain() bool { return f.Scope <= ScopeActive && f.Sort == 0 && !f.Pin }

func (f *TaskFilter) request(consistency *pb.Consistency) *pb.ListTasksRequest {
	return &pb.ListTasksRequest{
		Job: f.Job, JobUid: f.JobUID, Node: f.Node, LastNode: f.LastNode, WithJobUids: f.JobUIDs,
		States: numbersOf[pb.TaskState](f.States), Results: numbersOf[pb.TaskResult](f.Results),
		ExitCodes: f.ExitCodes, Owner: f.Owner, Queue: f.Queue,
		Labels: f.Labels, Since: f.Since, Until: f.Until, Scope: pb.Scope(f.Scope), Sort: pb.TaskSort(f.Sort),
		Ascending: f.Ascending, Fields: f.Fields, Count: f.Count, Pin: f.Pin, Limit: f.PageSize,
		Consistency: consistency,
	}
}

// TaskPage is a part of a list of tasks. Its fields are as those of JobPage.
type TaskPage struct {
	Tasks        []plimsoll.Task
	Next         string
	Total        int64
	TotalAtLeast bool
	PinUntil     int64
	Damaged      []string // uids of jobs whose tasks cannot be read
	// JobUIDs are the uids of the tasks' jobs, in the order of Tasks, if TaskFilter.JobUIDs is set.
	// They are zero from a server that does not send them.
	JobUIDs []plimsoll.UID
}

// TaskPage reads one page of the tasks that the filter chooses, as JobPage does.
func (c *Client) TaskPage(ctx context.Context, filter TaskFilter, next string) (TaskPage, error) {
	req := filter.request(c.consistency(ctx))
	if filter.plain() {
		req.After = next
	} else {
		req.Cursor = next
	}
	res, err := call(ctx, c, c.jobs.ListTasks, req)
	if err != nil {
		return TaskPage{}, err
	}
	page := TaskPage{
		Next: res.GetNext(), Total: res.GetTotal(), TotalAtLeast: res.GetTotalAtLeast(), PinUntil: res.GetPinUntil(),
		Damaged: res.GetDamaged(),
	}
	for _, m := range res.GetTasks() {
		page.Tasks = append(page.Tasks, wire.TaskFromProto(m))
	}
	if filter.JobUIDs {
		page.JobUIDs = make([]plimsoll.UID, len(page.Tasks))
		for i, text := range res.GetJobUids()[:min(len(page.Tasks), len(res.GetJobUids()))] {
			page.JobUIDs[i] = wire.UIDFromText(text)
		}
	}
	return page, nil
}

// Tasks reads the tasks that the filter chooses, as Jobs does.
func (c *Client) Tasks(ctx context.Context, filter TaskFilter) iter.Seq2[plimsoll.Task, error] {
	return paged(func(next string) ([]plimsoll.Task, string, []string, error) {
		page, err := c.TaskPage(ctx, filter, next)
		filter.Count = false
		return page.Tasks, page.Next, page.Damaged, err
	})
}

// paged yields the elements of a list page by page. read returns the elements of a page, the cursor
// of the next one, and the uids of jobs that cannot be read.
func paged[T any](read func(next string) ([]T, string, []string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		var lost lostJobs
		for next := ""; ; {
			elements, following, damaged, err := read(next)
			if err != nil {
				yield(zero, err)
				return
			}
			lost.add(damaged)
			for _, e := range elements {
				if !yield(e, nil) {
					return
				}
			}
			if next = following; next == "" {
				break
			}
		}
		if err := lost.err(); err != nil {
			yield(zero, err)
		}
	}
}

// lostJobs counts the jobs that cannot be read, and keeps the first uids.
type lostJobs struct {
	count int
	first []string
}

// maxLost bounds the uids that an error names.
const maxLost = 5

func (l *lostJobs) add(uids []string) {
	l.count += len(uids)
	l.first = append(l.first, uids[:min(len(uids), maxLost-len(l.first))]...)
}

func (l *lostJobs) err() error {
	if l.count == 0 {
		return nil
	}
	more := ""
	if n := l.count - len(l.first); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return plimsoll.Errorf(plimsoll.CodeCorrupt,
		"the list lacks %d jobs that the archive cannot read: those with the uids %s%s; its other jobs are listed",
		l.count, strings.Join(l.first, ", "), more)
}
