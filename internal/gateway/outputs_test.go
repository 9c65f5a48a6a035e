package gateway

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// withOutputs is a cluster with a job of two groups: out declares outputs, and map none.
func withOutputs(address string) *fake {
	f := cluster()
	spec := specNamed("a")
	out := spec.Groups[0]
	out.Name, out.Outputs = "out", []string{"report.csv", "logs/*"}
	spec.Groups = append(spec.Groups, out)
	task := func(group string, index, attempt int32, state plimsoll.TaskState, node string) wire.Mutation {
		return putTask(plimsoll.Task{Job: "a", Group: group, Index: index, Attempt: attempt, State: state, Node: node})
	}
	f.put(
		putSpec(spec), putNode(plimsoll.Node{ID: "n1", Address: address}),
		task("out", 0, 1, plimsoll.TaskFinished, "n1"), task("out", 1, 1, plimsoll.TaskRunning, "n1"),
		task("out", 2, 0, plimsoll.TaskFinished, ""), task("out", 3, 1, plimsoll.TaskFinished, "removed"),
		task("map", 0, 1, plimsoll.TaskFinished, "n1"),
	)
	return f
}

func TestOutputsAreRelayedFromTheTasksNode(t *testing.T) {
	_, address := startAgent(t)
	s := serve(t, Config{}, withOutputs(address))
	stream := open(t, s.jobs.FetchOutputs, &pb.FetchOutputsRequest{Task: "a.out.0"})
	var got []string
	for stream.Receive() {
		switch p := stream.Msg().GetPart().(type) {
		case *pb.FetchOutputsResponse_Summary:
			got = append(got, "summary")
		case *pb.FetchOutputsResponse_File:
			got = append(got, p.File.GetPath())
		case *pb.FetchOutputsResponse_Data:
			got = append(got, string(p.Data)) // the agent answers with the outputs that it was asked for
		}
	}
	if err := stream.Err(); err != nil || strings.Join(got, ", ") != "summary, f, report.csv logs/* " {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestOutputsThatCannotBeFetchedSayWhy(t *testing.T) {
	_, address := startAgent(t)
	s := serve(t, Config{}, withOutputs(address))
	for _, c := range []struct {
		task string
		code plimsoll.Code
		says string
	}{
		{"a", plimsoll.CodeInvalid, "job, group and index"},
		{"a.out.9", plimsoll.CodeNotFound, "there is no task"},
		{"a.map.0", plimsoll.CodeConflict, "outputs: group map of job a declares none"},
		{"a.out.1", plimsoll.CodeConflict, "has not ended"},
		{"a.out.2", plimsoll.CodeNotFound, "ended without being started"},
		{"a.out.3", plimsoll.CodeNotFound, `node: "removed"`},
	} {
		err := ending(t, open(t, s.jobs.FetchOutputs, &pb.FetchOutputsRequest{Task: c.task}))
		if plimsoll.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s", c.task, err, c.says)
		}
	}
}

// Users who fetch outputs take the slots of logs.
func TestOutputsTakeTheSlotsOfLogs(t *testing.T) {
	_, address := startAgent(t)
	s := serve(t, Config{}, withOutputs(address))
	for {
		if _, err := s.gateway.slots.logs.enter(new(slot), nil, nil); err != nil {
			break
		}
	}
	err := ending(t, open(t, s.jobs.FetchOutputs, &pb.FetchOutputsRequest{Task: "a.out.0"}))
	if plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
		t.Errorf("%v", err)
	}
}
