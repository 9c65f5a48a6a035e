package state

import (
	"unsafe"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// The bounds on what all jobs take together. They are held at the door: a submit, or a scaling that
// adds tasks, is refused if it would go over one. What is over already, as it is after a load with
// lower bounds, stays, and everything but that goes on. Jobs that have ended give way: Forget drops
// the oldest of them while all jobs together are over a bound.

const (
	tableShare = 2 // a byte of a text of a task stands in its row and in the record that is replicated
	// so often the names of job and group stand in memory for each task: id, key, and twice in the
	// record
	nameCopies  = 4
	usualNames  = 32                // bytes of both names that the room of a task has room for
	groupRow    = 256               // bytes of a group in the record of its job's status
	endedShare  = 2                 // jobs that have ended take at most one part in so many of the bytes
	overMessage = 64                // bytes of a task's message while the bytes are over their bound
	kept        = uint64(512) << 20 // bytes of memory that are left to all but tasks
)

// The names of the bounds, which are those of the flags that set them.
const (
	TasksBound = "state-tasks"
	BytesBound = "state-bytes"
)

// TaskMemory is how much memory a task is given by TasksWithin: its row, its record in the tables
// from which gateways are sent their copies, one such copy in the same process, and as much again
// for the collector and for a load.
const TaskMemory = 1536

// UnknownMemory is the limit of memory that is taken where none is known.
const UnknownMemory = 2 << 30

// TasksWithin returns the bound on tasks for a limit of memory: all but 512 MiB are for tasks, or
// half if that is more, so that there is a bound for a small limit too.
func TasksWithin(limit uint64) int {
	room := limit / 2
	if limit > 2*kept {
		room = limit - kept
	}
	return int(room / TaskMemory)
}

// BytesWithin returns the bound on bytes for a limit of memory, an eighth. That fits beside the
// tasks: those take about half of what TaskMemory gives them, and the other half is needed by a
// load, in which specifications are not copied.
func BytesWithin(limit uint64) int { return int(limit / 8) }

// NodeBytesWithin returns the bound on what is stored of all nodes: a 32nd of the limit of memory.
// In memory that takes some five times as much.
func NodeBytesWithin(limit uint64) int { return int(limit / 32) }

// holdings are what jobs take of the bounds.
type holdings struct {
	tasks int // that are there or are still to be created
	bytes int // of memory, of specifications and of the texts of tasks
}

func (h *holdings) add(o holdings, sign int) {
	h.tasks += sign * o.tasks
	h.bytes += sign * o.bytes
}

// Held returns how many tasks there are, those that are still to be created and those of ended jobs
// with them, and how many bytes the jobs take.
func (s *State) Held() (tasks, bytes int) { return s.held.tasks, s.held.bytes }

// living is what the jobs take that have not ended.
func (s *State) living() holdings {
	return holdings{s.held.tasks - s.heldEnded.tasks, s.held.bytes - s.heldEnded.bytes}
}

// hold counts anew what a job takes.
func (s *State) hold(j *Job) {
	s.unhold(j)
	j.held, j.heldEnded = j.takes(j.Spec), j.State.Ended() || j.forgetting
	s.held.add(j.held, 1)
	if j.heldEnded {
		s.heldEnded.add(j.held, 1)
		return
	}
	s.tree.Count(&j.account, int64(j.held.tasks))
}

// unhold takes a job out of what is counted.
func (s *State) unhold(j *Job) {
	s.held.add(j.held, -1)
	if j.heldEnded {
		s.heldEnded.add(j.held, -1)
	}
	j.held, j.heldEnded = holdings{}, false
}

// takes returns what a job takes with a specification, which is its own or that of a scaling.
func (j *Job) takes(spec *plimsoll.JobSpec) holdings {
	h := holdings{bytes: j.memory + j.texts}
	grows := !j.State.Ended() && !j.forgetting && !j.Killed
	for i := range j.Groups {
		n := len(j.Groups[i].Tasks)
		if grows {
			n = max(n, int(spec.Groups[i].Count))
		}
		h.tasks += n
		h.bytes += n * longNames(spec, &spec.Groups[i])
	}
	return h
}

// wants returns what a job takes once all its tasks are created; memory is what memoryOf says of
// it.
func wants(spec *plimsoll.JobSpec, memory int) holdings {
	h := holdings{bytes: memory}
	for i := range spec.Groups {
		n := int(spec.Groups[i].Count)
		h.tasks += n
		h.bytes += n * longNames(spec, &spec.Groups[i])
	}
	return h
}

// memoryOf returns how much memory a specification takes with the rows of its groups; encoded is
// what it takes as a record.
func memoryOf(spec *plimsoll.JobSpec, encoded int) int {
	return size.Memory(spec) + encoded + int(unsafe.Sizeof(Job{})) +
		len(spec.Groups)*(int(unsafe.Sizeof(Group{}))+groupRow)
}

// longNames returns by how much a task takes more than others because of its names.
func longNames(spec *plimsoll.JobSpec, g *plimsoll.GroupSpec) int {
	return nameCopies * max(0, len(spec.ID)+len(g.Name)-usualNames)
}

// checkHeld reports whether there is room for a job that wants so much where it took so much
// before, in all and in its queue and those above.
func (s *State) checkHeld(leaf *queue.Queue, was, wants holdings) error {
	live := s.living()
	if most := s.cfg.MaxTasks; most > 0 && live.tasks-was.tasks+wants.tasks > most {
		return plimsoll.Errorf(plimsoll.CodeExhausted,
			"%s: jobs that have not ended have %d tasks, and this would make it %d; at most %d are possible; wait until jobs have ended, kill some, or start the coordinator with a higher --%s",
			TasksBound, live.tasks, live.tasks-was.tasks+wants.tasks, most, TasksBound)
	}
	if most := s.cfg.MaxBytes; most > 0 && live.bytes-was.bytes+wants.bytes > most {
		return plimsoll.Errorf(plimsoll.CodeExhausted,
			"%s: jobs that have not ended take %d bytes of memory, and this would make it %d; at most %d are possible; wait until jobs have ended, kill some, or start the coordinator with a higher --%s",
			BytesBound, live.bytes, live.bytes-was.bytes+wants.bytes, most, BytesBound)
	}
	for q := leaf; q != nil; q = q.Parent {
		if most := int64(q.MaxTasks); most > 0 && q.Tasks+int64(wants.tasks-was.tasks) > most {
			return plimsoll.Errorf(plimsoll.CodeExhausted,
				"maxtasks: the jobs of %s have %d tasks, and this would make it %d; at most %d are possible; wait until jobs have ended, kill some, or raise maxtasks of %s in the queue file",
				q.Path, q.Tasks, q.Tasks+int64(wants.tasks-was.tasks), most, q.Path)
		}
	}
	return nil
}

// overheld reports whether ended jobs are to give way, because all jobs together are over a bound
// or they themselves over their share of the bytes.
func (s *State) overheld() bool {
	tasks, bytes := s.cfg.MaxTasks, s.cfg.MaxBytes
	return tasks > 0 && s.held.tasks > tasks || bytes > 0 &&
		(s.held.bytes > bytes || s.heldEnded.bytes > bytes/endedShare)
}

// crowded reports whether no task can be created before some of ended jobs are forgotten.
func (s *State) crowded() bool {
	return s.cfg.MaxTasks > 0 && s.made >= s.cfg.MaxTasks && (len(s.forgetting) > 0 || s.ended.len() > 0)
}

// setMessage gives a task another message, which is cut while the bytes are over their bound: a
// report is never refused for that.
func (s *State) setMessage(r Ref, text string) {
	if most := s.cfg.MaxBytes; most > 0 && s.held.bytes > most {
		text = cutTo(text, overMessage)
	}
	t := r.Task()
	s.holdTexts(r.Group.Job, len(text)-len(t.Message))
	t.Message = s.text(text)
}

// holdTexts counts n more bytes of texts of a job's tasks, fewer if n is negative.
func (s *State) holdTexts(j *Job, n int) {
	n *= tableShare
	j.texts += n
	j.held.bytes += n
	s.held.bytes += n
	if j.heldEnded {
		s.heldEnded.bytes += n
	}
}
