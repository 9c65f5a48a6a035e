package gateway

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// maxNear is how many names are compared with one that is not there.
const maxNear = 1000

// checkJobFilters fails for a queue that is not there, in which no job was found either: ended jobs
// may be of a queue that is gone. It is asked when a list is empty.
func checkJobFilters(s *replica.Snapshot, want *pb.ListJobsRequest) error {
	return checkFilter(s, wire.KindQueueStatus, "queue", want.GetQueue())
}

// checkTaskFilters fails for a job or a node that is not there. It is asked when a list is empty.
func checkTaskFilters(s *replica.Snapshot, want *pb.ListTasksRequest) error {
	if err := checkFilter(s, wire.KindJobStatus, "job", want.GetJob()); err != nil {
		return err
	}
	for range s.NodeTasks(want.GetNode()) {
		return nil // it was removed, and tasks ended there
	}
	return checkFilter(s, wire.KindNode, "node", want.GetNode())
}

// checkFilter fails if a filter names what is not there: an empty answer would hide a typo.
func checkFilter(s *replica.Snapshot, kind wire.Kind, field, name string) error {
	if name == "" {
		return nil
	}
	if _, ok := s.Get(kind, name); ok {
		return nil
	}
	text := fmt.Sprintf("there is no %s %.200q", field, name)
	if near := nearestKey(s, kind, name); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return &plimsoll.Error{Code: plimsoll.CodeNotFound, Field: field, Msg: text}
}

// nearestKey returns the name that is most like one that is not there. Only names with the same
// first letter are compared, and at most maxNear of them.
func nearestKey(s *replica.Snapshot, kind wire.Kind, name string) string {
	var names []string
	for key := range s.Scan(kind, name[:1], "") {
		if names = append(names, key); len(names) == maxNear {
			break
		}
	}
	return plimsoll.Nearest(name, names)
}
