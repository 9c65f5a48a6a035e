package state

import "github.com/plimsoll-dev/plimsoll"

// Totals are counts over all jobs, tasks and nodes of the state, for metrics. Those by state,
// result and condition stand at its number.
type Totals struct {
	Jobs  [plimsoll.NumJobStates]int64
	Tasks [plimsoll.NumTaskStates]int64
	Nodes [NumNodeConditions]int64
	Ends  [plimsoll.NumTaskResults]uint64 // attempts that have ended since the load

	// AttemptsDropped are attempts that were dropped since the load before the archive had them.
	AttemptsDropped uint64

	ToArchive       int64 // ended jobs that wait for the archive
	OldestToArchive int64 // end of the first of them, in Unix nanoseconds; 0: none waits
}

// Totals returns the counts as they are now.
func (s *State) Totals() Totals {
	t := s.totals
	if a := &s.archiving; a.jobs > 0 {
		t.ToArchive, t.OldestToArchive = int64(a.jobs), (*a.waiting.front()).Finished
	}
	return t
}

// countJob counts n jobs more in a state. A new row has the state 0, which is not counted.
func (s *State) countJob(state plimsoll.JobState, n int64) {
	if state != 0 {
		s.totals.Jobs[state] += n
	}
}

// countTask counts n tasks more in a state.
func (s *State) countTask(state plimsoll.TaskState, n int64) { s.totals.Tasks[state] += n }

// NodeCondition says whether a node takes tasks, and if not the first reason of those below.
type NodeCondition uint8

// The conditions. A node that has several is counted at the first of them.
const (
	NodeNotReady NodeCondition = iota + 1 // its agent is not connected
	NodeDrained                           // an operator has its tasks stopped
	NodeCordoned                          // an operator keeps new tasks away
	NodeGated                             // its agent keeps new tasks away
	NodeSick                              // it could not start its last tasks
	NodeTakesTasks

	numNodeConditions
)

// NumNodeConditions is one more than the highest condition, for tables.
const NumNodeConditions = int(numNodeConditions)

var nodeConditionNames = [numNodeConditions]string{
	"", "not ready", "draining", "cordoned", "no new tasks", "sick", "ready",
}

// String returns the condition in the words of the lists of nodes, such as "not ready".
func (c NodeCondition) String() string { return nodeConditionNames[c] }

func (n *Node) condition() NodeCondition {
	switch {
	case !n.Ready:
		return NodeNotReady
	case n.Mode == plimsoll.NodeDraining:
		return NodeDrained
	case n.Mode == plimsoll.NodeCordoned:
		return NodeCordoned
	case n.Gate.Closed:
		return NodeGated
	case n.sickUntil != 0:
		return NodeSick
	}
	return NodeTakesTasks
}

// countNode counts a node in its condition, and no longer in the one before.
func (s *State) countNode(n *Node) {
	s.uncountNode(n)
	n.counted = n.condition()
	s.totals.Nodes[n.counted]++
}

func (s *State) uncountNode(n *Node) {
	if n.counted != 0 {
		s.totals.Nodes[n.counted]--
		n.counted = 0
	}
}
