package agent

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ledger holds what is wanted on this node and what is here, and turns the difference into
// operations. What arrives from the gateway and the supervisor is written into it; settle compares,
// one changed task at a time. It does no I/O except for the renames of retire, and may be used by
// several goroutines.
type ledger struct {
	node  string
	root  string // the directory of all tasks' directories
	trash string // where retired directories wait to be removed
	out   *outbox
	wake  chan struct{} // capacity 1: there is something to settle

	trouble func(Trouble)

	mu struct {
		sync.Mutex
		wanted    map[string]assignment
		fresh     map[string]assignment // the list that is being received; nil: none
		listed    bool                  // wanted was complete once; before that, nothing is decided
		connected bool                  // wanted is complete, and changes to it arrive
		entries   map[string][]*entry   // by task; in the order of attempts; never empty
		synced    bool                  // what the supervisor holds is in entries, and changes to it arrive
		known     bool                  // every attempt that can run is in entries
		seen      map[attemptKey]bool   // told by the supervisor since its watch began; nil: synced
		dirty     []string              // tasks to settle, in the order of their change
		isDirty   map[string]bool
		ops       []op // wait for their turn
		queued    map[attemptKey]bool
		busy      int // ops under way
		discarded uint64

		evicting map[attemptKey]eviction // stops that this node has decided on itself
		notes    []note                  // wait to be written
		version  uint64                  // raised at each change of a task
		tasks    residents
	}
}

// assignment is a task that the coordinator has bound to this node.
type assignment struct {
	want
	job    string
	spec   plimsoll.GroupSpec
	owner  string
	queue  string
	labels map[string]string // of the job
}

// entry is an attempt that has left a trace on this node.
type entry struct {
	attempt   int32
	phase     phase
	stopping  bool // we have asked the supervisor to stop it
	ending    bool // the supervisor has said that it is being stopped
	void      bool // it lives although its end was reported
	onDisk    bool // its directory is there
	confirmed bool // its end was told by the supervisor
	acked     bool // its end was acknowledged
	reported  plimsoll.TaskState
	started   int64
	worth     *worth              // nil: not known yet
	noted     bool                // worth is on disk, or about to be
	end       plimsoll.TaskReport // invariant: set if phase is phaseEnded or void is true
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
	task  string
	start Start
	stop  Stop
	end   plimsoll.TaskReport // opForget
	mark  bool                // opForget: note in the attempt's directory that its end was acknowledged
	once  bool                // opStop: give an eviction up if this fails
}

// maxOps is how many calls to the supervisor may be under way at a time.
const maxOps = 32

func newLedger(node, dir string, out *outbox, trouble func(Trouble)) *ledger {
	l := &ledger{
		node: node, root: filepath.Join(dir, "tasks"), trash: filepath.Join(dir, "trash"), out: out, trouble: trouble,
		wake: make(chan struct{}, 1),
	}
	l.mu.wanted = map[string]assignment{}
	l.mu.entries = map[string][]*entry{}
	l.mu.isDirty = map[string]bool{}
	l.mu.queued = map[attemptKey]bool{}
	l.mu.evicting = map[attemptKey]eviction{}
	return l
}

func (l *ledger) attemptDir(key attemptKey) string {
	return filepath.Join(l.root, key.task, strconv.Itoa(int(key.attempt)))
}

func (l *ledger) poke() {
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
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.attempt, b.attempt) })
	l.mu.entries[key.task] = entries
	return e
}

func (l *ledger) remove(key attemptKey) {
	rest := slices.DeleteFunc(l.mu.entries[key.task], func(e *entry) bool { return e.attempt == key.attempt })
	if len(rest) == 0 {
		delete(l.mu.entries, key.task)
		return
	}
	l.mu.entries[key.task] = rest
}

func (l *ledger) touch(task string) {
	l.mu.version++
	if !l.mu.isDirty[task] {
		l.mu.isDirty[task] = true
		l.mu.dirty = append(l.mu.dirty, task)
	}
	l.poke()
}

// touchAll settles every task. The order does not matter, but it is always the same.
func (l *ledger) touchAll() {
	tasks := make([]string, 0, len(l.mu.wanted)+len(l.mu.entries))
	for task := range l.mu.wanted {
		tasks = append(tasks, task)
	}
	for task := range l.mu.entries {
		tasks = append(tasks, task)
	}
	slices.Sort(tasks)
	for _, task := range slices.Compact(tasks) {
		l.touch(task)
	}
}

// restore enters what an earlier agent left: directories on disk, and ends that no gateway has
// acknowledged.
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
		e := l.ensure(attemptKey{ends[i].Task, ends[i].Attempt})
		e.phase, e.acked, e.end, e.reported = phaseEnded, false, ends[i], plimsoll.TaskFinished
	}
}

// disconnect says that changes to what is wanted no longer arrive. What runs goes on; nothing is
// started.
func (l *ledger) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.connected, l.mu.fresh = false, nil
}

// beginList says that a list of all that is wanted follows.
func (l *ledger) beginList() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.connected, l.mu.fresh = false, map[string]assignment{}
}

// assign enters a part of the list, or changes to it. complete says that the list has been sent.
func (l *ledger) assign(changed []assignmentOf, removed []string, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	into := l.mu.wanted
	if l.mu.fresh != nil {
		into = l.mu.fresh
	}
	for i := range changed {
		c := &changed[i]
		if err := c.validate(l.node); err != nil {
			l.trouble(Trouble{Kind: TroubleAssignment, Task: c.task, Err: err})
			continue
		}
		into[c.task] = c.assignment
		l.touch(c.task)
	}
	for _, task := range removed {
		delete(into, task)
		l.touch(task)
	}
	if complete && l.mu.fresh != nil {
		l.mu.wanted, l.mu.fresh, l.mu.connected, l.mu.listed = l.mu.fresh, nil, true, true
		l.repeat()
		l.touchAll()
	}
}

// assignmentOf is an assignment with the task that it is for.
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

// validateTaskID makes sure that an id is safe to use as the name of a directory.
func validateTaskID(id string) error {
	if job, group, _, ok := wire.SplitTaskID(id); ok && len(group) <= maxGroupName {
		if plimsoll.ValidateID("job", job) == nil && plimsoll.ValidateID("group", group) == nil {
			return nil
		}
	}
	return plimsoll.Invalid("task", "%q is not the id of a task; an id is job.group.index", id)
}

const maxGroupName = 63

// repeat reports again what the coordinator should know by now, but does not seem to.
func (l *ledger) repeat() {
	for _, task := range sortedKeys(l.mu.wanted) {
		w := l.mu.wanted[task]
		e := l.find(attemptKey{task, w.attempt})
		switch {
		case e == nil:
		case e.phase == phaseEnded && e.acked:
			e.acked = false
			l.out.add(e.end)
		case e.phase == phaseLive && !e.void && e.reported == plimsoll.TaskRunning && w.state < plimsoll.TaskRunning:
			l.report(task, e, plimsoll.TaskRunning, e.started)
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

func (l *ledger) report(task string, e *entry, state plimsoll.TaskState, at int64) {
	e.reported = max(e.reported, state)
	l.out.add(plimsoll.TaskReport{Task: task, Attempt: e.attempt, State: state, At: at})
}

// acknowledged notes that the coordinator has these reports.
func (l *ledger) acknowledged(reports []plimsoll.TaskReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range reports {
		r := &reports[i]
		e := l.find(attemptKey{r.Task, r.Attempt})
		if r.State != plimsoll.TaskFinished || e == nil || e.acked || e.end != *r {
			continue
		}
		e.acked = true
		if e.phase == phaseEnded {
			l.forget(r.Task, e)
		}
		l.touch(r.Task)
	}
}

func (l *ledger) forget(task string, e *entry) {
	l.mu.ops = append(l.mu.ops, op{kind: opForget, task: task, end: e.end, mark: e.onDisk})
	l.poke()
}

// settle compares what is wanted and what is here of each task that has changed, and returns the
// operations whose turn it is. Each of them must be followed by done.
func (l *ledger) settle(now time.Time) []op {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.version++ // what is decided here shows in residents too
	if l.mu.synced {
		// also before it is known what is wanted: a node that is over its line cannot wait for the
		// network
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
		if next.kind == opStart && !l.launch(&next, now) {
			continue
		}
		l.mu.busy++
		ready = append(ready, next)
	}
	return ready
}

func (l *ledger) compare(task string) []action {
	var wanted *want
	if w, ok := l.mu.wanted[task]; ok {
		wanted = &w.want
	}
	var held []have
	for _, e := range l.mu.entries[task] {
		held = append(held, have{e.attempt, e.phase, e.stopping, e.void})
	}
	return reconcile(wanted, held)
}

func (l *ledger) settleTask(task string, now time.Time) {
	for _, a := range l.compare(task) {
		key := attemptKey{task, a.attempt}
		switch a.kind {
		case actionStart:
			if l.mu.connected && !l.mu.queued[key] {
				l.mu.queued[key] = true
				l.mu.ops = append(l.mu.ops, op{kind: opStart, task: task, start: Start{Task: task, Attempt: a.attempt}})
			}
		case actionStop:
			l.find(key).stopping = true
			l.mu.ops = append(l.mu.ops, op{kind: opStop, task: task, stop: Stop{
				Task: task, Attempt: a.attempt, Grace: l.grace(task), Result: a.result, Message: a.message,
			}})
		case actionEnd:
			if l.mu.connected {
				l.makeUpEnd(key, a.result, a.message, now)
			}
		}
	}
	l.appraise(task)
	l.clean(task)
}

// grace is the task's own, if it is still known here; else 0, and the supervisor knows it.
func (l *ledger) grace(task string) time.Duration {
	w, ok := l.mu.wanted[task]
	if ok && w.spec.KillGrace <= 0 {
		return plimsoll.DefaultKillGrace
	}
	return w.spec.KillGrace
}

// makeUpEnd reports the end of an attempt that the supervisor cannot tell anything about.
func (l *ledger) makeUpEnd(key attemptKey, result plimsoll.TaskResult, message string, now time.Time) {
	e := l.ensure(key)
	e.phase, e.acked, e.reported = phaseEnded, false, plimsoll.TaskFinished
	e.end = plimsoll.TaskReport{
		Task: key.task, Attempt: key.attempt, State: plimsoll.TaskFinished, Result: result, ExitCode: -1,
		Message: message,
		At:      now.UnixNano(),
	}
	l.out.add(e.end)
}

// clean drops attempts that are over and have left nothing on the disk.
func (l *ledger) clean(task string) {
	w, wanted := l.mu.wanted[task]
	for _, e := range slices.Clone(l.mu.entries[task]) {
		if e.phase == phaseEnded && e.acked && !e.onDisk && (!wanted || w.attempt != e.attempt) {
			l.remove(attemptKey{task, e.attempt})
		}
	}
}

// launch looks again whether a start is wanted when its turn has come, and fills it in.
func (l *ledger) launch(o *op, now time.Time) bool {
	key := attemptKey{o.task, o.start.Attempt}
	delete(l.mu.queued, key)
	still := slices.ContainsFunc(l.compare(o.task), func(a action) bool {
		return a.kind == actionStart && a.attempt == key.attempt
	})
	if !still || !l.mu.connected || !l.mu.synced {
		l.touch(o.task)
		return false
	}
	w := l.mu.wanted[o.task]
	e := l.ensure(key)
	e.phase, e.worth = phaseStarting, w.worth()
	l.report(o.task, e, plimsoll.TaskStarting, now.UnixNano())
	o.start.Job, o.start.Node, o.start.Spec, o.start.Owner = w.job, l.node, w.spec, w.owner
	return true
}
