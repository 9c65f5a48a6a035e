package agent

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ledger holds the wanted and the present state of the node's tasks, and turns the difference into
// operations. Messages of the gateway and the supervisor are recorded in it. settle compares both
// states of each changed task. It does no I/O except for the renames of retire, and may be used by
// several goroutines.
type ledger struct {
	node  string
	root  string // parent of all tasks' directories
	trash string // retired directories, to be removed
	out   *outbox
	wake  chan struct{} // capacity 1: some task is to be settled

	trouble func(Trouble)

	mu struct {
		sync.Mutex

		// wanted has the assignments by task. It keeps the last complete list while the agent is
		// not connected.
		wanted *informer.Loader[assignment]
		// listed is true once wanted was complete. Before that, no task is settled.
		listed bool
		// connected is true while wanted is complete and its changes arrive. Only then attempts
		// are started, and ends inferred.
		connected bool

		// entries has the attempts by local name, in the order of attempts. No list is empty.
		entries map[string][]*entry
		// names has the local names in entries by task, in their order. No list is empty.
		names map[string][]string
		// places has the local names of assignments, by task.
		places map[string]place
		// synced is true while entries has all attempts of the supervisor and their changes arrive.
		// Only then tasks are settled.
		synced bool
		// known is true while every attempt that can run is in entries.
		known bool
		// seen has the attempts of the supervisor's present list. It is nil while synced.
		seen map[attemptKey]bool

		// repeat is true from the end of a list of assignments until reports were repeated for it.
		repeat bool

		// dirty has the tasks to settle, in the order of their change; isDirty has the same tasks.
		dirty   []string
		isDirty map[string]bool

		// ops has the waiting operations, in their order. busy is the number of operations under
		// way, at most maxOps but for evictions.
		ops  []op
		busy int
		// queued has the attempts with an opStart in ops.
		queued map[attemptKey]bool
		// discarded is the highest number in the trash.
		discarded uint64
		// ended has the attempts that have ended since the last call of takeEnded. Each is there
		// once.
		ended []keptAttempt

		// evicting has the stops that this node has decided on itself. They are repeated for a new
		// supervisor until the attempt has ended.
		evicting map[attemptKey]eviction
		// notes wait to be written.
		notes []note
		// version is raised at each change of a task. tasks is valid for one version.
		version uint64
		tasks   liveTaskCache
	}
}

// assignment is a task that the coordinator has bound to this node.
type assignment struct {
	want
	job    string
	uid    plimsoll.UID // of the job; zero: the gateway does not know it
	spec   plimsoll.GroupSpec
	owner  string
	queue  string
	labels map[string]string // of the job
}

// entry is the present state of an attempt that has left a trace on this node.
type entry struct {
	attempt int32
	phase   phase

	// stopping is true once a stop is queued for the supervisor. A failed stop resets it, and so
	// does a new list of the supervisor.
	stopping bool
	// ending is true if the supervisor reports that the attempt is being stopped.
	ending bool
	// void is true for an attempt that lives although its end was reported. It must be stopped.
	void bool
	// onDisk is true if the attempt's directory exists.
	onDisk bool
	// kept is true once the attempt was added to ended.
	kept bool

	// reported is the latest state that was reported. It never goes back.
	reported plimsoll.TaskState
	// started is the start in Unix nanoseconds; 0 before it.
	started int64
	// end is set if phase is phaseEnded or void is true.
	end plimsoll.TaskReport
	// confirmed is true if the supervisor itself has reported the end.
	confirmed bool
	// acked is true if the coordinator has acknowledged end.
	acked bool

	// worth is nil until it is known.
	worth *worth
	// noted is true if worth is on disk, or waits in notes.
	noted bool
}

// quiet reports whether nothing is left to be decided about an attempt that is no longer assigned.
func (e *entry) quiet() bool {
	return e.kept && (e.phase == phaseEnded && e.acked || e.phase == phaseOrphan)
}

type opKind uint8

const (
	opStart opKind = iota + 1
	opStop
	opForget
)

// op is one call to the supervisor.
type op struct {
	kind  opKind
	task  string // its local name
	start Start
	stop  Stop
	end   plimsoll.TaskReport // opForget
	mark  bool                // opForget: record in the attempt's directory that its end was acknowledged
	once  bool                // opStop: drop the eviction if the stop fails
}

// maxOps is the largest number of simultaneous calls to the supervisor.
const maxOps = 32

func newLedger(node, dir string, out *outbox, trouble func(Trouble)) *ledger {
	l := &ledger{
		node: node, root: filepath.Join(dir, "tasks"), trash: filepath.Join(dir, "trash"), out: out, trouble: trouble,
		wake: make(chan struct{}, 1),
	}
	l.mu.wanted = informer.NewLoader(informer.NewPlainIndexer[assignment]())
	l.mu.entries = map[string][]*entry{}
	l.mu.names = map[string][]string{}
	l.mu.places = map[string]place{}
	l.mu.isDirty = map[string]bool{}
	l.mu.queued = map[attemptKey]bool{}
	l.mu.evicting = map[attemptKey]eviction{}
	return l
}

func (l *ledger) attemptDir(key attemptKey) string {
	return filepath.Join(l.root, key.task, strconv.Itoa(int(key.attempt)))
}

func (l *ledger) notify() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *ledger) find(key attemptKey) *entry {
	for _, e := range l.mu.entries[key.task] {
		if e.attempt == key.attempt {
			return e
		}
	}
	return nil
}

func (l *ledger) ensure(key attemptKey) *entry {
	if e := l.find(key); e != nil {
		return e
	}
	e := &entry{attempt: key.attempt}
	entries := append(l.mu.entries[key.task], e)
	if len(entries) == 1 {
		task := executor.TaskOf(key.task)
		names := append(l.mu.names[task], key.task)
		slices.Sort(names)
		l.mu.names[task] = names
	}
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.attempt, b.attempt) })
	l.mu.entries[key.task] = entries
	return e
}

func (l *ledger) remove(key attemptKey) {
	rest := slices.DeleteFunc(l.mu.entries[key.task], func(e *entry) bool { return e.attempt == key.attempt })
	l.mu.entries[key.task] = rest
	if len(rest) > 0 {
		return
	}
	delete(l.mu.entries, key.task)
	task := executor.TaskOf(key.task)
	names := slices.DeleteFunc(l.mu.names[task], func(name string) bool { return name == key.task })
	if l.mu.names[task] = names; len(names) == 0 {
		delete(l.mu.names, task)
	}
}

// markDirty lets settle compare all lives of a task.
func (l *ledger) markDirty(name string) {
	task := executor.TaskOf(name)
	l.mu.version++
	if !l.mu.isDirty[task] {
		l.mu.isDirty[task] = true
		l.mu.dirty = append(l.mu.dirty, task)
	}
	l.notify()
}

// markAllDirty settles every task with something to decide, always in the same order.
func (l *ledger) markAllDirty() {
	wanted := l.mu.wanted.Index().Snapshot()
	tasks := make([]string, 0, wanted.Len())
	for task := range wanted.Keys() {
		tasks = append(tasks, task)
	}
	for name, entries := range l.mu.entries {
		if slices.ContainsFunc(entries, func(e *entry) bool { return !e.quiet() }) {
			tasks = append(tasks, executor.TaskOf(name))
		}
	}
	slices.Sort(tasks)
	for _, task := range slices.Compact(tasks) {
		l.markDirty(task)
	}
}

// restore records the state that an earlier agent left: directories on disk, and ends that no
// gateway has acknowledged.
func (l *ledger) restore(dirs []keptDir, ends []plimsoll.TaskReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range dirs {
		e := l.ensure(dirs[i].key)
		e.onDisk, e.phase, e.worth, e.noted = true, phaseOrphan, dirs[i].worth, dirs[i].worth != nil
		if dirs[i].end != nil {
			e.phase, e.acked, e.end, e.reported = phaseEnded, true, *dirs[i].end, plimsoll.TaskFinished
		}
	}
	for i := range ends {
		e := l.ensure(attemptKey{reportName(&ends[i]), ends[i].Attempt})
		e.phase, e.acked, e.end, e.reported = phaseEnded, false, ends[i], plimsoll.TaskFinished
	}
}

// disconnect records that changes of assignments no longer arrive. Running tasks run on, and no
// task is started.
func (l *ledger) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.connected = false
	l.mu.wanted.Drop()
}

// beginList announces a list of all assignments.
func (l *ledger) beginList() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.connected = false
	l.mu.wanted.Begin()
}

// assign records a part of the list, or changes to it. complete is true at the end of the list.
func (l *ledger) assign(changed []assignmentOf, removed []string, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changes := make([]informer.Change[assignment], 0, len(changed)+len(removed))
	for i := range changed {
		c := &changed[i]
		if err := c.validate(l.node); err != nil {
			l.trouble(Trouble{Kind: TroubleAssignment, Task: c.task, Err: err})
			continue
		}
		changes = append(changes, informer.Change[assignment]{Key: c.task, Object: c.assignment})
		l.markDirty(c.task)
	}
	for _, task := range removed {
		changes = append(changes, informer.Change[assignment]{Key: task, Deleted: true})
		delete(l.mu.places, task)
		l.markDirty(task)
	}
	listed := complete && l.mu.wanted.Listing()
	err := l.mu.wanted.Apply(changes, informer.Version{})
	if err == nil && listed {
		err = l.mu.wanted.Complete(informer.Version{})
	}
	if err != nil {
		l.trouble(Trouble{Kind: TroubleAssignment, Err: err})
		return
	}
	if listed {
		l.mu.connected, l.mu.listed, l.mu.repeat = true, true, true
		l.forgetPlaces()
		l.repeatReports()
		l.markAllDirty()
	}
}

// assignmentOf is an assignment with its task and node.
type assignmentOf struct {
	task string
	node string
	assignment
}

func (a *assignmentOf) validate(node string) error {
	if err := validateTaskID(a.task); err != nil {
		return err
	}
	switch {
	case a.node != node:
		return plimsoll.Invalid("node", "is %q, and this node is %q", a.node, node)
	case a.attempt < 1:
		return plimsoll.Invalid("attempt", "is %d; attempts count from 1", a.attempt)
	case len(a.spec.Command) == 0:
		return plimsoll.Invalid("command", "is empty")
	}
	return nil
}

// validateTaskID checks that an id is safe as the name of a directory.
func validateTaskID(id string) error {
	if job, group, _, ok := wire.SplitTaskID(id); ok && len(group) <= maxGroupName {
		if plimsoll.ValidateID("job", job) == nil && plimsoll.ValidateID("group", group) == nil {
			return nil
		}
	}
	return plimsoll.Invalid("task", "%q is not the id of a task; an id is job.group.index", id)
}

const maxGroupName = 63

// repeatReports sends reports again that the coordinator should have, but does not seem to. It does
// so once for each list of assignments, as soon as the list of the supervisor is complete too.
func (l *ledger) repeatReports() {
	if !l.mu.repeat || !l.mu.synced || !l.mu.connected {
		return
	}
	l.mu.repeat = false
	for task, w := range l.mu.wanted.Index().Snapshot().All() {
		name := l.placed(task, &w)
		e := l.find(attemptKey{name, w.attempt})
		switch {
		case e == nil:
		case e.phase == phaseEnded && e.acked:
			e.acked = false
			l.out.add(e.end)
		case e.phase == phaseLive && !e.void && e.reported == plimsoll.TaskRunning && w.state < plimsoll.TaskRunning:
			l.report(name, e, plimsoll.TaskRunning, e.started)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (l *ledger) report(name string, e *entry, state plimsoll.TaskState, at int64) {
	e.reported = max(e.reported, state)
	if !l.isForeign(name) {
		r := named(name, e.attempt)
		r.State, r.At = state, at
		l.out.add(r)
	}
}

// reportEnd reports the end of an attempt. Nobody waits for that of a foreign one.
func (l *ledger) reportEnd(name string, e *entry) {
	if !l.isForeign(name) {
		l.out.add(e.end)
		return
	}
	e.acked = true
	l.forget(name, e)
}

// acknowledged records that the coordinator has these reports.
func (l *ledger) acknowledged(reports []plimsoll.TaskReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range reports {
		r := &reports[i]
		name := reportName(r)
		e := l.find(attemptKey{name, r.Attempt})
		if r.State != plimsoll.TaskFinished || e == nil || e.acked || e.end != *r {
			continue
		}
		e.acked = true
		if e.phase == phaseEnded {
			l.forget(name, e)
		}
		l.markDirty(name)
	}
}

func (l *ledger) forget(name string, e *entry) {
	l.mu.ops = append(l.mu.ops, op{kind: opForget, task: name, end: e.end, mark: e.onDisk})
	l.notify()
}

// settle compares the wanted and the present state of each changed task, and returns the operations
// that may begin now. The caller must call done after each.
func (l *ledger) settle(now time.Time) []op {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.version++ // its decisions change the live tasks too
	if l.mu.synced {
		// Evictions do not wait for the assignments, because the node may exceed a waterline
		// without a network.
		l.settleEvictions()
	}
	if l.mu.synced && l.mu.listed {
		for _, task := range l.mu.dirty {
			delete(l.mu.isDirty, task)
			l.settleTask(task, now)
		}
		l.mu.dirty = l.mu.dirty[:0]
	}
	var ready []op
	for len(l.mu.ops) > 0 && l.mu.busy < maxOps {
		next := l.mu.ops[0]
		l.mu.ops = l.mu.ops[1:]
		if next.kind == opStart && !l.prepareStart(&next, now) {
			continue
		}
		l.mu.busy++
		ready = append(ready, next)
	}
	return ready
}

func (l *ledger) compare(name string) []action {
	var wanted *want
	if w, ok := l.wanted(name); ok {
		wanted = &w.want
	}
	var held []have
	for _, e := range l.mu.entries[name] {
		held = append(held, have{e.attempt, e.phase, e.stopping, e.void})
	}
	return reconcile(wanted, held)
}

// settleTask settles each life of a task that has left a trace here or is assigned.
func (l *ledger) settleTask(task string, now time.Time) {
	names := slices.Clone(l.mu.names[task])
	if w, ok := l.assigned(task); ok {
		if name := l.placed(task, &w); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		l.settleLife(name, now)
	}
}

func (l *ledger) settleLife(name string, now time.Time) {
	for _, a := range l.compare(name) {
		key := attemptKey{name, a.attempt}
		switch a.kind {
		case actionStart:
			if l.mu.connected && !l.mu.queued[key] && !l.isBusy(name) {
				l.mu.queued[key] = true
				l.mu.ops = append(l.mu.ops, op{kind: opStart, task: name, start: Start{Task: name, Attempt: a.attempt}})
			}
		case actionStop:
			l.find(key).stopping = true
			l.mu.ops = append(l.mu.ops, op{kind: opStop, task: name, stop: Stop{
				Task: name, Attempt: a.attempt, Grace: l.grace(name), Result: a.result, Message: a.message,
			}})
		case actionEnd:
			if l.mu.connected {
				l.inferEnd(key, a.result, a.message, now)
			}
		}
	}
	l.recordWorth(name)
	l.clean(name)
	l.noteEnded(name)
}

// grace returns the task's own grace, if the task is still assigned. Otherwise it returns 0, and
// the supervisor uses the grace from the start.
func (l *ledger) grace(name string) time.Duration {
	w, ok := l.wanted(name)
	if ok && w.spec.KillGrace <= 0 {
		return plimsoll.DefaultKillGrace
	}
	return w.spec.KillGrace
}

// inferEnd reports the end of an attempt that the supervisor does not know.
func (l *ledger) inferEnd(key attemptKey, result plimsoll.TaskResult, message string, now time.Time) {
	e := l.ensure(key)
	e.phase, e.acked, e.reported = phaseEnded, false, plimsoll.TaskFinished
	e.end = named(key.task, key.attempt)
	e.end.State, e.end.Result, e.end.ExitCode = plimsoll.TaskFinished, result, -1
	e.end.Message, e.end.At = message, now.UnixNano()
	l.reportEnd(key.task, e)
}

// clean drops attempts that have ended and left no directory.
func (l *ledger) clean(name string) {
	w, wanted := l.wanted(name)
	for _, e := range slices.Clone(l.mu.entries[name]) {
		if e.phase == phaseEnded && e.acked && !e.onDisk && (!wanted || w.attempt != e.attempt) {
			l.remove(attemptKey{name, e.attempt})
		}
	}
}

// prepareStart checks again whether a start is wanted when its turn has come, and fills it in.
func (l *ledger) prepareStart(o *op, now time.Time) bool {
	key := attemptKey{o.task, o.start.Attempt}
	delete(l.mu.queued, key)
	still := slices.ContainsFunc(l.compare(o.task), func(a action) bool {
		return a.kind == actionStart && a.attempt == key.attempt
	})
	if !still || !l.mu.connected || !l.mu.synced || l.isBusy(o.task) {
		l.markDirty(o.task)
		return false
	}
	w, _ := l.wanted(o.task)
	e := l.ensure(key)
	e.phase, e.worth = phaseStarting, w.worth()
	l.report(o.task, e, plimsoll.TaskStarting, now.UnixNano())
	o.start.ID, o.start.Job, o.start.Node, o.start.Spec, o.start.Owner = executor.TaskOf(o.task), w.job, l.node, w.spec, w.owner
	if tasks := w.spec.Constraints.VolumesFrom; len(tasks) > 0 {
		o.start.Spec.Constraints.VolumesFrom = l.volumes(tasks)
	}
	return true
}
