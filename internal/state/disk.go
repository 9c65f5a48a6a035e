package state

import "github.com/plimsoll-dev/plimsoll"

// SetShortage says that the disk of the store has no room for more state, and why; empty: it has.
func (s *State) SetShortage(why string) { s.shortage = why }

// checkDisk refuses what makes the stored state larger because a user wants it so: jobs, more tasks
// of a job, policies, queues. What makes it smaller or follows from what is there goes on: kills,
// reports, nodes and their modes, jobs that expire.
func (s *State) checkDisk() error {
	if s.shortage != "" {
		return plimsoll.Errorf(plimsoll.CodeExhausted, "%s", s.shortage)
	}
	return nil
}
