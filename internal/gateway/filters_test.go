package gateway

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// A filter that names what is not there is an error that names it: an empty list would look as if
// there were nothing.
func TestAFilterWithATypoIsAnError(t *testing.T) {
	s := directly(newGateway(t, Config{}, cluster()))
	jobs := func(req *pb.ListJobsRequest) error { return second(call(s.jobs.ListJobs, req)) }
	tasks := func(req *pb.ListTasksRequest) error { return second(call(s.jobs.ListTasks, req)) }
	for _, c := range []struct {
		err  error
		want string
	}{
		{jobs(
			&pb.ListJobsRequest{Queue: "root.bacth"},
		), `queue: there is no queue "root.bacth"; did you mean "root.batch"?`},
		{jobs(&pb.ListJobsRequest{Queue: "production"}), `queue: there is no queue "production"`},
		{tasks(&pb.ListTasksRequest{Job: "b.3"}), `job: there is no job "b.3"; did you mean "b.2"?`},
		{tasks(&pb.ListTasksRequest{Node: "n3"}), `node: there is no node "n3"; did you mean "n1"?`},
		{tasks(&pb.ListTasksRequest{Job: "a", Node: "m1"}), `node: there is no node "m1"`},
	} {
		if plimsoll.CodeOf(c.err) != plimsoll.CodeNotFound || c.err.Error() != c.want {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
}

// Ended jobs stay in a queue that was removed: a list of it that has none of the owner is empty.
func TestAListOfARemovedQueueIsNoError(t *testing.T) {
	f := cluster()
	f.put(
		putStatus(plimsoll.JobStatus{ID: "old", Owner: "ann", Queue: "root.gone.away", State: plimsoll.JobCompleted}),
		putStatus(plimsoll.JobStatus{ID: "other", Owner: "bob", Queue: "root.batch", State: plimsoll.JobCompleted}),
	)
	s := directly(newGateway(t, Config{}, f))
	for owner, want := range map[string]int{"ann": 1, "bob": 0} {
		for _, queue := range []string{"root.gone", "root.gone.away"} {
			got, err := call(s.jobs.ListJobs, &pb.ListJobsRequest{Queue: queue, Owner: owner})
			if err != nil || len(got.GetJobs()) != want {
				t.Errorf("the jobs of %s in %s: %v, %v", owner, queue, got, err)
			}
		}
	}
}
