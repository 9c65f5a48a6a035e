package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/token"
)

// TestAHistorianIsGuardedAsOtherRolesAre: every path of its port wants its own user token, and it
// refuses pages in a browser.
func TestAHistorianIsGuardedAsOtherRolesAre(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.dev("--history", "none")
	listener := freePorts(t, 1)[0]
	start(t, "historian", "--data", s.path("historian"), "--listen", listener, "--server", s.address,
		"--host", "own.example").says("msg=serving")
	own, err := token.Load(token.User, s.path("historian", "user.token"))
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{
		plimsollv1connect.HistoryServiceGetTimelineProcedure, plimsollv1connect.HistoryServiceGetUsageProcedure,
		"/history/v1/usage", "/", "/no/such/path",
	}
	for _, path := range paths {
		for _, other := range []string{
			"", "Bearer x", token.New(token.User).Header(), token.New(token.Agent).Header(),
		} {
			status, body := request(t, listener, "POST "+path, other)
			if status != http.StatusUnauthorized || !strings.Contains(body, "user token") {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		status, body := request(t, listener, "GET "+path, own.Header())
		if status == http.StatusUnauthorized || status == http.StatusForbidden {
			t.Errorf("%s with its token: %d %s", path, status, body)
		}
	}
	if status, body := ask(t, listener, paths[0], "evil.example", "", ""); status != http.StatusForbidden {
		t.Errorf("another host: %d %s", status, body)
	}
	// A caller on the same machine finds the token.
	if _, stderr, code := plimsollAt(t.Context(), listener, "history", "status"); code != 0 {
		t.Error(stderr)
	}
}

// A server without a history says so, and names the remedy.
func TestAServerWithoutAHistorySaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.dev("--history", "none")
	for _, args := range [][]string{
		{"history", "job", "a"}, {"history", "status"}, {"usage"}, {"at", "1s"}, {"history", "export", "-"},
	} {
		_, stderr, code := s.cli(args...)
		if code == 0 || !strings.Contains(stderr, "this gateway has no history; ask a historian by its own address (--s") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}
