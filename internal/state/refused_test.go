package state_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// A refused job leaves no resource names behind, even if only its last group is wrong. There are
// few slots, and the names would take them from other jobs.
func TestRefusedJobsBringNoNames(t *testing.T) {
	s := state.New(state.Config{}, plimsoll.DefaultQueues())
	for i := range 2 * plimsoll.MaxResourceNames {
		s.Begin(int64(i+1), 1)
		wrong := plimsoll.GroupSpec{Name: "b", Count: 1, Command: []string{"true"}}
		wrong.Constraints.Where = "node.zone == 1"
		_, err := s.Submit(&plimsoll.JobSpec{ID: fmt.Sprint(
			"j", i,
		), Queue: "root.default", Groups: []plimsoll.GroupSpec{
			{
				Name: "a", Count: 1, Command: []string{"true"},
				Resources: plimsoll.Resources{fmt.Sprintf("example.com/r%d", i): 1},
			},
			wrong,
		}}, false)
		want := "groups[1].constraints.where: the expression is not understood: the node has no field zone (1:6)  | node.zone == 1  | .....^"
		if err == nil || err.Error() != want {
			t.Fatalf("job %d: error\n%v, want\n%s", i, err, want)
		}
	}
	if n := s.Names.Len(); n != 3 {
		t.Errorf("there are %d names, want 3", n)
	}
}
