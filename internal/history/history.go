// Package history keeps all events for as long as they are wanted, and answers questions about
// them.
//
// The historian role follows a gateway's events, folds them (package fold) and gives them to a
// Writer in batches. A Reader answers questions: timelines, usage, waits, the state of the cluster
// at an instant.
//
// Guarantees: when Write returns nil, its events survive a crash of the machine. A Write is in the
// history whole or not at all; one that is repeated changes nothing. Losses are known: each
// range of ids that could not be read is a Gap, and Status says since when the history knows. A
// Writer and its Readers see one order of events, the one of their ids.
//
// Every answer is bounded, in rows and in bytes.
//
// Implementations pass the suite in package historytest.
package history

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Bounds of one Write.
const (
	MaxWriteEvents = 10_000  // events
	MaxWriteBytes  = 4 << 20 // bytes of all parts of a Batch, without its checkpoint
)

// Position is the place in the sequence of events behind which a history goes on.
type Position struct {
	Instance string // InstanceUUID that Next counts in; empty: the history has no events yet
	Next     uint64 // id of the next event
}

// Gap is a range of events that the history does not have.
type Gap struct {
	Instance    string
	First, Next uint64 // ids from First to Next-1; both 0: it is not known how many
	From, To    int64  // Unix nanoseconds: last event before it, first event behind it
	Reason      string // one sentence
}

// Kind is the kind of object that an index entry is about.
type Kind uint8

// The kinds. Events of a task are found by its job.
const (
	KindJob Kind = iota + 1
	KindNode
	KindQueue
)

// Object names an object that a batch has events of.
type Object struct {
	Kind Kind
	ID   string // of a job: its id; of a queue: its path
	Life int64  // of a job: Job.Life; 0 for another object, and for a job without one, as a refused one
}

// Job is one life of a job id.
type Job struct {
	Life      int64 // number that the fold gives: one for each job that is taken in, from 1 on
	ID        string
	UID       plimsoll.UID      // zero if it is not known
	Owner     string            // empty if it is not known
	Queue     string            // full path
	Labels    map[string]string // nil if they are not known
	State     plimsoll.ChangeDetail
	Submitted int64 // Unix nanoseconds
	Ended     int64 // Unix nanoseconds; 0: it has not
}

// Group names those to whom usage is counted together.
type Group struct {
	Life   int64 // Job.Life
	Owner  string
	Queue  string
	Labels string // EncodeLabels of Job.Labels
}

// Sums has the use of resources by a group in an hour, and counts of its tasks.
type Sums struct {
	Used    map[string]Amount // by the name of the resource: units times nanoseconds
	Waits   Waits             // from APP_REQUEST to APP_ALLOC, counted in the hour in which the wait ends
	Started uint64            // allocations that began in the hour
	Ended   uint64            // tasks that ended for good in the hour
	Failed  uint64            // those of them that did not succeed
}

// Rollup is the part of a batch in the sums of a group in an hour.
type Rollup struct {
	Hour  int64 // Unix seconds of its beginning, a multiple of 3600
	Group Group
	Sums  Sums
}

// Batch is a run of events with consecutive ids, and the facts that follow from them. A batch
// behind a Gap has a Fold: the state before the gap does not lead to the one behind it. A life of a
// job begins with the event for which Begins reports true.
type Batch struct {
	Instance  string
	First     uint64   // id of the first event
	Count     uint64   // of events; at least 1
	From, To  int64    // times of the first and the last event, Unix nanoseconds
	Data      []byte   // the events as a chunk of package ring
	Objects   []Object // those of function Objects, each once, jobs with their lives
	Jobs      []Job    // lives that began or changed, as they are behind the batch
	Rollups   []Rollup
	Gap       *Gap   // what is missing before First; nil: nothing
	Fold      []byte // the fold's state behind the batch, to answer At and to go on; nil: not this time
	FoldBytes int    // of memory that the fold takes, for the metrics
}

// Retention says what Trim removes. Zero means no bound. The batch of the newest Fold and those
// behind it stay, because Resume needs them. Until there is a Fold, all stays.
type Retention struct {
	Age   time.Duration // of batches of events, since their last one happened; their rollups stay
	Usage time.Duration // of rollups, and of jobs that have ended unless events of that time are kept
	Bytes int64         // of the history; beyond it the oldest events go
}

// Status says what a history has.
type Status struct {
	Position
	Since  int64  // Unix nanoseconds: what happened before is not known; 0 if there are no events
	Newest int64  // time of the newest event, Unix nanoseconds
	Oldest int64  // time of the oldest event that is kept; events of the time since Since may be trimmed
	Events uint64 // that are kept
	Jobs   uint64 // lives that are kept
	Bytes  int64
	Gaps   []Gap // the newest MaxGaps, oldest first
}

// MaxGaps bounds the gaps of Status. A Writer joins the oldest two when there are more.
const MaxGaps = 1000

// Writer changes a history. One goroutine at a time calls it.
//
// CodeExhausted says that the disk is full, CodeUnavailable that the file cannot be written,
// CodeCorrupt that it is damaged; the same call can be made again when that is mended.
type Writer interface {
	// Name returns the name that the history got when it was made, and has ever since. No other
	// one has it, but for copies.
	Name(ctx context.Context) (string, error)
	// Position returns where to go on.
	Position(ctx context.Context) (Position, error)
	// Resume returns the fold's newest state with the position behind it, and replay calls fn for
	// each batch behind that, in order. Without a fold it is nil, and replay begins at the first
	// event.
	Resume(ctx context.Context) (fold []byte, behind Position, replay func(fn func(Events) error) error, err error)
	// Write puts a batch into the history. One that is there already changes nothing. It fails
	// with CodeInvalid for a batch that Check refuses, and for one that does not begin at the
	// position although it has no Gap.
	Write(ctx context.Context, b *Batch) error
	// Trim removes what is beyond the retention at now, Unix nanoseconds, in a bounded step. more
	// says that another call has work to do.
	Trim(ctx context.Context, keep Retention, now int64) (more bool, err error)
	// Close gives up the files. A second call does nothing.
	Close() error
}

// Events is a stored run of events.
type Events struct {
	Instance string
	First    uint64
	Count    uint64
	From, To int64
	Data     []byte // a chunk of package ring
}

// TimelineQuery asks for events of an object, or of all objects.
type TimelineQuery struct {
	Object Object // zero: all. A job without Life: all lives of its id
	Task   string // id of a task: only its events; Object is its job then
	From   int64  // Unix nanoseconds; 0: no bound
	Until  int64  // Unix nanoseconds, exclusive; 0: no bound
	After  Cursor // of the page before
	Limit  int    // at most MaxPage; 0: MaxPage
}

// Cursor is the place behind an event, in the order of the history. The zero value is the
// beginning. Its fields belong to the implementation.
type Cursor struct {
	Chunk int64
	ID    uint64
}

// MaxPage bounds the rows of a page.
const MaxPage = 10_000

// MaxPageBytes bounds a page in bytes as its rows are encoded.
const MaxPageBytes = 4 << 20

// Record is an event of a timeline.
type Record struct {
	Instance string
	ID       uint64
	Event    plimsoll.Event
}

// Page is an answer in parts.
type Page[T any] struct {
	Rows []T
	Next Cursor // of the next page; zero: there is none
}

// Dimension is a fact by which sums are grouped.
type Dimension string

// The dimensions. A label is LabelPrefix and its key.
const (
	ByOwner Dimension = "owner"
	ByQueue Dimension = "queue"
	ByJob   Dimension = "job" // one row for each life
	ByHour  Dimension = "hour"
	ByDay   Dimension = "day"

	LabelPrefix = "label:"
)

// UsageQuery asks for sums of the hours that begin at From or later, and before Until. With ByJob,
// and with Job, the facts are those of the jobs as they are known now. Otherwise they are those
// with which the use was written.
type UsageQuery struct {
	From, Until int64 // Unix seconds; Until 0: no bound
	By          []Dimension
	Zone        *time.Location // for ByDay; nil: UTC
	Owner       string         // only of this owner
	Queue       string         // only of this queue and those below it
	Job         string         // only of this job id
	Labels      map[string]string
	Limit       int // of rows, the largest use of CPU first; at most MaxPage
}

// UsageRow is one row of an answer. Keys are in the order of UsageQuery.By. That of ByJob is a
// plimsoll.LifetimeName, of ByHour the time in UTC as 2006-01-02T15:00Z, of ByDay 2006-01-02. That
// of a label is its value, and empty for jobs without the label.
type UsageRow struct {
	Keys []string
	Sums
}

// JobQuery asks for lives of jobs, the newest first.
type JobQuery struct {
	ID          string // of this id
	Owner       string
	Queue       string // this and those below it
	Labels      map[string]string
	From, Until int64  // that were alive in this time, Unix nanoseconds; 0: no bound
	After       Cursor // of the page before
	Limit       int
}

// Reader answers questions. Any number of goroutines call it. It sees each Write as soon as that
// has returned. CodeUnavailable says that the history cannot be read now, CodeCorrupt names what is
// damaged, CodeNotFound that it knows no such object or time.
type Reader interface {
	Status(ctx context.Context) (Status, error)
	// Timeline returns a page of events in their order.
	Timeline(ctx context.Context, q TimelineQuery) (Page[Record], error)
	// Usage returns sums. It fails with CodeExhausted if there are more than MaxPage groups; more
	// reports that Limit left rows out.
	Usage(ctx context.Context, q UsageQuery) (rows []UsageRow, more bool, err error)
	// Jobs returns a page of lives of jobs.
	Jobs(ctx context.Context, q JobQuery) (Page[Job], error)
	// At returns the fold's newest state that is not behind t, in Unix nanoseconds. replay calls
	// fn for each run of events from there up to the first event behind t. The last run may go on
	// behind that. Without a fold, replay begins at the first event of all, before which nothing
	// was. It fails with CodeNotFound for a time before the history, or in a gap.
	At(ctx context.Context, t int64) (fold []byte, replay func(fn func(Events) error) error, err error)
	// Close gives up the files and waits for calls under way. A second call does nothing.
	Close() error
}
