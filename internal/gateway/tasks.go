package gateway

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// getTask answers with one task, of the copy or of the archive.
func (s jobService) getTask(ctx context.Context, req *pb.GetTaskRequest, a *answer) error {
	key, err := taskKey("id", req.GetId())
	if err != nil {
		return err
	}
	wanted, err := parseLifetime("id", wire.JobOfTaskKey(key), "jobUid", req.GetJobUid())
	if err != nil {
		return err
	}
	mask, err := wire.CompileMask(taskFields, req.GetFields())
	if err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	v, err := a.view(ctx, req)
	if err != nil {
		return err
	}
	found, err := s.g.findTask(ctx, v.Snapshot, wanted, key, req.GetId())
	if err != nil {
		return err
	}
	if found.certain {
		a.share(v.Snapshot)
	}
	record, err := a.chosen(wire.KindTask, key, found.record, mask, found.archived())
	if err != nil {
		return err
	}
	a.Add(fieldTask, record)
	return a.Finish(
		&pb.GetTaskResponse{Revision: v.Revision(), Epoch: v.Epoch(), Archived: found.archived()}, v.age,
	)
}

// soughtTask is the record of a task, and its place.
type soughtTask struct {
	record  []byte
	stored  *archive.Stored // the job, if it is in the archive; else nil
	certain bool            // the snapshot alone has the answer
}

func (t *soughtTask) archived() bool { return t.stored != nil }

// findTask finds a task as find finds its job.
func (g *Gateway) findTask(
	ctx context.Context, s *replica.Snapshot, wanted lifetime, key, id string,
) (t soughtTask, err error) {
	data, ok := s.Get(wire.KindTask, key)
	if ok && wanted.uid.IsZero() && s.JobsLeaving() == 0 {
		return soughtTask{record: data, certain: true}, nil
	}
	job, err := g.find(ctx, s, wanted)
	switch {
	case plimsoll.CodeOf(err) == plimsoll.CodeNotFound:
		return t, noTask(id)
	case err != nil:
		return t, err
	case job.stored == nil && !ok:
		return t, noTask(id)
	case job.stored == nil:
		return soughtTask{record: data}, nil
	}
	v, err := g.archiveOf(s)
	if err != nil {
		return t, err
	}
	t.stored = job.stored
	t.record, err = v.archivedTask(ctx, t.stored.UID, key, id)
	return t, err
}

// listTasks answers with the tasks that meet all criteria.
func (s jobService) listTasks(ctx context.Context, req *pb.ListTasksRequest, a *answer) error {
	want, err := taskListOf(s.g, req)
	if err != nil {
		return err
	}
	v, err := s.g.pinnedView(ctx, req, want.from, want.pin, a)
	if err != nil {
		return err
	}
	var stored *sought
	inSnapshot := !want.names || want.inSnapshot(v.Snapshot)
	if inSnapshot && !want.archive && v.until.IsZero() {
		a.share(v.Snapshot)
	}
	if !inSnapshot {
		if stored, err = s.foundJob(ctx, &v, &want); err != nil {
			return err
		}
	}
	if want.plain && stored == nil && want.from == nil {
		return s.plainTasks(ctx, req, &want, &v, a)
	}
	return s.orderedTasks(ctx, req, &want, &v, stored, a)
}

// foundJob returns the job of a list of tasks if that is in the archive; nil: it is not.
func (s jobService) foundJob(ctx context.Context, v *pinned, want *taskList) (*sought, error) {
	found, err := s.g.find(ctx, v.Snapshot, want.life)
	if err == nil {
		want.job = found.id
		if found.stored == nil {
			return nil, nil
		}
		return &found, nil
	}
	if plimsoll.CodeOf(err) != plimsoll.CodeNotFound || !want.life.uid.IsZero() {
		return nil, err
	}
	kept, failed := s.g.archiveOf(v.Snapshot)
	switch {
	case failed != nil:
		return nil, failed
	case !kept.kept() || want.after != "":
		return nil, nil // the list is empty, and the rest of one whose job was removed meanwhile is
	}
	if near := checkFilter(v.Snapshot, wire.KindJobStatus, "job", "job", want.life.id); near != nil {
		return nil, near
	}
	return nil, err
}

// plainTasks is a list of the tasks in the copy, in the order of job, group and index.
func (s jobService) plainTasks(
	ctx context.Context, req *pb.ListTasksRequest, want *taskList, v *pinned, a *answer,
) error {
	look, err := s.g.lookAtTasks(v.Snapshot, want)
	if err != nil {
		return err
	}
	resp := &pb.ListTasksResponse{Revision: v.Revision(), Epoch: v.Epoch()}
	var uids []plimsoll.UID
	seen, listed, last := 0, 0, ""
	for key, data := range look.tasks(want.after) {
		if seen++; seen%lookEvery == 0 && ctx.Err() != nil {
			return callerGone(ctx)
		}
		if key <= want.after {
			continue
		}
		matches, err := look.matches(key, data)
		if err != nil {
			return err
		}
		if !matches {
			continue
		}
		if listed == want.limit || a.records > pageBytes {
			resp.Next = idOfTask(last)
			break
		}
		record, err := a.chosen(wire.KindTask, key, data, want.mask, false)
		if err != nil {
			return err
		}
		a.Add(fieldTasks, record)
		if want.uids {
			uids = append(uids, look.lastUID)
		}
		listed++
		last = key
	}
	if listed == 0 && want.after == "" {
		if err := checkTaskFilters(v.Snapshot, req, false); err != nil {
			return err
		}
	}
	if want.count {
		if resp.Total, resp.TotalAtLeast, err = look.count(ctx); err != nil {
			return err
		}
	}
	if resp.JobUids, err = a.jobUIDs(uids); err != nil {
		return err
	}
	return a.Finish(resp, v.age)
}

// cursorMark begins a cursor that stands in the place of a task's id, in an answer to a caller that
// pages with ids. No id begins with it.
const cursorMark = "~"
