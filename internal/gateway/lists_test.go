package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// fourJobs is a cell with jobs a to d in the store: a runs, b has completed, c has failed, d was
// killed.
func fourJobs(t *testing.T) *cell {
	c := newCell(t)
	c.submit("a", "ann", "root.x", map[string]string{"team": "red", "night": ""}, 2)
	b := c.submit("b", "bob", "root.x.y", map[string]string{"team": "blue"}, 2)
	failed := c.submit("c", "ann", "root.z", map[string]string{"team": "blue=green"}, 3)
	killed := c.submit("d", "bob", "root.z", nil, 1)
	c.end(b, 0)
	c.end(failed, 2)
	killed.status.Killed = true
	c.end(killed, 1)
	return c
}

func TestListsOfJobsMeetEachCriterion(t *testing.T) {
	c := fourJobs(t)
	s := c.serve(Config{})
	ended := c.active["b"].status.Finished
	for _, x := range []struct {
		name string
		req  *pb.ListJobsRequest
		want string
	}{
		{"all", &pb.ListJobsRequest{}, "a b c d"},
		{"ids", &pb.ListJobsRequest{Ids: []string{"d", "x", "a", "d"}}, "a d"},
		{"ids and an owner", &pb.ListJobsRequest{Ids: []string{"d", "a"}, Owner: "ann"}, "a"},
		{"a label", &pb.ListJobsRequest{Labels: []string{"team"}}, "a b c"},
		{"a label with its value", &pb.ListJobsRequest{Labels: []string{"team=blue"}}, "b"},
		{"a value with an equals sign", &pb.ListJobsRequest{Labels: []string{"team=blue=green"}}, "c"},
		{"an empty value", &pb.ListJobsRequest{Labels: []string{"night="}}, "a"},
		{"labels", &pb.ListJobsRequest{Labels: []string{"night", "team=red"}}, "a"},
		{"labels of nobody", &pb.ListJobsRequest{Labels: []string{"night", "team=blue"}}, ""},
		{"results", &pb.ListJobsRequest{Results: []pb.TaskResult{pb.TaskResult_TASK_RESULT_FAILED}}, "c"},
		{"killed", &pb.ListJobsRequest{Results: []pb.TaskResult{3, 1}}, "b d"},
		{
			"ended", &pb.ListJobsRequest{Scope: pb.Scope_SCOPE_ENDED, Sort: pb.JobSort_JOB_SORT_ID, Ascending: true},
			"b c d",
		},
		{"since", &pb.ListJobsRequest{Since: ended + 1}, "c d"},
		{"until", &pb.ListJobsRequest{Until: ended + 1}, "b"},
		{"newest first", &pb.ListJobsRequest{Sort: pb.JobSort_JOB_SORT_SUBMITTED}, "d c b a"},
		{"last ended first", &pb.ListJobsRequest{Sort: pb.JobSort_JOB_SORT_FINISHED}, "d c b a"},
		{"first ended first", &pb.ListJobsRequest{Sort: pb.JobSort_JOB_SORT_FINISHED, Ascending: true}, "a b c d"},
		{"by id, from the end", &pb.ListJobsRequest{Sort: pb.JobSort_JOB_SORT_ID}, "d c b a"},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.req.Count = true
			res := must(t, s.jobs.ListJobs, x.req)
			var got []string
			for _, j := range res.GetJobs() {
				got = append(got, j.GetId())
			}
			if strings.Join(got, " ") != x.want || res.GetTotal() != int64(len(got)) || res.GetTotalAtLeast() {
				t.Errorf("got %v of %d, want %s", got, res.GetTotal(), x.want)
			}
		})
	}
}

func TestListsOfTasksMeetEachCriterion(t *testing.T) {
	c := fourJobs(t)
	s := c.serve(Config{})
	ended := c.active["b"].status.Finished
	for _, x := range []struct {
		name string
		req  *pb.ListTasksRequest
		want string
	}{
		{"a job", &pb.ListTasksRequest{Job: "c"}, "c.map.0 c.map.1 c.map.2"},
		{"results", &pb.ListTasksRequest{Results: []pb.TaskResult{2}}, "c.map.0 c.map.1 d.map.0"},
		{"exit codes", &pb.ListTasksRequest{ExitCodes: []int32{2, 7}}, "c.map.1"},
		{
			"exit code 0 is none of a task that runs", &pb.ListTasksRequest{ExitCodes: []int32{0}},
			"b.map.0 b.map.1 c.map.2",
		},
		{"owner", &pb.ListTasksRequest{Owner: "ann", Results: []pb.TaskResult{2}}, "c.map.0 c.map.1"},
		{"queue", &pb.ListTasksRequest{Queue: "root.x"}, "a.map.0 a.map.1 b.map.0 b.map.1"},
		{"label", &pb.ListTasksRequest{Labels: []string{"team=blue"}}, "b.map.0 b.map.1"},
		{"until", &pb.ListTasksRequest{Until: ended + 1}, "b.map.0 b.map.1"},
		{"since", &pb.ListTasksRequest{Since: ended + 2}, "d.map.0"},
		{"of ended jobs", &pb.ListTasksRequest{Scope: pb.Scope_SCOPE_ENDED, Owner: "bob"}, "b.map.0 b.map.1 d.map.0"},
		{
			"failed first", &pb.ListTasksRequest{Sort: pb.TaskSort_TASK_SORT_FAILED_FIRST},
			"c.map.0 c.map.1 d.map.0 a.map.0 a.map.1 b.map.0 b.map.1 c.map.2",
		},
		{
			"by end", &pb.ListTasksRequest{Sort: pb.TaskSort_TASK_SORT_FINISHED, Owner: "ann"},
			"c.map.0 c.map.1 c.map.2 a.map.0 a.map.1",
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			for _, few := range []int{0, chosenRecords} {
				s.gateway.few = few
				for _, limit := range []int32{0, 1, 2} {
					req, _ := proto.Clone(x.req).(*pb.ListTasksRequest)
					req.Count, req.Limit = true, limit
					var got []string
					for {
						res := must(t, s.jobs.ListTasks, req)
						for _, task := range res.GetTasks() {
							got = append(got, taskID(task))
						}
						if want := len(strings.Fields(x.want)); res.GetTotal() != int64(want) {
							t.Errorf("counted %d, want %d", res.GetTotal(), want)
						}
						if res.GetNext() == "" {
							break
						}
						if req.Cursor = res.GetNext(); strings.Contains(req.Cursor, ".") { // an id: a list as it was
							req.Cursor, req.After = "", res.GetNext()
						}
					}
					if strings.Join(got, " ") != x.want {
						t.Errorf("few %d, limit %d: got %v, want %s", few, limit, got, x.want)
					}
				}
			}
		})
	}
}

func TestCriteriaThatCannotBeAreRefused(t *testing.T) {
	c := fourJobs(t)
	s := c.serve(Config{})
	many := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("x", i))
		}
		return all
	}
	next := must(t, s.jobs.ListJobs, &pb.ListJobsRequest{Sort: pb.JobSort_JOB_SORT_SUBMITTED, Limit: 1}).GetNext()
	for field, req := range map[string]*pb.ListJobsRequest{
		"ids":        {Ids: many(1001)},
		"ids[1]":     {Ids: []string{"a", "?"}},
		"labels":     {Labels: many(10_000)},
		"labels[0]":  {Labels: []string{"=x"}},
		"labels[1]":  {Labels: []string{"a", strings.Repeat("k", 200)}},
		"results":    {Results: slices.Repeat([]pb.TaskResult{1}, 100)},
		"results[0]": {Results: []pb.TaskResult{99}},
		"scope":      {Scope: 9},
		"sort":       {Sort: 9},
		"since":      {Since: -1},
		"until":      {Since: 5, Until: 5},
		"limit":      {Limit: -1},
		"fields[0]":  {Fields: []string{"stat"}},
		"fields":     {Fields: slices.Repeat([]string{"state"}, 100_000)},
		"after":      {After: "a", Scope: pb.Scope_SCOPE_ALL},
		"cursor":     {Cursor: next, Owner: "ann", Sort: pb.JobSort_JOB_SORT_SUBMITTED},
	} {
		_, err := call(s.jobs.ListJobs, req)
		e, _ := err.(*plimsoll.Error) //nolint:errorlint // it is the error itself
		if e == nil || e.Code != plimsoll.CodeInvalid || e.Field != field || len(e.Msg) > 600 {
			t.Errorf("%s: %v", field, err)
		}
	}
	for field, req := range map[string]*pb.ListTasksRequest{
		"exitCodes": {ExitCodes: make([]int32, 101)},
		"labels":    {Labels: many(17)},
		"sort":      {Sort: pb.TaskSort_TASK_SORT_FINISHED, Scope: pb.Scope_SCOPE_ALL},
		"jobUid":    {JobUid: "x"},
		"job":       {Job: "?"},
		"after":     {After: "a.map.0", Sort: pb.TaskSort_TASK_SORT_ID},
		"cursor":    {Cursor: next},
	} {
		_, err := call(s.jobs.ListTasks, req)
		e, _ := err.(*plimsoll.Error) //nolint:errorlint // as above
		if e == nil || e.Code != plimsoll.CodeInvalid || e.Field != field {
			t.Errorf("tasks: %s: %v", field, err)
		}
	}
}

// A newer caller may send a criterion that this gateway does not know. To ignore it would choose
// too much, so a read with it is refused, in both encodings. A write goes to the leader.
func TestUnknownCriteriaAreRefused(t *testing.T) {
	f := newFake()
	g := newGateway(t, Config{}, f)
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1)
	for path, refused := range map[string]bool{
		plimsollv1connect.JobServiceListJobsProcedure:  true,
		plimsollv1connect.JobServiceListTasksProcedure: true,
		plimsollv1connect.JobServiceGetJobProcedure:    true,
		plimsollv1connect.JobServiceKillJobProcedure:   false,
	} {
		status, _, body := post(g, path, "application/proto", unknown)
		if got := strings.Contains(string(body), "field 999"); got != refused || status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, status, body)
		}
		status, _, body = post(g, path, "application/json", []byte(`{"colour": "red"}`))
		if status != http.StatusBadRequest || !strings.Contains(string(body), "colour") {
			t.Errorf("%s in JSON: %d %s", path, status, body)
		}
	}
	req := &pb.WatchJobsRequest{}
	req.ProtoReflect().SetUnknown(unknown)
	stream := open(t, watchClient(t, serve(t, Config{}, f)).WatchJobs, req)
	if err := ending(t, stream); plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(),
		"field 999") {
		t.Errorf("a watch: %v", err)
	}
}

// Answers with some fields are those of the whole answer: in both encodings, from the copy and from
// the archive. The cache of JSON does not get them.
func TestAnswersHaveTheFieldsThatWereAskedFor(t *testing.T) {
	c := fourJobs(t)
	c.archived(c.active["c"])
	s := c.serve(Config{})
	json := plimsollv1connect.NewJobServiceClient(direct{s.gateway.Handler()}, s.url, connect.WithProtoJSON())
	for name, jobs := range map[string]plimsollv1connect.JobServiceClient{"binary": s.jobs, "JSON": json} {
		for _, id := range []string{"b", "c"} {
			whole := must(t, jobs.GetJob, &pb.GetJobRequest{Id: id}).GetJob()
			cached := s.gateway.rendered.stats().size
			got := must(t, jobs.GetJob, &pb.GetJobRequest{Id: id, Fields: []string{
				"status.state",
				"spec.labels",
			}}).GetJob()
			want := &pb.Job{
				Spec:   &pb.JobSpec{Id: id, Labels: whole.GetSpec().GetLabels()},
				Status: &pb.JobStatus{Id: id, Uid: whole.GetStatus().GetUid(), State: whole.GetStatus().GetState()},
			}
			if !proto.Equal(got, want) {
				t.Errorf("%s, %s: got %v, want %v", name, id, got, want)
			}
			got = must(t, jobs.GetJob, &pb.GetJobRequest{Id: id, Fields: []string{"status"}}).GetJob()
			if got.GetSpec() != nil || !proto.Equal(got.GetStatus(), whole.GetStatus()) {
				t.Errorf("%s, %s: the status is %v", name, id, got)
			}
			if now := s.gateway.rendered.stats().size; now > cached && id == "c" {
				t.Errorf("%s, %s: the cache grew from %d to %d", name, id, cached, now)
			}
		}
		for _, scope := range []pb.Scope{pb.Scope_SCOPE_UNSPECIFIED, pb.Scope_SCOPE_ALL} {
			list := must(t, jobs.ListJobs, &pb.ListJobsRequest{Scope: scope, Fields: []string{"owner"}})
			for _, j := range list.GetJobs() {
				if want := (&pb.JobStatus{Id: j.GetId(), Uid: j.GetUid(), Owner: j.GetOwner()}); !proto.Equal(j,
					want) ||
					j.GetOwner() == "" || j.GetUid() == "" {
					t.Errorf("%s, %v: %v", name, scope, j)
				}
			}
			tasks := must(t, jobs.ListTasks, &pb.ListTasksRequest{
				Scope: scope, Fields: []string{"state"},
				Results: []pb.TaskResult{2},
			})
			for _, task := range tasks.GetTasks() {
				if task.GetNode() != "" || task.GetState() != pb.TaskState_TASK_STATE_FINISHED || task.GetJob() == "" {
					t.Errorf("%s, %v: %v", name, scope, task)
				}
			}
		}
	}
}

func TestWatchesMeetTheCriteriaOfLists(t *testing.T) {
	c := newCell(t)
	s := serve(t, Config{}, c.f)
	c.submit("a", "ann", "root.x", map[string]string{"team": "red"}, 1)
	c.submit("b", "ann", "root.x", map[string]string{"team": "blue"}, 1)
	seen := func(req *pb.WatchJobsRequest) func() string {
		stream := open(t, watchClient(t, s).WatchJobs, req)
		return func() string {
			for {
				m := receive(t, stream)
				if len(m.GetJobs()) > 0 {
					j := m.GetJobs()[0]
					return fmt.Sprint(j.GetJob().GetStatus().GetId(), " ",
						strings.ToLower(strings.TrimPrefix(j.GetChange().String(), "WATCH_CHANGE_")))
				}
			}
		}
	}
	blue := seen(&pb.WatchJobsRequest{Labels: []string{"team=blue"}})
	byID := seen(&pb.WatchJobsRequest{Ids: []string{"z", "b"}})
	failed := seen(&pb.WatchJobsRequest{Results: []pb.TaskResult{pb.TaskResult_TASK_RESULT_FAILED}})
	tasks := open(t, watchClient(t, s).WatchTasks, &pb.WatchTasksRequest{
		ExitCodes: []int32{1},
		Results:   []pb.TaskResult{2},
	})
	for name, next := range map[string]func() string{"label": blue, "id": byID} {
		if got := next(); got != "b present" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if !receive(t, tasks).GetSnapshotEnd() {
		t.Error("a task has failed already")
	}
	c.end(c.active["a"], 0)
	c.end(c.active["b"], 1)
	for name, next := range map[string]func() string{"label": blue, "id": byID} {
		if got := next(); got != "b updated" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := failed(); got != "b added" {
		t.Errorf("results: %s", got)
	}
	if got := receive(t, tasks).GetTasks()[0]; got.GetTask().GetJob() != "b" ||
		got.GetChange() != pb.WatchChange_WATCH_CHANGE_ADDED {
		t.Errorf("tasks: %v", got)
	}
	bad := open(t, watchClient(t, s).WatchJobs, &pb.WatchJobsRequest{Labels: []string{""}})
	if err := ending(t, bad); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("%v", err)
	}
}

// Counting has a bound on its work.
func TestACountThatTakesTooLongIsALowerBound(t *testing.T) {
	f := newFake()
	var batch []wire.Mutation
	for i := range maxCounted + 10 {
		batch = append(batch, putTask(plimsoll.Task{
			Job: "a", Group: "map", Index: int32(i),
			State: plimsoll.TaskPending,
		}))
	}
	f.put(append(batch, putStatus(plimsoll.JobStatus{ID: "a", State: plimsoll.JobRunning}))...)
	s := directly(newGateway(t, Config{}, f))
	got := must(t, s.jobs.ListTasks, &pb.ListTasksRequest{Job: "a", Limit: 1, Count: true})
	if got.GetTotal() != maxCounted || !got.GetTotalAtLeast() {
		t.Errorf("of a job: %d, at least %v", got.GetTotal(), got.GetTotalAtLeast())
	}
	got = must(t, s.jobs.ListTasks, &pb.ListTasksRequest{Limit: 1, Count: true})
	if got.GetTotal() != maxCounted+10 || got.GetTotalAtLeast() {
		t.Errorf("of all: %d, at least %v", got.GetTotal(), got.GetTotalAtLeast())
	}
}

// Pages end at their bound in bytes, and nothing is lost there.
func TestPagesOfAllAreBoundedInBytes(t *testing.T) {
	c := newCell(t)
	s := c.serve(Config{})
	for i := range 12 {
		j := c.submit(fmt.Sprintf("j%02d", i), "ann", "root.x", nil, 0)
		j.status.Reason = strings.Repeat("r", 1<<20)
		c.end(j, 0)
		if i%2 == 0 {
			c.archived(j)
		}
	}
	req := &pb.ListJobsRequest{Scope: pb.Scope_SCOPE_ALL}
	pages, ids := 0, []string(nil)
	for {
		res := must(t, s.jobs.ListJobs, req)
		if n := proto.Size(res); n > pageBytes+2<<20 {
			t.Errorf("a page of %d bytes", n)
		}
		pages++
		ids = append(ids, idsOf(res.GetJobs())...)
		if req.Cursor = res.GetNext(); req.Cursor == "" {
			break
		}
	}
	if want := c.answerOf(req); pages < 3 || !slices.Equal(ids, want) {
		t.Errorf("%d pages: %v, want %v", pages, ids, want)
	}
}

func TestPinsAreBounded(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		s := c.serve(Config{ID: "g1"})
		for i := range 3 {
			c.submit(fmt.Sprint("j", i), "ann", "root.x", nil, 0)
		}
		begin := func() (*pb.ListJobsRequest, error) {
			req := &pb.ListJobsRequest{Limit: 1, Pin: true}
			res, err := call(s.jobs.ListJobs, req)
			req.Cursor = res.GetNext()
			return req, err
		}
		first, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		for range 10 { // of the same revision: one pin
			if _, err := begin(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range maxPins - 1 {
			c.submit(fmt.Sprint("k", i), "ann", "root.x", nil, 0)
			if _, err := begin(); err != nil {
				t.Fatalf("pin %d: %v", i, err)
			}
		}
		c.submit("one-more", "ann", "root.x", nil, 0)
		if _, err := begin(); plimsoll.CodeOf(err) != plimsoll.CodeExhausted || !strings.Contains(err.Error(),
			"list without pin") {
			t.Errorf("beyond the bound: %v", err)
		}
		status, header, _ := post(s.gateway, plimsollv1connect.JobServiceListJobsProcedure, "application/json",
			[]byte(`{"pin":true}`))
		if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
			t.Errorf("beyond the bound: %d, %v", status, header)
		}
		must(t, s.jobs.ListJobs, &pb.ListJobsRequest{Sort: pb.JobSort_JOB_SORT_SUBMITTED})
		other := directly(newGateway(t, Config{ID: "g2"}, c.f))
		if _, err := call(other.jobs.ListJobs, first); plimsoll.CodeOf(err) != plimsoll.CodeStale ||
			!strings.Contains(err.Error(), `"g1"`) {
			t.Errorf("at another gateway: %v", err)
		}
		time.Sleep(pinTime - time.Second)
		page := must(t, s.jobs.ListJobs, first)
		if until := time.Unix(0, page.GetPinUntil()); until != time.Now().Add(pinTime) ||
			page.GetAgeNanos() != int64(pinTime-time.Second) {
			t.Errorf("a page keeps the pin until %s; the answer is %s old", until, time.Duration(page.GetAgeNanos()))
		}
		time.Sleep(2 * time.Second) // the others are over, and this one is not
		must(t, s.jobs.ListJobs, first)
		if _, err := begin(); err != nil {
			t.Errorf("when the others are over: %v", err)
		}
		time.Sleep(pinTime + time.Second)
		if _, err := call(s.jobs.ListJobs, first); plimsoll.CodeOf(err) != plimsoll.CodeStale ||
			!strings.Contains(err.Error(), "begin again") {
			t.Errorf("when it is over: %v", err)
		}
	})
}

// A pin that keeps too much goes, the oldest first, and so do those of a copy that was replaced.
func TestPinsGoWhenTheyKeepTooMuch(t *testing.T) {
	c := newCell(t)
	s := c.serve(Config{})
	c.submit("a", "ann", "root.x", nil, 0)
	c.submit("b", "ann", "root.x", nil, 0)
	pin := func() *pb.ListJobsRequest {
		req := &pb.ListJobsRequest{Limit: 1, Pin: true}
		req.Cursor = must(t, s.jobs.ListJobs, req).GetNext()
		return req
	}
	first := pin()
	big := plimsoll.JobStatus{ID: "big", Reason: strings.Repeat("x", 32<<20), Submitted: 3}
	for range maxPinBytes/(32<<20) + 1 {
		c.f.put(putStatus(big))
	}
	second := pin()
	c.f.put(putStatus(big))
	if _, err := call(s.jobs.ListJobs, first); plimsoll.CodeOf(err) != plimsoll.CodeStale {
		t.Errorf("the oldest: %v", err)
	}
	must(t, s.jobs.ListJobs, second)
	c.f.set(func(f *fake) { f.latest = newFake().latest })
	if _, err := call(s.jobs.ListJobs, second); plimsoll.CodeOf(err) != plimsoll.CodeStale {
		t.Errorf("of another copy: %v", err)
	}
}

func TestACursorIsReadBack(t *testing.T) {
	want := cursor{
		list: listOfTasks, criteria: 7, phase: 1, finished: -5, uid: plimsoll.MakeUID(3, 4), id: "job",
		key: "job\x00map\x000000001",
		archived: archive.TaskPosition{
			Job:  archive.Position{UID: plimsoll.MakeUID(1, 2), Finished: 9, ID: "other"},
			Task: 1 << 20,
		},
		pinned: true, gateway: "g1", version: plimsoll.Version{Epoch: 2, Revision: 1 << 60},
	}
	got, err := parseCursor("cursor", want.text())
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	long := want
	long.id, long.archived.Job.ID, long.gateway = strings.Repeat("i", 255), strings.Repeat("i", 255),
		strings.Repeat("g", 255)
	long.key = long.id + "\x00" + strings.Repeat("m", 255) + "\x000000001"
	if got, err := parseCursor("cursor", long.text()); err != nil || got != long {
		t.Errorf("the longest: %v, %d bytes", err, len(long.text()))
	}
}

// FuzzCursor reads any text as a cursor, and lists with each text that is one. A caller that makes
// one up gets a page or an error, and nothing that lies outside of the list.
func FuzzCursor(f *testing.F) {
	c := newCell(f)
	for i := range 6 {
		j := c.submit(fmt.Sprint("j", i), "ann", "root.x", nil, 2)
		if c.end(j, 1); i%2 == 0 {
			c.archived(j)
		}
	}
	s := c.serve(Config{})
	for _, req := range []*pb.ListJobsRequest{{Scope: pb.Scope_SCOPE_ALL, Limit: 2}, {Pin: true, Limit: 1}} {
		f.Add(must(f, s.jobs.ListJobs, req).GetNext(), true)
	}
	f.Add(must(f, s.jobs.ListTasks, &pb.ListTasksRequest{Scope: pb.Scope_SCOPE_ALL, Limit: 3}).GetNext(), false)
	f.Add("", true)
	f.Add(strings.Repeat("A", 4000), true)
	jobs, err := jobListOf(s.gateway, &pb.ListJobsRequest{Scope: pb.Scope_SCOPE_ALL})
	if err != nil {
		f.Fatal(err)
	}
	tasks, err := taskListOf(s.gateway, &pb.ListTasksRequest{Scope: pb.Scope_SCOPE_ALL})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string, ofJobs bool) {
		got, err := parseCursor("cursor", text)
		if err != nil {
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || len(err.Error()) > 200 {
				t.Errorf("%v", err)
			}
			return
		}
		if again := got.text(); again != text {
			t.Fatalf("%q is read and written as %q", text, again)
		}
		got.pinned = false
		if ofJobs {
			got.list, got.criteria = listOfJobs, jobs.hash
			res, err := call(s.jobs.ListJobs, &pb.ListJobsRequest{Scope: pb.Scope_SCOPE_ALL, Cursor: got.text()})
			if err != nil || len(res.GetJobs()) > 6 {
				t.Errorf("%v, %v", res, err)
			}
			return
		}
		got.list, got.criteria = listOfTasks, tasks.hash
		res, err := call(s.jobs.ListTasks, &pb.ListTasksRequest{Scope: pb.Scope_SCOPE_ALL, Cursor: got.text()})
		if err != nil || len(res.GetTasks()) > 12 {
			t.Errorf("%v, %v", res, err)
		}
	})
}
