// Package archive keeps jobs that have ended, with their tasks and attempts, for as long as they
// are wanted.
//
// A leader's Writer puts ended jobs into it before they leave the active store. A gateway's Reader
// answers questions about them. Both see encoded records and do not look inside them: what a
// question can ask for is given beside the records, in Head.
//
// Guarantees: when Write returns nil, its jobs survive a crash of the machine. A Write is in the
// archive whole or not at all, and one that is repeated changes nothing. There is one job for each
// uid. A leader that another one has replaced can change nothing. A page shows the archive at one
// instant; a job that is there while pages are read stands in exactly one of them.
//
// Every answer is bounded, in jobs and in bytes, and so is the work for it: a page may end before
// its limit and say so with Partial.
//
//	mark, err := w.Fence(ctx, epoch)
//	mark, err = w.Write(ctx, epoch, jobs, nil) // durable now
//
//	page, err := r.Jobs(ctx, archive.JobQuery{Owner: "ann", Limit: 100})
//	next, err := r.Jobs(ctx, archive.JobQuery{Owner: "ann", Limit: 100, After: page.Next})
//
// Implementations pass the suite in package archivetest.
package archive

import (
	"context"
	"iter"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Bounds of one Write.
const (
	MaxWriteJobs  = 512     // jobs
	MaxWriteBytes = 4 << 20 // bytes as Job.Bytes counts them; a job that is larger is written alone
)

// Mark says how far an archive has come.
type Mark struct {
	ID       string // of the archive, made with it
	Epoch    uint64 // of the leader that writes
	Sequence uint64 // Writes that changed something
	Jobs     int64
	Tasks    int64
	Bytes    int64 // of its jobs, tasks and attempts, with what the archive adds to find them
	Oldest   int64 // end of the job that ended first, in Unix nanoseconds; 0 without jobs
}

// Head has the facts about a job that questions can ask for.
type Head struct {
	UID      plimsoll.UID
	ID       string
	Owner    string
	Queue    string // full path
	Labels   map[string]string
	State    plimsoll.JobState
	Result   plimsoll.TaskResult
	Finished int64 // Unix nanoseconds
	Tasks    int32
	Failed   int32 // tasks that ended without success
}

// Good reports whether all went well in a job: Retention keeps it for Age.
func (h *Head) Good() bool {
	return h.State == plimsoll.JobCompleted && h.Result == plimsoll.ResultSucceeded && h.Failed == 0
}

// Job is a job that has ended. Its bytes are those of the active store. They are shared and never
// changed.
type Job struct {
	Head
	Spec    []byte
	Status  []byte
	Records iter.Seq[TaskRecord] // Head.Tasks of them, by group and index; may be walked again

	recordBytes int // of Records, as Bytes counts them; 0: not measured
}

// TaskRecord is a task of an ended job.
type TaskRecord struct {
	Key    string
	State  plimsoll.TaskState
	Result plimsoll.TaskResult
	Value  []byte // the encoded record
}

// Failed reports whether the task ended without success.
func (r *TaskRecord) Failed() bool { return r.Result != plimsoll.ResultSucceeded }

// Attempts are earlier attempts of a task, which no longer stand in its record. They come before
// their job has ended.
type Attempts struct {
	UID     plimsoll.UID
	TaskKey string
	First   int32 // number of the first attempt in Value
	Value   []byte
}

// Stored is a job of the archive.
type Stored struct {
	Head
	Spec   []byte // nil if the query asked for heads
	Status []byte // nil if the query asked for heads
}

// Retention says what Trim removes. Zero means no bound.
type Retention struct {
	Age       time.Duration // since the end of a job that is Good
	FailedAge time.Duration // since the end of any other job
	Jobs      int64         // in the archive; beyond it the oldest go, good ones first
	Bytes     int64         // as Mark.Bytes, without attempts of jobs that are not there; beyond it the same
}

// Writer changes an archive. One goroutine at a time calls it.
//
// Every call with an epoch fails with CodeStale once a later epoch has called Fence, and changes
// nothing then. CodeExhausted says that the disk is full, CodeUnavailable that the file cannot be
// written, CodeCorrupt that it is damaged; the same call can be made again when that is mended.
type Writer interface {
	// Fence makes epoch the one that writes. It can be repeated.
	Fence(ctx context.Context, epoch uint64) (Mark, error)
	// Accept is Fence for a store that is older than the archive, such as one from a backup. The
	// epoch may be lower than the last. The jobs that are there count as earlier than any revision
	// of that store: JobQuery.UpTo does not exclude them.
	Accept(ctx context.Context, epoch uint64) (Mark, error)
	// Write puts jobs and attempts into the archive. Jobs and attempts that are there, or whose uid
	// was deleted, are left out. It fails with CodeInvalid beyond the bounds of a Write, and for a
	// job that has not ended or has no uid.
	Write(ctx context.Context, epoch uint64, jobs []Job, attempts []Attempts) (Mark, error)
	// Delete removes jobs with all that belongs to them, and remembers at now, in Unix nanoseconds,
	// that they were deleted: a later Write leaves them out. Unknown uids are remembered too.
	Delete(ctx context.Context, epoch uint64, uids []plimsoll.UID, now int64) error
	// Trim removes at most most jobs that are beyond the retention at now, and fewer if they are
	// large. It forgets deleted uids after DeletedAge. more says that another call has work to do.
	Trim(ctx context.Context, epoch uint64, keep Retention, now int64, most int) (removed int, more bool, err error)
	// Check reads the whole archive and fails with CodeCorrupt if a part of it cannot be read. It
	// is slow. Other calls may be made meanwhile.
	Check(ctx context.Context) error
	// Close gives up the files. A second call does nothing.
	Close() error
}

// DeletedAge is how long a Writer remembers the uid of a deleted job.
const DeletedAge = 30 * 24 * time.Hour

// Reader answers questions about the jobs of an archive. Any number of goroutines call it. It
// sees each Write as soon as that has returned.
//
// CodeUnavailable says that the archive cannot be read now, or is not there yet: the answer is not
// known. CodeCorrupt names what is damaged. CodeStale says that another archive has taken the place
// of the one that Mark told of, so the answer is not known either; it ends with another Mark.
type Reader interface {
	// Mark returns how far the archive has come.
	Mark(ctx context.Context) (Mark, error)
	// Job returns the job with a uid, or with a zero uid the newest of an id. With both, the id
	// must be that of the uid. It fails with CodeNotFound.
	Job(ctx context.Context, id string, uid plimsoll.UID) (Stored, error)
	// Jobs returns a page of jobs.
	Jobs(ctx context.Context, q JobQuery) (Page[Stored, Position], error)
	// Tasks returns a page of the tasks of one job, or of the jobs of a query.
	Tasks(ctx context.Context, q TaskQuery) (Page[Task, TaskPosition], error)
	// Attempts returns the earlier attempts of a task in the order of their numbers, from the chunk
	// with the number after on. At most MaxPageBytes, and at least one chunk if there is one.
	Attempts(ctx context.Context, uid plimsoll.UID, taskKey string, after int32) ([]Attempts, error)
	// Count counts the jobs of a query up to most. It is exact unless there may be more.
	Count(ctx context.Context, q JobQuery, most int) (n int64, exact bool, err error)
	// Close gives up the files and waits for calls under way. A second call does nothing.
	Close() error
}

// CheckWrite returns a CodeInvalid error for jobs and attempts that no Write takes.
func CheckWrite(jobs []Job, attempts []Attempts) error {
	if len(jobs) > MaxWriteJobs {
		return plimsoll.Invalid("jobs", "there are %d; write at most %d at once", len(jobs), MaxWriteJobs)
	}
	bytes := 0
	for i := range jobs {
		j := &jobs[i]
		switch {
		case j.UID.IsZero() || j.UID.Submitted() < 0:
			return plimsoll.Invalid("uid", "job %s has none, or one of a time before 1970", j.ID)
		case !j.State.Ended():
			return plimsoll.Invalid("state", "job %s is %s; only a job that has ended is archived", j.ID, j.State)
		case j.Finished <= 0:
			return plimsoll.Invalid("finished", "job %s has no time of its end", j.ID)
		}
		bytes += j.Bytes()
	}
	for i := range attempts {
		bytes += len(attempts[i].TaskKey) + len(attempts[i].Value)
	}
	if bytes > MaxWriteBytes && len(jobs)+len(attempts) > 1 {
		return plimsoll.Invalid(
			"jobs", "%d jobs and %d attempts have %d bytes; write at most %d at once, or one alone", len(jobs),
			len(attempts), bytes, MaxWriteBytes,
		)
	}
	return nil
}

// CheckTasks returns a CodeInvalid error if a job's records are not what its head says.
func CheckTasks(h *Head, tasks, failed int32) error {
	if tasks != h.Tasks || failed != h.Failed {
		return plimsoll.Invalid(
			"tasks", "job %s has %d tasks of which %d failed, and its head says %d and %d", h.UID, tasks, failed,
			h.Tasks, h.Failed,
		)
	}
	return nil
}
