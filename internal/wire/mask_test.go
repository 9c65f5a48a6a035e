package wire_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func statusFields() protoreflect.MessageDescriptor {
	return (&pb.JobStatus{}).ProtoReflect().Descriptor()
}

// wholeStatus is the status of a job with two groups.
func wholeStatus() *pb.JobStatus {
	return &pb.JobStatus{
		Id: "j", Uid: "u", Owner: "alice", Queue: "root.a", State: pb.JobState_JOB_STATE_RUNNING, Submitted: 5,
		Groups: []*pb.GroupStatus{
			{Name: "map", Count: 3, Counts: &pb.TaskCounts{Pending: 1, Running: 2}, WaitQueue: "root"},
			{Name: "reduce", Count: 1, Counts: &pb.TaskCounts{Pending: 1}},
		},
		Revision: 9,
	}
}

func TestMaskKeepsTheNamedFieldsAndTheIdentity(t *testing.T) {
	for _, c := range []struct {
		paths []string
		want  *pb.JobStatus
	}{
		{[]string{"state"}, &pb.JobStatus{Id: "j", Uid: "u", State: pb.JobState_JOB_STATE_RUNNING}},
		{[]string{"revision", "owner"}, &pb.JobStatus{Id: "j", Uid: "u", Owner: "alice", Revision: 9}},
		{[]string{"groups.counts"}, &pb.JobStatus{Id: "j", Uid: "u", Groups: []*pb.GroupStatus{
			{Name: "map", Counts: &pb.TaskCounts{Pending: 1, Running: 2}},
			{Name: "reduce", Counts: &pb.TaskCounts{Pending: 1}},
		}}},
		{[]string{"groups.counts.running", "groups.waitQueue"}, &pb.JobStatus{
			Id: "j", Uid: "u",
			Groups: []*pb.GroupStatus{
				{Name: "map", Counts: &pb.TaskCounts{Running: 2}, WaitQueue: "root"},
				{Name: "reduce", Counts: &pb.TaskCounts{}},
			},
		}},
		{[]string{"groups.wait_queue", "groups"}, &pb.JobStatus{Id: "j", Uid: "u", Groups: wholeStatus().Groups}},
		{[]string{"groups", "groups.count"}, &pb.JobStatus{Id: "j", Uid: "u", Groups: wholeStatus().Groups}},
		{[]string{"id"}, &pb.JobStatus{Id: "j", Uid: "u"}},
	} {
		t.Run(strings.Join(c.paths, ","), func(t *testing.T) {
			mask, err := wire.CompileMask(statusFields(), c.paths)
			if err != nil {
				t.Fatal(err)
			}
			record, err := proto.Marshal(wholeStatus())
			if err != nil {
				t.Fatal(err)
			}
			short, err := mask.Append([]byte("before"), record)
			if err != nil {
				t.Fatal(err)
			}
			got := &pb.JobStatus{}
			if err := proto.Unmarshal(bytes.TrimPrefix(short, []byte("before")), got); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got, c.want) {
				t.Errorf("got %v\nwant %v", got, c.want)
			}
		})
	}
}

func TestMaskOfNoPathsWantsEverything(t *testing.T) {
	mask, err := wire.CompileMask(statusFields(), nil)
	if mask != nil || err != nil {
		t.Errorf("got %v, %v; want nil: today's path is taken", mask, err)
	}
	if inner, wanted := mask.Inner(3); inner != nil || !wanted {
		t.Errorf("a nil mask leaves out a field")
	}
}

func TestMaskRefusesWhatIsNoField(t *testing.T) {
	many := slices.Repeat([]string{"state"}, 100_000)
	for _, c := range []struct {
		name  string
		paths []string
		field string
		want  string
	}{
		{
			"unknown",
			[]string{"state", "stat"},
			"fields[1]",
			`"stat": JobStatus has no field "stat"; did you mean "state"?`,
		},
		{"far", []string{"xxxxxxxxxxxx"}, "fields[0]", "there are id, owner"},
		{"below", []string{"groups.nme"}, "fields[0]", `did you mean "name"?`},
		{"scalar", []string{"state.x"}, "fields[0]", "has no fields below state"},
		{"empty", []string{""}, "fields[0]", "has no field"},
		{"dots", []string{".."}, "fields[0]", "has no field"},
		{"long", []string{strings.Repeat("x.", 1000)}, "fields[0]", "is 2000 bytes long; at most 256 are possible"},
		{"many", many, "fields", "there are 100000; give at most 100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := wire.CompileMask(statusFields(), c.paths)
			e, _ := err.(*plimsoll.Error) //nolint:errorlint // it is the error itself
			if e == nil || e.Code != plimsoll.CodeInvalid || e.Field != c.field || !strings.Contains(e.Msg, c.want) {
				t.Errorf("got %v; want the field %s and %q", err, c.field, c.want)
			}
		})
	}
}

func TestMaskDoesNotLookIntoMaps(t *testing.T) {
	spec := (&pb.JobSpec{}).ProtoReflect().Descriptor()
	if _, err := wire.CompileMask(spec, []string{"labels.team"}); err == nil {
		t.Error("a path into a map was taken")
	}
	mask, err := wire.CompileMask(spec, []string{"labels"})
	if err != nil {
		t.Fatal(err)
	}
	record, err := proto.Marshal(&pb.JobSpec{Id: "j", Labels: map[string]string{"a": "1", "b": "2"}, Queue: "root"})
	if err != nil {
		t.Fatal(err)
	}
	short, err := mask.Append(nil, record)
	got := &pb.JobSpec{}
	if err != nil || proto.Unmarshal(short, got) != nil || len(got.Labels) != 2 || got.Queue != "" || got.Id != "j" {
		t.Errorf("got %v, %v", got, err)
	}
}

// FuzzMask applies masks to any bytes. A mask keeps the fields that a decoder would keep.
func FuzzMask(f *testing.F) {
	whole, err := proto.Marshal(wholeStatus())
	if err != nil {
		f.Fatal(err)
	}
	f.Add("state", whole)
	f.Add("groups.counts.running groups.name", whole)
	f.Add("groups..counts", []byte{0x52, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add("history.reason deleted", []byte{0x52, 2, 8, 1, 0x52, 0})
	f.Fuzz(func(t *testing.T, paths string, record []byte) {
		mask, err := wire.CompileMask(statusFields(), strings.Fields(paths))
		if err != nil || mask == nil {
			return
		}
		short, err := mask.Append(nil, record)
		if err != nil {
			return
		}
		if len(short) > 10*len(record)+64 {
			t.Errorf("%d bytes became %d", len(record), len(short))
		}
		full, kept := &pb.JobStatus{}, &pb.JobStatus{}
		if proto.Unmarshal(record, full) != nil {
			return // a nested message that the mask does not look into may be malformed
		}
		if err := proto.Unmarshal(short, kept); err != nil {
			t.Fatalf("the masked record cannot be decoded: %v", err)
		}
		if kept.GetId() != full.GetId() || kept.GetUid() != full.GetUid() {
			t.Errorf("the identity was lost: %v of %v", kept, full)
		}
		again, err := mask.Append(nil, short)
		if err != nil || !bytes.Equal(again, short) {
			t.Errorf("a mask that is applied twice changes more: %x, %x, %v", short, again, err)
		}
	})
}

func ExampleMask() {
	mask, _ := wire.CompileMask(statusFields(), []string{"state", "groups.count"})
	record, _ := proto.Marshal(wholeStatus())
	short, _ := mask.Append(nil, record)
	status := &pb.JobStatus{}
	_ = proto.Unmarshal(short, status)
	fmt.Println(status.GetId(), status.GetState(), status.GetGroups()[0].GetCount(), status.GetOwner() == "")
	// Output: j JOB_STATE_RUNNING 3 true
}
