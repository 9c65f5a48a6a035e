package plimsoll

// Attempt is an attempt of a task. Times are Unix nanoseconds, and 0 for a state that it has
// skipped or not reached.
type Attempt struct {
	Number   int32 // from 1
	Node     string
	Result   TaskResult // ResultNone if it has not ended
	ExitCode int32      // as Task.ExitCode
	Message  string     // details of the result, for people
	Pending  int64      // the time from which the task waited for this attempt
	Bound    int64
	Starting int64
	Started  int64
	Stopping int64
	Finished int64
}

// Bounds on Task.Attempts.
const (
	// MaxAttempts is the number of attempts that a record keeps. Without an archive the oldest one
	// gives way to a new one.
	MaxAttempts = 16
	// AttemptChunk is the number of attempts that leave a record together. With an archive the
	// oldest ones leave it once the archive has them, and MaxAttempts stay.
	AttemptChunk      = 8
	MaxAttemptMessage = 128 // bytes
)

// Surplus returns the oldest attempts, which the record keeps only until the archive has them. They
// are whole chunks. Each record of a task counts its chunks from the same attempt, so a chunk has
// the same attempts whenever it is taken.
func (t *Task) Surplus() []Attempt {
	n := max(0, len(t.Attempts)-MaxAttempts)
	return t.Attempts[:n-n%AttemptChunk]
}

// Present returns the present attempt of a task, or its last one. ok is false if there was none, or
// if the attempt stands in Attempts.
func (t *Task) Present() (a Attempt, ok bool) {
	pending := t.Created
	if n := len(t.Attempts); n > 0 {
		last := &t.Attempts[n-1]
		if pending = last.Finished; last.Number == t.Attempt {
			return Attempt{}, false
		}
	}
	if t.Attempt == 0 {
		return Attempt{}, false
	}
	a = Attempt{
		Number: t.Attempt, Node: t.Node, Pending: pending, Bound: t.Bound, Starting: t.Starting, Started: t.Started,
		Stopping: t.Stopping,
	}
	if !t.State.OnNode() { // until then the result is the one that a stop asks for
		a.Result, a.ExitCode, a.Message, a.Finished = t.Result, t.ExitCode, t.Message, t.Finished
	}
	return a, true
}

// AllAttempts returns the attempts that the record holds, the oldest first, with the present one.
// The number of the first is above 1 if earlier ones are no longer held.
func (t *Task) AllAttempts() []Attempt {
	all := t.Attempts[:len(t.Attempts):len(t.Attempts)]
	if present, ok := t.Present(); ok {
		all = append(all, present)
	}
	return all
}
