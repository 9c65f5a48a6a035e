package size_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/size"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// filler sets every field of a value, or leaves fields out with a chance of one in empty+1.
type filler struct {
	rng   *rand.Rand
	empty int // one field in empty+1 is left unchanged; 0: none
	texts int
}

const textBytes = 300 // as long as anything that is not bounded otherwise may be, with a length of two bytes

func (f *filler) text() string {
	f.texts++
	if f.empty > 0 && f.rng.IntN(8) == 0 {
		return strings.Repeat("a\xff", f.rng.IntN(20)) + strconv.Itoa(f.texts)
	}
	n := textBytes
	if f.empty > 0 {
		n = f.rng.IntN(textBytes)
	}
	return fmt.Sprintf("%0*d", n, f.texts)
}

// fill sets every field of v, and lists and maps up to a depth.
func (f *filler) fill(v reflect.Value, depth int) {
	if f.empty > 0 && f.rng.IntN(f.empty+1) == 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.text())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(f.number())
	case reflect.Uint8, reflect.Uint16, reflect.Uint64:
		v.SetUint(uint64(f.number()) & (math.MaxUint64 >> (64 - v.Type().Bits())))
	case reflect.Float64:
		v.SetFloat(math.Copysign(0, -1))
	case reflect.Pointer:
		if depth == 0 {
			return // a placement rule points to another
		}
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth-1)
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(255)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), depth)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		for i := 0; i < 3 && depth > 0; i++ {
			e := reflect.New(v.Type().Elem()).Elem()
			f.fill(e, depth-1)
			v.Set(reflect.Append(v, e))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 3 {
			key, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, depth-1)
			f.fill(e, depth-1)
			v.SetMapIndex(key, e)
		}
	default:
		panic("the test cannot fill a " + v.Kind().String())
	}
}

// number usually returns the number with the longest encoding.
func (f *filler) number() int64 {
	if f.empty > 0 {
		return int64(f.rng.Uint64() >> f.rng.IntN(64))
	}
	return -1
}

func filled[T any](f *filler) *T {
	v := new(T)
	f.fill(reflect.ValueOf(v).Elem(), 4)
	return v
}

// records draws one of each kind of record that Of bounds, with its encoding.
func records(f *filler) map[string]struct{ bound, bytes int } {
	out := map[string]struct{ bound, bytes int }{}
	add := func(name string, v any, bytes []byte) {
		out[name] = struct{ bound, bytes int }{size.Of(v), len(bytes)}
	}
	spec, node, queues := filled[plimsoll.JobSpec](f), filled[plimsoll.Node](f), filled[plimsoll.QueueConfig](f)
	add("JobSpec", spec, wire.AppendJobSpec(nil, spec))
	add("Node", node, wire.AppendNode(nil, node))
	add("QueueConfig", queues, wire.AppendQueueConfig(nil, queues))
	for name, p := range map[string]*plimsoll.Policy{
		"Action": {Action: filled[plimsoll.Action](f)}, "TaskQOS": {TaskQOS: filled[plimsoll.TaskQOS](f)},
		"NodeQOS": {NodeQOS: filled[plimsoll.NodeQOS](f)},
	} {
		p.Revision = math.MaxUint64
		add(name, p, wire.AppendPolicy(nil, p))
	}
	report := filled[plimsoll.NodeReport](f)
	out["NodeReport"] = struct{ bound, bytes int }{size.Of(report), proto.Size(wire.NodeReportToProto(report))}
	return out
}

// With every field of a record filled, the bound holds and is at most a fifth too large. Fields
// added to the vocabulary are filled too.
func TestBoundHoldsWhenEveryFieldIsFilled(t *testing.T) {
	for name, r := range records(&filler{}) {
		if r.bound < r.bytes || r.bound > r.bytes+r.bytes/5 {
			t.Errorf("%s: %d bytes are bounded by %d", name, r.bytes, r.bound)
		}
		if r.bytes < 100 {
			t.Errorf("%s: %d bytes: the test tests nothing", name, r.bytes)
		}
	}
}

// The bound holds for all combinations and values of fields. For large records it is at most a
// fifth too large.
func TestBoundHoldsForRandomRecords(t *testing.T) {
	f := &filler{rng: rand.New(rand.NewPCG(testrun.Seed(t), 1))}
	for i := range 200 {
		f.empty = 1 + i%8
		for name, r := range records(f) {
			if r.bound < r.bytes || r.bytes > 10_000 && r.bound > r.bytes+r.bytes/5 {
				t.Fatalf("%s: %d bytes are bounded by %d", name, r.bytes, r.bound)
			}
		}
	}
}

// near fails if a bound does not hold, or if it is so large that a forgotten field would not show.
func near(t *testing.T, what string, bound, bytes int) {
	t.Helper()
	if bound < bytes || bound > bytes+textBytes/4 {
		t.Errorf(
			"%s: %d bytes are bounded by %d: is there a field that size.%s is not given, or that has gone?", what,
			bytes, bound, what,
		)
	}
}

// The records that change in every turn are bounded by their texts alone. A new number in one of
// them is counted; a new text, list or map makes this test fail.
func TestBoundsOfRecordsThatChangeOftenCountEveryField(t *testing.T) {
	f := &filler{}
	task := filled[plimsoll.Task](f)
	task.Index = plimsoll.MaxTasksPerJob - 1
	key := len(wire.TaskKey(task.Job, task.Group, task.Index))
	earlier, attempts := task.Earlier, task.Attempts
	task.Earlier, task.Attempts = nil, nil
	record := len(wire.AppendTask(nil, task))
	near(t, "Task", size.Task(task.Job, task.Group, task.Node, task.Message), record+key)
	task.Earlier = earlier[:1]
	near(t, "NodeAttempts", size.NodeAttempts(earlier[0].Node), len(wire.AppendTask(nil, task))-record)
	task.Earlier, task.Attempts = nil, attempts[:1]
	a := &attempts[0]
	near(t, "Attempt", size.Attempt(a.Node, a.Message), len(wire.AppendTask(nil, task))-record)

	st := filled[plimsoll.JobStatus](f)
	groups, history := st.Groups, st.History
	st.Groups, st.History = nil, nil
	near(
		t, "JobStatus", size.JobStatus(st.ID, st.Owner, st.Queue, st.Reason, st.LimitGroup),
		len(wire.AppendJobStatus(nil, st))+len(st.ID),
	)
	alone := len(wire.AppendJobStatus(nil, st))
	st.History = history[:1]
	near(t, "JobStep", size.JobStep(), len(wire.AppendJobStatus(nil, st))-alone)
	st.Groups, st.History = groups[:1], nil
	g := &groups[0]
	near(
		t, "GroupStatus", size.GroupStatus(g.Name, &g.Wait),
		len(wire.AppendJobStatus(nil, st))-alone,
	)
}

// Events take no more than their bounds together, however different they are from each other.
func TestBoundOfEventsCountsEveryField(t *testing.T) {
	var enc ring.Encoder
	f, bound := &filler{}, size.Chunk()
	const events = 1000
	for i := range events {
		e := filled[plimsoll.Event](f)
		unique := func(text string) string { // no two texts share a prefix
			f.texts++
			return fmt.Sprintf("%x", f.texts) + text
		}
		e.Object, e.Reference, e.Message = unique(e.Object), unique(e.Reference), unique(e.Message)
		e.Head.UID = plimsoll.MakeUID(0, 1<<63*uint64(i%2))
		e.Head.Owner = unique(e.Head.Owner)
		for key, value := range maps.Clone(e.Head.Labels) {
			delete(e.Head.Labels, key)
			e.Head.Labels[unique(key)] = unique(value)
		}
		e.Detail -= plimsoll.ChangeDetail(i)
		e.Time = math.MinInt64 >> (i % 2)
		enc.Append(e)
		bound += size.Event(e.Object, e.Reference, e.Message) + size.Of(e.Resources) + e.Head.Size()
	}
	near(t, "Event", bound/events, len(enc.Finish(nil))/events)
}

// BenchmarkOf measures the cost in the submit of an ordinary job.
func BenchmarkOf(b *testing.B) {
	spec := &plimsoll.JobSpec{ID: "job", Owner: "alice", Queue: "root.default", Labels: map[string]string{
		"app": "x",
	}, Groups: []plimsoll.GroupSpec{{
		Name: "work", Count: 3, Command: []string{"sh", "-c", "true"},
		Resources: plimsoll.Resources{"cpu": 1000, "memory": 1 << 30},
	}}}
	for b.Loop() {
		size.Of(spec)
	}
}
