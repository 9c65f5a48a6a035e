package state

import "github.com/plimsoll-dev/plimsoll"

// SetShortage sets why the disk of the store has no room for more records; empty if it has room.
func (s *State) SetShortage(why string) { s.shortage = why }

// checkDisk refuses commands of users that add records while the disk has no room: jobs, more tasks
// of a job, policies, queues. Kills, reports, nodes and their modes, and the expiry of jobs go on.
func (s *State) checkDisk() error {
	if s.shortage != "" {
		return plimsoll.Errorf(plimsoll.CodeExhausted, "%s", s.shortage)
	}
	return nil
}
