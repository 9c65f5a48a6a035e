package state

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// The functions below bound what a row takes in a batch, with its key. A row is counted when it is
// marked dirty. A task or status grows after that only by texts, which text adds; any other row
// that has grown is marked again, and the difference is counted.

const (
	revisionBytes = 11 // a record gets its revision when it is taken, after it was counted
	countBytes    = 5  // a group of no tasks takes so much less than one of plimsoll.MaxTasksPerJob
	policyKey     = 8  // the longest kind, and a slash
)

func taskBytes(r Ref) int {
	t := r.Task()
	return size.Task(r.Group.Job.Spec.ID, r.Group.Spec.Name, t.Node, t.Message) + earlierBytes(r.earlier())
}

// statusBytes counts the resources of the groups too: the events of its tasks hold them, once in a
// batch.
func statusBytes(j *Job) int {
	sum := size.JobStatus(j.Spec.ID, j.Spec.Owner, j.Queue.Path, j.Reason)
	for i := range j.Groups {
		g := &j.Groups[i]
		sum += size.GroupStatus(g.Spec.Name, g.Wait.Queue, g.Wait.Resource, g.Wait.Known) + int(g.resourceBytes)
	}
	return sum
}

// specBytes bounds a specification however it is scaled.
func specBytes(spec *plimsoll.JobSpec) int {
	return size.Of(spec) + len(spec.ID) + countBytes*len(spec.Groups)
}

func nodeBytes(n *plimsoll.Node) int { return size.Of(n) + len(n.ID) + revisionBytes }

func policyBytes(p *plimsoll.Policy) int {
	return size.Of(p) + policyKey + len(p.Name()) + revisionBytes
}

// storedNode is what a node takes, whichever revision it has.
func storedNode(n *plimsoll.Node) int {
	row := *n
	row.Revision = 0
	return nodeBytes(&row)
}

// storedBytes is what a policy takes, whichever revision it has.
func storedBytes(p *plimsoll.Policy) int {
	if p == nil {
		return 0
	}
	row := *p
	row.Revision = 0
	return policyBytes(&row)
}

// text counts a text that goes into a task or status that may be dirty already, and returns it.
func (s *State) text(text string) string {
	s.dirty.bytes += len(text)
	return text
}
