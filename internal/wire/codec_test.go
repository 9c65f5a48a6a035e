package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
)

// emptyGroups is a submit of as many empty groups as 4 MiB hold.
func emptyGroups() []byte { return put(1, repeat(2_097_000, put(5))...) }

// bomb returns a message that inflates to a GiB.
func bomb(t *testing.T) []byte {
	t.Helper()
	return repeat(256, zip(t, make([]byte, 4<<20))) // gzip's members are inflated one after another
}

// envelope is a message in a stream.
func envelope(flags byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
}

// A service with the options refuses every hostile message, over each protocol, in less than 64
// MiB.
func TestARefusalTakesLessThan64MiB(t *testing.T) {
	mux := http.NewServeMux()
	options := Bounded(RequestBounds(4 << 20))
	mux.Handle(plimsollv1connect.NewJobServiceHandler(plimsollv1connect.UnimplementedJobServiceHandler{}, options))
	empty, gib, gz := emptyGroups(), bomb(t), "gzip"
	zippedEmpty := zip(t, empty)
	json := []byte(`{"spec":{"groups":[` + strings.Repeat(`{},`, (4<<20-50)/3) + `{}]}}`)
	for _, attack := range []struct {
		name, path, contentType, header, encoding string
		body                                      []byte
		want                                      string
	}{
		{"4 MB of empty groups", "SubmitJob", "application/proto", "", "", empty, "so many elements"},
		{"the same in 4 KB of gzip", "SubmitJob", "application/proto", "Content-Encoding", gz, zippedEmpty, "elements"},
		{"4 MB of {},", "SubmitJob", "application/json", "", "", json, "elements"},
		{"the same in gzip", "SubmitJob", "application/json", "Content-Encoding", gz, zip(t, json), "elements"},
		{"a charset", "SubmitJob", "application/json; charset=utf-8", "", "", json, "elements"},
		{
			"a GiB of zeros in gzip", "SubmitJob", "application/proto", "Content-Encoding", gz, gib,
			"longer than 4194304",
		},
		{"the same as JSON", "SubmitJob", "application/json", "Content-Encoding", gz, gib, "longer than 4194304"},
		{"gRPC", "SubmitJob", "application/grpc", "", "", envelope(0, empty), "elements"},
		{"gRPC in gzip", "SubmitJob", "application/grpc", "Grpc-Encoding", gz, envelope(1, zippedEmpty), "elements"},
		{
			"gRPC-Web in gzip", "SubmitJob", "application/grpc-web", "Grpc-Encoding", gz, envelope(1, zippedEmpty),
			"elements",
		},
		{
			"a GiB in an envelope", "WatchJob", "application/connect+proto", "Connect-Content-Encoding", gz,
			envelope(1, gib), "longer than 4194304",
		},
		{
			"a GiB in one of gRPC", "SubmitJob", "application/grpc+proto", "Grpc-Encoding", gz, envelope(1, gib),
			"longer than 4194304",
		},
		{"a stream of JSON", "WatchJob", "application/connect+json", "", "", envelope(0, json), "elements"},
	} {
		request := httptest.NewRequest(
			http.MethodPost, "/plimsoll.v1.JobService/"+attack.path, bytes.NewReader(attack.body),
		)
		request.ProtoMajor = 2 // as gRPC needs
		request.Header.Set("Content-Type", attack.contentType)
		if attack.header != "" {
			request.Header.Set(attack.header, attack.encoding)
		}
		answer := httptest.NewRecorder()
		took := allocated(func() { mux.ServeHTTP(answer, request) })
		said := inflated(answer.Body.Bytes()) + answer.Header().Get("Grpc-Message") +
			answer.Result().Trailer.Get("Grpc-Message")
		if !strings.Contains(said, attack.want) {
			t.Errorf("%s: answered %d %.300q, want %q", attack.name, answer.Code, said, attack.want)
		}
		t.Logf("%s: %d bytes, took %d", attack.name, len(attack.body), took)
		if took >= 64<<20 {
			t.Errorf("%s: the refusal allocates %d bytes", attack.name, took)
		}
	}
}

// inflated is an answer, inflated if it is an envelope that is compressed.
func inflated(body []byte) string {
	if len(body) > 5 && body[0]&1 != 0 {
		if r, err := gzip.NewReader(bytes.NewReader(body[5:])); err == nil {
			body, _ = io.ReadAll(r) // what can be read of it
		}
	}
	return string(body)
}

func TestAGzipReaderStopsAtItsBound(t *testing.T) {
	source := bytes.NewReader(bomb(t))
	r := Bounds{Bytes: 1 << 20}.newGzipReader()
	if err := r.Reset(source); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, r)
	if n != 1<<20 || connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("%d bytes were inflated, and the error is %v", n, err)
	}
	if read := int(source.Size()) - source.Len(); read > 64<<10 {
		t.Errorf("%d compressed bytes were read", read)
	}
	for _, size := range []int{0, 1, 1<<20 - 1, 1 << 20} { // the bound itself is allowed, again and again
		if err := r.Reset(bytes.NewReader(zip(t, make([]byte, size)))); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, r); err != nil || int(n) != size {
			t.Errorf("of %d bytes %d were inflated: %v", size, n, err)
		}
	}
}

func TestInflateStopsAtItsBoundAndAsksForRoom(t *testing.T) {
	var i Inflater
	for _, size := range []int{0, 1, 511, 512, 513, 100_000, 1 << 20} {
		data := bytes.Repeat([]byte{7}, size)
		room := 0
		got, err := i.Inflate(zip(t, data), 1<<20, func(n int) error { room += n; return nil })
		if err != nil || !bytes.Equal(got, data) || room < size {
			t.Errorf("of %d bytes %d came back, for %d of room: %v", size, len(got), room, err)
		}
	}
	room := 0
	took := allocated(func() {
		_, err := i.Inflate(bomb(t), 1<<20, func(n int) error { room += n; return nil })
		if plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
			t.Errorf("a GiB: %v", err)
		}
	})
	if room > 1<<20+1 || took > 48<<20 { // which the bomb itself takes to make
		t.Errorf("the refusal asked for %d bytes of room and allocated %d", room, took)
	}
	full := errors.New("full")
	if _, err := i.Inflate(bomb(t), 1<<20, func(int) error { return full }); !errors.Is(err, full) {
		t.Errorf("without room: %v", err)
	}
	if _, err := i.Inflate(
		[]byte("no gzip"), 1<<20, func(int) error { return nil },
	); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("no gzip: %v", err)
	}
}

// Compressors are large; so many answers at once share a few, and none is lost.
func TestCompressorsAreShared(t *testing.T) {
	d := NewDeflater(gzip.BestSpeed)
	data := bytes.Repeat([]byte("answer "), 10_000)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			packed, err := d.Deflate(data)
			if err != nil {
				t.Error(err)
				return
			}
			var i Inflater
			if got, err := i.Inflate(
				packed, len(data), func(int) error { return nil },
			); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes came back: %v", len(got), err)
			}
		})
	}
	all.Wait()
	if n := len(d.slots); n != 0 {
		t.Errorf("%d compressors were not given back", n)
	}
	w := d.newWriter()
	w.Reset(io.Discard)
	for range gzipWriters { // while one waits for its first byte, it has none
		other := d.newWriter()
		if _, err := other.Write(data); err != nil {
			t.Fatal(err)
		}
		defer other.Reset(io.Discard)
	}
	if n := len(d.slots); n != gzipWriters {
		t.Errorf("%d of %d compressors are in use", n, gzipWriters)
	}
}

// A codec of the options passes on the same messages as connect's own.
func TestTheCodecsPassMessages(t *testing.T) {
	spec := specOf(t)
	b := RequestBounds(8 << 20)
	for _, codec := range []connect.Codec{&binaryCodec{bounds: b}, &jsonCodec{"json", b}} {
		data, err := codec.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		got := &pb.JobSpec{}
		if err := codec.Unmarshal(data, got); err != nil || !proto.Equal(got, spec) {
			t.Errorf("%s: %v came back, %v", codec.Name(), got, err)
		}
	}
}

func specOf(t *testing.T) *pb.JobSpec {
	t.Helper()
	return JobSpecToProto(&plimsoll.JobSpec{ID: "a", Queue: "root.default", Groups: []plimsoll.GroupSpec{
		{
			Name: "g", Count: 1, Command: []string{"true"}, Env: map[string]string{"A": "b"},
			Resources: plimsoll.Resources{"cpu": 1},
		},
	}})
}

// A message of 8 MB whose elements are honest is taken.
func TestALargeHonestMessageIsTaken(t *testing.T) {
	m := &pb.SubmitJobRequest{Spec: specOf(t)}
	for range 60 {
		m.Spec.Groups = append(
			m.Spec.Groups, &pb.GroupSpec{Command: []string{"sh", "-c", strings.Repeat("x", plimsoll.MaxCommandBytes)}},
		)
	}
	b := RequestBounds(8 << 20)
	for _, codec := range []connect.Codec{&binaryCodec{bounds: b}, &jsonCodec{"json", b}} {
		data, err := codec.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := codec.Unmarshal(data, &pb.SubmitJobRequest{}); err != nil {
			t.Errorf("%s of %d bytes: %v", codec.Name(), len(data), err)
		}
	}
}

// The largest tree of queues and the largest set of policies pass in both forms.
func TestTheLargestConfigurationsPass(t *testing.T) {
	full := map[string]int64{"cpu": 1 << 40, "memory": 1 << 50, "nvidia.com/gpu": 1 << 20}
	queues := &pb.QueueConfig{Name: "root", Parent: true}
	for range plimsoll.MaxQueues {
		queues.Queues = append(queues.Queues, &pb.QueueConfig{
			Name: "a-queue-with-a-name", Guaranteed: &pb.Resources{Amounts: full}, Max: &pb.Resources{Amounts: full},
			MaxJobs: 10,
		})
	}
	b := RequestBounds(8 << 20)
	for _, codec := range []connect.Codec{&binaryCodec{bounds: b}, &jsonCodec{"json", b}} {
		data, err := codec.Marshal(&pb.SetQueueConfigRequest{Config: queues})
		if err != nil {
			t.Fatal(err)
		}
		if err := codec.Unmarshal(data, &pb.SetQueueConfigRequest{}); err != nil {
			t.Errorf("%s of %d bytes: %v", codec.Name(), len(data), err)
		}
	}
}
