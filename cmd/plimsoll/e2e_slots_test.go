package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// Users hold all connections that they can get, with requests that never come to their end. They
// take neither the node's heartbeats nor the descriptors of the store, in a process with 1,024 of
// them. The node stays ready, running tasks keep their attempt, and other users are served.
func TestHalfSentRequestsTakeNothingFromNodesAndTheStore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := startCommand(t, exec.Command("sh", "-c", `ulimit -n 1024; exec plimsoll "$@"`, "sh",
		"dev", "--data", s.data(), "--listen", "127.0.0.1:0", "--node", "n1", "--capacity", "cpu=64;memory=64Gi"))
	s.address = d.says(readyLine)[1]
	s.nodeReady("n1")
	info, err := os.Stat(filepath.Join(s.data(), "agents.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket of agents: %v, %v", info, err)
	}
	s.submit("lasting", 1, "exec sleep 3600", "")
	eventually(t, "wait for the task", func() error {
		if _, tasks := s.job("lasting"); tasks[0].State != "Running" {
			return fmt.Errorf("%+v", tasks)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address := strings.TrimPrefix(s.address, "http://")
	var attack errgroup.Group
	for i := range 10 {
		text := "POST /plimsoll.v1.JobService/SubmitJob HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: " +
			userToken(t, s.data()).Header() +
			"\r\nContent-Type: application/proto\r\nContent-Length: 1000\r\n\r\nx"
		if i%2 == 0 {
			text = text[:40]
		}
		attack.Go(func() error { return halfSend(ctx, address, text, 500) })
	}
	for i := range 30 {
		s.works(fmt.Sprintf("during-%d", i))
	}
	cancel()
	if err := attack.Wait(); err != nil {
		t.Error(err)
	}
	if _, tasks := s.job("lasting"); tasks[0].State != "Running" || tasks[0].Attempt != 1 {
		t.Errorf("the task that ran is %s in attempt %d", tasks[0].State, tasks[0].Attempt)
	}
	resp, err := http.Get(s.address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	for _, line := range []string{
		"plimsoll_gateway_nodes_heard 1\n", "plimsoll_coordinator_failures_total 0\n",
		"plimsoll_gateway_agent_connections 1\n",
	} {
		if !strings.Contains(string(metrics), line) {
			t.Errorf("/metrics has no %q", line)
		}
	}
	if strings.Contains(string(metrics), "plimsoll_gateway_connections_closed_total 0\n") {
		t.Error("no connection was closed for another: the attack was none")
	}
	s.works("after")
	d.stop()
}

// halfSend keeps connections open on which the beginning of a request was sent, until ctx ends.
func halfSend(ctx context.Context, address, text string, connections int) error {
	held := make([]net.Conn, connections)
	defer func() {
		for _, c := range held {
			if c != nil {
				_ = c.Close() // the other end may have done so
			}
		}
	}()
	for i := 0; ctx.Err() == nil; i = (i + 1) % connections {
		if held[i] != nil {
			_ = held[i].Close() // as above
		}
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			held[i] = nil
			continue // the queue of connections is full, or ctx has ended
		}
		held[i] = c
		_, _ = io.WriteString(c, text) // as above
	}
	return nil
}
