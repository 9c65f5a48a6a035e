package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// cell is a Source with records, which counts the bytes that its requests hold.
type cell struct {
	history
	tables  *replica.Tables
	records *replica.Snapshot
	most    int // bytes that a request may hold; 0: no bound
	held    int
	asked   []plimsoll.Consistency
}

func (c *cell) Events(ctx context.Context, wanted plimsoll.Consistency) (rest.State, error) {
	c.asked = append(c.asked, wanted)
	state, err := c.history.Events(ctx, wanted)
	state.Records = c.records
	state.Hold = func(n int) error {
		if c.held += n; c.most > 0 && c.held > c.most {
			return plimsoll.Errorf(plimsoll.CodeExhausted, "no room")
		}
		return nil
	}
	state.Release = func(n int) { c.held -= n }
	return state, err
}

// newCell is a cell whose leader has committed records.
func newCell(t testing.TB, records ...wire.Mutation) *cell {
	t.Helper()
	c := &cell{tables: replica.NewTables()}
	c.put(t, 1042, records...)
	return c
}

// put changes records with a revision.
func (c *cell) put(t testing.TB, revision uint64, records ...wire.Mutation) {
	t.Helper()
	batch := &wire.Batch{Epoch: 3, Revision: revision, Time: 1_800_000_100_000_000_000, Mutations: records}
	if err := c.tables.Apply(batch); err != nil {
		t.Fatal(err)
	}
	c.records = c.tables.Snapshot()
}

const (
	second = int64(1_000_000_000)
	began  = 1_800_000_000 * second
)

func putNode(n plimsoll.Node, status plimsoll.NodeStatus) []wire.Mutation {
	n.Incarnation, status.ID = 1, n.ID
	return []wire.Mutation{
		{Kind: wire.KindNode, Key: n.ID, Value: wire.AppendNode(nil, &n)},
		{Kind: wire.KindNodeStatus, Key: n.ID, Value: wire.AppendNodeStatus(nil, &status)},
	}
}

func putQueue(s plimsoll.QueueStatus) wire.Mutation {
	return wire.Mutation{Kind: wire.KindQueueStatus, Key: s.Path, Value: wire.AppendQueueStatus(nil, &s)}
}

func putJob(spec plimsoll.JobSpec, s plimsoll.JobStatus) []wire.Mutation {
	s.ID, s.Owner, s.Queue, s.UID = spec.ID, spec.Owner, spec.Queue, plimsoll.MakeUID(s.Submitted, 7)
	return []wire.Mutation{
		{Kind: wire.KindJobSpec, Key: spec.ID, Value: wire.AppendJobSpec(nil, &spec)},
		{Kind: wire.KindJobStatus, Key: spec.ID, Value: wire.AppendJobStatus(nil, &s)},
	}
}

func putTask(t plimsoll.Task) wire.Mutation {
	t.ID = plimsoll.TaskID(t.Job, t.Group, t.Index)
	m := wire.Mutation{
		Kind: wire.KindTask, Key: wire.TaskKey(t.Job, t.Group, t.Index), Value: wire.AppendTask(nil, &t),
	}
	if t.State.OnNode() {
		m.Node = t.Node
	}
	return m
}

// small is a cell with two nodes, three queues below the root, and four jobs: one runs, one waits,
// one has completed and one was rejected.
func small(t testing.TB) *cell {
	t.Helper()
	each := plimsoll.Resources{plimsoll.CPU: 2000, plimsoll.Memory: 4 << 30}
	used := plimsoll.Resources{plimsoll.CPU: 4000, plimsoll.Memory: 8 << 30}
	capacity := plimsoll.Resources{plimsoll.CPU: 16000, plimsoll.Memory: 64 << 30, plimsoll.Disk: 100 << 30}
	var all []wire.Mutation
	all = append(all, putNode(plimsoll.Node{
		ID: "n1", Capacity: capacity, Mode: plimsoll.NodeActive, Ready: true,
		Attributes: map[string]string{"hostname": "n1.example", "rack": "r7", "os": "linux"},
	}, plimsoll.NodeStatus{Allocated: used, Tasks: 2})...)
	all = append(all, putNode(plimsoll.Node{
		ID: "n2", Capacity: capacity, Mode: plimsoll.NodeCordoned, Ready: true,
	}, plimsoll.NodeStatus{})...)
	config := plimsoll.QueueConfig{Name: "root", Parent: true, Queues: []plimsoll.QueueConfig{
		{Name: "batch", Queues: []plimsoll.QueueConfig{{Name: "day", MaxJobs: 7, Max: used}}},
		{Name: "old", Draining: true},
	}}
	all = append(
		all, wire.Mutation{Kind: wire.KindQueueConfig, Value: wire.AppendQueueConfig(nil, &config)},
		putQueue(plimsoll.QueueStatus{Path: "root", Allocated: used, Pending: each, Jobs: 2, Running: 2, Waiting: 1}),
		putQueue(plimsoll.QueueStatus{
			Path: "root.batch", Allocated: used, Pending: each, Jobs: 2, Running: 2, Waiting: 1,
		}),
		putQueue(plimsoll.QueueStatus{
			Path: "root.batch.day", Leaf: true, Allocated: used, Pending: each, Max: used, Guaranteed: each, Jobs: 2,
			JobsWaiting: 1, Running: 2, Waiting: 1,
		}),
		putQueue(plimsoll.QueueStatus{Path: "root.old", Leaf: true, Draining: true}),
	)
	spec := func(id string, count int32) plimsoll.JobSpec {
		return plimsoll.JobSpec{ID: id, Owner: "alice", Queue: "root.batch.day", Groups: []plimsoll.GroupSpec{
			{Name: "map", Count: count, Command: []string{"true"}, Resources: each, Priority: 5},
		}}
	}
	all = append(all, putJob(spec("running", 2), plimsoll.JobStatus{
		State: plimsoll.JobRunning, Submitted: began, Started: began + 2*second,
		Groups: []plimsoll.GroupStatus{{Name: "map", Count: 2, Counts: plimsoll.TaskCounts{Bound: 1, Running: 1}}},
		History: []plimsoll.JobStep{
			{State: plimsoll.JobNew, At: began},
			{State: plimsoll.JobAccepted, At: began + second},
			{State: plimsoll.JobRunning, At: began + 2*second},
		},
	})...)
	all = append(all, putJob(spec("waiting", 1), plimsoll.JobStatus{
		State: plimsoll.JobAccepted, Submitted: began + 5*second,
		Groups: []plimsoll.GroupStatus{{
			Name: "map", Count: 1, Counts: plimsoll.TaskCounts{Pending: 1},
			Wait: plimsoll.WaitCause{Code: plimsoll.WaitNoNode},
		}},
	})...)
	all = append(all, putJob(spec("done", 1), plimsoll.JobStatus{
		State: plimsoll.JobCompleted, Submitted: began, Started: began + second, Finished: began + 9*second,
		Groups: []plimsoll.GroupStatus{{Name: "map", Count: 1, Counts: plimsoll.TaskCounts{Succeeded: 1}}},
	})...)
	all = append(all, putJob(spec("refused", 1), plimsoll.JobStatus{
		State: plimsoll.JobRejected, Reason: "the queue is full", Submitted: began, Finished: began,
	})...)
	all = append(all, putJob(spec("leaving", 1), plimsoll.JobStatus{State: plimsoll.JobCompleted, Deleted: true})...)
	minute := wire.MinuteOf(began)
	return newCell(t, append(
		all,
		wire.Mutation{Kind: wire.KindCounts, Value: wire.AppendCounts(nil, wire.Counts{
			{Minute: minute - 2, Jobs: 7, Tasks: 70}, {Minute: minute, Jobs: 0, Tasks: 0},
		})},
		putTask(plimsoll.Task{
			Job: "running", Group: "map", Index: 0, State: plimsoll.TaskRunning, Node: "n1", Attempt: 1,
			Created: began, Bound: began + second, Started: began + 2*second,
		}),
		putTask(plimsoll.Task{
			Job: "running", Group: "map", Index: 1, State: plimsoll.TaskBound, Node: "n1", Attempt: 1,
			Created: began, Bound: began + 2*second,
		}),
		putTask(plimsoll.Task{
			Job: "waiting", Group: "map", Index: 0, State: plimsoll.TaskPending, Created: began + 5*second,
		}),
		putTask(plimsoll.Task{
			Job: "done", Group: "map", Index: 0, State: plimsoll.TaskFinished, Result: plimsoll.ResultSucceeded,
			Node: "n2", Attempt: 1, Created: began, Bound: began, Finished: began + 9*second,
		}),
	)...)
}

const (
	clusters     = "/ws/v1/clusters"
	partitions   = "/ws/v1/partitions"
	ofPartition  = "/ws/v1/partition/default/"
	ofQueue      = ofPartition + "queue/root.batch.day/"
	utilizations = "/ws/v1/scheduler/node-utilizations"
	healthcheck  = "/ws/v1/scheduler/healthcheck"

	applicationHistory = "/ws/v1/history/apps"
	containerHistory   = "/ws/v1/history/containers"
)

// threeMinutesLater is a clock that says so after the last revision of newCell.
func threeMinutesLater() time.Time { return time.Unix(0, 1_800_000_100*second).Add(3 * time.Minute) }

// Each route answers with YuniKorn's names in YuniKorn's order.
func TestEachRouteAnswersInTheFormOfYuniKorn(t *testing.T) {
	for name, path := range map[string]string{
		"clusters":            clusters,
		"partitions":          partitions,
		"queues":              ofPartition + "queues",
		"queue":               ofPartition + "queue/root.batch",
		"queue-subtree":       ofPartition + "queue/root.batch?subtree",
		"nodes":               ofPartition + "nodes",
		"node":                ofPartition + "node/n2",
		"queue-applications":  ofQueue + "applications",
		"queue-active":        ofQueue + "applications/active?status=accepted",
		"queue-application":   ofQueue + "application/running",
		"empty-queue":         ofPartition + "queue/root.batch/applications",
		"active":              ofPartition + "applications/active",
		"rejected":            ofPartition + "applications/rejected",
		"completed":           ofPartition + "applications/completed",
		"application-waiting": ofPartition + "application/waiting",
		"node-utilizations":   utilizations,
		"healthcheck":         healthcheck,
		"history-apps":        applicationHistory,
		"history-containers":  containerHistory,
		"fullstatedump":       rest.DumpPath,
	} {
		t.Run(name, func(t *testing.T) {
			w := get(rest.New(rest.Config{Version: "v1.2.3", Now: threeMinutesLater}, small(t)), http.MethodGet, path)
			if w.Code != http.StatusOK || w.Header().Get("Plimsoll-Revision") != "1042" {
				t.Fatalf("status %d, headers %v: %s", w.Code, w.Header(), w.Body)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, w.Body.Bytes(), "", "  "); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil { //nolint:gosec // it is source
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file) //nolint:gosec // a name of the table above
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s: got\n%s\nwant\n%s", path, got.Bytes(), want)
			}
		})
	}
}

// A job that was killed stays among those that have ended until it is forgotten, as any other. None
// has the start of a time that is not known.
func TestAKilledJobIsAmongThoseThatHaveEnded(t *testing.T) {
	spec := plimsoll.JobSpec{ID: "killed", Owner: "ann", Queue: "root.batch", Groups: []plimsoll.GroupSpec{
		{Name: "map", Count: 1, Command: []string{"true"}},
	}}
	c := newCell(t, putJob(spec, plimsoll.JobStatus{
		State: plimsoll.JobFailed, Reason: "killed", Submitted: began, Finished: began + second,
		Groups: []plimsoll.GroupStatus{{Name: "map", Count: 1, Counts: plimsoll.TaskCounts{Failed: 1}}},
	})...)
	h := rest.New(rest.Config{}, c)
	for _, path := range []string{"applications/completed", "application/killed"} {
		w := get(h, http.MethodGet, ofPartition+path)
		if body := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(body, `"applicationID":"killed"`) ||
			!strings.Contains(body, `"applicationState":"Failed"`) || strings.Contains(body, `"startTime"`) {
			t.Errorf("%s: %d %s", path, w.Code, body)
		}
	}
}

// The configured queues are a file that can be applied again: those that drain are not in it.
func TestTheConfigurationIsAQueueFile(t *testing.T) {
	h := rest.New(rest.Config{}, small(t))
	w := get(h, http.MethodGet, "/ws/v1/config")
	queues, err := config.ParseQueues("queues.yaml", w.Body.Bytes())
	if err != nil || len(queues.Queues) != 1 || queues.Queues[0].Queues[0].MaxJobs != 7 {
		t.Errorf("%v, %+v", err, queues)
	}
	if kind := w.Header().Get("Content-Type"); kind != "application/x-yaml; charset=UTF-8" {
		t.Errorf("the content type is %q", kind)
	}
	w = get(h, http.MethodGet, "/ws/v1/config", "Accept", "application/json")
	if kind := w.Header().Get("Content-Type"); kind != "application/json; charset=UTF-8" {
		t.Errorf("the content type is %q", kind)
	}
	var got any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if name, _ := at(got, "partitions/0/queues/0/queues/0/name"); name != "batch" {
		t.Errorf("the first queue is %v in %s", name, w.Body)
	}
	errorOf(t, get(rest.New(rest.Config{}, newCell(t)), http.MethodGet, "/ws/v1/config"), http.StatusNotFound)
	errorOf(t, get(rest.New(rest.Config{AnswerBytes: 20}, small(t)), http.MethodGet, "/ws/v1/config"),
		http.StatusRequestEntityTooLarge)
}

// at returns the value at a place in decoded JSON, such as 0/capacity/memory. In a name ~1 stands
// for /.
func at(v any, place string) (any, bool) {
	for name := range strings.SplitSeq(place, "/") {
		switch of := v.(type) {
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(of) {
				return nil, false
			}
			v = of[i]
		case map[string]any:
			found, has := of[strings.ReplaceAll(name, "~1", "/")]
			if !has {
				return nil, false
			}
			v = found
		default:
			return nil, false
		}
	}
	return v, true
}

// A bad name is a 400, and one of nothing a 404. Both say what to do.
func TestBadNamesAreRefused(t *testing.T) {
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		"/ws/v1/partition/other/queues":                     {404, "Partition not found"},
		ofPartition + "queue/root.none":                     {404, "Queue not found"},
		ofPartition + "queue/root.none/applications":        {404, "Queue not found"},
		ofPartition + "queue/root.none/applications/active": {404, "Queue not found"},
		ofPartition + "queue/root.none/application/running": {404, "Queue not found"},
		ofPartition + "queue/a%20b":                         {400, "queue"},
		ofPartition + "node/n9":                             {404, "Node not found"},
		ofPartition + "node/a%20b":                          {400, "node"},
		ofPartition + "application/none":                    {404, "Application not found"},
		ofPartition + "application/leaving":                 {404, "Application not found"},
		ofPartition + "application/a%20b":                   {400, "application"},
		ofPartition + "queue/root.old/application/running":  {404, "is in root.batch.day"},
		ofPartition + "applications/asleep":                 {400, "active, rejected, completed"},
		ofPartition + "applications/active?status=Failed":   {400, "Accepted"},
		ofPartition + "applications/rejected?status=New":    {400, "leave it out"},
		ofQueue + "applications/completed":                  {400, "active"},
		ofQueue + "applications/active?statu=New":           {400, `"status"`},
		clusters + "?consistency=soon":                      {400, "consistency"},
		"/ws/v1/stack":                                      {404, "bound"},
		"/ws/v1/validate-conf":                              {405, "use POST"},
		ofPartition + "usage/user/eve":                      {404, "User not found"},
		ofPartition + "usage/group/ops":                     {404, "Group not found"},
		"/ws/v1/nothing":                                    {404, "/ws/v1/partition/{partition}/queues"},
	} {
		w := get(rest.New(rest.Config{}, small(t)), http.MethodGet, path)
		if message := errorOf(t, w, want.status); !strings.Contains(message, want.says) {
			t.Errorf("%s: %q does not say %q", path, message, want.says)
		}
	}
}

// An answer is whole, or it is refused with the route that answers less.
func TestAnAnswerIsBoundedInBytes(t *testing.T) {
	for path, says := range map[string]string{
		ofPartition + "queues":              "/queue/{queue}",
		ofPartition + "nodes":               "/node/{node}",
		ofQueue + "applications":            "/application/{application}",
		ofPartition + "application/running": "JobService.ListTasks",
		ofPartition + "applications/active": "status=",
		utilizations:                        "/node/{node}",
	} {
		whole := get(rest.New(rest.Config{}, small(t)), http.MethodGet, path).Body.Len()
		refused := 0
		config := rest.Config{AnswerBytes: whole / 2, TooLarge: func() { refused++ }}
		w := get(rest.New(config, small(t)), http.MethodGet, path)
		message := errorOf(t, w, http.StatusRequestEntityTooLarge)
		if !strings.Contains(message, says) || refused != 1 {
			t.Errorf("%s: %q does not say %q, and %d refusals were counted", path, message, says, refused)
		}
		config.AnswerBytes = whole
		if w := get(rest.New(config, small(t)), http.MethodGet, path); w.Code != http.StatusOK {
			t.Errorf("%s: an answer of %d bytes is refused by a bound of as many", path, whole)
		}
		// The bytes are charged before they are kept.
		full := small(t)
		full.most = whole
		if w := get(rest.New(rest.Config{}, full), http.MethodGet, path); w.Code != http.StatusTooManyRequests {
			t.Errorf("%s: a request that may hold %d bytes gets an answer of as many", path, whole)
		}
	}
}

// A read is strict unless the caller asks for less.
func TestAReadOfTheStateIsStrict(t *testing.T) {
	c := small(t)
	h := rest.New(rest.Config{}, c)
	get(h, http.MethodGet, partitions)
	get(h, http.MethodGet, partitions+"?consistency=eventual")
	if len(c.asked) != 2 || !c.asked[0].Strict() || c.asked[1].Level != plimsoll.FreshnessEventual {
		t.Errorf("asked with %v", c.asked)
	}
	c.failed = plimsoll.Errorf(plimsoll.CodeUnavailable, "there is no leader")
	errorOf(t, get(h, http.MethodGet, partitions), http.StatusServiceUnavailable)
}

func TestAGivenUpReadOfTheStateEnds(t *testing.T) {
	var nodes []wire.Mutation
	for i := range 2000 {
		nodes = append(nodes, putNode(plimsoll.Node{ID: fmt.Sprintf("n%04d", i)}, plimsoll.NodeStatus{})...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := httptest.NewRecorder()
	rest.New(rest.Config{}, newCell(t, nodes...)).ServeHTTP(
		w, httptest.NewRequestWithContext(ctx, http.MethodGet, ofPartition+"nodes", nil),
	)
	errorOf(t, w, 499)
}

// The health check finds records that contradict each other, and names the nodes.
func TestTheHealthCheckFindsContradictions(t *testing.T) {
	amount := plimsoll.Resources{plimsoll.CPU: 2000}
	c := newCell(t, append(
		putNode(plimsoll.Node{ID: "n1", Mode: plimsoll.NodeActive, Capacity: plimsoll.Resources{plimsoll.CPU: 1000}},
			plimsoll.NodeStatus{Allocated: amount, Tasks: 1}),
		putQueue(plimsoll.QueueStatus{Path: "root"}),
	)...)
	w := get(rest.New(rest.Config{}, c), http.MethodGet, healthcheck)
	var got struct {
		Healthy      bool
		HealthChecks []struct {
			Name             string
			Succeeded        bool
			DiagnosisMessage string
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	failed := map[string]string{}
	for _, check := range got.HealthChecks {
		if !check.Succeeded {
			failed[check.Name] = check.DiagnosisMessage
		}
	}
	if got.Healthy || len(failed) != 4 || failed["Failed nodes"] != "1 nodes, such as n1" ||
		failed["Orphan allocations"] != "the nodes have 1, the root queue 0" {
		t.Errorf("healthy: %v, failed: %v", got.Healthy, failed)
	}
}

// A job that has no specification any more is listed without amounts.
func TestAJobWithoutASpecificationIsListed(t *testing.T) {
	all := putJob(plimsoll.JobSpec{ID: "old", Queue: "root.batch"}, plimsoll.JobStatus{State: plimsoll.JobRunning})
	c := newCell(t, all[1], putTask(plimsoll.Task{
		Job: "old", Group: "map", State: plimsoll.TaskRunning, Node: "n1", Attempt: 1,
	}))
	w := get(rest.New(rest.Config{}, c), http.MethodGet, ofPartition+"applications/active")
	var got any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if key, _ := at(got, "0/allocations/0/allocationKey"); key != "old.map.0" {
		t.Errorf("got %s", w.Body)
	}
}

// A record that cannot be read is an error, which the caller is not shown.
func TestAnUnreadableRecordIsAFault(t *testing.T) {
	var fault error
	c := newCell(t, wire.Mutation{Kind: wire.KindNode, Key: "n1", Value: []byte{0xff}})
	w := get(rest.New(rest.Config{Fault: func(err error) { fault = err }}, c), http.MethodGet, ofPartition+"nodes")
	if message := errorOf(t, w, http.StatusInternalServerError); strings.Contains(message, "n1") {
		t.Errorf("the caller is told %q", message)
	}
	if fault == nil || !strings.Contains(fault.Error(), `"n1"`) {
		t.Errorf("the fault is %v", fault)
	}
}

// BenchmarkState reads the state of a cell of 10,000 nodes.
func BenchmarkState(b *testing.B) {
	var nodes []wire.Mutation
	for i := range 10_000 {
		nodes = append(nodes, putNode(plimsoll.Node{
			ID: fmt.Sprintf("n%05d", i), Capacity: plimsoll.Resources{plimsoll.CPU: 16000, plimsoll.Memory: 64 << 30},
		}, plimsoll.NodeStatus{Allocated: plimsoll.Resources{plimsoll.CPU: 4000, plimsoll.Memory: 8 << 30}})...)
	}
	h := rest.New(rest.Config{}, newCell(b, append(nodes, putQueue(plimsoll.QueueStatus{Path: "root"}))...))
	for name, path := range map[string]string{
		"partitions": partitions, "queues": ofPartition + "queues", "nodes": ofPartition + "nodes",
		"utilizations": utilizations, "health": healthcheck, "dump": rest.DumpPath,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if w := get(h, http.MethodGet, path); w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
