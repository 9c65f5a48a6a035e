package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// archiveSession is the work of an archiver with an open archive, until the first error.
type archiveSession struct {
	*archiver

	writer  archive.Writer
	reader  archive.Reader
	mark    archive.Mark
	checked chan struct{} // closed once the archive has passed its check

	scanning bool   // jobs of the snapshot behind the id after are still to be looked at
	after    string // only while scanning
	// held are the rounds that wait for the check. If they are more than maxHeldRounds, they are
	// dropped, and all jobs are looked at again behind the check.
	held    []*engine.Archived
	dropped bool
}

// fence makes this leader the one that writes the archive, and looks whether the archive has
// everything that has left the store.
func (s *archiveSession) fence(ctx context.Context) (mark archive.Mark, err error) {
	stored, err := s.snapshot().Archive()
	if err != nil {
		return mark, err //nolint:wrapcheck // it says what failed
	}
	mark, err = s.writer.Fence(ctx, s.epoch)
	stale := plimsoll.CodeOf(err) == plimsoll.CodeStale
	if stale {
		mark, err = s.reader.Mark(ctx)
	}
	if err != nil {
		return mark, fmt.Errorf("begin to write the archive: %w", err)
	}
	lacks := stored.ID != "" && (mark.ID != stored.ID || mark.Sequence < stored.Sequence)
	switch {
	case !stale && !lacks:
		return mark, nil
	case s.cfg.Accept == mark.ID:
		if mark, err = s.writer.Accept(ctx, s.epoch); err != nil {
			return mark, fmt.Errorf("accept the archive %s: %w", s.cfg.Accept, err)
		}
		return mark, s.push(ctx, &engine.Archived{ID: mark.ID, Sequence: mark.Sequence, Accept: true})
	case stale:
		return mark, plimsoll.Errorf(plimsoll.CodeStale,
			"a later leader, of epoch %d, has written the archive: restore that of the store's backup, "+
				"or give --archive-accept %s", mark.Epoch, mark.ID)
	}
	return mark, plimsoll.Errorf(plimsoll.CodeConflict,
		"the archive lacks jobs that have left the store: it is %s with %d writes, not %s with %d; "+
			"restore that one, or give --archive-accept %s",
		mark.ID, mark.Sequence, stored.ID, stored.Sequence, mark.ID)
}

// work makes rounds until there is an error or ctx ends.
func (s *archiveSession) work(ctx context.Context) error {
	s.metrics.reached(&s.mark)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		full, err := s.round(ctx)
		if plimsoll.CodeOf(err) == plimsoll.CodeExhausted {
			return errors.Join(err, s.trim(ctx)) // less to keep makes room for the next try
		}
		if err != nil {
			return err
		}
		if !s.damaged {
			s.setTrouble("")
		}
		if err := s.trim(ctx); err != nil {
			return err
		}
		pause := archiveWait
		if full {
			pause = 0
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return nil
		case <-s.checks():
			err = s.release(ctx)
		case d := <-s.deletions:
			err = s.delete(ctx, d)
		case <-s.ended.wake:
			sleep(ctx, archivePause)
		case <-s.crowded.wake:
			sleep(ctx, archivePause)
		case <-timer.C:
		}
		if err != nil {
			return err
		}
	}
}

// checks returns the channel that tells when the check has passed; nil once that is known.
func (s *archiveSession) checks() <-chan struct{} {
	if s.passed {
		return nil
	}
	return s.checked
}

// release tells the engine of the rounds that have waited for the check.
func (s *archiveSession) release(ctx context.Context) error {
	s.passed, s.damaged = true, false
	for _, do := range s.held {
		if err := s.push(ctx, do); err != nil {
			return err
		}
	}
	s.held = nil
	if s.dropped {
		s.dropped, s.scanning, s.after = false, true, ""
	}
	return nil
}

// push tells the engine of a round, once fewer than archiveRounds wait in the inbox.
func (s *archiveSession) push(ctx context.Context, do *engine.Archived) error {
	select {
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the term has ended
	case s.rounds <- struct{}{}:
	}
	bytes := commandBytes
	for _, names := range [][]state.JobName{do.Written, do.Deleted} {
		for i := range names {
			bytes += nameBytes + len(names[i].ID)
		}
	}
	for i := range do.Attempts {
		bytes += attemptsNameBytes + len(do.Attempts[i].Job.ID) + len(do.Attempts[i].Group)
	}
	s.inbox.pushAlways(request{do: do, bytes: bytes, drained: func() { <-s.rounds }})
	s.step(StepTold)
	return nil
}

// The memory of names in bytes, beside their texts.
const (
	nameBytes         = 32
	attemptsNameBytes = 56
)

// round writes jobs that have ended, and attempts of others. It reports whether there may be more
// for another round at once.
func (s *archiveSession) round(ctx context.Context) (full bool, err error) {
	if s.ended.lost() {
		s.scanning, s.after = true, ""
	}
	s.scan(s.snapshot())
	// The snapshot comes behind the ids: a job is noted when its end is published, so its end is in
	// there. In an earlier one the job would not have ended, and would be passed over for good.
	ids, crowded := s.ended.take(archive.MaxWriteJobs), s.takeCrowded()
	snapshot := s.snapshot()
	if err := s.writeAttempts(ctx, snapshot, crowded); err != nil {
		return false, err
	}
	jobs, do, err := s.collect(snapshot, ids)
	if err != nil {
		return false, err
	}
	if len(jobs) > 0 {
		began := time.Now()
		mark, err := s.writer.Write(ctx, s.epoch, jobs, nil)
		if err != nil {
			return false, fmt.Errorf("write %d jobs, the first is %s: %w", len(jobs), jobs[0].ID, err)
		}
		s.metrics.wrote(began, &s.mark, &mark)
		s.mark = mark
		s.step(StepWritten)
	}
	if len(do.Deleted) > 0 {
		uids := make([]plimsoll.UID, len(do.Deleted))
		for i := range uids {
			uids[i] = do.Deleted[i].UID
		}
		if err := s.writer.Delete(ctx, s.epoch, uids, s.now()); err != nil {
			return false, fmt.Errorf("delete %d jobs, the first is %s: %w", len(uids), do.Deleted[0].ID, err)
		}
		s.step(StepDeleted)
	}
	if len(do.Written)+len(do.Deleted) > 0 {
		do.ID, do.Sequence = s.mark.ID, s.mark.Sequence
		err = s.confirm(ctx, do)
	}
	return s.scanning || s.ended.len() > 0 || s.passed && s.crowded.len() > 0, err
}

// confirm tells the engine of a round, or holds it until the archive has passed its check.
func (s *archiveSession) confirm(ctx context.Context, do *engine.Archived) error {
	switch {
	case s.passed:
		return s.push(ctx, do)
	case len(s.held) < maxHeldRounds:
		s.held = append(s.held, do)
	default:
		s.held, s.dropped = nil, true
	}
	return nil
}

// scan adds jobs of the snapshot that have ended, while jobs are to be looked at.
func (s *archiveSession) scan(snapshot *replica.Snapshot) {
	if !s.scanning || s.ended.len() >= archive.MaxWriteJobs {
		return
	}
	n := 0
	for id := range snapshot.Jobs(replica.JobCriteria{States: endedStates()}, s.after) {
		if n == scanJobs {
			return
		}
		s.ended.add(id)
		s.after = id
		n++
	}
	s.scanning = false
}

// scanJobs is the number of jobs that a scan adds at once.
const scanJobs = 8 * archive.MaxWriteJobs

// endedStates returns the states of jobs that belong into the archive. Rejected jobs do not:
// nothing of them has run, and the state has a bound of its own for them.
func endedStates() []plimsoll.JobState {
	return []plimsoll.JobState{plimsoll.JobCompleted, plimsoll.JobFailed}
}

// collect reads ended jobs as far as a Write takes them, puts back the rest, and names them for the
// engine.
func (s *archiveSession) collect(
	snapshot *replica.Snapshot, ids []string,
) (jobs []archive.Job, do *engine.Archived, err error) {
	do = &engine.Archived{}
	bytes := 0
	for i, id := range ids {
		job, deleted, err := archivedJob(snapshot, id)
		if err != nil {
			return nil, nil, fmt.Errorf("read job %s: %w", id, err)
		}
		name := state.JobName{ID: id, UID: job.UID}
		if job.UID.IsZero() { // it has left, or another job has its id now
			continue
		}
		if deleted {
			do.Deleted = append(do.Deleted, name)
			continue
		}
		if bytes += job.Bytes(); bytes > archive.MaxWriteBytes && len(jobs) > 0 {
			s.ended.putBack(ids[i:])
			break
		}
		jobs, do.Written = append(jobs, job), append(do.Written, name)
	}
	return jobs, do, nil
}

// archivedJob returns a job as it goes to the archive, and whether it was deleted. The uid is zero
// if the snapshot has no such job that has ended.
func archivedJob(snapshot *replica.Snapshot, id string) (job archive.Job, deleted bool, err error) {
	status, found := snapshot.Get(wire.KindJobStatus, id)
	if !found {
		return job, false, nil
	}
	st, err := wire.DecodeJobStatus(status)
	if err != nil || !st.State.Ended() || st.State == plimsoll.JobExpired {
		return job, false, err //nolint:wrapcheck // the caller names the job
	}
	spec, _ := snapshot.Get(wire.KindJobSpec, id)
	job = archive.Job{
		Head: archive.Head{
			UID: st.UID, ID: id, Owner: st.Owner, Queue: st.Queue, Labels: labelsOf(spec), State: st.State,
			Result: st.Result(), Finished: st.Finished,
		},
		Spec: spec, Status: status,
		Records: func(yield func(archive.TaskRecord) bool) {
			for key, value := range snapshot.Scan(wire.KindTask, wire.TaskKeyPrefix(id), "") {
				state, result, _ := wire.PeekTask(value)
				if !yield(archive.TaskRecord{Key: key, State: state, Result: result, Value: value}) {
					return
				}
			}
		},
	}
	job.Measure()
	return job, st.Deleted, nil
}

// labelsOf returns the labels of an encoded specification. Decoding all of it would take a tenth of
// the processor time of a round.
func labelsOf(spec []byte) map[string]string {
	var labels map[string]string
	for key, value := range wire.PeekLabels(spec) {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[string(key)] = string(value)
	}
	return labels
}

// trim removes what is beyond the retention, a part at a time.
func (s *archiveSession) trim(ctx context.Context) error {
	if time.Since(s.trimmed) < trimInterval {
		return nil
	}
	removed, more, err := s.writer.Trim(ctx, s.epoch, s.cfg.Retention, s.now(), trimJobs)
	if err != nil {
		return fmt.Errorf("remove old jobs: %w", err)
	}
	if !more {
		s.trimmed = time.Now()
	}
	if removed == 0 {
		return nil
	}
	s.step(StepTrimmed)
	s.metrics.trimmed(removed)
	if s.mark, err = s.writer.Fence(ctx, s.epoch); err != nil {
		return fmt.Errorf("read how far the archive has come: %w", err)
	}
	s.metrics.reached(&s.mark)
	return nil
}
