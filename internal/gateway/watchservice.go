package gateway

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// watchService serves WatchService.
type watchService struct{ g *Gateway }

// WatchJobs sends the jobs that meet the criteria, and then each change of them.
func (s watchService) WatchJobs(
	ctx context.Context, req *connect.Request[pb.WatchJobsRequest], stream *connect.ServerStream[pb.WatchJobsResponse],
) error {
	m := req.Msg
	want, err := jobCriteria(m)
	if err != nil {
		return err
	}
	w := watch{
		g: s.g, rpc: "WatchJobs", kind: wire.KindJobStatus, from: m.GetFrom(),
		send: encodedSender(stream), json: inJSON(req.Header()),
		want: want,
	}
	w.want.specs = m.GetSpecs()
	return w.run(ctx)
}

// WatchTasks sends the tasks that meet the criteria, and then each change of them.
func (s watchService) WatchTasks(
	ctx context.Context, req *connect.Request[pb.WatchTasksRequest],
	stream *connect.ServerStream[pb.WatchTasksResponse],
) error {
	m := req.Msg
	want, err := taskCriteria(m)
	if err != nil {
		return err
	}
	w := watch{
		g: s.g, rpc: "WatchTasks", kind: wire.KindTask, from: m.GetFrom(),
		send: encodedSender(stream), json: inJSON(req.Header()),
		want: want,
	}
	return w.run(ctx)
}

// WatchNodes sends the nodes with their status, and then each change of them.
func (s watchService) WatchNodes(
	ctx context.Context, req *connect.Request[pb.WatchNodesRequest],
	stream *connect.ServerStream[pb.WatchNodesResponse],
) error {
	w := watch{
		g: s.g, rpc: "WatchNodes", kind: wire.KindNode, from: req.Msg.GetFrom(),
		send: encodedSender(stream), json: inJSON(req.Header()),
	}
	return w.run(ctx)
}

// WatchQueues sends the queues, and then each change of them.
func (s watchService) WatchQueues(
	ctx context.Context, req *connect.Request[pb.WatchQueuesRequest],
	stream *connect.ServerStream[pb.WatchQueuesResponse],
) error {
	w := watch{
		g: s.g, rpc: "WatchQueues", kind: wire.KindQueueStatus, from: req.Msg.GetFrom(),
		send: encodedSender(stream), json: inJSON(req.Header()),
	}
	return w.run(ctx)
}

func numbers[E ~int32](values []E) []int32 {
	plain := make([]int32, len(values))
	for i, v := range values {
		plain[i] = int32(v)
	}
	return plain
}

// encodedSender returns the function that sends encoded messages on a stream. In the binary form
// they are sent as they are; for JSON each is decoded first.
func encodedSender[T any, M message[T]](stream *connect.ServerStream[T]) func([]byte) error {
	isJSON := inJSON(stream.Conn().RequestHeader())
	return func(encoded []byte) error {
		m := M(new(T))
		if !isJSON {
			m.ProtoReflect().SetUnknown(encoded) // appended as it is when m is marshaled
			return stream.Send(m)
		}
		if err := decode(0, "", encoded, m); err != nil {
			return err
		}
		return stream.Send(m)
	}
}
