package gateway

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// relayOf makes the follower of a relay, and the configuration of its gateway.
func relayOf(t *testing.T, id, leader string) (*replica.Follower, Config) {
	t.Helper()
	follower, err := replica.NewFollower(replica.FollowerConfig{Gateway: id, Leader: leader})
	if err != nil {
		t.Fatal(err)
	}
	relay, err := replica.NewRelay(follower, replica.RelayConfig{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return follower, Config{
		ID: id, Listen: "unix:" + filepath.Join(dir, "users"), Relay: relay,
		ListenReplication: "unix:" + filepath.Join(dir, "gateways"),
	}
}

// The address for gateways serves their streams and the gateway's health, and nothing that users or
// agents call.
func TestAddressForGatewaysServesNobodyElse(t *testing.T) {
	ld := startLeader(t)
	follower, cfg := relayOf(t, "relay", ld.address)
	g, err := New(cfg, follower)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- follower.Run(ctx) }()
	listeners, err := g.Listen()
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- g.Serve(ctx, listeners) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	if err := follower.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, url, err := transport.Client(cfg.ListenReplication)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{
		"/readyz": http.StatusOK, "/healthz": http.StatusOK, "/metrics": http.StatusNotFound,
		"/plimsoll.v1.JobService/ListJobs":    http.StatusNotFound,
		"/plimsoll.v1.AgentService/Heartbeat": http.StatusNotFound,
	} {
		response, err := client.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || response.Body.Close() != nil || response.StatusCode != want {
			t.Errorf("%s: %d %s %v, want %d", path, response.StatusCode, body, err, want)
		}
	}
	below, err := replica.NewFollower(replica.FollowerConfig{Gateway: "below", Leader: cfg.ListenReplication})
	if err != nil {
		t.Fatal(err)
	}
	belowEnded := make(chan error, 1)
	belowCtx, stop := context.WithCancel(t.Context())
	go func() { belowEnded <- below.Run(belowCtx) }()
	if err := below.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if n := cfg.Relay.Stats().Gateways; n != 1 {
		t.Errorf("%d gateways follow this one", n)
	}
	stop()
	if err := <-belowEnded; err != nil {
		t.Error(err)
	}
}

func TestWrongAddressesForGatewaysAreRefused(t *testing.T) {
	for address, want := range map[string]string{
		"nowhere":          "is not an address",
		"0.0.0.0:9083":     "can be reached from other machines",
		"127.0.0.1:9083":   "are set both, or neither",
		"unix:/tmp/r.sock": "are set both, or neither",
	} {
		cfg := Config{ID: "g", ListenReplication: address}
		if want != "are set both, or neither" {
			cfg.Relay = &replica.Relay{}
		}
		err := cfg.Validate()
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// The listener for gateways takes as few descriptors as that of the coordinator.
func TestTheListenerForGatewaysHasFewConnections(t *testing.T) {
	g := newGateway(t, Config{}, newFake())
	connections := g.replicationServing().Connections
	if connections == nil {
		t.Fatal("it has the default bounds")
	}
	users, agents := connections.Bounds()
	wantUsers, wantAgents := transport.FewConnections(func(string) {}).Bounds()
	if users != wantUsers || agents != wantAgents {
		t.Errorf("%d and %d connections are possible, want %d and %d", users, agents, wantUsers, wantAgents)
	}
}
