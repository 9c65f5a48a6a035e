package state

import "github.com/plimsoll-dev/plimsoll"

// Totals are counts over all jobs and tasks of the state, for metrics. Those by state and result
// stand at the number of the state or result.
type Totals struct {
	Jobs  [plimsoll.NumJobStates]int64
	Tasks [plimsoll.NumTaskStates]int64
	Ends  [plimsoll.NumTaskResults]uint64 // attempts that have ended since the load

	// AttemptsDropped are attempts that were dropped since the load before the archive had them.
	AttemptsDropped uint64

	ToArchive       int64 // ended jobs that wait for the archive
	OldestToArchive int64 // end of the first of them, in Unix nanoseconds; 0: none waits
}

// Totals returns the counts as they are now.
func (s *State) Totals() Totals {
	t := s.totals
	if a := &s.archiving; a.jobs > 0 {
		t.ToArchive, t.OldestToArchive = int64(a.jobs), (*a.waiting.front()).Finished
	}
	return t
}

// countJob counts n jobs more in a state. A new row has the state 0, which is not counted.
func (s *State) countJob(state plimsoll.JobState, n int64) {
	if state != 0 {
		s.totals.Jobs[state] += n
	}
}

// countTask counts n tasks more in a state.
func (s *State) countTask(state plimsoll.TaskState, n int64) { s.totals.Tasks[state] += n }
