package coordinator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// maxAttemptTasks is the number of tasks whose attempts go to the archive at once.
const maxAttemptTasks = 512

// noteAttempts notes the tasks of a published turn that have attempts for the archive. The list may
// be dropped: a task is noted again at its next change, and the last record of a task goes to the
// archive with all its attempts.
func (a *archiver) noteAttempts(tasks []plimsoll.Task) {
	for i := range tasks {
		if t := &tasks[i]; len(t.Surplus()) > 0 {
			a.crowded.add(wire.TaskKey(t.Job, t.Group, t.Index))
		}
	}
}

// writeAttempts writes attempts of jobs that go on. Only behind this, the engine takes them out of
// the records of their tasks. It waits for the check of the archive, because the engine must not.
func (s *archiveSession) writeAttempts(ctx context.Context, snapshot *replica.Snapshot, keys []string) error {
	chunks, names, err := s.collectAttempts(snapshot, keys)
	if err != nil || len(chunks) == 0 {
		return err
	}
	began := time.Now()
	mark, err := s.writer.Write(ctx, s.epoch, nil, chunks)
	if err != nil {
		return fmt.Errorf("write attempts of %d tasks, the first is %.300q: %w", len(names), chunks[0].TaskKey, err)
	}
	s.metrics.wrote(began, &s.mark, &mark)
	s.mark = mark
	s.step(StepWritten)
	return s.push(ctx, &engine.Archived{ID: mark.ID, Sequence: mark.Sequence, Attempts: names})
}

// takeCrowded takes noted tasks, once the archive has passed its check.
func (s *archiveSession) takeCrowded() []string {
	if !s.passed {
		return nil
	}
	return s.crowded.take(maxAttemptTasks)
}

// collectAttempts reads the attempts of noted tasks as far as a Write takes them, puts back the
// rest, and names them for the engine.
func (s *archiveSession) collectAttempts(
	snapshot *replica.Snapshot, keys []string,
) (chunks []archive.Attempts, names []state.AttemptsName, err error) {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	bytes := 0
	for i, key := range keys {
		ofTask, name, err := surplusOf(snapshot, key)
		if err != nil {
			return nil, nil, fmt.Errorf("read the attempts of task %.300q: %w", key, err)
		}
		if len(ofTask) == 0 {
			continue
		}
		for j := range ofTask {
			bytes += len(key) + len(ofTask[j].Value)
		}
		if bytes > archive.MaxWriteBytes && len(chunks) > 0 {
			s.crowded.putBack(keys[i:])
			break
		}
		chunks, names = append(chunks, ofTask...), append(names, name)
	}
	return chunks, names, nil
}

// surplusOf returns the attempts of a task for the archive, in chunks. There are none if the task
// has left, or if its job has ended: then they go to the archive with the job.
func surplusOf(
	snapshot *replica.Snapshot, key string,
) (chunks []archive.Attempts, name state.AttemptsName, err error) {
	record, found := snapshot.Get(wire.KindTask, key)
	status, known := snapshot.Get(wire.KindJobStatus, wire.JobOfTaskKey(key))
	if !found || !known {
		return nil, name, nil
	}
	facts, err := wire.LookAtJob(status)
	if err != nil || plimsoll.JobState(facts.State).Ended() {
		return nil, name, err //nolint:wrapcheck // the caller names the task
	}
	uid, err := facts.Lifetime()
	if err != nil {
		return nil, name, err //nolint:wrapcheck // the caller names the task
	}
	task, err := wire.DecodeTask(record)
	if err != nil {
		return nil, name, err //nolint:wrapcheck // the caller names the task
	}
	for chunk := range slices.Chunk(task.Surplus(), plimsoll.AttemptChunk) {
		chunks = append(chunks, archive.Attempts{
			UID: uid, TaskKey: key, First: chunk[0].Number, Value: wire.AppendAttempts(nil, chunk),
		})
		name.Through = chunk[len(chunk)-1].Number
	}
	name.Job, name.Group, name.Index = state.JobName{ID: task.Job, UID: uid}, task.Group, task.Index
	return chunks, name, nil
}
