package gateway

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// noSharing is Config.MaxSharedBytes without room for any answer.
const noSharing = 1

// sharedQuestion returns a random request for any read that may be shared, and for some that may
// not. There are few, so that most are repeated.
func (l *randomLife) sharedQuestion() (path string, req proto.Message) {
	level := pick(l.rng, "", "eventual", "at-least")
	at := map[string]*pb.Consistency{
		"eventual": {Level: pb.Freshness_FRESHNESS_EVENTUAL},
		"at-least": {Level: pb.Freshness_FRESHNESS_AT_LEAST, Epoch: 1, Revision: 1},
	}[level]
	id := fmt.Sprintf("job-%d", l.rng.IntN(4))
	switch l.rng.IntN(9) {
	case 0:
		return plimsollv1connect.JobServiceGetJobProcedure, &pb.GetJobRequest{Id: id, Consistency: at}
	case 1:
		task := &pb.GetTaskRequest{Id: id + ".map.0", Consistency: at}
		return plimsollv1connect.JobServiceGetTaskProcedure, task
	case 2:
		return plimsollv1connect.NodeServiceListNodesProcedure, &pb.ListNodesRequest{Consistency: at}
	case 3:
		return plimsollv1connect.PolicyServiceListPoliciesProcedure, &pb.ListPoliciesRequest{Consistency: at}
	case 4:
		return plimsollv1connect.QueueServiceListQueuesProcedure, &pb.ListQueuesRequest{Consistency: at}
	case 5, 6:
		tasks := &pb.ListTasksRequest{Consistency: at, Count: l.rng.IntN(2) == 0, WithJobUids: l.rng.IntN(2) == 0}
		tasks.Scope = []pb.Scope{0, 0, pb.Scope_SCOPE_ALL}[l.rng.IntN(3)]
		if l.rng.IntN(2) == 0 {
			tasks.Job = id
		}
		return plimsollv1connect.JobServiceListTasksProcedure, tasks
	}
	jobs := &pb.ListJobsRequest{Consistency: at, Limit: int32(l.rng.IntN(2)) * 3, Count: l.rng.IntN(2) == 0}
	jobs.Scope = []pb.Scope{0, 0, 0, pb.Scope_SCOPE_ALL, pb.Scope_SCOPE_ENDED}[l.rng.IntN(5)]
	jobs.Sort = []pb.JobSort{0, pb.JobSort_JOB_SORT_ID, pb.JobSort_JOB_SORT_FINISHED}[l.rng.IntN(3)]
	return plimsollv1connect.JobServiceListJobsProcedure, jobs
}

// Two gateways have the same copy, which changes at random. One shares its answers and the other
// makes each of its own; nobody can tell them apart.
func TestRandomAnswersThatAreSharedAreThoseThatWouldBeMade(t *testing.T) {
	first, runs := testrun.Seed(t), testrun.Count(3, 8, 1000)
	var hits, evicted uint64
	for i := range runs {
		seed := first + uint64(i)
		rng := rand.New(rand.NewPCG(seed, 0))
		l := &randomLife{newCell(t), rng}
		bytes := []int{1 << 20, 4000, 20_000, 0}[i%4]
		shares := newGateway(t, Config{Archive: l.archive, MaxSharedBytes: bytes}, l.f)
		alone := newGateway(t, Config{Archive: l.archive, MaxSharedBytes: noSharing}, l.f)
		for range 250 {
			switch rng.IntN(12) {
			case 0, 1:
				l.step(true)
			case 2:
				node := plimsoll.Node{ID: fmt.Sprintf("n%d", rng.IntN(3)), Revision: l.f.revision + 1}
				l.f.put(putNode(node))
			case 3:
				l.behind()
			case 4:
				l.f.elect()
			}
			path, req := l.sharedQuestion()
			kind := plainKinds[rng.IntN(2)]
			call := &readCall{path: path, body: inKind(t, kind, req), header: http.Header{"Content-Type": {kind}}}
			for range 1 + rng.IntN(3) {
				compareShared(t, seed, call, shares, alone)
			}
			if t.Failed() {
				return
			}
		}
		s := shares.answers.stats()
		if hits, evicted = hits+s.hits, evicted+s.evicted; s.size > shares.answers.most || s.size < 0 {
			t.Errorf("seed %d: %d bytes are kept, and the bound is %d", seed, s.size, shares.answers.most)
		}
		if n := alone.answers.stats().hits; n != 0 {
			t.Fatalf("seed %d: the other gateway has shared %d answers", seed, n)
		}
	}
	if hits == 0 || evicted == 0 {
		t.Errorf("%d answers were shared and %d questions gave way: the test shows nothing", hits, evicted)
	}
}

// behind lets the reads that are not strict see an earlier state for a while, or no longer.
func (l *randomLife) behind() {
	l.f.set(func(f *fake) {
		if f.behind != nil {
			f.behind = nil
			return
		}
		f.behind = f.latest
	})
}

func compareShared(t *testing.T, seed uint64, call *readCall, shares, alone *Gateway) {
	t.Helper()
	got, want := call.send(shares), call.send(alone)
	if got.Code != want.Code || !bytes.Equal(got.Body.Bytes(), want.Body.Bytes()) {
		t.Errorf("seed %d: %s %q: %d %q, want %d %q",
			seed, call.path, call.body, got.Code, got.Body, want.Code, want.Body)
	}
	if !maps.EqualFunc(got.Header(), want.Header(), slices.Equal[[]string]) {
		t.Errorf("seed %d: %s %q: the header is %v, want %v", seed, call.path, call.body, got.Header(), want.Header())
	}
	if n := shares.budgets.users.used.Load(); n != 0 {
		t.Errorf("seed %d: %d bytes are still charged", seed, n)
	}
}

// A strict reader never gets an answer from before its request, and each answer is whole, while
// many share and a writer changes the copy.
func TestASharedAnswerIsNeverStale(t *testing.T) {
	f := newFake()
	write := func(revision uint64) {
		var tasks []wire.Mutation
		for i := range int32(20) {
			tasks = append(tasks, putTask(plimsoll.Task{Job: "a", Group: "g", Index: i, Revision: revision}))
		}
		f.put(tasks...)
	}
	write(1)
	g := newGateway(t, Config{}, f)
	var committed atomic.Uint64
	committed.Store(f.revision)
	var readers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 6 {
		readers.Go(func() {
			for ctx.Err() == nil {
				before := committed.Load()
				status, _, body := post(g, plimsollv1connect.JobServiceListTasksProcedure, "application/proto", nil)
				answer := &pb.ListTasksResponse{}
				if err := proto.Unmarshal(body, answer); err != nil || status != http.StatusOK {
					t.Errorf("%d %v", status, err)
					return
				}
				if answer.GetRevision() < before || len(answer.GetTasks()) != 20 {
					t.Errorf("%d tasks of revision %d, after %d was committed",
						len(answer.GetTasks()), answer.GetRevision(), before)
					return
				}
				for _, task := range answer.GetTasks() {
					if task.GetRevision() != answer.GetRevision() {
						t.Errorf("a task of revision %d at %d", task.GetRevision(), answer.GetRevision())
						return
					}
				}
			}
		})
	}
	for g.answers.stats().hits < 200 && committed.Load() < 20_000 {
		next := committed.Load() + 1
		write(next)
		committed.Store(next)
		for range 20 { // so that readers meet at a state
			post(g, plimsollv1connect.JobServiceListTasksProcedure, "application/proto", nil)
		}
	}
	cancel()
	readers.Wait()
}

// ofOneTask has a job with one task, whose message has so many bytes.
func ofOneTask(message int) *fake {
	f := newFake()
	f.put(putStatus(plimsoll.JobStatus{ID: "a", State: plimsoll.JobRunning}))
	changeTask(f, 0, message)
	return f
}

func changeTask(f *fake, attempt int32, message int) {
	f.put(putTask(plimsoll.Task{Job: "a", Group: "g", Attempt: attempt, Message: strings.Repeat("m", message)}))
}

func readTasks(g *Gateway, body string) (int, []byte) {
	status, _, answer := post(g, plimsollv1connect.JobServiceListTasksProcedure, "application/json", []byte(body))
	return status, answer
}

func TestAnAnswerIsKeptWhenItsQuestionComesAgain(t *testing.T) {
	f := ofOneTask(0)
	g := newGateway(t, Config{}, f)
	const question = `{"job":"a"}`
	check := func(step string, hits, misses uint64, kept bool) {
		t.Helper()
		if status, answer := readTasks(g, question); status != http.StatusOK {
			t.Fatalf("%s: %d %s", step, status, answer)
		}
		s := g.answers.stats()
		if s.hits != hits || s.misses != misses || (s.size > askedOverhead+int64(len(question))) != kept {
			t.Errorf("%s: %+v", step, s)
		}
	}
	check("for the first time", 0, 1, false)
	check("again", 0, 2, true)
	check("a third time", 1, 2, true)
	changeTask(f, 1, 0)
	check("after a change of an answer that was shared", 1, 3, true)
	changeTask(f, 2, 0)
	check("after a change of one that nobody shared", 1, 4, false)
}

// An earlier state, which a slow reader has, takes no answer away from the readers of the newest.
func TestAnEarlierStateDropsNoAnswer(t *testing.T) {
	f := ofOneTask(0)
	c := &answerCache{most: 1 << 20}
	old := f.latest.Identity()
	changeTask(f, 1, 0)
	latest := f.latest.Identity()
	c.note("p", false, []byte("q"), latest)
	e := c.known("p", false, []byte("q"))
	if _, has, mine := c.find(e, latest); has || !mine {
		t.Fatal("the second reader is not asked for its answer")
	}
	if _, has, mine := c.find(e, latest); has || mine {
		t.Fatal("two readers are asked for their answers")
	}
	a := wire.NewAnswer(false)
	if err := a.Finish(&pb.ListTasksResponse{Revision: 2}, 0); err != nil {
		t.Fatal(err)
	}
	c.keep(e, latest, a.Body())
	if _, has, mine := c.find(e, old); has || mine {
		t.Error("a reader of the earlier state got the answer, or is asked for its own")
	}
	if _, has, _ := c.find(e, latest); !has {
		t.Error("the answer is gone")
	}
}

// Answers from other places than the copy are made for each reader.
func TestAnAnswerFromAnArchiveOrAPinIsNotShared(t *testing.T) {
	c := newCell(t)
	j := c.submit("a", "ann", "root.x", nil, 1)
	c.end(j, 0)
	c.archived(j)
	c.submit("b", "ann", "root.x", nil, 1)
	g := newGateway(t, Config{Archive: c.archive}, c.f)
	for _, ask := range []struct{ path, body string }{
		{plimsollv1connect.JobServiceGetJobProcedure, `{"id":"a"}`},
		{plimsollv1connect.JobServiceGetTaskProcedure, `{"id":"a.map.0"}`},
		{plimsollv1connect.JobServiceListTasksProcedure, `{"job":"a"}`},
		{plimsollv1connect.JobServiceListJobsProcedure, `{"scope":"SCOPE_ALL"}`},
		{plimsollv1connect.JobServiceListJobsProcedure, `{"pin":true}`},
		{plimsollv1connect.JobServiceListTasksProcedure, `{"pin":true}`},
	} {
		for range 4 {
			if status, _, answer := post(g, ask.path, "application/json", []byte(ask.body)); status != http.StatusOK {
				t.Errorf("%s: %d %s", ask.body, status, answer)
			}
		}
		if s := g.answers.stats(); s.hits != 0 || s.size != 0 {
			t.Errorf("%s %s: %+v", ask.path, ask.body, s)
		}
	}
}

// A request that is refused for its form is refused before any state is looked for, each time.
func TestARefusedQuestionIsNotKept(t *testing.T) {
	g := newGateway(t, Config{}, ofOneTask(0))
	for range 3 {
		for _, body := range []string{`{"limit":-1}`, `{"job":"no-such-job"}`} {
			if status, answer := readTasks(g, body); status != http.StatusBadRequest && status != http.StatusNotFound {
				t.Errorf("%s: %d %s", body, status, answer)
			}
		}
	}
	if s := g.answers.stats(); s.size != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestWithoutALeaderASharedAnswerIsNotGivenToAStrictReader(t *testing.T) {
	f := ofOneTask(0)
	g := newGateway(t, Config{}, f)
	const strict, eventual = `{"job":"a"}`, `{"job":"a","consistency":{"level":"FRESHNESS_EVENTUAL"}}`
	for range 3 {
		readTasks(g, strict)
		readTasks(g, eventual)
	}
	f.set(func(f *fake) { f.down = errNoLeader })
	if status, answer := readTasks(g, strict); status != http.StatusServiceUnavailable {
		t.Errorf("strict: %d %s", status, answer)
	}
	status, answer := readTasks(g, eventual)
	if status != http.StatusOK || !strings.Contains(string(answer), "ageNanos") {
		t.Errorf("eventual: %d %s", status, answer)
	}
}

// Access is checked before an answer is looked for.
func TestASharedAnswerIsNotGivenToACallerWithoutAccess(t *testing.T) {
	user, agent := token.New(token.User), token.New(token.Agent)
	access := transport.NewAccess(transport.AccessConfig{
		Grants: func() ([]transport.Grant, error) { return Grants(user, agent), nil },
	})
	s := serve(t, Config{Access: access}, ofOneTask(0))
	ask := func(with string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			s.url+plimsollv1connect.JobServiceListTasksProcedure, strings.NewReader(`{"job":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept-Encoding", "identity")
		if with != "" {
			r.Header.Set("Authorization", with)
		}
		resp, err := s.plain.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	for range 3 {
		if status := ask(user.Header()); status != http.StatusOK {
			t.Fatalf("a user got %d", status)
		}
	}
	if s.gateway.answers.stats().hits == 0 {
		t.Fatal("nothing was shared")
	}
	for name, with := range map[string]string{"nobody": "", "an agent": agent.Header(), "a stranger": "Bearer x"} {
		if status := ask(with); status != http.StatusUnauthorized && status != http.StatusForbidden {
			t.Errorf("%s got %d", name, status)
		}
	}
}

// An answer that was dropped while it is written is still charged to its reader.
func TestASharedAnswerIsChargedToItsReader(t *testing.T) {
	g := newGateway(t, Config{}, ofOneTask(40_000))
	for range 3 {
		readTasks(g, `{}`)
	}
	w := &chargeProbe{ResponseRecorder: httptest.NewRecorder(), g: g}
	r := httptest.NewRequest(http.MethodPost, plimsollv1connect.JobServiceListTasksProcedure, strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	g.Handler().ServeHTTP(w, r)
	if w.charged < 40_000 || g.answers.stats().hits != 2 {
		t.Errorf("%d bytes were charged, with %+v", w.charged, g.answers.stats())
	}
}

// chargeProbe remembers what is charged to users when an answer is written.
type chargeProbe struct {
	*httptest.ResponseRecorder
	g       *Gateway
	charged int64
}

func (w *chargeProbe) Write(p []byte) (int, error) {
	w.charged = max(w.charged, w.g.budgets.users.used.Load())
	return w.ResponseRecorder.Write(p)
}

func TestTheCacheOfAnswersIsBoundedInBytes(t *testing.T) {
	f := ofOneTask(3000)
	g := newGateway(t, Config{MaxSharedBytes: 20_000}, f)
	hot := `{"job":"a"}`
	for i := range 300 {
		for range 3 {
			readTasks(g, fmt.Sprintf(`{"job":"a","limit":%d}`, 1+i))
			readTasks(g, hot)
		}
		if s := g.answers.stats(); s.size > 20_000 {
			t.Fatalf("%d bytes are kept", s.size)
		}
	}
	s := g.answers.stats()
	if s.evicted < 200 || s.hits < 300 {
		t.Errorf("got %+v", s)
	}
	readTasks(g, hot)
	if g.answers.stats().hits != s.hits+1 {
		t.Error("the answer that is read all the time has given way")
	}
	changeTask(f, 1, 5000) // above a quarter
	for range 4 {
		readTasks(g, hot)
	}
	if got := g.answers.stats(); got.hits != s.hits+1 {
		t.Errorf("an answer of 5,000 bytes is kept: %+v", got)
	}
}
