package engine_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	historyfold "github.com/plimsoll-dev/plimsoll/internal/history/fold"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// Random histories, over crashes of the leader. After every turn the fold of the events is the
// state. It has counted as much usage as the test, which looks at the tasks on the nodes. A fold
// that is encoded and decoded goes on as the other does. The state at an instant is the one of
// then. A fold that begins late, and one that has missed events, comes to the same state.
func TestRandomHistories(t *testing.T) {
	seed := testrun.Seed(t)
	for i := range uint64(testrun.Count(3, 20, 1_000)) {
		t.Run(strconv.FormatUint(i, 10), func(t *testing.T) {
			if !testrun.Quick() {
				t.Parallel()
			}
			w := newWorld(t, seed+i, state.Limits{})
			w.told = newTold(w, seed+i)
			steps := testrun.Count(150, 5_000, 5_000)
			w.every = testrun.Count(0, 16, 4) // a check in full costs as much as ten steps
			for step := range steps {
				w.step()
				if w.rng.IntN(300) == 0 {
					w.restart(seed + uint64(step))
				}
			}
			w.told.checkUsage()
			if w.told.late.done == 0 || w.told.missing.done == 0 || w.told.looked == 0 {
				t.Fatalf("the test tests little: %d late folds, %d gaps, %d looks at the past", w.told.late.done,
					w.told.missing.done, w.told.looked)
			}
		})
	}
}

// told holds a fold of all events, and the facts that the test has seen itself.
type told struct {
	w    *world
	rng  *rand.Rand
	fold *historyfold.Fold
	twin *historyfold.Fold // decoded from the fold's state; nil: none is compared

	first  int // number of the first event of events
	events []plimsoll.Event
	since  []plimsoll.Event // since the fold was compared last
	points []point
	looked int

	lives map[int64]history.Job // as they were told last
	used  sums                  // by the fold
	seen  sums                  // by the test
	open  map[string]opened     // tasks on nodes, by their ids

	requests map[string]int64  // newest request of each task
	waiting  map[string]bool   // tasks that had no allocation since
	results  map[string]string // of the last attempt of each task
	counted  history.Sums      // by the fold, without usage
	counts   history.Sums      // by the test, the same

	late, missing lateFold
}

// slot names a sum of usage.
type slot struct {
	uid      plimsoll.UID
	hour     int64
	resource string
}

type sums map[slot]*big.Int

func (s sums) add(at slot, amount *big.Int) {
	if s[at] == nil {
		s[at] = new(big.Int)
	}
	s[at].Add(s[at], amount)
}

func (s sums) of(at slot) *big.Int {
	if s[at] == nil {
		return new(big.Int)
	}
	return s[at]
}

// opened is an attempt of a task on a node.
type opened struct {
	uid       plimsoll.UID
	attempt   int32
	since     int64
	resources plimsoll.Resources
}

// point is an instant at which the state was recorded. Some have the fold too.
type point struct {
	next  int // number of the next event
	time  int64
	view  *historyfold.View
	tasks []historyfold.Task
	fold  []byte
}

func newTold(w *world, seed uint64) *told {
	return &told{
		w: w, rng: rand.New(rand.NewPCG(seed, 3)), fold: historyfold.New(),
		lives: map[int64]history.Job{}, used: sums{}, seen: sums{}, open: map[string]opened{},
		requests: map[string]int64{}, waiting: map[string]bool{}, results: map[string]string{},
		missing: lateFold{gap: true},
	}
}

// turn follows a turn of the engine, and compares the fold with the state if full is set.
func (k *told) turn(full bool) {
	if k == nil {
		return
	}
	made := slices.Clone(k.w.out.Changes.Events)
	k.apply(made)
	k.events = append(k.events, made...)
	k.observe()
	if k.since = append(k.since, made...); !full {
		return
	}
	events := k.since
	k.since = nil
	view, tasks := stateView(k.w)
	k.compare("the fold", k.fold, view, tasks, false)
	k.record(view, tasks)
	k.late.turn(k, events, view, tasks)
	k.missing.turn(k, events, view, tasks)
	if k.rng.IntN(50) == 0 {
		k.checkUsage()
	}
}

func jobOf(j *state.Job) history.Job {
	return history.Job{
		UID: j.UID, Owner: j.Spec.Owner, Queue: j.Spec.Queue, Labels: j.Spec.Labels, Submitted: j.Submitted,
	}
}

// apply applies events to the fold and to its twin, and adds up what follows from them.
func (k *told) apply(events []plimsoll.Event) {
	for len(events) > 0 {
		n := 1 + k.rng.IntN(len(events))
		r := k.fold.Apply(events[:n])
		if r.Unexpected > 0 {
			k.w.t.Fatalf("%d events cannot be after those before them: %s", r.Unexpected, r.Example)
		}
		k.add(&r)
		if k.twin != nil {
			if again := k.twin.Apply(events[:n]); !reflect.DeepEqual(r, again) {
				k.w.t.Fatalf("a decoded fold makes something else of events:\n%s", cmp.Diff(r, again))
			}
		}
		for i := range events[:r.Taken] {
			k.countEvent(&events[i])
		}
		events = events[r.Taken:]
	}
	if k.rng.IntN(20) > 0 {
		return
	}
	bytes1 := k.fold.AppendState(nil)
	if k.twin != nil && !bytes.Equal(bytes1, k.twin.AppendState(nil)) {
		k.w.t.Fatal("a decoded fold goes on to another state")
	}
	var err error
	if k.twin, err = historyfold.Decode(bytes1); err != nil {
		k.w.t.Fatalf("decode: %v", err)
	}
	if k.twin.Memory() != k.fold.Memory() {
		k.w.t.Fatalf("a fold of %d bytes has %d when it is decoded", k.fold.Memory(), k.twin.Memory())
	}
}

func (k *told) countEvent(e *plimsoll.Event) {
	task := e.Reference
	switch {
	case e.Type != plimsoll.EventApp || task == "":
	case e.Change == plimsoll.ChangeAdd && e.Detail == plimsoll.AppRequest:
		k.requests[task], k.waiting[task] = e.Time, true
	case e.Change == plimsoll.ChangeAdd && e.Detail == plimsoll.AppAlloc:
		k.counts.Started++
		if k.waiting[task] {
			k.counts.Waits.Note(e.Time - k.requests[task])
			delete(k.waiting, task)
		}
	case e.Detail == plimsoll.AppRequest || e.Detail == plimsoll.RequestCancel:
		k.counts.Ended++
		if e.Detail == plimsoll.RequestCancel || k.results[task] != plimsoll.ResultSucceeded.String() {
			k.counts.Failed++
		}
	default:
		k.results[task] = e.Message
	}
}

func (k *told) add(r *historyfold.Result) {
	for _, j := range r.Jobs {
		k.lives[j.Life] = j
	}
	addRollups(k.used, r, k.lives)
	for i := range r.Rollups {
		sums := r.Rollups[i].Sums
		sums.Used = nil
		k.counted.Add(&sums)
	}
}

func addRollups(to sums, r *historyfold.Result, lives map[int64]history.Job) {
	for i := range r.Rollups {
		row := &r.Rollups[i]
		for name, a := range row.Sums.Used {
			amount := new(big.Int).Lsh(new(big.Int).SetUint64(a.High), 64)
			amount.Add(amount, new(big.Int).SetUint64(a.Low))
			to.add(slot{lives[row.Group.Life].UID, row.Hour, name}, amount)
		}
	}
}

// observe notes which tasks are on nodes. It counts the use of those that are not any more.
func (k *told) observe() {
	now := map[string]opened{}
	eachTask(k.w, func(j *state.Job, r state.Ref) {
		if t := r.Task(); t.State.OnNode() {
			now[t.ID] = opened{j.UID, t.Attempt, t.Bound, r.Group.Spec.Resources}
		}
	})
	for id, o := range k.open {
		if is, there := now[id]; !there || is.uid != o.uid || is.attempt != o.attempt {
			o.use(k.seen, k.w.now)
		}
	}
	k.open = now
}

// use adds the use of an attempt up to a time.
func (o *opened) use(to sums, until int64) {
	const hour = 3600e9
	for from := o.since; from < until; {
		end := min(until, (from/hour+1)*hour)
		for name, value := range o.resources {
			amount := new(big.Int).Mul(big.NewInt(value), big.NewInt(end-from))
			to.add(slot{o.uid, from / hour * 3600, name}, amount)
		}
		from = end
	}
}

// checkUsage compares the usage that the fold has counted with the one that the test has seen.
func (k *told) checkUsage() {
	want := sums{}
	for at, amount := range k.seen {
		want.add(at, amount)
	}
	for _, o := range k.open {
		o.use(want, k.fold.Time())
	}
	if diff := differences(k.used, want); diff != "" {
		k.w.t.Fatalf("the fold counts another usage: %s", diff)
	}
	k.counted.Used = nil
	if diff := cmp.Diff(k.counts, k.counted); diff != "" {
		k.w.t.Fatalf("the fold counts other tasks or waits:\n%s", diff)
	}
}

// differences describes a difference of sums; one of 0 is none.
func differences(got, want sums) string {
	for _, s := range []sums{got, want} {
		for at := range s {
			if a, b := got.of(at), want.of(at); a.Cmp(b) != 0 {
				return fmt.Sprintf("%v in hour %d of %s: %v, want %v", at.uid, at.hour, at.resource, a, b)
			}
		}
	}
	return ""
}

// record keeps the state of this instant, and looks at one of the past.
func (k *told) record(view *historyfold.View, tasks []historyfold.Task) {
	p := point{next: k.first + len(k.events), time: k.fold.Time(), view: view, tasks: tasks}
	if len(k.points) == 0 || k.rng.IntN(25) == 0 {
		p.fold = k.fold.AppendState(nil)
	}
	if k.points = append(k.points, p); len(k.points) > 120 {
		k.forget(60)
	}
	if k.rng.IntN(25) == 0 {
		k.look(k.rng.IntN(len(k.points)))
	}
}

// forget drops old points, so that the first one that is left has a fold.
func (k *told) forget(n int) {
	for n < len(k.points)-1 && k.points[n].fold == nil {
		n++
	}
	k.points = slices.Clone(k.points[n:])
	keep := k.points[0].next
	for _, l := range []*lateFold{&k.late, &k.missing} {
		if l.stage > 0 {
			keep = min(keep, l.from)
		}
	}
	k.events = slices.Clone(k.events[keep-k.first:])
	k.first = keep
}

// look compares the state at a recorded instant with the one that is made of the last fold before
// it and the events between them.
func (k *told) look(i int) {
	p := &k.points[i]
	for i > 0 && k.points[i].fold == nil {
		i--
	}
	if k.points[i].fold == nil {
		return
	}
	f, err := historyfold.Decode(k.points[i].fold)
	if err != nil {
		k.w.t.Fatal(err)
	}
	for events := k.events[k.points[i].next-k.first : p.next-k.first]; len(events) > 0; {
		events = events[f.Apply(events[:1+k.rng.IntN(len(events))]).Taken:]
	}
	k.compare(fmt.Sprintf("the fold at %d", p.time), f, p.view, p.tasks, false)
	k.looked++
}

// compare compares a fold with the state. A late one has other lives, and does not know when tasks
// were requested before its beginning.
func (k *told) compare(name string, f *historyfold.Fold, view *historyfold.View, tasks []historyfold.Task, late bool) {
	got, has := f.View(), slices.Collect(f.Tasks(""))
	got.Time = view.Time
	for i := range got.Jobs {
		j := &got.Jobs[i]
		if known := k.lives[j.Life]; !late && known.UID != j.UID {
			k.w.t.Fatalf("%s: life %d of job %s has another uid than was told", name, j.Life, j.ID)
		}
		j.Life = 0
	}
	for i := range got.Queues {
		if got.Queues[i].Path == plimsoll.RootQueue {
			got.Queues[i].Max = nonzero(got.Queues[i].Max)
		}
		got.Queues[i].Allocated = nonzero(got.Queues[i].Allocated)
	}
	for i := range got.Nodes {
		got.Nodes[i].Allocated = nonzero(got.Nodes[i].Allocated)
	}
	for i := range got.Jobs {
		got.Jobs[i].Used = nonzero(got.Jobs[i].Used)
	}
	if !reflect.DeepEqual(got, view) {
		k.w.t.Fatalf("%s is not the state:\n%s", name, cmp.Diff(view, got))
	}
	for i := range has {
		if t := &has[i]; late && t.Requested != 0 && k.requests[t.ID()] != t.Requested {
			k.w.t.Fatalf("%s: task %s was requested at %d, want %d", name, t.ID(), t.Requested, k.requests[t.ID()])
		}
		has[i].Requested = 0
	}
	if !reflect.DeepEqual(has, tasks) {
		k.w.t.Fatalf("%s has other tasks than the state:\n%s", name, cmp.Diff(tasks, has))
	}
}

func nonzero(r plimsoll.Resources) plimsoll.Resources {
	r = maps.Clone(r)
	maps.DeleteFunc(r, func(_ string, amount int64) bool { return amount == 0 })
	if r == nil {
		r = plimsoll.Resources{}
	}
	return r
}

func eachTask(w *world, fn func(*state.Job, state.Ref)) {
	for _, id := range slices.Sorted(slices.Values(w.jobs)) {
		if j := w.engine.State().Job(id); j != nil {
			for i := range j.Groups {
				for index := range j.Groups[i].Tasks {
					fn(j, state.Ref{Group: &j.Groups[i], Index: int32(index)})
				}
			}
		}
	}
}

// stateView returns what a fold should show of the state.
func stateView(w *world) (*historyfold.View, []historyfold.Task) {
	s, v, tasks := w.engine.State(), &historyfold.View{}, []historyfold.Task(nil)
	for _, id := range slices.Sorted(slices.Values(w.jobs)) {
		if j := s.Job(id); j != nil {
			v.Jobs = append(v.Jobs, jobView(j))
		}
	}
	eachTask(w, func(j *state.Job, r state.Ref) {
		g, t := r.Group, r.Task()
		if t.State == plimsoll.TaskFinished {
			return
		}
		is := historyfold.Task{Job: j.Spec.ID, Group: g.Spec.Name, Index: r.Index, Resources: g.Spec.Resources}
		if t.State.OnNode() {
			is.Allocated, is.Node, is.Since = true, t.Node, t.Bound
		}
		tasks = append(tasks, is)
	})
	for i := range 6 {
		n := s.Node("n" + strconv.Itoa(i))
		if n == nil {
			continue
		}
		status := s.NodeStatus(n)
		is := historyfold.Node{
			ID: n.ID, Capacity: n.Capacity, Allocated: nonzero(status.Allocated), Tasks: int(status.Tasks),
			Ready: n.Ready, Cordoned: n.Mode != plimsoll.NodeActive, Closed: n.Gate.Closed,
		}
		if n.OccupiedAt != 0 {
			is.Occupied = n.Occupied.Resources()
		}
		v.Nodes = append(v.Nodes, is)
	}
	s.Tree().Root.Walk(func(q *queue.Queue) {
		st := s.QueueStatus(q)
		if q.Parent == nil {
			st.Max = nonzero(st.Max)
		}
		v.Queues = append(v.Queues, historyfold.Queue{
			Path: st.Path, Leaf: st.Leaf, Draining: st.Draining, Max: st.Max, Guaranteed: st.Guaranteed,
			Allocated: nonzero(st.Allocated), Jobs: int(st.Jobs),
		})
	})
	slices.SortFunc(v.Queues, func(a, b historyfold.Queue) int { return bytes.Compare([]byte(a.Path), []byte(b.Path)) })
	return v, tasks
}

func jobView(j *state.Job) historyfold.Job {
	is := historyfold.Job{Job: jobOf(j), Known: true, Queued: !j.State.Ended(), Used: plimsoll.Resources{}}
	is.ID, is.Ended = j.Spec.ID, j.Finished
	if is.Labels == nil {
		is.Labels = map[string]string{}
	}
	for detail, state := range foldedStates {
		if state == j.State {
			is.State = detail
		}
	}
	for i := range j.Groups {
		g := &j.Groups[i]
		for index := range g.Tasks {
			t := &g.Tasks[index]
			if t.State != plimsoll.TaskFinished {
				is.Tasks++
			}
			if t.State.OnNode() {
				is.Allocated++
				for name, amount := range g.Spec.Resources {
					is.Used[name] += amount
				}
			}
		}
	}
	is.Used = nonzero(is.Used)
	return is
}
