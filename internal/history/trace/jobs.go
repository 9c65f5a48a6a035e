package trace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
)

// job is a life of a job id.
type job struct {
	id, name     string // name: in the workload
	uid          plimsoll.UID
	owner, queue string
	accepted     bool  // its first tasks are all asked for
	killed       int64 // from the beginning of the window; 0: it was not
	open         int   // tasks that are wanted
	arrivals     []*arrival
	groups       []*group
}

// arrival is a part of a job that comes at one time. A job has further ones for groups that come
// later.
type arrival struct {
	job    *job
	at     int64 // from the beginning of the window, as are the times of the scales
	groups []*group
	scales []simulate.Scale
}

// group is a group of tasks, in the order in which they were met.
type group struct {
	name      string
	of        *arrival
	resources plimsoll.Resources
	later     int32
	tasks     []task
	places    map[int32]int32 // of indexes that are not their own place; nil: there are none
}

// task is a task of a group.
type task struct {
	requested int64 // 0: not known
	since     int64 // of the attempt that runs; 0: none does
	wait      int64 // up to its first attempt, or one of the values below
	attempts  []simulate.Attempt
	done      bool // it is not wanted any more
}

// Values of task.wait. waits becomes a wait with the first attempt.
const (
	waits  = simulate.StillWaits
	noWait = simulate.NoWait
)

// noWaitIfOpen says that a wait that has not ended is not known any more.
func noWaitIfOpen(wait int64) int64 {
	if wait == waits {
		return noWait
	}
	return wait
}

type place struct {
	group string
	index int32
}

func (p *reading) newJob(id string, uid plimsoll.UID) *job {
	j := &job{id: id, uid: uid, name: p.names.free(id)}
	p.jobs[id] = j
	p.all = append(p.all, j)
	return j
}

// arrive adds a part to a job.
func (j *job) arrive(at int64) *arrival {
	a := &arrival{job: j, at: at}
	j.arrivals = append(j.arrivals, a)
	return a
}

// group returns a group of the job by its name, or nil.
func (j *job) group(name string) *group {
	for _, g := range j.groups {
		if g.name == name {
			return g
		}
	}
	return nil
}

// groupOf returns a group, and adds it to a part of the job if there is none.
func (j *job) groupOf(a *arrival, name string, r plimsoll.Resources) *group {
	if g := j.group(name); g != nil {
		return g
	}
	g := &group{name: name, of: a, resources: maps.Clone(r)}
	j.groups, a.groups = append(j.groups, g), append(a.groups, g)
	return g
}

// add adds a task, which has no known wait yet.
func (p *reading) add(g *group, index int32) *task {
	if n := int32(len(g.tasks)); index != n || g.places != nil {
		if g.places == nil {
			g.places = map[int32]int32{}
			for i := range n {
				g.places[i] = i
			}
		}
		g.places[index] = n
	}
	g.tasks = append(g.tasks, task{wait: noWait})
	p.tasks++
	g.of.job.open++
	return &g.tasks[len(g.tasks)-1]
}

// task returns a task by its index, or nil.
func (g *group) task(index int32) *task {
	if g.places != nil {
		n, ok := g.places[index]
		if !ok {
			return nil
		}
		index = n
	}
	if index < 0 || int(index) >= len(g.tasks) {
		return nil
	}
	return &g.tasks[index]
}

// place returns where a task is in the list.
func (g *group) place(index int32) int32 {
	if g.places != nil {
		return g.places[index]
	}
	return index
}

// indexes returns the indexes of all tasks, sorted.
func (g *group) indexes() []int32 {
	if g.places != nil {
		return sortedKeys(g.places)
	}
	list := make([]int32, len(g.tasks))
	for i := range list {
		list[i] = int32(i)
	}
	return list
}

// scale asks for all tasks of a group that are known at a time.
func (a *arrival) scale(at int64, g *group) { a.scaleTo(at, g, int32(len(g.tasks)), false) }

// scaleTo changes how many tasks of a group are wanted. Of two changes at one time the later holds;
// with lower, the lower one.
func (a *arrival) scaleTo(at int64, g *group, count int32, lower bool) {
	for i := len(a.scales) - 1; i >= 0 && a.scales[i].At == at; i-- {
		if s := &a.scales[i]; s.Group == g.name {
			if !lower || count < s.Count {
				s.Count = count
			}
			return
		}
	}
	a.scales = append(a.scales, simulate.Scale{At: at, Group: g.name, Count: count})
}

// request notes that a task is wanted.
func (p *reading) request(j *job, name string, index int32, r plimsoll.Resources) *task {
	g := j.group(name)
	if g == nil {
		var a *arrival
		if n := len(j.arrivals); n > 0 && (!j.accepted || j.arrivals[n-1].at == p.rel()) {
			a = j.arrivals[n-1]
		} else {
			a = j.arrive(p.rel())
		}
		g = j.groupOf(a, name, r)
	}
	if t := g.task(index); t != nil { // it was stopped, and is wanted again
		if t.done {
			t.done = false
			j.open++
			g.of.scaleTo(p.rel(), g, g.place(index)+1, false)
		}
		return t
	}
	t := p.add(g, index)
	t.requested, t.wait = p.now, waits
	if j.accepted && g.of.at != p.rel() {
		g.later++
		g.of.scale(p.rel(), g)
	}
	return t
}

// allocate notes that a task has a node.
func (p *reading) allocate(t *task) {
	if t.since = p.now; t.wait == waits {
		t.wait = p.now - t.requested
	}
}

// endAttempt notes that an attempt ended with a result.
func (p *reading) endAttempt(t *task, result plimsoll.TaskResult) {
	p.attempt(t, simulate.Attempt{Runtime: max(p.now-t.since, 1), Result: result})
	t.since = 0
}

// stopAttempt notes an attempt that does not end by itself.
func (p *reading) stopAttempt(t *task) {
	p.attempt(t, simulate.Attempt{Result: plimsoll.ResultSucceeded})
	t.since = 0
}

func (p *reading) attempt(t *task, a simulate.Attempt) {
	if len(t.attempts) > 0 {
		p.trace.Counts.Again++
	}
	t.attempts = append(t.attempts, a)
	p.attempts++
}

// names gives jobs names that no other has.
type names map[string]bool

func (n names) free(id string) string {
	name := id
	for i := 2; n[name] || plimsoll.ValidateID("job", name) != nil; i++ {
		name = fmt.Sprintf("life-%d", len(n)+i)
	}
	n[name] = true
	return name
}

func compare(a, b int64) int { return cmp.Compare(a, b) }

// sortedKeys returns the keys of a map in their order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := slices.AppendSeq(make([]K, 0, len(m)), maps.Keys(m))
	slices.Sort(keys)
	return keys
}
