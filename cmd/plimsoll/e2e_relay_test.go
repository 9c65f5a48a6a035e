package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/token"
)

// TestReplicationListenerWantsItsToken: a gateway that others follow answers them with the token in
// its own directory, and with no other, also with --no-token. On the same machine they find it.
func TestReplicationListenerWantsItsToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ports := freePorts(t, 2)
	for i := range ports {
		ports[i] = strings.Replace(ports[i], "localhost", "127.0.0.1", 1)
	}
	leader, replication := ports[0], ports[1]
	start(t, "coordinator", "--data", s.path("store"), "--listen", leader).says("msg=leading")
	start(t, "gateway", "--id", "relay", "--data", s.path("relay"), "--leader", leader, "--listen", "127.0.0.1:0",
		"--no-token", "--listen-replication", replication).says("following the leader")
	var own token.Token
	eventually(t, "read the relay's token, made once it listens", func() (err error) {
		own, err = token.Load(token.Gateway, filepath.Join(s.path("relay"), token.Gateway.FileName()))
		return err
	})
	leaders, err := token.Load(token.Gateway, filepath.Join(s.path("store"), token.Gateway.FileName()))
	if err != nil {
		t.Fatal(err)
	}
	const path = "GET /plimsoll.v1.ReplicationService/Replicate"
	for _, test := range []struct {
		name, header string
		denied       bool
	}{{"none", "", true}, {"the coordinator's", leaders.Header(), true}, {"its own", own.Header(), false}} {
		status, body := request(t, replication, path, test.header)
		if (status == http.StatusUnauthorized) != test.denied {
			t.Errorf("with the token %s: %d %s", test.name, status, body)
		}
	}
	edge := start(t, "gateway", "--data", s.path("edge"), "--leader", replication, "--listen", s.address)
	edge.says("following the leader")
	if _, err := s.client().Queues(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestGatewayBehindARelayOutlivesItAndTheLeader: relay and coordinator are killed in turn. As soon
// as they are back, everything acknowledged is read behind them, and nothing older in between.
func TestGatewayBehindARelayOutlivesItAndTheLeader(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	leader, replication := "unix:"+s.path("leader.sock"), "unix:"+s.path("down.sock")
	startLeader := func() *daemon {
		d := start(t, "coordinator", "--data", s.path("store"), "--listen", leader)
		d.says("msg=leading")
		return d
	}
	startRelay := func() *daemon {
		return start(t, "gateway", "--id", "relay", "--leader", leader, "--listen", "unix:"+s.path("relay.sock"),
			"--listen-replication", replication)
	}
	coordinator, relay := startLeader(), startRelay()
	edge := start(t, "gateway", "--id", "edge", "--leader", replication, "--listen", s.address)
	edge.says("following the leader")
	direct, behind := s.clientOf("unix:"+s.path("relay.sock")), s.client()
	for i, kill := range []func(){
		func() {},
		func() { relay.kill(); relay = startRelay() },
		func() { coordinator.kill(); coordinator = startLeader() },
		func() { relay.kill(); coordinator.kill(); coordinator, relay = startLeader(), startRelay() },
	} {
		kill()
		id := []string{"first", "second", "third", "fourth"}[i]
		spec := plimsoll.JobSpec{ID: id, Groups: []plimsoll.GroupSpec{{
			Name: "main", Count: 1, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 100},
		}}}
		eventually(t, "submit "+id, func() error {
			_, err := direct.SubmitJob(t.Context(), spec)
			if plimsoll.CodeOf(err) == plimsoll.CodeConflict { // an attempt before had its effect
				return nil
			}
			return err
		})
		eventually(t, "read "+id+" behind the relay", func() error {
			_, err := behind.Job(t.Context(), id)
			if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
				t.Fatalf("behind the relay %s is not there, which was acknowledged: %v", id, err)
			}
			return err
		})
	}
}

// clientOf returns a client of one server.
func (s *site) clientOf(address string) *client.Client {
	s.t.Helper()
	c, err := client.New(client.Config{Server: address})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}
