package gateway

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// listedTasks reads all pages of a list of tasks, each as its id, ~ and the uid of its job.
func listedTasks(t *testing.T, s *served, req *pb.ListTasksRequest) string {
	t.Helper()
	req, _ = proto.Clone(req).(*pb.ListTasksRequest)
	var names []string
	for {
		res := must(t, s.jobs.ListTasks, req)
		if len(res.GetJobUids()) != len(res.GetTasks()) && req.GetWithJobUids() {
			t.Fatalf("%d uids for %d tasks", len(res.GetJobUids()), len(res.GetTasks()))
		}
		for i, task := range res.GetTasks() {
			name := taskID(task)
			if req.GetWithJobUids() {
				name = plimsoll.LifetimeName(name, wire.UIDFromText(res.GetJobUids()[i]))
			}
			names = append(names, name)
		}
		if res.GetNext() == "" {
			return strings.Join(names, " ")
		}
		if req.GetScope() == pb.Scope_SCOPE_UNSPECIFIED && req.GetSort() == pb.TaskSort_TASK_SORT_UNSPECIFIED {
			req.After = res.GetNext()
		} else {
			req.Cursor = res.GetNext()
		}
	}
}

// The tasks of two jobs that had an id one after the other have the same ids.
func TestAListOfTasksTellsTheUIDsOfTheirJobs(t *testing.T) {
	c := newCell(t)
	s := c.serve(Config{})
	first := c.submit("a", "ann", "root.x", nil, 2)
	c.end(first, 1)
	c.archived(first)
	second := c.submit("a", "ann", "root.x", nil, 1)
	other := c.submit("b", "ann", "root.x", nil, 1)
	old, now, last := first.status.UID, second.status.UID, other.status.UID
	active := fmt.Sprintf("a.map.0~%s b.map.0~%s", now, last)
	all := fmt.Sprintf("a.map.0~%s a.map.1~%s %s", old, old, active)
	for _, x := range []struct {
		name, want string
		req        *pb.ListTasksRequest
	}{
		{"active", active, &pb.ListTasksRequest{}},
		{"active, in an order", active, &pb.ListTasksRequest{Sort: pb.TaskSort_TASK_SORT_ID}},
		{"all", all, &pb.ListTasksRequest{Scope: pb.Scope_SCOPE_ALL}},
		{"one job of the archive", all[:strings.Index(all, active)-1], &pb.ListTasksRequest{JobUid: old.String()}},
	} {
		t.Run(x.name, func(t *testing.T) {
			for _, limit := range []int32{0, 1} {
				x.req.WithJobUids, x.req.Limit = true, limit
				if got := listedTasks(t, s, x.req); got != x.want {
					t.Errorf("limit %d: got %s, want %s", limit, got, x.want)
				}
			}
		})
	}
	if res := must(t, s.jobs.ListTasks, &pb.ListTasksRequest{}); len(res.GetJobUids()) != 0 {
		t.Errorf("unasked for: %v", res.GetJobUids())
	}
}

// A task that has ended is on no node, but its last attempt was.
func TestTasksAreListedByTheNodeOfTheirLastAttempt(t *testing.T) {
	c := newCell(t)
	s := c.serve(Config{})
	first := c.submit("a", "ann", "root.x", nil, 2)
	first.tasks[1].Node = "n2"
	c.end(first, 2)
	c.archived(first)
	second := c.submit("b", "ann", "root.x", nil, 3)
	second.tasks[0].Node = "n2"
	c.end(second, 1)
	c.submit("c", "ann", "root.x", nil, 1)
	failed := []pb.TaskResult{pb.TaskResult_TASK_RESULT_FAILED}
	for _, x := range []struct {
		name, want string
		req        *pb.ListTasksRequest
	}{
		{"active", "b.map.1 b.map.2 c.map.0", &pb.ListTasksRequest{LastNode: "n1"}},
		{"those that failed", "b.map.0", &pb.ListTasksRequest{LastNode: "n2", Results: failed}},
		{"all", "a.map.0 b.map.1 b.map.2 c.map.0", &pb.ListTasksRequest{LastNode: "n1", Scope: pb.Scope_SCOPE_ALL}},
		{
			"all that failed", "a.map.1 b.map.0",
			&pb.ListTasksRequest{LastNode: "n2", Scope: pb.Scope_SCOPE_ALL, Results: failed},
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			for _, limit := range []int32{0, 1} {
				x.req.Limit = limit
				if got := listedTasks(t, s, x.req); got != x.want {
					t.Errorf("limit %d: got %s, want %s", limit, got, x.want)
				}
			}
		})
	}
	for _, scope := range []pb.Scope{pb.Scope_SCOPE_ACTIVE, pb.Scope_SCOPE_ALL} {
		_, err := call(s.jobs.ListTasks, &pb.ListTasksRequest{LastNode: "n3", Scope: scope})
		if plimsoll.CodeOf(err) != plimsoll.CodeNotFound || !strings.Contains(err.Error(), `there is no node "n3"`) {
			t.Errorf("scope %s, a node that never was: %v", scope, err)
		}
	}
	page := must(t, s.jobs.ListTasks, &pb.ListTasksRequest{LastNode: "n1", Scope: pb.Scope_SCOPE_ALL, Limit: 1})
	_, err := call(s.jobs.ListTasks, &pb.ListTasksRequest{
		LastNode: "n2", Scope: pb.Scope_SCOPE_ALL, Limit: 1, Cursor: page.GetNext(),
	})
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("a cursor of another node's list: %v", err)
	}
}
