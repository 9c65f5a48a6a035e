package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ReadTaskOutputs sends the files of a task that match the outputs. They lie in the task's own
// directory, which is kept as long as the log of one of its attempts.
func (h *logHandler) ReadTaskOutputs(
	ctx context.Context, req *connect.Request[pb.ReadTaskOutputsRequest],
	stream *connect.ServerStream[pb.ReadTaskOutputsResponse],
) error {
	m := req.Msg
	if err := validateTaskID(m.GetTask()); err != nil {
		return wire.ConnectError(err)
	}
	uid, err := parseUID(m.GetUid())
	if err != nil {
		return wire.ConnectError(err)
	}
	if err := plimsoll.ValidateOutputs("outputs", m.GetOutputs()); err != nil {
		return wire.ConnectError(err)
	}
	if err := h.slots.acquire(h.ledger.node); err != nil {
		return wire.ConnectError(err)
	}
	defer h.slots.release()
	err = h.sendOutputs(ctx, m, uid, stream.Send)
	if err != nil && ctx.Err() == nil && plimsoll.CodeOf(err) == plimsoll.CodeInternal {
		// The caller does not see the cause.
		h.trouble(Trouble{Kind: TroubleSendOutputs, Task: m.GetTask(), Err: err})
	}
	return wire.ConnectError(err)
}

func (h *logHandler) sendOutputs(
	ctx context.Context, m *pb.ReadTaskOutputsRequest, uid plimsoll.UID, send func(*pb.ReadTaskOutputsResponse) error,
) (err error) {
	key, known, begun, writing := h.ledger.status(m.GetTask(), uid, 0)
	switch {
	case !known || !begun:
		return plimsoll.Errorf(plimsoll.CodeNotFound,
			"this node has no files of task %q; it never ran here, or they were removed to make room or for their age",
			m.GetTask())
	case writing:
		return plimsoll.Errorf(
			plimsoll.CodeConflict, "task %q runs; its outputs can be fetched when it has ended", m.GetTask(),
		)
	}
	found, err := executor.FindOutputs(
		ctx, filepath.Join(h.ledger.root, key.task, workDir), m.GetOutputs(), h.outputBytes,
	)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	summary := &pb.OutputSummary{Files: int64(len(found.Files)), Bytes: found.Bytes, Refused: found.Refused}
	for _, r := range found.Refusals {
		summary.Refusals = append(summary.Refusals, &pb.OutputRefusal{Path: r.Path, Reason: r.Reason})
	}
	if err := send(&pb.ReadTaskOutputsResponse{
		Part: &pb.ReadTaskOutputsResponse_Summary{Summary: summary},
	}); err != nil {
		return err
	}
	buffer := make([]byte, logChunk)
	for i := range found.Files {
		if err := sendOutput(ctx, found, &found.Files[i], buffer, send); err != nil {
			return err
		}
	}
	return nil
}

// sendOutput sends a file. If the file has changed since it was found, fewer bytes are sent than
// were announced, so that the receiver knows.
func sendOutput(
	ctx context.Context, found *executor.Outputs, f *executor.OutputFile, buffer []byte,
	send func(*pb.ReadTaskOutputsResponse) error,
) (err error) {
	if err := send(&pb.ReadTaskOutputsResponse{Part: &pb.ReadTaskOutputsResponse_File{
		File: &pb.OutputFile{Path: f.Path, Size: f.Size, Executable: f.Executable},
	}}); err != nil {
		return err
	}
	file, err := found.Open(f)
	if err != nil {
		return nil //nolint:nilerr // it was removed or replaced: none of its bytes are sent
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for left := f.Size; left > 0 && ctx.Err() == nil; {
		n, err := file.Read(buffer[:min(left, int64(len(buffer)))])
		if n > 0 {
			left -= int64(n)
			part := &pb.ReadTaskOutputsResponse_Data{Data: buffer[:n]}
			if err := send(&pb.ReadTaskOutputsResponse{Part: part}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read an output: %w", err)
		}
	}
	return ctx.Err()
}
