package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// randomly fills the fields of a message by reflection: about two of three, nested messages to a
// bounded depth.
func randomly(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if r.IntN(3) == 0 || fd.Message() != nil && !fd.IsMap() && depth == 0 {
			continue
		}
		switch {
		case fd.IsMap():
			entries := m.Mutable(fd).Map()
			for range r.IntN(4) {
				value := entries.NewValue()
				if fd.MapValue().Message() != nil {
					randomly(r, value.Message(), depth-1)
				} else {
					value = randomValue(r, fd.MapValue())
				}
				entries.Set(randomValue(r, fd.MapKey()).MapKey(), value)
			}
		case fd.IsList():
			list := m.Mutable(fd).List()
			for range r.IntN(4) {
				if fd.Message() != nil {
					randomly(r, list.AppendMutable().Message(), depth-1)
				} else {
					list.Append(randomValue(r, fd))
				}
			}
		case fd.Message() != nil:
			randomly(r, m.Mutable(fd).Message(), depth-1)
		default:
			m.Set(fd, randomValue(r, fd))
		}
	}
}

// randomValue returns a value of a field that is no message, the extremes among them.
func randomValue(r *rand.Rand, fd protoreflect.FieldDescriptor) protoreflect.Value {
	number := []int64{0, 1, -1, math.MaxInt64, math.MinInt64, r.Int64()}[r.IntN(6)]
	texts := []string{"", "a", `"<>&\` + "\u2028\n\x00", "größe, ]}", strconv.Itoa(r.Int())}
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(texts[r.IntN(len(texts))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(texts[r.IntN(len(texts))]))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(fd.Enum().Values().Len() + 1)))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(number))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(number)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(number))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64([]float64{0, -1.5, math.Inf(1), math.NaN(), r.Float64()}[r.IntN(5)])
	}
	panic("there is no random value for " + fd.Kind().String())
}

// randomRecord returns a record with random fields. identify sets those that its key names.
func randomRecord[T any, M message[T]](
	r *rand.Rand, kind wire.Kind, key string, identify func(M),
) wire.Mutation {
	m := M(new(T))
	randomly(r, m.ProtoReflect(), 3)
	identify(m)
	return wire.Mutation{Kind: kind, Key: key, Value: stably(m)}
}

func stably(m proto.Message) []byte {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return data
}

// randomRecords returns some records of every kind that answers hold.
func randomRecords(r *rand.Rand) []wire.Mutation {
	all := []wire.Mutation{
		randomRecord(r, wire.KindQueueConfig, "", func(*pb.QueueConfig) {}),
		randomRecord(r, wire.KindQueueStatus, "root", func(m *pb.QueueStatus) { m.Path = "root" }),
	}
	for i := range r.IntN(8) + 1 {
		id := fmt.Sprintf("x%d", i)
		all = append(
			all,
			randomRecord(r, wire.KindJobStatus, id, func(m *pb.JobStatus) {
				m.Id, m.Uid, m.Deleted = id, "", false // one that is about to be deleted is in no answer
			}),
			randomRecord(r, wire.KindNode, id, func(m *pb.Node) { m.Id = id }),
			randomRecord(r, wire.KindQueueStatus, "root."+id, func(m *pb.QueueStatus) { m.Path = "root." + id }),
			randomRecord(r, wire.KindTask, wire.TaskKey(id, "g", int32(i)), func(m *pb.Task) {
				m.Job, m.Group, m.Index = id, "g", int32(i)
			}),
		)
		if r.IntN(2) == 0 {
			all = append(all, randomRecord(r, wire.KindJobSpec, id, func(m *pb.JobSpec) { m.Id = id }))
		}
		if r.IntN(2) == 0 {
			all = append(all, randomRecord(r, wire.KindNodeStatus, id, func(m *pb.NodeStatus) { m.Id = id }))
		}
		kind := plimsoll.PolicyKind(r.IntN(3) + 1)
		key := wire.PolicyKey(plimsoll.PolicyRef{Kind: kind, Name: id})
		all = append(all, randomRecord(r, wire.KindPolicy, key, func(*pb.Policy) {}))
	}
	for i := range all {
		if len(all[i].Value) == 0 {
			all[i].Value = []byte{}
		}
	}
	return all
}

// decodedList decodes all records of a kind, in the order of their keys.
func decodedList[T any, M message[T]](s *replica.Snapshot, kind wire.Kind) []M {
	var all []M
	for key, data := range s.Scan(kind, "", "") {
		m := M(new(T))
		if err := decode(kind, key, data, m); err != nil {
			panic(err)
		}
		all = append(all, m)
	}
	return all
}

func decodedOne[T any, M message[T]](s *replica.Snapshot, kind wire.Kind, key string) M {
	m, err := load[T, M](s, kind, key)
	if err != nil {
		panic(err)
	}
	return m
}

// slowRead is a read and its answer as a decoder and an encoder make it.
type slowRead struct {
	path string
	req  proto.Message
	resp proto.Message
}

// slowReads returns every read of encodedReads, with its answer for a state.
func slowReads(s *replica.Snapshot) []slowRead {
	at := s.Version()
	jobs, nodes := decodedList[pb.JobStatus](s, wire.KindJobStatus), decodedList[pb.Node](s, wire.KindNode)
	for _, job := range jobs {
		if err := addKnown(s, job); err != nil {
			panic(err)
		}
	}
	infos := make([]*pb.NodeInfo, len(nodes))
	for i, node := range nodes {
		infos[i] = &pb.NodeInfo{Node: node, Status: decodedOne[pb.NodeStatus](s, wire.KindNodeStatus, node.GetId())}
	}
	policies := decodedList[pb.Policy](s, wire.KindPolicy)
	var keys []string
	for key := range s.Scan(wire.KindPolicy, "", "") {
		keys = append(keys, key)
	}
	ref := func(key string) plimsoll.PolicyRef { r, _ := wire.SplitPolicyKey(key); return r }
	first := ref(keys[0])
	kindOf := map[*pb.Policy]plimsoll.PolicyKind{}
	for i, p := range policies {
		kindOf[p] = ref(keys[i]).Kind
	}
	one := policies[0]
	slices.SortStableFunc(policies, func(a, b *pb.Policy) int { return int(kindOf[a]) - int(kindOf[b]) })
	tasks := decodedList[pb.Task](s, wire.KindTask)
	return []slowRead{
		{
			plimsollv1connect.JobServiceGetJobProcedure, &pb.GetJobRequest{Id: "x0"}, &pb.GetJobResponse{
				Job:      &pb.Job{Spec: decodedOne[pb.JobSpec](s, wire.KindJobSpec, "x0"), Status: jobs[0]},
				Revision: at.Revision, Epoch: at.Epoch,
			},
		},
		{
			plimsollv1connect.JobServiceListJobsProcedure, &pb.ListJobsRequest{},
			&pb.ListJobsResponse{Jobs: jobs, Revision: at.Revision, Epoch: at.Epoch},
		},
		{
			plimsollv1connect.JobServiceGetTaskProcedure, &pb.GetTaskRequest{Id: taskID(tasks[0])},
			&pb.GetTaskResponse{Task: tasks[0], Revision: at.Revision, Epoch: at.Epoch},
		},
		{
			plimsollv1connect.JobServiceListTasksProcedure, &pb.ListTasksRequest{},
			&pb.ListTasksResponse{Tasks: tasks, Revision: at.Revision, Epoch: at.Epoch},
		},
		{
			plimsollv1connect.NodeServiceListNodesProcedure, &pb.ListNodesRequest{},
			&pb.ListNodesResponse{Nodes: infos, Revision: at.Revision, Epoch: at.Epoch},
		},
		{
			plimsollv1connect.QueueServiceListQueuesProcedure, &pb.ListQueuesRequest{},
			&pb.ListQueuesResponse{
				Queues:   decodedList[pb.QueueStatus](s, wire.KindQueueStatus),
				Revision: at.Revision, Epoch: at.Epoch,
			},
		},
		{
			plimsollv1connect.QueueServiceGetQueueConfigProcedure, &pb.GetQueueConfigRequest{},
			&pb.GetQueueConfigResponse{
				Config:   decodedOne[pb.QueueConfig](s, wire.KindQueueConfig, ""),
				Revision: at.Revision, Epoch: at.Epoch,
			},
		},
		{
			plimsollv1connect.PolicyServiceGetPolicyProcedure,
			&pb.GetPolicyRequest{Kind: pb.PolicyKind(first.Kind), Name: first.Name},
			&pb.GetPolicyResponse{Policy: one, Revision: at.Revision, Epoch: at.Epoch},
		},
		{
			plimsollv1connect.PolicyServiceListPoliciesProcedure, &pb.ListPoliciesRequest{},
			&pb.ListPoliciesResponse{Policies: policies, Revision: at.Revision, Epoch: at.Epoch},
		},
	}
}

// An answer made of encoded records has the bytes of one whose records are decoded and encoded. So
// it is in both encodings, and in JSON the first time and from the cache.
func TestAnEncodedAnswerIsTheDecodedOneByteForByte(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t), 11))
	for range testrun.Count(5, 20, 2000) {
		f := newFake()
		f.put(randomRecords(r)...)
		g := newGateway(t, Config{}, f)
		for _, read := range slowReads(f.latest) {
			wantJSON, err := wire.AppendJSON(nil, read.resp)
			if err != nil {
				t.Fatal(err)
			}
			question, err := wire.AppendJSON(nil, read.req)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				kind       string
				body, want []byte
			}{
				{"application/proto", stably(read.req), stably(read.resp)},
				{"application/json", question, wantJSON},
				{"application/json; charset=utf-8", question, wantJSON}, // from the cache
			} {
				status, header, body := post(g, read.path, c.kind, c.body)
				if status != http.StatusOK || !bytes.Equal(body, c.want) {
					t.Fatalf("%s as %s: %d\n%q\nwant\n%q", read.path, c.kind, status, body, c.want)
				}
				if header.Get("Content-Type") != c.kind {
					t.Errorf("%s: the answer to %s is %s", read.path, c.kind, header.Get("Content-Type"))
				}
			}
		}
	}
}

func post(g *Gateway, path, kind string, body []byte) (int, http.Header, []byte) {
	url := "http://gateway" + path
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", kind)
	resp, err := direct{g.Handler()}.Do(r)
	if err != nil {
		panic(err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	return resp.StatusCode, resp.Header, answer
}

// Envelopes and compression belong to the protocol: each carries the same message.
func TestAnEncodedAnswerPassesThroughEveryProtocol(t *testing.T) {
	f := newFake()
	var want []*pb.Task
	for i := range int32(500) {
		task := plimsoll.Task{Job: "a", Group: "g", Index: i, Message: "long enough to be compressed"}
		want = append(want, wire.TaskToProto(&task))
		f.put(putTask(task))
	}
	s := serve(t, Config{}, f)
	client, url, err := transport.Client(s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	for name, options := range map[string][]connect.ClientOption{
		"connect":                  {},
		"connect, not compressed":  {connect.WithAcceptCompression("gzip", nil, nil)},
		"connect in JSON":          {connect.WithProtoJSON()},
		"gRPC":                     {connect.WithGRPC()},
		"gRPC, not compressed":     {connect.WithGRPC(), connect.WithAcceptCompression("gzip", nil, nil)},
		"gRPC in JSON":             {connect.WithGRPC(), connect.WithProtoJSON()},
		"gRPC-Web":                 {connect.WithGRPCWeb()},
		"gRPC-Web, not compressed": {connect.WithGRPCWeb(), connect.WithAcceptCompression("gzip", nil, nil)},
	} {
		jobs := plimsollv1connect.NewJobServiceClient(client, url, options...)
		resp, err := call(jobs.ListTasks, &pb.ListTasksRequest{})
		if err != nil || !proto.Equal(resp, &pb.ListTasksResponse{Tasks: want, Revision: 500, Epoch: 1}) {
			t.Errorf("%s: %d tasks at %d (%v)", name, len(resp.GetTasks()), resp.GetRevision(), err)
		}
	}
}

// The services leave out the methods that encodedReads mounts, so each method must be somewhere.
func TestEveryMethodOfUsersIsServed(t *testing.T) {
	g := newGateway(t, Config{}, cluster())
	for path, m := range g.methods {
		if m.streams {
			continue
		}
		status, _, body := post(g, path, "application/json", []byte("{}"))
		if bytes.Contains(body, []byte("is not implemented")) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// Malformed fields are found in each record although none is decoded.
func TestAMalformedRecordOfEachKindIsAnErrorThatNamesIt(t *testing.T) {
	policy := wire.PolicyKey(plimsoll.PolicyRef{Kind: plimsoll.PolicyKind(1), Name: "bad"})
	for path, m := range map[string]wire.Mutation{
		plimsollv1connect.JobServiceListJobsProcedure:         {Kind: wire.KindJobStatus, Key: "bad"},
		plimsollv1connect.JobServiceListTasksProcedure:        {Kind: wire.KindTask, Key: wire.TaskKey("bad", "g", 0)},
		plimsollv1connect.NodeServiceListNodesProcedure:       {Kind: wire.KindNode, Key: "bad"},
		plimsollv1connect.QueueServiceListQueuesProcedure:     {Kind: wire.KindQueueStatus, Key: "bad"},
		plimsollv1connect.QueueServiceGetQueueConfigProcedure: {Kind: wire.KindQueueConfig},
		plimsollv1connect.PolicyServiceListPoliciesProcedure:  {Kind: wire.KindPolicy, Key: policy},
	} {
		f := newFake()
		m.Value = []byte{0x0a, 0x7f}
		f.put(m)
		faults := 0
		g := newGateway(t, Config{Events: Events{Fault: func(string, error) { faults++ }}}, f)
		for _, kind := range []string{"application/proto", "application/json"} {
			body := []byte{}
			if kind == "application/json" {
				body = []byte("{}")
			}
			status, _, answer := post(g, path, kind, body)
			if status != http.StatusInternalServerError || !bytes.Contains(answer, []byte(`cannot be decoded`)) {
				t.Errorf("%s as %s: %d %s", path, kind, status, answer)
			}
		}
		if faults != 2 {
			t.Errorf("%s: the log was told %d times", path, faults)
		}
	}
}
