package gateway

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// maxAttempts bounds the attempts of one answer.
const maxAttempts = 10_000

// ListAttempts answers with the attempts of a task: first those which no longer stand in its
// record, from the archive, and then those of the record with the present one.
func (s jobService) ListAttempts(
	ctx context.Context, req *connect.Request[pb.ListAttemptsRequest],
) (*connect.Response[pb.ListAttemptsResponse], error) {
	m := req.Msg
	key, err := taskKey("task", m.GetTask())
	if err != nil {
		return nil, err
	}
	wanted, err := parseLifetime("task", wire.JobOfTaskKey(key), "jobUid", m.GetJobUid())
	if err != nil {
		return nil, err
	}
	if m.GetAfter() < 0 {
		return nil, plimsoll.Invalid("after", "is negative; attempts are counted from 1, and 0 is before the first")
	}
	v, err := s.g.view(ctx, m)
	if err != nil {
		return nil, err
	}
	found, err := s.g.findTask(ctx, v.Snapshot, wanted, key, m.GetTask())
	if err != nil {
		return nil, err
	}
	task, err := wire.DecodeTask(found.record)
	if err != nil {
		return nil, undecodable(wire.KindTask, key, err)
	}
	resp := &pb.ListAttemptsResponse{
		Revision: v.Revision(), Epoch: v.Epoch(), AgeNanos: int64(v.age), Archived: found.archived(),
	}
	held := task.AllAttempts()
	if len(held) > 0 && held[0].Number-1 > m.GetAfter() {
		if err := s.earlierAttempts(ctx, &v, &found, key, held[0].Number, m.GetAfter(), resp); err != nil {
			return nil, err
		}
	}
	if resp.Next == 0 {
		for i := range held {
			if held[i].Number > m.GetAfter() {
				resp.Attempts = append(resp.Attempts, wire.AttemptToProto(&held[i]))
			}
		}
	}
	return connect.NewResponse(resp), nil
}

// earlierAttempts adds the attempts that are before the first one of the record. Without an archive
// they are forgotten.
func (s jobService) earlierAttempts(
	ctx context.Context, v *view, found *soughtTask, key string, first, after int32, resp *pb.ListAttemptsResponse,
) error {
	kept, err := s.g.archiveOf(v.Snapshot)
	if err != nil || !kept.kept() {
		return err
	}
	var uid plimsoll.UID
	if found.archived() {
		uid = found.stored.UID
	} else if uid, err = uidOfJob(v, wire.JobOfTaskKey(key)); err != nil {
		return err
	}
	return kept.read(ctx, func(ctx context.Context, r archive.Reader) error {
		chunks, err := r.Attempts(ctx, uid, key, max(0, after-plimsoll.AttemptChunk))
		for err == nil && len(chunks) > 0 {
			for _, chunk := range chunks {
				if err := addAttempts(ctx, &chunk, first, after, resp); err != nil || resp.Next > 0 {
					return err
				}
			}
			chunks, err = r.Attempts(ctx, uid, key, chunks[len(chunks)-1].First)
		}
		if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
			return nil
		}
		return err //nolint:wrapcheck // read says what failed
	})
}

// addAttempts adds the attempts of a chunk until the answer is full. The archive of a cell that ran
// without one for a while may have chunks that overlap: each attempt is added once.
func addAttempts(
	ctx context.Context, chunk *archive.Attempts, first, after int32, resp *pb.ListAttemptsResponse,
) error {
	if err := holding(ctx, len(chunk.Value)); err != nil {
		return err
	}
	list, err := wire.DecodeAttempts(chunk.Value)
	if err != nil {
		return plimsoll.Errorf(plimsoll.CodeCorrupt, "the attempts of %q from %d on cannot be decoded: %v",
			chunk.TaskKey, chunk.First, err)
	}
	for i := range list {
		n := len(resp.Attempts)
		if n > 0 {
			after = resp.Attempts[n-1].GetNumber()
		}
		if list[i].Number <= after || list[i].Number >= first {
			continue
		}
		if n == maxAttempts {
			resp.Next = after
			return nil
		}
		resp.Attempts = append(resp.Attempts, wire.AttemptToProto(&list[i]))
	}
	return nil
}

// uidOfJob returns the uid of a job of the copy.
func uidOfJob(v *view, id string) (plimsoll.UID, error) {
	data, _ := v.Get(wire.KindJobStatus, id)
	facts, err := wire.LookAtJob(data)
	if err != nil {
		return plimsoll.UID{}, undecodable(wire.KindJobStatus, id, err)
	}
	return facts.Lifetime() //nolint:wrapcheck // the leader makes no other
}
