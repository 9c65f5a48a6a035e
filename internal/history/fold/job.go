package fold

import (
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// job is a life of a job id.
type job struct {
	history.Job
	labels string // history.EncodeLabels of Labels
	headed bool   // UID, Owner, Queue and Labels are known
	// early says that the life is older than the fold: a list has shown it, or an event before that
	// which takes it in. So tasks that are unknown may have been there.
	early  bool
	queued bool // its queue counts it
	gone   bool // it was removed
	owed   bool // it is in Fold.owedJobs, and was not told since
	groups []*group
	tasks  int32 // of all groups

	listed uint64 // number of the call that has listed it as an object
	told   uint64 // the same, as a job
	rowOf  uint64 // the same, in a rollup
	row    int    // that rollup
	number int    // in the encoded fold
}

// group is a group of tasks of a job, which have the same resources.
type group struct {
	job     *job
	name    string
	amounts []amount
	tasks   map[int32]task // that are wanted, by their index
	running int32          // allocations that are counted
	counted int64          // up to when they were
	number  int            // in the encoded fold

	before, next *group // in Fold.open
}

// task is a task that is wanted.
type task struct {
	requested int64 // 0: not known
	since     int64 // of the allocation
	node      *node // of the allocation
	result    plimsoll.TaskResult
	flags
}

type flags uint8

const (
	allocated flags = 1 << iota
	placed          // it had an allocation since it was requested, so its wait has ended
	listed          // a list has shown it, and no event of an allocation since
	ahead           // the allocation is one of Fold.ahead, and is not counted yet
	allFlags  = allocated | placed | listed | ahead
)

func (t *task) is(f flags) bool { return t.flags&f != 0 }

// place names a task.
type place struct {
	group *group
	index int32
}

func (j *job) group() history.Group {
	return history.Group{Life: j.Life, Owner: j.Owner, Queue: j.Queue, Labels: j.labels}
}

// rowBytes counts a rollup of the job as history.Batch.Bytes does, without its use.
func (j *job) rowBytes() int { return len(j.Owner) + len(j.Queue) + len(j.labels) + 88 }

// learn takes over the facts of a job that its first event, or a list, has.
func (f *Fold) learn(j *job, head *history.Job) {
	f.bytes -= j.textBytes()
	j.headed = true
	j.UID, j.Owner, j.Labels = head.UID, f.text(head.Owner), head.Labels
	if head.Queue != "" {
		j.Queue = f.text(head.Queue)
	}
	if j.Labels == nil {
		j.Labels = map[string]string{}
	}
	if head.Submitted != 0 {
		j.Submitted = head.Submitted
	}
	j.labels = history.EncodeLabels(j.Labels)
	f.bytes += j.textBytes()
}

// textBytes is about what the texts of a job take.
func (j *job) textBytes() int { return len(j.ID) + 4*len(j.labels) }

// takeIn begins a life.
func (f *Fold) takeIn(e *plimsoll.Event) {
	j := f.jobs[e.Object]
	switch {
	case j == nil:
		f.lives++
		j = f.newJob(e.Object, f.lives, e.Time)
	case j.early: // a list has shown the job that this event takes in
		f.clear(j)
		j.early, j.queued, j.State, j.Ended = false, false, 0, 0
	default:
		f.unexpected()
		f.remove(j)
		f.lives++
		j = f.newJob(e.Object, f.lives, e.Time)
	}
	if h := e.Head; h != nil { // the event of an older version has none
		f.learn(j, &history.Job{UID: h.UID, Owner: h.Owner, Labels: h.Labels, Submitted: h.UID.Submitted()})
	}
	f.tellJob(j)
}

// newJob adds a life.
func (f *Fold) newJob(id string, life, submitted int64) *job {
	id = strings.Clone(id)
	j := &job{Job: history.Job{Life: life, ID: id, Submitted: submitted}}
	f.jobs[id] = j
	f.bytes += jobBytes + j.textBytes()
	return j
}

// remove ends a life.
func (f *Fold) remove(j *job) {
	f.clear(j)
	delete(f.jobs, j.ID)
	j.gone = true
	f.bytes -= jobBytes + j.textBytes()
}

// clear removes the tasks of a job. Their allocations end.
func (f *Fold) clear(j *job) {
	for _, g := range j.groups {
		f.run(g, -g.running)
		for _, index := range sortedKeys(g.tasks) {
			if n := g.tasks[index].node; n != nil {
				n.tasks--
			}
		}
		f.bytes -= groupBytes + taskBytes*len(g.tasks)
		g.tasks = nil
	}
	j.groups, j.tasks = nil, 0
}

// known returns a job. One that is unknown is older than the fold, and was gone when the lists
// were read.
func (f *Fold) known(id string, at int64) *job {
	if j := f.jobs[id]; j != nil {
		return j
	}
	f.unexpected()
	f.lives++
	j := f.newJob(id, f.lives, at)
	j.early = true
	f.tellJob(j)
	return j
}

// refuses reports whether an event says that a job was refused.
func refuses(e *plimsoll.Event) bool {
	return e.Type == plimsoll.EventApp && e.Detail == plimsoll.AppReject
}

// refusable reports whether a refusal can be about the job: nothing but its first event was told.
// Otherwise another job has its id.
func (j *job) refusable() bool { return j != nil && j.State == 0 && j.tasks == 0 && !j.early }

// app applies an event of a job, but for its first one.
func (f *Fold) app(e *plimsoll.Event) {
	if e.Object == "" {
		return
	}
	j := f.jobs[e.Object]
	switch {
	case history.Begins(e):
	case refuses(e):
		if j.refusable() {
			j.State, j.Ended = e.Detail, e.Time
			f.remove(j)
			f.tellJob(j)
		}
	case e.Change == plimsoll.ChangeSet:
		f.setState(j, e)
	case e.Change == plimsoll.ChangeRemove && e.Detail == plimsoll.DetailNone:
		if j.tasks > 0 && !j.early {
			f.unexpected()
		}
		if j.early && j.Submitted > e.Time { // the list has shown a later job with the id
			j.UID = plimsoll.UID{}
		}
		f.remove(j)
		f.tellJob(j)
	default:
		f.task(j, e)
	}
}

func (f *Fold) setState(j *job, e *plimsoll.Event) {
	if j.State == e.Detail {
		f.unexpected()
	}
	switch j.State = e.Detail; e.Detail {
	case plimsoll.AppCompleted, plimsoll.AppFailed:
		j.Ended = e.Time
	case plimsoll.AppExpired:
	default:
		j.Ended = 0
	}
	f.tellJob(j)
}

// task applies an event of a task of a job.
func (f *Fold) task(j *job, e *plimsoll.Event) {
	id, name, index, ok := SplitTask(e.Reference)
	if !ok || id != j.ID {
		f.unexpected()
		return
	}
	g := f.groupOf(j, name, e.Resources)
	t, known := g.tasks[index]
	if !known && j.early {
		t.flags = listed
	}
	p := place{g, index}
	switch e.Detail {
	case plimsoll.AppRequest:
		if e.Change == plimsoll.ChangeAdd {
			f.request(p, t, known)
		} else {
			f.finish(p, t, known)
		}
	case plimsoll.RequestCancel, plimsoll.RequestTimeout:
		t.result = plimsoll.ResultNone
		f.finish(p, t, known)
	case plimsoll.AppAlloc:
		f.allocate(p, t, known)
	case plimsoll.AllocCancel, plimsoll.AllocTimeout, plimsoll.AllocPreempt, plimsoll.AllocReplaced,
		plimsoll.AllocNodeRemoved:
		t.result, _ = plimsoll.ParseTaskResult(e.Message)
		f.release(p, t, known)
	}
}

// request notes that a task is wanted.
func (f *Fold) request(p place, t task, known bool) {
	if known && !p.group.job.early {
		f.unexpected()
	}
	f.stop(p.group, &t)
	t.leaveNode()
	t.requested, t.result, t.flags = f.clock, plimsoll.ResultNone, 0
	f.put(p, t, known)
}

// finish notes that a task is wanted no more.
func (f *Fold) finish(p place, t task, known bool) {
	if !known || t.is(allocated) {
		f.unexpected()
	}
	f.stop(p.group, &t)
	row := f.row(p.group.job, f.clock)
	row.sums.Ended++
	if t.result != plimsoll.ResultSucceeded {
		row.sums.Failed++
	}
	if !known {
		return
	}
	t.leaveNode()
	delete(p.group.tasks, p.index)
	p.group.job.tasks--
	f.bytes -= taskBytes
}

// allocate notes that a task has a node.
func (f *Fold) allocate(p place, t task, known bool) {
	again := t.is(allocated) && !t.is(ahead) // a list has shown it, and it is counted
	if again || !known {
		f.unexpected()
	}
	row := f.row(p.group.job, f.clock)
	row.sums.Started++
	if !t.is(placed) && t.requested != 0 {
		was := len(row.sums.Waits.Buckets)
		row.sums.Waits.Note(f.clock - t.requested)
		f.batch.spent += 10 * (len(row.sums.Waits.Buckets) - was)
	}
	if !again {
		f.run(p.group, 1)
		t.since = f.clock
	}
	t.flags = allocated | placed
	f.put(p, t, known)
}

// release notes that a task has its node no more. If no event has told the allocation, it is older
// than the fold: the one that a list may have shown is another, or the same.
func (f *Fold) release(p place, t task, known bool) {
	switch {
	case t.is(allocated) && !t.is(ahead):
		f.run(p.group, -1)
	case t.is(listed):
		f.use(span{p.group.job, p.group.amounts, 1, f.since, f.clock})
	default:
		f.unexpected()
	}
	t.flags = placed
	f.put(p, t, known)
}

// stop ends the allocation of a task, if it is counted.
func (f *Fold) stop(g *group, t *task) {
	if t.is(allocated) && !t.is(ahead) {
		f.run(g, -1)
	}
	t.flags &^= allocated | ahead
}

// put keeps a task.
func (f *Fold) put(p place, t task, known bool) {
	p.group.tasks[p.index] = t
	if !known {
		p.group.job.tasks++
		f.bytes += taskBytes
	}
}

// groupOf returns a group of a job. One that has other resources than an event says gets those.
func (f *Fold) groupOf(j *job, name string, r plimsoll.Resources) *group {
	i := slices.IndexFunc(j.groups, func(g *group) bool { return g.name == name })
	if i < 0 {
		g := &group{job: j, name: f.text(name), amounts: f.amountsOf(r), tasks: map[int32]task{}}
		j.groups = append(j.groups, g)
		f.bytes += groupBytes
		return g
	}
	g := j.groups[i]
	if !sameAmounts(g.amounts, r) {
		f.unexpected()
		f.count(g)
		f.open.remove(g)
		if g.amounts = f.amountsOf(r); g.running > 0 {
			f.open.add(g)
		}
	}
	return g
}

// SplitTask splits the id of a task into that of its job, the name of its group and its index. An
// index that no job has is refused.
func SplitTask(id string) (job, group string, index int32, ok bool) {
	last := strings.LastIndexByte(id, '.')
	if last < 0 {
		return "", "", 0, false
	}
	digits := id[last+1:]
	if digits == "" || len(digits) > 7 || digits[0] == '0' && len(digits) > 1 {
		return "", "", 0, false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return "", "", 0, false
		}
		index = index*10 + int32(digits[i]-'0')
	}
	dot := strings.LastIndexByte(id[:last], '.')
	if dot < 1 || dot+1 == last || index >= plimsoll.MaxTasksPerJob {
		return "", "", 0, false
	}
	return id[:dot], id[dot+1 : last], index, true
}
