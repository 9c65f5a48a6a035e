package state

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// The functions below bound the bytes of a row and its key in a batch. A row is counted when it is
// marked dirty. A task or status grows after that only by texts, which text counts. Any other row
// that has grown is marked again, and the difference is counted.

const (
	revisionBytes = 11 // a record's revision, which is set after the record was counted
	countBytes    = 5  // the count of a group with plimsoll.MaxTasksPerJob tasks
	policyKey     = 8  // the longest kind, and a slash
)

func taskBytes(r Ref) int {
	t := r.Task()
	return size.Task(r.Group.Job.Spec.ID, r.Group.Spec.Name, t.Node, t.Message) + formerBytes(r.former())
}

// statusBytes bounds the status of a job. It counts the resources of each group too, which events
// of the group's tasks hold once in a batch.
func statusBytes(j *Job) int {
	sum := size.JobStatus(j.Spec.ID, j.Spec.Owner, j.Queue.Path, j.Reason, j.limited.Group) +
		len(j.history)*size.JobStep()
	for i := range j.Groups {
		g := &j.Groups[i]
		sum += size.GroupStatus(g.Spec.Name, &g.Wait) + int(g.resourceBytes)
	}
	return sum
}

// specBytes bounds a specification, for any count of its groups.
func specBytes(spec *plimsoll.JobSpec) int {
	return size.Of(spec) + len(spec.ID) + countBytes*len(spec.Groups)
}

func nodeBytes(n *plimsoll.Node) int { return size.Of(n) + len(n.ID) + revisionBytes }

func policyBytes(p *plimsoll.Policy) int {
	return size.Of(p) + policyKey + len(p.Name()) + revisionBytes
}

// storedNode returns the bytes of a node's record, the same at each revision.
func storedNode(n *plimsoll.Node) int {
	row := *n
	row.Revision = 0
	return nodeBytes(&row)
}

// storedBytes returns the bytes of a policy's record, the same at each revision; 0 for nil.
func storedBytes(p *plimsoll.Policy) int {
	if p == nil {
		return 0
	}
	row := *p
	row.Revision = 0
	return policyBytes(&row)
}

// text counts the bytes of a text for a row that may be dirty already, and returns the text.
func (s *State) text(text string) string {
	s.dirty.bytes += len(text)
	return text
}
