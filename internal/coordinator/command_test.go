package coordinator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
)

// idle returns a term that is not run.
func idle(t *testing.T, cfg Config) *term {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	st := openStore(t, vfs.NewMem(), store.Limits{})
	c, err := New(cfg, only(st))
	if err != nil {
		t.Fatal(err)
	}
	idle, err := c.begin(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return idle
}

func code(r *pb.Reply) plimsoll.Code { return plimsoll.CodeOf(wire.ErrorFromProto(r.GetError())) }

// Each command is answered once, refusals too. Replies come in the order of the commands, each at a
// revision no older than the one before. A submit may be answered after later commands, when its
// tasks are there. A question is answered beside the turns, at a revision no older than the last
// reply before the question came.
func TestRepliesComeInOrder(t *testing.T) {
	const internal = plimsoll.CodeInternal // of no error
	asked := []struct {
		cmd  *pb.Command
		code plimsoll.Code
	}{
		{register("n", 1), internal},
		{submit(job("a", 2)), plimsoll.CodeAlreadyExists},
		{kill("nope"), plimsoll.CodeNotFound},
		{
			submit(&plimsoll.JobSpec{ID: "q", Owner: "alice", Queue: "root.nope", Groups: job("q", 1).Groups}),
			plimsoll.CodeInvalid,
		},
		{scale("a", -1), plimsoll.CodeInvalid},
		{scale("a", 3), internal},
		{explain("a.work.1"), internal},
		{explain("a.work.7"), plimsoll.CodeNotFound},
		{kill("a"), internal},
		{register("n", 0), plimsoll.CodeInvalid},
		{&pb.Command{Kind: &pb.Command_RemoveNode{RemoveNode: &pb.RemoveNodeRequest{Id: "n"}}}, plimsoll.CodeConflict},
		{
			reportTasks("x"),
			plimsoll.CodeNotFound,
		},
		{submit(job("b", 1)), internal},
	}
	for _, limits := range []store.Limits{{}, tiny} {
		l := lead(t, Config{}, openStore(t, vfs.NewMem(), limits))
		l.must(submit(job("a", 2)))
		const rounds = 20
		type answer struct {
			number int
			reply  *pb.Reply
		}
		answers := make(chan answer, rounds*len(asked))
		for round := range rounds {
			for i := range asked {
				l.term.exec(
					context.Background(), "gw", asked[i].cmd,
					func(r *pb.Reply) { answers <- answer{round*len(asked) + i, r} },
				)
			}
		}
		seen, last, revision := map[int]bool{}, -1, uint64(0)
		for range rounds * len(asked) {
			got := <-answers
			what := asked[got.number%len(asked)]
			if failed, code := got.reply.GetError() != nil, code(
				got.reply,
			); got.number < len(asked) && (failed != (what.code != internal) || code != what.code) {
				t.Errorf("command %d (%T) was answered with %v", got.number, what.cmd.GetKind(), got.reply.GetError())
			}
			if what.cmd.GetExplainTask() != nil {
				seen[got.number] = true
				continue
			}
			if seen[got.number] || got.reply.GetRevision() < revision {
				t.Errorf(
					"command %d was answered twice (%v), or of revision %d after %d", got.number, seen[got.number],
					got.reply.GetRevision(), revision,
				)
			}
			seen[got.number], revision = true, got.reply.GetRevision()
			if what.cmd.GetSubmitJob() == nil {
				if got.number < last {
					t.Errorf("command %d was answered after %d", got.number, last)
				}
				last = got.number
			}
		}
		l.stop()
	}
}

// A specification that does not fit in a batch of the store is refused. One that fits is taken, and
// the leader goes on.
func TestSpecificationsFitTheStore(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), tiny))
	defer l.stop()
	const share = 16 // a specification takes at most one part in so many of a batch
	for size, want := range map[int]bool{
		tiny.Bytes / share / 2: true, tiny.Bytes / share: false, tiny.Bytes: false, 2 * tiny.Bytes: false,
	} {
		spec := job(fmt.Sprintf("j%d", size), 1)
		spec.Groups[0].Env = map[string]string{"BIG": strings.Repeat("x", size)}
		_, err := l.Do(context.Background(), submit(spec))
		if (err == nil) != want || err != nil && plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("a specification of %d bytes: %v", size, err)
		}
	}
	l.must(submit(job("small", 1)))
}

// A follower is told when its leader stops.
func TestGatewaysAreToldOfTheEnd(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	lost := make(chan error, 100)
	f, err := replica.NewFollower(replica.FollowerConfig{
		Gateway: "other", Leader: l.address,
		Events: replica.FollowerEvents{Disconnected: func(err error, _ time.Duration) { lost <- err }},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	if err := f.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	l.stop()
	if err := <-lost; !strings.Contains(err.Error(), "no longer the leader") {
		t.Errorf("the gateway was told %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Explain tells why a task waits.
func TestExplain(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	l.must(register("n", 1))
	large := job("large", 1)
	large.Groups[0].Resources["cpu"] = 64_000
	l.must(submit(large))
	x := l.must(explain("large.work.0")).GetExplainTask()
	if x.GetTask().GetJob() != "large" || !strings.Contains(x.GetSummary(), "cpu") || len(x.GetSteps()) == 0 {
		t.Errorf("the explanation is %v", x)
	}
}

// Explain tells which values of a label a spread compares.
func TestExplainTellsWhatASpreadCounts(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	for id, cpu := range map[string]int64{"a": 4000, "b": 4000, "small": 50} {
		m := register(id, 1)
		node := m.GetRegisterNode().GetNode()
		node.Attributes = map[string]string{"rack": "rack-" + id}
		node.Capacity = wire.ResourcesToProto(plimsoll.Resources{"cpu": cpu})
		l.must(m)
	}
	spread := job("spread", 1)
	spread.Groups[0].Constraints.Spread = []plimsoll.Spread{{By: "rack", MaxSkew: 1}}
	l.must(submit(spread))
	list := l.must(explain("spread.work.0")).GetExplainTask().GetSpreads()
	if len(list) != 1 {
		t.Fatalf("%d spreads are told of, want one", len(list))
	}
	s := list[0]
	if s.GetBy() != "rack" || s.GetMaxSkew() != 1 || s.GetValues() != 3 || s.GetCounted() != 2 || s.GetFewest() != 0 ||
		!strings.HasPrefix(
			s.GetFewestIn(), "rack-",
		) || len(s.GetUncounted()) != 1 || s.GetUncounted()[0] != "rack-small" {
		t.Errorf("%v, want two of three racks, without rack-small", s)
	}
	if !strings.HasSuffix(s.GetSummary(), "; 1 other has no node that the other constraints allow") {
		t.Errorf("the summary is %q", s.GetSummary())
	}
}

// A full inbox refuses at once, and accepts again when there is room. The requests for a lost
// gateway are not refused.
func TestFullInboxRefuses(t *testing.T) {
	c := idle(t, Config{MaxInbox: 3})
	var replies []*pb.Reply
	respond := func(r *pb.Reply) { replies = append(replies, r) }
	for range 3 {
		c.exec(context.Background(), "gw", kill("x"), respond)
	}
	if len(replies) != 0 {
		t.Fatalf("there is room, but the answer was %v", replies)
	}
	c.exec(context.Background(), "gw", kill("x"), respond)
	if len(replies) != 1 || code(replies[0]) != plimsoll.CodeExhausted ||
		!strings.Contains(replies[0].GetError().GetMessage(), "try again") {
		t.Fatalf("the answer was %v", replies)
	}
	c.inbox.gatewayConnected("gw", false)
	if got := c.inbox.drain(nil, 2); len(got) != 2 || c.inbox.waiting().commands != 1 || c.inbox.waiting().own != 1 {
		t.Errorf("%d were taken and %+v left", len(got), c.inbox.waiting())
	}
	c.exec(context.Background(), "gw", kill("x"), respond)
	if len(replies) != 1 {
		t.Errorf("there is room again, but the answer was %v", replies[1])
	}
}

// A command that cannot be decoded is refused, and the error says how to correct it.
func TestUnreadableCommands(t *testing.T) {
	c := idle(t, Config{})
	for _, test := range []struct {
		cmd  *pb.Command
		code plimsoll.Code
		text string
	}{
		{nil, plimsoll.CodeUnimplemented, "older than the gateway"},
		{&pb.Command{}, plimsoll.CodeUnimplemented, "older than the gateway"},
		{explain("a"), plimsoll.CodeInvalid, "wordcount.map.3"},
		{explain("a.b.c"), plimsoll.CodeInvalid, "wordcount.map.3"},
		{
			&pb.Command{
				Kind: &pb.Command_ReportTasks{
					ReportTasks: &pb.ReportTasksRequest{Reports: []*pb.TaskReport{{Task: "a"}}},
				},
			},
			plimsoll.CodeInvalid, "wordcount.map.3",
		},
	} {
		var reply *pb.Reply
		c.exec(context.Background(), "gw", test.cmd, func(r *pb.Reply) { reply = r })
		if code(reply) != test.code || !strings.Contains(reply.GetError().GetMessage(), test.text) {
			t.Errorf("%v: answered %v", test.cmd, reply)
		}
	}
	if c.inbox.waiting().commands != 0 {
		t.Error("one came to the engine")
	}
}

// A command with an empty request is refused or has no effect.
func TestEmptyCommands(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	for _, cmd := range []*pb.Command{
		{Kind: &pb.Command_SubmitJob{}},
		{Kind: &pb.Command_KillJob{}},
		{Kind: &pb.Command_ScaleJob{}},
		{Kind: &pb.Command_SetNodeMode{}},
		{Kind: &pb.Command_RemoveNode{}},
		{Kind: &pb.Command_SetQueueConfig{}},
		{Kind: &pb.Command_RegisterNode{}},
		{Kind: &pb.Command_NodeLiveness{}},
		{Kind: &pb.Command_ReportTasks{}},
		{Kind: &pb.Command_LeaveNode{}},
		{Kind: &pb.Command_ExplainTask{}},
	} {
		answered := make(chan *pb.Reply, 1)
		l.term.exec(context.Background(), "gw", cmd, func(r *pb.Reply) { answered <- r })
		_, harmless := cmd.GetKind().(*pb.Command_NodeLiveness) // that an unknown node is silent is no news
		if reply := <-answered; reply.GetError() == nil && !harmless {
			t.Errorf("%T with nothing in it was accepted", cmd.GetKind())
		}
	}
	l.must(submit(job("a", 1)))
}

// A gateway that connects again has every node register again, even if its earlier stream has not
// ended. A stream that ends late does not affect a newer one.
func TestNodesBelongToTheNewestStream(t *testing.T) {
	for _, test := range []struct {
		name string
		what string // c: a stream begins, d: one ends, *: what the engine must hear of by then
	}{
		{"once", "c*d*"},
		{"again", "c*d*c*d*"},
		{"overlapping", "c*c*dd*"},
		{"overlapping twice", "c*c*dc*dd*"},
	} {
		c := idle(t, Config{})
		for i, step := range test.what {
			switch step {
			case 'c':
				c.inbox.gatewayConnected("gw", true)
			case 'd':
				c.inbox.gatewayDisconnected("gw", nil)
			}
			lost := len(c.inbox.drain(nil, 10)) > 0
			if want := strings.HasPrefix(test.what[i+1:], "*"); step != '*' && lost != want {
				t.Errorf("%s: after %s the engine heard of a loss: %v", test.name, test.what[:i+1], lost)
			}
		}
	}
}

func tree(names ...string) plimsoll.QueueConfig {
	root := plimsoll.QueueConfig{Name: "root"}
	for _, name := range names {
		at := &root
		for part := range strings.SplitSeq(name, ".") {
			i := slices.IndexFunc(at.Queues, func(q plimsoll.QueueConfig) bool { return q.Name == part })
			if i < 0 {
				i = len(at.Queues)
				at.Queues = append(at.Queues, plimsoll.QueueConfig{Name: part})
			}
			at = &at.Queues[i]
		}
	}
	return root
}

// leaves returns the queues that take jobs.
func leaves(t *testing.T, l *leader) []string {
	t.Helper()
	var names []string
	for path, data := range l.Latest().Scan(wire.KindQueueStatus, "", "") {
		q, err := wire.DecodeQueueStatus(data)
		if err != nil {
			t.Fatal(err)
		}
		if q.Leaf {
			names = append(names, path)
		}
	}
	return names
}

// A queue file replaces the tree, also of a store that has one. If the file is refused, an event
// says so and the tree stays.
func TestQueueFile(t *testing.T) {
	fs := vfs.NewMem()
	run := func(queues *plimsoll.QueueConfig, submits string, want ...string) (told string) {
		t.Helper()
		cfg := Config{Events: Events{QueuesRefused: func(err error) { told = err.Error() }}}
		if queues != nil {
			cfg.Queues, cfg.ReplaceQueues = *queues, true
		}
		l := lead(t, cfg, openStore(t, fs, store.Limits{}))
		l.settle()
		if submits != "" {
			spec := job("in-"+submits, 1)
			spec.Queue = submits
			l.must(submit(spec))
		}
		if got := leaves(t, l); !slices.Equal(got, want) {
			t.Errorf("the leaves are %v, want %v", got, want)
		}
		l.stop()
		return told
	}
	a, b, refused := tree("a", "b"), tree("b", "c.d"), tree("b.sub", "c.d")
	run(nil, "", "root.batch", "root.default")
	run(&a, "root.b", "root.a", "root.b")
	run(nil, "", "root.a", "root.b") // it was stored
	if told := run(&b, "", "root.b", "root.c.d"); told != "" {
		t.Errorf("it was refused: %s", told)
	}
	if told := run(&refused, "", "root.b", "root.c.d"); !strings.Contains(told, "root.b") {
		t.Errorf("that a queue with jobs cannot become a parent was not told: %q", told)
	}
	run(nil, "", "root.b", "root.c.d")
}

// A queue file that is read again replaces the tree. One that is refused, or cannot be read,
// changes nothing: the refusal is told to the role, and by an event to everybody.
func TestQueueFileIsReadAgain(t *testing.T) {
	told := make(chan string, 1)
	l := lead(t, Config{Events: Events{
		QueuesRefused: func(err error) { told <- err.Error() }, QueuesReplaced: func() { told <- "replaced" },
	}}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	l.settle()
	valid, refused := tree("a", "b"), tree("b.sub")
	l.of.ReloadQueues(&valid, nil)
	if got := <-told; got != "replaced" {
		t.Fatalf("it was told %q", got)
	}
	l.settle()
	want := []string{"root.a", "root.b"}
	if got := leaves(t, l); !slices.Equal(got, want) {
		t.Fatalf("the leaves are %v, want %v", got, want)
	}
	spec := job("j", 1)
	spec.Queue = "root.b"
	l.must(submit(spec))
	_, from, _ := l.Latest().Events().Range()
	l.of.ReloadQueues(&refused, nil)
	why := []string{<-told}
	l.of.ReloadQueues(nil, plimsoll.Invalid("q.yaml", "is no queue file"))
	why = append(why, <-told)
	l.settle()
	if got := leaves(t, l); !slices.Equal(got, want) {
		t.Errorf("the leaves are %v, want %v", got, want)
	}
	var events []string
	next := l.Latest().Events().Next()
	err := l.Latest().Events().Batch(from+1, next-from-1, func(_ uint64, e *plimsoll.Event) bool {
		if reason, is := e.QueuesRefused(); is && e.Object == plimsoll.RootQueue {
			events = append(events, reason)
		}
		return true
	})
	if err != nil || !slices.Equal(events, why) || !strings.Contains(why[0], "root.b") ||
		!strings.Contains(why[1], "no queue file") {
		t.Errorf("the events say %q, and the role was told %q: %v", events, why, err)
	}
}

// A tree of queues by a user that is refused is answered, told to the role, and told by an event,
// whichever check refuses it. A dry run is only answered.
func TestARefusedTreeOfAUserIsTold(t *testing.T) {
	told := make(chan string, 4)
	l := lead(t, Config{Events: Events{
		QueueConfigRefused: func(err error) { told <- err.Error() },
	}}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	l.settle()
	spec := job("j", 1)
	l.must(submit(spec))
	_, from, _ := l.Latest().Events().Range()
	twice, withJobs := tree("a"), tree("batch.sub")
	twice.Queues = append(twice.Queues, twice.Queues...)
	var why []string
	for _, queues := range []*plimsoll.QueueConfig{&twice, &withJobs} {
		dry := setQueues(queues)
		dry.GetSetQueueConfig().DryRun = true
		for _, cmd := range []*pb.Command{dry, setQueues(queues)} {
			if _, err := l.Do(t.Context(), cmd); err == nil {
				t.Errorf("it was taken: %v", cmd)
			}
		}
		why = append(why, <-told)
	}
	l.settle()
	var events []string
	next := l.Latest().Events().Next()
	err := l.Latest().Events().Batch(from+1, next-from-1, func(_ uint64, e *plimsoll.Event) bool {
		if reason, is := e.QueuesRefused(); is {
			events = append(events, reason)
		}
		return true
	})
	if err != nil || !slices.Equal(events, why) || len(told) > 0 || !strings.Contains(why[0], "root.a") ||
		!strings.Contains(why[1], "root.batch") {
		t.Errorf("the events say %q, and the role was told %q and %d more: %v", events, why, len(told), err)
	}
}

// A coordinator that does not lead refuses its queue file: the leader's holds.
func TestAQueueFileIsReadAgainByTheLeaderAlone(t *testing.T) {
	var told error
	c, err := New(Config{
		Listen: "127.0.0.1:0", Events: Events{QueuesRefused: func(err error) { told = err }},
	}, only(nil))
	if err != nil {
		t.Fatal(err)
	}
	queues := tree("a")
	if c.ReloadQueues(&queues, nil); plimsoll.CodeOf(told) != plimsoll.CodeUnavailable {
		t.Errorf("it was told %v", told)
	}
	c.ReloadQueues(nil, plimsoll.Invalid("q.yaml", "is no queue file"))
	if plimsoll.CodeOf(told) != plimsoll.CodeInvalid {
		t.Errorf("it was told %v", told)
	}
}

// Metrics and health are served beside the replication.
func TestMetricsAndHealth(t *testing.T) {
	registry := prometheus.NewRegistry()
	l := lead(t, Config{Metrics: registry}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	l.must(register("n", 1))
	l.must(submit(job("a", 7)))
	l.settle()
	if _, err := l.Do(context.Background(), kill("nope")); err == nil {
		t.Error("a job that is not there was killed")
	}
	client, url, err := transport.CallClient(l.address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	metrics := get(t, client, url+"/metrics")
	for _, line := range []string{
		`plimsoll_coordinator_commands_total{code="ok",command="submit_job"} 1`,
		`plimsoll_coordinator_commands_total{code="ok",command="register_node"} 1`,
		`plimsoll_coordinator_commands_total{code="not_found",command="kill_job"} 1`,
		`plimsoll_coordinator_placements_total 7`,
		`plimsoll_coordinator_turns_total`,
		`plimsoll_coordinator_events_total`,
		`yunikorn_event_total_created`,
		`yunikorn_event_total_channeled`,
		`yunikorn_event_total_not_channeled 0`,
		`yunikorn_event_total_processed`,
		`yunikorn_event_total_stored`,
		`yunikorn_event_total_not_stored 0`,
		`yunikorn_event_total_collected 0`,
		`plimsoll_coordinator_request_managers 0`,
		`plimsoll_coordinator_request_events_total{outcome="kept"} 0`,
		`plimsoll_coordinator_request_events_total{outcome="dropped"} 0`,
		`plimsoll_coordinator_events_unread_total 0`,
		`plimsoll_coordinator_commit_seconds_count`,
		`plimsoll_coordinator_inbox_length 0`,
		`plimsoll_coordinator_pipeline_depth`,
		`plimsoll_coordinator_streams_cut_total 0`,
		`plimsoll_coordinator_role{role="leader"} 1`,
		`plimsoll_coordinator_role{role="standby"} 0`,
		`plimsoll_coordinator_terms_total 1`,
		`plimsoll_coordinator_failures_total 0`,
		`plimsoll_coordinator_last_failure_timestamp_seconds 0`,
		fmt.Sprintf("plimsoll_coordinator_epoch %d", l.term.epoch),
		`go_goroutines`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("/metrics has no %s", line)
		}
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 52 {
		t.Errorf("%d metrics are in the registry that was given, %v; want 52", len(families), err)
	}
	health := get(t, client, url+"/healthz")
	if want := fmt.Sprintf(
		`"epoch":%d`, l.term.epoch,
	); !strings.Contains(health, `"status":"ok"`) || !strings.Contains(health, want) {
		t.Errorf("/healthz says %s", health)
	}
	if _, err := New(Config{Listen: "127.0.0.1:0", Metrics: registry}, only(l.term.store)); err == nil {
		t.Error("two coordinators share a registry")
	}
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err != nil || closeErr != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v, %v", url, response.Status, err, closeErr)
	}
	return string(data)
}

func TestConfigIsValidated(t *testing.T) {
	st := openStore(t, vfs.NewMem(), store.Limits{})
	for field, cfg := range map[string]Config{
		"address": {},
		"ringBuffer": {Listen: "127.0.0.1:0", State: state.Config{
			Events: map[string]string{"service.event.ringBufferCapacity": "-1"},
		}},
		"maxInbox": {Listen: "127.0.0.1:0", MaxInbox: -1},
		"queues":   {Listen: "127.0.0.1:0", Queues: plimsoll.QueueConfig{Name: "not root"}},
	} {
		_, err := New(cfg, only(st))
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if err := (&Config{Listen: "127.0.0.1:0"}).Validate(); err != nil {
		t.Errorf("the zero value is refused: %v", err)
	}
}

// Dry runs, capacities and decisions are answered on the stream of commands, and write no batch.
func TestQuestions(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	l.must(register("n", 1))
	before := l.must(submit(job("a", 1))).GetRevision()

	trial := l.must(place(job("b", 50), "", 0)).GetPlaceJob()
	if g := trial.GetGroups(); len(g) != 1 || len(g[0].GetPlaced()) != 39 ||
		g[0].GetPlaced()[38].GetFree().GetAmounts()["cpu"] != 0 || g[0].GetAsked() != 50 ||
		g[0].GetRefused().GetWaitCode() != pb.WaitCode_WAIT_CODE_NO_NODE ||
		g[0].GetRefused().GetNodes().GetOpen() != 1 {
		t.Errorf("the trial is %v", trial)
	}
	rooms := l.must(
		&pb.Command{Kind: &pb.Command_NodeCapacity{NodeCapacity: &pb.NodeCapacityRequest{}}},
	).GetNodeCapacity().GetNodes()
	if len(rooms) != 1 || rooms[0].GetUnreserved().GetAmounts()["cpu"] != 3900 ||
		rooms[0].GetWhole().GetAmounts()["cpu"] != 4000 || rooms[0].GetTasks() != 1 {
		t.Errorf("what is left is %v", rooms)
	}
	question := explain("a.work.0")
	question.GetExplainTask().Node, question.GetExplainTask().Export = "n", true
	reply := l.must(question)
	x := reply.GetExplainTask()
	if d := x.GetDecision(); d.GetNode() != "n" || len(d.GetCandidates()) != 1 || len(d.GetExport()) == 0 ||
		d.GetTime() != x.GetTask().GetBound() {
		t.Errorf("the decision is %v", d)
	}
	if len(
		x.GetVerdicts(),
	) == 0 || x.GetSteps()[0].GetKind() != pb.StageKind_STAGE_KIND_CLOSED || x.GetDecisionsKept() == 0 {
		t.Errorf("the explanation is %v", x)
	}
	d, err := fleetjson.ReadDecision(x.GetDecision().GetExport())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.Replay(nil); err != nil || again.Server != "n" || again.Name != "a.work.0" {
		t.Errorf("decided again: %v, %v", again, err)
	}
	if reply.GetRevision() != before {
		t.Errorf("revision %d has become %d by questions", before, reply.GetRevision())
	}
	for _, test := range []struct {
		cmd  *pb.Command
		code plimsoll.Code
	}{
		{place(job("b", 1), "none", 0), plimsoll.CodeInvalid},
		{place(job("b", 1), "", 1_000_000), plimsoll.CodeInvalid},
		{
			&pb.Command{Kind: &pb.Command_NodeCapacity{NodeCapacity: &pb.NodeCapacityRequest{Nodes: []string{"x"}}}},
			plimsoll.CodeNotFound,
		},
	} {
		if reply, err := l.Do(context.Background(), test.cmd); plimsoll.CodeOf(err) != test.code {
			t.Errorf("%v: %v, %v", test.cmd, reply, err)
		}
	}
}

func place(spec *plimsoll.JobSpec, group string, count int32) *pb.Command {
	return &pb.Command{
		Kind: &pb.Command_PlaceJob{
			PlaceJob: &pb.PlaceJobRequest{Spec: wire.JobSpecToProto(spec), Group: group, Count: count},
		},
	}
}
