package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// health returns the answer of /healthz.
func (s *site) health(address string) (report struct{ Status, Role, Reason string }) {
	s.t.Helper()
	client, url, err := transport.CallClient(address)
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(url + "/healthz")
	if err != nil {
		s.t.Fatal(err)
	}
	data, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close(), json.Unmarshal(data, &report)); err != nil {
		s.t.Fatalf("%s: %v", data, err)
	}
	return report
}

// TestSecondCoordinatorStandsBy: a second coordinator on the directory of another waits for it and
// says so. When the first one is killed, the second leads with every acknowledged change.
func TestSecondCoordinatorStandsBy(t *testing.T) {
	t.Parallel()
	r := &roles{site: newSite(t)}
	r.startCoordinator()
	r.coordinator.says("msg=leading")
	r.startGateway()
	r.submit("kept", 1, "true", "")
	address := "unix:" + r.path("second.sock")
	second := start(t, "coordinator", "--data", r.path("store"), "--listen", address)
	second.says(fmt.Sprintf("msg=\"?standby.*process %d", r.coordinator.cmd.Process.Pid))
	if h := r.health(address); h.Status != "standby" || h.Role != "standby" ||
		!strings.Contains(h.Reason, r.path("store")) {
		t.Errorf("/healthz of the standby: %+v", h)
	}
	if h := r.health("unix:" + r.path("leader.sock")); h.Status != "ok" || h.Role != "leader" {
		t.Errorf("/healthz of the leader: %+v", h)
	}
	r.coordinator.kill()
	second.says("msg=leading epoch=2")
	if n := strings.Count(second.stderr(), "standby"); n != 1 {
		t.Errorf("that it is a standby was said in %d lines:\n%s", n, second.stderr())
	}
	r.gateway.stop()
	r.gateway = start(t, "gateway", "--id", "g2", "--leader", address, "--listen", r.address,
		"--archive", r.path("archive", "jobs.db"))
	if job, tasks := r.job("kept"); len(tasks) != 1 {
		t.Errorf("%+v %+v", job, tasks)
	}
	second.stop()
}
