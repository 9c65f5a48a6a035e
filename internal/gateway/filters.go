package gateway

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// maxNear bounds the names that are compared with an unknown one.
const maxNear = 1000

// checkJobFilters fails for a queue that does not exist. It is called only when the list is empty:
// ended jobs may belong to a queue that was removed.
func checkJobFilters(s *replica.Snapshot, want *pb.ListJobsRequest) error {
	return checkQueueFilter(s, want.GetQueue())
}

func checkQueueFilter(s *replica.Snapshot, queue string) error {
	if s.JobsIn(queue) > 0 {
		return nil // the queue was removed after jobs ended there
	}
	return checkFilter(s, wire.KindQueueStatus, "queue", "queue", queue)
}

// checkTaskFilters fails for a job, a node or a queue that does not exist. It is called only when
// the list is empty. A list that looks into the archive may be of a job that the snapshot does not
// have.
func checkTaskFilters(s *replica.Snapshot, want *pb.ListTasksRequest, archived bool) error {
	if !archived {
		if err := checkFilter(s, wire.KindJobStatus, "job", "job", want.GetJob()); err != nil {
			return err
		}
		if err := checkFilter(s, wire.KindNode, "node", "node", want.GetNode()); err != nil {
			return err
		}
		if err := checkQueueFilter(s, want.GetQueue()); err != nil {
			return err
		}
	}
	return checkFilter(s, wire.KindNode, "node", "lastNode", want.GetLastNode())
}

// checkFilter fails if a filter names an object that does not exist: an empty answer would hide a
// typo.
func checkFilter(s *replica.Snapshot, kind wire.Kind, noun, field, name string) error {
	if name == "" {
		return nil
	}
	if _, ok := s.Get(kind, name); ok {
		return nil
	}
	text := fmt.Sprintf("there is no %s %.200q", noun, name)
	if near := nearestKey(s, kind, name); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return &plimsoll.Error{Code: plimsoll.CodeNotFound, Field: field, Msg: text}
}

// nearestKey returns the existing name that is most like an unknown one. At most maxNear names are
// compared, all with the same first letter.
func nearestKey(s *replica.Snapshot, kind wire.Kind, name string) string {
	var names []string
	for key := range s.Scan(kind, name[:1], "") {
		if names = append(names, key); len(names) == maxNear {
			break
		}
	}
	return plimsoll.Nearest(name, names)
}
