package scheduler_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// A plan prepares the request of similar jobs once, also after one of the jobs has ended. It
// distinguishes jobs that differ.
func TestMovablesThatAreAlikeShareTheirRequest(t *testing.T) {
	c := newCluster(t, plimsoll.DefaultQueues())
	c.node("n", 1000)
	for i := range 10 {
		c.submit(fmt.Sprint("a", i), "root.default", 1, 10)
		c.submit(fmt.Sprint("b", i), "root.default", 1, 20)
	}
	for _, ended := range []string{"a0", "b0"} {
		c.turn(func() error {
			c.report(ended, 0, plimsoll.TaskReport{State: plimsoll.TaskFinished, Result: plimsoll.ResultSucceeded})
			return nil
		})
	}
	list, all := c.s.Movables(100)
	seen := map[*placement.Prepared]int{}
	for i := range list {
		seen[list[i].Prepared]++
		if *list[i].Prepared.Amounts() != *list[i].Kind.Amounts() {
			t.Errorf("%s asks for %v and holds %v", list[i].Name, list[i].Prepared.Amounts(), list[i].Kind.Amounts())
		}
	}
	if len(list) != 18 || !all || len(seen) != 2 {
		t.Errorf("%d movables (all: %t) have %d requests, want 18 of 2", len(list), all, len(seen))
	}
}
