package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/archivetest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A job is answered at each step of its way into the archive, with its tasks, and an answer says
// where it came from.
func TestAJobIsFoundAtEachStepOfItsWayIntoTheArchive(t *testing.T) {
	c := newCell(t)
	s := c.serve(Config{})
	j := c.submit("a", "ann", "root.x", map[string]string{"team": "blue"}, 3)
	check := func(step string, archived bool) {
		t.Helper()
		got := must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "a"})
		if !proto.Equal(got.GetJob().GetStatus(), j.message()) ||
			got.GetJob().GetSpec().GetLabels()["team"] != "blue" ||
			got.GetArchived() != archived {
			t.Errorf("%s: %v", step, got)
		}
		byUID := must(t, s.jobs.GetJob, &pb.GetJobRequest{Uid: j.status.UID.String()})
		if !proto.Equal(byUID.GetJob(), got.GetJob()) {
			t.Errorf("%s: by uid %v", step, byUID)
		}
		task := must(t, s.jobs.GetTask, &pb.GetTaskRequest{Id: "a.map.1"})
		if task.GetTask().GetIndex() != 1 || task.GetArchived() != archived {
			t.Errorf("%s: the task is %v", step, task)
		}
		tasks := must(t, s.jobs.ListTasks, &pb.ListTasksRequest{Job: "a"})
		if len(tasks.GetTasks()) != 3 {
			t.Errorf("%s: the tasks are %v", step, tasks)
		}
		all := must(t, s.jobs.ListJobs, &pb.ListJobsRequest{Scope: pb.Scope_SCOPE_ALL})
		if len(all.GetJobs()) != 1 || !proto.Equal(all.GetJobs()[0], j.message()) {
			t.Errorf("%s: the list of all is %v", step, all)
		}
	}
	check("running", false)
	c.end(j, 1)
	check("ended", false)
	c.store(j)
	check("written", false)
	c.expire(j, 2)
	check("leaving", true)
	c.forget(j)
	check("gone from the store", true)
	active := must(t, s.jobs.ListJobs, &pb.ListJobsRequest{})
	if len(active.GetJobs()) != 0 {
		t.Errorf("the active jobs are %v", active)
	}
}

func TestTheNewestLifetimeOfAnIDIsMeantUnlessAUIDIsGiven(t *testing.T) {
	c := newCell(t)
	s := c.serve(Config{})
	var uids []string
	for range 2 {
		j := c.submit("a", "ann", "root.x", nil, 1)
		uids = append(uids, j.status.UID.String())
		c.end(j, 0)
		c.archived(j)
	}
	third := c.submit("a", "ann", "root.x", nil, 2)
	uids = append(uids, third.status.UID.String())
	if got := must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "a"}); got.GetJob().GetStatus().GetUid() != uids[2] {
		t.Errorf("by id: %v", got)
	}
	for i, uid := range uids {
		got := must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "a", Uid: uid})
		if got.GetJob().GetStatus().GetUid() != uid || got.GetArchived() != (i < 2) {
			t.Errorf("%d: %v", i, got)
		}
		tasks := must(t, s.jobs.ListTasks, &pb.ListTasksRequest{JobUid: uid})
		if want := 1 + i/2; len(tasks.GetTasks()) != want {
			t.Errorf("%d: %d tasks, want %d", i, len(tasks.GetTasks()), want)
		}
		task := must(t, s.jobs.GetTask, &pb.GetTaskRequest{Id: "a.map.0", JobUid: uid})
		if task.GetArchived() != (i < 2) {
			t.Errorf("%d: %v", i, task)
		}
	}
	_, err := call(s.jobs.GetJob, &pb.GetJobRequest{Id: "b", Uid: uids[0]})
	if plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("another job's uid: %v", err)
	}
	for _, uid := range []string{"x", strings.Repeat("z", 26), strings.Repeat("0", 100_000)} {
		_, err := call(s.jobs.GetJob, &pb.GetJobRequest{Uid: uid})
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), "uid") ||
			len(err.Error()) > 300 {
			t.Errorf("uid %.30q: %v", uid, err)
		}
	}
}

func TestAJobThatIsAboutToBeDeletedIsHidden(t *testing.T) {
	c := newCell(t)
	s := c.serve(Config{})
	j, other := c.submit("a", "ann", "root.x", nil, 1), c.submit("b", "ann", "root.x", nil, 1)
	c.end(j, 0)
	c.store(j)
	j.status.Deleted = true
	c.f.put(putStatus(j.status)) // the archive has it still
	for _, req := range []*pb.ListJobsRequest{
		{}, {Owner: "ann"}, {Scope: pb.Scope_SCOPE_ALL}, {Sort: pb.JobSort_JOB_SORT_FINISHED}, {Ids: []string{
			"a",
			"b",
		}},
	} {
		got := must(t, s.jobs.ListJobs, req)
		if len(got.GetJobs()) != 1 || got.GetJobs()[0].GetId() != other.spec.ID {
			t.Errorf("%v: %v", req, got)
		}
	}
	if got := must(t, s.jobs.ListTasks, &pb.ListTasksRequest{}); len(got.GetTasks()) != 1 {
		t.Errorf("the tasks are %v", got)
	}
	if got := must(t, s.jobs.ListJobs, &pb.ListJobsRequest{Count: true}); got.GetTotal() != 1 {
		t.Errorf("counted: %v", got)
	}
	for _, req := range []*pb.GetJobRequest{{Id: "a"}, {Uid: j.status.UID.String()}} {
		if _, err := call(s.jobs.GetJob, req); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
			t.Errorf("%v: %v", req, err)
		}
	}
}

// brokenArchive is an archive whose reads fail, or hang until their context ends.
type brokenArchive struct {
	*archivetest.Memory
	err  error
	hang bool
	mark *archive.Mark
}

func (b *brokenArchive) fail(ctx context.Context) error {
	if b.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return b.err
}

func (b *brokenArchive) Mark(ctx context.Context) (archive.Mark, error) {
	if b.mark != nil {
		return *b.mark, nil
	}
	return b.Memory.Mark(ctx)
}

func (b *brokenArchive) Job(ctx context.Context, id string, uid plimsoll.UID) (archive.Stored, error) {
	if err := b.fail(ctx); err != nil {
		return archive.Stored{}, err
	}
	return b.Memory.Job(ctx, id, uid)
}

func (b *brokenArchive) Jobs(ctx context.Context, q archive.JobQuery) (archive.Page[archive.Stored, archive.Position],
	error,
) {
	if err := b.fail(ctx); err != nil {
		return archive.Page[archive.Stored, archive.Position]{}, err
	}
	return b.Memory.Jobs(ctx, q)
}

// TestWithoutTheArchiveNothingIsSaidNotToExist asks for jobs that only the archive knows, while it
// cannot be read. Such an answer is unavailable, and never "not found". The jobs of the copy are
// found.
func TestWithoutTheArchiveNothingIsSaidNotToExist(t *testing.T) {
	other := archive.Mark{ID: "another"}
	for _, broken := range []struct {
		name    string
		archive func(*cell) archive.Reader
		why     string
	}{
		{"none", func(*cell) archive.Reader { return nil }, "started without --archive"},
		{"failing", func(c *cell) archive.Reader {
			return &brokenArchive{Memory: c.archive, err: plimsoll.Errorf(plimsoll.CodeUnavailable,
				"the file is not there")}
		}, "the file is not there"},
		{"another archive", func(c *cell) archive.Reader {
			return &brokenArchive{Memory: c.archive, mark: &other}
		}, `its archive is "another"`},
		{"an older copy", func(c *cell) archive.Reader {
			return &brokenArchive{Memory: c.archive, mark: &archive.Mark{ID: c.mark.ID}}
		}, "older copy"},
	} {
		t.Run(broken.name, func(t *testing.T) {
			c := newCell(t)
			gone := c.submit("gone", "ann", "root.x", nil, 1)
			c.submit("here", "ann", "root.x", nil, 1)
			c.end(gone, 0)
			c.archived(gone)
			s := directly(newGateway(t, Config{Archive: broken.archive(c)}, c.f))
			unknown := func(what string, err error) {
				t.Helper()
				if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || !strings.Contains(err.Error(), broken.why) {
					t.Errorf("%s: %v", what, err)
				}
			}
			for _, id := range []string{"gone", "never"} {
				_, err := call(s.jobs.GetJob, &pb.GetJobRequest{Id: id})
				unknown("get "+id, err)
				_, err = call(s.jobs.GetTask, &pb.GetTaskRequest{Id: id + ".map.0"})
				unknown("task of "+id, err)
				_, err = call(s.jobs.ListTasks, &pb.ListTasksRequest{Job: id})
				unknown("tasks of "+id, err)
				_, err = call(s.jobs.ListAttempts, &pb.ListAttemptsRequest{Task: id + ".map.0"})
				unknown("attempts of "+id, err)
			}
			if broken.name != "failing" { // there, Jobs and Job alone fail
				_, err := call(s.jobs.ListTasks, &pb.ListTasksRequest{Scope: pb.Scope_SCOPE_ALL})
				unknown("all tasks", err)
			}
			_, err := call(s.jobs.ListJobs, &pb.ListJobsRequest{Scope: pb.Scope_SCOPE_ENDED})
			unknown("ended jobs", err)
			must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "here"})
			must(t, s.jobs.GetTask, &pb.GetTaskRequest{Id: "here.map.0"})
			if got := must(t, s.jobs.ListJobs, &pb.ListJobsRequest{}); len(got.GetJobs()) != 1 {
				t.Errorf("the active jobs are %v", got)
			}
		})
	}
}

// swappedArchive is an archive that somebody replaces by an empty one. As the contract of readers
// says, its calls fail with CodeStale until Mark has told of the new one.
type swappedArchive struct {
	*archivetest.Memory
	empty           *archivetest.Memory
	swapped, marked bool
}

func (s *swappedArchive) Mark(ctx context.Context) (archive.Mark, error) {
	if s.marked = s.swapped; s.swapped {
		return s.empty.Mark(ctx)
	}
	return s.Memory.Mark(ctx)
}

func (s *swappedArchive) Job(ctx context.Context, id string, uid plimsoll.UID) (archive.Stored, error) {
	switch {
	case s.swapped && !s.marked:
		return archive.Stored{}, plimsoll.Errorf(plimsoll.CodeStale, "another file has taken its place")
	case s.swapped:
		return s.empty.Job(ctx, id, uid)
	}
	return s.Memory.Job(ctx, id, uid)
}

// The mark of an archive that was right does not count for another one in its place.
func TestAReplacedArchiveIsNoticed(t *testing.T) {
	c := newCell(t)
	gone := c.submit("gone", "ann", "root.x", nil, 1)
	c.end(gone, 0)
	c.archived(gone)
	a := &swappedArchive{Memory: c.archive, empty: archivetest.NewMemory()}
	if _, err := a.empty.Fence(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s := directly(newGateway(t, Config{Archive: a}, c.f))
	must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "gone"})
	a.swapped = true
	for range 3 {
		_, err := call(s.jobs.GetJob, &pb.GetJobRequest{Id: "gone"})
		if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
			t.Errorf("%v", err)
		}
	}
	a.swapped = false
	must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "gone"})
}

// Without an archive in the cell, what the copy does not have does not exist.
func TestWithoutAnArchiveInTheCellAMissingJobIsNotFound(t *testing.T) {
	f := newFake()
	f.put(putStatus(plimsoll.JobStatus{ID: "a", State: plimsoll.JobCompleted}))
	s := directly(newGateway(t, Config{}, f))
	if _, err := call(s.jobs.GetJob, &pb.GetJobRequest{Id: "b"}); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("%v", err)
	}
	if got := must(t, s.jobs.ListJobs, &pb.ListJobsRequest{Scope: pb.Scope_SCOPE_ENDED}); len(got.GetJobs()) != 1 {
		t.Errorf("%v", got)
	}
}

// Reads of an archive that hangs end after archiveTimeout. Only so many wait meanwhile, and reads
// of the copy do not.
func TestAnArchiveThatHangsHoldsUpNoReadOfTheCopy(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.submit("here", "ann", "root.x", nil, 1)
		s := directly(newGateway(t, Config{Archive: &brokenArchive{Memory: c.archive, hang: true}}, c.f))
		began := time.Now()
		const readers = maxArchiveReads + maxArchiveWaits + 20
		ended := make(chan error, readers)
		for range readers {
			go func() {
				_, err := call(s.jobs.GetJob, &pb.GetJobRequest{Id: "gone"})
				ended <- err
			}()
		}
		synctest.Wait()
		must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "here"})
		if at := time.Since(began); at != 0 {
			t.Errorf("a read of the copy waited %s", at)
		}
		refused, hung := 0, 0
		for range readers {
			err := <-ended
			switch {
			case plimsoll.CodeOf(err) != plimsoll.CodeUnavailable:
				t.Errorf("%v", err)
			case strings.Contains(err.Error(), "wait already"):
				refused++
			case strings.Contains(err.Error(), "did not answer within "+archiveTimeout.String()):
				hung++
			}
		}
		if refused != 20 || hung != readers-20 || time.Since(began) > archiveTimeout {
			t.Errorf("%d refused, %d hung, after %s", refused, hung, time.Since(began))
		}
	})
}

func TestWatchJobSendsTheEndFromTheArchive(t *testing.T) {
	c := newCell(t)
	s := serve(t, Config{Archive: c.archive}, c.f)
	j := c.submit("a", "ann", "root.x", nil, 1)
	late := open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Id: "a"})
	if got := receive(t, late); got.GetStatus().GetState() != pb.JobState_JOB_STATE_RUNNING || got.GetArchived() {
		t.Fatalf("first: %v", got)
	}
	// The copy jumps over the end: the next it sees is another lifetime.
	c.f.set(func(f *fake) { f.hang = false })
	j.status.State, j.status.Finished = plimsoll.JobFailed, c.clock
	j.tasks = nil
	c.store(j)
	c.jobs[j.status.UID] = j
	c.submit("a", "ann", "root.x", nil, 1)
	got := receive(t, late)
	if got.GetStatus().GetUid() != j.status.UID.String() || !got.GetArchived() ||
		got.GetStatus().GetState() != pb.JobState_JOB_STATE_FAILED {
		t.Errorf("at the end: %v", got)
	}
	if err := ending(t, late); err != nil {
		t.Errorf("the watch ends with %v", err)
	}
	again := open(t, s.jobs.WatchJob, &pb.WatchJobRequest{Uid: j.status.UID.String()})
	if got := receive(t, again); !got.GetArchived() {
		t.Errorf("by uid: %v", got)
	}
}

func TestAWatchTellsWhetherADeletedJobIsInTheArchive(t *testing.T) {
	c := newCell(t)
	w := c.watchJobs(&pb.WatchJobsRequest{})
	kept, removed := c.submit("kept", "ann", "root.x", nil, 0), c.submit("removed", "ann", "root.x", nil, 0)
	c.end(kept, 0)
	c.end(removed, 0)
	c.archived(kept)
	c.remove(removed)
	archived := map[string]bool{}
	for len(archived) < 2 {
		for _, m := range w() {
			if m.GetChange() == pb.WatchChange_WATCH_CHANGE_DELETED {
				archived[m.GetJob().GetStatus().GetId()] = m.GetArchived()
			}
		}
	}
	if !archived["kept"] || archived["removed"] {
		t.Errorf("archived: %v", archived)
	}
}

// watchJobs begins a watch and returns the function that reads its next message.
func (c *cell) watchJobs(req *pb.WatchJobsRequest) func() []*pb.WatchedJob {
	s := serve(c.t, Config{Archive: c.archive}, c.f)
	stream := open(c.t, watchClient(c.t, s).WatchJobs, req)
	for !receive(c.t, stream).GetSnapshotEnd() {
	}
	return func() []*pb.WatchedJob { return receive(c.t, stream).GetJobs() }
}

// The id of a job in the archive is taken, unless the submit says replace or is the same one.
func TestTheIDOfAnArchivedJobNeedsReplace(t *testing.T) {
	c := newCell(t)
	s := c.serve(Config{})
	j := c.submit("a", "ann", "root.batch", nil, 1)
	j.spec.Token = "t1"
	c.end(j, 0)
	c.archived(j)
	spec := specNamed("a")
	submit := func(token string, replace bool) (*pb.SubmitJobResponse, error) {
		spec.Token = token
		return call(s.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec), Replace: replace})
	}
	_, err := submit("t2", false)
	if plimsoll.CodeOf(err) != plimsoll.CodeAlreadyExists || !strings.Contains(err.Error(), "replace") {
		t.Errorf("without replace: %v", err)
	}
	if sent := c.f.sent(); len(sent) > 0 {
		t.Errorf("the leader was sent %v", sent)
	}
	again, err := submit("t1", false)
	if err != nil || again.GetJob().GetStatus().GetUid() != j.status.UID.String() {
		t.Errorf("the same submit again: %v, %v", again, err)
	}
	if _, err := submit("t2", true); err != nil {
		t.Errorf("with replace: %v", err)
	}
	if sent := c.f.sent(); len(sent) != 1 || !sent[0].GetSubmitJob().GetReplace() {
		t.Errorf("the leader was sent %v", sent)
	}
	if left, err := submit("t1", true); err != nil || left.GetJob().GetStatus().GetUid() != j.status.UID.String() {
		t.Errorf("a submit whose job has left the store before the answer: %v, %v", left, err)
	}
	broken := directly(newGateway(t, Config{}, c.f))
	if _, err := call(broken.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)}); err != nil {
		t.Errorf("a gateway that cannot read the archive: %v", err)
	}
}

func TestDeleteJobIsSentToTheLeader(t *testing.T) {
	f := newFake()
	s := directly(newGateway(t, Config{}, f))
	uid := plimsoll.MakeUID(1, 2).String()
	must(t, s.jobs.DeleteJob, &pb.DeleteJobRequest{Id: "a", Uid: uid, Token: "t"})
	sent := f.sent()
	if len(sent) != 1 || sent[0].GetDeleteJob().GetId() != "a" || sent[0].GetDeleteJob().GetUid() != uid {
		t.Errorf("sent: %v", sent)
	}
	for _, bad := range []*pb.DeleteJobRequest{{}, {Id: "..?"}, {Id: "a", Uid: "x"}, {
		Id:    "a",
		Token: strings.Repeat("x", 200),
	}} {
		if _, err := call(s.jobs.DeleteJob, bad); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if sent := f.sent(); len(sent) > 0 {
		t.Errorf("bad requests were sent: %v", sent)
	}
}

// The leader does not know the jobs of the archive. Their ends are told as those of active jobs.
func TestAChangeOfAnArchivedJobSaysThatItHasEnded(t *testing.T) {
	c := newCell(t)
	unknown := func(cmd *pb.Command) *pb.Reply {
		return &pb.Reply{Error: wire.ErrorToProto(plimsoll.Errorf(plimsoll.CodeNotFound, "there is no job of the leader"))}
	}
	c.f.answer = unknown
	gone, leaving := c.submit("gone", "ann", "root.x", nil, 2), c.submit("leaving", "ann", "root.x", nil, 1)
	c.end(gone, 1)
	c.archived(gone)
	c.end(leaving, 0)
	s := c.serve(Config{})
	changes := func(id string) map[string]error {
		_, killed := call(s.jobs.KillJob, &pb.KillJobRequest{Id: id})
		_, scaled := call(s.jobs.ScaleJob, &pb.ScaleJobRequest{Id: id, Count: 3})
		return map[string]error{"kill": killed, "scale": scaled}
	}
	for what, err := range changes("gone") {
		want := plimsoll.AlreadyEnded("gone", plimsoll.JobFailed, gone.status.Finished)
		if plimsoll.CodeOf(err) != plimsoll.CodeConflict || err.Error() != want.Error() {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	for what, err := range changes("never") {
		if plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
			t.Errorf("%s of no job: %v", what, err)
		}
	}

	c.store(leaving)
	c.expire(leaving, 1)
	c.f.answer = func(*pb.Command) *pb.Reply {
		return &pb.Reply{Error: wire.ErrorToProto(plimsoll.AlreadyEnded("leaving", plimsoll.JobExpired, 1))}
	}
	for what, err := range changes("leaving") {
		if err == nil || !strings.Contains(err.Error(), "(Completed at ") {
			t.Errorf("%s of a job that leaves: %v", what, err)
		}
	}

	c.f.answer = unknown
	broken := directly(newGateway(t, Config{}, c.f))
	_, err := call(broken.jobs.KillJob, &pb.KillJobRequest{Id: "gone"})
	if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a gateway that cannot read the archive: %v", err)
	}
}

func TestATaskOfAnArchivedJobIsExplained(t *testing.T) {
	c := newCell(t)
	c.f.answer = func(*pb.Command) *pb.Reply {
		return &pb.Reply{Error: wire.ErrorToProto(plimsoll.Errorf(plimsoll.CodeNotFound, "there is no task of the leader"))}
	}
	j := c.submit("gone", "ann", "root.x", nil, 2)
	c.end(j, 1)
	c.archived(j)
	c.submit("here", "ann", "root.x", nil, 1)
	s := c.serve(Config{})
	got := must(t, s.jobs.ExplainTask, &pb.ExplainTaskRequest{Id: "gone.map.0"})
	if got.GetSummary() != "finished (failed) on node n1" || got.GetTask().GetExitCode() != 1 {
		t.Errorf("%v", got)
	}
	for name, test := range map[string]struct {
		req  *pb.ExplainTaskRequest
		want plimsoll.Code
	}{
		"no task of the job":    {&pb.ExplainTaskRequest{Id: "gone.map.2"}, plimsoll.CodeNotFound},
		"no job":                {&pb.ExplainTaskRequest{Id: "never.map.0"}, plimsoll.CodeNotFound},
		"an active task's node": {&pb.ExplainTaskRequest{Id: "here.map.0", Node: "n9"}, plimsoll.CodeNotFound},
		"a node's verdict":      {&pb.ExplainTaskRequest{Id: "gone.map.0", Node: "n1"}, plimsoll.CodeConflict},
	} {
		if _, err := call(s.jobs.ExplainTask, test.req); plimsoll.CodeOf(err) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestADamagedJobIsNamedAndTheRestIsListed(t *testing.T) {
	c := newCell(t)
	j := c.submit("a", "ann", "root.x", nil, 1)
	c.end(j, 0)
	c.archived(j)
	uid := plimsoll.MakeUID(5, 5)
	s := directly(newGateway(t, Config{Archive: &damagedArchive{c.archive, uid}}, c.f))
	got := must(t, s.jobs.ListJobs, &pb.ListJobsRequest{Scope: pb.Scope_SCOPE_ALL})
	if len(got.GetJobs()) != 1 || fmt.Sprint(got.GetDamaged()) != fmt.Sprint([]string{uid.String()}) {
		t.Errorf("%v", got)
	}
}

type damagedArchive struct {
	*archivetest.Memory
	uid plimsoll.UID
}

func (d *damagedArchive) Jobs(ctx context.Context, q archive.JobQuery) (archive.Page[archive.Stored,
	archive.Position], error,
) {
	page, err := d.Memory.Jobs(ctx, q)
	page.Damaged = []plimsoll.UID{d.uid}
	return page, err
}
