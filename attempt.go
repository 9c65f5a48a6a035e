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

// Bounds on Task.Attempts. The oldest attempt gives way to a new one.
const (
	MaxAttempts       = 16
	MaxAttemptMessage = 128 // bytes
)

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
