package agent

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

func TestATaskLearnsTheNumberOfItsPieceOfWork(t *testing.T) {
	for _, tc := range []struct {
		name    string
		indexes []int32
		want    string
	}{
		{"its own index", nil, "2"},
		{"that of an assignment", []int32{4711}, "4711"},
		{"that of a gateway which sends those of the group", []int32{3, 17, 99}, "99"},
		{"its own index beyond a list", []int32{3, 17}, "2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := specOf(&plimsoll.Task{Index: 2}, &pb.GroupSpec{Indexes: tc.indexes})
			if got := spec.Env["PLIMSOLL_TASK_INDEX"]; got != tc.want {
				t.Errorf("PLIMSOLL_TASK_INDEX is %q, want %q", got, tc.want)
			}
		})
	}
}
