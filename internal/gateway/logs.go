package gateway

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// maxAgentMessage bounds a message of an agent's stream: a piece of a log, or the QoS agent's view
// of all tasks.
const maxAgentMessage = 8 << 20

// ReadLogs relays the output of an attempt of a task from the agent of the attempt's node. The
// task's job may be in the archive. With follow it waits until the attempt has begun, and goes on
// until it has ended.
func (s jobService) ReadLogs(
	ctx context.Context, req *connect.Request[pb.ReadLogsRequest], stream *connect.ServerStream[pb.ReadLogsResponse],
) error {
	if err := checkLogRequest(req.Msg); err != nil {
		return err
	}
	done, err := s.g.readFiles("ReadLogs")
	if err != nil {
		return err
	}
	defer done()
	snapshot, task, err := s.begunTask(ctx, req.Msg, stream)
	if err != nil {
		return err
	}
	attempt := req.Msg.GetAttempt()
	if attempt == 0 {
		attempt = task.GetAttempt()
	}
	node, client, err := s.g.agentWithFiles(ctx, snapshot, task.Task, attempt)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logs, err := client.logs.ReadTaskLog(ctx, connect.NewRequest(&pb.ReadTaskLogRequest{
		Task: req.Msg.GetTask(), Uid: task.uid.Text(), Attempt: attempt, Stream: req.Msg.GetStream(),
		Follow: req.Msg.GetFollow(), TailBytes: req.Msg.GetTailBytes(),
		TailLines: req.Msg.GetTailLines(), SinceNanos: req.Msg.GetSinceNanos(), Timestamps: req.Msg.GetTimestamps(),
		StdoutFrom: req.Msg.GetStdoutFrom(), StderrFrom: req.Msg.GetStderrFrom(),
	}))
	if err != nil {
		return relayError(ctx, task.Task, node, err)
	}
	defer logs.Close() //nolint:errcheck // the stream is at its end or its context is: there is nothing to learn
	for logs.Receive() {
		m := logs.Msg()
		if err := stream.Send(&pb.ReadLogsResponse{
			Stream: m.GetStream(), Data: m.GetData(), After: m.GetAfter(), Time: m.GetTime(), Next: m.GetNext(),
			Attempt: attempt, JobUid: task.uid.Text(),
		}); err != nil {
			return err
		}
	}
	return relayError(ctx, task.Task, node, logs.Err())
}

func checkLogRequest(req *pb.ReadLogsRequest) error {
	if _, _, err := taskLifetime(req.GetTask(), req.GetJobUid()); err != nil {
		return err
	}
	if req.GetAttempt() < 0 {
		return plimsoll.Invalid("attempt", "is negative; attempts are counted from 1, and 0 is the last")
	}
	switch req.GetStream() {
	case "", "stdout", "stderr":
	default:
		return plimsoll.Invalid(
			"stream", "%.40q is not one; give stdout or stderr, or leave it out for both", req.GetStream(),
		)
	}
	if req.GetTailBytes() < 0 {
		return plimsoll.Invalid("tailBytes", "is negative; give how many of the last bytes are wanted, or 0 for all")
	}
	if req.GetTailLines() < 0 {
		return plimsoll.Invalid("tailLines", "is negative; give how many of the last lines are wanted, or 0 for all")
	}
	if req.GetStdoutFrom() < 0 || req.GetStderrFrom() < 0 {
		return plimsoll.Invalid(
			"stdoutFrom and stderrFrom", "are negative; give what next was, or 0 for the beginning",
		)
	}
	if req.GetSinceNanos() < 0 {
		return plimsoll.Invalid(
			"sinceNanos", "is negative; give how many of the last nanoseconds are wanted, or 0 for all",
		)
	}
	return nil
}

// taskLifetime reads the task of a request for its files, and the lifetime of its job.
func taskLifetime(id, uid string) (key string, wanted lifetime, err error) {
	key, err = taskKey("task", id)
	if err != nil {
		return "", lifetime{}, err
	}
	wanted, err = parseLifetime("task", wire.JobOfTaskKey(key), "jobUid", uid)
	return key, wanted, err
}

// filedTask is a task whose files are asked for.
type filedTask struct {
	*pb.Task
	uid    plimsoll.UID // of its job; zero: not known
	stored *archive.Stored
}

// taskWithFiles finds a task in a snapshot or in the archive.
func (g *Gateway) taskWithFiles(
	ctx context.Context, s *replica.Snapshot, wanted lifetime, key, id string,
) (filedTask, error) {
	found, err := g.findTask(ctx, s, wanted, key, id)
	if err != nil {
		return filedTask{}, err
	}
	t := filedTask{Task: &pb.Task{}, stored: found.stored}
	if err := decode(wire.KindTask, key, found.record, t.Task); err != nil {
		return filedTask{}, err
	}
	if found.archived() {
		t.uid = found.stored.UID
		return t, nil
	}
	t.uid, err = uidIn(s, t.GetJob())
	return t, err
}

// begunTask returns the task of the request and a snapshot, once the requested attempt has begun.
// Without follow it does not wait. With follow it opens the stream first, so that the caller sees
// that the call was taken.
func (s jobService) begunTask(
	ctx context.Context, req *pb.ReadLogsRequest, stream *connect.ServerStream[pb.ReadLogsResponse],
) (*replica.Snapshot, filedTask, error) {
	id := req.GetTask()
	none := filedTask{}
	key, life, err := taskLifetime(id, req.GetJobUid())
	if err != nil {
		return nil, none, err
	}
	job := wire.JobOfTaskKey(key)
	// The status counts tasks by state, so it changes with each task.
	changed, cancel := s.g.replica.Watch(wire.KindJobStatus, job)
	defer cancel()
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return nil, none, err
	}
	opened := false
	for {
		task, err := s.g.taskWithFiles(ctx, snapshot, life, key, id)
		if err != nil {
			return nil, none, err
		}
		life.uid = task.uid // a later job with the id is not meant
		state := plimsoll.TaskState(task.GetState())
		begun := task.GetAttempt() > 0 && state != plimsoll.TaskBound
		switch wanted := req.GetAttempt(); {
		case wanted > 0 && wanted < task.GetAttempt(), begun && (wanted == 0 || wanted == task.GetAttempt()):
			return snapshot, task, nil
		case state == plimsoll.TaskFinished && task.GetAttempt() == 0:
			return nil, none, plimsoll.Errorf(
				plimsoll.CodeNotFound, "task %s ended without being started, so it wrote nothing", id,
			)
		case state == plimsoll.TaskFinished:
			return nil, none, plimsoll.Errorf(
				plimsoll.CodeNotFound, "task %s ended with attempt %d; there is no attempt %d", id, task.GetAttempt(),
				wanted,
			)
		case !req.GetFollow():
			return nil, none, plimsoll.Errorf(
				plimsoll.CodeConflict,
				"task %s has not been started yet, so it wrote nothing; follow it to wait, or ask to explain it", id,
			)
		}
		if !opened {
			opened = true
			req.TailBytes, req.TailLines = 0, 0 // nothing is written yet, so all of the log is new
			if err := stream.Send(nil); err != nil {
				return nil, none, err
			}
		}
		// As in WatchAssignments, no snapshot is kept while the stream waits.
		select {
		case <-ctx.Done():
			return nil, none, callerGone(ctx)
		case <-changed:
		}
		snapshot = s.g.replica.Latest()
	}
}

// readFiles takes a slot for a stream of a task's files, and counts it as one of the method's. The
// caller must call done when the stream has ended.
func (g *Gateway) readFiles(method string) (done func(), err error) {
	reading := &slot{}
	if _, err := g.slots.logs.enter(reading, nil, nil); err != nil {
		g.metrics.refused(boundLogs)
		return nil, err
	}
	ended := g.metrics.watching(method)
	return func() {
		ended()
		reading.leave()
	}, nil
}

// agentWithFiles returns the node that has the files of an attempt of a task, and the client of its
// agent.
func (g *Gateway) agentWithFiles(
	ctx context.Context, snapshot *replica.Snapshot, task *pb.Task, attempt int32,
) (*pb.Node, *agentClient, error) {
	node, err := logNode(snapshot, task, attempt)
	if err != nil {
		return nil, nil, err
	}
	client, err := g.agents.get(ctx, node)
	return node, client, err
}

// logNode returns the node on which an attempt of a task ran, whose agent serves its log.
func logNode(snapshot *replica.Snapshot, task *pb.Task, attempt int32) (*pb.Node, error) {
	t := wire.TaskFromProto(task)
	id, known := t.NodeOf(attempt)
	if !known {
		return nil, plimsoll.Errorf(plimsoll.CodeNotFound,
			"the node of attempt %d of task %s is no longer remembered: the task has changed nodes %d times since; "+
				"ask for a later attempt", attempt, t.ID, len(t.Earlier))
	}
	node, err := load[pb.Node](snapshot, wire.KindNode, id)
	switch {
	case err != nil:
		return nil, err
	case node == nil:
		return nil, &plimsoll.Error{Code: plimsoll.CodeNotFound, Field: "node", Msg: fmt.Sprintf(
			"%q, where attempt %d of task %s ran, has been removed, and what it kept of it", id, attempt, t.ID)}
	case node.GetAddress() == "":
		return nil, plimsoll.Errorf(plimsoll.CodeConflict, "node %q serves no logs: its agent gave no address", id)
	}
	return node, nil
}

// relayError returns the error for a caller whose stream from an agent has ended.
func relayError(ctx context.Context, task *pb.Task, node *pb.Node, err error) error {
	if err == nil {
		return nil
	}
	if gone := callerGone(ctx); gone != nil {
		return gone
	}
	err = wire.FromConnectError(err)
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeUnavailable:
	case plimsoll.CodeUnauthenticated:
		return agentDenied(node.GetId(), node.GetAddress(), err)
	default:
		return err
	}
	return &plimsoll.Error{
		Code: plimsoll.CodeUnavailable,
		Msg: "the agent of node " + node.GetId() + " at " + node.GetAddress() + ", which has the log of task " +
			taskID(task) + ", cannot be reached; see that it runs, and try again",
		Err: err,
	}
}
