package wire

import (
	"errors"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// TaskToProto converts a task. Its id is left out: it follows from job, group and index.
func TaskToProto(t *plimsoll.Task) *pb.Task {
	m := &pb.Task{
		Job:       text(t.Job),
		Group:     text(t.Group),
		Index:     t.Index,
		Attempt:   t.Attempt,
		Failures:  t.Failures,
		State:     pb.TaskState(t.State),
		Result:    pb.TaskResult(t.Result),
		Node:      text(t.Node),
		ExitCode:  t.ExitCode,
		Message:   text(t.Message),
		Created:   t.Created,
		Bound:     t.Bound,
		Started:   t.Started,
		Finished:  t.Finished,
		NotBefore: t.NotBefore,
		Revision:  t.Revision,
		Starting:  t.Starting,
		Stopping:  t.Stopping,
	}
	for i := range t.Attempts {
		m.Attempts = append(m.Attempts, AttemptToProto(&t.Attempts[i]))
	}
	for _, e := range t.Earlier {
		m.Earlier = append(m.Earlier, &pb.NodeAttempts{Node: text(e.Node), First: e.First, Last: e.Last})
	}
	return m
}

// TaskFromProto converts a task.
func TaskFromProto(m *pb.Task) plimsoll.Task {
	t := plimsoll.Task{
		ID:        plimsoll.TaskID(m.GetJob(), m.GetGroup(), m.GetIndex()),
		Job:       m.GetJob(),
		Group:     m.GetGroup(),
		Index:     m.GetIndex(),
		Attempt:   m.GetAttempt(),
		Failures:  m.GetFailures(),
		State:     EnumFromProto[plimsoll.TaskState](m.GetState()),
		Result:    EnumFromProto[plimsoll.TaskResult](m.GetResult()),
		Node:      m.GetNode(),
		ExitCode:  m.GetExitCode(),
		Message:   m.GetMessage(),
		Created:   m.GetCreated(),
		Bound:     m.GetBound(),
		Started:   m.GetStarted(),
		Finished:  m.GetFinished(),
		NotBefore: m.GetNotBefore(),
		Revision:  m.GetRevision(),
		Starting:  m.GetStarting(),
		Stopping:  m.GetStopping(),
	}
	for _, a := range m.GetAttempts() {
		t.Attempts = append(t.Attempts, AttemptFromProto(a))
	}
	for _, e := range m.GetEarlier() {
		t.Earlier = append(t.Earlier, plimsoll.NodeAttempts{Node: e.GetNode(), First: e.GetFirst(), Last: e.GetLast()})
	}
	return t
}

// AppendTask encodes a task.
func AppendTask(dst []byte, t *plimsoll.Task) []byte {
	dst = appendText(dst, 1, t.Job)
	dst = appendText(dst, 2, t.Group)
	dst = appendInt32(dst, 3, t.Index)
	dst = appendInt32(dst, 4, t.Attempt)
	dst = appendInt32(dst, 5, t.Failures)
	dst = appendVarint(dst, 6, uint64(t.State))
	dst = appendVarint(dst, 7, uint64(t.Result))
	dst = appendText(dst, 8, t.Node)
	dst = appendInt32(dst, 9, t.ExitCode)
	dst = appendText(dst, 10, t.Message)
	dst = appendVarint(dst, 11, uint64(t.Created))
	dst = appendVarint(dst, 12, uint64(t.Bound))
	dst = appendVarint(dst, 13, uint64(t.Started))
	dst = appendVarint(dst, 14, uint64(t.Finished))
	dst = appendVarint(dst, 15, uint64(t.NotBefore))
	dst = appendVarint(dst, 16, t.Revision)
	for i := range t.Earlier {
		dst = appendNodeAttempts(dst, 17, &t.Earlier[i])
	}
	dst = appendVarint(dst, 18, uint64(t.Starting))
	dst = appendVarint(dst, 19, uint64(t.Stopping))
	for i := range t.Attempts {
		dst = AppendAttempt(appendHeader(dst, 20, sizeAttempt(&t.Attempts[i])), &t.Attempts[i])
	}
	return dst
}

func appendNodeAttempts(dst []byte, number uint64, e *plimsoll.NodeAttempts) []byte {
	var stack [256]byte
	m := appendText(stack[:0], 1, e.Node)
	m = appendInt32(m, 2, e.First)
	m = appendInt32(m, 3, e.Last)
	return protowire.AppendBytes(protowire.AppendVarint(dst, number<<3|bytesType), m)
}

func decodeNodeAttempts(data []byte) (e plimsoll.NodeAttempts, err error) {
	for len(data) > 0 && err == nil {
		var f field
		if f, data, err = nextField(data); err != nil {
			break
		}
		switch f.tag {
		case 1<<3 | bytesType:
			e.Node, err = string(f.b), checkText(f.b)
		case 2<<3 | varintType:
			e.First = int32(f.v)
		case 3<<3 | varintType:
			e.Last = int32(f.v)
		}
	}
	return e, err
}

// DecodeTask decodes a task.
func DecodeTask(data []byte) (plimsoll.Task, error) {
	var t plimsoll.Task
	var job, group []byte
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return plimsoll.Task{}, corrupt("task", err)
		}
		data = rest
		switch f.tag {
		case 1<<3 | bytesType:
			job, err = f.b, checkText(f.b)
		case 2<<3 | bytesType:
			group, err = f.b, checkText(f.b)
		default:
			err = decodeTaskField(&t, &f)
		}
		if err != nil {
			return plimsoll.Task{}, corrupt("task", err)
		}
	}
	err := errors.Join(
		checkEnum[plimsoll.TaskState]("state", t.State), checkEnum[plimsoll.TaskResult]("result", t.Result),
	)
	if err != nil {
		return plimsoll.Task{}, corrupt("task", err)
	}
	nameTask(&t, job, group)
	return t, nil
}

// nameTask sets the id, and job and group as slices of it, so that the three take one allocation.
func nameTask(t *plimsoll.Task, job, group []byte) {
	var stack [256]byte
	id := append(stack[:0], job...)
	id = append(append(id, '.'), group...)
	id = strconv.AppendInt(append(id, '.'), int64(t.Index), 10)
	t.ID = string(id)
	t.Job = t.ID[:len(job)]
	t.Group = t.ID[len(job)+1 : len(job)+1+len(group)]
}

func decodeTaskField(t *plimsoll.Task, f *field) (err error) {
	switch f.tag {
	case 3<<3 | varintType:
		t.Index = int32(f.v)
	case 4<<3 | varintType:
		t.Attempt = int32(f.v)
	case 5<<3 | varintType:
		t.Failures = int32(f.v)
	case 6<<3 | varintType:
		t.State = plimsoll.TaskState(enum(f))
	case 7<<3 | varintType:
		t.Result = plimsoll.TaskResult(enum(f))
	case 8<<3 | bytesType:
		t.Node, err = string(f.b), checkText(f.b)
	case 9<<3 | varintType:
		t.ExitCode = int32(f.v)
	case 10<<3 | bytesType:
		t.Message, err = string(f.b), checkText(f.b)
	case 11<<3 | varintType:
		t.Created = int64(f.v)
	case 12<<3 | varintType:
		t.Bound = int64(f.v)
	case 13<<3 | varintType:
		t.Started = int64(f.v)
	case 14<<3 | varintType:
		t.Finished = int64(f.v)
	case 15<<3 | varintType:
		t.NotBefore = int64(f.v)
	case 16<<3 | varintType:
		t.Revision = f.v
	case 17<<3 | bytesType:
		var e plimsoll.NodeAttempts
		e, err = decodeNodeAttempts(f.b)
		t.Earlier = append(t.Earlier, e)
	case 18<<3 | varintType:
		t.Starting = int64(f.v)
	case 19<<3 | varintType:
		t.Stopping = int64(f.v)
	case 20<<3 | bytesType:
		var a plimsoll.Attempt
		a, err = DecodeAttempt(f.b)
		t.Attempts = append(t.Attempts, a)
	}
	return err
}

// TaskReportToProto converts an agent's report on an attempt.
func TaskReportToProto(r *plimsoll.TaskReport) *pb.TaskReport {
	return &pb.TaskReport{
		Task:     text(r.Task),
		Attempt:  r.Attempt,
		State:    pb.TaskState(r.State),
		Result:   pb.TaskResult(r.Result),
		ExitCode: r.ExitCode,
		Message:  text(r.Message),
		At:       r.At,
		Uid:      r.UID.Text(),
	}
}

// TaskReportFromProto converts an agent's report on an attempt.
func TaskReportFromProto(m *pb.TaskReport) plimsoll.TaskReport {
	return plimsoll.TaskReport{
		Task:     m.GetTask(),
		Attempt:  m.GetAttempt(),
		State:    EnumFromProto[plimsoll.TaskState](m.GetState()),
		Result:   EnumFromProto[plimsoll.TaskResult](m.GetResult()),
		ExitCode: m.GetExitCode(),
		Message:  m.GetMessage(),
		At:       m.GetAt(),
		UID:      UIDFromText(m.GetUid()),
	}
}
