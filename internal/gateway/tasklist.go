package gateway

import (
	"cmp"
	"context"
	"encoding/binary"
	"iter"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// taskList is a list of tasks that a request asks for.
type taskList struct {
	criteria
	scope

	life      lifetime // of the job whose tasks are wanted
	names     bool     // life is set
	jobFilter criteria // of the tasks' jobs

	plain     bool // in the order of ids, with ids as cursors
	sort      pb.TaskSort
	ascending bool // with TASK_SORT_FINISHED
	limit     int
	count     bool
	mask      *wire.Mask
	uids      bool // the uids of the tasks' jobs are sent too
	hash      uint64
	after     string  // plain: the key behind which the list begins
	from      *cursor // nil: from the beginning
	pin       bool
}

// taskListOf checks a request for a list of tasks.
func taskListOf(g *Gateway, req *pb.ListTasksRequest) (l taskList, err error) {
	if l.limit, err = g.limit(req.GetLimit()); err != nil {
		return l, err
	}
	if l.criteria, err = taskCriteria(req); err != nil {
		return l, err
	}
	if err = l.period(req.GetSince(), req.GetUntil()); err != nil {
		return l, err
	}
	l.lastNode, l.uids = req.GetLastNode(), req.GetWithJobUids()
	l.scope = scopeOf(req.GetScope())
	l.jobFilter = criteria{
		owner: req.GetOwner(), queue: req.GetQueue(), labels: req.GetLabels(), ended: l.scope.ended,
	}
	if err = l.jobFilter.validate(); err != nil {
		return l, err
	}
	if l.mask, err = wire.CompileMask(taskFields, req.GetFields()); err != nil {
		return l, err //nolint:wrapcheck // it names the field
	}
	if l.names = req.GetJob() != "" || req.GetJobUid() != ""; l.names {
		if l.life, err = parseLifetime("job", req.GetJob(), "jobUid", req.GetJobUid()); err != nil {
			return l, err
		}
	}
	l.sort, l.ascending, l.count, l.pin = req.GetSort(), req.GetAscending(), req.GetCount(), req.GetPin()
	if l.sort == pb.TaskSort_TASK_SORT_FINISHED && l.archive {
		return l, plimsoll.Invalid("sort",
			"by the end is possible in the active scope only; list the jobs by their end instead")
	}
	l.plain = l.sort == pb.TaskSort_TASK_SORT_UNSPECIFIED && !l.archive && !l.pin && req.GetCursor() == ""
	if l.plain && !strings.HasPrefix(req.GetAfter(), cursorMark) { // as most lists are
		if req.GetAfter() != "" {
			l.after, err = taskKey("after", req.GetAfter())
		}
		return l, err
	}
	l.hash = l.hashFor(req)
	if l.plain {
		l.from, err = cursorOf(g, "after", req.GetAfter()[len(cursorMark):], listOfTasks, l.hash)
		return l, err
	}
	if req.GetAfter() != "" {
		return l, plimsoll.Invalid("after",
			"is possible only in a list without cursor, sort, pin and scope; give cursor")
	}
	l.from, err = cursorOf(g, "cursor", req.GetCursor(), listOfTasks, l.hash)
	return l, err
}

// hashFor returns the hash for the cursors of the list of a request.
func (l *taskList) hashFor(req *pb.ListTasksRequest) uint64 {
	asked := l.criteria
	asked.job = req.GetJob() // it may be known by its uid alone
	direction := uint64(0)
	if l.ascending {
		direction = 1
	}
	return asked.hashOf(
		uint64(listOfTasks), uint64(req.GetScope()), uint64(l.sort), direction, l.jobFilter.hashOf(),
		binary.BigEndian.Uint64(l.life.uid[:8]), binary.BigEndian.Uint64(l.life.uid[8:]),
	)
}

// inSnapshot reports whether the job of the list is certainly in the snapshot: the newest of its id
// is meant, and none leaves.
func (l *taskList) inSnapshot(s *replica.Snapshot) bool {
	if !l.life.uid.IsZero() || s.JobsLeaving() > 0 {
		return false
	}
	_, has := s.Get(wire.KindJobStatus, l.life.id)
	return has
}

// taskLook looks at the tasks of a snapshot for a list.
type taskLook struct {
	snapshot *replica.Snapshot
	want     *taskList
	job      jobLook // for the criteria of jobs
	ofJobs   bool    // jobs are looked at
	facts    bool    // records of tasks are looked at

	// The job of the last task.
	last    string
	lastMet bool
	lastUID plimsoll.UID
}

func (g *Gateway) lookAtTasks(s *replica.Snapshot, want *taskList) (*taskLook, error) {
	job, err := g.lookAtJobs(s, &want.jobFilter)
	if err != nil {
		return nil, err
	}
	l := &taskLook{snapshot: s, want: want, job: job, ofJobs: !job.all || want.uids}
	l.facts = want.restricts()
	return l, nil
}

// tasks yields tasks in the order of their keys, behind the key after. They hold all that meet the
// criteria.
func (l *taskLook) tasks(after string) iter.Seq2[string, []byte] {
	chosen := l.snapshot.TaskRange(l.want.tasks())
	if !l.want.jobFilter.restricts() || l.want.job != "" || chosen.Len() <= l.job.few {
		return chosen.After(after)
	}
	return func(yield func(string, []byte) bool) {
		for job := range l.snapshot.JobRange(l.want.jobFilter.jobs()).After(before(wire.JobOfTaskKey(after))) {
			for key, data := range l.snapshot.Tasks(replica.TaskCriteria{Job: job}, after) {
				if !yield(key, data) {
					return
				}
			}
		}
	}
}

// matches reports whether a task meets all criteria. The filter of a node passes the tasks that are
// on it now. It looks at the fields of the record, which it does not decode.
func (l *taskLook) matches(key string, data []byte) (bool, error) {
	if l.want.job != "" && !wire.IsTaskKeyOf(key, l.want.job) {
		return false, nil
	}
	if l.ofJobs {
		if met, err := l.jobOf(key); !met || err != nil {
			return false, err
		}
	}
	if !l.facts {
		return true, nil
	}
	looked, err := wire.LookAtTask(data)
	if err != nil {
		return false, undecodable(wire.KindTask, key, err)
	}
	return l.want.metBy(key, &looked), nil
}

// metBy reports whether a task meets the criteria of tasks.
func (l *taskList) metBy(key string, looked *wire.TaskFacts) bool {
	f := taskFacts(key, looked)
	return l.met(&f)
}

// jobOf looks at the job of a task, and reports whether it meets the criteria of jobs. The tasks of
// a job follow each other, so each job is looked at once.
func (l *taskLook) jobOf(key string) (met bool, err error) {
	if l.last != "" && wire.IsTaskKeyOf(key, l.last) {
		return l.lastMet, nil
	}
	l.last, l.lastMet = wire.JobOfTaskKey(key), false
	data, has := l.snapshot.Get(wire.KindJobStatus, l.last)
	if !has {
		return false, nil
	}
	facts, err := wire.LookAtJob(data)
	if err == nil {
		l.lastUID, err = facts.Lifetime()
	}
	if err != nil {
		return false, undecodable(wire.KindJobStatus, l.last, err)
	}
	_, l.lastMet = l.job.look(l.last, &facts)
	return l.lastMet, nil
}

// count counts the tasks of the snapshot that meet the criteria. atLeast reports that there may be
// more.
func (l *taskLook) count(ctx context.Context) (n int64, atLeast bool, err error) {
	if !l.ofJobs && !l.facts && l.want.job == "" {
		return int64(l.snapshot.Len(wire.KindTask)), false, nil
	}
	seen := 0
	for key, data := range l.tasks("") {
		if seen++; seen%lookEvery == 0 && ctx.Err() != nil {
			return 0, false, callerGone(ctx)
		}
		if seen > maxCounted {
			return n, true, nil
		}
		matches, err := l.matches(key, data)
		if err != nil {
			return 0, false, err
		}
		if matches {
			n++
		}
	}
	return n, false, nil
}

// taskPlace is the place of a task in a list.
type taskPlace struct {
	phase    uint8
	finished int64
	job      string
	uid      plimsoll.UID
	key      string
}

// place is the place of the last object before the cursor in a list of tasks.
func (c *cursor) taskPlace() taskPlace {
	return taskPlace{phase: c.phase, finished: c.finished, job: c.id, uid: c.uid, key: c.key}
}

// compare compares two places in the direction of the list.
func (l *taskList) compare(a, b taskPlace) int {
	finished := cmp.Compare(b.finished, a.finished)
	if l.ascending {
		finished = -finished
	}
	return cmp.Or(cmp.Compare(a.phase, b.phase), finished, strings.Compare(a.job, b.job),
		slices.Compare(a.uid[:], b.uid[:]), strings.Compare(a.key, b.key))
}
