package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// freePorts returns addresses of loopback that nobody listens on.
func freePorts(t testing.TB, n int) (addresses []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // all at the end, so that they differ
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, "localhost:"+port)
	}
	return addresses
}

// TestBrowserPagesAreRefused: no listener of TCP obeys a page in a browser, by DNS rebinding or
// across sites, on any path. The roles reach each other by localhost, and callers reach them by
// --host.
func TestBrowserPagesAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ports := freePorts(t, 3)
	leader, gateway, agent := ports[0], ports[1], ports[2]
	s.address = gateway
	host := []string{"--host", "first.example", "--host", "own.example"}
	start(
		t, append([]string{"coordinator", "--data", s.path("store"), "--listen", leader}, host...)...,
	).says("msg=leading")
	start(t, append([]string{"gateway", "--leader", leader, "--listen", gateway}, host...)...)
	start(
		t,
		append(
			[]string{"agent", "--data", s.path("agent"), "--gateways", gateway, "--listen", agent, "--node", "n1"},
			host...,
		)...,
	)
	s.nodeReady("n1")
	s.works("own") // a command, and its log by way of the agent's listener

	for listener, paths := range map[string][]string{
		leader:  {"/healthz", "/metrics", "/plimsoll.v1.ReplicationService/Follow", "/"},
		gateway: {"/healthz", "/metrics", "/plimsoll.v1.JobService/SubmitJob", "/ws/v1/events/batch", "/"},
		agent:   {"/healthz", "/metrics", "/plimsoll.v1.LogService/ReadTaskLog", "/ws/v1/events/batch"},
	} {
		for _, path := range paths {
			for _, c := range []struct {
				host, header, value string
				refused             bool
			}{
				{host: "evil.example", refused: true},
				{host: "evil.example", header: "Origin", value: "http://evil.example", refused: true},
				{host: listener, header: "Origin", value: "http://evil.example", refused: true},
				{host: listener, header: "Origin", value: "null", refused: true},
				{host: listener, header: "Sec-Fetch-Site", value: "cross-site", refused: true},
				{host: listener, header: "Sec-Fetch-Site", value: "same-site", refused: true},
				{host: listener, header: "Sec-Fetch-Site", value: "same-origin"},
				{host: listener, header: "Sec-Fetch-Site", value: "none"},
				{host: listener, header: "Origin", value: "http://" + listener},
				{host: "own.example"},
			} {
				status, body := ask(t, listener, path, c.host, c.header, c.value)
				if (status == http.StatusForbidden) != c.refused {
					t.Errorf("%s%s with Host %s, %s %s: %d %s", listener, path, c.host, c.header, c.value, status, body)
				}
				if c.host == "evil.example" && !strings.Contains(body, "--host evil.example") {
					t.Errorf("%s%s: %s does not say how to allow it", listener, path, body)
				}
			}
		}
	}
}

// ask posts an empty message as a page in a browser would.
func ask(t *testing.T, listener, path, host, header, value string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listener+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("Content-Type", "application/json")
	if header != "" {
		r.Header.Set(header, value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// TestRefusedHostIsNamed: the error for a host name that the listener does not know says how to
// allow it, also in a stream.
func TestRefusedHostIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, address := s.devOnPort()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	s.address = "0.0.0.0:" + port // reaches the listener on 127.0.0.1, and is not its address
	for _, command := range [][]string{{"node", "list"}, {"events", "--follow"}} {
		_, stderr, code := s.cli(command...)
		want := `plimsoll: the server that listens on 127.0.0.1:` + port +
			` does not go by the host "0.0.0.0"; if it should, start it with --host 0.0.0.0`
		if code != 1 || strings.TrimSpace(stderr) != want {
			t.Errorf("%v: exit code %d, %s", command, code, stderr)
		}
	}
}

func TestHostFlagIsChecked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, role := range []string{"dev", "coordinator", "gateway", "agent", "evaluator"} {
		_, stderr, code := run(t, role, "--host", "http://gw:9080", "--config", s.write("empty.yaml", "{}\n"))
		if code == 0 || !strings.Contains(stderr, `"http://gw:9080" is not a host; write a name or an IP address`) {
			t.Errorf("%s: exit code %d, %s", role, code, stderr)
		}
	}
}
