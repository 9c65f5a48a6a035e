package main

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// replace submits a job of one task that takes the id of one that has ended.
func (s *site) replace(id, script string) {
	s.t.Helper()
	file := s.write(id+".again.yaml", fmt.Sprintf(`{"job": %q, "groups": [{"name": "main", "command": ["sh", "-c", %q]}]}`,
		id, script))
	if stdout, stderr, code := s.cli("submit", file, "--replace"); code != 0 {
		s.t.Fatalf("submit --replace: exit code %d, %s%s", code, stdout, stderr)
	}
}

// uid returns the uid of the job that has an id now.
func (s *site) uid(id string) string {
	s.t.Helper()
	job, err := s.client().FindJob(s.t.Context(), client.JobName{ID: id})
	if err != nil {
		s.t.Fatal(err)
	}
	return job.Status.UID.String()
}

// said wants the output of a task of one job.
func (s *site) said(task, uid, want string) {
	s.t.Helper()
	if stdout, stderr, code := s.cli("job", "logs", task, "--uid", uid); code != 0 || stdout != want+"\n" {
		s.t.Errorf("logs of %s of %s: exit code %d, %q, %s; want %q", task, uid, code, stdout, stderr, want)
	}
}

// An id is used again while the agent is away. The node has the directory of the earlier job's
// attempt, and in the second part that attempt runs: it was given up because its node was lost.
// Each job gets its own result and output, and the earlier attempt is ended.
func TestAnIDIsUsedAgainWhileTheAgentIsAway(t *testing.T) {
	t.Parallel()
	r := &roles{site: newSite(t)}
	r.startCoordinator()
	r.startGateway()
	r.startAgent()
	r.nodeReady("n1")
	r.submit("job", 1, "echo first; exit 3", "")
	r.ended("job")
	first := r.uid("job")
	r.agent.kill()
	r.replace("job", "echo second")
	second := r.uid("job")
	r.startAgent()
	if _, tasks := r.ended("job"); tasks[0].Result != "succeeded" {
		t.Errorf("the second job: %+v", tasks)
	}
	r.said("job.main.0", first, "first")
	r.said("job.main.0", second, "second")

	if !testrun.Soak() {
		return // a node is lost after a minute
	}
	r.gate("lost.main.0")
	r.submit("lost", 1, gatedTask(r.dir), "")
	pid := r.pid("lost.main.0")
	r.running("lost", 1)
	r.agent.kill()
	eventually(t, "wait until the node is lost", func() error {
		if _, tasks := r.job("lost"); tasks[0].State != "Pending" {
			return fmt.Errorf("%+v", tasks)
		}
		return nil
	})
	if _, stderr, code := r.cli("job", "kill", "lost"); code != 0 {
		t.Fatalf("kill: exit code %d, %s", code, stderr)
	}
	r.ended("lost")
	r.replace("lost", "echo found; exit 0")
	r.startAgent()
	if _, tasks := r.ended("lost"); tasks[0].Result != "succeeded" || tasks[0].Attempt != 1 {
		t.Errorf("the job after the lost one: %+v", tasks)
	}
	r.gone(pid)
	r.said("lost.main.0", r.uid("lost"), "found")
}
