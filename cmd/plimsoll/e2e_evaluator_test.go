package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/token"
)

// partOfAFleet is a file with two servers.
const partOfAFleet = `[{"id": "n1", "capacity": {"cpu": 4}}, {"id": "n2", "capacity": {"cpu": 4}}]`

// evaluator starts an evaluator of a part of a fleet, and waits until it serves.
func (s *site) evaluator(listen string, more ...string) *daemon {
	s.t.Helper()
	args := []string{
		"evaluator", "--servers", s.write("servers.json", partOfAFleet), "--data", s.path("evaluator"),
		"--listen", listen,
	}
	d := start(s.t, append(args, more...)...)
	d.says("msg=serving")
	return d
}

// TestAnEvaluatorIsGuardedAsOtherRolesAre: every path of its port wants the evaluator's own token,
// before the body comes, and refuses pages in a browser. Callers on the same machine find the
// token.
func TestAnEvaluatorIsGuardedAsOtherRolesAre(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	listener := freePorts(t, 1)[0]
	s.evaluator(listener, "--host", "own.example")
	own, err := token.Load(token.Evaluator, s.path("evaluator", "evaluator.token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range append(methods(), "/", "/no/such/path") {
		for _, other := range []string{
			"", "Bearer x", token.New(token.User).Header(),
			token.New(token.Evaluator).Header(),
		} {
			if status, body := request(t, listener, "POST "+method, other); status != http.StatusUnauthorized ||
				!strings.Contains(body, "evaluator token") {
				t.Errorf("%s: %d %s", method, status, body)
			}
		}
		if status, body := request(t, listener, "GET "+method, own.Header()); status == http.StatusUnauthorized ||
			status == http.StatusForbidden {
			t.Errorf("%s with its token: %d %s", method, status, body)
		}
	}
	for _, c := range []struct {
		host, header, value string
		refused             bool
	}{
		{host: "evil.example", refused: true},
		{host: listener, header: "Origin", value: "http://evil.example", refused: true},
		{host: listener, header: "Sec-Fetch-Site", value: "cross-site", refused: true},
		{host: "own.example"},
	} {
		status, body := ask(t, listener, "/plimsoll.v1.PlacementService/Evaluate", c.host, c.header, c.value)
		if (status == http.StatusForbidden) != c.refused {
			t.Errorf("Host %s, %s %s: %d %s", c.host, c.header, c.value, status, body)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		response, err := http.Get("http://" + listener + path)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(response.Body)
		_ = response.Body.Close() // it was read
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s %v", path, response.StatusCode, data, err)
		}
		if path == "/metrics" && !strings.Contains(string(data), "\nplimsoll_evaluator_servers 2\n") {
			t.Errorf("%s", data)
		}
	}

	order := s.write("request.json", `{"resources": {"cpu": 1}}`)
	if stdout, stderr, code := run(t, "place", order, "--evaluators", listener); code != 0 ||
		!strings.Contains(stdout, "1 of 1 task fits") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	_, stderr, code := runAs(t, t.TempDir(), nil, "place", order, "--evaluators", listener)
	if code != exitFailed || !strings.Contains(stderr,
		"give it by --evaluator-token-file or PLIMSOLL_EVALUATOR_TOKEN_FILE") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	file := s.path("evaluator", "evaluator.token")
	if _, stderr, code := runAs(t, t.TempDir(), nil, "place", order, "--evaluators", listener,
		"--evaluator-token-file", file); code != 0 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// TestAnEvaluatorWithoutATokenSaysSo, and one on a socket needs none.
func TestAnEvaluatorWithoutATokenSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	listener := freePorts(t, 1)[0]
	d := s.evaluator(listener, "--no-token")
	if said := d.stderr(); strings.Count(said,
		"everybody who reaches the address may do everything there, without a token") != 1 {
		t.Errorf("%s", said)
	}
	order := s.write("request.json", `{"resources": {"cpu": 1}}`)
	if _, stderr, code := runAs(t, t.TempDir(), nil, "place", order, "--evaluators", listener); code != 0 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	d.stop()
	socket := "unix:" + s.path("evaluator.sock")
	s.evaluator(socket)
	if _, stderr, code := runAs(t, t.TempDir(), nil, "place", order, "--evaluators", socket); code != 0 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
