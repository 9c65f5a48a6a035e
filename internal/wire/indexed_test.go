package wire

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

func TestAPeekSeesTheFieldsThatDecodingSees(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		task := drawTask(t)
		state, result, ok := PeekTask(AppendTask(nil, &task))
		if !ok || state != task.State || result != task.Result {
			t.Fatalf("PeekTask of %+v = %v, %v, %v", task, state, result, ok)
		}
		job := drawJobStatus(t)
		owner, queue, jobState, ok := PeekJob(AppendJobStatus(nil, &job))
		if !ok || string(owner) != job.Owner || string(queue) != job.Queue || jobState != job.State {
			t.Fatalf("PeekJob of %+v = %q, %q, %v, %v", job, owner, queue, jobState, ok)
		}
	})
}

func TestAPeekRefusesWhatCannotBeRead(t *testing.T) {
	good := AppendTask(nil, &plimsoll.Task{Job: "job", Group: "map", State: plimsoll.TaskRunning})
	for name, data := range map[string][]byte{
		"no message": {0xff}, "a record that is cut": good[:3], "an unknown state": {6 << 3, 0x7f},
		"a state beyond a byte": {6 << 3, 0xff, 0x7f},
	} {
		if _, _, ok := PeekTask(data); ok {
			t.Errorf("%s is taken for a task", name)
		}
	}
	for name, data := range map[string][]byte{
		"no message": {0xff}, "an unknown state": {4 << 3, 0x7f}, "an owner that is cut": {2<<3 | 2, 9, 'a'},
	} {
		if _, _, _, ok := PeekJob(data); ok {
			t.Errorf("%s is taken for the status of a job", name)
		}
	}
}

func TestAPeekAllocatesNothing(t *testing.T) {
	task := AppendTask(nil, &plimsoll.Task{Job: "job", Group: "map", State: plimsoll.TaskRunning, Node: "node"})
	status := plimsoll.JobStatus{ID: "job", Owner: "alice", Queue: "root.a", State: plimsoll.JobRunning}
	job := AppendJobStatus(nil, &status)
	if n := testing.AllocsPerRun(100, func() { PeekTask(task); PeekJob(job) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A peek reads any bytes, and returns values of this version only: they are positions in tables.
func FuzzPeek(f *testing.F) {
	f.Add(AppendTask(nil, &sampleTask))
	f.Add(AppendJobStatus(nil, &sampleJobStatus))
	f.Fuzz(func(t *testing.T, data []byte) {
		if state, result, ok := PeekTask(data); ok &&
			(int(state) >= plimsoll.NumTaskStates || int(result) >= plimsoll.NumTaskResults) {
			t.Errorf("PeekTask = %d, %d", state, result)
		}
		if _, _, state, ok := PeekJob(data); ok && int(state) >= plimsoll.NumJobStates {
			t.Errorf("PeekJob = %d", state)
		}
	})
}
