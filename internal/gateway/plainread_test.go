package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// twins are two gateways of one copy: the first serves plain reads by itself, the second leaves all
// of them to connect.
type twins struct {
	own, byConnect *Gateway
	faults         [2]int
}

func newTwins(t testing.TB, cfg Config, r Replica) *twins {
	t.Helper()
	both := &twins{}
	for i, g := range []**Gateway{&both.own, &both.byConnect} {
		cfg.Events.Fault = func(string, error) { both.faults[i]++ }
		*g = newGateway(t, cfg, r)
	}
	mux := http.NewServeMux()
	both.byConnect.encodedReads(func(path string, read *plainRead) {
		mux.Handle(path, both.byConnect.bounded(read.byConnect))
	}, append(both.byConnect.guarded(compressFrom), wire.Bounded(both.byConnect.requestBounds())))
	both.byConnect.handler = both.byConnect.timed(mux)
	return both
}

// readCall is a request for a read.
type readCall struct {
	path   string
	header http.Header
	body   []byte
	gone   bool // the caller has gone before its request is read
	broken bool // the body ends with an error
}

type brokenBody struct{ io.Reader }

func (b brokenBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (c *readCall) send(g *Gateway) *httptest.ResponseRecorder {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.gone {
		cancel()
	}
	var body io.Reader = bytes.NewReader(c.body)
	if c.broken {
		body = brokenBody{body}
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://gateway"+c.path, body)
	r.Header = c.header.Clone()
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, r)
	return w
}

// compare sends a request to both, and reports every difference that a caller or an operator sees.
// It returns the status.
func (tw *twins) compare(t testing.TB, name string, c *readCall) int {
	t.Helper()
	own, want := c.send(tw.own), c.send(tw.byConnect)
	if own.Code != want.Code || !bytes.Equal(own.Body.Bytes(), want.Body.Bytes()) {
		t.Errorf("%s: answered with %d %.300q, and connect with %d %.300q",
			name, own.Code, own.Body, want.Code, want.Body)
	}
	length := own.Header().Get("Content-Length")
	if length != "" && length != fmt.Sprint(own.Body.Len()) {
		t.Errorf("%s: Content-Length is %s, and the body has %d bytes", name, length, own.Body.Len())
	}
	own.Header().Del("Content-Length")
	want.Header().Del("Content-Length")
	if !maps.EqualFunc(own.Header(), want.Header(), slices.Equal[[]string]) {
		t.Errorf("%s: the header is %v, and connect's %v", name, own.Header(), want.Header())
	}
	if a, b := countsOf(t, tw.own), countsOf(t, tw.byConnect); !reflect.DeepEqual(a, b) {
		t.Errorf("%s: counted %v, and connect %v", name, a, b)
	}
	if tw.faults[0] != tw.faults[1] {
		t.Errorf("%s: %d faults were reported, and %d with connect", name, tw.faults[0], tw.faults[1])
	}
	if n := tw.own.budgets.users.used.Load(); n != 0 {
		t.Errorf("%s: %d bytes are still charged", name, n)
	}
	return own.Code
}

// countsOf returns the counters of requests, reads and refusals by their labels.
func countsOf(t testing.TB, g *Gateway) map[string]float64 {
	t.Helper()
	families, err := g.cfg.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		switch family.GetName() {
		case "plimsoll_gateway_requests_total", "plimsoll_gateway_reads_total", "plimsoll_gateway_refused_total":
			for _, m := range family.GetMetric() {
				counts[family.GetName()+labelsOf(m)] = m.GetCounter().GetValue()
			}
		}
	}
	return counts
}

func labelsOf(m *dto.Metric) (all string) {
	for _, label := range m.GetLabel() {
		all += " " + label.GetName() + "=" + label.GetValue()
	}
	return all
}

// plainKinds are the content types of plain requests, and a few others.
var plainKinds = []string{
	"application/proto", "application/json", "application/json; charset=utf-8", "APPLICATION/JSON",
	"application/proto; a=b", "application/grpc", "application/grpc-web+proto", "application/connect+proto",
	"text/plain", "",
}

// inKind returns a message in the form of a content type.
func inKind(t testing.TB, kind string, m proto.Message) []byte {
	t.Helper()
	marshal := proto.Marshal
	if strings.Contains(strings.ToLower(kind), "json") {
		marshal = protojson.Marshal
	}
	data, err := marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// asked returns requests for every read: good ones, and one for each way in which a handler fails.
func asked() map[string][]proto.Message {
	eventual := &pb.Consistency{Level: pb.Freshness_FRESHNESS_EVENTUAL}
	later := &pb.Consistency{Level: pb.Freshness_FRESHNESS_AT_LEAST, Epoch: 1, Revision: 1 << 40}
	return map[string][]proto.Message{
		plimsollv1connect.JobServiceGetJobProcedure: {
			&pb.GetJobRequest{Id: "a"}, &pb.GetJobRequest{Id: "none"}, &pb.GetJobRequest{},
		},
		plimsollv1connect.JobServiceListJobsProcedure: {
			&pb.ListJobsRequest{}, &pb.ListJobsRequest{Limit: 1}, &pb.ListJobsRequest{Limit: -1},
			&pb.ListJobsRequest{Queue: "none"}, &pb.ListJobsRequest{States: []pb.JobState{99}},
			&pb.ListJobsRequest{States: []pb.JobState{pb.JobState_JOB_STATE_RUNNING}, Consistency: eventual},
			&pb.ListJobsRequest{Consistency: &pb.Consistency{Level: 7}},
		},
		plimsollv1connect.JobServiceGetTaskProcedure: {
			&pb.GetTaskRequest{Id: "a.g.0"}, &pb.GetTaskRequest{Id: "a.g.99999"}, &pb.GetTaskRequest{Id: "?"},
		},
		plimsollv1connect.JobServiceListTasksProcedure: {
			&pb.ListTasksRequest{}, &pb.ListTasksRequest{Job: "a", Limit: 3, Consistency: eventual},
			&pb.ListTasksRequest{After: "?"}, &pb.ListTasksRequest{Node: "none"},
			&pb.ListTasksRequest{Consistency: later}, &pb.ListTasksRequest{Job: strings.Repeat("long", 500)},
		},
		plimsollv1connect.NodeServiceListNodesProcedure:       {&pb.ListNodesRequest{}},
		plimsollv1connect.QueueServiceListQueuesProcedure:     {&pb.ListQueuesRequest{}},
		plimsollv1connect.QueueServiceGetQueueConfigProcedure: {&pb.GetQueueConfigRequest{}},
		plimsollv1connect.PolicyServiceGetPolicyProcedure:     {&pb.GetPolicyRequest{Name: "none"}},
		plimsollv1connect.PolicyServiceListPoliciesProcedure:  {&pb.ListPoliciesRequest{}},
	}
}

// headersBeside are headers that change what is done with a request, or that could.
func headersBeside() []http.Header {
	return []http.Header{
		{},
		{"Connect-Protocol-Version": {"1"}, "Connect-Timeout-Ms": {"60000"}, "User-Agent": {"x"}},
		{"Connect-Protocol-Version": {"2"}},
		{"Connect-Protocol-Version": {""}},
		{"Connect-Timeout-Ms": {"0"}},
		{"Connect-Timeout-Ms": {""}},
		{"Connect-Timeout-Ms": {"-1"}},
		{"Connect-Timeout-Ms": {"1e3"}},
		{"Connect-Timeout-Ms": {"+50000"}},
		{"Connect-Timeout-Ms": {"99999999999"}},
		{"Accept-Encoding": {"gzip"}},
		{"Accept-Encoding": {"identity"}},
		{"Accept-Encoding": {"br, gzip;q=0.5"}},
		{"Content-Encoding": {"identity"}},
		{"Content-Encoding": {"br"}},
		{"Content-Encoding": {"gzip"}},
	}
}

func twinRecords() []wire.Mutation {
	records := []wire.Mutation{putNode(plimsoll.Node{ID: "n1"}), putSpec(specNamed("a"))}
	for _, id := range []string{"a", "b"} {
		records = append(records, putStatus(plimsoll.JobStatus{
			ID: id, Owner: "alice", Queue: "root.batch", State: plimsoll.JobRunning,
		}))
		for i := range int32(60) {
			records = append(records, putTask(plimsoll.Task{
				Job: id, Group: "g", Index: i, Message: strings.Repeat("<long & rough>", 60),
			}))
		}
	}
	return records
}

// Each kind of message, encoding and set of headers is compared in make soak. Other runs draw some.
func TestAPlainReadIsAnsweredAsConnectAnswersIt(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	f := newFake()
	f.put(twinRecords()...)
	// A version that cannot be reached fails at once.
	both := newTwins(t, Config{BarrierTimeout: 1, MaxRequestBytes: 64 << 10}, f)
	questions := asked()
	for _, path := range slices.Sorted(maps.Keys(questions)) {
		for i, m := range questions[path] {
			for _, kind := range plainKinds {
				for _, header := range headersBeside() {
					if rng.IntN(testrun.Count(12, 4, 1)) > 0 {
						continue
					}
					header.Set("Content-Type", kind)
					name := fmt.Sprintf("%s %d %v", path, i, header)
					body := inKind(t, kind, m)
					both.compare(t, name, &readCall{path: path, header: header, body: body})
				}
			}
		}
	}
}

func TestAPlainReadThatCannotBeReadIsRefusedAsConnectRefusesIt(t *testing.T) {
	f := newFake()
	f.put(twinRecords()...)
	both := newTwins(t, Config{MaxRequestBytes: 4 << 10}, f)
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	if _, err := packer.Write([]byte(`{"job":"a"}`)); err != nil || packer.Close() != nil {
		t.Fatal(err)
	}
	path := plimsollv1connect.JobServiceListTasksProcedure
	for _, kind := range plainKinds[:2] {
		for name, c := range map[string]*readCall{
			"junk":             {body: []byte("\xff\xff\xff")},
			"empty":            {},
			"huge":             {body: make([]byte, 10<<10)},
			"an unknown field": {body: []byte(`{"jib":"a"}`)},
			"not an object":    {body: []byte(`[]`)},
			"twice the field":  {body: []byte(`{"job":"a","job":"b"}`)},
			"an unknown word":  {body: []byte(`{"states":["TASK_STATE_ASLEEP"]}`)},
			"no UTF-8":         {body: []byte("{\"job\":\"\xff\"}")},
			"binary no UTF-8":  {body: []byte("\x0a\x01\xff")},
			"a broken body":    {body: []byte(`{"job":`), broken: true},
			"the caller gone":  {body: []byte(`{}`), gone: true},
			"gzip":             {body: packed.Bytes(), header: http.Header{"Content-Encoding": {"gzip"}}},
			"no gzip":          {body: []byte(`{}`), header: http.Header{"Content-Encoding": {"gzip"}}},
		} {
			if c.path = path; c.header == nil {
				c.header = http.Header{}
			}
			c.header.Set("Content-Type", kind)
			for range 2 { // the second time it might be known
				both.compare(t, kind+" "+name, c)
			}
		}
	}
}

// panickingCopy is a copy whose barrier panics.
type panickingCopy struct{ *fake }

func (panickingCopy) Barrier(context.Context) (*replica.Snapshot, error) { panic("a broken invariant") }

func TestAReadThatFailsAtThisGatewayIsToldAsConnectTellsIt(t *testing.T) {
	good := newFake()
	good.put(twinRecords()...)
	down := newFake()
	down.set(func(f *fake) { f.down = errNoLeader })
	stuck := newFake()
	stuck.set(func(f *fake) { f.hang = true })
	corrupt := newFake()
	corrupt.put(wire.Mutation{Kind: wire.KindTask, Key: wire.TaskKey("a", "g", 0), Value: []byte("\x0a\xff")})
	for name, c := range map[string]struct {
		replica Replica
		cfg     Config
		header  http.Header
		want    int
	}{
		"no leader":        {replica: down, want: http.StatusServiceUnavailable},
		"no proof in time": {replica: stuck, cfg: Config{BarrierTimeout: 1}, want: http.StatusServiceUnavailable},
		"the caller's time": {
			replica: stuck, header: http.Header{"Connect-Timeout-Ms": {"1"}}, want: http.StatusGatewayTimeout,
		},
		"a malformed record":  {replica: corrupt, want: http.StatusInternalServerError},
		"a panic":             {replica: panickingCopy{good}, want: http.StatusInternalServerError},
		"no room for answers": {replica: good, cfg: Config{MaxUserBytes: 64 << 10}, want: http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			both := newTwins(t, c.cfg, c.replica)
			for _, kind := range plainKinds[:2] {
				header := c.header.Clone()
				if header == nil {
					header = http.Header{}
				}
				header.Set("Content-Type", kind)
				call := &readCall{path: plimsollv1connect.JobServiceListTasksProcedure, header: header}
				call.body = inKind(t, kind, &pb.ListTasksRequest{})
				if got := both.compare(t, kind, call); got != c.want {
					t.Errorf("%s: the status is %d, want %d", kind, got, c.want)
				}
			}
		})
	}
}

// FuzzAPlainRead looks for a request that is answered otherwise than connect answers it.
func FuzzAPlainRead(f *testing.F) {
	paths := slices.Sorted(maps.Keys(asked()))
	for at, path := range paths {
		for _, m := range asked()[path] {
			for _, kind := range plainKinds {
				f.Add(uint8(at), kind, "", "", "", "", inKind(f, kind, m))
			}
		}
	}
	for _, h := range headersBeside() {
		f.Add(uint8(0), "application/json", h.Get("Connect-Protocol-Version"), h.Get("Connect-Timeout-Ms"),
			h.Get("Accept-Encoding"), h.Get("Content-Encoding"), []byte("{}"))
	}
	copied := newFake()
	copied.put(twinRecords()...)
	both := newTwins(f, Config{BarrierTimeout: 1, MaxRequestBytes: 64 << 10}, copied)
	f.Fuzz(func(t *testing.T, at uint8, kind, version, timeout, takes, packed string, body []byte) {
		header := http.Header{"Content-Type": {kind}}
		for name, value := range map[string]string{
			headerProtocol: version, headerTimeout: timeout, headerTakesPacked: takes, headerPacked: packed,
		} {
			if value != "" {
				header.Set(name, value)
			}
		}
		if len(timeout) < 4 && timeout != "" { // whether so little time is enough is a matter of luck
			header.Set(headerTimeout, timeout+"000")
		}
		both.compare(t, "fuzzed", &readCall{path: paths[int(at)%len(paths)], header: header, body: body})
	})
}

func TestARequestThatTakesNoCompressionIsPlain(t *testing.T) {
	for takes, want := range map[string]bool{"": true, "identity": true, "gzip": false, "identity, gzip": false} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(headerKind, "application/proto")
		if takes != "" {
			r.Header.Set(headerTakesPacked, takes)
		}
		if _, _, ok := plain(r); ok != want {
			t.Errorf("a request that takes %q is plain: %v", takes, ok)
		}
	}
}

func TestARequestThatIsKnownIsNotDecodedAgainAndIsNeverChanged(t *testing.T) {
	k := &knownRequests{}
	body, request := []byte(`{"job":"a"}`), &pb.ListTasksRequest{Job: "a"}
	k.keep(body, true, request, 100)
	if k.find(body, true) != proto.Message(request) {
		t.Error("it is not known")
	}
	if k.find(body, false) != nil {
		t.Error("its JSON is known as the binary form")
	}
	f := newFake()
	f.put(twinRecords()...)
	g := newGateway(t, Config{}, f)
	var all sync.WaitGroup
	for range 4 { // the race detector would see a read that changes its request
		all.Go(func() {
			for path, messages := range asked() {
				for _, m := range messages[:1] {
					for range 3 {
						post(g, path, "application/proto", inKind(t, "application/proto", m))
					}
				}
			}
		})
	}
	all.Wait()
}

func TestTheRequestsThatAreKnownAreBoundedInBytes(t *testing.T) {
	k := &knownRequests{}
	for i := range 10_000 {
		k.keep(fmt.Appendf(nil, "%0200d", i), i%2 == 0, &pb.ListTasksRequest{}, 1000)
		if k.mu.size > maxKnownRequests {
			t.Fatalf("%d bytes are kept, and the bound is %d", k.mu.size, maxKnownRequests)
		}
	}
	if k.find(fmt.Appendf(nil, "%0200d", 9999), false) == nil {
		t.Error("the newest request is not known")
	}
	large := make([]byte, maxKnownRequest+1)
	k.keep(large, false, &pb.ListTasksRequest{}, 10)
	if k.find(large, false) != nil {
		t.Error("a large request is kept")
	}
}
