package gateway

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// A list is answered once, and an empty answer would hide a typing error. A watch goes on: what is
// not there may come, or has gone since the caller knew it. If it were refused, an informer that
// begins again after a break would keep the tasks of a job that is gone.
func TestAListOfWhatIsNotThereIsRefusedAndAWatchOfItBeginsEmpty(t *testing.T) {
	f := cluster()
	s := serve(t, Config{}, f)
	_, listed := call(s.jobs.ListTasks, &pb.ListTasksRequest{Job: "w"})
	if plimsoll.CodeOf(listed) != plimsoll.CodeNotFound {
		t.Errorf("the list of tasks: %v", listed)
	}
	_, listed = call(s.jobs.ListJobs, &pb.ListJobsRequest{Queue: "root.none"})
	if plimsoll.CodeOf(listed) != plimsoll.CodeNotFound {
		t.Errorf("the list of jobs: %v", listed)
	}
	watch := watchClient(t, s)
	for name, request := range map[string]*pb.WatchTasksRequest{
		"job": {Job: "w"}, "node": {Node: "n9"}, "job on a node": {Job: "w", Node: "n9"},
	} {
		f.put(deleted(taskIn(0, 0, "")))
		stream := open(t, watch.WatchTasks, request)
		if got := describeTasks(receive(t, stream)); got != "end" {
			t.Errorf("%s: the watch began with %q", name, got)
		}
		f.put(taskIn(0, plimsoll.TaskRunning, "n9"))
		if got := describeTasks(receive(t, stream)); got != "added w.map.0 Running@n9" {
			t.Errorf("%s: the watch went on with %q", name, got)
		}
	}
	jobs := open(t, watch.WatchJobs, &pb.WatchJobsRequest{Queue: "root.none"})
	if m := receive(t, jobs); len(m.GetJobs()) != 0 || !m.GetSnapshotEnd() {
		t.Errorf("the watch of a queue began with %v", m)
	}
}
