package gateway

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// FetchOutputs relays the declared outputs of a task that has ended from the agent of its node. It
// counts as a log that is read.
func (s jobService) FetchOutputs(
	ctx context.Context, req *connect.Request[pb.FetchOutputsRequest],
	stream *connect.ServerStream[pb.FetchOutputsResponse],
) error {
	key, wanted, err := taskLifetime(req.Msg.GetTask(), req.Msg.GetJobUid())
	if err != nil {
		return err
	}
	done, err := s.g.readFiles("FetchOutputs")
	if err != nil {
		return err
	}
	defer done()
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return err
	}
	task, err := s.g.taskWithFiles(ctx, snapshot, wanted, key, req.Msg.GetTask())
	if err != nil {
		return err
	}
	outputs, err := s.outputsOf(snapshot, &task)
	if err != nil {
		return err
	}
	node, client, err := s.g.agentWithFiles(ctx, snapshot, task.Task, task.GetAttempt())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	files, err := client.logs.ReadTaskOutputs(ctx, connect.NewRequest(&pb.ReadTaskOutputsRequest{
		Task: req.Msg.GetTask(), Uid: task.uid.Text(), Outputs: outputs,
	}))
	if err != nil {
		return relayError(ctx, task.Task, node, err)
	}
	defer files.Close() //nolint:errcheck // the stream is at its end or its context is: there is nothing to learn
	for files.Receive() {
		if err := stream.Send(relayedOutputs(files.Msg())); err != nil {
			return err
		}
	}
	return relayError(ctx, task.Task, node, files.Err())
}

// outputsOf returns the outputs that the group of a task declares. The task must have ended.
func (s jobService) outputsOf(snapshot *replica.Snapshot, task *filedTask) ([]string, error) {
	spec, err := s.specOf(snapshot, task)
	if err != nil {
		return nil, err
	}
	var outputs []string
	for _, group := range spec.GetGroups() {
		if group.GetName() == task.GetGroup() {
			outputs = group.GetOutputs()
		}
	}
	switch {
	case len(outputs) == 0:
		return nil, &plimsoll.Error{
			Code: plimsoll.CodeConflict, Field: "outputs",
			Msg: fmt.Sprintf(
				"group %s of job %s declares none; name the files in the job file", task.GetGroup(), task.GetJob(),
			),
		}
	case plimsoll.TaskState(task.GetState()) != plimsoll.TaskFinished:
		return nil, plimsoll.Errorf(
			plimsoll.CodeConflict, "task %s has not ended; its outputs can be fetched when it has", taskID(task.Task),
		)
	case task.GetAttempt() == 0:
		return nil, plimsoll.Errorf(
			plimsoll.CodeNotFound, "task %s ended without being started, so it has no outputs", taskID(task.Task),
		)
	}
	return outputs, nil
}

// specOf returns the specification of a task's job. One of the archive does not go through the
// cache, which is for the jobs that run.
func (s jobService) specOf(snapshot *replica.Snapshot, task *filedTask) (*pb.JobSpec, error) {
	if task.stored != nil {
		spec := &pb.JobSpec{}
		return spec, decode(wire.KindJobSpec, task.GetJob(), task.stored.Spec, spec)
	}
	data, ok := snapshot.Get(wire.KindJobSpec, task.GetJob())
	if !ok {
		return nil, noJob(task.GetJob())
	}
	return s.g.specs.get(task.GetJob(), data)
}

// relayedOutputs passes on a part of an agent's answer. A part of a newer agent that is not known
// here is passed on as an empty one.
func relayedOutputs(m *pb.ReadTaskOutputsResponse) *pb.FetchOutputsResponse {
	switch part := m.GetPart().(type) {
	case *pb.ReadTaskOutputsResponse_Summary:
		return &pb.FetchOutputsResponse{Part: &pb.FetchOutputsResponse_Summary{Summary: part.Summary}}
	case *pb.ReadTaskOutputsResponse_File:
		return &pb.FetchOutputsResponse{Part: &pb.FetchOutputsResponse_File{File: part.File}}
	case *pb.ReadTaskOutputsResponse_Data:
		return &pb.FetchOutputsResponse{Part: &pb.FetchOutputsResponse_Data{Data: part.Data}}
	}
	return &pb.FetchOutputsResponse{}
}
