package state

import (
	"unsafe"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// The bounds on the tasks and bytes of all jobs together. A submit, or a scaling that adds tasks,
// is refused if it would go over a bound. After a load with lower bounds the jobs may be over one:
// they stay, and everything but submits and scaling up goes on. Ended jobs that the archive has
// make room: Forget deletes the oldest of them while all jobs together are over a bound.

const (
	tableShare = 2 // copies of a task's text in memory: in its row and in the replicated record
	// nameCopies is the number of copies of the names of job and group in memory for each task: in
	// the id, in the key, and two in the record.
	nameCopies  = 4
	usualNames  = 32                // bytes of both names that TaskMemory includes
	groupRow    = 256               // bytes of a group in the record of its job's status
	endedShare  = 2                 // ended jobs take at most one part in so many of the bytes
	overMessage = 64                // bytes of a task's message while the bytes are over their bound
	kept        = uint64(512) << 20 // bytes of memory that are not for tasks
)

// The names of the bounds. Each is the name of the flag that sets the bound.
const (
	TasksBound = "state-tasks"
	BytesBound = "state-bytes"
)

// TaskMemory is the number of bytes of memory that TasksWithin reserves for a task. Half of it is
// for the row, the record in the leader's tables, and a gateway's copy in the same process. The
// other half is for the garbage collector and for a load.
const TaskMemory = 1536

// UnknownMemory is the limit of memory that is assumed where none is known.
const UnknownMemory = 2 << 30

// TasksWithin returns the bound on tasks for a limit of memory. All but 512 MiB is for tasks. Of a
// limit of 1 GiB or less, half is for tasks.
func TasksWithin(limit uint64) int {
	room := limit / 2
	if limit > 2*kept {
		room = limit - kept
	}
	return int(room / TaskMemory)
}

// BytesWithin returns the bound on bytes for a limit of memory: an eighth. These bytes fit beside
// the tasks, which take about half of their TaskMemory. A load needs the other half, and copies no
// specifications.
func BytesWithin(limit uint64) int { return int(limit / 8) }

// NodeBytesWithin returns the bound on the bytes of all nodes' records: a 32nd of the limit of
// memory. In memory nodes take about five times as much.
func NodeBytesWithin(limit uint64) int { return int(limit / 32) }

// usage is the share of one or more jobs in the bounds.
type usage struct {
	tasks int // tasks that exist or are still to be created
	bytes int // bytes of memory of specifications and of the texts of tasks
}

func (h *usage) add(o usage, sign int) {
	h.tasks += sign * o.tasks
	h.bytes += sign * o.bytes
}

// Usage returns the number of tasks and the bytes of memory of all jobs. The tasks include those of
// ended jobs and those that are still to be created.
func (s *State) Usage() (tasks, bytes int) { return s.usage.tasks, s.usage.bytes }

// liveUsage returns the usage of the jobs that have not ended, and of those that wait for the
// archive.
func (s *State) liveUsage() usage {
	return usage{s.usage.tasks - s.usageGivable.tasks, s.usage.bytes - s.usageGivable.bytes}
}

// countUsage counts the usage of a job anew.
func (s *State) countUsage(j *Job) {
	s.uncountUsage(j)
	j.usage, j.countedGivable = j.usageWith(j.Spec), j.givable || j.forgetting
	s.usage.add(j.usage, 1)
	switch {
	case j.countedGivable:
		s.usageGivable.add(j.usage, 1)
	case !j.State.Ended():
		s.tree.Count(&j.account, int64(j.usage.tasks))
	}
}

// uncountUsage takes the usage of a job out of the sums.
func (s *State) uncountUsage(j *Job) {
	s.usage.add(j.usage, -1)
	if j.countedGivable {
		s.usageGivable.add(j.usage, -1)
	}
	j.usage, j.countedGivable = usage{}, false
}

// usageWith returns the usage of a job with a specification: its own, or a scaled one.
func (j *Job) usageWith(spec *plimsoll.JobSpec) usage {
	h := usage{bytes: j.memory + j.texts}
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

// fullUsage returns the usage of a job once all its tasks are created. memory comes from memoryOf.
func fullUsage(spec *plimsoll.JobSpec, memory int) usage {
	h := usage{bytes: memory}
	for i := range spec.Groups {
		n := int(spec.Groups[i].Count)
		h.tasks += n
		h.bytes += n * longNames(spec, &spec.Groups[i])
	}
	return h
}

// memoryOf returns the bytes of memory of a specification and the rows of its groups. encoded is
// the size of the specification's record.
func memoryOf(spec *plimsoll.JobSpec, encoded int) int {
	return size.Memory(spec) + encoded + int(unsafe.Sizeof(Job{})) + usualSteps*int(unsafe.Sizeof(plimsoll.JobStep{})) +
		len(spec.Groups)*(int(unsafe.Sizeof(Group{}))+groupRow)
}

// longNames returns the bytes of a task for long names of job and group, beyond TaskMemory.
func longNames(spec *plimsoll.JobSpec, g *plimsoll.GroupSpec) int {
	return nameCopies * max(0, len(spec.ID)+len(g.Name)-usualNames)
}

// checkUsage reports whether the bounds have room for a job whose usage changes from was to wants.
// It looks at the bounds on all jobs and at those of the job's queue and the queues above.
func (s *State) checkUsage(leaf *queue.Queue, was, wants usage) error {
	live := s.liveUsage()
	if most := s.cfg.MaxTasks; most > 0 && live.tasks-was.tasks+wants.tasks > most {
		return plimsoll.Errorf(plimsoll.CodeExhausted,
			"%s: jobs that have not ended%s have %d tasks, and this would make it %d; at most %d are possible; wait until jobs have ended, kill some, or start the coordinator with a higher --%s",
			TasksBound, s.orWait(), live.tasks, live.tasks-was.tasks+wants.tasks, most, TasksBound)
	}
	if most := s.cfg.MaxBytes; most > 0 && live.bytes-was.bytes+wants.bytes > most {
		return plimsoll.Errorf(plimsoll.CodeExhausted,
			"%s: jobs that have not ended%s take %d bytes of memory, and this would make it %d; at most %d are possible; wait until jobs have ended, kill some, or start the coordinator with a higher --%s",
			BytesBound, s.orWait(), live.bytes, live.bytes-was.bytes+wants.bytes, most, BytesBound)
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

// overBounds reports whether ended jobs are to be deleted early: all jobs together are over a
// bound, or ended jobs are over their share of the bytes.
func (s *State) overBounds() bool {
	tasks, bytes := s.cfg.MaxTasks, s.cfg.MaxBytes
	return tasks > 0 && s.usage.tasks > tasks || bytes > 0 &&
		(s.usage.bytes > bytes || s.usageGivable.bytes > bytes/endedShare)
}

// atTaskBound reports whether tasks of ended jobs must be deleted before a task can be created.
// Those of jobs that wait for the archive cannot be. They hold no accepted job up: it would stand
// for as long as the archive has trouble. So after a restart or a deletion the tasks of such jobs
// may come on top of Config.MaxTasks.
func (s *State) atTaskBound() bool {
	return s.cfg.MaxTasks > 0 && s.taskCount >= s.cfg.MaxTasks && (len(s.forgetting) > 0 || s.hasGivable())
}

// setMessage sets the message of a task. While the bytes are over their bound the message is cut; a
// report is never refused.
func (s *State) setMessage(r Ref, text string) {
	if most := s.cfg.MaxBytes; most > 0 && s.usage.bytes > most {
		text = cutTo(text, overMessage)
	}
	t := r.Task()
	s.countTexts(r.Group.Job, len(text)-len(t.Message))
	t.Message = s.text(text)
}

// countTexts adds n bytes of texts of a job's tasks to the sums; n may be negative.
func (s *State) countTexts(j *Job, n int) {
	n *= tableShare
	j.texts += n
	j.usage.bytes += n
	s.usage.bytes += n
	if j.countedGivable {
		s.usageGivable.bytes += n
	}
}
