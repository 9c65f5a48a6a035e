package gateway

import (
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// decode decodes a record into the message that an answer holds.
func decode(kind wire.Kind, key string, data []byte, into proto.Message) error {
	if err := proto.Unmarshal(data, into); err != nil {
		return undecodable(kind, key, err)
	}
	return nil
}

func undecodable(kind wire.Kind, key string, err error) error {
	return plimsoll.Errorf(plimsoll.CodeCorrupt, "the record %q of kind %d cannot be decoded: %v", key, kind, err)
}

// message is a pointer to a generated message.
type message[T any] interface {
	*T
	proto.Message
}

// load returns one decoded record; nil if there is none.
func load[T any, M message[T]](s *replica.Snapshot, kind wire.Kind, key string) (M, error) {
	data, ok := s.Get(kind, key)
	if !ok {
		return nil, nil
	}
	m := M(new(T))
	if err := decode(kind, key, data, m); err != nil {
		return nil, err
	}
	return m, nil
}

func loadStatus(s *replica.Snapshot, id string) (*pb.JobStatus, error) {
	status, err := load[pb.JobStatus](s, wire.KindJobStatus, id)
	if err == nil && status == nil {
		err = noJob(id)
	}
	if err == nil {
		err = addKnown(s, status)
	}
	return status, err
}

func noJob(id string) error { return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no job %q", id) }

func loadNode(s *replica.Snapshot, id string) (*pb.Node, error) {
	node, err := load[pb.Node](s, wire.KindNode, id)
	if err == nil && node == nil {
		err = plimsoll.Errorf(plimsoll.CodeNotFound, "there is no node %q", id)
	}
	return node, err
}

func noTask(id string) error {
	return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no task %q", id)
}

// uidIn returns the uid of a job of a snapshot; zero if the snapshot does not have the job.
func uidIn(s *replica.Snapshot, job string) (plimsoll.UID, error) {
	data, ok := s.Get(wire.KindJobStatus, job)
	if !ok {
		return plimsoll.UID{}, nil
	}
	facts, err := wire.LookAtJob(data)
	if err != nil {
		return plimsoll.UID{}, undecodable(wire.KindJobStatus, job, err)
	}
	uid, err := facts.Lifetime()
	if err != nil {
		return plimsoll.UID{}, undecodable(wire.KindJobStatus, job, err)
	}
	return uid, nil
}

// taskKey turns a task's id into the key of its record.
func taskKey(field, id string) (string, error) {
	job, group, index, ok := wire.SplitTaskID(id)
	if !ok {
		return "", plimsoll.Invalid(
			field, "%.200q is not the id of a task; one is made of job, group and index, such as wordcount.map.0", id,
		)
	}
	return wire.TaskKey(job, group, index), nil
}

// idOfTask is the inverse of taskKey.
func idOfTask(key string) string {
	job, group, index, _ := wire.SplitTaskKey(key) // the leader makes no other keys
	return plimsoll.TaskID(job, group, index)
}

func taskID(t *pb.Task) string { return plimsoll.TaskID(t.GetJob(), t.GetGroup(), t.GetIndex()) }
