package gateway

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

func TestAnAssignmentHasThePieceOfWorkOfItsTaskAlone(t *testing.T) {
	group := &pb.GroupSpec{
		Name: "map", Count: 3, Command: []string{"true"}, Env: map[string]string{"A": "b"},
		Constraints: &pb.Constraints{}, Indexes: []int32{3, 17, 99},
	}
	before := proto.CloneOf(group)
	own := forTask(group, 1)
	if !slices.Equal(own.GetIndexes(), []int32{17}) {
		t.Errorf("the task with index 1 got the pieces %v, want 17", own.GetIndexes())
	}
	own.Indexes = group.Indexes
	if !proto.Equal(own, before) || !proto.Equal(group, before) {
		t.Errorf("the specification is\n%v, that of the group\n%v, want\n%v", own, group, before)
	}
	plain := &pb.GroupSpec{Name: "map", Count: 3}
	if forTask(plain, 1) != plain {
		t.Error("a specification without indexes was copied")
	}
}

func TestTheCountFollowsFromThePieces(t *testing.T) {
	spec := &pb.JobSpec{Groups: []*pb.GroupSpec{{Indexes: []int32{3, 17}}, {}}}
	complete(spec)
	if a, b := spec.Groups[0].GetCount(), spec.Groups[1].GetCount(); a != 2 || b != 1 {
		t.Errorf("the groups got %d and %d tasks, want 2 and 1", a, b)
	}
}
