package engine_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// modelArchive is an archive with its archiver. It reads the committed records, and loses its
// progress now and then, as a leader does that crashes between two steps.
type modelArchive struct {
	jobs     map[plimsoll.UID]archived
	deleted  map[plimsoll.UID]bool
	sequence uint64
	down     bool
	written  int // jobs that were put into the archive
	again    int // jobs that were in it already
}

// archived is a job of the archive: its records when it left the store.
type archived struct {
	status plimsoll.JobStatus
	tasks  map[state.TaskName]plimsoll.Task
}

// recorded returns the committed records of a job.
func (r *records) recorded(id string) archived {
	a := archived{r.statuses[id], map[state.TaskName]plimsoll.Task{}}
	a.status.Revision = 0 // replicated changes raise it without being stored
	for name, t := range r.tasks {
		if name.Job == id {
			a.tasks[name] = t
		}
	}
	return a
}

// step lets the archiver do a random part of its work.
func (a *modelArchive) step(w *world) {
	if a == nil || w.rng.IntN(3) > 0 {
		return
	}
	if w.rng.IntN(12) == 0 {
		a.down = !a.down
		trouble := ""
		if a.down {
			trouble = "the disk is full"
		}
		w.queue = append(w.queue, engine.Command{Do: &engine.ArchiveTrouble{Why: trouble}})
	}
	if a.down {
		return
	}
	do := &engine.Archived{ID: "model"}
	for _, id := range slices.Sorted(maps.Keys(w.records.statuses)) {
		st := w.records.statuses[id]
		if !st.State.Ended() || st.State == plimsoll.JobExpired || w.rng.IntN(3) == 0 {
			continue
		}
		name := state.JobName{ID: id, UID: st.UID}
		if st.Deleted {
			delete(a.jobs, st.UID)
			a.deleted[st.UID] = true
			do.Deleted = append(do.Deleted, name)
			continue
		}
		a.write(w, id)
		do.Written = append(do.Written, name)
	}
	a.sequence++
	do.Sequence = a.sequence
	if w.rng.IntN(3) > 0 { // otherwise the leader crashes behind the write, as far as the state sees
		w.queue = append(w.queue, engine.Command{Do: do})
	}
	if w.rng.IntN(8) == 0 {
		w.queue = append(w.queue, engine.Command{Do: do})
	}
}

func (a *modelArchive) write(w *world, id string) {
	now := w.records.recorded(id)
	before, known := a.jobs[now.status.UID]
	switch {
	case a.deleted[now.status.UID]:
		w.t.Fatalf("job %s %v was deleted and ends again", id, now.status.UID)
	case !known:
		a.jobs[now.status.UID] = now
		a.written++
	case !reflect.DeepEqual(before, now):
		w.t.Fatalf("job %s changed after it was put into the archive:\n%+v\n%+v", id, before, now)
	default:
		a.again++
	}
}

// checkDeletes checks, before the turn is committed, that each job whose records go is in the
// archive or was deleted there.
func (a *modelArchive) checkDeletes(w *world) {
	if a == nil {
		return
	}
	c := &w.out.Changes
	gone := map[string]bool{}
	for _, id := range c.DeletedJobs {
		gone[id] = true
	}
	for _, name := range c.DeletedTasks {
		gone[name.Job] = true
	}
	for i := range c.JobStatuses {
		if c.JobStatuses[i].State == plimsoll.JobExpired {
			gone[c.JobStatuses[i].ID] = true
		}
	}
	for id := range gone {
		st, stored := w.records.statuses[id]
		if !stored || st.State == plimsoll.JobRejected {
			continue // it goes to no archive: it was refused, perhaps in this turn
		}
		uid := st.UID
		if _, kept := a.jobs[uid]; !kept && !a.deleted[uid] {
			w.t.Fatalf("the records of job %s %v go, and the archive does not have it", id, uid)
		}
	}
}

// checkAll checks that no job has ended and is in neither place.
func (a *modelArchive) checkAll(w *world) {
	if a == nil {
		return
	}
	for uid, job := range a.jobs {
		if job.status.UID != uid || !job.status.State.Ended() {
			w.t.Fatalf("the archive has %+v under %v", job.status, uid)
		}
		for name, task := range job.tasks {
			if task.State != plimsoll.TaskFinished {
				w.t.Fatalf("the archive has task %v, which is %v", name, task.State)
			}
		}
	}
}

func (a *modelArchive) untested(w *world) string {
	switch {
	case a.written < 100 || a.again < 20:
		return fmt.Sprintf("the archive took %d jobs, %d of them again", a.written, a.again)
	case len(a.deleted) < 5:
		return fmt.Sprintf("only %d jobs were deleted", len(a.deleted))
	case w.full["archive"] == 0:
		return fmt.Sprintf("no submit was refused because of the archive: %v", w.full)
	}
	return ""
}

// The archive takes the jobs that have ended, fails, or repeats itself. No job leaves the store
// before the archive has it, and none changes any more once it is there. Nothing is lost in a crash
// at any moment.
func TestEndedJobsStayUntilTheArchiveHasThem(t *testing.T) {
	for _, seed := range seeds(t) {
		for _, limits := range []state.Limits{{}, {Ops: 40, Bytes: 1 << 20}} {
			t.Run(fmt.Sprintf("seed=%d/ops=%d", seed, limits.Ops), func(t *testing.T) {
				w := newWorld(t, seed, limits)
				w.cfg.Archive, w.cfg.MaxToArchive, w.cfg.KeepEnded = true, 5, 30e9
				w.archive = &modelArchive{jobs: map[plimsoll.UID]archived{}, deleted: map[plimsoll.UID]bool{}}
				w.restart(seed)
				steps := testrun.Count(500, 5_000, 500_000)
				for i := 0; i < steps || i < 4*steps && !testrun.Quick() && w.archive.untested(w) != ""; i++ {
					w.step()
					if i%500 == 0 {
						w.compareArchived(i)
					}
					if w.rng.IntN(200) == 0 {
						w.restart(seed + uint64(i))
					}
				}
				if why := w.archive.untested(w); why != "" && !testrun.Quick() {
					t.Fatal("the test tests little: " + why)
				}
			})
		}
	}
}

// compareArchived is compare for a state with an archive, whose trouble a load forgets.
func (w *world) compareArchived(step int) {
	w.t.Helper()
	w.queue = append(w.queue, engine.Command{Do: &engine.ArchiveTrouble{}})
	w.archive.down = false
	w.compare(step)
}

// archiving is a bench with an archive.
func archiving(t *testing.T, cfg state.Config) *bench {
	t.Helper()
	cfg.Archive = true
	b := newBench(t, cfg, state.Limits{})
	b.send(machine("n0", 4000))
	return b
}

// finish submits a job of a task and lets it end well.
func (b *bench) finish(id string, replace bool) state.JobName {
	b.t.Helper()
	submit := job(id, 1, 100)
	submit.Replace = replace
	b.send(submit)
	b.settle()
	j := b.engine.State().Job(id)
	if j == nil {
		b.t.Fatalf("job %s is not there", id)
	}
	name := state.JobName{ID: id, UID: j.UID}
	r := engine.Report{Job: id, Group: "g"}
	r.Attempt, r.State, r.Result = 1, plimsoll.TaskFinished, plimsoll.ResultSucceeded
	b.send(&engine.ReportTasks{Node: "n0", Incarnation: 1, Reports: []engine.Report{r}})
	b.settle()
	return name
}

func TestReplayOfArchivedChangesNothing(t *testing.T) {
	b := archiving(t, state.Config{KeepEnded: 10e9})
	name := b.finish("j", false)
	b.now += 3600e9
	b.settle()
	if b.engine.State().Job("j") == nil {
		t.Fatal("a job that waits for the archive was forgotten")
	}
	written := &engine.Archived{ID: "a", Sequence: 1, Written: []state.JobName{name}}
	b.send(written)
	b.settle()
	b.now += 9e9
	b.send(written, &engine.Archived{ID: "a", Sequence: 1, Deleted: []state.JobName{name}})
	b.settle()
	if b.engine.State().Job("j") == nil {
		t.Fatal("a job was forgotten before its time, because the archive told the same again")
	}
	b.now += 1e9
	b.settle()
	if b.engine.State().Job("j") != nil {
		t.Fatal("a job that the archive has is kept longer than it should be")
	}
	again := b.finish("j", false)
	if again.UID == name.UID || again.UID.String() < name.UID.String() {
		t.Fatalf("the second lifetime has uid %v, the first had %v", again.UID, name.UID)
	}
	b.send(written)
	b.now += 3600e9
	b.settle()
	if b.engine.State().Job("j") == nil {
		t.Error("the archive has an earlier lifetime, and the later one was forgotten")
	}
}

// With --replace the earlier job gives way once the archive has it, and its late reports are not
// taken for the new one.
func TestAnEndedJobGivesWayToANewOne(t *testing.T) {
	b := archiving(t, state.Config{KeepEnded: 3600e9})
	name := b.finish("j", false)
	replace := tokened(job("j", 1, 100), "u")
	replace.Replace = true
	if err := b.refusal(replace); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable ||
		!strings.Contains(err.Error(), "is going to the archive") {
		t.Fatalf("%v", err)
	}
	if err := b.refusal(tokened(job("j", 1, 100), "v")); plimsoll.CodeOf(err) != plimsoll.CodeAlreadyExists {
		t.Fatalf("%v", err)
	}
	b.send(&engine.Archived{ID: "a", Sequence: 1, Written: []state.JobName{name}})
	b.settle()
	if err := b.refusal(replace); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Fatalf("%v", err)
	}
	if err := b.refusal(replace); err != nil {
		t.Fatal(err)
	}
	r := engine.Report{Job: "j", Group: "g"}
	r.Attempt, r.State, r.Result, r.UID = 1, plimsoll.TaskFinished, plimsoll.ResultFailed, name.UID
	b.send(&engine.ReportTasks{Node: "n0", Incarnation: 1, Reports: []engine.Report{r}})
	b.settle()
	if st := b.engine.State().Job("j").State; st != plimsoll.JobStarting {
		t.Errorf("after a late report of the earlier job the new one is %v", st)
	}
	// An agent that knows no uids takes the earlier attempt for this one. It never starts this.
	r.UID, r.At = plimsoll.UID{}, b.now-3600e9
	b.send(&engine.ReportTasks{Node: "n0", Incarnation: 1, Reports: []engine.Report{r}})
	b.settle()
	task := b.engine.State().Job("j").Groups[0].Tasks[0]
	if task.Result != plimsoll.ResultNodeFault || task.Failures != 0 {
		t.Errorf("after the end of an earlier attempt without uid the task is %+v", task)
	}
	b.now += 60e9
	b.settle()
	if task := b.engine.State().Job("j").Groups[0].Tasks[0]; task.Attempt != 2 || task.State != plimsoll.TaskBound {
		t.Errorf("then attempt %d is %v; a second one should be bound", task.Attempt, task.State)
	}
	late := tokened(job("j", 1, 100), "w")
	late.Replace = true
	if err := b.refusal(late); plimsoll.CodeOf(err) != plimsoll.CodeAlreadyExists {
		t.Errorf("a job that runs was replaced: %v", err)
	}
}

// A job is deleted once it has ended, and is hidden from then on. It goes once the archive has
// deleted it too.
func TestDeleteJob(t *testing.T) {
	for _, kept := range []bool{false, true} {
		b := archiving(t, state.Config{KeepEnded: 3600e9})
		name := b.finish("j", false)
		if kept {
			b.send(&engine.Archived{ID: "a", Sequence: 1, Written: []state.JobName{name}})
			b.settle()
		}
		other := plimsoll.MakeUID(1, 1)
		if err := b.refusal(&engine.DeleteJob{ID: "j", UID: other}); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
			t.Errorf("another lifetime: %v", err)
		}
		for range 2 { // it can be repeated
			if err := b.refusal(&engine.DeleteJob{ID: "j"}); err != nil {
				t.Fatal(err)
			}
		}
		b.crash()
		b.send(&engine.Archived{ID: "a", Sequence: 2, Written: []state.JobName{name}})
		b.now += 2 * 3600e9
		b.settle()
		j := b.engine.State().Job("j")
		if j == nil || !b.engine.State().JobStatus(j).Deleted {
			t.Fatalf("kept %t: a deleted job left the state before the archive had deleted it", kept)
		}
		b.send(&engine.Archived{ID: "a", Sequence: 3, Deleted: []state.JobName{name}})
		b.settle()
		if b.engine.State().Job("j") != nil {
			t.Errorf("kept %t: the job is still there", kept)
		}
	}
	b := newBench(t, state.Config{KeepEnded: 3600e9}, state.Limits{})
	b.send(machine("n0", 4000))
	b.finish("j", false)
	if err := b.refusal(&engine.DeleteJob{ID: "j"}); err != nil {
		t.Fatal(err)
	}
	b.settle()
	if b.engine.State().Job("j") != nil {
		t.Error("without an archive a deleted job stays")
	}
	b.send(job("live", 1, 100))
	b.settle()
	if err := b.refusal(&engine.DeleteJob{ID: "live"}); plimsoll.CodeOf(err) != plimsoll.CodeConflict ||
		!strings.Contains(err.Error(), "kill it first") {
		t.Errorf("%v", err)
	}
}

// When too much waits for the archive, submits are refused with its trouble, and all else goes on.
func TestSubmitsAreRefusedWhileTheArchiveIsFull(t *testing.T) {
	b := archiving(t, state.Config{MaxToArchive: 2})
	b.send(&engine.ArchiveTrouble{Why: "the disk is full"})
	names := []state.JobName{b.finish("a", false), b.finish("b", false)}
	err := b.refusal(job("c", 1, 100))
	if plimsoll.CodeOf(err) != plimsoll.CodeExhausted ||
		!strings.Contains(err.Error(), "archive: 2 ended jobs wait for it (the disk is full)") {
		t.Fatalf("%v", err)
	}
	b.crash()
	b.send(&engine.Archived{ID: "a", Sequence: 1, Written: names})
	b.settle()
	if err := b.refusal(job("c", 1, 100)); err != nil {
		t.Fatal(err)
	}
}

// refusal sends an operation and returns the error of its reply.
func (b *bench) refusal(do engine.Operation) error {
	b.t.Helper()
	id := b.send(do)
	b.settle()
	return b.reply(id)
}
