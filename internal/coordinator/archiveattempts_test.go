package coordinator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/storetest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const retried = "retried.work.0" // id of the task that fails again and again

var retriedKey = wire.TaskKey("retried", "work", 0)

// retries returns a job of one task, which is tried again at once whenever it fails.
func retries() *plimsoll.JobSpec {
	spec := job("retried", 1)
	spec.Groups[0].Retry = plimsoll.RetryPolicy{Kind: plimsoll.RetryImmediate, Limit: 1e6}
	return spec
}

// failAttempt reports that an attempt of the task has failed with its number as exit code.
func (l *leader) failAttempt(number int32) {
	l.t.Helper()
	l.until(fmt.Sprintf("attempt %d is on its node", number), func() bool {
		task := recordOf(l.t, l.term.source.Snapshot())
		return task.Attempt == number && task.State.OnNode()
	})
	l.must(reportTasks("n1", &pb.TaskReport{
		Task: retried, Attempt: number, State: pb.TaskState_TASK_STATE_FINISHED,
		Result: pb.TaskResult_TASK_RESULT_FAILED, ExitCode: number, Message: fmt.Sprintf("é attempt %d", number),
	}))
}

func recordOf(t testing.TB, s *replica.Snapshot) plimsoll.Task {
	t.Helper()
	data, found := s.Get(wire.KindTask, retriedKey)
	if !found {
		return plimsoll.Task{}
	}
	task, err := wire.DecodeTask(data)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// chunks returns the attempts of the task that are in the archive.
func (f *faulty) chunks(t testing.TB, uid plimsoll.UID) []archive.Attempts {
	t.Helper()
	chunks, err := f.Attempts(context.Background(), uid, retriedKey, 0)
	if err != nil {
		t.Fatal(err)
	}
	return chunks
}

// checkAttempts looks for each attempt up to a number in the archive and the record: as it was, at
// most once in the archive, and on one side at least.
func checkAttempts(t testing.TB, what string, chunks []archive.Attempts, task *plimsoll.Task, through int32) {
	t.Helper()
	next := int32(1)
	for i := range chunks {
		attempts, err := wire.DecodeAttempts(chunks[i].Value)
		if err != nil || len(attempts) != plimsoll.AttemptChunk || attempts[0].Number != chunks[i].First {
			t.Fatalf("%s: a chunk from %d on has %+v, %v", what, chunks[i].First, attempts, err)
		}
		for _, a := range attempts {
			if a.Number != next || a.ExitCode != next || a.Message != fmt.Sprintf("é attempt %d", next) {
				t.Fatalf("%s: the archive has %+v in the place of attempt %d", what, a, next)
			}
			next++
		}
	}
	held := task.AllAttempts()
	if len(held) == 0 || held[0].Number > next {
		t.Fatalf("%s: the archive has attempts up to %d, the record %+v", what, next-1, held)
	}
	for i, a := range held {
		if a.Number != held[0].Number+int32(i) || a.Result == plimsoll.ResultFailed && a.ExitCode != a.Number {
			t.Fatalf("%s: the record has %+v", what, held)
		}
	}
	if last := held[len(held)-1].Number; last < through {
		t.Fatalf("%s: attempts up to %d are there, and %d were acknowledged", what, last, through)
	}
}

// attemptCrash holds the file system and the attempts of the archive as a crash would leave them.
// acked is the number of the last attempt whose end was acknowledged before.
type attemptCrash struct {
	fs     storetest.CrashableFS
	chunks []archive.Attempts
	acked  int32
	what   string
}

// A task fails 300 times. At any instant a crash leaves each attempt whose end was acknowledged: in
// the archive or in the record, although the archive fails for a while. Later leaders go on, and at
// last the archive has the job with all its attempts.
func TestAllAttemptsGoToTheArchive(t *testing.T) {
	const attempts = 300
	rng, f, fs := rand.New(rand.NewPCG(testrun.Seed(t), 1)), newFaulty(), storetest.NewCrashableFS()
	var mu sync.Mutex
	var crashes []attemptCrash
	var uid plimsoll.UID
	acked := int32(0)
	perhaps := func(what string, one int) {
		mu.Lock()
		defer mu.Unlock()
		if uid.IsZero() || rng.IntN(one) > 0 || len(crashes) == 80 {
			return
		}
		c := attemptCrash{acked: acked, what: fmt.Sprintf("crash %d, %s, behind attempt %d", len(crashes), what, acked)}
		c.fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * rng.IntN(3), RNG: rng})
		c.chunks = f.chunks(t, uid) // behind the store: it may have more, as it would at the same instant
		crashes = append(crashes, c)
	}
	cfg := f.config()
	cfg.Events.ArchiveStep = func(step ArchiveStep) { perhaps("archive "+string(step), 2) }
	begin := func() *leader {
		st := &spy{Store: openStore(t, fs, store.Limits{}), at: func(what string) { perhaps(what, 25) }}
		l := leadWith(t, cfg, st, func(term *term) {
			term.archiver.pauses = plimsoll.Backoff{First: time.Millisecond, Longest: 10 * time.Millisecond}
		})
		l.must(register("n1", 1))
		return l
	}
	l := begin()
	l.must(submit(retries()))
	status, _ := l.term.source.Snapshot().Get(wire.KindJobStatus, "retried")
	st, err := wire.DecodeJobStatus(status)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	uid = st.UID
	mu.Unlock()
	for n := int32(1); n <= attempts; n++ {
		switch n {
		case 60, 190:
			f.set(func() { f.mu.write = plimsoll.Errorf(plimsoll.CodeExhausted, "no space left") })
		case 140, 230:
			f.set(func() { f.mu.write = nil })
		case 100, 200, 250: // another leader
			l.stop()
			l = begin()
		}
		l.failAttempt(n)
		mu.Lock()
		acked = n
		mu.Unlock()
		task := recordOf(t, l.term.source.Snapshot())
		checkAttempts(t, "while it runs", f.chunks(t, uid), &task, n)
	}
	l.until("the record is short", func() bool {
		task := recordOf(t, l.term.source.Snapshot())
		return len(task.Attempts) < plimsoll.MaxAttempts+plimsoll.AttemptChunk
	})
	l.must(kill("retried"))
	l.must(reportTasks("n1", &pb.TaskReport{
		Task: retried, Attempt: attempts + 1, State: pb.TaskState_TASK_STATE_FINISHED,
		Result: pb.TaskResult_TASK_RESULT_SUCCEEDED, ExitCode: 0,
	}))
	l.until("the job has gone", func() bool { return !l.has("retried") })
	l.stop()
	page, err := f.Tasks(t.Context(), archive.TaskQuery{UID: uid})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	task, err := wire.DecodeTask(page.Items[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	checkAttempts(t, "in the archive", f.chunks(t, uid), &task, attempts+1)
	for _, c := range crashes {
		term := reload(t, c.fs, f.config())
		ref, found := term.engine.State().FindTask("retried", "work", 0)
		if !found { // the job has gone: its archive was looked at above
			continue
		}
		task := term.engine.State().TaskRecord(ref)
		checkAttempts(t, c.what, c.chunks, &task, c.acked)
	}
	t.Logf("%d crashes", len(crashes))
	if len(crashes) < 30 {
		t.Error("that is too few to show anything")
	}
}

// Without an archive a record keeps the last attempts. The number of its first one says how many
// are not kept.
func TestWithoutAnArchiveTheLastAttemptsAreKept(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	l.must(register("n1", 1))
	l.must(submit(retries()))
	for n := range int32(40) {
		l.failAttempt(n + 1)
	}
	l.settle()
	task := recordOf(t, l.term.source.Snapshot())
	first := int32(41 - plimsoll.MaxAttempts)
	if all := task.AllAttempts(); len(task.Attempts) != plimsoll.MaxAttempts || all[0].Number != first {
		t.Errorf("the record has %+v", all)
	}
}
