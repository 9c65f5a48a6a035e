package wire

import (
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// agree holds the code written by hand against the generated code: both read the same value from
// the same bytes or both refuse them, and both write the same bytes of it. known says whether our
// code knows every number in the message; it refuses others.
func agree[X any, M proto.Message](t *testing.T, data []byte, m M, known func(M) bool, decode func([]byte) (X, error),
	appendX func([]byte, *X) []byte, to func(*X) M, from func(M) X,
) {
	t.Helper()
	x, err := decode(data)
	generatedErr := proto.Unmarshal(data, m)
	if generatedErr != nil || !known(m) {
		if err == nil {
			t.Fatalf("%x was taken; the generated code says %v, and that it holds %v", data, generatedErr, m)
		}
		return
	}
	if err != nil {
		t.Fatalf("%x was refused with %v; the generated code takes it as %v", data, err, m)
	}
	if want := from(m); !reflect.DeepEqual(x, want) {
		t.Fatalf("%x was read as\n%+v, by the generated code as\n%+v", data, x, want)
	}
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(to(&x))
	if err != nil {
		t.Fatal(err)
	}
	if got := appendX(nil, &x); string(got) != string(want) {
		t.Fatalf("%+v was written as\n%x, by the generated code as\n%x", x, got, want)
	}
}

func FuzzTask(f *testing.F) {
	f.Add(AppendTask(nil, &sampleTask))
	f.Add([]byte{0x0b, 0x0c, 0x30, 0x07})
	f.Fuzz(func(t *testing.T, data []byte) {
		known := func(m *pb.Task) bool {
			for _, a := range m.GetAttempts() {
				if pb.TaskResult_name[int32(a.GetResult())] == "" {
					return false
				}
			}
			return pb.TaskState_name[int32(m.GetState())] != "" && pb.TaskResult_name[int32(m.GetResult())] != ""
		}
		agree(t, data, new(pb.Task), known, DecodeTask, AppendTask, TaskToProto, TaskFromProto)
	})
}

// The attempts of the archive are a list in field 1, as those of an answer are.
func FuzzAttempts(f *testing.F) {
	f.Add(AppendAttempts(nil, sampleTask.Attempts))
	f.Add([]byte{1<<3 | 2, 2, 1 << 3, 7, 1<<3 | 2, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		known := func(m *pb.ListAttemptsResponse) bool {
			return !slices.ContainsFunc(m.GetAttempts(), func(a *pb.Attempt) bool {
				return pb.TaskResult_name[int32(a.GetResult())] == ""
			})
		}
		to := func(attempts *[]plimsoll.Attempt) *pb.ListAttemptsResponse {
			m := &pb.ListAttemptsResponse{}
			for i := range *attempts {
				m.Attempts = append(m.Attempts, AttemptToProto(&(*attempts)[i]))
			}
			return m
		}
		from := func(m *pb.ListAttemptsResponse) (attempts []plimsoll.Attempt) {
			for _, a := range m.GetAttempts() {
				attempts = append(attempts, AttemptFromProto(a))
			}
			return attempts
		}
		write := func(dst []byte, attempts *[]plimsoll.Attempt) []byte { return AppendAttempts(dst, *attempts) }
		agree(t, data, new(pb.ListAttemptsResponse), known, DecodeAttempts, write, to, from)
	})
}

func FuzzJobStatus(f *testing.F) {
	f.Add(AppendJobStatus(nil, &sampleJobStatus))
	f.Add([]byte{10<<3 | 2, 6, 3<<3 | 2, 0, 3<<3 | 2, 2, 8, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		known := func(m *pb.JobStatus) bool {
			for _, g := range m.GetGroups() {
				if pb.WaitCode_name[int32(g.GetWaitCode())] == "" {
					return false
				}
			}
			for _, step := range m.GetHistory() {
				if pb.JobState_name[int32(step.GetState())] == "" || pb.StepReason_name[int32(step.GetReason())] == "" {
					return false
				}
			}
			if _, err := plimsoll.ParseUID(m.GetUid()); err != nil && m.GetUid() != "" {
				return false
			}
			return pb.JobState_name[int32(m.GetState())] != ""
		}
		agree(t, data, new(pb.JobStatus), known, DecodeJobStatus, AppendJobStatus, JobStatusToProto, JobStatusFromProto)
	})
}

func FuzzBatch(f *testing.F) {
	b := sampleBatch(2)
	f.Add(AppendBatch(nil, &b))
	f.Add([]byte{5<<3 | 2, 2, 8, 1, 5<<3 | 2, 2, 16, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		known := func(m *pb.Batch) bool {
			for _, mutation := range m.GetMutations() {
				if k := mutation.GetKind(); k <= 0 || k >= NumKinds ||
					mutation.GetDeleted() && len(mutation.GetValue()) > 0 {
					return false
				}
			}
			return true
		}
		agree(t, data, new(pb.Batch), known, DecodeBatch, AppendBatch, batchToProto, batchFromProto)
	})
}

// FuzzPlacement: what is read of a job's constraints and of a node's facts is written and read
// again as it was.
func FuzzPlacement(f *testing.F) {
	job, node := sampleConstrained(), sampleNode()
	f.Add(AppendJobSpec(nil, &job))
	f.Add(AppendNode(nil, &node))
	f.Fuzz(func(t *testing.T, data []byte) {
		if job, err := DecodeJobSpec(data); err == nil {
			again, err := DecodeJobSpec(AppendJobSpec(nil, &job))
			if err != nil || !reflect.DeepEqual(job, again) {
				t.Fatalf("%+v became %+v, %v", job, again, err)
			}
		}
		if node, err := DecodeNode(data); err == nil {
			again, err := DecodeNode(AppendNode(nil, &node))
			if err != nil || !reflect.DeepEqual(node, again) {
				t.Fatalf("%+v became %+v, %v", node, again, err)
			}
		}
	})
}

// FuzzDecode gives arbitrary bytes to the decoders that go through the generated code.
func FuzzDecode(f *testing.F) {
	f.Add(AppendNode(nil, &plimsoll.Node{ID: "n", Mode: plimsoll.NodeActive, Capacity: plimsoll.Resources{"cpu": 1}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, decode := range []func([]byte) error{
			decodes(DecodeJobSpec), decodes(DecodeNode), decodes(DecodeNodeStatus), decodes(DecodeQueueConfig),
			decodes(DecodeQueueStatus),
			decodes(DecodeMutation), decodes(DecodePolicy),
		} {
			if err := decode(data); err != nil && plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
				t.Fatal(err)
			}
		}
	})
}

var sampleTask = plimsoll.Task{
	ID: "wordcount.map.17", Job: "wordcount", Group: "map", Index: 17, Attempt: 2, Failures: 1,
	State:  plimsoll.TaskFinished,
	Result: plimsoll.ResultFailed, Node: "node-0042", ExitCode: -1, Message: "exit code 1",
	Created: 1_700_000_000_000_000_000,
	Bound:   1_700_000_000_100_000_000, Started: 1_700_000_000_200_000_000, Finished: 1_700_000_001_000_000_000,
	Revision: 123456, Starting: 1_700_000_000_150_000_000, Stopping: 1_700_000_000_900_000_000,
	Attempts: []plimsoll.Attempt{{
		Number: 1, Node: "node-0041", Result: plimsoll.ResultLost, ExitCode: -1, Message: "lost",
		Pending: 1_700_000_000_000_000_000, Bound: 1_700_000_000_010_000_000, Finished: 1_700_000_000_020_000_000,
	}},
}

var sampleJobStatus = plimsoll.JobStatus{
	ID: "wordcount", Owner: "alice", Queue: "root.batch", State: plimsoll.JobRunning,
	Submitted: 1_700_000_000_000_000_000,
	Started:   1_700_000_000_200_000_000, Revision: 123456, Deleted: true,
	UserLimits: true, LimitGroup: "staff",
	UID: plimsoll.MakeUID(1_700_000_000_000_000_000, 77),
	History: []plimsoll.JobStep{
		{State: plimsoll.JobNew, At: 1_700_000_000_000_000_000, Reason: plimsoll.ReasonSubmitted},
		{State: plimsoll.JobAccepted, At: 1_700_000_000_000_000_000, Reason: plimsoll.ReasonCreated},
	},
	Groups: []plimsoll.GroupStatus{
		{
			Name: "map", Count: 20, Counts: plimsoll.TaskCounts{Pending: 3, Running: 12, Succeeded: 5},
			Wait: plimsoll.WaitCause{
				Code: plimsoll.WaitQueueMax, Queue: "root.batch", Resource: "memory", Asked: 64 << 30,
			},
		},
		{Name: "reduce", Count: 1, Counts: plimsoll.TaskCounts{Pending: 1}},
	},
}

func sampleBatch(tasks int32) Batch {
	b := Batch{
		Epoch: 3, Revision: 123456, Time: 1_700_000_000_000_000_000,
		Events: EventChunk{FirstID: 1000, Count: 200, Data: make([]byte, 20*tasks)},
	}
	for i := range tasks {
		b.Mutations = append(b.Mutations, Mutation{
			Kind: KindTask, Key: TaskKey("wordcount", "map", i), Value: AppendTask(nil, &sampleTask), Node: "node-0042",
		})
	}
	b.Mutations = append(
		b.Mutations, Mutation{Kind: KindNodeStatus, Key: "node-0042", Value: []byte{}, Ephemeral: true},
		Mutation{Kind: KindJobSpec, Key: "old"},
	)
	return b
}
