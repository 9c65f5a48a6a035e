package gateway

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// outputs reads what the agent of startAgent answers: the outputs and the uid of its request.
func (s *served) outputs(t *testing.T, req *pb.FetchOutputsRequest) (text string, err error) {
	t.Helper()
	stream := open(t, s.jobs.FetchOutputs, req)
	for stream.Receive() {
		text += string(stream.Msg().GetData())
	}
	return text, wire.FromConnectError(stream.Err())
}

// Logs and outputs are asked for by the uid of the job, at each step of its way into the archive
// and once its id has a later job.
func TestLogsAndOutputsOfArchivedJobs(t *testing.T) {
	agent, address := startAgent(t)
	close(agent.release) // a log that is followed ends at once
	c := newCell(t)
	c.f.put(putNode(plimsoll.Node{ID: "n1", Address: address, Incarnation: 1}))
	s := c.serve(Config{})
	check := func(step string, j *cellJob, jobUID string) {
		t.Helper()
		want := j.status.UID.String()
		for _, follow := range []bool{false, true} {
			receive(t, open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.0", Follow: follow, JobUid: jobUID}))
			if asked := <-agent.asked; asked.GetUid() != want || asked.GetTask() != "a.map.0" || asked.GetAttempt() != 1 {
				t.Errorf("%s: the agent was asked for the log of %v, want uid %s", step, asked, want)
			}
		}
		got, err := s.outputs(t, &pb.FetchOutputsRequest{Task: "a.map.0", JobUid: jobUID})
		if err != nil || got != "report.csv "+want {
			t.Errorf("%s: the agent was asked for %q (%v), want uid %s", step, got, err, want)
		}
	}
	j := c.submit("a", "ann", "root.x", nil, 2)
	j.spec.Groups[0].Outputs = []string{"report.csv"}
	c.f.put(putSpec(j.spec))
	c.end(j, 1)
	check("ended", j, "")
	c.store(j)
	check("written", j, "")
	c.expire(j, 1)
	check("leaving", j, "")
	c.forget(j)
	check("gone from the store", j, "")
	later := c.submit("a", "ann", "root.x", nil, 1)
	later.spec.Groups[0].Outputs = []string{"report.csv"}
	c.f.put(putSpec(later.spec))
	c.end(later, 0)
	check("of a later job", later, "")
	check("of the earlier job", j, j.status.UID.String())
	_, err := s.outputs(t, &pb.FetchOutputsRequest{Task: "a.map.1"})
	if plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("a task that only the earlier job has: %v", err)
	}
	for _, uid := range []string{"x", strings.Repeat("z", 26)} {
		_, err := s.outputs(t, &pb.FetchOutputsRequest{Task: "a.map.0", JobUid: uid})
		logs := ending(t, open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.0", JobUid: uid}))
		for _, err := range []error{err, logs} {
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), "jobUid") {
				t.Errorf("uid %q: %v", uid, err)
			}
		}
	}
}

// A gateway that cannot read the archive does not say that a log does not exist.
func TestWithoutTheArchiveNoLogIsSaidNotToExist(t *testing.T) {
	c := newCell(t)
	j := c.submit("a", "ann", "root.x", nil, 1)
	c.end(j, 0)
	c.archived(j)
	s := c.serve(Config{Archive: &brokenArchive{Memory: c.archive, err: plimsoll.Errorf(plimsoll.CodeCanceled, "down")}})
	for _, uid := range []string{"", j.status.UID.String()} {
		_, err := s.outputs(t, &pb.FetchOutputsRequest{Task: "a.map.0", JobUid: uid})
		logs := ending(t, open(t, s.jobs.ReadLogs, &pb.ReadLogsRequest{Task: "a.map.0", JobUid: uid}))
		for _, err := range []error{err, logs} {
			if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || !strings.Contains(err.Error(), "archive") {
				t.Errorf("uid %q: %v", uid, err)
			}
		}
	}
}
