package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/archivetest"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// faulty is an archive in memory whose calls fail as a test wants.
type faulty struct {
	*archivetest.Memory

	mu struct {
		sync.Mutex
		open, write, remove error
		check               func(ctx context.Context) error
		opened, writes      int
	}
}

func newFaulty() *faulty { return &faulty{Memory: archivetest.NewMemory()} }

// set changes the faults.
func (f *faulty) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *faulty) Write(
	ctx context.Context, epoch uint64, jobs []archive.Job, attempts []archive.Attempts,
) (archive.Mark, error) {
	f.mu.Lock()
	err := f.mu.write
	f.mu.writes++
	f.mu.Unlock()
	if err != nil {
		return archive.Mark{}, err
	}
	return f.Memory.Write(ctx, epoch, jobs, attempts)
}

func (f *faulty) Delete(ctx context.Context, epoch uint64, uids []plimsoll.UID, now int64) error {
	f.mu.Lock()
	err := f.mu.remove
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.Memory.Delete(ctx, epoch, uids, now)
}

func (f *faulty) Check(ctx context.Context) error {
	f.mu.Lock()
	check := f.mu.check
	f.mu.Unlock()
	if check != nil {
		return check(ctx)
	}
	return f.Memory.Check(ctx)
}

// config returns a configuration with the archive. Ended jobs leave the store at once when the
// archive has them.
func (f *faulty) config() Config {
	return Config{
		State: state.Config{KeepEnded: 1},
		Archive: Archive{
			Open: func(context.Context) (archive.Writer, error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.mu.opened++
				return f, f.mu.open
			},
			Read: func() archive.Reader { return f.Memory },
		},
	}
}

// archivingLeader is a leader with an archive that is tried again soon after an error.
func archivingLeader(t *testing.T, f *faulty, fs vfs.FS, change func(*Config)) *leader {
	t.Helper()
	cfg := f.config()
	change(&cfg)
	return leadWith(t, cfg, openStore(t, fs, store.Limits{}), func(term *term) {
		term.archiver.pauses = plimsoll.Backoff{First: time.Millisecond, Longest: 10 * time.Millisecond}
	})
}

func asIs(*Config) {}

// until waits until the published records are as they should be.
func (l *leader) until(what string, is func() bool) {
	l.t.Helper()
	for i := 0; !is(); i++ {
		if i == 1_000_000 {
			l.t.Fatalf("it never came to: %s", what)
		}
		l.settle()
	}
}

// jobs returns the number of jobs in the store.
func (l *leader) jobs() int { return l.term.source.Snapshot().Len(wire.KindJobStatus) }

func (l *leader) has(id string) bool {
	_, found := l.term.source.Snapshot().Get(wire.KindJobStatus, id)
	return found
}

func (l *leader) archiveStatus() plimsoll.ArchiveStatus {
	l.t.Helper()
	data, found := l.term.source.Snapshot().Get(wire.KindArchive, "")
	if !found {
		return plimsoll.ArchiveStatus{}
	}
	status, err := wire.DecodeArchiveStatus(data)
	if err != nil {
		l.t.Fatal(err)
	}
	return status
}

// end submits a job and kills it.
func (l *leader) end(id string, tasks int) {
	l.t.Helper()
	l.must(submit(job(id, tasks)))
	l.must(kill(id))
}

func deleteJob(id, uid, token string) *pb.Command {
	return &pb.Command{Kind: &pb.Command_DeleteJob{DeleteJob: &pb.DeleteJobRequest{Id: id, Uid: uid, Token: token}}}
}

// Ended jobs go to the archive with their tasks, and then out of the store. More jobs than a write
// takes go in several.
func TestEndedJobsLeaveForTheArchive(t *testing.T) {
	f := newFaulty()
	l := archivingLeader(t, f, vfs.NewMem(), asIs)
	defer l.stop()
	const jobs = archive.MaxWriteJobs + 100
	for i := range jobs {
		l.end(fmt.Sprintf("j%d", i), 3)
	}
	l.must(submit(job("runs", 1)))
	l.until("no ended job is in the store", func() bool { return l.jobs() == 1 })
	mark, err := f.Mark(t.Context())
	if err != nil || mark.Jobs != jobs || mark.Tasks != 3*jobs {
		t.Fatalf("the archive has %+v, %v", mark, err)
	}
	stored, err := f.Job(t.Context(), "j7", plimsoll.UID{})
	if err != nil {
		t.Fatal(err)
	}
	status, err := wire.DecodeJobStatus(stored.Status)
	if err != nil || status.UID != stored.UID || len(status.History) != 4 || stored.Result != plimsoll.ResultKilled ||
		stored.Failed != 3 {
		t.Errorf("%+v, %+v, %v", stored.Head, status, err)
	}
	if got := l.archiveStatus(); got.ID != mark.ID || got.Sequence != mark.Sequence || got.Trouble != "" {
		t.Errorf("the store knows %+v, the archive is at %+v", got, mark)
	}
}

// A job that ends while a round begins goes to the archive like any other: its end is published
// behind the snapshot that the round has looked at.
func TestJobsThatEndWhileARoundBeginsAreArchived(t *testing.T) {
	f := newFaulty()
	looked, goOn := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	l := leadWith(t, f.config(), openStore(t, vfs.NewMem(), store.Limits{}), func(term *term) {
		snapshot := term.archiver.snapshot
		term.archiver.snapshot = func() *replica.Snapshot {
			s := snapshot()
			if armed.CompareAndSwap(true, false) {
				looked <- struct{}{}
				<-goOn
			}
			return s
		}
	})
	defer l.stop()
	l.must(submit(job("second", 3)))
	armed.Store(true)
	l.end("first", 3)
	<-looked
	l.must(kill("second"))
	goOn <- struct{}{}
	l.until("both jobs are in the archive", func() bool { return l.jobs() == 0 })
}

// While the archive fails, ended jobs stay, and the record of the archive says why. Submits are
// refused once too many wait. When it works again all is caught up.
func TestJobsStayWhileTheArchiveFails(t *testing.T) {
	f := newFaulty()
	f.mu.write = plimsoll.Errorf(plimsoll.CodeExhausted, "no space left")
	fs := vfs.NewMem()
	l := archivingLeader(t, f, fs, func(c *Config) { c.State.MaxToArchive = 3 })
	for i := range 3 {
		l.end(fmt.Sprintf("j%d", i), 1)
	}
	l.until("the trouble is known", func() bool { return strings.Contains(l.archiveStatus().Trouble, "no space left") })
	_, err := l.Do(t.Context(), submit(job("more", 1)))
	if plimsoll.CodeOf(err) != plimsoll.CodeExhausted || !strings.Contains(err.Error(), "archive: 3 ended jobs wait") ||
		!strings.Contains(err.Error(), "no space left") {
		t.Fatalf("%v", err)
	}
	l.stop()
	l = archivingLeader(t, f, fs, func(c *Config) { c.State.MaxToArchive = 3 }) // the jobs are still there
	defer l.stop()
	if !l.has("j0") || !l.has("j2") {
		t.Fatal("a job left the store before it was in the archive")
	}
	f.set(func() { f.mu.open = errors.New("permission denied") }) // after the next write, which fails
	l.until("the file cannot be opened", func() bool {
		return strings.Contains(l.archiveStatus().Trouble, "permission denied")
	})
	f.set(func() { f.mu.write, f.mu.open = nil, nil })
	l.until("all jobs have gone", func() bool { return l.jobs() == 0 })
	l.until("there is no trouble", func() bool { return l.archiveStatus().Trouble == "" })
	l.must(submit(job("more", 1)))
}

// Jobs are written while the archive is being checked, and leave the store only when it has passed.
func TestJobsStayUntilTheArchiveHasPassedItsCheck(t *testing.T) {
	f := newFaulty()
	pass := make(chan error)
	f.mu.check = func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-pass:
			return err
		}
	}
	l := archivingLeader(t, f, vfs.NewMem(), asIs)
	defer l.stop()
	l.end("a", 1)
	l.until("the job is in the archive", func() bool {
		_, err := f.Job(t.Context(), "a", plimsoll.UID{})
		return err == nil
	})
	pass <- plimsoll.Errorf(plimsoll.CodeCorrupt, "page 7 is damaged")
	l.until("the fault is known", func() bool { return strings.Contains(l.archiveStatus().Trouble, "page 7") })
	if l.settle(); !l.has("a") {
		t.Fatal("a job left the store for a damaged archive")
	}
	pass <- nil
	l.until("the job has gone", func() bool { return !l.has("a") })
}

// An archive that lacks jobs which have left the store is not written until its id is accepted.
// Neither is one that a later leader has written.
func TestAnotherArchiveMustBeAccepted(t *testing.T) {
	first, fs := newFaulty(), vfs.NewMem()
	l := archivingLeader(t, first, fs, asIs)
	l.end("a", 1)
	l.until("the job has gone", func() bool { return !l.has("a") })
	l.stop()
	second := newFaulty()
	if _, err := second.Fence(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	mark, err := second.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, words := range map[string]string{
		"of a later leader": "a later leader, of epoch 100", "empty": "lacks jobs",
	} {
		other := second
		if name == "empty" {
			other = newFaulty()
		}
		l = archivingLeader(t, other, fs, asIs)
		l.until(name+": it is refused", func() bool { return strings.Contains(l.archiveStatus().Trouble, words) })
		l.end("b-"+words[:1], 1)
		if l.settle(); other.mu.writes != 0 {
			t.Errorf("%s: it was written", name)
		}
		l.stop()
	}
	l = archivingLeader(t, second, fs, func(c *Config) { c.Archive.Accept = mark.ID })
	defer l.stop()
	l.until("all jobs have gone", func() bool { return l.jobs() == 0 })
	if got := l.archiveStatus(); got.ID != mark.ID || got.Trouble != "" {
		t.Errorf("the store knows %+v", got)
	}
}

// A job is deleted wherever it is. A repetition gets the same answer.
func TestDeleteJobInStoreAndArchive(t *testing.T) {
	f := newFaulty()
	f.mu.remove = errors.New("input/output error")
	l := archivingLeader(t, f, vfs.NewMem(), func(c *Config) { c.State.KeepEnded = int64(time.Hour) })
	defer l.stop()
	l.end("kept", 1)
	l.must(deleteJob("kept", "", ""))
	status, _ := l.term.source.Snapshot().Get(wire.KindJobStatus, "kept")
	if st, err := wire.DecodeJobStatus(status); err != nil || !st.Deleted {
		t.Fatalf("after the answer the job is %+v, %v", st, err)
	}
	l.until("the error is known", func() bool { return strings.Contains(l.archiveStatus().Trouble, "input/output") })
	if !l.has("kept") {
		t.Fatal("the job left the store before it was deleted in the archive")
	}
	f.set(func() { f.mu.remove = nil })
	l.until("the job has gone", func() bool { return !l.has("kept") })
	if _, err := f.Job(t.Context(), "kept", plimsoll.UID{}); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("the archive has the job: %v", err)
	}
	if _, err := l.Do(t.Context(), deleteJob("never", "", "")); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("a job that never was: %v", err)
	}
}

// A uid alone names a job wherever it is. One that runs is not deleted.
func TestDeleteJobByItsUID(t *testing.T) {
	f := newFaulty()
	l := archivingLeader(t, f, vfs.NewMem(), func(c *Config) { c.State.KeepEnded = int64(time.Hour) })
	defer l.stop()
	uidOf := func(id string) string {
		data, _ := l.term.source.Snapshot().Get(wire.KindJobStatus, id)
		status, err := wire.DecodeJobStatus(data)
		if err != nil {
			t.Fatal(err)
		}
		return status.UID.String()
	}
	l.must(submit(job("runs", 1)))
	if _, err := l.Do(t.Context(), deleteJob("", uidOf("runs"), "")); plimsoll.CodeOf(err) != plimsoll.CodeConflict {
		t.Errorf("a job that has not ended: %v", err)
	}
	l.end("ended", 1)
	l.must(deleteJob("", uidOf("ended"), ""))
	l.until("the job has gone", func() bool { return !l.has("ended") })
	if _, err := f.Job(t.Context(), "ended", plimsoll.UID{}); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("the archive has the job: %v", err)
	}
}

func TestDeleteJobThatIsOnlyInTheArchive(t *testing.T) {
	f := newFaulty()
	l := archivingLeader(t, f, vfs.NewMem(), asIs)
	defer l.stop()
	for range 2 {
		l.end("a", 1)
		l.until("the job has gone", func() bool { return !l.has("a") })
	}
	newest, err := f.Job(t.Context(), "a", plimsoll.UID{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second is a repetition, and not the deletion of the earlier lifetime
		l.must(deleteJob("a", "", "token"))
	}
	left, err := f.Job(t.Context(), "a", plimsoll.UID{})
	if err != nil || left.UID == newest.UID {
		t.Fatalf("%+v, %v are left; the newest was %v", left.Head, err, newest.UID)
	}
	l.must(deleteJob("a", left.UID.String(), ""))
	_, err = l.Do(t.Context(), deleteJob("a", "", ""))
	if plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("%v", err)
	}
	if _, err = l.Do(t.Context(), deleteJob("a", "no uid", "")); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("%v", err)
	}
}

// The archive keeps no more jobs than its retention says.
func TestRetentionOfTheArchive(t *testing.T) {
	f := newFaulty()
	for i := range 3 {
		f.add(t, fmt.Sprintf("old%d", i), int64(1+i))
	}
	l := archivingLeader(t, f, vfs.NewMem(), func(c *Config) { c.Archive.Retention.Jobs = 2 })
	defer l.stop()
	l.until("the oldest job is removed", func() bool {
		mark, err := f.Mark(t.Context())
		return err == nil && mark.Jobs == 2
	})
	if _, err := f.Job(t.Context(), "old0", plimsoll.UID{}); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("the oldest job: %v", err)
	}
}

// A full disk does not keep the retention from making room.
func TestRetentionMakesRoomOnAFullDisk(t *testing.T) {
	f := newFaulty()
	for i := range 3 {
		f.add(t, fmt.Sprintf("old%d", i), int64(1+i))
	}
	f.mu.write = plimsoll.Errorf(plimsoll.CodeExhausted, "no space left")
	l := archivingLeader(t, f, vfs.NewMem(), func(c *Config) { c.Archive.Retention.Jobs = 2 })
	defer l.stop()
	l.end("new", 1)
	l.until("the oldest job is removed", func() bool {
		mark, err := f.Mark(t.Context())
		return err == nil && mark.Jobs == 2
	})
	f.set(func() { f.mu.write = nil })
	l.until("the job has gone", func() bool { return !l.has("new") })
}

// add puts a job into the archive.
func (f *faulty) add(t *testing.T, id string, finished int64) {
	t.Helper()
	if _, err := f.Memory.Write(t.Context(), 0, []archive.Job{{
		Head: archive.Head{
			UID: plimsoll.MakeUID(finished, 1), ID: id, State: plimsoll.JobCompleted, Result: plimsoll.ResultSucceeded,
			Finished: finished,
		},
		Records: func(func(archive.TaskRecord) bool) {},
	}}, nil); err != nil {
		t.Fatal(err)
	}
}

// A list of keys is bounded. When it is full all are dropped, and the archiver is told.
func TestListOfKeysIsBounded(t *testing.T) {
	l := newKeyList()
	for i := range maxListedKeys {
		l.add(fmt.Sprint(i))
	}
	if l.lost() || l.len() != maxListedKeys {
		t.Fatalf("%d ids are there", l.len())
	}
	if got := l.take(3); fmt.Sprint(got) != "[0 1 2]" {
		t.Errorf("%v were taken", got)
	}
	l.putBack([]string{"2"})
	if got := l.take(2); fmt.Sprint(got) != "[2 3]" {
		t.Errorf("%v were taken", got)
	}
	for range 5 {
		l.add("more")
	}
	if !l.lost() || l.lost() || l.len() != 1 {
		t.Errorf("%d ids are there after the list was full", l.len())
	}
	l = newKeyList()
	for range 5 {
		l.add(strings.Repeat("x", maxListedKeyBytes/4))
	}
	if !l.lost() {
		t.Error("ids of more than 4 MiB are kept")
	}
}

func TestTokensOfDeletionsAreBounded(t *testing.T) {
	var r deletedRecently
	for i := range maxRepetitions + 10 {
		r.add(fmt.Sprint(i))
	}
	if len(r.tokens) != maxRepetitions || len(r.order) != maxRepetitions || r.has("9") || !r.has("10") || r.has("") {
		t.Errorf("%d tokens are remembered", len(r.tokens))
	}
}
