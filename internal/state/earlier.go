package state

import (
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// former are the attempts of a task before the present one. Records share the slices: they are
// replaced, never changed.
type former struct {
	// attempts are the last ones, oldest first, with those that the archive does not have yet.
	// Invariant: they are consecutive, and within maxAttemptBytes.
	attempts []plimsoll.Attempt
	earlier  []plimsoll.NodeAttempts // nodes of those before, oldest first
}

func (r Ref) former() former { return r.Group.former[r.Index] }

// keepAttempt keeps the last attempt of a task, before the row takes up something else. It may be
// kept already.
func (s *State) keepAttempt(r Ref) {
	t := r.Task()
	was := r.former()
	n := len(was.attempts)
	if t.Attempt == 0 || n > 0 && was.attempts[n-1].Number == t.Attempt {
		return
	}
	now := former{earlier: was.earlier}
	if n == 0 { // a record of an older version has only the nodes of the attempts before
		now.earlier = withNode(now.earlier, t.Node, t.Attempt-1)
	}
	now.attempts = append(make([]plimsoll.Attempt, 0, n+1), was.attempts...)
	now.attempts = append(now.attempts, s.attemptOf(t, was))
	if over := s.overAttempts(now.attempts); over > 0 {
		if s.cfg.Archive {
			s.totals.AttemptsDropped += uint64(over)
		}
		now = now.without(over)
	}
	s.dirty.bytes += max(0, formerBytes(now)-formerBytes(r.former())) // the task may be marked already
	s.setFormer(r, now)
}

// Bounds on the attempts of a record while the archive does not take them.
const (
	// maxAttemptBytes bounds the bytes of the attempts of one record. It leaves a record below half
	// of bounds.row for any store.
	maxAttemptBytes = 48 << 10
	// maxAttemptsInNeed is the number of attempts of one record while all jobs together are over
	// Config.MaxBytes.
	maxAttemptsInNeed = plimsoll.MaxAttempts + 2*plimsoll.AttemptChunk
)

// overAttempts returns the number of the oldest attempts that are over a bound. They must go,
// although no archive has them. With an archive they are a whole chunk.
func (s *State) overAttempts(attempts []plimsoll.Attempt) int {
	n := len(attempts)
	if !s.cfg.Archive {
		return max(0, n-plimsoll.MaxAttempts)
	}
	most := s.cfg.MaxBytes
	if n <= plimsoll.MaxAttempts ||
		attemptBytes(attempts) <= maxAttemptBytes && (n < maxAttemptsInNeed || most == 0 || s.usage.bytes <= most) {
		return 0
	}
	return plimsoll.AttemptChunk
}

// without returns the former attempts without the oldest n, of which only the nodes stay.
func (f former) without(n int) former {
	for i := range n {
		f.earlier = withNode(f.earlier, f.attempts[i].Node, f.attempts[i].Number)
	}
	f.attempts = slices.Clone(f.attempts[n:])
	return f
}

// AttemptsName names the attempts of a task up to a number.
type AttemptsName struct {
	Job     JobName
	Group   string
	Index   int32
	Through int32
}

// maxLeaving bounds the names of attempts that are still to leave their records. A name has at most
// 256 bytes. Names beyond it are dropped: the archiver names the attempts again.
const maxLeaving = 16_384

// ArchivedAttempts notes that the archive has attempts, so that they leave their records. It can be
// repeated: what has left is ignored. The records of a job that has ended stay as they are.
func (s *State) ArchivedAttempts(names []AttemptsName) {
	room := max(0, maxLeaving-len(s.leaving))
	s.leaving = append(s.leaving, names[:min(len(names), room)]...)
}

// leaveRecord takes archived attempts out of the record of their task.
func (s *State) leaveRecord(name AttemptsName, budget Budget) bool {
	if s.Over(budget) {
		return false
	}
	j := s.jobs[name.Job.ID]
	if j == nil || j.UID != name.Job.UID || j.State.Ended() {
		return true
	}
	ref, found := s.FindTask(name.Job.ID, name.Group, name.Index)
	if !found {
		return true
	}
	was := ref.former()
	n := 0
	for n < len(was.attempts) && was.attempts[n].Number <= name.Through {
		n++
	}
	if n > 0 {
		s.setFormer(ref, was.without(n))
		s.markTask(ref)
	}
	return true
}

// attemptOf returns the last attempt of a task as it is kept.
func (s *State) attemptOf(t *Task, was former) plimsoll.Attempt {
	pending := t.Created
	if n := len(was.attempts); n > 0 {
		pending = was.attempts[n-1].Finished
	}
	return plimsoll.Attempt{
		Number: t.Attempt, Node: t.Node, Result: t.Result, ExitCode: t.ExitCode,
		Message: cutTo(t.Message, plimsoll.MaxAttemptMessage), Pending: pending, Bound: t.Bound, Starting: t.Starting,
		Started: t.Started, Stopping: t.Stopping, Finished: t.Finished,
	}
}

// withNode returns the list with the attempts up to last on a node. The oldest entry gives way.
func withNode(list []plimsoll.NodeAttempts, node string, last int32) []plimsoll.NodeAttempts {
	n, first := len(list), int32(1)
	if n > 0 {
		first = list[n-1].Last + 1
	}
	if first > last {
		return list
	}
	if n > 0 && list[n-1].Node == node {
		list = append(make([]plimsoll.NodeAttempts, 0, n), list...)
		list[n-1].Last = last
		return list
	}
	list = list[max(0, n-plimsoll.MaxEarlier+1):]
	return append(list[:len(list):len(list)], plimsoll.NodeAttempts{Node: node, First: first, Last: last})
}

// setFormer replaces the former attempts of a task.
func (s *State) setFormer(r Ref, f former) {
	g := r.Group
	s.countTexts(g.Job, formerBytes(f)-formerBytes(r.former()))
	if len(f.attempts)+len(f.earlier) == 0 {
		delete(g.former, r.Index)
		return
	}
	if g.former == nil {
		g.former = map[int32]former{}
	}
	g.former[r.Index] = f
}

func attemptBytes(attempts []plimsoll.Attempt) (sum int) {
	for i := range attempts {
		sum += size.Attempt(attempts[i].Node, attempts[i].Message)
	}
	return sum
}

func formerBytes(f former) int {
	sum := attemptBytes(f.attempts)
	for i := range f.earlier {
		sum += size.NodeAttempts(f.earlier[i].Node)
	}
	return sum
}

// checkFormer checks the invariant of the former attempts of a task.
func checkFormer(r Ref) error {
	t, attempts := r.Task(), r.former().attempts
	for i := range attempts {
		if number := attempts[i].Number; number != attempts[0].Number+int32(i) || number > t.Attempt {
			return fmt.Errorf("task %s: attempt %d stands at place %d behind %d", t.ID, number, i, attempts[0].Number)
		}
	}
	if bytes := attemptBytes(attempts); bytes > maxAttemptBytes {
		return fmt.Errorf("task %s: its attempts take %d bytes", t.ID, bytes)
	}
	return nil
}
