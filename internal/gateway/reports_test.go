package gateway

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// An agent may report every result that there is, and no other number.
func TestEveryResultCanBeReported(t *testing.T) {
	for r := int32(-1); r <= int32(plimsoll.ResultOutOfDisk)+1; r++ {
		err := checkReports(&pb.ReportTasksRequest{Node: "n1", Incarnation: 1, Sequence: 1, Reports: []*pb.TaskReport{{
			Task: "a.map.0", Attempt: 1, State: pb.TaskState_TASK_STATE_FINISHED, Result: pb.TaskResult(r),
		}}})
		if known := r >= 0 && r <= int32(plimsoll.ResultOutOfDisk); (err == nil) != known {
			t.Errorf("result %d: %v", r, err)
		}
	}
}
