package wire

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// An appended value is decoded as an equal value, through the message and through the bytes. The
// bytes are those of the generated code, which are always the same.
func roundTrip[X any, M proto.Message](draw func(*rapid.T) X, appendX func(
	[]byte, *X,
) []byte, decode func([]byte) (X, error),
	to func(*X) M, from func(M) X,
) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		testrun.Check(t, func(t *rapid.T) {
			x := draw(t)
			if diff := cmp.Diff(x, from(to(&x))); diff != "" {
				t.Fatalf("through the message: %s", diff)
			}
			data := appendX([]byte("before"), &x)
			want, err := proto.MarshalOptions{Deterministic: true}.Marshal(to(&x))
			if err != nil {
				t.Fatal(err)
			}
			if string(data) != "before"+string(want) {
				t.Fatalf("bytes differ from those of the generated code:\n%x\n%x", data[6:], want)
			}
			got, err := decode(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(x, got); diff != "" {
				t.Fatalf("through the bytes: %s", diff)
			}
		})
		arbitrary(t, func(data []byte) {
			x, err := decode(data)
			if err == nil {
				again, err := decode(appendX(nil, &x))
				if err != nil || !reflect.DeepEqual(x, again) {
					t.Fatalf("%x was decoded, but did not survive another round: %v", data, err)
				}
			} else if plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
				t.Fatalf("%x gave the error %v", data, err)
			}
		})
	}
}

func arbitrary(t *testing.T, check func([]byte)) {
	testrun.Check(t, func(t *rapid.T) { check(rapid.SliceOf(rapid.Byte()).Draw(t, "data")) })
}

func TestRoundTrip(t *testing.T) {
	t.Run("JobSpec", roundTrip(drawJobSpec, AppendJobSpec, DecodeJobSpec, JobSpecToProto, JobSpecFromProto))
	t.Run("JobStatus", roundTrip(drawJobStatus, AppendJobStatus, DecodeJobStatus, JobStatusToProto, JobStatusFromProto))
	t.Run("Task", roundTrip(drawTask, AppendTask, DecodeTask, TaskToProto, TaskFromProto))
	t.Run("Node", roundTrip(drawNode, AppendNode, DecodeNode, NodeToProto, NodeFromProto))
	t.Run(
		"NodeStatus",
		roundTrip(drawNodeStatus, AppendNodeStatus, DecodeNodeStatus, NodeStatusToProto, NodeStatusFromProto),
	)
	t.Run(
		"QueueConfig",
		roundTrip(drawQueueConfig, AppendQueueConfig, DecodeQueueConfig, QueueConfigToProto, QueueConfigFromProto),
	)
	t.Run(
		"QueueStatus",
		roundTrip(drawQueueStatus, AppendQueueStatus, DecodeQueueStatus, QueueStatusToProto, QueueStatusFromProto),
	)
	t.Run("Policy", roundTrip(drawPolicy, AppendPolicy, DecodePolicy, PolicyToProto, PolicyFromProto))
	t.Run("Batch", roundTrip(drawBatch, AppendBatch, DecodeBatch, batchToProto, batchFromProto))
	t.Run("Mutation", roundTrip(drawMutation, AppendMutation, DecodeMutation, mutationToProto, mutationFromProto))
}

func TestRoundTripThroughMessage(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		g, r, e, n := drawGroupSpec(t), drawTaskReport(t), drawEvent(t), drawNodeReport(t)
		j := plimsoll.Job{Spec: drawJobSpec(t), Status: drawJobStatus(t)}
		if diff := cmp.Diff(g, GroupSpecFromProto(GroupSpecToProto(&g))); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(r, TaskReportFromProto(TaskReportToProto(&r))); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(e, EventFromProto(EventToProto(&e))); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(n, NodeReportFromProto(NodeReportToProto(&n))); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(j, JobFromProto(JobToProto(&j))); diff != "" {
			t.Fatal(diff)
		}
	})
}

// The generated code's view of a batch, for comparison only.
func batchToProto(b *Batch) *pb.Batch {
	m := &pb.Batch{Epoch: b.Epoch, Revision: b.Revision, Time: b.Time}
	for i := range b.Mutations {
		m.Mutations = append(m.Mutations, mutationToProto(&b.Mutations[i]))
	}
	if b.Events.FirstID != 0 || b.Events.Count != 0 || b.Events.Data != nil {
		m.Events = &pb.EventChunk{FirstId: b.Events.FirstID, Count: b.Events.Count, Data: b.Events.Data}
	}
	return m
}

func batchFromProto(m *pb.Batch) Batch {
	b := Batch{Epoch: m.GetEpoch(), Revision: m.GetRevision(), Time: m.GetTime()}
	for _, mutation := range m.GetMutations() {
		b.Mutations = append(b.Mutations, mutationFromProto(mutation))
	}
	b.Events = EventChunk{
		FirstID: m.GetEvents().GetFirstId(), Count: m.GetEvents().GetCount(), Data: m.GetEvents().GetData(),
	}
	return b
}

func mutationToProto(m *Mutation) *pb.Mutation {
	return &pb.Mutation{
		Kind: pb.Kind(m.Kind), Key: m.Key, Value: m.Value, Deleted: m.Value == nil, Ephemeral: m.Ephemeral,
		Node: m.Node,
	}
}

func mutationFromProto(m *pb.Mutation) Mutation {
	out := Mutation{Kind: Kind(m.GetKind()), Key: m.GetKey(), Ephemeral: m.GetEphemeral(), Node: m.GetNode()}
	if !m.GetDeleted() {
		out.Value = append([]byte{}, m.GetValue()...)
	}
	return out
}

// A nil map of resources stays nil and an empty one stays empty, because a maximum that is missing
// is no limit.
func TestNilAndEmptyResources(t *testing.T) {
	for _, r := range []plimsoll.Resources{nil, {}, {"cpu": 0}} {
		got, err := DecodeNodeStatus(AppendNodeStatus(nil, &plimsoll.NodeStatus{Allocated: r}))
		if err != nil || !reflect.DeepEqual(got.Allocated, r) {
			t.Errorf("%#v became %#v, %v", r, got.Allocated, err)
		}
	}
}

// Text of a task that is not UTF-8 does not make its record unreadable.
func TestTextThatIsNotUTF8(t *testing.T) {
	task := plimsoll.Task{Job: "j", Group: "g", Message: "exit: \xff\xfe!"}
	got, err := DecodeTask(AppendTask(nil, &task))
	if err != nil || got.Message != "exit: \uFFFD!" {
		t.Errorf("message became %q, %v", got.Message, err)
	}
	status := plimsoll.JobStatus{
		ID: "a\x80", Groups: []plimsoll.GroupStatus{{Name: "b", Wait: plimsoll.WaitCause{Queue: "\x80"}}},
	}
	gotStatus, err := DecodeJobStatus(AppendJobStatus(nil, &status))
	if err != nil || gotStatus.ID != "a\uFFFD" || gotStatus.Groups[0].Wait.Queue != "\uFFFD" {
		t.Errorf("status became %+v, %v", gotStatus, err)
	}
	spec := plimsoll.JobSpec{
		Labels: map[string]string{"\x80": "\x81"}, Groups: []plimsoll.GroupSpec{{Command: []string{"\x82"}}},
	}
	if _, err := DecodeJobSpec(AppendJobSpec(nil, &spec)); err != nil {
		t.Error(err)
	}
}

// Decode refuses what is no such message.
func TestDecodeRefuses(t *testing.T) {
	task := func(m *pb.Task) []byte { return marshal(t, m) }
	for _, test := range []struct {
		name   string
		decode func([]byte) error
		data   []byte
	}{
		{"a cut-off field", decodes(DecodeTask), []byte{0x0a, 5, 'a'}},
		{"a cut-off tag", decodes(DecodeTask), []byte{0x80}},
		{"a varint of eleven bytes", decodes(DecodeTask), bytes.Repeat([]byte{0x88}, 12)},
		{"field number zero", decodes(DecodeTask), []byte{0, 0}},
		{"the end of a group that never began", decodes(DecodeTask), []byte{0x0c}},
		{"text that is not UTF-8", decodes(DecodeTask), []byte{0x0a, 1, 0xff}},
		{"an unknown task state", decodes(DecodeTask), task(&pb.Task{State: 7})},
		{"a negative task state", decodes(DecodeTask), task(&pb.Task{State: -1})},
		{"an unknown result", decodes(DecodeTask), task(&pb.Task{Result: 300})},
		{"an unknown job state", decodes(DecodeJobStatus), marshal(t, &pb.JobStatus{State: 12})},
		{
			"an unknown wait code", decodes(DecodeJobStatus),
			marshal(t, &pb.JobStatus{Groups: []*pb.GroupStatus{{WaitCode: 77}}}),
		},
		{"a broken group", decodes(DecodeJobStatus), []byte{10<<3 | 2, 1, 0xff}},
		{"broken counts", decodes(DecodeJobStatus), []byte{10<<3 | 2, 3, 3<<3 | 2, 1, 0xff}},
		{
			"an unknown retry kind", decodes(DecodeJobSpec),
			marshal(t, &pb.JobSpec{Groups: []*pb.GroupSpec{{Retry: &pb.RetryPolicy{Kind: 9}}}}),
		},
		{"an unknown use of reservoir nodes", decodes(DecodeJobSpec), marshal(t, &pb.JobSpec{Groups: []*pb.GroupSpec{{
			Constraints: &pb.Constraints{Reservoir: 3},
		}}})},
		{"an unknown strategy", decodes(DecodeJobSpec), marshal(t, &pb.JobSpec{Groups: []*pb.GroupSpec{{
			Preferences: &pb.Preferences{Strategy: -1},
		}}})},
		{"a class that is no number", decodes(DecodeJobSpec), marshal(t, &pb.JobSpec{Groups: []*pb.GroupSpec{{
			Constraints: &pb.Constraints{Class: map[string]float64{"cpu": math.NaN()}},
		}}})},
		{
			"an endless reserve", decodes(DecodeNode),
			marshal(t, &pb.Node{Facts: &pb.NodeFacts{Reserve: map[string]float64{"cpu": math.Inf(1)}}}),
		},
		{"an unknown class", decodes(DecodeJobSpec), marshal(t, &pb.JobSpec{Groups: []*pb.GroupSpec{{Class: 4}}})},
		{"an unknown scope", decodes(DecodePolicy), marshal(t, &pb.Policy{Kind: &pb.Policy_TaskQos{TaskQos: &pb.TaskQOS{
			Match: []*pb.PolicyRequirement{{Scope: 5}},
		}}})},
		{"a broken policy", decodes(DecodePolicy), []byte{0xff}},
		{"an unknown node mode", decodes(DecodeNode), marshal(t, &pb.Node{Mode: 4})},
		{"a broken queue", decodes(DecodeQueueConfig), []byte{0xff}},
		{"a mutation of no kind", decodes(DecodeBatch), marshal(t, &pb.Batch{Mutations: []*pb.Mutation{{Key: "a"}}})},
		{
			"a mutation of an unknown kind", decodes(DecodeBatch),
			marshal(t, &pb.Batch{Mutations: []*pb.Mutation{{Kind: NumKinds}}}),
		},
		{"a kind beyond a byte", decodes(DecodeBatch), marshal(t, &pb.Batch{Mutations: []*pb.Mutation{{Kind: 257}}})},
		{
			"a delete with a value", decodes(DecodeMutation),
			marshal(t, &pb.Mutation{Kind: 1, Deleted: true, Value: []byte("a")}),
		},
		{"a key that is not UTF-8", decodes(DecodeMutation), []byte{8, 1, 2<<3 | 2, 1, 0xff}},
		{"broken events", decodes(DecodeBatch), []byte{5<<3 | 2, 1, 0xff}},
	} {
		var e *plimsoll.Error
		if err := test.decode(test.data); !errors.As(err, &e) || e.Code != plimsoll.CodeCorrupt {
			t.Errorf("%s gave %v", test.name, err)
		}
	}
}

func decodes[X any](decode func([]byte) (X, error)) func([]byte) error {
	return func(data []byte) error { _, err := decode(data); return err }
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FromProto cannot fail; what it does not know becomes zero, which validation refuses.
func TestUnknownNumbersInMessages(t *testing.T) {
	if task := TaskFromProto(&pb.Task{State: 99, Result: -5}); task.State != 0 || task.Result != 0 {
		t.Errorf("got %+v", task)
	}
	if r := TaskReportFromProto(&pb.TaskReport{State: 256 + 4}); r.State != 0 {
		t.Errorf("got %+v", r)
	}
	if e := EventFromProto(
		&pb.Event{Type: 256, Change: -1, Detail: 65536},
	); e.Type != 0 || e.Change != 0 || e.Detail != 0 {
		t.Errorf("got %+v", e)
	}
}

// A nil message is an empty one: a peer may leave it out.
func TestNilMessages(t *testing.T) {
	if got := JobSpecFromProto(nil); !reflect.DeepEqual(got, plimsoll.JobSpec{}) {
		t.Errorf("got %+v", got)
	}
	if got := NodeFromProto(nil); !reflect.DeepEqual(got, plimsoll.Node{}) {
		t.Errorf("got %+v", got)
	}
	if got := JobFromProto(nil); !reflect.DeepEqual(got, plimsoll.Job{}) {
		t.Errorf("got %+v", got)
	}
}

// The kinds of record are those of the contract.
func TestKindsAgree(t *testing.T) {
	for number, name := range pb.Kind_name {
		if number >= NumKinds {
			t.Errorf("the package has %d kinds of record, and the contract has %s = %d", NumKinds, name, number)
		}
	}
	if pb.Kind_name[NumKinds-1] == "" {
		t.Errorf("the contract lacks the last kind of record, %d", NumKinds-1)
	}
}

// The keys and nodes of a batch do not keep the buffer that it was decoded from: only values and
// events do.
func TestDecodeBatchAliases(t *testing.T) {
	data := AppendBatch(nil, &Batch{
		Mutations: []Mutation{{Kind: KindTask, Key: "key", Value: []byte("value"), Node: "node"}},
		Events:    EventChunk{Count: 1, Data: []byte("events")},
	})
	b, err := DecodeBatch(data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	if m := b.Mutations[0]; m.Key != "key" || m.Node != "node" || m.Value[0] != 0 || b.Events.Data[0] != 0 {
		t.Errorf("got %+v", b)
	}
}
