package wire

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

func TestTheEndOfAnAnswerIsWrittenAsProtojsonWritesIt(t *testing.T) {
	unknown := &pb.ListTasksResponse{Revision: 1}
	unknown.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 1})
	for _, m := range []proto.Message{
		&pb.ListTasksResponse{}, &pb.ListTasksResponse{Revision: 1<<64 - 1, Epoch: 2, AgeNanos: -3},
		&pb.ListJobsResponse{Revision: 7, AgeNanos: 1 << 62}, &pb.GetJobResponse{Epoch: 1},
		&pb.ListNodesResponse{Revision: 1}, &pb.ListQueuesResponse{AgeNanos: 5},
	} {
		got, simple := appendNumbers([]byte("before"), m)
		want, err := AppendJSON(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		if !simple || string(got) != "before"+string(want) {
			t.Errorf("%s, simple %v; want %s", got, simple, want)
		}
	}
	for _, m := range []proto.Message{
		&pb.ListTasksResponse{Next: "a.b.0"}, &pb.ListTasksResponse{Revision: 1, Tasks: []*pb.Task{{}}},
		&pb.GetJobResponse{Job: &pb.Job{}}, unknown,
	} {
		if got, simple := appendNumbers(nil, m); simple {
			t.Errorf("%v is no message of numbers alone, and was written as %s", m, got)
		}
	}
}

func TestAnAnswerInBuffersHasTheSameBytes(t *testing.T) {
	list, single := AnswerField{Number: 1, Name: "list", List: true}, AnswerField{Number: 200, Name: "one"}
	made := func(json bool, size int) *Answer {
		a := NewAnswer(json)
		for _, n := range []int{0, 1, 127, 128, 1<<14 - 1, 1 << 14, size} {
			a.Add(list, bytes.Repeat([]byte{'1'}, n))
		}
		a.AddNested(list, Encoded{Field: single, Data: []byte("2")}, Encoded{Field: list, Data: []byte("3")})
		a.AddNested(list)
		a.Add(single, []byte("4"))
		if err := a.Finish(&pb.ListTasksResponse{Revision: 5}, 6); err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, json := range []bool{false, true} {
		a := made(json, 100_000)
		size := a.Size()
		got := bytes.Join(a.AppendBuffers(nil), nil)
		want := made(json, 100_000).Append(nil)
		if !bytes.Equal(got, want) || len(want) != size {
			t.Errorf("JSON %v: %d bytes in buffers, %d in one piece, and the size is %d",
				json, len(got), len(want), size)
		}
		if !a.Gathered() {
			t.Errorf("JSON %v: %d bytes in large records are copied", json, size)
		}
		a.Release()
		a.Release() // a second call has no effect
	}
	small := NewAnswer(false)
	for range 10_000 {
		small.Add(list, []byte("0123456789"))
	}
	if small.Gathered() {
		t.Error("records of 10 bytes are given to the kernel one by one")
	}
}

// All answers from one state have the same body. The bytes behind it depend on the age alone.
func TestAnAnswerOfABodyHasTheBytesOfAnAnswerOfRecords(t *testing.T) {
	tasks := AnswerField{Number: 1, Name: "tasks", List: true}
	made := func(json bool, records []*pb.Task, rest proto.Message, age time.Duration) *Answer {
		a := NewAnswer(json)
		for _, record := range records {
			data, err := proto.Marshal(record)
			if json {
				data, err = AppendJSON(nil, record)
			}
			if err != nil {
				t.Fatal(err)
			}
			a.Add(tasks, data)
		}
		if err := a.Finish(rest, age); err != nil {
			t.Fatal(err)
		}
		return a
	}
	ages := []time.Duration{0, 1, 127, 128, time.Hour, math.MaxInt64}
	for _, json := range []bool{false, true} {
		for _, records := range [][]*pb.Task{nil, {{Job: "a"}}, {{Job: "a"}, {Job: "b", Index: 1}}} {
			for _, rest := range []*pb.ListTasksResponse{
				{}, {Revision: 1}, {Revision: 1, Epoch: 2}, {Next: "a"}, {Epoch: 3, JobUids: []string{"u"}, Total: 7},
			} {
				for _, first := range ages {
					body := made(json, records, rest, first).Body()
					for _, age := range ages {
						a := NewAnswer(json)
						a.Reuse(body, age)
						size, buffers := a.Size(), bytes.Join(a.AppendBuffers(nil), nil)
						got, want := a.Append(nil), made(json, records, rest, age).Append(nil)
						if !bytes.Equal(got, want) || !bytes.Equal(buffers, want) || size != len(want) {
							t.Fatalf("%q and %q of %d bytes, want %q", got, buffers, size, want)
						}
						answer := &pb.ListTasksResponse{}
						decode := proto.Unmarshal
						if json {
							decode = protojson.Unmarshal
						}
						if err := decode(got, answer); err != nil {
							t.Fatalf("%q: %v", got, err)
						}
						whole := proto.CloneOf(rest)
						whole.Tasks, whole.AgeNanos = records, int64(age)
						if !proto.Equal(answer, whole) {
							t.Fatalf("%q holds %v, want %v", got, answer, whole)
						}
					}
				}
			}
		}
	}
}

func TestARecordBeginsWithTheIDOfItsKey(t *testing.T) {
	record := func(id string) []byte { return append([]byte{10, byte(len(id))}, id+"rest"...) }
	long := strings.Repeat("x", 127)
	for _, c := range []struct {
		data []byte
		key  string
		want bool
	}{
		{record("job"), "job", true},
		{record("job"), "job\x00map\x00\x00", true},
		{record("job"), "jobs", false},
		{record("job"), "jo", false},
		{record("job"), "other", false},
		{record(long), long, true},
		{record(""), "", false},
		{[]byte{10, 3, 'j', 'o'}, "job", false},
		{[]byte{18, 3, 'j', 'o', 'b'}, "job", false},
		{append([]byte{10, 0x80, 1}, strings.Repeat("x", 128)...), strings.Repeat("x", 128), false},
		{nil, "job", false},
	} {
		if got := BeginsWithKey(c.data, c.key); got != c.want {
			t.Errorf("BeginsWithKey(%q, %q) = %v", c.data, c.key, got)
		}
	}
}
