package state

import (
	"fmt"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// A job that can be read and is refused for good is kept as Rejected, with the reason. It has no
// row among the jobs: it is in no queue, has no tasks, and goes to no archive. A further submit
// with its id takes its place, whether that is taken in or refused.

// Bounds of the rejected jobs. Beyond them the oldest are forgotten at the next turn.
const (
	maxRejected      = 1000
	maxRejectedBytes = 16 << 20 // bytes of memory
)

// rejectedJob is a job that was refused. Its record is never changed.
type rejectedJob struct {
	spec   *plimsoll.JobSpec
	status plimsoll.JobStatus
	memory int
}

// rejectedJobs are the rejected jobs.
type rejectedJobs struct {
	byID map[string]*rejectedJob
	// order holds the rejected jobs, the oldest first. Entries that are not in byID are stale.
	order  fifo[*rejectedJob]
	memory int // sum over byID
}

// keepsRefusal reports whether a refused job is kept as Rejected. A refusal that may pass by itself
// is not: the caller tries again, and each time would put another job out of the list.
func (s *State) keepsRefusal(spec *plimsoll.JobSpec, in *intake, err error) bool {
	return in.readable && Lasting(err) && s.checkSpecBytes(spec, in.bytes) == nil
}

// reject keeps a refused job, in the place of an earlier one with its id.
func (s *State) reject(spec *plimsoll.JobSpec, in *intake, why error) {
	s.takeRejected(spec.ID)
	s.lastSubmitted = max(s.at, s.lastSubmitted+1)
	r := &rejectedJob{spec: spec, status: plimsoll.JobStatus{
		ID: spec.ID, Owner: spec.Owner, Queue: spec.Queue, State: plimsoll.JobRejected, Reason: cut(why.Error()),
		Submitted: s.lastSubmitted, Finished: s.lastSubmitted, Revision: s.revision,
		UID: plimsoll.MakeUID(s.lastSubmitted, s.revision), Groups: make([]plimsoll.GroupStatus, len(spec.Groups)),
	}}
	for i := range spec.Groups {
		r.status.Groups[i] = plimsoll.GroupStatus{Name: spec.Groups[i].Name, Count: spec.Groups[i].Count}
	}
	s.addRejected(r, in.bytes)
	s.dirty.rejected = append(s.dirty.rejected, r)
	s.dirty.bytes += in.bytes + rejectedBytes(r)
	s.emit(plimsoll.Event{
		Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Object: r.spec.ID,
		Head: headOf(r.status.UID, r.spec),
	})
	s.emit(plimsoll.Event{
		Type: plimsoll.EventApp, Change: plimsoll.ChangeRemove, Detail: plimsoll.AppReject, Object: r.spec.ID,
		Message: r.status.Reason,
	})
}

// rejectedBytes bounds the status of a rejected job in a batch.
func rejectedBytes(r *rejectedJob) int {
	sum := size.JobStatus(r.status.ID, r.status.Owner, r.status.Queue, r.status.Reason, "")
	for i := range r.status.Groups {
		sum += size.GroupStatus(r.status.Groups[i].Name, &plimsoll.WaitCause{})
	}
	return sum
}

// addRejected adds a row. encoded is the size of its specification in a batch.
func (s *State) addRejected(r *rejectedJob, encoded int) {
	r.memory = memoryOf(r.spec, encoded) + rejectedBytes(r)
	s.rejected.byID[r.spec.ID] = r
	s.rejected.order.push(r)
	s.rejected.memory += r.memory
	s.countJob(plimsoll.JobRejected, 1)
}

// takeRejected takes the rejected job with an id out of the table, if there is one. Its records are
// still to be deleted or replaced.
func (s *State) takeRejected(id string) {
	r := s.rejected.byID[id]
	if r == nil {
		return
	}
	delete(s.rejected.byID, id)
	s.rejected.memory -= r.memory
	s.countJob(plimsoll.JobRejected, -1)
	for order := &s.rejected.order; order.len() > 0; order.pop() {
		if oldest := *order.front(); s.rejected.byID[oldest.spec.ID] == oldest {
			break
		}
	}
	if order := &s.rejected.order; order.len() > 2*maxRejected { // most are stale
		order.items = slices.DeleteFunc(slices.Clone(order.items[order.head:]), func(r *rejectedJob) bool {
			return s.rejected.byID[r.spec.ID] != r
		})
		order.head = 0
	}
}

// dropRejected deletes a rejected job. Its end was told when it was refused.
func (s *State) dropRejected(id string) {
	s.takeRejected(id)
	s.dirty.deletedJobs = append(s.dirty.deletedJobs, id)
	s.dirty.bytes += 2 * len(id)
}

// tooManyRejected reports whether the oldest rejected job is to be forgotten.
func (s *State) tooManyRejected() bool {
	return len(s.rejected.byID) > maxRejected || s.rejected.memory > maxRejectedBytes
}

// forgetRejected forgets the oldest rejected jobs beyond the bounds, as far as the budget goes.
func (s *State) forgetRejected(budget Budget) {
	for s.tooManyRejected() && !s.Over(budget) {
		s.dropRejected((*s.rejected.order.front()).spec.ID)
	}
}

// deleteRejected deletes the rejected job with an id. A zero uid stands for any. known is false if
// there is none.
func (s *State) deleteRejected(id string, uid plimsoll.UID) (known bool) {
	r := s.rejected.byID[id]
	if r == nil || !uid.IsZero() && uid != r.status.UID {
		return false
	}
	s.dropRejected(id)
	return true
}

// takeRejectedRecords hands out the jobs that the turn has rejected and that are still there.
func (s *State) takeRejectedRecords(c *Changes) {
	for _, r := range s.dirty.rejected {
		if s.rejected.byID[r.spec.ID] == r {
			c.JobSpecs = append(c.JobSpecs, r.spec)
			c.JobStatuses = append(c.JobStatuses, Status{r.status, false})
		}
	}
}

// allRejected yields the rejected jobs in the order of their ids.
func (s *State) allRejected() []*rejectedJob {
	list := make([]*rejectedJob, 0, len(s.rejected.byID))
	for _, id := range slices.Sorted(maps.Keys(s.rejected.byID)) {
		list = append(list, s.rejected.byID[id])
	}
	return list
}

// loadRejected takes over the records of a rejected job. The jobs come in the order of their
// submits.
func (s *State) loadRejected(spec *plimsoll.JobSpec, st *plimsoll.JobStatus) error {
	if spec == nil {
		return corrupt("the status of job %q but not its specification", st.ID)
	}
	if s.jobs[st.ID] != nil || s.rejected.byID[st.ID] != nil {
		return corrupt("the status of job %q twice", st.ID)
	}
	s.addRejected(&rejectedJob{spec: spec, status: *st}, specBytes(spec))
	s.lastSubmitted = max(s.lastSubmitted, st.Submitted)
	return nil
}

// checkRejected compares the sums of the rejected jobs with the rows.
func (s *State) checkRejected() error {
	memory := 0
	ordered := map[*rejectedJob]bool{}
	for _, r := range s.rejected.order.items[s.rejected.order.head:] {
		ordered[r] = true
	}
	for _, r := range s.allRejected() {
		memory += r.memory
		if !ordered[r] || s.jobs[r.spec.ID] != nil {
			return fmt.Errorf("job %s: is rejected, and will never be forgotten or is there too", r.spec.ID)
		}
	}
	if memory != s.rejected.memory || s.totals.Jobs[plimsoll.JobRejected] != int64(len(s.rejected.byID)) {
		return fmt.Errorf("%d rejected jobs take %d bytes, but %d and %d are counted", len(s.rejected.byID), memory,
			s.totals.Jobs[plimsoll.JobRejected], s.rejected.memory)
	}
	return nil
}
