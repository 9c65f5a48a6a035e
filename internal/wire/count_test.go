package wire

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// allocated is how many bytes f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// put is a field of bytes with a content.
func put(number protowire.Number, content ...byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

func varint(number protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), v)
}

func repeat(n int, b []byte) []byte { return bytes.Repeat(b, n) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// dense are messages of few bytes that take much, as type and content; each of some 10,000
// elements.
func dense() map[string]struct {
	message proto.Message
	data    []byte
} {
	const n = 10_000
	type attack = struct {
		message proto.Message
		data    []byte
	}
	group := func(content []byte) []byte { return put(1, put(5, content...)...) }
	return map[string]attack{
		"empty groups":             {&pb.SubmitJobRequest{}, put(1, repeat(n, put(5))...)},
		"empty words of a command": {&pb.SubmitJobRequest{}, group(repeat(n, put(3)))},
		"short words":              {&pb.SubmitJobRequest{}, group(repeat(n, put(3, 'x')))},
		"entries of a map": {&pb.SubmitJobRequest{}, put(1, func() (all []byte) {
			for i := range n {
				all = append(all, put(4, join(put(1, fmt.Appendf(nil, "%d", i)...), put(2, 'x'))...)...)
			}
			return all
		}()...)},
		"the same entry of a map":  {&pb.SubmitJobRequest{}, put(1, repeat(n, put(4))...)},
		"groups of one entry each": {&pb.SubmitJobRequest{}, put(1, repeat(n, put(5, put(4)...))...)},
		"traits": {&pb.RegisterNodeRequest{}, put(1, put(10, func() (all []byte) {
			for i := range n {
				all = append(all, put(1, join(put(1, fmt.Appendf(nil, "%d", i)...), put(2))...)...)
			}
			return all
		}()...)...)},
		"selectors":                {&pb.SubmitJobRequest{}, group(put(13, repeat(n, put(5))...))},
		"reports":                  {&pb.ReportTasksRequest{}, repeat(n, put(4))},
		"nodes that are empty":     {&pb.RegisterNodeRequest{}, repeat(n, put(1))},
		"states, packed":           {&pb.ListTasksRequest{}, put(3, repeat(n, []byte{1})...)},
		"states, one by one":       {&pb.ListTasksRequest{}, repeat(n, varint(3, 1))},
		"unknown numbers":          {&pb.SubmitJobRequest{}, repeat(n, varint(99, 1))},
		"unknown texts":            {&pb.SubmitJobRequest{}, repeat(n, put(99))},
		"one text again and again": {&pb.GetJobRequest{}, repeat(n, put(1, 'x'))},
		"commands, one in all": {&pb.ReplicateRequest{}, repeat(n/2, join(
			put(3, put(2)...), put(3, put(3)...)))},
		"a tree of queues": {&pb.SetQueueConfigRequest{}, put(1, repeat(n, put(6))...)},
		"policies":         {&pb.ApplyPoliciesRequest{}, repeat(n, put(1))},
	}
}

// The footprint is at least what the decoder allocates, so that a bound on it is one on memory.
func TestFootprintIsAtLeastWhatDecodingAllocates(t *testing.T) {
	for name, attack := range dense() {
		footprint, err := Footprint(attack.data, attack.message, 1<<40)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		took := allocated(func() {
			if err := proto.Unmarshal(attack.data, attack.message); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		t.Logf("%s: %d bytes on the wire, footprint %d, allocated %d", name, len(attack.data), footprint, took)
		if took > footprint+16<<10 {
			t.Errorf("%s: decoding allocates %d bytes and the footprint is %d", name, took, footprint)
		}
	}
}

// The same messages as JSON.
func TestFootprintOfJSONIsAtLeastWhatDecodingAllocates(t *testing.T) {
	for name, attack := range dense() {
		if err := proto.Unmarshal(attack.data, attack.message); err != nil {
			t.Fatal(err)
		}
		data, err := protojson.Marshal(attack.message)
		if err != nil {
			t.Fatal(err)
		}
		checkJSON(t, name, data, attack.message)
	}
	for name, data := range map[string]string{
		"unknown objects": `{"x":[` + strings.Repeat(`{},`, 10_000) + `{}]}`,
		"unknown lists":   `{"x":[` + strings.Repeat(`[],`, 10_000) + `[]]}`,
		"unknown numbers": `{"x":[` + strings.Repeat(`1,`, 10_000) + `1]}`,
		"unknown names":   `{` + strings.Repeat(`"x":1,`, 10_000) + `"y":1}`,
		"escapes":         `{"x":"` + strings.Repeat(`\u0041`, 10_000) + `"}`,
	} {
		checkJSON(t, name, []byte(data), &pb.SubmitJobRequest{})
	}
}

func checkJSON(t *testing.T, name string, data []byte, m proto.Message) {
	t.Helper()
	footprint, err := FootprintJSON(data, m, 1<<40)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	into := m.ProtoReflect().New().Interface()
	took := allocated(func() { err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, into) })
	if err != nil {
		t.Logf("%s: %v", name, err)
	}
	t.Logf("%s: %d bytes of JSON, footprint %d, allocated %d", name, len(data), footprint, took)
	if took > footprint+32<<10 {
		t.Errorf("%s: decoding allocates %d bytes and the footprint is %d", name, took, footprint)
	}
}

// A message that passes as JSON is then sent on in binary form, and must pass there too.
func TestFootprintOfJSONIsAtLeastThatOfTheSameInBinary(t *testing.T) {
	check := func(name string, m proto.Message) {
		text, err := protojson.MarshalOptions{}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		ofText, _ := FootprintJSON(text, m, 1<<40) // there is no bound
		ofBinary, _ := Footprint(data, m, 1<<40)   // the same
		if ofText+1024 < ofBinary {
			t.Errorf("%s: the footprint is %d as JSON and %d in binary form", name, ofText, ofBinary)
		}
	}
	for name, attack := range dense() {
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(attack.data, attack.message); err != nil {
			t.Fatal(err)
		}
		check(name, attack.message)
	}
	testrun.Check(t, func(t *rapid.T) {
		spec := drawJobSpec(t)
		check("a job", JobSpecToProto(&spec))
	})
}

// 8 KB of gzip with 4.19 M empty groups took 5.7 GB.
func TestFootprintOfManyEmptyGroupsIsRefusedWithoutAllocating(t *testing.T) {
	data := put(1, repeat(4_190_000, put(5))...)
	var err error
	if took := allocated(func() { _, err = Footprint(data, &pb.SubmitJobRequest{}, maxDecoded) }); took > 64<<10 {
		t.Errorf("the refusal allocates %d bytes", took)
	}
	wantTooMuch(t, err)
}

func TestFootprintOfMuchJSONIsRefusedWithoutAllocating(t *testing.T) {
	data := []byte(`{"spec":{"groups":[` + strings.Repeat(`{},`, (8<<20)/3) + `{}]}}`)
	var err error
	if took := allocated(func() { _, err = FootprintJSON(data, &pb.SubmitJobRequest{}, maxDecoded) }); took > 64<<10 {
		t.Errorf("the refusal allocates %d bytes", took)
	}
	wantTooMuch(t, err)
}

func wantTooMuch(t *testing.T, err error) {
	t.Helper()
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), "41943040 bytes decoded") {
		t.Errorf("the refusal is %v; want one that names the bound", err)
	}
}

func TestMessagesNestedTooDeepAreRefused(t *testing.T) {
	queue := func(depth int) []byte {
		var data []byte
		for range depth {
			data = put(6, data...)
		}
		return put(1, data...)
	}
	if _, err := Footprint(queue(plimsoll.MaxQueueDepth), &pb.SetQueueConfigRequest{}, maxDecoded); err != nil {
		t.Errorf("a tree as deep as it may be: %v", err)
	}
	if _, err := Footprint(
		queue(1000), &pb.SetQueueConfigRequest{}, maxDecoded,
	); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("a tree of 1000: %v", err)
	}
	for _, text := range []string{`{"config":`, `[`} {
		if _, err := FootprintJSON(
			[]byte(strings.Repeat(text, 1000)), &pb.SetQueueConfigRequest{}, maxDecoded,
		); err == nil {
			t.Errorf("1000 times %s: no error", text)
		}
	}
}

// Malformed bytes are left to the decoder, whose error says where they are wrong.
func TestFootprintLeavesNonsenseToTheDecoder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 200)
	for range 2000 {
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		cut := data[:rng.IntN(len(data))]
		if _, err := Footprint(cut, &pb.SubmitJobRequest{}, maxDecoded); err != nil {
			t.Fatalf("%x: %v", cut, err)
		}
		if _, err := FootprintJSON(cut, &pb.SubmitJobRequest{}, maxDecoded); err != nil {
			t.Fatalf("%x: %v", cut, err)
		}
	}
}

// Every message that the schema has can be counted.
func TestEveryMessageHasALayout(t *testing.T) {
	var check func(messages protoreflect.MessageDescriptors)
	check = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			d := messages.Get(i)
			if l := layoutOf(d); l.size == 0 && !d.IsMapEntry() {
				t.Errorf("%s has no size", d.FullName())
			}
			check(d.Messages())
		}
	}
	check(pb.File_plimsoll_v1_replication_proto.Messages())
	check(pb.File_plimsoll_v1_api_proto.Messages())
	check(pb.File_plimsoll_v1_agent_proto.Messages())
	check(pb.File_plimsoll_v1_placement_proto.Messages())
}

func FuzzFootprint(f *testing.F) {
	for _, attack := range dense() {
		f.Add(attack.data[:min(len(attack.data), 200)])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		for _, m := range []proto.Message{&pb.SubmitJobRequest{}, &pb.ReplicateRequest{}, &pb.ApplyPoliciesRequest{}} {
			footprint, err := Footprint(data, m, 1<<40)
			if err != nil {
				continue // nested too deep
			}
			if proto.Unmarshal(
				data, m,
			) == nil && proto.Size(m) > footprint+proto.Size(m)/2+64 && len(data) > footprint*2 {
				t.Errorf("%x: the footprint is %d", data, footprint)
			}
			if _, err := FootprintJSON(data, m, 1<<20); err == nil {
				// it must not panic
				_ = protojson.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: 2 * maxDepth}.Unmarshal(data, m)
			}
		}
	})
}

func zip(t testing.TB, data []byte) []byte {
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

// BenchmarkFootprint measures the cost that counting adds to the decoding of a submit and of a
// report.
func BenchmarkFootprint(b *testing.B) {
	spec := JobSpecToProto(&plimsoll.JobSpec{
		ID: "wordcount", Owner: "ada", Queue: "root.default",
		Groups: []plimsoll.GroupSpec{
			{
				Name: "map", Count: 3, Command: []string{"sleep", "1"},
				Resources: plimsoll.Resources{"cpu": 500, "memory": 64 << 20},
			},
		},
	})
	for name, m := range map[string]proto.Message{
		"submit":    &pb.SubmitJobRequest{Spec: spec},
		"heartbeat": &pb.HeartbeatRequest{Node: "node-1", Incarnation: 1 << 50},
		"report": &pb.ReportTasksRequest{
			Node: "node-1", Incarnation: 1 << 50,
			Reports: []*pb.TaskReport{{Task: "wordcount.map.0", Attempt: 1, State: 4, At: 1 << 60}},
		},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/count", func(b *testing.B) {
			for b.Loop() {
				if _, err := Footprint(data, m, maxDecoded); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/decode", func(b *testing.B) {
			for b.Loop() {
				if err := proto.Unmarshal(data, m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
