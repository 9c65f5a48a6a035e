package plimsoll

// RequestCause is the reason of an event for a resource manager.
type RequestCause uint8

// The causes.
const (
	CauseNone      RequestCause = iota
	CauseNewJob                 // a job was taken in
	CauseAllocated              // a task got a node
	CauseQueueFull              // the queue of a waiting task, or one above it, has no room for it

	numRequestCauses
)

var requestCauseNames = [numRequestCauses]string{"", "new_job", "allocated", "queue_full"}

// Known reports whether this version has the cause.
func (c RequestCause) Known() bool { return c < numRequestCauses }

// String returns the cause's word, such as "queue_full"; empty for CauseNone.
func (c RequestCause) String() string { return wordOf(requestCauseNames[:], c) }

// RequestEvent is an event for the resource manager of a job (event design, "SHIM events"). It is
// sent to registered resource managers and to nobody else.
type RequestEvent struct {
	Cause RequestCause
	Owner string // of the job
	// Event is of the type REQUEST, with the change NONE and DETAILS_NONE. Object is the task; it
	// is empty with CauseNewJob. Reference is the job.
	Event Event
}
