package engine_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// chunkKey names a chunk of attempts in an archive.
type chunkKey struct {
	uid   plimsoll.UID
	task  state.TaskName
	first int32
}

// attemptRun lets tasks of a job fail again and again, beside an archive of their attempts.
type attemptRun struct {
	*bench
	rng     *rand.Rand
	ended   map[state.TaskName][]plimsoll.TaskReport // of each attempt, in their order
	archive map[chunkKey][]plimsoll.Attempt
	dropped uint64 // attempts that earlier leaders have dropped
}

func newAttemptRun(t *testing.T, seed uint64, cfg state.Config, limits state.Limits) *attemptRun {
	cfg.Archive, cfg.KeepEnded = true, 1e18
	r := &attemptRun{
		bench: newBench(t, cfg, limits), rng: rand.New(rand.NewPCG(seed, 1)),
		ended: map[state.TaskName][]plimsoll.TaskReport{}, archive: map[chunkKey][]plimsoll.Attempt{},
	}
	r.send(machine("n0", 1000))
	submit := job("j", 3, 10)
	submit.Spec.Groups[0].Retry = plimsoll.RetryPolicy{Kind: plimsoll.RetryImmediate, Limit: 1e6}
	r.send(submit)
	r.settle()
	return r
}

// fail ends the attempt of a task, and lets the next one begin.
func (r *attemptRun) fail(name state.TaskName) {
	r.t.Helper()
	if task := r.records.tasks[name]; !task.State.OnNode() {
		r.t.Fatalf("%v is %s", name, task.State)
	}
	r.now += 1e9
	report := engine.Report{Job: name.Job, Group: name.Group, Index: name.Index}
	report.Attempt, report.State = r.records.tasks[name].Attempt, plimsoll.TaskFinished
	report.Result = plimsoll.ResultFailed
	report.ExitCode, report.At = int32(r.rng.IntN(200)), r.now
	report.Message = strings.Repeat("é€", r.rng.IntN(40)) + strings.Repeat("x", r.rng.IntN(3))
	r.ended[name] = append(r.ended[name], report.TaskReport)
	r.send(&engine.ReportTasks{Node: "n0", Incarnation: 1, Reports: []engine.Report{report}})
	r.settle()
}

// crashLeader lets another leader load the records.
func (r *attemptRun) crashLeader() {
	r.t.Helper()
	r.dropped += r.engine.State().Totals().AttemptsDropped
	r.same()
	r.crash()
	r.send(machine("n0", 1000))
	r.settle()
}

// write puts the surplus of a task into the archive, as the archiver does. It returns what the
// engine is told.
func (r *attemptRun) write(name state.TaskName) *engine.Archived {
	r.t.Helper()
	task, uid := r.records.tasks[name], r.records.statuses[name.Job].UID
	told := state.AttemptsName{Job: state.JobName{ID: name.Job, UID: uid}, Group: name.Group, Index: name.Index}
	for chunk := range slices.Chunk(task.Surplus(), plimsoll.AttemptChunk) {
		key := chunkKey{uid, name, chunk[0].Number}
		if there, ok := r.archive[key]; ok && !reflect.DeepEqual(there, chunk) {
			r.t.Fatalf("the chunk %v is now\n%+v, it was\n%+v", key, chunk, there)
		}
		r.archive[key] = slices.Clone(chunk)
		told.Through = chunk[len(chunk)-1].Number
	}
	return &engine.Archived{ID: "a", Sequence: uint64(len(r.archive)), Attempts: []state.AttemptsName{told}}
}

// check compares the attempts of the archive and of the records with those that were. It returns
// the number of those that are missing.
func (r *attemptRun) check() (missing uint64) {
	r.t.Helper()
	for name, ended := range r.ended {
		task := r.records.tasks[name]
		held := task.AllAttempts()
		all := map[int32]plimsoll.Attempt{}
		for key, chunk := range r.archive {
			for _, a := range chunk {
				if _, twice := all[a.Number]; twice && key.task == name {
					r.t.Fatalf("%v: attempt %d is in the archive twice", name, a.Number)
				} else if key.task == name {
					all[a.Number] = a
				}
			}
		}
		for _, a := range held {
			if archived, both := all[a.Number]; both && archived != a {
				r.t.Fatalf("%v: the archive has %+v, the record %+v", name, archived, a)
			}
			all[a.Number] = a
		}
		for _, was := range ended {
			a, ok := all[was.Attempt]
			if !ok {
				missing++
				continue
			}
			if a.ExitCode != was.ExitCode || a.Finished != was.At || !utf8.ValidString(a.Message) ||
				!strings.HasPrefix(was.Message, a.Message) || len(a.Message) < min(len(was.Message), 62) {
				r.t.Fatalf("%v: attempt %d is %+v, and it was %+v", name, was.Attempt, a, was)
			}
		}
	}
	return missing
}

// Each attempt of a task is in the archive or in its record, once and as it was, whatever crashes
// when. While the archive takes nothing for long, the oldest chunks give way and are counted.
func TestEachAttemptIsInTheArchiveOrInItsRecord(t *testing.T) {
	for _, c := range []struct {
		name     string
		down     int // rounds of the archiver in 100 that fail
		bytes    int // state.Config.MaxBytes
		lossless bool
	}{
		{"the archive takes them", 0, 0, true},
		{"the archive fails now and then", 60, 0, true},
		{"the archive takes nothing", 100, 0, false},
		{"the archive takes nothing, and all jobs are over their bytes", 100, 10_000, false},
		{"the archive fails often, and all jobs are over their bytes", 60, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := testrun.Seed(t)
			r := newAttemptRun(t, seed, state.Config{}, state.Limits{Ops: 64, Bytes: 1 << 20})
			r.cfg.MaxBytes = c.bytes // the job was submitted under a higher bound
			r.crashLeader()
			for range testrun.Count(2, 4, 50) * 400 {
				name := state.TaskName{Job: "j", Group: "g", Index: r.rng.Int32N(3) / 2}
				switch n := r.rng.IntN(100); {
				case n < 70:
					r.fail(name)
				case n < 95 && r.rng.IntN(100) >= c.down:
					if told := r.write(name); r.rng.IntN(4) > 0 { // otherwise the leader never hears of it
						r.send(told)
						r.settle()
					}
				case n >= 98:
					r.crashLeader()
				}
				if missing, counted := r.check(), r.dropped+r.engine.State().Totals().AttemptsDropped; missing > counted ||
					c.lossless && missing > 0 {
					t.Fatalf("%d attempts are missing, %d were counted", missing, counted)
				}
			}
			if !c.lossless && r.check() == 0 {
				t.Error("the archive was never away for long enough: the test tests little")
			}
			if c.down < 100 && len(r.archive) < 10 {
				t.Errorf("the archive has %d chunks: the test tests little", len(r.archive))
			}
		})
	}
}

// A job that has ended goes to the archive as it is. Attempts leave its records no more.
func TestTheRecordsOfAnEndedJobKeepTheirAttempts(t *testing.T) {
	r := newAttemptRun(t, 1, state.Config{}, state.Limits{})
	name := state.TaskName{Job: "j", Group: "g"}
	for range 40 {
		r.fail(name)
	}
	told := r.write(name)
	r.send(&engine.KillJob{ID: "j"})
	r.settle()
	for index := range int32(3) {
		end := finished("n0", "j", index)
		end.Reports[0].Attempt = r.records.tasks[state.TaskName{Job: "j", Group: "g", Index: index}].Attempt
		r.send(end)
	}
	r.settle()
	if !r.records.statuses["j"].State.Ended() {
		t.Fatal("the job has not ended")
	}
	before := r.records.tasks[name]
	r.send(told)
	r.settle()
	if after := r.records.tasks[name]; !reflect.DeepEqual(before, after) || len(after.Attempts) < 40 {
		t.Errorf("the record became\n%+v, it was\n%+v", after, before)
	}
}

// Names of attempts that say nothing new change nothing: of another lifetime of the job, of a task
// that is not there, or of attempts that have left.
func TestArchivedAttemptsCanBeRepeated(t *testing.T) {
	r := newAttemptRun(t, 1, state.Config{}, state.Limits{})
	name := state.TaskName{Job: "j", Group: "g"}
	for range 24 {
		r.fail(name)
	}
	before := r.records.tasks[name]
	if n := len(before.Surplus()); n != plimsoll.AttemptChunk {
		t.Fatalf("%d attempts are to leave", n)
	}
	told := r.write(name)
	stranger, unknown := told.Attempts[0], told.Attempts[0]
	stranger.Job.UID[0]++
	unknown.Index = 7
	for _, step := range []struct {
		names []state.AttemptsName
		want  int32 // number of the first attempt of the record
	}{
		{[]state.AttemptsName{stranger, unknown}, 1},
		{told.Attempts, 9},
		{told.Attempts, 9},
	} {
		r.send(&engine.Archived{ID: "a", Sequence: 1, Attempts: step.names})
		r.settle()
		task := r.records.tasks[name]
		if first := task.Attempts[0].Number; first != step.want {
			t.Errorf("%v: the record begins with %d, want %d", fmt.Sprint(step.names), first, step.want)
		}
	}
	if task := r.records.tasks[name]; len(task.Attempts) != plimsoll.MaxAttempts || len(task.Earlier) != 1 {
		t.Errorf("the record is %+v", task)
	}
}
