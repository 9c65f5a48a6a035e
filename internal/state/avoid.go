package state

import (
	"cmp"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// soonAfterStart is the time after its start within which a failure is held for one that the node
// may have caused.
const soonAfterStart = 10 * second

// avoids returns the node that a waiting task avoids at its next attempt, because its last attempt
// failed there soon after its start; empty: it avoids none. why says so. Both follow from the
// task's record, so they cost no memory and survive a load.
func (r Ref) avoids() (node, why string) {
	t := r.Task()
	if t.State != plimsoll.TaskPending || t.Node == "" || !t.Result.Charged() || !hasRun(t.Result) ||
		t.Result == plimsoll.ResultTimedOut { // its own limit ended it
		return "", ""
	}
	ran := t.Finished - cmp.Or(t.Started, t.Starting, t.Bound)
	if ran >= soonAfterStart {
		return "", ""
	}
	return t.Node, fmt.Sprintf(
		"attempt %d failed there %s after its start", t.Attempt, time.Duration(max(ran, 0)).Round(time.Millisecond),
	)
}

// Avoids says which node a waiting task avoids at its next attempt, and why; empty if it avoids
// none.
func (s *State) Avoids(r Ref) string {
	node, why := r.avoids()
	if node == "" || s.nodes[node] == nil {
		return ""
	}
	return fmt.Sprintf("it avoids node %s if another one takes it: %s", node, why)
}

// PreparedElsewhere returns the prepared request of a task without the node that it avoids; nil if
// it avoids none. The caller releases it.
func (s *State) PreparedElsewhere(r Ref) *placement.Prepared {
	node, why := r.avoids()
	if node == "" || s.nodes[node] == nil {
		return nil
	}
	q := r.Group.request()
	if len(q.Except) == placement.MaxExclusions {
		q.Except = q.Except[1:]
	}
	q.Except = append(q.Except, placement.Exclusion{Server: node, Why: why})
	q.Resources = s.placeable(q.Resources)
	p, err := s.cfg.Chain.Prepare(s.Fleet, q)
	if err != nil { // the same request without the exclusion was prepared
		panic(fmt.Sprintf("a request that was checked is refused: %v", err))
	}
	return p
}
