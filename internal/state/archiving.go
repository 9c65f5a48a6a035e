package state

import (
	"fmt"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// A job that has ended waits for the archive until Archived names it. Then it is givable: it is
// kept for a while, so that readers without the archive see its end, and then forgotten. Without an
// archive a job is givable from its end on. A job that is not givable is never forgotten.

// archiving holds the jobs that have ended and are not being forgotten.
type archiving struct {
	// waiting holds the jobs that wait for the archive, in the order of their ends. Entries of
	// other jobs are stale.
	waiting fifo[*Job]
	jobs    int   // number of jobs that wait for the archive
	usage   usage // of these jobs, as it was when they began to wait; an ended job does not change
	// kept holds the givable jobs, in the order of keptUntil. Entries of other jobs are stale.
	kept fifo[*Job]
	// dropping holds the givable jobs that are forgotten next: they were deleted or replaced.
	dropping fifo[*Job]
	status   plimsoll.ArchiveStatus
}

// JobName names one lifetime of a job's id.
type JobName struct {
	ID  string
	UID plimsoll.UID
}

// gone reports whether the job is about to disappear, so that its id can be used again.
func (j *Job) gone() bool { return j.forgetting || j.dropping || j.deleted }

// noteEnd puts a job that has ended behind the others.
func (s *State) noteEnd(j *Job) {
	if s.cfg.Archive {
		s.awaitArchive(j)
		return
	}
	j.givable = true
	s.countUsage(j)
	if j.deleted {
		s.drop(j)
		return
	}
	s.keep(j, later(j.Finished, s.cfg.KeepEnded))
}

// awaitArchive lets a job wait until the archive has taken it, or has deleted it.
func (s *State) awaitArchive(j *Job) {
	a := &s.archiving
	j.givable = false
	s.countUsage(j)
	a.waiting.push(j)
	a.jobs++
	a.usage.add(j.usage, 1)
}

// keep keeps a givable job until a time.
func (s *State) keep(j *Job, until int64) {
	j.keptUntil = until
	s.archiving.kept.push(j)
}

// drop lets Forget delete a givable job next.
func (s *State) drop(j *Job) {
	if !j.dropping {
		j.dropping = true
		s.archiving.dropping.push(j)
	}
}

// waits reports whether a job waits for the archive.
func (j *Job) waits() bool { return j.State.Ended() && !j.givable && !j.forgetting }

// Archived notes that the archive holds the written jobs, and that it has deleted the deleted ones
// and will not take them any more. It can be repeated: jobs that do not wait are left alone.
func (s *State) Archived(id string, sequence uint64, written, deleted []JobName) {
	for _, name := range written {
		if j := s.awaits(name); j != nil && !j.deleted {
			s.leaveWaiting(j)
			s.keep(j, later(s.at, s.cfg.KeepEnded))
		}
	}
	for _, name := range deleted {
		if j := s.awaits(name); j != nil && j.deleted {
			s.leaveWaiting(j)
			s.drop(j)
		}
	}
	st := &s.archiving.status
	if st.ID != id || st.Sequence < sequence {
		st.ID, st.Sequence = id, sequence
		s.markArchive()
	}
}

// AcceptArchive makes an archive the one that the store needs, although it may lack jobs.
func (s *State) AcceptArchive(id string, sequence uint64) {
	s.archiving.status.ID, s.archiving.status.Sequence = id, sequence
	s.markArchive()
}

// awaits returns the job of a name if it waits for the archive, and nil otherwise.
func (s *State) awaits(name JobName) *Job {
	if j := s.jobs[name.ID]; j != nil && j.UID == name.UID && j.waits() {
		return j
	}
	return nil
}

// leaveWaiting makes a job givable that has waited for the archive.
func (s *State) leaveWaiting(j *Job) {
	a := &s.archiving
	a.jobs--
	a.usage.add(j.usage, -1)
	j.givable = true
	s.countUsage(j)
	for a.waiting.len() > 0 && !(*a.waiting.front()).waits() {
		a.waiting.pop()
	}
}

// ArchiveTrouble sets why the archive takes no jobs; empty if it takes them.
func (s *State) ArchiveTrouble(why string) {
	if st := &s.archiving.status; st.Trouble != cut(why) {
		st.Trouble = cut(why)
		s.markArchive()
	}
}

func (s *State) markArchive() {
	s.dirty.archive = true
	s.dirty.bytes += size.Of(&s.archiving.status)
}

// loadArchive sets the stored status of the archive, and the mode of this leader. The trouble was
// that of an earlier leader.
func (s *State) loadArchive(stored plimsoll.ArchiveStatus) {
	st := &s.archiving.status
	*st = stored
	switch {
	case s.cfg.Archive:
		st.Mode = plimsoll.ArchiveKept
	case st.Mode != 0:
		st.Mode = plimsoll.ArchiveNone
	}
	if st.Trouble = ""; *st != stored {
		s.markArchive()
	}
}

// DeleteJob deletes a job that has ended. With an archive it only marks the job, which is forgotten
// once the archive has deleted it too. A zero uid stands for the present lifetime of the id.
// CodeNotFound says that the state does not know the job; the archive may know it.
func (s *State) DeleteJob(id string, uid plimsoll.UID) error {
	if s.deleteRejected(id, uid) {
		return nil
	}
	j := s.jobs[id]
	if j == nil || j.forgetting || !uid.IsZero() && uid != j.UID {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no job %q", id)
	}
	if !j.State.Ended() {
		return plimsoll.Errorf(plimsoll.CodeConflict, "job %q has not ended (%s); kill it first", id, j.State)
	}
	if j.deleted {
		return nil
	}
	if j.dropping { // it was replaced, and readers see it until it is forgotten
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "job %q is being forgotten; try again", id)
	}
	j.deleted = true
	s.markStatus(j, true)
	switch {
	case !s.cfg.Archive:
		s.drop(j)
	case j.givable:
		s.awaitArchive(j)
	}
	return nil
}

// giveWay returns why the id of an earlier job cannot be used. With replace, a job that has ended
// begins to make room for a new one.
func (s *State) giveWay(old *Job, replace bool) error {
	id, trouble := old.Spec.ID, s.archiving.status.Trouble
	switch {
	case old.gone() && (!old.waits() || trouble == ""):
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "an earlier job %q is being forgotten; try again", id)
	case old.gone() || replace && old.waits() && trouble != "":
		return plimsoll.Errorf(
			plimsoll.CodeUnavailable, "an earlier job %q waits for the archive (%s); try again", id, trouble,
		)
	case replace && old.waits():
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "an earlier job %q is going to the archive; try again", id)
	case replace && old.givable:
		s.drop(old)
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "an earlier job %q is being forgotten; try again", id)
	case replace:
		return &plimsoll.Error{Code: plimsoll.CodeAlreadyExists, Field: "job", Msg: fmt.Sprintf(
			"%q has not ended (%s); wait for its end or kill it, or choose another id", id, old.State)}
	}
	return &plimsoll.Error{Code: plimsoll.CodeAlreadyExists, Field: "job", Msg: fmt.Sprintf(
		"%q already exists (%s); choose another id", id, old.State)}
}

// MaxToArchive returns how many ended jobs may wait for the archive before submits are refused.
func (s *State) MaxToArchive() int { return s.cfg.MaxToArchive }

// checkArchive refuses submits while too many jobs wait for the archive. While it has trouble, half
// of the tasks or bytes that all jobs may have is too much too.
func (s *State) checkArchive() error {
	a := &s.archiving
	why := a.status.Trouble
	full := a.jobs >= s.cfg.MaxToArchive
	if why != "" {
		tasks, bytes := s.cfg.MaxTasks, s.cfg.MaxBytes
		full = full || tasks > 0 && a.usage.tasks >= tasks/endedShare || bytes > 0 && a.usage.bytes >= bytes/endedShare
	}
	if !full || a.jobs == 0 {
		return nil
	}
	if why == "" {
		why = "it is slower than the jobs end"
	}
	return plimsoll.Errorf(plimsoll.CodeExhausted,
		"archive: %d ended jobs wait for it (%s); no job is taken in until it has taken them", a.jobs, why)
}

// orWait names the jobs that wait for the archive in a refusal, if there are any.
func (s *State) orWait() string {
	if s.archiving.jobs == 0 {
		return ""
	}
	return fmt.Sprintf(", with %d that wait for the archive,", s.archiving.jobs)
}

// oldestKept returns the first kept job in the order of keptUntil; nil if there is none.
func (s *State) oldestKept() *Job {
	for kept := &s.archiving.kept; kept.len() > 0; kept.pop() {
		if j := *kept.front(); j.givable && !j.forgetting && !j.dropping && s.jobs[j.Spec.ID] == j {
			return j
		}
	}
	return nil
}

// hasGivable reports whether there is a job to forget, now or later.
func (s *State) hasGivable() bool { return s.archiving.dropping.len() > 0 || s.oldestKept() != nil }

// mustExpire reports whether a job is to be forgotten now.
func (s *State) mustExpire() bool {
	if s.archiving.dropping.len() > 0 {
		return true
	}
	j := s.oldestKept()
	return j != nil && (s.archiving.kept.len() > s.cfg.MaxEnded || s.overBounds() || s.at >= j.keptUntil)
}

// nextToForget takes out the job to be forgotten next. mustExpire has said that there is one.
func (s *State) nextToForget() *Job {
	if s.archiving.dropping.len() > 0 {
		j := s.archiving.dropping.pop()
		j.dropping = false
		return j
	}
	return s.archiving.kept.pop()
}

// checkArchiving compares the sums of the jobs that wait for the archive with the rows, and looks
// for jobs that would never be forgotten.
func (s *State) checkArchiving() error {
	a := &s.archiving
	jobs, sum := 0, usage{}
	waiting, kept := map[*Job]bool{}, map[*Job]bool{}
	for _, j := range a.waiting.items[a.waiting.head:] {
		waiting[j] = true
	}
	for i, j := range a.kept.items[a.kept.head:] {
		kept[j] = true
		if before := a.kept.head + i - 1; i > 0 && a.kept.items[before].keptUntil > j.keptUntil {
			return fmt.Errorf("job %s: is kept longer than the one behind it", a.kept.items[before].Spec.ID)
		}
	}
	for _, j := range a.dropping.items[a.dropping.head:] {
		kept[j] = true
	}
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		switch j := s.jobs[id]; {
		case j.forgetting:
		case j.givable && !j.State.Ended():
			return fmt.Errorf("job %s: is %s and would be forgotten", id, j.State)
		case j.givable && !kept[j]:
			return fmt.Errorf("job %s: will never be forgotten", id)
		case j.waits() && (!waiting[j] || !s.cfg.Archive):
			return fmt.Errorf("job %s: waits for the archive, and nobody knows", id)
		case j.waits():
			jobs++
			sum.add(j.usage, 1)
		}
	}
	if jobs != a.jobs || sum != a.usage {
		return fmt.Errorf("%d jobs of %+v wait for the archive, but that is %d of %+v", a.jobs, a.usage, jobs, sum)
	}
	return nil
}
