package gateway

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// attack is a request as it stands on the wire.
type attack struct {
	name, rpc, contentType string
	header, encoding       string
	body                   []byte
}

func (a attack) request() *http.Request {
	r := httptest.NewRequest(http.MethodPost, a.rpc, bytes.NewReader(a.body))
	r.ProtoMajor = 2 // as gRPC needs
	r.Header.Set("Content-Type", a.contentType)
	if a.header != "" {
		r.Header.Set(a.header, a.encoding)
	}
	return r
}

// send has a gateway answer an attack, and returns the answer and the bytes allocated for it.
func (a attack) send(g *Gateway) (said string, header http.Header, took uint64) {
	request, w := a.request(), httptest.NewRecorder()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	g.Handler().ServeHTTP(w, request)
	runtime.ReadMemStats(&after)
	result := w.Result()
	text := fmt.Sprint(
		w.Code, " ", w.Body.String(), result.Header.Get("Grpc-Message"), result.Trailer.Get("Grpc-Message"),
	)
	return text, result.Header, after.TotalAlloc - before.TotalAlloc
}

func zipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func enveloped(flags byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
}

// emptyGroups is a SubmitJobRequest of as many empty groups as fit into 8 MiB.
func emptyGroups() []byte {
	groups := bytes.Repeat([]byte{5<<3 | 2, 0}, 4_190_000)
	return append(binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(groups))), groups...)
}

// manyObjects is the same as JSON.
func manyObjects() []byte {
	return []byte(`{"spec":{"groups":[` + strings.Repeat(`{},`, 2_700_000) + `{}]}}`)
}

// counted returns the value of a counter.
func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

const (
	submitJob = plimsollv1connect.JobServiceSubmitJobProcedure
	watchJob  = plimsollv1connect.JobServiceWatchJobProcedure
)

// 8 KB of gzip with 4.19 M empty groups took 5.7 GB and, sent twice, the process.
func TestNoSingleRequestTakes64MiB(t *testing.T) {
	g := newGateway(t, Config{}, cluster())
	empty, objects := emptyGroups(), manyObjects()
	zeros := bytes.Repeat(zipped(t, make([]byte, 32<<20)), 32) // a GiB, in members
	const elements, long = "so many elements", "longer than 8388608"
	for _, a := range []struct {
		attack
		want string
	}{
		{
			attack{
				"8 KB of gzip with empty groups", submitJob, "application/proto", "Content-Encoding", "gzip",
				zipped(t, empty),
			},
			elements,
		},
		{attack{"the groups themselves", submitJob, "application/proto", "", "", empty}, elements},
		{attack{"8 MB of {},", submitJob, "application/json", "", "", objects}, elements},
		{attack{"{}, in gzip", submitJob, "application/json; charset=utf-8", "Content-Encoding", "gzip", zipped(
			t, objects,
		)}, elements},
		{attack{"a GiB of zeros in gzip", submitJob, "application/proto", "Content-Encoding", "gzip", zeros}, long},
		{
			attack{
				"a GiB in an envelope", watchJob, "application/connect+proto", "Connect-Content-Encoding", "gzip",
				enveloped(1, zeros),
			},
			long,
		},
		{attack{"a GiB over gRPC", submitJob, "application/grpc", "Grpc-Encoding", "gzip", enveloped(1, zeros)}, long},
		{
			attack{
				"groups over gRPC", submitJob, "application/grpc+proto", "Grpc-Encoding", "gzip",
				enveloped(1, zipped(t, empty)),
			},
			elements,
		},
		{
			attack{"objects over gRPC-Web", submitJob, "application/grpc-web+json", "", "", enveloped(0, objects)},
			elements,
		},
		{
			attack{
				"a prefix that promises 4 GB", watchJob, "application/connect+proto", "", "",
				[]byte{0, 255, 255, 255, 255, 1},
			},
			long,
		},
		{attack{"what is longer than it may be", submitJob, "application/proto", "", "", make([]byte, 9<<20)}, long},
	} {
		said, _, took := a.send(g)
		if !strings.Contains(said, a.want) {
			t.Errorf("%s: answered %.300q, want %q", a.name, said, a.want)
		}
		if took >= 64<<20 {
			t.Errorf("%s: the refusal allocates %d bytes", a.name, took)
		}
	}
	for bound, want := range map[string]float64{boundMessageElements: 6, boundMessageBytes: 5} {
		if got := counted(t, g.metrics.refusals.WithLabelValues(bound)); got != want {
			t.Errorf("%v were refused for the %s, want %v", got, bound, want)
		}
	}
	if used := g.budgets.users.used.Load(); used != 0 {
		t.Errorf("%d bytes were not given back", used)
	}
}

// A refusal gives its reason in the same form as any other error, over each protocol.
func TestARefusalForSizeIsAnErrorLikeOthers(t *testing.T) {
	s := serve(t, Config{MaxRequestBytes: 1 << 20}, cluster())
	many := &pb.SubmitJobRequest{Spec: &pb.JobSpec{Groups: make([]*pb.GroupSpec, 200_000)}}
	for i := range many.Spec.Groups {
		many.Spec.Groups[i] = &pb.GroupSpec{}
	}
	long := &pb.SubmitJobRequest{Spec: &pb.JobSpec{Id: strings.Repeat("x", 2<<20)}}
	client, url, err := transport.Client(s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	for name, options := range map[string][]connect.ClientOption{
		"Connect": nil, "gzip": {connect.WithSendGzip()}, "JSON": {connect.WithProtoJSON()},
		"gRPC": {connect.WithGRPC()}, "gRPC in gzip": {connect.WithGRPC(), connect.WithSendGzip()},
		"gRPC-Web": {connect.WithGRPCWeb()},
	} {
		jobs := plimsollv1connect.NewJobServiceClient(client, url, options...)
		_, err := call(jobs.SubmitJob, many)
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(
			err.Error(), "message: has so many elements",
		) {
			t.Errorf("%s: many elements: %v", name, err)
		}
		_, err = call(jobs.SubmitJob, long)
		if plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
			t.Errorf("%s: 2 MiB: %v", name, err)
		}
		must(t, jobs.GetJob, &pb.GetJobRequest{Id: "a"}) // an honest one passes in the same form
	}
}

// However the bytes come, the same request comes out.
func TestHonestRequestsPassAsTheyAre(t *testing.T) {
	f := cluster()
	g := newGateway(t, Config{}, f)
	body := []byte(`{"id":"a"}`)
	const getJob = plimsollv1connect.JobServiceGetJobProcedure
	for _, a := range []attack{
		{"at once", getJob, "application/json", "", "", body},
		{"in gzip", getJob, "application/json", "Content-Encoding", "gzip", zipped(t, body)},
		{"identity", getJob, "application/json", "Content-Encoding", "identity", body},
		{"gRPC-Web", getJob, "application/grpc-web+json", "", "", enveloped(0, body)},
		{
			"gRPC-Web in gzip", getJob, "application/grpc-web+json", "Grpc-Encoding", "gzip",
			enveloped(1, zipped(t, body)),
		},
		{
			"gRPC-Web that could be in gzip", getJob, "application/grpc-web+json", "Grpc-Encoding", "gzip",
			enveloped(0, body),
		},
	} {
		for name, reader := range map[string]http.Request{
			"whole":        *withBody(a.request(), iotest.DataErrReader(bytes.NewReader(a.body))),
			"byte by byte": *withBody(a.request(), iotest.OneByteReader(bytes.NewReader(a.body))),
		} {
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, &reader)
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"a"`) {
				t.Errorf("%s, %s: %d %q", a.name, name, w.Code, w.Body)
			}
		}
	}
	for _, a := range []attack{
		{"an encoding that is not known", getJob, "application/json", "Content-Encoding", "br", body},
		{"no gzip", getJob, "application/json", "Content-Encoding", "gzip", body},
		{"a type that is not known", getJob, "text/plain", "", "", body},
		{"half an envelope", getJob, "application/grpc-web+json", "", "", enveloped(0, body)[:8]},
		{"half a prefix", getJob, "application/grpc-web+json", "", "", []byte{0, 0}},
	} {
		if said, header, _ := a.send(g); strings.HasPrefix(said, "200") && header.Get(
			"Content-Type",
		) == "application/json" {
			t.Errorf("%s: answered %q", a.name, said)
		}
	}
}

func withBody(r *http.Request, body interface{ Read([]byte) (int, error) }) *http.Request {
	made := httptest.NewRequest(r.Method, r.URL.Path, body)
	made.Header, made.ProtoMajor, made.ContentLength = r.Header, 2, -1
	return made
}

// Every RPC of a gateway has a type of request, so that its elements can be counted.
func TestEveryRPCIsCounted(t *testing.T) {
	g := newGateway(t, Config{}, cluster())
	for _, rpc := range []string{
		submitJob, watchJob, plimsollv1connect.AgentServiceReportTasksProcedure,
		plimsollv1connect.PolicyServiceApplyPoliciesProcedure,
	} {
		if g.methods[rpc].input == nil {
			t.Errorf("%s has none", rpc)
		}
	}
	if _, ok := g.methods[submitJob].input.(*pb.SubmitJobRequest); !ok || len(g.methods) < 25 {
		t.Errorf("the methods are %v", g.methods)
	}
	for rpc, want := range map[string]bool{
		submitJob: false, watchJob: true, plimsollv1connect.NodeServiceWatchNodeQOSProcedure: true,
	} {
		if g.methods[rpc].streams != want {
			t.Errorf("%s is a stream: %v", rpc, !want)
		}
	}
}

// BenchmarkIntake measures the cost that the intake adds to an honest request, without the network.
func BenchmarkIntake(b *testing.B) {
	g := newGateway(b, Config{}, cluster())
	_, plain := plimsollv1connect.NewAgentServiceHandler(agentService{g}, connect.WithReadMaxBytes(8<<20))
	_, bounded := plimsollv1connect.NewAgentServiceHandler(agentService{g}, wire.Bounded(wire.RequestBounds(8<<20)))
	body, err := proto.Marshal(&pb.HeartbeatRequest{Node: "n1", Incarnation: 1 << 50})
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range []struct {
		name    string
		handler http.Handler
	}{{"none", plain}, {"counted", bounded}, {"bounded", g.bounded(bounded)}} {
		b.Run(path.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := attack{
					"", plimsollv1connect.AgentServiceHeartbeatProcedure, "application/proto", "", "", body,
				}.request()
				w := httptest.NewRecorder()
				path.handler.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
