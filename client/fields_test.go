package client

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
)

// messageFiller sets every field of a message except one: the field that it reaches after left
// others.
type messageFiller struct {
	n, left int
	skipped string // the field that was not set; empty: the message has fewer fields
}

func (f *messageFiller) fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		to := m
		if fd.Message() == nil || fd.IsMap() {
			if f.left--; f.left == -1 {
				f.skipped = string(fd.FullName())
				to = m.New() // the numbers behind it stay the same
			}
		}
		switch {
		case fd.IsMap():
			f.n++
			value := f.scalar(fd.MapValue())
			to.Mutable(fd).Map().Set(protoreflect.ValueOfString(fmt.Sprintf("s%d", f.n)).MapKey(), value)
		case fd.IsList() && fd.Message() != nil:
			f.fill(m.Mutable(fd).List().AppendMutable().Message())
		case fd.IsList():
			to.Mutable(fd).List().Append(f.scalar(fd))
		case fd.Message() != nil:
			f.fill(m.Mutable(fd).Message())
		default:
			to.Set(fd, f.scalar(fd))
		}
	}
}

func (f *messageFiller) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	f.n++
	switch fd.Kind() {
	case protoreflect.StringKind:
		if fd.Name() == "uid" {
			return protoreflect.ValueOfString(plimsoll.MakeUID(int64(f.n), 1).Text())
		}
		return protoreflect.ValueOfString(fmt.Sprintf("s%d", f.n))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{byte(f.n)})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(f.n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(f.n)<<32 + int64(f.n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(f.n)<<32 + uint64(f.n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(f.n) + 0.5)
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(f.n%(values.Len()-1) + 1).Number())
	}
	panic(fmt.Sprintf("%s is of a kind that is not filled: %s", fd.FullName(), fd.Kind()))
}

// readsAll compares the client's reading of an answer with the message: each field of the message
// makes a difference, and no field of the client's type stays zero.
func readsAll[M proto.Message, T any](read func(M) T, zero map[string]string) func(t *testing.T) {
	return func(t *testing.T) {
		filled := func(left int) (T, string) {
			var m M
			m = m.ProtoReflect().New().Interface().(M) // New makes a message of its own type
			f := messageFiller{left: left}
			f.fill(m.ProtoReflect())
			return read(m), f.skipped
		}
		whole, _ := filled(1 << 30)
		for _, field := range fill.Zero(&whole) {
			if zero[field] == "" {
				t.Errorf("%T: no field of the message is read into %s", whole, field)
			}
		}
		for n := 0; ; n++ {
			less, skipped := filled(n)
			if skipped == "" {
				return
			}
			if len(fill.Differences(&whole, &less)) == 0 {
				t.Errorf("%T: %s of the message is not read; add it to the type and to what reads it", whole, skipped)
			}
		}
	}
}

// TestEveryFieldOfAnAnswerIsRead sets every field of the answers that have types of the client's
// own.
func TestEveryFieldOfAnAnswerIsRead(t *testing.T) {
	t.Run("Explanation", readsAll(explanation, nil))
	t.Run("Trial", readsAll(trial, nil))
	t.Run("NodeRoom", readsAll(nodeRooms, nil))
	t.Run("MovePlan", readsAll(movePlan, nil))
	t.Run("TimelinePage", readsAll(timelinePage, nil))
	t.Run("Usage", readsAll(usage, nil))
	t.Run("HistoryJobPage", readsAll(historyJobPage, nil))
	t.Run("ClusterAt", readsAll(clusterAt, nil))
	t.Run("HistoryStatus", readsAll(historyStatus, nil))
	t.Run("RequestNews", readsAll(requestNewsFromProto, map[string]string{
		"LostUnknown": "the client compares the stores of two streams",
	}))
	t.Run("NodeQOS", readsAll(nodeQOS, map[string]string{
		"Tasks[].CPUKnown":    "the message says when it is unknown",
		"Tasks[].MemoryKnown": "the message says when it is unknown",
	}))
}

// A wait code of a newer server is read as no known code.
func TestACodeOfANewerServer(t *testing.T) {
	if code := explanation(&pb.ExplainTaskResponse{WaitCode: 256 + 1}).WaitCode; code != plimsoll.WaitNone {
		t.Errorf("the code is %v", code)
	}
}
