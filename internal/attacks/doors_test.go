package attacks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// held opens connections, sends a text on each, and keeps them open for a while.
func (f *fleet) held(t *testing.T, address string, connections int, opening string, while time.Duration) {
	t.Helper()
	var held []net.Conn
	defer func() {
		for _, conn := range held {
			_ = conn.Close() // the other side may have closed it
		}
	}()
	for range connections {
		conn := f.dial(t, address)
		if conn == nil {
			continue
		}
		held = append(held, conn)
		if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, opening) // the other side may have closed it
	}
	t.Logf("%d connections were opened to %s", len(held), address)
	pause(t.Context(), while)
}

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, while time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(while):
	}
}

// holdTime returns how long an attacker holds its connections. A node that was not heard for 10 s
// is silent.
func holdTime() time.Duration {
	return time.Duration(testrun.Count(1, 3, 75)) * time.Second
}

// halfRequests begins thousands of requests and finishes none. 70 s of such requests once took
// every node.
func halfRequests(t *testing.T, f *fleet) {
	opening := "POST " + plimsollv1connect.JobServiceSubmitJobProcedure + " HTTP/1.1\r\nHost: " + f.gateway +
		"\r\nAuthorization: Bearer " + f.userToken(
		t,
	) + "\r\nContent-Type: application/proto\r\nContent-Length: 1000\r\n\r\nx"
	f.held(t, f.gateway, testrun.Count(500, 2_000, 5_000), opening, holdTime())
}

// silentConnections opens connections to every port and sends nothing, or half of a header.
func silentConnections(t *testing.T, f *fleet) {
	for _, address := range []string{f.gateway, f.leader} {
		f.held(t, address, testrun.Count(500, 1_500, 5_000), "", time.Second)
		f.held(t, address, testrun.Count(500, 1_500, 5_000), "GET / HTTP/1.1\r\nHost: ", time.Second)
	}
}

// unreadStreams watches jobs and follows logs without reading, from connections with many streams.
func unreadStreams(t *testing.T, f *fleet) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h2 := stream()
	defer h2.CloseIdleConnections()
	for n := range testrun.Count(100, 300, 3_000) {
		c := call{
			path: plimsollv1connect.JobServiceWatchJobProcedure, contentType: "application/connect+proto",
			token: f.userToken(t),
			body:  bytes.NewReader(envelope(0, append([]byte{1<<3 | 2, 8}, "sleepers"...))),
		}
		if n%2 == 1 {
			c.path = plimsollv1connect.JobServiceReadLogsProcedure
			c.body = bytes.NewReader(envelope(0, append([]byte{1<<3 | 2, 15}, "sleepers.main.0"...)))
		}
		go func() {
			if res, err := h2.Do(f.request(ctx, t, c)); err == nil {
				<-ctx.Done()
				_ = res.Body.Close() // never read
			}
		}()
	}
	pause(ctx, holdTime())
}

// foreignPages sends the requests of a browser that shows a page of another site, to every port.
func foreignPages(t *testing.T, f *fleet) {
	for _, address := range []string{f.gateway, f.leader} {
		for _, path := range []string{
			"/", "/healthz", "/metrics", "/ws/v1/events/batch", plimsollv1connect.JobServiceSubmitJobProcedure,
		} {
			for name, value := range map[string]string{
				"Host": "rebound.example", "Origin": "http://rebound.example", "Sec-Fetch-Site": "cross-site",
			} {
				a := f.do(t, call{
					address: address, path: path, contentType: "application/json", token: f.userToken(t),
					headers: map[string]string{name: value}, body: strings.NewReader("{}"),
				})
				if a.status != http.StatusForbidden {
					t.Errorf("%s%s with %s %s: %s; 403 is wanted", address, path, name, value, a)
				}
			}
		}
	}
}

// noToken calls every port without a token, with a wrong one, and with the token of another port.
func noToken(t *testing.T, f *fleet) {
	for _, tc := range []struct{ address, path, token string }{
		{f.gateway, plimsollv1connect.JobServiceSubmitJobProcedure, ""},
		{f.gateway, plimsollv1connect.JobServiceSubmitJobProcedure, "wrong"},
		{f.gateway, plimsollv1connect.JobServiceSubmitJobProcedure, f.leaderToken(t)},
		{f.gateway, plimsollv1connect.AgentServiceRegisterNodeProcedure, f.userToken(t)},
		{f.gateway, "/ws/v1/events/batch", ""},
		{f.gateway, "/nothing/here", ""},
		{f.leader, plimsollv1connect.ReplicationServiceReplicateProcedure, ""},
		{f.leader, plimsollv1connect.ReplicationServiceReplicateProcedure, f.userToken(t)},
	} {
		a := f.do(t, call{address: tc.address, path: tc.path, token: tc.token, body: strings.NewReader("")})
		if a.status != http.StatusUnauthorized && a.status != http.StatusForbidden {
			t.Errorf("%s%s with the token %.8q: %s; 401 or 403 is wanted", tc.address, tc.path, tc.token, a)
		}
	}
}

// strangeRegistrations registers another user's node, and impossible nodes.
func strangeRegistrations(t *testing.T, f *fleet) {
	for _, node := range []string{
		`{"id": "n1", "incarnation": "18446744073709551615"}`,
		`{"id": "n1", "incarnation": "1", "address": "unix:/var/run/docker.sock"}`,
		`{"id": "stranger", "incarnation": "1", "address": "unix:/var/run/docker.sock"}`,
		`{"id": "stranger", "incarnation": "1", "address": "169.254.169.254:80"}`,
		`{"id": "stranger", "incarnation": "1", "capacity": {"amounts": {"cpu": "9223372036854775807"}}}`,
	} {
		f.do(t, call{
			path: plimsollv1connect.AgentServiceRegisterNodeProcedure, contentType: "application/json",
			token: f.agentToken(t),
			body:  strings.NewReader(fmt.Sprintf(`{"node": %s}`, node)),
		}).refused(t)
	}
}
